"""A whole program from a seed."""

from __future__ import annotations

import random

import numpy as np

from fuzz.control import draw_control
from fuzz.lines import draw_line
from fuzz.program import Program
from fuzz.scope import FLOATS, Maker, Scope, Style, Untyped
from rlx_py.ir.graph.evaluate import evaluate_nodes

SIZES = {"small": ((0, 1, 1, 2, 2, 3, 3, 4, 5, 7), 800),
         "medium": ((1, 2, 3, 4, 5, 8, 13, 16, 17, 31, 33), 12_000),
         "large": ((1, 2, 3, 7, 16, 37, 64, 97, 128, 257), 250_000)}
LARGEST_VALUE = 1e3  # of programs that are not hostile: beyond it, rounding says little


class Faulty(Exception):
    """A line raised what is no typed error; the seed has no program."""


def style_of(rng: random.Random, size: str | None = None) -> Style:
    """What the program of a seed is made of."""
    smooth = rng.random() < 0.3
    size = size or rng.choices(list(SIZES), [6, 4, 1])[0]
    return Style(dtype="f64" if smooth else rng.choices(FLOATS, [4, 5, 1, 1])[0],
                 mixed=not smooth and rng.random() < 0.3, smooth=smooth,
                 hostile=not smooth and rng.random() < 0.2,
                 sizes=SIZES[size][0], largest=SIZES[size][1])


def generate(seed: int, *, size: str | None = None, controlled: bool = True) -> Program:
    """The program of a seed, the same for the same seed and arguments.

    size: of its values, "small", "medium" or "large"; any where None. controlled: with loops or
    branches, which then are among the first statements drawn. Raises Faulty.
    """
    rng = random.Random(seed)
    maker = Maker(rng, np.random.default_rng(seed), style_of(rng, size))
    scope = Scope(maker)
    for _ in range(rng.randint(2, 4)):
        scope.leaf()
    if scope.floating() is None:
        scope.leaf(dtype=maker.style.dtype)
    try:
        _draw(scope, rng.choice([rng.randint(1, 6), rng.randint(4, 16), rng.randint(10, 40)]),
              rng.randint(1, 3) if controlled else 0)
    except Untyped as error:
        raise Faulty(f"seed {seed}: {error}") from error
    return _finished(seed, scope)


def _draw(scope: Scope, lines: int, controls: int) -> None:
    rng, values = scope.rng, {}
    for _ in range(4 * (lines + controls) + 20):
        if lines + controls <= 0:
            return
        control = rng.random() < controls / (lines + controls)
        if not (draw_control if control else draw_line)(scope):
            continue
        if not _bounded(scope, values):
            continue
        lines, controls = lines - (not control), controls - control


def _bounded(scope: Scope, values: dict[object, object]) -> bool:
    """Whether the statements since the last call have values to go on with; else they go."""
    for leaf in scope.maker.leaves:
        values[scope.maker.leaf_nodes[leaf.name]] = leaf.array
    targets = [t for s in scope.body for t in s.targets if scope.env[t] not in values]
    with np.errstate(all="ignore"):
        found = evaluate_nodes([scope.env[t] for t in targets], values)
    for target, value in zip(targets, found, strict=True):
        wide = np.abs(np.asarray(value).astype(np.float64))
        if not scope.style.hostile and scope.dtype_of(target) in FLOATS and not np.all(
                wide <= LARGEST_VALUE):
            while scope.body and any(t in targets for t in scope.body[-1].targets):
                scope.drop()
            return False
    values.update(zip([scope.env[t] for t in targets], found, strict=True))
    return True


def _finished(seed: int, scope: Scope) -> Program:
    """The program whose outputs are the names that nothing reads, and some that are read."""
    rng, maker = scope.rng, scope.maker
    read = set().union(*(s.reads() for s in scope.body))
    made = [t for s in scope.body for t in s.targets]
    ends = [t for t in made if t not in read] or [next(reversed(scope.env))]
    outputs = ends if len(ends) <= 6 else rng.sample(ends, 6)
    if made:
        outputs = list(dict.fromkeys([*outputs, rng.choice(made)]))
    nexts, updates = [], []
    for leaf in maker.leaves:
        if leaf.kind == "state" or (leaf.kind == "param" and rng.random() < 0.15):
            found = scope.pick(lambda s, d, leaf=leaf: (s, d) == (leaf.shape, leaf.dtype))
            if found is not None and found != leaf.name:
                (nexts if leaf.kind == "state" else updates).append((leaf.name, found))
    program = Program(seed, tuple(maker.leaves), tuple(scope.body), tuple(outputs), tuple(nexts),
                      tuple(updates), dict(maker.types), maker.style.smooth, maker.style.hostile)
    return program.trimmed()
