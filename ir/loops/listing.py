"""Programs as stable text."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_py.ir.loops.kernel import Contract, For, If, Let, Set, Stmt, Store, While
from rlx_py.ir.loops.program import Branch, Item, Program, items, part


def show(program: Program) -> str:
    """Stable text of a program."""
    lines = [f"program {program.name}"]
    for kind, ports in (("in", program.inputs), ("out", program.outputs),
                        ("next", program.updates)):
        lines += [f"  {kind} {p.name}: {p.buffer!r}" for p in ports]
    return "\n".join([*lines, *_show_items(program, items(program), 0)])


def _show_items(program: Program, found: Sequence[Item], depth: int) -> list[str]:
    pad, lines = "  " * depth, list[str]()
    for item in found:
        if isinstance(item, int):
            kernel = program.kernels[item]
            lines.append(f"{pad}kernel {kernel.name}:")
            lines += show_body(kernel.body, depth + 1)
            continue
        region, inside = item
        if isinstance(region, Branch):
            lines.append(f"{pad}where {region.condition.name}:")
            lines += _show_items(program, part(inside, region.first, region.middle), depth + 1)
            lines.append(f"{pad}else:")
            lines += _show_items(program, part(inside, region.middle, region.last), depth + 1)
            continue
        bounds = [("steps", region.extent), ("counted by", region.count),
                  ("while", region.condition), ("taken", region.taken)]
        told = " ".join(f"{k} {v}" for k, v in bounds if v is not None)
        lines.append(f"{pad}loop {told}{' reversed' if region.reverse else ''}:")
        lines += [f"{pad}  {b.name} = {s.of.name}[{s.start} + {s.stride}·step]"
                  for b, s in region.slices.items()]
        lines += _show_items(program, inside, depth + 1)
    return lines


def show_body(body: tuple[Stmt, ...], depth: int) -> list[str]:
    """Lines of a body, indented."""
    pad = "  " * depth
    lines: list[str] = []
    for s in body:
        match s:
            case Let(local, expr):
                lines.append(f"{pad}{local} = {expr!r}")
            case Set(local, value, combine):
                lines.append(f"{pad}{local} {combine or ''}:= {value!r}")
            case Store(buffer, index, value, combine, guard):
                tail = f" if {guard!r}" if guard else ""
                lines.append(f"{pad}{buffer.name}[{index}] {combine or ''}= {value!r}{tail}")
            case For(var, inner, axis):
                lines.append(f"{pad}for {var} < {var.extent} {axis.value}:")
                lines += show_body(inner, depth + 1)
            case While(condition, inner, bound):
                lines.append(f"{pad}while {condition} bound {bound}:")
                lines += show_body(inner, depth + 1)
            case If(condition, inner):
                lines.append(f"{pad}if {condition!r}:")
                lines += show_body(inner, depth + 1)
            case Contract():
                lines += _show_contract(s, depth)
            case _:
                lines.append(f"{pad}{s!r}")
    return lines


def _show_contract(s: Contract, depth: int) -> list[str]:
    pad = "  " * depth
    dims = " ".join(
        f"{name}=({', '.join(f'{v}<{v.extent}' for v in group)})"
        for name, group in (("batch", s.batch), ("m", s.m), ("n", s.n), ("k", s.k))
    )
    lines = [f"{pad}contract {s.acc} {dims}"]
    for name, operand in (("a", s.a), ("b", s.b)):
        lines.append(f"{pad} {name} = {operand.value!r} where")
        lines += show_body(operand.body, depth + 1)
    lines.append(f"{pad} then")
    return lines + show_body(s.epilogue, depth + 1)
