"""Groups of loop variables: which collapse into one, and how they are cut into blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from rlx_py.ir.loops.copying import Copier, indices, walk
from rlx_py.ir.loops.index import (
    ZERO,
    Index,
    Quotient,
    Remainder,
    Var,
    as_index,
    atoms,
    substitute,
    unravel,
)
from rlx_py.ir.loops.kernel import Contract, Operand, Stmt

Body = tuple[Stmt, ...]
Binding = dict[Var, Index]


def size(vars: Iterable[Var]) -> int:
    """Positions of a group."""
    return prod(v.extent for v in vars)


def extents(vars: Iterable[Var]) -> tuple[int, ...]:
    """The shape of a group."""
    return tuple(v.extent for v in vars)


def divides(index: Index, var: Var) -> bool:
    """Whether the index takes a quotient or remainder of the variable."""
    return any(isinstance(a, Quotient | Remainder) and var in a.of.variables()
               for a in atoms(index))


def unit_stride(index: Index, var: Var) -> int | None:
    """0 or 1 where the index moves by that much with the variable; None for any other way."""
    step = index.coefficient(var)
    return None if step not in (0, 1) or divides(index, var) else step


def stride(index: Index, vars: Sequence[Var]) -> int | None:
    """Distance of neighbours where the index is affine in the row-major position of the group."""
    step, inside = 0, 1
    for v in reversed([v for v in vars if v.extent != 1]):
        if divides(index, v):
            return None
        if inside == 1:
            step = index.coefficient(v)
        elif index.coefficient(v) != step * inside:
            return None
        inside *= v.extent
    return step


def body_indices(body: Body) -> list[Index]:
    """Every index in a body."""
    return [i for s in walk(body) for i in indices(s)]


def merged(vars: Sequence[Var], used: Iterable[Index]) -> tuple[tuple[Var, ...], Binding]:
    """The group with neighbours merged where no index in use gets a quotient by it, units dropped.

    The binding gives each old variable in terms of the new ones.
    """
    binding: Binding = {v: Index(0) for v in vars if v.extent == 1}
    used = [substitute(i, binding) for i in used]
    found = [v for v in vars if v.extent != 1]
    for at in range(len(found) - 2, -1, -1):
        first, second = found[at], found[at + 1]
        var = Var(first.name, first.extent * second.extent)
        step = {first: as_index(var) // second.extent, second: as_index(var) % second.extent}
        changed = [substitute(i, step) for i in used]
        if any(divides(i, var) for i in changed):
            continue
        used = changed
        binding = {v: substitute(i, step) for v, i in binding.items()} | step
        found[at: at + 2] = [var]
    return tuple(found), binding


def simplified(c: Contract) -> Contract:
    """The contract with each group merged as far as all its bodies allow; no group is empty."""
    used = [i for body in (c.a.body, c.b.body, c.epilogue) for i in body_indices(body)]
    binding: Binding = {}
    groups: list[tuple[Var, ...]] = []
    for group in (c.batch, c.m, c.n, c.k):
        found, change = merged(group, used)
        groups.append(found or (Var("one", 1),))
        binding |= change
    a, b, tail = Copier(binding), Copier(binding), Copier(binding)
    batch, m, n, k = groups
    return Contract(
        batch, m, n, k, Operand(a.body(c.a.body), a.value(c.a.value)),
        Operand(b.body(c.b.body), b.value(c.b.value)), c.acc, tail.body(c.epilogue))


@dataclass(frozen=True)
class Cut:
    """A group in blocks: steps of `step` along variable `axis`, all of those behind it.

    Only a group cut along its first variable may leave a rest.
    """

    vars: tuple[Var, ...]
    axis: int
    step: int

    @property
    def inner(self) -> tuple[int, ...]:
        """Extents behind the axis."""
        return extents(self.vars[self.axis + 1:])

    @property
    def outer(self) -> tuple[int, ...]:
        """How many blocks lie along each variable up to the axis."""
        return (*extents(self.vars[: self.axis]), self.vars[self.axis].extent // self.step)

    @property
    def full(self) -> int:
        """Number of whole blocks."""
        return prod(self.outer)

    @property
    def rest(self) -> int:
        """Steps of the last, smaller block; 0 if there is none."""
        return self.vars[self.axis].extent % self.step

    @property
    def count(self) -> int:
        """Number of blocks."""
        return self.full + (self.rest > 0)

    @property
    def size(self) -> int:
        """Positions of a whole block."""
        return self.step * prod(self.inner)

    @property
    def inside(self) -> tuple[Var, ...]:
        """The variables that change inside a block."""
        return self.vars[self.axis + (self.step == 1):]

    def shape(self, steps: int) -> tuple[int, ...]:
        """Extents of a block of so many steps."""
        return (steps, *self.inner)

    def bind(self, number: Index, local: Sequence[Index]) -> Binding:
        """The group's variables at a local position of a block."""
        *outer, block = unravel(number, self.outer)
        values = (*outer, block * self.step + local[0], *local[1:])
        return dict(zip(self.vars, values, strict=True))


def whole(vars: tuple[Var, ...]) -> Cut:
    """A group in one block."""
    return Cut(vars, 0, vars[0].extent)


def divisors(n: int) -> list[int]:
    """The divisors of a number, largest first."""
    small = [d for d in range(1, int(n ** 0.5) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)}, reverse=True)


def origin(cut: Cut, number: Index) -> Binding:
    """The group's variables at the start of a block."""
    return cut.bind(number, (ZERO,) * (1 + len(cut.inner)))
