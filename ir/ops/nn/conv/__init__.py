"""Convolutions and moves of image patches.

Sliding windows as such are a primitive.
"""
