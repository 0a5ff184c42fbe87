"""Every array function of NumPy's names, for one import."""

from __future__ import annotations

from rlx_py.ir.nodes.operators import FUNCTIONS
from rlx_py.ir.ops.numpy.assembling import (
    average,
    count_nonzero,
    cross,
    fliplr,
    flipud,
    hstack,
    kron,
    ptp,
    rot90,
    tril_indices,
    triu_indices,
    vstack,
)
from rlx_py.ir.ops.numpy.creation import (
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
from rlx_py.ir.ops.numpy.einsum import einsum
from rlx_py.ir.ops.numpy.folding import (
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
from rlx_py.ir.ops.numpy.indexing import getitem, take, take_along_axis
from rlx_py.ir.ops.numpy.lines import (
    convolve,
    correlate,
    diff,
    interp,
    searchsorted,
    trapezoid,
)
from rlx_py.ir.ops.numpy.nan_folding import (
    nanmax,
    nanmean,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
)
from rlx_py.ir.ops.numpy.products import (
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
from rlx_py.ir.ops.numpy.running import cumlogsumexp, cummax, cummin
from rlx_py.ir.ops.numpy.scatter import scatter_add, scatter_max, scatter_min, scatter_set
from rlx_py.ir.ops.numpy.shaping import (
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
    "all", "amax", "amin", "any", "arange", "argmax", "argmin", "array_split", "average",
    "broadcast_to", "concatenate", "convolve", "correlate", "count_nonzero", "cross",
    "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "diag", "diagonal", "diff", "dot",
    "einsum", "expand_dims", "eye", "flip", "fliplr", "flipud", "full", "full_like", "getitem",
    "hstack", "inner", "interp", "kron", "linspace", "logsumexp", "matmul", "max", "mean",
    "meshgrid", "min", "moveaxis", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd", "nansum",
    "nanvar", "norm", "one_hot", "ones", "ones_like", "outer", "pad", "prod", "ptp", "ravel",
    "repeat", "reshape", "roll", "rot90", "scatter_add", "scatter_max", "scatter_min",
    "scatter_set", "searchsorted", "split", "squeeze", "stack", "std", "sum", "swapaxes", "take",
    "take_along_axis", "tensordot", "tile", "trace", "transpose", "trapezoid", "tri", "tril",
    "tril_indices", "triu", "triu_indices", "var", "vdot", "vstack", "zeros", "zeros_like",
]

FUNCTIONS.update(__all__)
