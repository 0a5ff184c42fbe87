"""Factorisations, solves and functions of matrices, with derivatives of any order.

Products of matrices are in `numpy/products.py`.
"""
