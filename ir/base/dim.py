"""Sizes that are not known while a graph is built: polynomials over named sizes.

A `Dim` stands in a shape for an integer. It is kept in a normal form, integer coefficients over
products of names and quotients, so that equal sizes are `==`: T*B is B*T, (B + 1) - 1 is B, and
4*B // 4 is B. Where a size is divided inexactly the quotient is a factor of its own, and p % d is
p - d*(p // d). Every named size is at least 1. A comparison is answered where the answer is the
same for all such sizes; else it is an error (`Undecided`), never a guess.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from keyword import iskeyword
from math import gcd
from typing import Any

import numpy as np

from rlx_py.ir.base.bounds import (
    Factor,
    Monomial,
    Size,
    depth,
    least,
    least_difference,
    most,
    terms_of,
    without,
)
from rlx_py.ir.base.errors import ArgumentError, FormatError, ShapeError, Undecided

MOST_TERMS, MOST_DEGREE, MOST_QUOTIENTS = 64, 8, 4  # of one size; they bound the work of a question
MOST_TEXT = 1000  # characters
LARGEST = 2**63 - 1  # coefficient
RESERVED = ("true", "false", "none")


@dataclass(frozen=True)
class Quotient:
    """The rounded-down quotient of two sizes, which is no polynomial."""

    numerator: Size
    divisor: Size

    def __str__(self) -> str:
        return f"{_operand(self.numerator)}//{_operand(self.divisor)}"


def _operand(size: Size) -> str:
    return str(size) if isinstance(size, int) or size.is_name else f"({size})"


def dim(name: str) -> Dim:
    """The size of that name, at least 1; `+ - * // %` and comparisons make and compare others.

    The same name is the same size everywhere in a graph. Raises ArgumentError for what is no
    identifier.
    """
    if (not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w{0,63}", name, re.ASCII)
            or iskeyword(name) or name in RESERVED):
        raise ArgumentError(f"a size is named by an identifier, not {name!r}")
    return Dim((((name,), 1),))


class Dim:
    """A size that depends on named sizes; made by `dim` and by arithmetic."""

    __slots__ = ("_hash", "terms")
    __array_ufunc__ = None  # so that a NumPy integer on the left asks Dim

    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Dim, (self.terms,)  # the hash is of this process

    def __eq__(self, other: object) -> bool:
        return self.terms == other.terms if isinstance(other, Dim) else NotImplemented

    @property
    def is_name(self) -> bool:
        """Whether this is one named size."""
        return len(self.terms) == 1 and self.terms[0][1] == 1 and _is_name(self.terms[0][0])

    @property
    def names(self) -> frozenset[str]:
        """The named sizes that this one depends on."""
        return frozenset(n for m, _ in self.terms for f in m for n in _names(f))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        text = "".join(_signed(m, c) for m, c in self.terms)
        return text.removeprefix("+")

    # ---- arithmetic ----------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        return _with(other, lambda b: _made((*self.terms, *terms_of(b))), f"{self} +")

    def __mul__(self, other: Any) -> Any:
        return _with(other, lambda b: _product(self, b), f"{self} *")

    def __sub__(self, other: Any) -> Any:
        return _with(other, lambda b: self + -1 * b, f"{self} -")

    def __rsub__(self, other: Any) -> Any:
        return _with(other, lambda b: -1 * self + b, f"{self} subtracted from")

    def __neg__(self) -> Any:
        return -1 * self

    def __floordiv__(self, other: Any) -> Any:
        return _with(other, lambda b: _quotient(self, b), f"{self} //")

    def __rfloordiv__(self, other: Any) -> Any:
        return _with(other, lambda b: _quotient(b, self), f"{self} dividing")

    def __mod__(self, other: Any) -> Any:
        return _with(other, lambda b: self - b * _quotient(self, b), f"{self} %")

    def __rmod__(self, other: Any) -> Any:
        return _with(other, lambda b: b - self * _quotient(b, self), f"{self} dividing")

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __pow__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return _with(other, self._fraction, f"{self} **")
        if not 0 <= other <= MOST_DEGREE:
            raise ShapeError(f"({self})**{other} is no size")
        power: Size = 1
        for _ in range(other):
            power = self * power
        return power

    def __truediv__(self, other: Any) -> Any:
        return _with(other, self._fraction, f"{self} /")

    def _fraction(self, other: Size) -> Any:
        raise Undecided(f"the size {self} and {other} have no fraction while the graph is built; "
                        "divide a node, or use //")

    __radd__, __rmul__, __rtruediv__ = __add__, __mul__, __truediv__

    # ---- comparison ----------------------------------------------------------------------------

    def __lt__(self, other: Any) -> Any:
        return _with(other, lambda b: _less(self, b), f"{self} <")

    def __le__(self, other: Any) -> Any:
        return _with(other, lambda b: not _less(b, self), f"{self} <=")

    def __gt__(self, other: Any) -> Any:
        return _with(other, lambda b: _less(b, self), f"{self} >")

    def __ge__(self, other: Any) -> Any:
        return _with(other, lambda b: not _less(self, b), f"{self} >=")

    def __bool__(self) -> bool:
        low, high = least(self), most(self)
        if (low is not None and low > 0) or (high is not None and high < 0):
            return True
        raise Undecided(f"cannot decide {self} == 0 for every {_listed(self.names)} >= 1")

    # ---- what only a number can be -------------------------------------------------------------

    def __index__(self) -> int:
        raise Undecided(f"the size {self} has no number while the graph is built; rlx.bind gives "
                        "it one")

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __iter__(self) -> Iterator[Any]:
        return iter([self.__index__()])


def _with(other: Any, function: Callable[[Size], Any], what: str) -> Any:
    """The function of a size; NotImplemented for what has operators of its own."""
    if isinstance(other, Dim) or type(other) is int:
        return function(other)
    if isinstance(other, np.integer | bool):
        return function(int(other))
    if isinstance(other, float | complex | np.generic | str):
        raise Undecided(f"{what} {other!r}: the size has no number while the graph is built; to "
                        "compute with its value, combine it with a node")
    if isinstance(other, np.ndarray):
        raise Undecided(f"{what} an array of numbers: the size has none while the graph is built")
    return NotImplemented


def _is_name(monomial: Monomial) -> bool:
    return len(monomial) == 1 and isinstance(monomial[0], str)


def _names(factor: Factor) -> Iterable[str]:
    if isinstance(factor, str):
        return (factor,)
    return {n for part in (factor.numerator, factor.divisor) for n in names_in(part)}


def names_in(value: Any) -> frozenset[str]:
    """The named sizes in a size or in a tuple of anything."""
    if isinstance(value, Dim):
        return value.names
    if isinstance(value, tuple):
        return frozenset(n for v in value for n in names_in(v))
    return frozenset()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _signed(monomial: Monomial, coefficient: int) -> str:
    sign = "-" if coefficient < 0 else "+"
    if not monomial:
        return f"{coefficient:+d}"
    if len(monomial) == 1 and coefficient == 1:
        return f"+{monomial[0]}"
    factors = [f if isinstance(f, str) else f"({f})" for f in monomial]
    return sign + "*".join([str(abs(coefficient))] * (abs(coefficient) != 1) + factors)


# ---- normal form -------------------------------------------------------------------------------


def _order(term: tuple[Monomial, Any]) -> tuple[Any, ...]:
    """Terms of high degree first, then by text; the constant last."""
    return (-len(term[0]), *map(str, term[0]))


def _made(terms: Iterable[tuple[Monomial, int]]) -> Size:
    """The sum of terms: an int where nothing else is left."""
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    kept = sorted(((m, c) for m, c in total.items() if c), key=_order)
    if not kept:
        return 0
    if kept[0][0] == ():
        return kept[0][1]
    found = Dim(tuple(kept))
    if (len(kept) > MOST_TERMS or len(kept[0][0]) > MOST_DEGREE
            or depth(found) > MOST_QUOTIENTS or any(abs(c) > LARGEST for _, c in kept)):
        raise ShapeError(f"the size {str(found)[:80]} is beyond what sizes may be")
    return found


def _product(a: Size, b: Size) -> Size:
    return _made((tuple(sorted(m + n, key=str)), c * d)
                 for (m, c), (n, d) in product(terms_of(a), terms_of(b)))


def _quotient(a: Size, b: Size) -> Size:
    """a // b, rounded down."""
    if isinstance(b, int):
        if not b:
            raise ArgumentError(f"the size {a} divided by 0")
        return _by_number(a, b) if b > 0 else _by_number(-a, -b)
    if not b > 0:
        return _quotient(-a, -b)
    whole, rest = _divided(a, b)
    if surely_less(-1, rest) and surely_less(rest, b):
        return whole
    if surely_less(rest, 0) and surely_less(-1 * b - 1, rest):
        return whole - 1
    return whole + Dim((((Quotient(rest, b),), 1),))


def _by_number(a: Size, b: int) -> Size:
    """a // b for b > 0: what b divides, and the quotient of the rest with coefficients in 0 … b−1.
    """
    whole = _made((m, c // b) for m, c in terms_of(a))
    rest = _made((m, c % b) for m, c in terms_of(a))
    low, high = least(rest), most(rest)
    if low is not None and high is not None and low // b == high // b:
        return whole + low // b
    # ⌊(g·u + c)/(g·d)⌋ = ⌊(u + ⌊c/g⌋)/d⌋
    common = gcd(b, *(c for m, c in rest.terms if m))
    rest, b = _made((m, c // common) for m, c in rest.terms), b // common
    if common > 1:
        return whole + _by_number(rest, b)
    # ⌊(⌊u/e⌋ + c)/d⌋ = ⌊(u + c·e)/(d·e)⌋
    (first, coefficient), *others = rest.terms
    if (len(first) == 1 and isinstance(first[0], Quotient) and isinstance(first[0].divisor, int)
            and coefficient == 1 and all(m == () for m, _ in others)):
        inner = first[0].divisor
        constant = sum(c for _, c in others)
        return whole + _by_number(first[0].numerator + constant * inner, b * inner)
    return whole + Dim((((Quotient(rest, b),), 1),))


def _divided(a: Size, b: Dim) -> tuple[Size, Size]:
    """Whole and rest of a division of polynomials: a = whole·b + rest."""
    lead, by = b.terms[0]
    whole: Size = 0
    rest: Size = 0
    while True:
        terms = list(terms_of(a))
        if not terms:
            return whole, rest
        monomial, coefficient = terms[0]
        left = without(monomial, lead)
        if left is None or not coefficient // by:
            rest += _made([terms[0]])
            a = _made(terms[1:])
            continue
        step = _made([(left, coefficient // by)])
        whole, a = whole + step, a - step * b


# ---- questions -------------------------------------------------------------------------------


def _less(a: Size, b: Size) -> bool:
    """a < b for all named sizes; Undecided where it depends on them."""
    if surely_less(a, b):
        return True
    low = least_difference(a, b)
    if low is not None and low >= 0:
        return False
    raise Undecided(f"cannot decide {a} < {b} for every {_listed(names_in((a, b)))} >= 1")


def larger(a: Size, b: Size) -> Size:
    """max(a, b), also where a <= b is sure and a < b is not."""
    try:
        return a if b < a else b
    except Undecided:
        return b if a < b else a


def surely_less(a: Size, b: Size) -> bool:
    """Whether a < b whatever the named sizes are. A limit asked so is asked again, of numbers, when
    they are bound."""
    low = least_difference(b, a)
    return low is not None and low > 0


def indices(key: slice, size: Size) -> tuple[Size, Size, int]:
    """slice.indices, for sizes too. Undecided where it depends on them what is cut off."""
    if not isinstance(size, Dim) and not names_in((key.start, key.stop)):
        return key.indices(size)
    step = 1 if key.step is None else key.step.__index__()
    if not step:
        raise ValueError("slice step cannot be zero")
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first, last = (low, high) if step > 0 else (high, low)
    start = first if key.start is None else _clipped(key.start, size, low, high)
    stop = last if key.stop is None else _clipped(key.stop, size, low, high)
    return start, stop, step


def _clipped(place: Size, size: Size, low: Size, high: Size) -> Size:
    if place < 0:
        place = place + size
        return low if place < low else place
    return high if place > high else place


# ---- values and text ---------------------------------------------------------------------------


def value_of(size: Size, sizes: Mapping[str, int]) -> Size:
    """The size with names given numbers; an int where all are."""
    if not isinstance(size, Dim):
        return size
    total: Size = 0
    for monomial, coefficient in size.terms:
        term: Size = coefficient
        for factor in monomial:
            term = term * _factor_value(factor, sizes)
        total = total + term
    return total


def _factor_value(factor: Factor, sizes: Mapping[str, int]) -> Size:
    if isinstance(factor, str):
        return sizes[factor] if factor in sizes else dim(factor)
    return _quotient_of(value_of(factor.numerator, sizes), value_of(factor.divisor, sizes))


def _quotient_of(a: Size, b: Size) -> Size:
    return a // b if isinstance(a, int) and isinstance(b, int) else _quotient(a, b)


def read_size(text: str) -> Size:
    """The size that a text such as "2*B*T-1" or "(B+1)//2" denotes. Raises FormatError."""
    if len(text) > MOST_TEXT:
        raise FormatError(f"a size of {len(text)} characters")
    try:
        return _read(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise FormatError(f"{text[:40]!r} is no size") from error
    except (ArgumentError, ShapeError) as error:
        raise FormatError(f"{text[:40]!r} is no size: {error}") from error


def _read(tree: ast.expr) -> Size:
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return tree.value
    if isinstance(tree, ast.Name):
        return dim(tree.id)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -_read(tree.operand)
    if isinstance(tree, ast.BinOp):
        a, b = _read(tree.left), _read(tree.right)
        if isinstance(tree.op, ast.Add):
            return a + b
        if isinstance(tree.op, ast.Sub):
            return a - b
        if isinstance(tree.op, ast.Mult):
            return a * b
        if isinstance(tree.op, ast.FloorDiv) and not (type(b) is int and b == 0):
            return a // b
    raise ValueError("an expression of integers, names, +, -, * and //")
