"""Graphs as values: built, evaluated by NumPy, bound to sizes, asked about, owned by ops.

Transformations of graphs are passes; operations are in `ir/ops`.
"""
