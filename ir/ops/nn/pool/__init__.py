"""Pools and folds over sliding windows.

Resampling to other sizes is in `nn/resample.py`.
"""
