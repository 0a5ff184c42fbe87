"""Recurrent cells and layers over time, made of scans.

Loops as such are in `ir/ops/control`.
"""
