"""A smaller program with the same fault."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fuzz.laws import Law, fault_of
from fuzz.program import Block, Control, Leaf, Line, Name, Program, Statement
from rlx_py.ir.graph.evaluate import evaluate_nodes

Type = tuple[tuple[int, ...], str]


def shrink(program: Program, law: Law, seconds: float = 60.0) -> Program:
    """The program made smaller while the law has a fault of the same kind, for so long."""
    end, kind = time.monotonic() + seconds, kind_of(fault_of(program, law))
    found = True
    while found:
        found = False
        for smaller in candidates(program):
            if time.monotonic() > end:
                return program
            if kind_of(fault_of(smaller, law)) == kind:
                program, found = smaller, True
                break
    return program


def kind_of(fault: str | None) -> str | None:
    """The fault without numbers and names."""
    return None if fault is None else re.sub(r"[^A-Za-z]+", " ", re.sub(
        r"\b\w*\d[\w.]*|\bnp\.\w+\([^)]*\)|-?\b(nan|inf)\b", "", fault))[:40]


def candidates(program: Program) -> Iterator[Program]:
    """Programs with one thing less, the largest first."""
    ends = (("outputs", program.outputs), ("nexts", program.nexts), ("updates", program.updates))
    for field, entries in ends:
        for i, entry in enumerate(entries):
            left = entries[:i] + entries[i + 1:]
            if field != "outputs" or left or program.nexts or program.updates:
                yield replace(program, **{field: left}).trimmed()  # type: ignore[arg-type]
            if field != "outputs" and entry[1] not in program.outputs:
                outputs = (*program.outputs, entry[1])
                yield replace(program, **{field: left}, outputs=outputs).trimmed()  # type: ignore[arg-type]
    for statement in program.body:
        if isinstance(statement, Line) and statement.target in program.outputs:
            kept = (*program.outputs, *statement.operands)
            yield replace(program, outputs=tuple(
                dict.fromkeys(o for o in kept if o != statement.target))).trimmed()
    yield from _cut(program)
    for i, statement in enumerate(program.body):
        if isinstance(statement, Control):
            seen = [*(x.name for x in program.leaves),
                    *(t for s in program.body[:i] for t in s.targets)]
            for smaller in _smaller(statement, seen, program.types):
                body = (*program.body[:i], smaller, *program.body[i + 1:])
                yield replace(program, body=body).trimmed()


def _cut(program: Program) -> Iterator[Program]:
    """Programs in which a statement has become inputs with its values."""
    _, env = program.build()
    known = {env[k]: a for k, a in program.arrays.items()}
    names = [t for s in program.body for t in s.targets]
    with np.errstate(all="ignore"):
        values = dict(zip(names, evaluate_nodes([env[n] for n in names], known), strict=True))
    for i in reversed(range(len(program.body))):
        targets = program.body[i].targets
        leaves = tuple(Leaf(t, "input", *program.types[t], np.asarray(values[t])) for t in targets)
        outputs = tuple(o for o in program.outputs if o not in targets) or program.outputs
        if outputs == program.outputs and set(targets) & set(outputs) and len(program.body) == 1:
            continue
        smaller = replace(program, leaves=(*program.leaves, *leaves), outputs=outputs,
                          body=program.body[:i] + program.body[i + 1:]).trimmed()
        if len(smaller.body) < len(program.body):
            yield smaller


def _smaller(control: Control, outer: list[Name], types: dict[Name, Type]) -> Iterator[Control]:
    """The loop or branch with one statement less in a block; outer: the names visible there."""
    for k, block in enumerate(control.blocks):
        for smaller in _without_one(block, outer, types):
            yield replace(control, blocks=(*control.blocks[:k], smaller, *control.blocks[k + 1:]))


def _without_one(block: Block, outer: list[Name], types: dict[Name, Type]) -> Iterator[Block]:
    """The block without a statement, another name of its type standing for each of its targets."""
    for i in reversed(range(len(block.body))):
        statement = block.body[i]
        before = [*outer, *block.params, *(t for s in block.body[:i] for t in s.targets)]
        read = set(block.results).union(*(s.reads() for s in block.body[i + 1:]))
        stand = {t: next((n for n in reversed(before) if types[n] == types[t]), None)
                 for t in statement.targets if t in read}
        if all(n is not None for n in stand.values()):
            names = {t: n for t, n in stand.items() if n is not None}
            after = tuple(_renamed(s, names) for s in block.body[i + 1:])
            yield Block(block.params, (*block.body[:i], *after),
                        tuple(names.get(r, r) for r in block.results))
        if isinstance(statement, Control):
            for smaller in _smaller(statement, before, types):
                yield Block(block.params, (*block.body[:i], smaller, *block.body[i + 1:]),
                            block.results)


def _renamed(statement: Statement, names: dict[Name, Name]) -> Statement:
    def new(words: tuple[Name, ...]) -> tuple[Name, ...]:
        return tuple(names.get(w, w) for w in words)

    if isinstance(statement, Line):
        code = re.sub(r"\b[a-z]\d+\b", lambda m: names.get(m[0], m[0]), statement.code)
        return replace(statement, code=code, operands=new(statement.operands))
    blocks = tuple(Block(b.params, tuple(_renamed(s, names) for s in b.body), new(b.results))
                   for b in statement.blocks)
    return replace(statement, given=new(statement.given), blocks=blocks)
