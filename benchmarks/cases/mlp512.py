"""A classifier bound by its matrix products: 784-1024-1024-10, batch 512."""

from benchmarks.case import Data
from benchmarks.mlp import jax_step, mlp_data, rlx_step, torch_step

__all__ = ["data", "jax_step", "rlx_step", "torch_step"]


def data() -> Data:
    """Parameters and batch."""
    return mlp_data((784, 1024, 1024, 10), batch=512)
