"""Program to program: schedules, tiles, machine arithmetic, memory.

Nothing here knows of graphs.
"""
