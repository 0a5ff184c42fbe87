"""State-space models: linear recurrences over time with a large state, made of scans.

Cells whose gates are functions of their state are in `recurrent`.
"""
