"""A small classifier: 784-256-128-10, batch 64."""

from benchmarks.case import Data
from benchmarks.mlp import jax_step, mlp_data, rlx_step, torch_step

__all__ = ["data", "jax_step", "rlx_step", "torch_step"]


def data() -> Data:
    """Parameters and batch."""
    return mlp_data((784, 256, 128, 10), batch=64)
