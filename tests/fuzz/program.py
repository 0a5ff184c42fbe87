"""A program as data: leaves, lines of Python, and loops and branches that own blocks of lines."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

import rlx_py as rlx
from rlx_py.ir.base.types import as_dtype

Array = np.ndarray[Any, Any]
Values = dict[str, Any]
Name = str
INDENT = "    "


@dataclass(frozen=True)
class Leaf:
    """An input, param or state, and the array it is given."""

    name: Name
    kind: str
    shape: tuple[int, ...]
    dtype: str
    array: Array = field(compare=False)


@dataclass(frozen=True)
class Line:
    """target = code, an expression in the names of its operands, `rlx` and `np`.

    numpy: the same text with `np` for `rlx` has the same value.
    """

    target: Name
    code: str
    operands: tuple[Name, ...]
    numpy: bool = False

    @property
    def targets(self) -> tuple[Name, ...]:
        """The names it defines."""
        return (self.target,)

    def reads(self) -> set[Name]:
        """The names it needs."""
        return set(self.operands)

    def run(self, env: Values) -> None:
        """Define its target."""
        scope = {"rlx": rlx, "np": np, **{n: env[n] for n in self.operands}}
        env[self.target] = eval(self.code, scope)

    def text(self) -> list[str]:
        """Its Python."""
        return [f"{self.target} = {self.code}"]


@dataclass(frozen=True)
class Block:
    """The body of a function: parameters, statements, and the names it returns."""

    params: tuple[Name, ...]
    body: tuple[Statement, ...]
    results: tuple[Name, ...]

    def run(self, env: Mapping[Name, Any], arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Its results for arguments, other names being those of `env`."""
        local = {**env, **dict(zip(self.params, arguments, strict=True))}
        for statement in self.body:
            statement.run(local)
        return tuple(local[r] for r in self.results)

    def reads(self) -> set[Name]:
        """The names it takes from outside."""
        needed = set(self.results)
        for statement in reversed(self.body):
            needed = needed - set(statement.targets) | statement.reads()
        return needed - set(self.params)

    def text(self, name: str, unpack: str, results: str) -> list[str]:
        """Its Python, as a function of this name; `unpack` is the head of its parameters."""
        inside = [line for s in self.body for line in s.text()]
        return [f"def {name}({unpack}):", *(INDENT + line for line in inside),
                f"{INDENT}return {results}"]


@dataclass(frozen=True)
class Control:
    """A scan, while_loop or cond; its blocks read names from outside too.

    given: the names handed to it: scan (*carries, *slices), while (*carries), cond (condition,
    *arguments). carries: how many of them are carries. blocks: (body,), (test, body) or
    (then, orelse). A scan's body returns its carries, then what is stacked.
    """

    targets: tuple[Name, ...]
    kind: str
    given: tuple[Name, ...]
    carries: int
    blocks: tuple[Block, ...]
    options: str = ""

    def reads(self) -> set[Name]:
        """The names it needs."""
        return set(self.given).union(*(b.reads() for b in self.blocks))

    def run(self, env: Values) -> None:
        """Define its targets."""
        found = call_control(self, [env[n] for n in self.given],
                             [lambda *a, b=b: b.run(env, a) for b in self.blocks])
        env.update(zip(self.targets, found, strict=True))

    def text(self) -> list[str]:
        """Its Python: a function for each block, and the call."""
        name, n = self.targets[0], self.carries
        if self.kind == "scan":
            (body,) = self.blocks
            xs = _tuple(self.given[n:]) if self.given[n:] else "None"
            head = [f"{_tuple(body.params[:n])} = carry"]
            if self.given[n:]:
                head.append(f"{_tuple(body.params[n:])} = x")
            define = body.text(f"{name}_body", "carry, x",
                               f"{_tuple(body.results[:n])}, {_tuple(body.results[n:])}")
            define[1:1] = [INDENT + line for line in head]
            return [*define, f"{_tuple(self.targets[:n])}, {_tuple(self.targets[n:])} = rlx.scan("
                    f"{name}_body, {_tuple(self.given[:n])}, {xs}{self.options})"]
        if self.kind == "while":
            test, body = self.blocks
            lines = []
            for label, block in (("test", test), ("body", body)):
                results = block.results[0] if label == "test" else _tuple(block.results)
                define = block.text(f"{name}_{label}", "carry", results)
                define.insert(1, f"{INDENT}{_tuple(block.params)} = carry")
                lines += define
            return [*lines, f"{_tuple(self.targets)} = rlx.while_loop({name}_test, {name}_body, "
                    f"{_tuple(self.given)}{self.options})"]
        lines = []
        for label, block in zip(("then", "orelse"), self.blocks, strict=True):
            lines += block.text(f"{name}_{label}", ", ".join(block.params), _tuple(block.results))
        given = "".join(f", {n}" for n in self.given[1:])
        return [*lines, f"{_tuple(self.targets)} = rlx.cond({self.given[0]}, {name}_then, "
                f"{name}_orelse{given})"]


Statement = Line | Control


def call_control(control: Control, given: Sequence[Any],
                 functions: Sequence[Any]) -> tuple[Any, ...]:
    """The nodes that a loop or branch gives, its blocks being functions of flat arguments."""
    options = eval(f"dict({control.options.lstrip(', ')})", {"rlx": rlx})
    n = control.carries
    if control.kind == "scan":
        def body(carry: Any, x: Any) -> Any:
            results = functions[0](*carry, *(x or ()))
            return results[:n], results[n:]

        carry, ys = rlx.scan(body, tuple(given[:n]), tuple(given[n:]) or None, **options)
        return (*carry, *ys)
    if control.kind == "while":
        return tuple(rlx.while_loop(lambda c: functions[0](*c)[0], lambda c: functions[1](*c),
                                    tuple(given), **options))
    return tuple(rlx.cond(given[0], functions[0], functions[1], *given[1:]))


@dataclass(frozen=True)
class Program:
    """Leaves, statements, and what becomes of their names.

    outputs: names. nexts, updates: pairs of a state or param, and the name of its next value.
    types: shape and element type of every name, those in blocks too. smooth: differentiable
    around its arrays. hostile: NaN, infinities and extremes among its arrays.
    """

    seed: int
    leaves: tuple[Leaf, ...]
    body: tuple[Statement, ...]
    outputs: tuple[Name, ...]
    nexts: tuple[tuple[Name, Name], ...] = ()
    updates: tuple[tuple[Name, Name], ...] = ()
    types: dict[Name, tuple[tuple[int, ...], str]] = field(default_factory=dict, compare=False)
    smooth: bool = False
    hostile: bool = False

    @property
    def arrays(self) -> dict[Name, Array]:
        """The arrays by the names of the leaves."""
        return {leaf.name: leaf.array for leaf in self.leaves}

    def build(self) -> tuple[rlx.Graph, Values]:
        """The graph, and the node of every name outside blocks."""
        g = rlx.Graph(f"fuzz{self.seed}")
        env: Values = {}
        for leaf in self.leaves:
            env[leaf.name] = getattr(g, leaf.kind)(leaf.name, leaf.shape, leaf.dtype)
        for statement in self.body:
            statement.run(env)
        for name in self.outputs:
            g.output(f"y_{name}", env[name])
        for state, name in self.nexts:
            g.next(state, env[name])
        for param, name in self.updates:
            g.update(param, env[name])
        return g, env

    def trimmed(self) -> Program:
        """Without what no output, next value or update needs."""
        needed = {*self.outputs, *(n for pair in (*self.nexts, *self.updates) for n in pair)}
        kept: list[Statement] = []
        for statement in reversed(self.body):
            if needed & set(statement.targets):
                needed |= statement.reads()
                kept.append(statement)
        leaves = tuple(leaf for leaf in self.leaves if leaf.name in needed)
        found = replace(self, leaves=leaves, body=tuple(reversed(kept)))
        named = {leaf.name for leaf in leaves}.union(
            *(s.targets for s in found.statements()),
            *(b.params for s in found.statements() if isinstance(s, Control) for b in s.blocks))
        return replace(found, types={k: t for k, t in self.types.items() if k in named})

    def statements(self) -> Iterator[Statement]:
        """Every statement, those in blocks too."""
        todo = list(self.body)
        while todo:
            statement = todo.pop()
            yield statement
            if isinstance(statement, Control):
                todo += [s for b in statement.blocks for s in b.body]

    @property
    def controlled(self) -> bool:
        """Whether it has a loop or branch."""
        return any(isinstance(s, Control) for s in self.statements())

    def text(self) -> str:
        """A Python program that builds the graph as `g` and its arrays as `arrays`."""
        lines = ["import numpy as np", "import rlx_py as rlx", f"g = rlx.Graph('fuzz{self.seed}')"]
        lines += [f"{x.name} = g.{x.kind}({x.name!r}, {x.shape}, {x.dtype!r})" for x in self.leaves]
        lines += [line for s in self.body for line in s.text()]
        lines += [f"g.output('y_{n}', {n})" for n in self.outputs]
        lines += [f"g.next({s!r}, {n})" for s, n in self.nexts]
        lines += [f"g.update({p!r}, {n})" for p, n in self.updates]
        lines.append("arrays = {")
        lines += [f"{INDENT}{x.name!r}: {_array_text(x)}," for x in self.leaves]
        return "\n".join([*lines, "}"])


def _tuple(names: Sequence[Name]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def _array_text(leaf: Leaf) -> str:
    wide = leaf.array.astype(np.float64) if leaf.dtype == "bf16" else leaf.array
    values = str(wide.ravel().tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
    made = f"np.array({values})"
    if wide.size > 64:  # to read: the arrays themselves are in the program's JSON
        made = f"np.random.default_rng(0).standard_normal({leaf.shape})"
        made = f"({made} > 0)" if leaf.dtype == "bool" else made
    return f"{made}.reshape({leaf.shape}).astype(rlx.{leaf.dtype}.numpy)"


# ---- as JSON, so that a failing program outlives the generator that made it ----------------------


def to_json(program: Program) -> str:
    """The whole program, arrays included."""
    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        raise TypeError(type(value))

    return json.dumps(asdict(program), default=plain, indent=1)


def from_json(text: str) -> Program:
    """What `to_json` wrote."""
    data = json.loads(text)

    def names(values: Any) -> tuple[Name, ...]:
        return tuple(values)

    def statement(d: dict[str, Any]) -> Statement:
        if "code" in d:
            return Line(d["target"], d["code"], names(d["operands"]), d["numpy"])
        blocks = tuple(Block(names(b["params"]), tuple(map(statement, b["body"])),
                             names(b["results"])) for b in d["blocks"])
        return Control(names(d["targets"]), d["kind"], names(d["given"]), d["carries"], blocks,
                       d["options"])

    def leaf(d: dict[str, Any]) -> Leaf:
        flat = np.frombuffer(base64.b64decode(d["array"]), as_dtype(d["dtype"]).numpy)
        shape = tuple(d["shape"])
        return Leaf(d["name"], d["kind"], shape, d["dtype"], flat.reshape(shape).copy())

    def pairs(values: Any) -> tuple[tuple[Name, Name], ...]:
        return tuple((a, b) for a, b in values)

    return Program(data["seed"], tuple(map(leaf, data["leaves"])),
                   tuple(map(statement, data["body"])), names(data["outputs"]),
                   pairs(data["nexts"]), pairs(data["updates"]),
                   {k: (tuple(s), d) for k, (s, d) in data["types"].items()},
                   data["smooth"], data["hostile"])
