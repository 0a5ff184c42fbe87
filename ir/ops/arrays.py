"""Every array function of NumPy's names, for one import."""

from __future__ import annotations

from rlx_py.ir.ops.creation import (
    arange,
    eye,
    full,
    full_like,
    linspace,
    meshgrid,
    one_hot,
    ones,
    ones_like,
    tri,
    tril,
    triu,
    zeros,
    zeros_like,
)
from rlx_py.ir.ops.einsum import einsum
from rlx_py.ir.ops.folding import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    cumprod,
    cumsum,
    logsumexp,
    max,
    mean,
    min,
    norm,
    prod,
    std,
    sum,
    var,
)
from rlx_py.ir.ops.indexing import getitem, take, take_along_axis
from rlx_py.ir.ops.products import (
    diag,
    diagonal,
    dot,
    inner,
    matmul,
    outer,
    tensordot,
    trace,
    vdot,
)
from rlx_py.ir.ops.running import cumlogsumexp, cummax, cummin
from rlx_py.ir.ops.scatter import scatter_add, scatter_max, scatter_min, scatter_set
from rlx_py.ir.ops.shaping import (
    array_split,
    broadcast_to,
    concatenate,
    expand_dims,
    flip,
    moveaxis,
    pad,
    ravel,
    repeat,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    swapaxes,
    tile,
    transpose,
)

__all__ = [
    "all", "amax", "amin", "any", "arange", "argmax", "argmin", "array_split", "broadcast_to",
    "concatenate", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "diag", "diagonal",
    "dot", "einsum", "expand_dims", "eye", "flip", "full", "full_like", "getitem", "inner",
    "linspace", "logsumexp", "matmul", "max", "mean", "meshgrid", "min", "moveaxis", "norm",
    "one_hot", "ones", "ones_like", "outer", "pad", "prod", "ravel", "repeat", "reshape", "roll",
    "scatter_add", "scatter_max", "scatter_min", "scatter_set", "split", "squeeze", "stack", "std",
    "sum", "swapaxes", "take", "take_along_axis", "tensordot", "tile", "trace", "transpose", "tri",
    "tril", "triu", "var", "vdot", "zeros", "zeros_like",
]
