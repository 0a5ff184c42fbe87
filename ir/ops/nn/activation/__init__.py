"""Activations, plain and gated.

Softmax, which sees whole lines, is in `norm`.
"""
