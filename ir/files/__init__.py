"""Graphs as text, files and pictures, and read back from them.

What is read is checked as if an enemy had written it.
"""
