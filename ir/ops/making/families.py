"""Constructors of op families: each gives inference, evaluation, both derivatives and lowering from
one statement."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import wraps
from typing import Any

import numpy as np

from rlx_py.ir.base.errors import DTypeError, ShapeError
from rlx_py.ir.base.types import DType, Precision, TensorType, Type
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import Apply, Expr
from rlx_py.ir.nodes.node import (
    OPS,
    Ask,
    BatchRule,
    JVPRule,
    Node,
    Op,
    VJPRule,
    make,
    register,
)
from rlx_py.ir.ops.making.batching import unchanged
from rlx_py.ir.ops.making.rows import RowsRule, same_axes

Array = np.ndarray[Any, Any]
# The partial derivative by one input: a Node, 1 or −1 (never multiplied), or None for 0.
Partial = Callable[..., "Node | int | None"]

NUMERIC = ("float", "int", "uint")
ANY = (*NUMERIC, "bool")
POLYNOMIAL = 10  # scalar operations of exp, log, division and their like


def narrow(x: Any) -> Any:
    """An array of a narrow float as f32, in which its arithmetic is done."""
    if isinstance(x, np.ndarray | np.generic) and x.dtype.itemsize == 2:
        return np.asarray(x).astype(np.float32)
    return x


def quiet(eval: Callable[..., Any]) -> Callable[..., Any]:
    """Evaluate as compiled code does: NaN and infinity without warnings, f16 and bf16 in f32."""

    @wraps(eval)
    def run(*arrays: Any, **attrs: Any) -> Any:
        with np.errstate(all="ignore"):
            return eval(*[narrow(a) for a in arrays], **attrs)

    return run


def same_type(name: str, kinds: Sequence[str], result: DType | None) -> Callable[..., Type]:
    """Inference of element-wise ops: all operands of one type, of an allowed kind."""

    def infer(*types: TensorType, **attrs: Any) -> Type:
        first = types[0]
        for t in types[1:]:
            if t.shape != first.shape:
                raise ShapeError(f"operands differ in shape: {first} and {t}")
            if t.dtype is not first.dtype:
                raise DTypeError(f"operands differ in element type: {first} and {t}")
        if first.dtype.kind not in kinds:
            raise DTypeError(f"{name} takes {' or '.join(kinds)}, not {first.dtype}")
        return first.with_dtype(result) if result else first

    return infer


def elementwise(
    name: str,
    eval: Callable[..., Any],
    partials: Sequence[Partial] | None,
    *,
    kinds: Sequence[str] = ("float",),
    result: DType | None = None,
    infer: Callable[..., Type] | None = None,
    cost: int | None = None,
) -> Op:
    """An op on equal shapes; `partials[i](y, *inputs)` is ∂y/∂inputs[i].

    partials=None marks an op without derivative (comparison, rounding, integer logic). The scalar
    operation of the loop language has the op's own name. cost defaults to that of a polynomial for
    ops that only floats have, else to one operation.
    """

    vjp, jvp = (None, None) if partials is None else _rules(partials)
    return register(Op(
        name,
        infer or same_type(name, kinds, result),
        quiet(eval),
        vjp,
        jvp,
        element=scalar_element,
        batch=unchanged,
        differentiable=partials is not None,
        cost=cost or (POLYNOMIAL if tuple(kinds) == ("float",) else 1),
    ))


def _rules(partials: Sequence[Partial]) -> tuple[VJPRule, JVPRule]:
    """Both modes of what is differentiated element by element."""

    def vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
        return [
            _times(ct, partial(node, *node.inputs), ad) if x.dtype.is_float else None
            for x, partial in zip(node.inputs, partials, strict=True)
        ]

    def jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
        terms = [
            _times(t, partial(node, *node.inputs), ad)
            for t, partial in zip(tangents, partials, strict=True)
            if t is not None
        ]
        return add_all(terms)

    return vjp, jvp


def scalar_element(node: Node, index: tuple[Index, ...]) -> Generator[Ask, Expr, Expr]:
    """The scalar operation of the op's own name, on the inputs at the same index."""
    values: list[Any] = []
    for i in range(len(node.inputs)):
        values.append((yield (i, index)))
    return Apply(node.op.name, tuple(values), node.dtype, tuple(sorted(node.attrs.items())))


def _times(ct: Node, partial: Node | int | None, ad: AD) -> Node | None:
    if partial is None:
        return None
    if isinstance(partial, Node):
        return ad.times(ct, partial)
    return ct if partial == 1 else make(OPS["neg"], (ct,), {})


def add_all(terms: Sequence[Node | None]) -> Node | None:
    """The sum of what is there; None when nothing is."""
    total: Node | None = None
    for term in terms:
        if term is not None:
            total = term if total is None else make(OPS["add"], (total, term), {})
    return total


def linear(
    name: str,
    infer: Callable[..., Type],
    eval: Callable[..., Any],
    transpose: Callable[[Node, Node], Node],
    *,
    batch: BatchRule | None = None,
    element: Any = None,
    kernel: Any = None,
) -> Op:
    """An op linear in its only input: transpose(node, ct) is its adjoint applied to ct."""

    def vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
        return (transpose(node, ct),)

    def jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
        (t,) = tangents
        return None if t is None else make(node.op, (t,), node.attrs)

    return register(Op(name, infer, eval, vjp, jvp, element=element, kernel=kernel, batch=batch))


def composite(
    name: str,
    infer: Callable[..., Type],
    decompose: Callable[..., Any],
    *,
    vjp: Any = None,
    jvp: Any = None,
    batch: BatchRule | None = None,
    precision: Precision | None = None,
    rows: RowsRule | None = None,
    doubt: Callable[..., str] | None = None,
) -> Op:
    """An op defined by its decomposition.

    Its derivative is that of the decomposition, unless it brings a VJP that emits a …Backward op
    (itself a composite, so it differentiates again). So is its batching, without a rule for it.
    """
    return register(Op(name, infer, None, vjp, jvp, decompose=decompose, batch=batch,
                       precision=precision, rows=rows, doubt=doubt))


def closed(name: str, infer: Callable[..., Type], decompose: Callable[..., Any],
           partials: Sequence[Partial]) -> Op:
    """An element-wise composite with partials as those of `elementwise`, given in closed form
    because the derivative of its decomposition cancels or overflows."""
    vjp, jvp = _rules(partials)
    return composite(name, infer, decompose, vjp=vjp, jvp=jvp, batch=unchanged,
                     rows=lambda node: [same_axes(node.rank)] * len(node.inputs))
