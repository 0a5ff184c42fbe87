"""Nodes and ops, what a graph holds of them, and the invariants of both.

No operation is declared here, and nothing here writes or reads files.
"""
