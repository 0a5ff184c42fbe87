"""Fourier transforms of (real, imaginary) pairs, under NumPy's names."""

from rlx_py.ir.ops.numpy.fourier import fft, fftn, ifft, ifftn, irfft, rfft

__all__ = ["fft", "fftn", "ifft", "ifftn", "irfft", "rfft"]
