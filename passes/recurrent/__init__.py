"""Recurrent and state-space operations, made of scans."""
