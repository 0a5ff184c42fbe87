"""Normalisations of lines, channels and batches, softmax among them.

Clipping of gradients belongs to optimisers.
"""
