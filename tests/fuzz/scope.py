"""The names that a line may use, and how a template's holes are filled with them."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import rlx_py as rlx
from fuzz.program import Control, Leaf, Line, Name, Statement
from rlx_py.ir.base.types import as_dtype

FLOATS = ("f64", "f32", "f16", "bf16")
INTEGERS = ("i64", "i32", "i8", "u8", "u32")
EXTREMES = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-310, 5e-324, 1.0, -1.0, 1e30, -1e30,
            65504.0, 1e-8)
HOLE = re.compile(r"\{(\w)\}")


@dataclass(frozen=True)
class Style:
    """What a program is made of: its element type and sizes, and which lines may stand in it."""

    dtype: str
    mixed: bool  # other element types too
    smooth: bool  # differentiable alone
    hostile: bool  # NaN, infinities and extremes
    sizes: tuple[int, ...]
    largest: int  # elements of a value


class Refused(Exception):
    """The interface refused a line by a typed error: another is drawn."""


class Untyped(Exception):
    """A line raised something that is no RLXError: a fault."""


@dataclass
class Maker:
    """What is common to all scopes of a program being made."""

    rng: random.Random
    arrays: np.random.Generator
    style: Style
    graph: rlx.Graph = field(default_factory=lambda: rlx.Graph("making"))
    leaves: list[Leaf] = field(default_factory=list)
    leaf_nodes: dict[Name, Any] = field(default_factory=dict)
    types: dict[Name, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    count: int = 0
    refused: int = 0

    def fresh(self, prefix: str = "v") -> Name:
        """A name that nothing has."""
        self.count += 1
        return f"{prefix}{self.count}"

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """A shape of the program's sizes."""
        rng = self.rng
        rank = rng.choice([0, 1, 1, 2, 2, 2, 3, 3, 4]) if rank is None else rank
        for _ in range(50):
            found = tuple(rng.choice(self.style.sizes) for _ in range(rank))
            if math.prod(found) <= self.style.largest:
                return found
        return (1,) * rank

    def array(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Values of a leaf: normal, sometimes rounded so that there are ties, or hostile."""
        draw, numpy = self.arrays, as_dtype(dtype).numpy
        if dtype == "bool":
            return np.asarray(draw.random(shape) < 0.5)
        if dtype in INTEGERS:
            values = np.asarray(draw.integers(0 if dtype[0] == "u" else -9, 10, shape))
            if self.style.hostile:
                limits = np.array([np.iinfo(numpy).min, np.iinfo(numpy).max, 0, 1], dtype=object)
                values = np.where(draw.random(shape) < 0.2, draw.choice(limits, shape), values)
            return np.asarray(values).astype(numpy)
        values = np.asarray(draw.standard_normal(shape))
        if self.style.hostile:
            share = self.rng.choice([0.05, 0.3, 0.7])
            values = np.where(draw.random(shape) < share, draw.choice(EXTREMES, shape), values)
        elif not self.style.smooth and self.rng.random() < 0.15:
            values = np.round(values)
        with np.errstate(over="ignore"):
            return np.asarray(values).astype(numpy)


class Scope:
    """Visible names with their nodes, and the statements made so far; blocks are inner scopes."""

    def __init__(self, maker: Maker, outer: Scope | None = None) -> None:
        self.maker, self.rng, self.style = maker, maker.rng, maker.style
        self.env: dict[Name, Any] = dict(outer.env) if outer else {}
        self.body: list[Statement] = []
        self.depth: int = outer.depth + 1 if outer else 0

    def define(self, name: Name, node: Any) -> None:
        """Make a node visible under a name."""
        self.env[name] = node
        self.maker.types[name] = (tuple(node.shape), str(node.dtype))

    def leaf(self, shape: tuple[int, ...] | None = None, dtype: str | None = None,
             kind: str | None = None, array: Any = None) -> Name:
        """A new input, param or state; in a block too, where it is a constant of the block."""
        style, rng = self.style, self.rng
        shape = self.maker.shape() if shape is None else shape
        if dtype is None:
            other = style.mixed and rng.random() < 0.5
            dtype = rng.choice([*FLOATS, *INTEGERS, "bool"]) if other else style.dtype
        kind = kind or rng.choices(["input", "param", "state"], [6, 3, 1])[0]
        kind = "input" if dtype not in FLOATS else kind
        name = self.maker.fresh({"input": "x", "param": "w", "state": "s"}[kind])
        array = self.maker.array(shape, dtype) if array is None else array
        self.maker.leaves.append(Leaf(name, kind, tuple(shape), dtype, array))
        node = getattr(self.maker.graph, kind)(name, shape, dtype)
        self.maker.leaf_nodes[name] = node
        self.define(name, node)
        return name

    # ---- operands

    def shape_of(self, name: Name) -> tuple[int, ...]:
        """The shape of a name."""
        return tuple(self.env[name].shape)

    def dtype_of(self, name: Name) -> str:
        """The element type of a name."""
        return str(self.env[name].dtype)

    def pick(self, accept: Callable[[tuple[int, ...], str], bool]) -> Name | None:
        """A name whose shape and element type are accepted, later ones more often."""
        names = [n for n in self.env if accept(self.shape_of(n), self.dtype_of(n))]
        weights = [1 + 3 * i / len(names) for i in range(len(names))]
        return self.rng.choices(names, weights)[0] if names else None

    def floating(self, accept: Callable[[tuple[int, ...]], bool] = lambda s: True) -> Name | None:
        """A float whose shape is accepted."""
        return self.pick(lambda s, d: d in FLOATS and accept(s))

    def beside(self, name: Name, kinds: Sequence[str]) -> Name | None:
        """A name of these element types that broadcasts with another."""
        shape = self.shape_of(name)

        def fits(other: tuple[int, ...], dtype: str) -> bool:
            if dtype not in kinds:
                return False
            try:
                return math.prod(np.broadcast_shapes(shape, other)) <= self.style.largest
            except ValueError:
                return False

        return self.pick(fits)

    def alike(self, name: Name) -> Name | None:
        """A name of the same shape and element type."""
        return self.pick(lambda s, d: (s, d) == (self.shape_of(name), self.dtype_of(name)))

    def _operand(self, hole: str, filled: dict[str, Name]) -> Name | None:
        """x: a float. y: a float beside it. z: like x. i, j: integers. p, q: bools. m: a bool
        beside x. n: anything. o: anything of n's type beside it."""
        kinds = FLOATS if self.style.mixed else (self.style.dtype,)
        if hole == "x":
            return self.floating()
        if hole in "ipn":
            return self.pick(lambda s, d: d in {"i": INTEGERS, "p": ("bool",)}.get(hole, (d,)))
        first = filled[{"j": "i", "q": "p", "o": "n"}.get(hole, "x")]
        if hole == "z":
            return self.alike(first)
        own = (self.dtype_of(first),)
        table = {"y": kinds, "j": INTEGERS, "q": ("bool",), "m": ("bool",), "o": own}
        return self.beside(first, table[hole])

    # ---- statements

    def line(self, template: str, *, numpy: bool = False, **fixed: Name) -> Name | None:
        """Fill a template's holes, run it, and keep it; None where no name fits a hole.

        Raises Refused, and Untyped for what is no typed error.
        """
        filled = dict(fixed)
        for hole in sorted(dict.fromkeys(HOLE.findall(template)), key=lambda h: h not in "xipn"):
            if hole not in filled:
                found = self._operand(hole, filled)
                if found is None:
                    return None
                filled[hole] = found
        code = HOLE.sub(lambda m: filled[m[1]], template)
        made = Line(self.maker.fresh(), code, tuple(dict.fromkeys(filled.values())), numpy)
        self.run(made)
        return made.target

    def run(self, statement: Line | Control) -> None:
        """Run a statement in this scope and keep it."""
        env = dict(self.env)
        attempt(lambda: statement.run(env), "\n".join(statement.text()))
        self.keep(statement, env)

    def keep(self, statement: Statement, env: dict[Name, Any]) -> None:
        """Add a statement whose targets have their nodes in `env`."""
        for target in statement.targets:
            node = env[target]
            if not isinstance(node, rlx.Node):
                raise Untyped(f"{statement.text()} gives {type(node).__name__}, no node")
            if node.size > self.style.largest or node.rank > 6:
                raise Refused
        for target in statement.targets:
            self.define(target, env[target])
        self.body.append(statement)

    def drop(self) -> None:
        """Take back the last statement."""
        for target in self.body.pop().targets:
            del self.env[target]


def attempt(run: Callable[[], Any], what: str) -> Any:
    """Run what may be refused by a typed error."""
    try:
        return run()
    except rlx.RLXError as error:
        raise Refused(f"{what}: {error}") from error
    except (Refused, Untyped):
        raise
    except Exception as error:
        raise Untyped(f"{what}: {type(error).__name__}: {error}") from error
