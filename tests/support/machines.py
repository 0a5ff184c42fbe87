"""Machines of every register width, which programs are made for anywhere."""

from __future__ import annotations

import llvmlite.binding as llvm

from rlx_py.backends.llvm.targets import Target, host, named

X86 = "x86_64-unknown-linux-gnu"
MACHINES = {
    "sse2": named(X86, "x86-64"),
    "avx2": named(X86, "x86-64-v3"),
    "avx512": named(X86, "x86-64-v4"),
    "neon": named("aarch64-unknown-linux-gnu", "generic"),
}
ASKED = {  # what a level has that the one before it lacks, as LLVM names features
    "x86-64": (), "x86-64-v2": ("sse4.2", "popcnt", "ssse3", "cx16"),
    "x86-64-v3": ("avx2", "fma", "bmi", "bmi2", "f16c", "lzcnt", "movbe"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")}


def levels() -> dict[str, Target]:
    """The x86 levels that this machine has, least first; empty on other architectures."""
    found: dict[str, Target] = {}
    triple = host().triple
    if not triple.startswith("x86_64"):
        return found
    features = llvm.get_host_cpu_features()
    for level, asked in ASKED.items():
        if not all(features.get(name, False) for name in asked):
            break
        found[level] = named(triple, level)
    return found
