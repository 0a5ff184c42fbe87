"""Random numbers from explicit keys, as jax.random: the same key gives the same numbers."""

from rlx_py.ir.ops.numpy.distributions import (
    bernoulli,
    bits,
    categorical,
    exponential,
    fold_in,
    gumbel,
    key,
    key_state,
    normal,
    permutation,
    randint,
    split,
    truncated_normal,
    uniform,
)

__all__ = [
    "bernoulli", "bits", "categorical", "exponential", "fold_in", "gumbel", "key", "key_state",
    "normal", "permutation", "randint", "split", "truncated_normal", "uniform",
]
