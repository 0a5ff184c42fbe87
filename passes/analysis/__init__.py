"""What is known of a graph or program without changing it.

A transformation may ask here; nothing here makes nodes or statements.
"""
