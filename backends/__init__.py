"""Backends: what runs a program."""
