"""Bounds of sizes that hold whatever the named sizes are, each of which is at least 1.

A size is an int or a `Dim`; a factor of its terms is a name, or a quotient of two sizes.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, product
from math import ceil
from typing import Any

Size = Any  # an int or a Dim
Factor = Any  # a str or a Quotient
Monomial = tuple[Factor, ...]  # sorted by text; a power is a factor repeated
Terms = dict[Monomial, Fraction]
MOST_WORK, LONGEST = 256, 12  # terms, and factors of one, beyond which nothing is known


def terms_of(size: Size) -> Iterable[tuple[Monomial, int]]:
    """The terms of a size; those of an int are at most its constant."""
    if isinstance(size, int):
        return (((), size),) if size else ()
    terms: Iterable[tuple[Monomial, int]] = size.terms
    return terms


def depth(size: Size) -> int:
    """How many different quotients a size holds, nested ones counted."""
    found = {f for m, _ in terms_of(size) for f in m if not isinstance(f, str)}
    return sum(1 + depth(q.numerator) + depth(q.divisor) for q in found)


def without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """The monomial divided by another; None where it can't be."""
    left = list(monomial)
    for factor in divisor:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def least(size: Size) -> int | None:
    """A number that the size never falls below, the largest that is found; None if none is."""
    return least_difference(size, 0)


def most(size: Size) -> int | None:
    """A number that the size never exceeds; None if none is found."""
    found = least_difference(0, size)
    return None if found is None else -found


@lru_cache(maxsize=4096)
def least_difference(a: Size, b: Size) -> int | None:
    """A number that a − b never falls below; None if none is found."""
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    found = _lower(_sum(_scaled(a, 1), _scaled(b, -1)))
    return None if found is None else ceil(found)


def _lower(terms: Terms) -> Fraction | None:
    """A lower bound: quotients are replaced by bounds of theirs, then names by 1 and what exceeds
    it."""
    if len(terms) > MOST_WORK or any(len(m) > LONGEST for m in terms):
        return None
    quotients = {f for m in terms for f in m if not isinstance(f, str)}
    if not quotients:
        return _lower_of_names(terms)
    chosen = max(quotients, key=lambda q: (depth(q.numerator), str(q)))
    rising: Terms = {}
    falling: Terms = {}
    rest: Terms = {}
    for monomial, coefficient in terms.items():
        left = without(monomial, (chosen,))
        if left is None:
            rest[monomial] = coefficient
        elif not all(_never_negative(f) for f in left):
            return None
        else:
            (rising if coefficient > 0 else falling)[left] = coefficient
    lows = _below(chosen) if rising else [{}]
    highs = _above(chosen) if falling else [{}]
    replaced = [_sum(rest, _times(rising, low), _times(falling, high))
                for low in lows for high in highs]
    exact = _of_whole_divisors(_sum(rising, falling), chosen)
    found = [_lower(t) for t in (*replaced, *([] if exact is None else [_sum(rest, exact)]))]
    return max((f for f in found if f is not None), default=None)


def _of_whole_divisors(factor: Terms, q: Factor) -> Terms | None:
    """A lower bound of factor·q where factor is c·divisor, a size: c·(numerator − divisor + 1), or
    c·numerator if c < 0. None where it is not."""
    by = _scaled(q.divisor, 1)
    if isinstance(q.divisor, int) or factor.keys() != by.keys():
        return None
    (c, *others) = {factor[m] / by[m] for m in by}
    if others or (least(q.divisor) or 0) < 1:
        return None
    above = {} if c < 0 else _sum(_scaled(q.divisor, -1), {(): Fraction(1)})
    return _times({(): c}, _sum(_scaled(q.numerator, 1), above))


def _never_negative(factor: Factor) -> bool:
    if isinstance(factor, str):
        return True
    low, by = least(factor.numerator), least(factor.divisor)
    return low is not None and by is not None and low >= 0 and by > 0


def _below(q: Factor) -> list[Terms]:
    """Lower bounds of a quotient: a number, and (numerator − divisor + 1)/divisor."""
    low = least(q.numerator)
    if not isinstance(q.divisor, int):
        above = least_difference(q.numerator, q.divisor)
        if low is None or low < 0:
            return []
        return [{(): Fraction(1 if above is not None and above >= 0 else 0)}]
    found: list[Terms] = [] if low is None else [{(): Fraction(low // q.divisor)}]
    short = {(): Fraction(q.divisor - 1, -q.divisor)}
    return [*found, _sum(_scaled(q.numerator, q.divisor), short)]


def _above(q: Factor) -> list[Terms]:
    """Upper bounds of a quotient: a number, and numerator/divisor."""
    low, high = least(q.numerator), most(q.numerator)
    if not isinstance(q.divisor, int):
        return [] if low is None or low < 0 else [_scaled(q.numerator, 1)]
    found: list[Terms] = [] if high is None else [{(): Fraction(high // q.divisor)}]
    return [*found, _scaled(q.numerator, q.divisor)]


def _scaled(size: Size, divisor: int) -> Terms:
    return {m: Fraction(c, divisor) for m, c in terms_of(size)}


def _times(a: Terms, b: Terms) -> Terms:
    found: Terms = {}
    for (m, c), (n, d) in product(a.items(), b.items()):
        key = tuple(sorted(m + n, key=str))
        found[key] = found.get(key, Fraction(0)) + c * d
    return found


def _sum(*parts: Terms) -> Terms:
    found: Terms = {}
    for part in parts:
        for m, c in part.items():
            found[m] = found.get(m, Fraction(0)) + c
    return {m: c for m, c in found.items() if c}


def _lower_of_names(terms: Terms) -> Fraction | None:
    """With each name 1 + its excess, the constant, where no excess lowers the sum."""
    expanded: Terms = {}
    for monomial, coefficient in terms.items():
        for count in range(len(monomial) + 1):
            for part in combinations(monomial, count):
                expanded[part] = expanded.get(part, Fraction(0)) + coefficient
    if any(c < 0 for m, c in expanded.items() if m):
        return None
    return expanded.get((), Fraction(0))
