"""Losses and distances.

The softmax inside of them is in `norm`.
"""
