"""Graph to graph: many elements for one, and derivatives for all directions at once.

Batching rules are declared with the ops.
"""
