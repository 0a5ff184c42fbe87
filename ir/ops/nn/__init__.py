"""Layers and losses under PyTorch's names.

Array functions are in `numpy`; layers with a state over time are loops (`ir/ops/nn/recurrent`).
"""
