"""Maps of indices turned around, so that what follows a product can run where its sums arise."""

from __future__ import annotations

from rlx_py.ir.loops.index import Atom, Index, Quotient, Remainder, Var, substitute
from rlx_py.passes.lower.block import Place


def invert(index: Place, vars: tuple[Var, ...], target: Place) -> Place | None:
    """The values of `vars` at which `index` equals `target`, if each element is met once.

    A variable may lie in parts along several axes, as quotients and remainders do.
    """
    found: dict[Var, Index] = {v: Index(0) for v in vars if v.extent == 1}
    for component, wanted in zip(index, target, strict=True):
        for atom, stride in component.terms:
            part = _part(atom)
            if part is None or stride < 1:
                return None
            var, weight, extent = part
            found[var] = found.get(var, Index(0)) + (wanted // stride) % extent * weight
    if len(found) != len(vars) or any(found[v].range[1] >= v.extent for v in vars):
        return None
    if any(substitute(c, found) != w for c, w in zip(index, target, strict=True)):
        return None
    return tuple(found[v] for v in vars)


def _part(atom: Atom) -> tuple[Var, int, int] | None:
    """(variable, weight, extent) of a part of a variable's value: var // weight % extent."""
    if isinstance(atom, Var):
        return atom, 1, max(atom.extent, 1)
    if not isinstance(atom, Quotient | Remainder) or atom.of.const or len(atom.of.terms) != 1:
        return None
    inner, factor = atom.of.terms[0]
    part = _part(inner) if factor == 1 else None
    if part is None:
        return None
    var, weight, extent = part
    if isinstance(atom, Remainder):
        return var, weight, atom.by
    return var, weight * atom.by, -(-extent // atom.by)
