"""The laws that every program obeys: each gives a description of what is wrong, or None."""

from __future__ import annotations

import math
import random
import tempfile
import traceback
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import rlx_py as rlx
from fuzz.judge import Array, Judge, noise, rounding, wide
from fuzz.program import Line, Program
from fuzz.scope import FLOATS
from rlx_py.ir.graph.evaluate import evaluate_nodes

Fault = str | None
CHECKPOINTS: tuple[Any, ...] = ("nothing", rlx.budget(1000), rlx.budget(100_000))
# Relative to the sum of absolute terms, in the weakest element type of the program.
DUAL = {"f64": 1e-8, "f32": 2e-3, "f16": 0.3, "bf16": 0.5}


class Case:
    """A program with its graph, its loss, and what the oracle says of them."""

    def __init__(self, program: Program) -> None:
        self.program, self.feed = program, program.arrays
        self.graph, self.env = program.build()
        self.rng = random.Random(program.seed)

    @cached_property
    def judge(self) -> Judge:
        """The oracle's results of the graph."""
        return Judge(self.graph, self.feed, self.program.seed)

    @cached_property
    def wrt(self) -> list[str]:
        """The leaves that have derivatives."""
        return [x.name for x in self.program.leaves if x.dtype in FLOATS and x.kind != "state"]

    @cached_property
    def loss(self) -> rlx.Graph | None:
        """The graph with an output "loss", a weighted sum of its floats; None without floats."""
        graph, env = self.program.build()
        rng = np.random.default_rng(self.program.seed)
        parts = []
        for name in self.program.outputs:
            node = env[name]
            if str(node.dtype) in FLOATS:
                weights = rlx.constant(rng.standard_normal(node.shape).astype(node.dtype.numpy))
                total = rlx.sum(node * weights) / max(1.0, math.sqrt(node.size))
                parts.append(total.astype(rlx.f64 if str(node.dtype) == "f64" else rlx.f32))
        if not parts or not self.wrt:
            return None
        graph.output("loss", sum(parts[1:], parts[0]))
        return graph

    @cached_property
    def stateful(self) -> bool:
        """Whether a step changes states or params."""
        return bool(self.program.nexts or self.program.updates
                    or any(x.kind == "state" for x in self.program.leaves))

    def floats(self, graph: rlx.Graph) -> rlx.Graph:
        """The graph with its float outputs alone, and neither next values nor updates."""
        return graph.derive({k: n for k, n in graph.outputs.items() if str(n.dtype) in FLOATS})


def bits(array: Any) -> bytes:
    """What must be the same from run to run: all but a NaN's sign and payload, which IEEE 754
    leaves open."""
    array = np.asarray(array)
    if rounding(array.dtype) is not None:
        array = np.where(array != array, np.full((), np.nan, array.dtype), array)
    return np.ascontiguousarray(array).tobytes()


def compiled(graph: rlx.Graph, feed: Mapping[str, Array], **options: Any) -> dict[str, Array]:
    """What native code gives."""
    exe = rlx.compile(graph, **options)
    given = {k: feed[k] for k in graph.leaves if k in feed}
    return dict(exe(**given, discard_updates=True))


def normals(graph: rlx.Graph, feed: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """Normal numbers for the inputs that a transform added."""
    rng = np.random.default_rng(seed)
    return {k: rng.standard_normal(n.shape).astype(n.dtype.numpy)
            for k, n in graph.inputs.items() if k not in feed}


# ---- values --------------------------------------------------------------------------------------


def values(case: Case) -> Fault:
    """Native code gives the oracle's results, the same bits on every run and number of threads,
    and leaves its inputs alone."""
    before = {k: bits(a) for k, a in case.feed.items()}
    found = compiled(case.graph, case.feed, threads=2)
    for name, value in compiled(case.graph, case.feed, threads=1).items():
        if bits(value) != bits(found[name]):
            return f"{name}: one thread and two give other bits"
    for name, array in case.feed.items():
        if bits(array) != before[name]:
            return f"input {name} was changed"
    return case.judge.fault("output", found)


def steps(case: Case) -> Fault:
    """A step writes the oracle's next values in place, and no other array."""
    if not case.graph.updates and all(s.next is None for s in case.graph.states.values()):
        return None
    exe = rlx.compile(case.graph)
    kinds = {x.name: x.kind for x in case.program.leaves}
    state = exe.init({k: a for k, a in case.feed.items() if kinds[k] == "param"})
    for name in state.states:
        if name in case.feed:
            state.states[name][...] = case.feed[name]
    exe.step(state, **{k: a for k, a in case.feed.items() if kinds[k] == "input"})
    for name, value in state.params.items():
        if name not in case.graph.updates and bits(value) != bits(case.feed[name]):
            return f"the step changed param {name}"
    return case.judge.fault("state", state.states) or case.judge.fault("param", state.params)


def in_numpy(case: Case) -> Fault:
    """Lines that NumPy has under the same name give its values, for the oracle's operands."""
    if case.program.hostile:
        return None
    lines = [s for s in case.program.body if isinstance(s, Line) and s.numpy]
    needed = {n for s in lines for n in (*s.operands, s.target)}
    known = {case.env[k]: a for k, a in case.feed.items()}
    found = dict(zip(needed, evaluate_nodes([case.env[n] for n in needed], known), strict=True))
    for line in lines:
        given = {n: wide(found[n]) if rounding(np.asarray(found[n]).dtype) else np.asarray(found[n])
                 for n in line.operands}
        with np.errstate(all="ignore"):
            want = np.asarray(eval(line.code.replace("rlx.", "np."), {"np": np, **given}))
        got = np.asarray(found[line.target])
        if got.shape != want.shape:
            return f"{line.code}: {got.shape}, by NumPy {want.shape}"
        kinds = [rounding(np.asarray(found[n]).dtype) for n in (line.target, *line.operands)]
        eps = max(k or 0.0 for k in kinds)
        if rounding(got.dtype) is None:
            if got.dtype.kind == want.dtype.kind and (got != want).any():
                return f"{line.code}: other values by NumPy"
            continue
        largest = max([float(np.max(np.abs(wide(a)), initial=1)) for a in given.values()])
        if not np.allclose(wide(got), want, rtol=64 * eps, atol=64 * eps * largest**2,
                           equal_nan=True):
            return f"{line.code}: {got}, by NumPy {want}"
    return None


def fast_math(case: Case) -> Fault:
    """Rules that round otherwise stay near."""
    if case.program.hostile:
        return None
    return case.judge.fault("output", compiled(case.graph, case.feed, fast_math=True), 50)


def exported(case: Case) -> Fault:
    """A library gives the bits of the executable it was written by."""
    if any("linalg" in line for s in case.program.body for line in s.text()):
        return None  # it must be linked with LAPACK
    graph = case.floats(case.graph)
    if not graph.outputs:
        return None
    feed = {k: case.feed[k] for k in graph.leaves}
    with tempfile.TemporaryDirectory() as folder:
        exe = rlx.compile(graph)
        found, want = (run(**feed, discard_updates=True)
                       for run in (rlx.load(exe.export(f"{folder}/step")), exe))
    for name in want:
        if bits(found[name]) != bits(want[name]):
            return f"{name}: the library gives other bits"
    return None


# ---- transforms ----------------------------------------------------------------------------------


def text(case: Case) -> Fault:
    """Text and files are read back as the same graph."""
    printed = str(case.graph)
    parsed = rlx.parse(printed)
    if str(parsed) != printed:
        return "text: read back, it prints otherwise"
    with tempfile.TemporaryDirectory() as folder:
        case.graph.save(f"{folder}/g.rlx")
        loaded = rlx.Graph.load(f"{folder}/g.rlx")
    if str(loaded) != printed:
        return "file: read back, it prints otherwise"
    want = rlx.evaluate(case.graph, case.feed)
    for graph in (parsed, loaded):
        for name, value in rlx.evaluate(graph, case.feed).items():
            if bits(value) != bits(want[name]):
                return f"{name}: read back, it has other values"
    return None


def rewritten(case: Case) -> Fault:
    """Simplified and decomposed graphs mean the same."""
    parts = rlx.decompose(case.graph)
    for graph in (rlx.simplify(case.graph), parts, rlx.simplify(parts)):
        rlx.verify(graph)
        fault = case.judge.fault("output", rlx.evaluate(graph, case.feed))
        if fault:
            return f"rewritten: {fault}"
    return None


def batched(case: Case) -> Fault:
    """vmap gives for each element what the graph gives for it."""
    if case.stateful:
        return None
    rng, size = case.rng, case.rng.choice([1, 2, 3])
    mapped = [x for x in case.program.leaves if rng.random() < 0.6]
    if not mapped:
        return None
    axes = {x.name: rng.randint(0, len(x.shape)) for x in mapped}
    draw = np.random.default_rng(case.program.seed)
    rows = [case.feed, *({**case.feed, **{x.name: _other(x.array, draw) for x in mapped}}
                         for _ in range(size - 1))]
    feed = dict(case.feed)
    for name, axis in axes.items():
        feed[name] = np.ascontiguousarray(np.stack([row[name] for row in rows], axis))
    graph = rlx.vmap(case.graph, axes, size=size)
    found = rlx.evaluate(graph, feed) if rng.random() < 0.4 else compiled(graph, feed)
    for i, row in enumerate(rows):
        judge = case.judge if i == 0 else Judge(case.graph, row, case.program.seed)
        fault = judge.fault("output", {k: np.asarray(a)[i] for k, a in found.items()})
        if fault:
            return f"element {i} of {list(axes)}: {fault}"
    return None


def _other(array: Array, rng: np.random.Generator) -> Array:
    if array.dtype.kind == "b":
        return ~array
    return np.asarray(rng.permuted(array.ravel()).reshape(array.shape))


# ---- derivatives ---------------------------------------------------------------------------------


def gradient(case: Case) -> Fault:
    """The compiled gradient is the oracle's."""
    if case.loss is None:
        return None
    graph = case.floats(rlx.value_and_grad(case.loss, "loss", case.wrt))
    found = compiled(graph, case.feed, threads=2)
    return Judge(graph, case.feed, case.program.seed).fault("output", found)


def dual(case: Case) -> Fault:
    """⟨ct, JVP t⟩ = ⟨VJP ct, t⟩."""
    if case.loss is None or case.program.hostile:
        return None
    graph, seed = case.floats(case.graph), case.program.seed
    if not graph.outputs:
        return None
    names = [n for n in case.wrt if n in graph.leaves]
    back, forth = rlx.vjp(graph, names), rlx.jvp(graph, names)
    cts, tangents = normals(back, case.feed, seed + 1), normals(forth, case.feed, seed + 2)
    run: Any = rlx.evaluate if case.rng.random() < 0.5 else compiled
    feed = {k: case.feed[k] for k in graph.leaves}

    def products(run: Any) -> tuple[list[Array], list[Array]]:
        pulled, pushed = run(back, {**feed, **cts}), run(forth, {**feed, **tangents})
        return ([wide(cts[f"ct_{k}"]) * wide(pushed[f"t_{k}"]) for k in graph.outputs],
                [wide(pulled[f"grad_{k}"]) * wide(tangents[f"t_{k}"]) for k in names])

    def gap(left: list[Array], right: list[Array]) -> float:
        return float(sum(a.sum() for a in left) - sum(a.sum() for a in right))

    left, right = products(run)
    scale = float(sum(np.abs(a).sum() for a in left + right))
    kinds = [d for _, d in case.program.types.values() if d in FLOATS]
    found = abs(gap(left, right))
    if not math.isfinite(scale) or found <= max(DUAL[d] for d in kinds) * scale:
        return None
    with noise(np.random.default_rng(seed)):  # the terms may be all rounding themselves
        moved = abs(gap(*products(rlx.evaluate)))
    if found <= 100 * moved:
        return None
    return f"⟨ct, JVP t⟩ and ⟨VJP ct, t⟩ differ by {found!r}, of terms {scale:.3g}"


NOT_SMOOTH = ("stop_gradient", "sort", "top_k", "median", "quantile", "norm(", "std(")


def differences(case: Case) -> Fault:
    """A directional derivative is the central difference."""
    source = "\n".join(line for s in case.program.body for line in s.text())
    if not case.program.smooth or case.loss is None or any(w in source for w in NOT_SMOOTH):
        return None
    graph = rlx.grad(case.loss, "loss", case.wrt)
    found = compiled(case.floats(graph), case.feed)
    rng = np.random.default_rng(case.program.seed)
    t = {k: rng.standard_normal(case.feed[k].shape) for k in case.wrt}

    def at(h: float) -> float:
        moved = {k: case.feed[k] + h * t[k] for k in case.wrt}
        return float(rlx.evaluate(case.loss, {**case.feed, **moved})["loss"])  # type: ignore[arg-type]

    terms = [found[f"grad_{k}"] * t[k] for k in case.wrt]
    exact = sum(float(a.sum()) for a in terms)
    scale = sum(float(np.abs(a).sum()) for a in terms)
    gaps = []
    for h in (1e-4, 1e-5, 1e-6):
        plain = (at(h) - at(-h)) / (2 * h)
        better = (4 * (at(h / 2) - at(-h / 2)) / h - plain) / 3
        gaps += [abs(plain - exact), abs(better - exact)]
    if min(gaps) > 1e-4 * scale + 1e-6:
        return f"directional derivative {exact!r}, off by {min(gaps):.3g}, of terms {scale:.3g}"
    return None


def checkpointed(case: Case) -> Fault:
    """A checkpointed graph has the same gradient."""
    if case.loss is None or case.stateful:
        return None
    again = rlx.checkpoint(case.loss, case.rng.choice(CHECKPOINTS))
    plain, saved = (rlx.value_and_grad(g, "loss", case.wrt) for g in (case.loss, again))
    found = compiled(case.floats(saved), case.feed)
    return Judge(case.floats(plain), case.feed, case.program.seed).fault("output", found)


def second_order(case: Case) -> Fault:
    """The compiled Hessian-vector product is the oracle's."""
    if case.loss is None or case.program.hostile or len(list(case.program.statements())) > 25:
        return None
    graph = case.floats(rlx.hvp(case.loss, "loss", case.wrt))
    feed = {**case.feed, **normals(graph, case.feed, case.program.seed)}
    feed = {k: feed[k] for k in graph.leaves}
    return Judge(graph, feed, case.program.seed).fault("output", compiled(graph, feed))


def linearized(case: Case) -> Fault:
    """The linear half of linearize, on what the first half kept, is the JVP."""
    if case.loss is None or case.program.hostile:
        return None
    graph = case.loss.derive({"loss": case.loss.outputs["loss"]})
    names = [n for n in case.wrt if n in graph.leaves]
    if not names:
        return None
    whole = rlx.jvp(graph, names)
    primal, linear = rlx.linearize(graph, names)
    feed = {k: case.feed[k] for k in graph.leaves}
    feed |= normals(whole, feed, case.program.seed)
    judge = Judge(whole, feed, case.program.seed)
    feed |= rlx.evaluate(primal, {k: feed[k] for k in primal.leaves})
    return judge.fault("output", compiled(linear, feed))


Law = Callable[[Case], Fault]
# Each with the share of programs on which it is tried.
LAWS: dict[Law, float] = {
    values: 1.0, gradient: 0.7, dual: 0.35, differences: 1.0, steps: 1.0, in_numpy: 1.0,
    text: 0.3, rewritten: 0.35, batched: 0.35, checkpointed: 0.2, second_order: 0.12,
    linearized: 0.1, fast_math: 0.15, exported: 0.06}


def laws_of(seed: int) -> list[Law]:
    """The laws that are tried on the program of a seed."""
    rng = random.Random(~seed)
    return [law for law, share in LAWS.items() if rng.random() < share]


def fault_of(program: Program, law: Law) -> Fault:
    """What is wrong, an exception included; derivatives that do not exist are not."""
    try:
        return law(Case(program))
    except rlx.NotDifferentiable:
        return None
    except MemoryError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f for f in frames if "fuzz" not in Path(f.filename).parts]
        inner = (ours or frames)[-1]
        kind = type(error).__name__
        return f"{kind}: {str(error)[:400]} ({Path(inner.filename).name}:{inner.lineno})"
