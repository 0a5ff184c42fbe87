"""The C header of an exported program: one typed struct, its sizes, and how to call it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from rlx_py.backends.llvm.native import ALIGN
from rlx_py.backends.llvm.targets import Target
from rlx_py.ir.base.errors import BackendError
from rlx_py.ir.base.types import TensorType
from rlx_py.ir.graph.interface import Interface
from rlx_py.ir.loops.program import Program

C_TYPES = {
    "f64": "double", "f32": "float", "f16": "uint16_t", "bf16": "uint16_t", "i64": "int64_t",
    "i32": "int32_t", "i8": "int8_t", "u32": "uint32_t", "u8": "uint8_t", "bool": "uint8_t",
}
NOTES = {"f16": ", bits of IEEE half floats", "bf16": ", upper halves of floats",
         "bool": ", 0 or 1"}

# Words of C and C++, and macros that common headers or compilers define.
WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    char8_t class co_await co_return co_yield compl complex concept const const_cast consteval
    constexpr constinit continue decltype default delete do double dynamic_cast else enum explicit
    export extern false float for friend goto if imaginary import inline int long module mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast
    struct switch template this thread_local throw true try typedef typeid typename typeof
    typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq
    I EOF NULL assert errno i386 linux offsetof stderr stdin stdout unix
    arena parallel_for threads
"""
RESERVED = frozenset(WORDS.split())
STDINT_MACRO = re.compile(
    r"U?INT(_?[A-Z]*\d*)_(C|MAX|MIN)|(SIZE|PTRDIFF|WCHAR|WINT|SIG_ATOMIC)_M\w+")


@dataclass(frozen=True)
class Field:
    """An array of the struct: its C name, what it is to the graph, whether a step writes it."""

    identifier: str
    name: str
    kind: str
    type: TensorType
    written: bool


def identifier(text: str) -> str:
    """A C identifier that resembles the text."""
    found = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_") or "v"
    if found[0].isdigit():
        found = f"v{found}"
    return f"{found}_" if found in RESERVED or STDINT_MACRO.fullmatch(found) else found


def fields_of(program: Program, interface: Interface) -> tuple[Field, ...]:
    """The arrays of the struct in order: leaves, then outputs; identifiers are made distinct."""
    leaves = interface.leaves
    if [p.name for p in program.inputs] != list(leaves) or (
            [p.name for p in program.outputs] != list(interface.outputs)):
        raise BackendError(f"{program.name!r} does not have the ports of its interface")
    held = {p.buffer for p in program.inputs}
    if any(p.buffer not in held for p in program.updates):
        raise BackendError(f"{program.name!r} has an update that is not in place")
    entries = [(k, t, kind, k in interface.changed or kind == "state")
               for kind, table in (("input", interface.inputs), ("param", interface.params),
                                   ("state", interface.states))
               for k, t in table.items()]
    entries += [(k, t, "output", True) for k, t in interface.outputs.items()]
    taken: set[str] = set()
    found = []
    for name, type, kind, written in entries:
        # An output may have the name of an input.
        wanted = identifier(f"out_{name}" if kind == "output" and name in leaves else name)
        found.append(Field(_distinct(wanted, taken), name, kind, type, written))
    return tuple(found)


def _distinct(name: str, taken: set[str]) -> str:
    chosen, number = name, 1
    while chosen in taken:
        number += 1
        chosen = f"{name.rstrip('_')}_{number}"
    taken.add(chosen)
    return chosen


def quoted(name: str) -> str:
    """Any text, fit for a C comment."""
    return json.dumps(name).replace("*", "\\u002a").replace("?", "\\u003f")


def header(symbol: str, program: Program, fields: tuple[Field, ...], target: Target,
           link: str) -> str:
    """The text of the header; link: what a C compiler is told to link with the code."""
    return TEMPLATE.format(
        name=symbol, NAME=symbol.upper(), graph=quoted(program.name), triple=target.triple,
        cpu=f", {target.cpu}" if target.cpu else "", arena=program.arena, scratch=program.scratch,
        align=ALIGN, rounding="" if target.fma else ROUNDING,
        link=link if re.fullmatch(r"[-\w.:+ ]*", link) else quoted(link),
        sizes="\n".join(f"#define {symbol.upper()}_SIZE_{f.identifier} {f.type.size}"
                        for f in fields),
        fields="\n".join(map(_declaration, fields)),
    )


def _declaration(field: Field) -> str:
    const = "" if field.written else "const "
    star = f"{C_TYPES[field.type.dtype.name]} *{field.identifier};"
    change = " (changed by a step)" if field.written and field.kind != "output" else ""
    note = NOTES.get(field.type.dtype.name, "")
    return f"    {const}{star} /* {field.kind} {quoted(field.name)}: {field.type}{note}{change} */"


ROUNDING = """
 *
 * This machine has no fused multiply-add: products and sums round each, so that results may differ
 * in their last bits from those of machines that have one."""

TEMPLATE = """\
/* {name}: the graph {graph} as native code for {triple}{cpu}. Made by rlx-py.
 *
 * Fill a {name}_step with pointers to dense row-major arrays that share no byte, give states their
 * first values with {name}_init, then call {name}_run once a step. A pointer to an array of size 0
 * may be NULL. Concurrent calls need an arena of their own each, and arrays of their own where a
 * step changes them.
 *
 * Link with: cc main.c {link}{rounding}
 */
#ifndef {NAME}_RLX_H
#define {NAME}_RLX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* Elements of each array. */
{sizes}

/* Memory for intermediates; `threads` is the field of that name, 1 for a serial step. */
#define {NAME}_ARENA_BYTES(threads) ((size_t){arena} + (size_t)(threads) * (size_t){scratch})
#define {NAME}_ALIGNMENT {align}

enum {{
    {NAME}_OK = 0,
    {NAME}_NULL_STEP = 1,        /* the step is NULL */
    {NAME}_NULL_ARRAY = 2,       /* a pointer to an array is NULL */
    {NAME}_MISALIGNED_ARRAY = 3, /* an array is not aligned for its elements */
    {NAME}_BAD_ARENA = 4,        /* the arena is needed, and NULL or not aligned */
    {NAME}_BAD_THREADS = 5       /* parallel_for is given, and threads is less than 1 */
}};

/* Runs blocks begin to end - 1 of a loop on the thread of that number, 0 <= thread < threads. */
typedef void {name}_body(void *context, int64_t begin, int64_t end, int32_t thread);

/* Calls body for disjoint ranges that cover 0 to blocks - 1, on any threads, and returns when all
 * are done. No two calls at a time may have the same thread number. Results do not depend on it. */
typedef void {name}_parallel_for({name}_body *body, void *context, int64_t blocks);

typedef struct {name}_step {{
{fields}
    void *arena; /* {NAME}_ARENA_BYTES(threads) bytes, {NAME}_ALIGNMENT-aligned */
    {name}_parallel_for *parallel_for; /* NULL: serial */
    intptr_t threads; /* what parallel_for uses at most; ignored without it */
}} {name}_step;

/* Writes the initial values of all states into their arrays; uses no other field. */
int32_t {name}_init({name}_step *step);

/* One step: reads the arrays, fills outputs, changes params and states in place. Nothing is read or
 * written unless it returns {NAME}_OK. */
int32_t {name}_run({name}_step *step);

/* Names, shapes and types as JSON. */
extern const char {name}_interface[];

#ifdef __cplusplus
}}
#endif

#endif
"""
