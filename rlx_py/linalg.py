"""Linear algebra under NumPy's names; compiled on a CPU it calls LAPACK (the extra `linalg`)."""

from rlx_py.ir.ops.matrices.linalg import (
    cholesky,
    det,
    eigh,
    eigvalsh,
    inv,
    lstsq,
    matrix_power,
    norm,
    pinv,
    qr,
    slogdet,
    solve,
    svd,
    svdvals,
    triangular_solve,
)

__all__ = [
    "cholesky", "det", "eigh", "eigvalsh", "inv", "lstsq", "matrix_power", "norm", "pinv", "qr",
    "slogdet", "solve", "svd", "svdvals", "triangular_solve",
]
