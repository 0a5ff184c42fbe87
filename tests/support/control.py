"""Loops and branches under test: the oracle, the loop programs and native code of one graph, its
derivatives in both modes, and a loop written out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import rlx_py as rlx
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.targets import host
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.loops.interpret import interpret

Array = np.ndarray[Any, Any]
Feed = Mapping[str, Any]
TOLERANCE = {8: 1e-10, 4: 2e-5, 2: 2e-2}


def normal(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Array:
    """Normal numbers, the same for the same shape and seed."""
    return np.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape)).astype(dtype)


def compiled(g: rlx.Graph, feed: Feed, **options: Any) -> dict[str, Array]:
    """What native code gives."""
    return dict(rlx.compile(g, **{"threads": 1, **options})(**feed))


def interpreted(g: rlx.Graph, feed: Feed) -> dict[str, Array]:
    """What the loop programs give."""
    given = {k: np.ascontiguousarray(feed[k], n.dtype.numpy) for k, n in g.leaves.items()}
    return {k: v for k, v in interpret(program_for(g, host()), given).items() if k in g.outputs}


def close(found: Mapping[str, Any], wanted: Mapping[str, Any], factor: float = 1.0) -> None:
    """Equal up to rounding of the element type; integers, NaNs and infinities exactly."""
    assert list(found) == list(wanted)
    for name, want in wanted.items():
        got = np.asarray(found[name])
        assert got.dtype == want.dtype and got.shape == want.shape, name
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want, name)
            continue
        tolerance = factor * TOLERANCE[want.dtype.itemsize]
        wide = want.astype(np.float64)
        scale = np.max(np.abs(wide), initial=1, where=np.isfinite(wide))
        np.testing.assert_allclose(got.astype(np.float64), wide, rtol=tolerance,
                                   atol=tolerance * scale, err_msg=name)


def agree(g: rlx.Graph, feed: Feed, factor: float = 1.0, *, slow: bool = False) -> dict[str, Array]:
    """The oracle's results, which native code has too; slow: and the loop programs."""
    wanted = evaluate(g, feed)
    close(compiled(g, feed), wanted, factor)
    if slow:
        close(interpreted(g, feed), wanted, factor)
    return wanted


def same_bits(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Equal names, types and bits."""
    assert list(found) == list(wanted)
    for name, want in wanted.items():
        got = np.asarray(found[name])
        assert got.dtype == want.dtype and got.tobytes() == np.asarray(want).tobytes(), name


def floats(g: rlx.Graph) -> list[str]:
    """The leaves that have derivatives."""
    return [k for k, n in g.leaves.items() if n.dtype.is_float]


def extended(g: rlx.Graph, feed: Feed, seed: int = 1) -> dict[str, Any]:
    """The feed, with normal numbers for the inputs that it lacks."""
    rng = np.random.default_rng(seed)
    more = {k: rng.standard_normal(n.shape).astype(n.dtype.numpy)
            for k, n in g.leaves.items() if k not in feed}
    return {**feed, **more}


def check_modes(g: rlx.Graph, feed: Feed, wrt: Sequence[str] | None = None,
                factor: float = 1.0) -> None:
    """⟨ct, JVP t⟩ = ⟨VJP ct, t⟩ for all float outputs at once, by the oracle and by native code."""
    names = floats(g) if wrt is None else list(wrt)
    back, forth = rlx.vjp(g, names), rlx.jvp(g, names)
    given = extended(forth, extended(back, feed))
    outputs = [k for k, n in g.outputs.items() if n.dtype.is_float]
    for run in (evaluate, compiled):
        pulled = run(back, {k: given[k] for k in back.leaves})
        pushed = run(forth, {k: given[k] for k in forth.leaves})
        left = _inner((given[f"ct_{k}"], pushed[f"t_{k}"]) for k in outputs)
        right = _inner((pulled[f"grad_{k}"], given[f"t_{k}"]) for k in names)
        itemsize = min(g.leaves[k].dtype.itemsize for k in names)
        np.testing.assert_allclose(left, right, rtol=factor * 10 * TOLERANCE[itemsize],
                                   atol=factor * 10 * TOLERANCE[itemsize])


def _inner(pairs: Iterable[tuple[Any, Any]]) -> float:
    return float(sum(np.sum(np.float64(a) * np.float64(b)) for a, b in pairs))


def written_out(body: Callable[[Any, Any], Any], init: Any, xs: Sequence[Any], length: int,
                reverse: bool = False) -> tuple[Any, list[Any]]:
    """The same steps without a loop: the last carry, and the y of each position."""
    ys: list[Any] = [None] * length
    for t in range(length)[::-1] if reverse else range(length):
        init, ys[t] = body(init, xs[t] if len(xs) else None)
    return init, ys


def loops(g: rlx.Graph) -> int:
    """How many loops and branches the program of a graph has."""
    return len(program_for(g, host()).regions)


def feed_of(g: rlx.Graph, seed: int = 0, scale: float = 0.5) -> dict[str, Array]:
    """Numbers for every leaf: normal ones, small integers, bools."""
    found = {}
    for i, (name, n) in enumerate(g.leaves.items()):
        rng = np.random.default_rng([seed, i])
        value = rng.standard_normal(n.shape) * scale if n.dtype.is_float else rng.integers(
            0, 2, n.shape)
        found[name] = np.asarray(value).astype(n.dtype.numpy)
    return found


def recurrent(steps: int, dtype: Any = rlx.f64, **options: Any) -> rlx.Graph:
    """h ← tanh(h W + x U), and what it gives at each step."""
    g = rlx.Graph("recurrent")
    xs, h0 = g.param("xs", (steps, 3), dtype), g.param("h0", (4,), dtype)
    w, u = g.param("w", (4, 4), dtype), g.param("u", (3, 4), dtype)
    h, ys = rlx.scan(lambda h, x: (rlx.tanh(h @ w + x @ u), h * 2), h0, xs, **options)
    g.output("h", h)
    g.output("ys", ys)
    g.output("loss", (h * h).sum() + (ys * ys * ys).sum())
    return g
