"""Attention, its scores and masks, heads and rotary positions.

Recurrent forms of attention are loops.
"""
