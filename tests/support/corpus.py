"""Graphs that together hold every op, for laws that any graph obeys."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import rlx_py.ir.ops.primitive.elementwise as e
import rlx_py.ir.ops.primitive.index as at
import rlx_py.ir.ops.primitive.movement as mv
from rlx_py.ir.base.dim import dim
from rlx_py.ir.base.errors import RLXError
from rlx_py.ir.base.types import TensorType, bf16, bool_, f16, f32, f64, i32, i64, u8
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.nodes.node import OPS, PROJECT, Node, Op, make, pack
from rlx_py.ir.nodes.signature import signature
from rlx_py.ir.ops.control.branch import cond
from rlx_py.ir.ops.control.custom import custom_vjp
from rlx_py.ir.ops.control.loops import scan, while_loop
from rlx_py.ir.ops.making.constant import constant, iota
from rlx_py.ir.ops.numpy import folding, statistics
from rlx_py.ir.ops.primitive import cumulative, windows
from rlx_py.ir.ops.primitive import reduce as fold
from rlx_py.ir.ops.primitive.barrier import BARRIER, IN_MEMORY
from rlx_py.ir.ops.primitive.contract import CONTRACT
from rlx_py.ir.ops.primitive.special import POLYGAMMA, SINC_DERIVATIVE
from rlx_py.passes.batch.vmap import vmap
from rlx_py.passes.derive.checkpointing import checkpoint
from rlx_py.passes.derive.linear_rules import custom_jvp
from rlx_py.passes.derive.vjp import vjp
from support.layers import CASES, graph_of
from support.programs import random_graph
from support.samples import samples_of

Function = Callable[..., Node]
SCATTERS = ("scatter_add", "scatter_set", "scatter_max", "scatter_min")


def of(function: Function, *types: TensorType) -> Graph:
    """A graph of a function's result (every one of a tuple) on inputs x0, x1 …"""
    g = Graph("sample")
    y = function(*[g.input(f"x{i}", t.shape, t.dtype) for i, t in enumerate(types)])
    results = [y] if isinstance(y.type, TensorType) else list(y)
    for i, result in enumerate(results):
        g.output(f"y{i}", result)
    return g


def plain(op: Op) -> Graph | None:
    """A graph of an op without attributes on operands of one type, where there is such a type."""
    known = signature(op)
    if known.attrs or known.rest is not None or not known.most:
        return None
    for dtype in (f64, i32, bool_):
        try:
            return of(op, *[TensorType(dtype, (2, 3))] * known.most)
        except (RLXError, ValueError):
            continue
    return None


def _tensor(*shape: int, dtype: Any = f64) -> TensorType:
    return TensorType(dtype, shape)


def _structure() -> dict[str, Graph]:
    x, cube, idx = _tensor(3, 4), _tensor(2, 3, 4), _tensor(2, dtype=i64)
    along, line = _tensor(3, 4, dtype=i64), _tensor(7)
    cut = {"start": (0, 1), "stop": (3, 4), "step": (2, 1)}
    taps = {"size": (3,), "stride": (2,), "dilation": (1,)}
    found = {
        "broadcast": of(lambda n: mv.BROADCAST(n, shape=(2, 3, 4), axes=(1, 2)), x),
        "slice": of(lambda n: mv.SLICE(n, **cut), x),
        "reverse": of(lambda n: mv.REVERSE(n, axes=(1,)), x),
        "pad": of(lambda n, v: mv.PAD(n, v, low=(1, -1), high=(0, 2), interior=(0, 1)), x,
                  _tensor()),
        "concat": of(lambda a, b: mv.CONCAT(a, b, axis=0), x, x),
        "transpose": of(lambda n: mv.TRANSPOSE(n, axes=(2, 0, 1)), cube),
        "reshape": of(lambda n: mv.RESHAPE(n, shape=(4, 6)), cube),
        "contract": of(lambda a, b: CONTRACT(a, b, batch=((0,), (0,)), contract=((2,), (2,))),
                       cube, _tensor(2, 5, 4)),
        "iota": of(lambda: iota((3, 4), 1, bf16)),
        "select": of(e.SELECT, _tensor(3, dtype=bool_), _tensor(3), _tensor(3)),
        "cast": of(lambda n: e.CAST(n, dtype=f16), x),
        "bitcast": of(lambda n: e.BITCAST(n, dtype=i64), x),
        "tuple": of(lambda a, b: make(PROJECT, (pack([a, b]),), {"index": 1}), x, cube),
        "polygamma": of(lambda n: POLYGAMMA(n, n=2), x),
        "sinc_derivative": of(lambda n: SINC_DERIVATIVE(n, n=1), x),
        "gather": of(lambda n, i: at.GATHER(n, i, axis=1, mode="clip"), x, idx),
        "take_along": of(lambda n, i: at.TAKE_ALONG(n, i, axis=1, mode="fill"), x, along),
        "windows": of(lambda n: windows.WINDOWS(n, **taps), line),
        "fold": of(lambda n: windows.FOLD(n, shape=(7,), **taps), _tensor(3, 3)),
        "recurrence": of(lambda a, b: cumulative.LINEAR_RECURRENCE(a, b, axis=1, reverse=True),
                         x, x),
        "variance": of(lambda n: statistics.VARIANCE(n, axes=(1,), ddof=1), x),
        "deviation": of(lambda n: statistics.DEVIATION(n, axes=(0, 1)), x),
        "norm": of(lambda n: folding.norm(n, axis=1), x),
        "logsumexp": of(lambda n: folding.logsumexp(n, 0), x),
        "any": of(lambda n: fold.ANY(n, axes=(0,)), _tensor(3, 4, dtype=bool_)),
        "all": of(lambda n: fold.ALL(n, axes=()), _tensor(3, 4, dtype=bool_)),
        "in_memory": of(IN_MEMORY, x),
        "barrier": of(lambda n, i: BARRIER(n, i), x, idx),
        "scan": of(lambda n: scan(lambda c, a: (e.MUL(c, a), e.TANH(c)), n[0], n)[1], x),
        "while": of(lambda n: while_loop(lambda c: c.sum() < 100, lambda c: c + c * c, n, 9), x),
        "cond": of(lambda n: cond(n.sum() > 0, e.TANH, lambda a: e.MUL(a, n), n), x),
        "checkpoint": of(checkpoint(lambda n: e.TANH(e.MUL(n, n))), x),
        "custom_vjp": of(custom_vjp(e.SIN, lambda n: (e.SIN(n), n),
                                    lambda n, ct: (e.MUL(ct, e.COS(n)),)), x),
        "custom_jvp": of(custom_jvp(e.SIN, lambda n, t: (e.SIN(n[0]), e.MUL(t[0], e.COS(n[0])))),
                         x),
        "scatter_along": of(lambda n, i, u: at.SCATTER_ADD_ALONG(n, i, u, axis=1, mode="fill"),
                            x, along, x),
    }
    for name in ("cumargmax", "cumargmin", "cumlogsumexp"):
        found[name] = of(lambda n, op=OPS[name]: op(n, axis=0, reverse=True), x)
    for name in ("cumsum", "cumprod"):
        found[name] = of(lambda n, op=OPS[name]: op(n, axis=0, exclusive=True, reverse=False), x)
    for name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "argmax", "argmin"):
        found[name] = of(lambda n, op=OPS[name]: op(n, axes=(0, 2)), cube)
    for name in SCATTERS:
        found[name] = of(lambda n, i, u, op=OPS[name]: op(n, i, u, axis=1, mode="fill"),
                         x, idx, _tensor(3, 2))
    return found


def constants() -> Graph:
    """Every element type as constants: written out, long, empty, scalar, and odd floats."""
    g = Graph('odd "names"\n\\ %é')
    rng = np.random.default_rng(0)
    odd = [np.nan, np.inf, -np.inf, -0.0, 0.1, 5e-324, 1.7976931348623157e308, 100.0]
    with np.errstate(all="ignore"):
        for dtype in (f64, f32, f16, bf16):
            g.output(f"odd {dtype}", constant(np.array(odd).astype(dtype.numpy)))
    payload = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    g.output("payload", constant(payload))
    for dtype in (f64, f32, f16, bf16, i64, i32, u8, bool_):
        g.output(f"long {dtype}", constant(rng.integers(0, 2, (5, 7)).astype(dtype.numpy)))
    for shape in ((), (0,), (2, 0, 3), (1, 1)):
        g.output(f"ones {shape}", constant(np.ones(shape, np.float32)))
    g.output("extreme", constant(np.array([2**63 - 1, -2**63])))
    return g


def step() -> Graph:
    """A graph with params, updates, and states that begin as every kind of value."""
    g = Graph("step")
    x, w = g.input("x", (2, 3)), g.param("w", (3, 3))
    ready: dict[str, Any] = {
        "number": 0.5, "integer": 3, "truth": True, "minus_zero": -0.0, "nan": float("nan"),
        "scalar": np.float32(0.1), "list": [1.0, 2.0, 3.0], "array": np.array([0.1, np.inf, -0.0]),
        "narrow": np.ones(3, bf16.numpy)}
    for name, init in ready.items():
        state = g.state(name, (3,), init=init)
        g.next(name, state + x[0])
    g.state("kept", (), i64, 7)
    g.output("y", x @ w + sum(s.node for s in list(g.states.values())[:9]))
    g.update("w", w * 0.5)
    return g


def dynamic() -> Graph:
    """Sizes by name in types, attributes, tuples and bodies, with every form of arithmetic."""
    g, (b, t) = Graph("dynamic"), map(dim, "BT")
    x, y = g.input("x", (b, 2 * t + 1, 4)), g.input("y", (b * t - 1 + b,), i32)
    flat = x[:, 1:].reshape((-1, 4))
    g.output("half", flat[: b * t].reshape((b, t, 2, 2)).mean((1, 3)))
    g.output("steps", x[:, ::2].sum() / b)
    g.output("body", checkpoint(lambda n: e.TANH(e.MUL(n, n)))(flat))
    g.output("count", iota(((b + 1) // 2 * t, 7 // b + 1), 0, f16))
    g.output("next", y[1:])
    return g


@cache
def graphs() -> dict[str, Graph]:
    """The corpus by name."""
    found = {f"op {name}": g for name, op in OPS.items() if (g := plain(op)) is not None}
    found |= {f"structure {k}": g for k, g in _structure().items()}
    for name, (function, arrays) in CASES.items():
        g = graph_of(function, **arrays)
        found[f"layer {name}"] = g
        found[f"backward {name}"] = vjp(g, [k for k, a in arrays.items() if a.dtype.kind == "f"])
    found |= {f"backward of {k}": vjp(g, ["x0"]) for k, g in _structure().items()
              if g.inputs and g.inputs["x0"].dtype.is_float and len(g.outputs) == 1
              and g.outputs["y0"].dtype.is_float}
    found["twice backward max_pool2d"] = vjp(found["backward max_pool2d"], ["ct_y"])
    found |= {f"random {seed}": random_graph(seed) for seed in range(5)}
    held = {n.op.name for g in found.values() for n in g.nodes}
    found |= {f"sample {name}": samples_of(name)[0].graph() for name in OPS
              if name not in held and samples_of(name)}
    found["vmap fake_quantize"] = vmap(found["sample fake_quantize"], {"x0": (0, 3)})
    return found | {"constants": constants(), "dynamic": dynamic(), "step": step(),
                    "empty": Graph("empty")}
