"""What C-like languages of GPUs differ in, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# {0}, {1} … are names or literals, so that using one twice computes nothing twice.
_LARGER = "({0} > {1} || {0} != {0} || ({0} == {1} && !signbit({0})) ? {0} : {1})"
_SMALLER = "({0} < {1} || {0} != {0} || ({0} == {1} && signbit({0})) ? {0} : {1})"
_COMPARE = {
    "eq": "({0} == {1})", "ne": "({0} != {1})", "lt": "({0} < {1})", "le": "({0} <= {1})",
    "gt": "({0} > {1})", "ge": "({0} >= {1})", "select": "({0} ? {1} : {2})",
}
_FLOAT = {
    **_COMPARE,
    "neg": "(-{0})", "max": _LARGER, "min": _SMALLER,
}
# The intrinsics round each product and sum: a plain a * b + c may be compiled to one fma.
_CUDA_F32 = {
    **_FLOAT,
    "add": "__fadd_rn({0}, {1})", "sub": "__fsub_rn({0}, {1})", "mul": "__fmul_rn({0}, {1})",
    "div": "__fdiv_rn({0}, {1})", "fma": "__fmaf_rn({0}, {1}, {2})", "sqrt": "__fsqrt_rn({0})",
    "abs": "fabsf({0})", "floor": "floorf({0})", "ceil": "ceilf({0})", "round": "rintf({0})",
    "trunc": "truncf({0})", "copysign": "copysignf({0}, {1})",
}
_CUDA_F64 = {
    **_FLOAT,
    "add": "__dadd_rn({0}, {1})", "sub": "__dsub_rn({0}, {1})", "mul": "__dmul_rn({0}, {1})",
    "div": "__ddiv_rn({0}, {1})", "fma": "__fma_rn({0}, {1}, {2})", "sqrt": "__dsqrt_rn({0})",
    "abs": "fabs({0})", "floor": "floor({0})", "ceil": "ceil({0})", "round": "rint({0})",
    "trunc": "trunc({0})", "copysign": "copysign({0}, {1})",
}
_BITS = {**_COMPARE, "and": "({0} & {1})", "or": "({0} | {1})", "xor": "({0} ^ {1})"}
_BOOL = {**_BITS, "add": "({0} | {1})", "mul": "({0} & {1})", "max": "({0} | {1})",
         "min": "({0} & {1})", "not": "(!{0})"}
def _integer(type: str, unsigned: str, width: int) -> dict[str, str]:
    """Integers that wrap: through the unsigned type, as C leaves signed overflow undefined.

    Shifts by 0 … width − 1 are C's; beyond, no bits are left but copies of the sign.
    """
    a, b, n = f"({unsigned}){{0}}", f"({unsigned}){{1}}", f"(unsigned long long){{1}} < {width}"
    last = f"({{0}} >> {width - 1})" if type != unsigned else "0"
    return {
        **_BITS,
        "add": f"({type})({a} + {b})", "sub": f"({type})({a} - {b})",
        "mul": f"({type})({a} * {b})", "neg": f"({type})(0 - {a})", "not": f"({type})(~{{0}})",
        "abs": f"({{0}} < 0 ? ({type})(0 - {a}) : {{0}})" if type != unsigned else "{0}",
        "max": "({0} > {1} ? {0} : {1})", "min": "({0} < {1} ? {0} : {1})",
        "shl": f"({n} ? ({type})({a} << {{1}}) : ({type})0)",
        "shr": f"({n} ? ({type})({{0}} >> {{1}}) : ({type}){last})",
        "lshr": f"({n} ? ({type})({a} >> {{1}}) : ({type})0)",
    }


@dataclass(frozen=True)
class Dialect:
    """A language of GPU kernels.

    types: names by element type. operations: expressions by element type and scalar operation.
    bits: the value of an integer literal's bits as a float type. restated: a value's bits under
    another type, by (from, to). block_index, thread_index: by dimension, the fastest first.
    """

    name: str
    kernel: str
    read: str
    write: str
    shared: str
    barrier: str
    unroll: str
    integer: str
    types: Mapping[str, str]
    operations: Mapping[str, Mapping[str, str]]
    bits: Mapping[str, str]
    restated: Mapping[tuple[str, str], str]
    block_index: tuple[str, str, str]
    thread_index: tuple[str, str, str]


CUDA = Dialect(
    name="CUDA C++",
    kernel='extern "C" __global__ void',
    read="const {type} *__restrict__ {name}",
    write="{type} *{name}",
    shared="__shared__ {type} {name}[{size}];",
    barrier="__syncthreads();",
    unroll="#pragma unroll",
    integer="long long",
    types={
        "f32": "float", "f64": "double", "i64": "long long", "i32": "int", "i8": "signed char",
        "u32": "unsigned int", "u16": "unsigned short", "u8": "unsigned char", "bool": "bool",
        # Held as bits; expand_math leaves no arithmetic on them.
        "f16": "unsigned short", "bf16": "unsigned short",
    },
    operations={
        "f32": _CUDA_F32, "f64": _CUDA_F64, "bool": _BOOL,
        "i64": _integer("long long", "unsigned long long", 64),
        "i32": _integer("int", "unsigned int", 32),
        "i8": _integer("signed char", "unsigned char", 8),
        "u32": _integer("unsigned int", "unsigned int", 32),
        "u16": _integer("unsigned short", "unsigned short", 16),
        "u8": _integer("unsigned char", "unsigned char", 8),
        "f16": {"select": _COMPARE["select"]}, "bf16": {"select": _COMPARE["select"]},
    },
    bits={"f32": "__uint_as_float(0x{0:08x}u)", "f64": "__longlong_as_double(0x{0:016x}ll)"},
    restated={
        ("f32", "u32"): "__float_as_uint({0})", ("u32", "f32"): "__uint_as_float({0})",
        ("f32", "i32"): "__float_as_int({0})", ("i32", "f32"): "__int_as_float({0})",
        ("f64", "i64"): "__double_as_longlong({0})", ("i64", "f64"): "__longlong_as_double({0})",
        ("i32", "u32"): "(unsigned int){0}", ("u32", "i32"): "(int){0}",
        ("f16", "u16"): "{0}", ("u16", "f16"): "{0}", ("bf16", "u16"): "{0}",
        ("u16", "bf16"): "{0}",
    },
    block_index=("blockIdx.x", "blockIdx.y", "blockIdx.z"),
    thread_index=("threadIdx.x", "threadIdx.y", "threadIdx.z"),
)
