"""Graph to graph: derivatives in both modes, and checks of them.

The rules themselves are declared with the ops.
"""
