"""Matrix factorisations and solves as primitives over the last two axes, f32 and f64.

Native code copies each matrix, column by column, to where LAPACK works on it. A matrix that LAPACK
reports as singular, not positive definite or without convergence gives NaN throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, TupleType, Type, bool_, f32, f64, i32, i64
from rlx_py.ir.graph.stored import Emitter, LoopRule
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import Buffer, Const, Expr, IndexValue, Value
from rlx_py.ir.loops.local import Local
from rlx_py.ir.nodes.node import Node, Op, register
from rlx_py.ir.ops.making.batching import batch_solve, unchanged
from rlx_py.ir.ops.making.families import Array
from rlx_py.ir.ops.making.guards import apply, choose, read, scalar, settle
from rlx_py.ir.ops.matrices import factor_gradients as rules

Place = tuple[Index, ...]


def check_matrix(x: TensorType, square: bool = False) -> tuple[int, int]:
    """Rows and columns of matrices of a type that LAPACK takes."""
    if x.dtype not in (f32, f64):
        raise DTypeError(f"linear algebra takes f32 or f64, not {x.dtype}")
    if x.rank < 2:
        raise ShapeError(f"a matrix has rank 2 or more, not {x}")
    rows, columns = x.shape[-2:]
    if square and rows != columns:
        raise ShapeError(f"the matrix is not square: {x}")
    return rows, columns


def each_matrix(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's function matrix by matrix, NaN where it finds no result."""

    def eval(*arrays: Array, **attrs: Any) -> Any:
        batch = arrays[0].shape[:-2]
        # What shapes and types come out, asked of matrices that always have a result.
        model = function(*[np.eye(*a.shape[-2:], dtype=a.dtype) for a in arrays], **attrs)
        single = not isinstance(model, tuple)
        models = (model,) if single else model
        found = tuple(np.full((*batch, *np.shape(m)), np.nan, np.asarray(m).dtype) for m in models)
        for i in np.ndindex(batch):
            try:
                with np.errstate(all="ignore"):
                    values = function(*[a[i] for a in arrays], **attrs)
            except np.linalg.LinAlgError:
                continue
            for whole, value in zip(found, (values,) if single else values, strict=True):
                whole[i] = value
        return found[0] if single else found

    return eval


# ---- calling LAPACK --------------------------------------------------------------------------


def _letter(text: str) -> Index:
    """A character argument: a little-endian integer whose first byte it is."""
    return Index(ord(text))


class _Lapack:
    """The routines of one element type, on scratch memory of one matrix."""

    def __init__(self, node: Node, emit: Emitter) -> None:
        self.emit, self.dtype = emit, node.inputs[0].dtype
        self.prefix = "s" if self.dtype is f32 else "d"
        self.info = emit.scratch(i32, 1)

    def matrix(self, rows: int, columns: int = 1) -> Buffer:
        """Memory for a matrix in columns."""
        return self.emit.scratch(self.dtype, max(rows * columns, 1))

    def integers(self, count: int) -> Buffer:
        """Memory for pivots."""
        return self.emit.scratch(i32, max(count, 1))

    def call(self, routine: str, *args: Buffer | int | str) -> None:
        """A routine whose last argument is the status."""
        emit, found = self.emit, [self._argument(a) for a in args]
        emit.call(f"{self.prefix}{routine}_", *found, self.info)

    @staticmethod
    def _argument(value: Buffer | int | str) -> Buffer | Index:
        if isinstance(value, str):
            return _letter(value)
        return Index(value) if isinstance(value, int) else value

    def succeeded(self) -> Value:
        """Whether the last call found a result."""
        status = self.emit.get(self.info, Index(0))
        return settle(self.emit, apply("eq", bool_, status, scalar(0, i32)))

    def load(self, buffer: Buffer, position: int, at: Place, shape: tuple[int, int],
             usable: Value | None = None) -> None:
        """Copy a matrix of an input; zeros where it is not usable."""
        rows, columns = shape
        emit = self.emit
        with (emit.loop(columns, independent=True) as c, emit.loop(rows, independent=True) as r):
            value = emit.ask(position, (*at, r, c))
            kept = choose(usable, value, scalar(0, self.dtype), self.dtype)
            emit.put(buffer, c * rows + r, settle(emit, kept))

    def store(self, buffer: Buffer, result: int, at: Place, shape: tuple[int, int],
              valid: Value | None, lead: int | None = None, keep: Any = None) -> None:
        """Write a matrix as a result: NaN unless valid, 0 where keep(row, column) is false."""
        rows, columns = shape
        emit = self.emit
        with (emit.loop(rows, independent=True) as r, emit.loop(columns, independent=True) as c):
            value: Expr = emit.get(buffer, c * (lead or rows) + r)
            if keep is not None:
                value = choose(keep(r, c), value, scalar(0, self.dtype), self.dtype)
            value = choose(valid, value, scalar(np.nan, self.dtype), self.dtype)
            emit.store((*at, r, c), settle(emit, value), result=result)

    def finite(self, position: int, at: Place, shape: tuple[int, int]) -> Value:
        """Whether no element of an input is NaN or infinite: iterations might not end on it."""
        rows, columns = shape
        emit = self.emit
        odd: Local = emit.declare(i32, scalar(0, i32))
        with (emit.loop(rows, independent=False) as r, emit.loop(columns, independent=False) as c):
            value = emit.ask(position, (*at, r, c))
            rest = apply("sub", self.dtype, value, value)
            bad = apply("ne", bool_, rest, rest)
            one: Expr = choose(bad, scalar(1, i32), scalar(0, i32), i32)
            emit.set(odd, settle(emit, one), "max")
        return settle(emit, apply("eq", bool_, read(odd), scalar(0, i32)))


@contextmanager
def _batch(sizes: Sequence[int], emit: Emitter) -> Iterator[Place]:
    with ExitStack() as loops:
        yield tuple(loops.enter_context(emit.loop(n, independent=True)) for n in sizes)


def _ordered(op: str) -> Callable[[Index, Index], Expr]:
    """A comparison of row and column."""
    return lambda r, c: apply(op, bool_, IndexValue(r, i64), IndexValue(c, i64))


# ---- Cholesky --------------------------------------------------------------------------------


def _infer_cholesky(a: TensorType) -> Type:
    check_matrix(a, square=True)
    return a


def _cholesky_loops(node: Node, emit: Emitter) -> None:
    n = node.shape[-1]
    if not node.size:
        return
    with _batch(node.shape[:-2], emit) as at:
        lapack = _Lapack(node, emit)
        a = lapack.matrix(n, n)
        lapack.load(a, 0, at, (n, n))
        lapack.call("potrf", "L", n, a, n)
        lapack.store(a, 0, at, (n, n), lapack.succeeded(), keep=_ordered("ge"))


# The factor L, lower triangular, of L Lᵀ; reads the lower triangle alone.
CHOLESKY = register(Op("cholesky", _infer_cholesky, each_matrix(np.linalg.cholesky),
                       rules.cholesky_vjp, rules.cholesky_jvp, kernel=LoopRule(_cholesky_loops),
                       batch=unchanged))

# ---- solves ----------------------------------------------------------------------------------


def _infer_triangular(a: TensorType, b: TensorType, *, lower: bool, transpose: bool,
                      unit: bool) -> Type:
    return _infer_solve(a, b)


def _infer_solve(a: TensorType, b: TensorType) -> Type:
    n, _ = check_matrix(a, square=True)
    rows, _ = check_matrix(b)
    if rows != n or a.shape[:-2] != b.shape[:-2] or a.dtype is not b.dtype:
        raise ShapeError(f"{b} is no right-hand side of {a}")
    return b


def _triangle(a: Array, lower: bool, unit: bool) -> Array:
    kept = np.tril(a) if lower else np.triu(a)
    if unit:
        kept[np.diag_indices(len(a))] = 1
    return kept


def _eval_triangular(a: Array, b: Array, *, lower: bool, transpose: bool, unit: bool) -> Array:
    kept = _triangle(a, lower, unit)
    return np.asarray(np.linalg.solve(kept.T if transpose else kept, b))


def _triangular_loops(node: Node, emit: Emitter) -> None:
    n, columns = node.shape[-2:]
    if not node.size:
        return
    letters = ("L" if node.attrs["lower"] else "U", "T" if node.attrs["transpose"] else "N",
               "U" if node.attrs["unit"] else "N")
    with _batch(node.shape[:-2], emit) as at:
        lapack = _Lapack(node, emit)
        a, b = lapack.matrix(n, n), lapack.matrix(n, columns)
        lapack.load(a, 0, at, (n, n))
        lapack.load(b, 1, at, (n, columns))
        lapack.call("trtrs", *letters, n, columns, a, n, b, n)
        lapack.store(b, 0, at, (n, columns), lapack.succeeded())


TRIANGULAR_SOLVE = register(Op(
    "triangular_solve", _infer_triangular, each_matrix(_eval_triangular), rules.triangular_vjp,
    rules.triangular_jvp, kernel=LoopRule(_triangular_loops), batch=batch_solve))


def _solve_loops(node: Node, emit: Emitter) -> None:
    n, columns = node.shape[-2:]
    if not node.size:
        return
    with _batch(node.shape[:-2], emit) as at:
        lapack = _Lapack(node, emit)
        a, b = lapack.matrix(n, n), lapack.matrix(n, columns)
        lapack.load(a, 0, at, (n, n))
        lapack.load(b, 1, at, (n, columns))
        lapack.call("gesv", n, columns, a, n, lapack.integers(n), b, n)
        lapack.store(b, 0, at, (n, columns), lapack.succeeded())


SOLVE = register(Op("solve", _infer_solve, each_matrix(np.linalg.solve), rules.solve_vjp,
                    rules.solve_jvp, kernel=LoopRule(_solve_loops), batch=batch_solve))

# ---- determinant -----------------------------------------------------------------------------


def _infer_slogdet(a: TensorType) -> Type:
    check_matrix(a, square=True)
    return TupleType((a.with_shape(a.shape[:-2]),) * 2)


def _slogdet_loops(node: Node, emit: Emitter) -> None:
    (x,) = node.inputs
    n = x.shape[-1]
    with _batch(x.shape[:-2], emit) as at:
        lapack = _Lapack(node, emit)
        a, pivots, dtype = lapack.matrix(n, n), lapack.integers(n), x.dtype
        lapack.load(a, 0, at, (n, n))
        if n:
            lapack.call("getrf", n, n, a, n, pivots)
        sign, size = emit.declare(dtype, scalar(1, dtype)), emit.declare(dtype, scalar(0, dtype))
        with emit.loop(n, independent=False) as i:
            value = emit.get(a, i * (n + 1))
            swapped = apply("ne", bool_, emit.get(pivots, i), IndexValue(i + 1, i32))
            turn = choose(swapped, scalar(-1, dtype), scalar(1, dtype), dtype)
            factor = apply("mul", dtype, apply("sign", dtype, value), turn)
            emit.set(sign, settle(emit, apply("mul", dtype, read(sign), factor)))
            length = apply("log", dtype, apply("abs", dtype, value))
            emit.set(size, settle(emit, apply("add", dtype, read(size), length)))
        emit.store(at, read(sign), result=0)
        emit.store(at, read(size), result=1)


SLOGDET = register(Op("slogdet", _infer_slogdet, each_matrix(lambda a: tuple(np.linalg.slogdet(a))),
                      rules.slogdet_vjp, rules.slogdet_jvp, kernel=LoopRule(_slogdet_loops),
                      batch=unchanged))

# ---- QR --------------------------------------------------------------------------------------


def _infer_qr(a: TensorType) -> Type:
    rows, columns = check_matrix(a)
    if rows < columns:
        raise ShapeError(f"the primitive takes no more columns than rows, not {a}")
    return TupleType((a, a.with_shape((*a.shape[:-2], columns, columns))))


def _qr_loops(node: Node, emit: Emitter) -> None:
    (x,) = node.inputs
    m, n = x.shape[-2:]
    if not x.size:
        return
    with _batch(x.shape[:-2], emit) as at:
        lapack = _Lapack(node, emit)
        a, tau, lwork = lapack.matrix(m, n), lapack.matrix(n), 64 * n
        work = lapack.matrix(lwork)
        lapack.load(a, 0, at, (m, n))
        lapack.call("geqrf", m, n, a, m, tau, work, lwork)
        lapack.store(a, 1, at, (n, n), None, lead=m, keep=_ordered("le"))
        lapack.call("orgqr", m, n, n, a, m, tau, work, lwork)
        lapack.store(a, 0, at, (m, n), None)


QR = register(Op("qr", _infer_qr, each_matrix(lambda a: tuple(np.linalg.qr(a))), rules.qr_vjp,
                 rules.qr_jvp, kernel=LoopRule(_qr_loops), batch=unchanged))

# ---- eigenvalues and singular values ---------------------------------------------------------


def _infer_eigh(a: TensorType) -> Type:
    check_matrix(a, square=True)
    return TupleType((a.with_shape(a.shape[:-1]), a))


def _eigh_loops(node: Node, emit: Emitter) -> None:
    (x,) = node.inputs
    n = x.shape[-1]
    if not x.size:
        return
    with _batch(x.shape[:-2], emit) as at:
        lapack = _Lapack(node, emit)
        a, values = lapack.matrix(n, n), lapack.matrix(n)
        usable = lapack.finite(0, at, (n, n))
        lapack.load(a, 0, at, (n, n), usable)
        lwork, liwork = 1 + 6 * n + 2 * n * n, 3 + 5 * n
        lapack.call("syevd", "V", "L", n, a, n, values, lapack.matrix(lwork), lwork,
                    lapack.integers(liwork), liwork)
        valid = settle(emit, apply("and", bool_, lapack.succeeded(), usable))
        _store_line(emit, values, at, n, valid, result=0)
        lapack.store(a, 1, at, (n, n), valid)


def _store_line(emit: Emitter, buffer: Buffer, at: Place, size: int, valid: Value,
                result: int) -> None:
    with emit.loop(size, independent=True) as i:
        nothing: Const = scalar(np.nan, buffer.dtype)
        value = choose(valid, emit.get(buffer, i), nothing, buffer.dtype)
        emit.store((*at, i), settle(emit, value), result=result)


def _eval_eigh(a: Array) -> tuple[Array, ...]:
    _require_finite(a)
    return tuple(np.linalg.eigh(a))


def _eval_svd(a: Array) -> tuple[Array, ...]:
    _require_finite(a)
    return tuple(np.linalg.svd(a, full_matrices=False))


def _require_finite(a: Array) -> None:
    """Have no result where native code has none."""
    if not np.isfinite(a).all():
        raise np.linalg.LinAlgError("not finite")


# Eigenvalues, ascending, and eigenvectors (columns); reads the lower triangle alone.
EIGH = register(Op("eigh", _infer_eigh, each_matrix(_eval_eigh), rules.eigh_vjp, rules.eigh_jvp,
                   kernel=LoopRule(_eigh_loops), batch=unchanged))


def _infer_svd(a: TensorType) -> Type:
    rows, columns = check_matrix(a)
    batch, k = a.shape[:-2], min(rows, columns)
    return TupleType((a.with_shape((*batch, rows, k)), a.with_shape((*batch, k)),
                      a.with_shape((*batch, k, columns))))


def _svd_loops(node: Node, emit: Emitter) -> None:
    (x,) = node.inputs
    m, n = x.shape[-2:]
    if not x.size:
        return
    k, largest = min(m, n), max(m, n)
    with _batch(x.shape[:-2], emit) as at:
        lapack = _Lapack(node, emit)
        a, u, values, vt = (lapack.matrix(*shape) for shape in ((m, n), (m, k), (k, 1), (k, n)))
        usable = lapack.finite(0, at, (m, n))
        lapack.load(a, 0, at, (m, n), usable)
        lwork = 4 * k * k + 7 * k + max(largest, 64 * (m + n))
        lapack.call("gesdd", "S", m, n, a, m, values, u, m, vt, k, lapack.matrix(lwork), lwork,
                    lapack.integers(8 * k))
        valid = settle(emit, apply("and", bool_, lapack.succeeded(), usable))
        lapack.store(u, 0, at, (m, k), valid)
        _store_line(emit, values, at, k, valid, result=1)
        lapack.store(vt, 2, at, (k, n), valid)


SVD = register(Op("svd", _infer_svd, each_matrix(_eval_svd), rules.svd_vjp, rules.svd_jvp,
                  kernel=LoopRule(_svd_loops), batch=unchanged))
