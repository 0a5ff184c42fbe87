"""A copy that is never merged with its original: what follows from it is computed again."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack

from rlx_py.ir.base.types import TensorType, Type
from rlx_py.ir.graph.stored import Emitter, LoopRule
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.loops.index import Index
from rlx_py.ir.loops.kernel import Expr
from rlx_py.ir.nodes.node import Ask, Node, Op, register
from rlx_py.ir.ops.making.batching import unchanged


def _infer(x: TensorType, *after: TensorType) -> Type:
    return x


def _element(node: Node, index: tuple[Index, ...]) -> Generator[Ask, Expr, Expr]:
    value: Expr = yield (0, index)
    return value


def _vjp(node: Node, ct: Node, ad: AD) -> Sequence[Node | None]:
    return (ct, *([None] * (len(node.inputs) - 1)))


def _jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Node | None:
    return None if tangents[0] is None else BARRIER(tangents[0], *node.inputs[1:])


# barrier(x, *after) is x. It is no copy at run time; but equal nodes over x and over it stay two,
# and a kernel that reads it runs after those that compute `after`.
BARRIER = register(Op("barrier", _infer, eval=lambda x, *after: x, vjp=_vjp, jvp=_jvp,
                      element=_element, batch=unchanged))


def _build(node: Node, e: Emitter) -> None:
    with ExitStack() as loops:
        index = tuple(loops.enter_context(e.loop(d, independent=True)) for d in node.shape)
        e.store(index, e.ask(0, index))


# in_memory(x) is x, stored: what reads it sees an array, however x is computed. So sums over it
# have one order.
IN_MEMORY = register(Op("in_memory", lambda x: x, eval=lambda x: x,
                        vjp=lambda node, ct, ad: (ct,), jvp=lambda node, ts, ad: ts[0],
                        kernel=LoopRule(_build), batch=unchanged))
