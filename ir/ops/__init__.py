"""Every op family; importing this fills the registry and the operators of Node."""

from rlx_py.ir.ops import (
    activation,
    arrays,
    conv,
    cumulative,
    dense,
    folding,
    index,
    loss,
    norm,
    pointwise,
    pool,
    products,
    shaping,
    softmax,
    special,
    windows,
)

__all__ = [
    "activation",
    "arrays",
    "conv",
    "cumulative",
    "dense",
    "folding",
    "index",
    "loss",
    "norm",
    "pointwise",
    "pool",
    "products",
    "shaping",
    "softmax",
    "special",
    "windows",
]
