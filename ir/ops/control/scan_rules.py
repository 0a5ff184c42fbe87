"""The derivatives of loops: scans over what the loop stacked, in its order or against it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlx_py.ir.base.errors import NotDifferentiable
from rlx_py.ir.graph.activity import dependents
from rlx_py.ir.graph.body import graph_of
from rlx_py.ir.graph.graph import inline
from rlx_py.ir.graph.transforms import AD, Value
from rlx_py.ir.nodes.node import Cotangent, Node, Op, at, project, register, toposort
from rlx_py.ir.ops.control.dead_rows import Handed, loop_masks, masks_here, of_one_step, rests_on
from rlx_py.ir.ops.control.masks import Masks, masked
from rlx_py.ir.ops.control.region import body_graph, over, placeholders, zeros
from rlx_py.ir.ops.control.scan import evaluate_loop, infer, is_steep, loop_node, loop_of
from rlx_py.ir.ops.control.scan_batch import batch_loop
from rlx_py.ir.ops.control.scan_program import LOOP_PROGRAM
from rlx_py.ir.ops.making.families import add_all
from rlx_py.ir.ops.primitive.reduce import REDUCE_SUM


class Derivative:
    """A loop over what a forward loop took, made and stacked; its body is being written."""

    def __init__(self, node: Node, ad: AD, *, reverse: bool) -> None:
        self.node, self.loop = node, loop_of(node)
        self.carries, self.xs, self.consts = self.loop.leaves()
        leaves = [*self.carries, *self.xs, *self.consts]
        self.floats = [x for x in leaves if x.dtype.is_float]
        _, self.first, self.given, self.shared = self.loop.split(node.inputs)
        written = list(graph_of(self.loop.body).outputs.values())
        # A value that is handed in twice is one, so that its sum over the steps is one as well.
        one = dict(zip(self.shared, self.consts, strict=True))
        merged = over(written, {x: one[v] for x, v in zip(self.consts, self.shared, strict=True)})
        graph = ad.prepared(body_graph(leaves, merged), self.floats, reverse=reverse)
        self.outputs = list(graph.outputs.values())
        self.outer, self.ad = ad, ad.inside()
        self.values, self.origins = self._values(written)

    def _values(self, written: list[Node]) -> tuple[dict[Node, Node], dict[Node, Node]]:
        """A leaf of the derivative's body for each node of the forward body that is at hand, and
        what it is outside."""
        known = dict(zip(self.xs, self.given, strict=True))
        own = set(self.carries)
        for k in range(self.loop.carries, len(written)):
            y = self.outputs[k]
            if y in own or (written[k] not in known and is_steep(written[k])):
                known.setdefault(y, project(self.node, k))
        sequences = list(known)
        stands = placeholders("v", sequences)
        same = placeholders("k", self.consts)
        values = dict(zip([*sequences, *self.consts], [*stands, *same], strict=True))
        outside = [*known.values(), *self.shared]
        return values, dict(zip([*stands, *same], outside, strict=True))

    @property
    def count(self) -> Node | None:
        """The number of steps that the forward loop ran, if it is not its length."""
        if self.loop.counted:
            return self.node.inputs[0]
        return project(self.node, len(self.node) - 1) if self.loop.cond else None

    def over(self, found: Iterable[Node]) -> list[Node]:
        """Nodes of the forward body over leaves of the derivative's."""
        roots = list(found)
        done = inline(roots, self.values)
        return [done[n] for n in roots]

    def run(self, carries: Mapping[Node, tuple[Node, Node]], sequences: Mapping[Node, Node],
            consts: Mapping[Node, Node], ys: Sequence[Node], *, reverse: bool) -> list[Node]:
        """The results of the loop: carries (leaf: first value and next one), then stacked ys.

        sequences, consts: what stands outside for further leaves. Counts of singular points go on
        to the outer derivative, summed over the steps.
        """
        counts = self.over(self.ad.counts)
        results = [*(after for _, after in carries.values()), *ys, *counts]
        used = set(toposort(results))
        stacked = {x: n for x, n in (*sequences.items(), *self.origins.items()) if x in used}
        same = {self.values[c] for c in self.consts} | set(consts)
        fixed = {x: n for x, n in (*consts.items(), *stacked.items()) if x in used and x in same}
        moving = {x: n for x, n in stacked.items() if x not in fixed}
        made = loop_node(self.count, [first for first, _ in carries.values()],
                         list(moving.values()), list(fixed.values()),
                         [*carries, *moving, *fixed], results, length=self.loop.length,
                         reverse=reverse, keep=self.loop.keep)
        for k in range(len(results) - len(counts), len(results)):
            self.outer.counts.append(REDUCE_SUM(project(made, k), axes=(0,)))
        return [project(made, k) for k in range(len(results) - len(counts))]


# ---- reverse mode ------------------------------------------------------------------------------


def _vjp(node: Node, ct: Cotangent, ad: AD,
         onto: Sequence[Cotangent] | None = None) -> Sequence[Node | None]:
    """Sums for constants go on from what has reached them, step after step, so that a loop and its
    segments add in one order."""
    if loop_of(node).length is None:
        raise NotDifferentiable("while_loop without max_steps has no reverse mode: nothing says "
                                "how much to store" + at(node.loc))
    d = Derivative(node, ad, reverse=True)
    before = dict(zip([*d.carries, *d.xs, *d.consts], (onto or [None] * len(node.inputs))[
        int(d.loop.counted):], strict=True))
    fixed = [x for x in d.consts if x.dtype.is_float]
    totals = dict(zip(fixed, placeholders("sum", fixed), strict=True))
    seeds = {k: c for k, c in enumerate(ct[:len(d.outputs)]) if c is not None}
    leaves = dict(zip(seeds, placeholders("ct", [d.outputs[k] for k in seeds]), strict=True))
    masks = Handed()
    given, _ = _masks_of_steps(d, masks, dict(zip(seeds, masks_here(ad, ct), strict=False)))
    order = toposort(d.outputs)  # whichever have cotangents, so that sums are in one order
    while True:
        d.ad.counts.clear()
        found = dict(zip(d.floats, d.ad.pull(
            [(d.outputs[k], c) for k, c in leaves.items()], d.floats,
            lambda _: reversed(order), onto=totals,
            given=[given.get(k, ()) for k in leaves]), strict=True))
        own_cts = set(leaves.values())
        reached = {x: g for x, g in found.items() if not own_cts.isdisjoint(toposort([g]))}
        fresh = [k for k, x in enumerate(d.carries) if x in reached and k not in leaves]
        if not fresh:
            break
        leaves |= {k: placeholders(f"ct{k}_", [d.carries[k]])[0] for k in fresh}
    inner = dict(zip(reached, d.over(reached.values()), strict=True))
    n = d.loop.carries
    carries = {c: (seeds.get(k, zeros(d.carries[k])), inner.get(d.carries[k], zeros(d.carries[k])))
               for k, c in leaves.items() if k < n}
    carries |= {totals[x]: (zeros(x) if before[x] is None else before[x], inner[x])
                for x in fixed if x in inner}
    slices = [x for x in d.xs if x in inner]
    made = d.run(carries, {c: seeds[k] for k, c in leaves.items() if k >= n}, masks.outside,
                 [inner[x] for x in slices], reverse=not d.loop.reverse)
    after = dict(zip(carries, made, strict=False))
    # After no step at all the cotangent of a carry is still what it was.
    own = {d.carries[k]: after[c] for k, c in leaves.items()
           if k < n and (d.carries[k] in inner or d.loop.may_end_at_once)}
    own |= dict(zip(slices, made[len(carries):], strict=True))
    results = {x: add_all([before[x], own.get(x)]) for x in before}
    results |= {x: after[totals[x]] for x in fixed if x in inner}
    return [*([None] if d.loop.counted else []), *results.values()]


def _masks_of_steps(d: Derivative, masks: Handed, here: Mapping[int, Masks]
                    ) -> tuple[dict[int, Masks], dict[Node, Masks]]:
    """The masks of the body's results at every step, and of its leaves."""
    n = d.loop.carries
    roots = {k: masks.enter(m if k < n else of_one_step(m, d.outputs[k].rank + 1))
             for k, m in here.items() if k < len(d.outputs)}
    fixed = {*d.consts, *masks.outside}
    return loop_masks(d.outputs, d.carries, d.floats, fixed, roots, d.ad)


def _masks(node: Node, here: Mapping[int, Masks], ad: AD) -> Sequence[Masks]:
    """Of constants and first carries where they hold at every step; of sequences at each step."""
    d, masks = Derivative(node, ad, reverse=True), Handed()
    _, found = _masks_of_steps(d, masks, here)
    same = dict(zip(d.consts, d.shared, strict=True))
    results = [masks.leave(found.get(x, ()), same) for x in d.carries]
    steps = dict(zip(d.xs, d.given, strict=True))
    for x in d.xs:
        results.append(_over_steps(found.get(x, ()), steps, same | masks.outside, d))
    results += [masks.leave(found.get(x, ()), same) for x in d.consts]
    return [*([()] if d.loop.counted else []), *results]


def _over_steps(masks: Masks, steps: Mapping[Node, Node], same: Mapping[Node, Node],
                d: Derivative) -> Masks:
    """Masks of a slice, over those of other slices and what is the same at each step, stacked."""
    kept = [m for m in masks if rests_on(m.node, {**steps, **same})]
    if not kept or d.loop.length is None:
        return ()
    leaves = {x: Value(v, True) for x, v in steps.items()}
    leaves |= {x: Value(v, False) for x, v in same.items()}
    body = body_graph(list(leaves), [m.node for m in kept])
    stacked = d.ad.batcher.results(body, leaves, d.loop.length)
    found: Masks = ()
    for m, v in zip(kept, stacked, strict=True):
        later = tuple(a + 1 for a in m.axes)
        found += masked(v.node, (0, *later) if v.batched else later)
    return found


# ---- forward mode ------------------------------------------------------------------------------


def _jvp(node: Node, tangents: Sequence[Node | None], ad: AD) -> Any:
    d = Derivative(node, ad, reverse=False)
    _, *given = d.loop.split(tangents)
    at_leaf = dict(zip([*d.carries, *d.xs, *d.consts], [t for part in given for t in part],
                       strict=True))
    active = {x for x, t in at_leaf.items() if t is not None}
    order = toposort(d.outputs)
    while True:
        depends = dependents(order, active)
        fresh = {x for x, y in zip(d.carries, d.outputs, strict=False)
                 if x not in active and y in depends}
        if not fresh:
            break
        active |= fresh
    leaves = [x for x in d.floats if x in active]
    seeds = dict(zip(leaves, placeholders("t", leaves), strict=True))
    moved = [k for k, y in enumerate(d.outputs) if y in depends]
    found = d.ad.push([d.outputs[k] for k in moved], seeds)
    pushed = dict(zip(moved, found, strict=True))
    firsts = {x: zeros(x) if t is None else t for x, t in at_leaf.items() if x in active}
    after = {k: pushed.get(k, zeros(x)) for k, x in enumerate(d.carries) if x in active}
    if d.loop.length is None:
        return _beside(d, seeds, firsts, after)
    inner = dict(zip([*after, *pushed], d.over([*after.values(), *pushed.values()]), strict=True))
    carries = {seeds[d.carries[k]]: (firsts[d.carries[k]], inner[k]) for k in after}
    late = [k for k in moved if k >= d.loop.carries]
    made = d.run(carries, {seeds[x]: firsts[x] for x in d.xs if x in active},
                 {seeds[x]: firsts[x] for x in d.consts if x in active},
                 [inner[k] for k in late], reverse=d.loop.reverse)
    results = dict(zip([*after, *late], made, strict=True))
    return tuple(results.get(k) for k in range(len(node)))


def _beside(d: Derivative, seeds: Mapping[Node, Node], firsts: Mapping[Node, Node],
            after: Mapping[int, Node]) -> Any:
    """Tangents computed along with a loop that has no bound, and so stacks nothing."""
    loop = d.loop
    moving = [seeds[d.carries[k]] for k in after]
    fixed = [x for x in d.consts if x in seeds]
    cond = graph_of(loop.cond)
    kept = list(cond.inputs.values())
    leaves = [*kept[:loop.carries], *placeholders("t", moving), *kept[loop.carries:],
              *placeholders("u", fixed)]
    made = loop_node(
        None, [*d.first, *(firsts[d.carries[k]] for k in after)], [],
        [*d.shared, *(firsts[x] for x in fixed)],
        [*d.carries, *moving, *d.consts, *(seeds[x] for x in fixed)],
        [*d.outputs[:loop.carries], *after.values()], length=None,
        cond=(leaves, next(iter(cond.outputs.values()))), keep=loop.keep)
    found = {k: project(made, loop.carries + i) for i, k in enumerate(after)}
    return tuple(found.get(k) for k in range(len(d.node)))


SCAN: Op = register(Op("scan", infer, evaluate_loop, _vjp, _jvp, kernel=LOOP_PROGRAM,
                        batch=batch_loop, onto=_vjp, masks=_masks))
