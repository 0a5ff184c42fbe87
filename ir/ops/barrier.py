"""A copy that is never merged with its original: what follows from it is computed again."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from rlx_py.ir.index import Index
from rlx_py.ir.kernel import Expr
from rlx_py.ir.node import Ask, Chain, Node, Op, register
from rlx_py.ir.ops.batching import unchanged
from rlx_py.ir.types import TensorType, Type


def _infer(x: TensorType, *after: TensorType) -> Type:
    return x


def _element(node: Node, index: tuple[Index, ...]) -> Generator[Ask, Expr, Expr]:
    value: Expr = yield (0, index)
    return value


def _vjp(node: Node, ct: Node, chain: Chain) -> Sequence[Node | None]:
    return (ct, *([None] * (len(node.inputs) - 1)))


def _jvp(node: Node, tangents: Sequence[Node | None], chain: Chain) -> Node | None:
    return None if tangents[0] is None else BARRIER(tangents[0], *node.inputs[1:])


# barrier(x, *after) is x. It is no copy at run time; but equal nodes over x and over it stay two,
# and a kernel that reads it runs after those that compute `after`.
BARRIER = register(Op("barrier", _infer, eval=lambda x, *after: x, vjp=_vjp, jvp=_jvp,
                      element=_element, batch=unchanged))
