"""Index arithmetic of the loop language: integer linear forms over loop variables.

An Index is const + Σ coefficient·atom. Atoms are loop variables, floor quotients and remainders
that did not simplify, and run-time integers. Forms are canonical, so equal indices compare equal,
and ranges are known, so most reshapes cancel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from math import gcd

from rlx_py.ir.loops.local import Local

_SERIALS = count()
AFTER_VARS = 1 << 62


class Var:
    """A loop variable that runs over 0 … extent − 1; compared by identity."""

    __slots__ = ("extent", "name", "serial")

    def __init__(self, name: str, extent: int) -> None:
        self.name, self.extent, self.serial = name, extent, next(_SERIALS)

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value (an empty loop counts as one step)."""
        return (0, max(self.extent - 1, 0))

    def __repr__(self) -> str:
        return f"{self.name}"


@dataclass(frozen=True)
class Quotient:
    """⌊of / by⌋."""

    of: Index
    by: int

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value."""
        lo, hi = self.of.range
        return (lo // self.by, hi // self.by)

    def __repr__(self) -> str:
        return f"({self.of})//{self.by}"


@dataclass(frozen=True)
class Remainder:
    """of mod by, in 0 … by − 1."""

    of: Index
    by: int

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value."""
        return (0, self.by - 1)

    def __repr__(self) -> str:
        return f"({self.of})%{self.by}"


@dataclass(frozen=True)
class Dynamic:
    """The run-time integer held by a local, already clamped into 0 … extent − 1."""

    local: Local
    extent: int

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value."""
        return (0, max(self.extent - 1, 0))

    def __repr__(self) -> str:
        return f"[{self.local.name}]"


Atom = Var | Quotient | Remainder | Dynamic


@dataclass(frozen=True)
class Index:
    """const + Σ coefficient·atom, canonical."""

    const: int
    terms: tuple[tuple[Atom, int], ...] = ()

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value, taking the atoms as independent."""
        lo = hi = self.const
        for atom, coefficient in self.terms:
            a, b = atom.range
            lo += min(a * coefficient, b * coefficient)
            hi += max(a * coefficient, b * coefficient)
        return lo, hi

    def coefficient(self, atom: Atom) -> int:
        """The factor of an atom, 0 where it does not occur at the top."""
        return next((c for a, c in self.terms if a == atom), 0)

    def variables(self) -> set[Var]:
        """Every loop variable it depends on."""
        found: set[Var] = set()
        for atom in atoms(self):
            if isinstance(atom, Var):
                found.add(atom)
        return found

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.const + other, self.terms) if other else self
        return linear(self.const + other.const, (*self.terms, *other.terms))

    def __sub__(self, other: Index | int) -> Index:
        return self + (-other if isinstance(other, int) else other * -1)

    def __mul__(self, factor: int) -> Index:
        if factor == 1:
            return self
        return linear(self.const * factor, ((a, c * factor) for a, c in self.terms))

    def __floordiv__(self, divisor: int) -> Index:
        return divmod_index(self, divisor)[0]

    def __mod__(self, divisor: int) -> Index:
        return divmod_index(self, divisor)[1]

    def __repr__(self) -> str:
        parts = [f"{c}*{a!r}" if c != 1 else repr(a) for a, c in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)


ZERO = Index(0)


def as_index(value: Index | Atom | int) -> Index:
    """An Index from a constant or an atom."""
    if isinstance(value, Index):
        return value
    return Index(value) if isinstance(value, int) else Index(0, ((value, 1),))


def _order(term: tuple[Atom, int]) -> tuple[int, str]:
    """Variables in the order they were made, then the others."""
    atom = term[0]
    return (atom.serial, "") if type(atom) is Var else (AFTER_VARS, repr(atom))


def linear(const: int, terms: Iterable[tuple[Atom, int]]) -> Index:
    """The canonical form of a sum; d·⌊x/d⌋ + x mod d meets as x again."""
    sums: dict[Atom, int] = {}
    for atom, coefficient in terms:
        sums[atom] = sums.get(atom, 0) + coefficient
    for atom in [a for a in sums if type(a) is Remainder]:
        coefficient = sums[atom]
        whole = quotient_atom(atom.of, atom.by)
        if coefficient and sums.get(whole) == coefficient * atom.by:
            del sums[atom], sums[whole]
            return Index(const, tuple(sums.items())) + atom.of * coefficient
    kept = [t for t in sums.items() if t[1]]
    if len(kept) > 1:
        kept.sort(key=_order)
    return Index(const, tuple(kept))


def quotient_atom(of: Index, by: int) -> Quotient:
    """⌊of / by⌋ as an atom; ⌊⌊x/a⌋/b⌋ is ⌊x/(ab)⌋."""
    if not of.const and len(of.terms) == 1:
        (inner, coefficient), = of.terms
        if coefficient == 1 and isinstance(inner, Quotient):
            return Quotient(inner.of, inner.by * by)
    return Quotient(of, by)


def divmod_index(index: Index, divisor: int) -> tuple[Index, Index]:
    """(⌊index / divisor⌋, index mod divisor) for a positive divisor, simplified by ranges."""
    if divisor == 1:
        return index, ZERO
    whole = [(a, c // divisor) for a, c in index.terms if c % divisor == 0]
    rest = Index(index.const, tuple((a, c) for a, c in index.terms if c % divisor))
    quotient, remainder = _divmod_rest(rest, divisor)
    return linear(0, whole) + quotient, remainder


def _divmod_rest(rest: Index, divisor: int) -> tuple[Index, Index]:
    lo, hi = rest.range
    if lo // divisor == hi // divisor:
        return Index(lo // divisor), rest - (lo // divisor) * divisor
    # With g | divisor, index = g·a + r and 0 <= r < g: ⌊index/divisor⌋ = ⌊a/(divisor/g)⌋.
    for g in sorted({gcd(divisor, c) for _, c in rest.terms}, reverse=True):
        if g == 1:
            break
        multiple = Index(rest.const // g, tuple((a, c // g) for a, c in rest.terms if c % g == 0))
        low = Index(rest.const % g, tuple((a, c) for a, c in rest.terms if c % g))
        if low.range[0] >= 0 and low.range[1] < g:
            quotient, remainder = divmod_index(multiple, divisor // g)
            return quotient, remainder * g + low
    # A constant beyond the divisor leaves it, so that shifted forms meet.
    shift = rest.const // divisor
    base = rest - shift * divisor
    return as_index(quotient_atom(base, divisor)) + shift, as_index(Remainder(base, divisor))


def atoms(index: Index) -> list[Atom]:
    """Every atom inside, quotients' and remainders' own included."""
    found: list[Atom] = []
    work = [index]
    while work:
        for atom, _ in work.pop().terms:
            found.append(atom)
            if isinstance(atom, Quotient | Remainder):
                work.append(atom.of)
    return found


def substitute(index: Index, binding: Mapping[Var, Index],
               locals: Mapping[Local, Local] | None = None) -> Index:
    """The index with loop variables (and renamed locals) replaced, simplified again."""
    if not index.terms:
        return index
    result = Index(index.const)
    for atom, coefficient in index.terms:
        if isinstance(atom, Var):
            value = binding.get(atom) or as_index(atom)
        elif isinstance(atom, Quotient):
            value = substitute(atom.of, binding, locals) // atom.by
        elif isinstance(atom, Remainder):
            value = substitute(atom.of, binding, locals) % atom.by
        else:
            fresh = locals.get(atom.local, atom.local) if locals else atom.local
            value = as_index(Dynamic(fresh, atom.extent))
        result = result + value * coefficient
    return result


def row_major(index: Iterable[Index], shape: Iterable[int]) -> Index:
    """The flat position of a multi-index in a dense row-major array."""
    flat = ZERO
    for i, extent in zip(index, shape, strict=True):
        flat = flat * extent + i
    return flat


def unravel(flat: Index, shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The multi-index of a flat position in a dense row-major array."""
    found: list[Index] = []
    for axis in range(len(shape) - 1, -1, -1):
        if axis == 0:
            found.append(flat)
        else:
            flat, r = divmod_index(flat, max(shape[axis], 1))
            found.append(r)
    return tuple(reversed(found))
