"""Functions under NumPy's names, and the composites they need.

Functions under PyTorch's names are in `nn`, of matrices in `matrices`.
"""
