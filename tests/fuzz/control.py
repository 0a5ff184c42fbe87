"""Loops and branches, inside each other, at every place of a body, on every kind of condition.

A body is drawn while the interface traces it, so that each line knows the types around it; what was
drawn is kept as a block and run again wherever the body is traced again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuzz.lines import draw_lines
from fuzz.program import Block, Control, Name, call_control
from fuzz.scope import FLOATS, INTEGERS, Refused, Scope, attempt

DEEPEST = 3
PLACES = ("first", "last", "alone", "amid", "none")
PLACE_WEIGHTS = (3, 3, 3, 2, 4)
Draw = Callable[[Scope, tuple[Name, ...]], tuple[Name, ...]]


def draw_control(scope: Scope) -> bool:
    """Add a scan, while_loop or cond; False where nothing fits, or it was refused."""
    kind = scope.rng.choices([scan, cond, while_loop], [4, 4, 3])[0]
    try:
        return kind(scope)
    except Refused:
        scope.maker.refused += 1
        return False


def draw_body(scope: Scope) -> None:
    """Lines of a body, with another loop or branch at one of its places."""
    rng = scope.rng
    place = rng.choices(PLACES, PLACE_WEIGHTS)[0] if scope.depth < DEEPEST else "none"
    before, after = {"first": (0, 2), "last": (2, 0), "alone": (0, 0), "amid": (2, 2),
                     "none": (rng.randint(0, 4), 0)}[place]
    draw_lines(scope, before)
    if place != "none" and not draw_control(scope):
        draw_control(scope)
    draw_lines(scope, after)


def _traced(scope: Scope, draw: Draw, blocks: list[Block]) -> Callable[..., tuple[Any, ...]]:
    """A function that draws a block at its first call, and runs it again at others."""
    place = len(blocks)
    blocks.append(Block((), (), ()))

    def run(*arguments: Any) -> tuple[Any, ...]:
        if blocks[place].results:
            return blocks[place].run({**scope.maker.leaf_nodes, **scope.env}, arguments)
        inner = Scope(scope.maker, scope)
        params = tuple(scope.maker.fresh("p") for _ in arguments)
        for name, node in zip(params, arguments, strict=True):
            inner.define(name, node)
        results = draw(inner, params)
        blocks[place] = Block(params, tuple(inner.body), results)
        return tuple(inner.env[r] for r in results)

    return run


def _add(scope: Scope, kind: str, given: Sequence[Name], carries: int, draws: Sequence[Draw],
         options: str = "") -> bool:
    """Trace a loop or branch, and keep it."""
    blocks: list[Block] = []
    functions = [_traced(scope, draw, blocks) for draw in draws]
    stub = Control((), kind, tuple(given), carries, (), options)
    found = attempt(lambda: call_control(stub, [scope.env[n] for n in given], functions), kind)
    targets = tuple(scope.maker.fresh() for _ in found)
    made = Control(targets, kind, tuple(given), carries, tuple(blocks), options)
    scope.keep(made, dict(zip(targets, found, strict=True)))
    return True


def _carries(scope: Scope, count: int) -> list[Name]:
    """Floats that a loop can carry, and now and then a bool or a counter."""
    small = scope.style.largest // 8
    found = [scope.floating(lambda s: math.prod(s) <= small) for _ in range(count)]
    names = [n for n in found if n is not None]
    if not scope.style.smooth and scope.rng.random() < 0.4:
        flag = scope.pick(lambda s, d: d == "bool" and math.prod(s) <= small)
        names.append(flag if flag is not None and scope.rng.random() < 0.5
                     else scope.leaf((), "bool"))
    if not scope.style.smooth and scope.rng.random() < 0.2:
        names.append(scope.leaf((), scope.rng.choice(["i32", "i64"])))
    return names


def _next(scope: Scope, old: Name) -> Name:
    """What a carry becomes: anything of its type, often bounded, often of itself."""
    other = scope.alike(old) or old
    if scope.dtype_of(old) == "bool":
        if scope.rng.random() < 0.5:
            return scope.line("rlx.logical_not({p})", p=other) or other
        return other
    if scope.dtype_of(old) in INTEGERS:
        return scope.line("{n} + 1", n=old) or old
    if scope.rng.random() < 0.7:
        same = {"x": other, "z": old}
        return scope.line(scope.rng.choice(["rlx.tanh({x})", "rlx.tanh({x} + {z})",
                                            "0.5 * {z} + rlx.sin({x})", "rlx.tanh({x} * {z})"]),
                          **same) or other
    return other


def scan(scope: Scope) -> bool:
    rng = scope.rng
    xs = scope.pick(lambda s, d: len(s) > 0 and 0 < s[0] <= 7 and math.prod(s) > 0)
    if xs is None:
        return False
    steps = scope.shape_of(xs)[0]
    slices = [] if rng.random() < 0.1 else [xs]
    if slices and rng.random() < 0.4:
        slices.append(scope.pick(lambda s, d: s[:1] == (steps,)) or xs)
    if not scope.style.smooth and rng.random() < 0.5:
        slices.append(scope.pick(lambda s, d: s == (steps,) and d == "bool")
                      or scope.leaf((steps,), "bool"))
    carries = _carries(scope, rng.randint(1, 2))
    if not carries:
        return False
    options = "" if slices else f", length={steps}"
    options += ", reverse=True" if rng.random() < 0.4 else ""
    kept = rng.choice(["", "", "'sqrt'", "rlx.every(1)", "rlx.every(2)", "rlx.count(1)"])
    options += f", checkpoint={kept}" if kept else ""

    def draw(inner: Scope, params: tuple[Name, ...]) -> tuple[Name, ...]:
        draw_body(inner)
        after = [_next(inner, p) for p in params[:len(carries)]]
        stacked = [inner.pick(lambda s, d: True) or params[0] for _ in range(rng.randint(0, 2))]
        return (*after, *stacked)

    return _add(scope, "scan", [*carries, *slices], len(carries), [draw], options)


def condition(scope: Scope) -> Name | None:
    """A bool: one that is there (an input, slice or carry), or a mask that is computed."""
    there = scope.pick(lambda s, d: s == () and d == "bool")
    if there is not None and scope.rng.random() < 0.6:
        return there
    template = scope.rng.choice(["rlx.any({p})", "rlx.all({p})", "rlx.sum({x}) > 0.1",
                                 "rlx.sum({x}) < rlx.sum({y})", "rlx.sum({i}) > 2"])
    return scope.line(template) or there or scope.leaf((), "bool")


def cond(scope: Scope) -> bool:
    rng = scope.rng
    if scope.style.smooth:
        return False
    chosen = condition(scope)
    if chosen is None:
        return False
    given = [n for n in (scope.floating() for _ in range(rng.randint(0, 2))) if n is not None]
    wanted: list[Name] = []

    def then(inner: Scope, params: tuple[Name, ...]) -> tuple[Name, ...]:
        draw_body(inner)
        wanted.extend(inner.pick(lambda s, d: True) or params[0]
                      for _ in range(rng.randint(1, 3)))
        return tuple(wanted)

    def orelse(inner: Scope, params: tuple[Name, ...]) -> tuple[Name, ...]:
        draw_body(inner)
        return tuple(_of_type(inner, *scope.maker.types[n]) for n in wanted)

    return _add(scope, "cond", [chosen, *given], 0, [then, orelse])


def _of_type(scope: Scope, shape: tuple[int, ...], dtype: str) -> Name:
    """A value of a type: one that is there, or a new one."""
    found = scope.pick(lambda s, d: (s, d) == (shape, dtype))
    return found if found is not None else scope.leaf(shape, dtype)


def while_loop(scope: Scope) -> bool:
    rng = scope.rng
    if scope.style.smooth or scope.style.hostile:
        return False
    counter = scope.leaf((), "i32", array=np.zeros((), np.int32))
    carries = [*_carries(scope, rng.randint(1, 2)), counter]
    floats = [k for k, n in enumerate(carries) if scope.dtype_of(n) in FLOATS]
    flags = [k for k, n in enumerate(carries)
             if scope.dtype_of(n) == "bool" and scope.shape_of(n) == ()]
    limit = rng.randint(1, 6)

    def test(inner: Scope, params: tuple[Name, ...]) -> tuple[Name, ...]:
        below = inner.line(f"{{n}} < {rng.randint(0, 4)}", n=params[-1]) or params[-1]
        if flags and rng.random() < 0.5:
            return (params[flags[0]],)
        if floats and rng.random() < 0.4:
            x = params[rng.choice(floats)]
            found = inner.line("rlx.sum({x} * {x}) > 0.3", x=x)
            return (found or below,)
        return (below,)

    def body(inner: Scope, params: tuple[Name, ...]) -> tuple[Name, ...]:
        draw_body(inner)
        after = [_next(inner, p) for p in params[:-1]]
        return (*after, inner.line("{n} + 1", n=params[-1]) or params[-1])

    return _add(scope, "while", carries, len(carries), [test, body], f", max_steps={limit}")





