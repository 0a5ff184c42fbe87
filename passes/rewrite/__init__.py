"""Graph to graph of the same meaning: simplified, decomposed, in other element types.

Nothing here knows of loops.
"""
