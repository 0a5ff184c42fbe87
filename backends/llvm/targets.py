"""The machine that code is made for: triple, CPU, features, and what its vector registers hold."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import llvmlite.binding as llvm

from rlx_py.ir.base.errors import ArgumentError, BackendError
from rlx_py.ir.base.types import as_dtype
from rlx_py.passes.loops.products.target import TileTarget

Reloc = Literal["default", "static", "pic", "dynamicnopic"]
CodeModel = Literal["default", "jitdefault", "small", "kernel", "medium", "large"]

# Little-endian ones whose vectors LLVM splits as needed; for others it may end the process.
ARCHITECTURES = re.compile(r"x86_64|amd64|i[3-6]86|aarch64|arm64|(arm|thumb)(v\d\w*(\.main)?)?"
                           r"|riscv(32|64)|wasm(32|64)|powerpc64le|loongarch64")

# Features that every machine of a triple has; LLVM alone would assume no float unit.
ASSUMED = (
    (r"riscv64.*linux.*", "+m,+a,+f,+d,+c"),
    (r"thumbv7em-.*eabihf", "+vfp4d16sp"),
    (r"thumbv8m\.main-.*eabihf", "+fp-armv8d16sp"),
    (r"arm(v6)?-.*eabihf", "+vfp2"),
)

# A 512-bit operation shows which registers LLVM would use, whatever the CPU is called.
PROBE = """
target triple = "{triple}"
define void @probe(ptr %x) {{
  %a = load <16 x float>, ptr %x, align 4
  %f = call <16 x float> @llvm.fma.v16f32(<16 x float> %a, <16 x float> %a, <16 x float> %a)
  store <16 x float> %f, ptr %x, align 4
  ret void
}}
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
"""


@dataclass(frozen=True)
class Target:
    """A machine to compile for.

    vector_bytes: size of one vector register; registers: how many there are; fma: whether a fused
    multiply-add is an instruction; else products and sums round each.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int
    fma: bool

    def lanes(self, dtype: str) -> int:
        """Elements of the type named `dtype` ('f32', 'i8', ...) in one vector register."""
        return self.vector_bytes // as_dtype(dtype).itemsize


@lru_cache(maxsize=1)
def host() -> Target:
    """The machine this process runs on."""
    # Not get_default_triple: that is what LLVM was built for, not what the process is.
    features = llvm.get_host_cpu_features().flatten()
    return _described(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)


@lru_cache(maxsize=64)
def named(triple: str, cpu: str = "", features: str = "") -> Target:
    """The machine of an LLVM triple and CPU name, e.g. ("x86_64-unknown-linux-gnu", "x86-64-v3").

    Raises BackendError if there is no code generator for the triple, it does not know the CPU or a
    feature, or the triple passes floats in registers that the CPU lacks.
    """
    if not ARCHITECTURES.fullmatch(triple.split("-")[0]):
        raise BackendError(f"no code can be made for {triple!r}; architectures are x86_64, i686, "
                           "aarch64, arm, thumb, riscv, wasm, powerpc64le and loongarch64")
    triple = normalized(triple)
    with _refusals() as messages:
        _machine(triple, cpu, features, "pic", "small", 0)
    if messages:
        raise BackendError(f"LLVM does not know this {triple} machine: {messages[0]}")
    if triple.endswith("eabihf") and ".fpu" not in _assembly(triple, cpu, features):
        raise BackendError(f"{triple} passes floats in registers, which {cpu or 'its CPU'} lacks: "
                           "name a CPU with a float unit, or a triple that ends in eabi")
    return _described(triple, cpu, features)


def normalized(triple: str) -> str:
    """The triple in LLVM's form, vendor included; it would take linux of armv7-linux-gnueabihf for
    a vendor, and not see what the rest asks for."""
    architecture, *rest = triple.split("-")
    if len(rest) != 2 or rest[0] not in ("linux", "none"):
        return triple
    system = ["unknown", *rest] if rest[0] == "linux" else ["none", "unknown", rest[1]]
    return "-".join([architecture, *system])


def tile_target(target: Target) -> TileTarget:
    """What products ask of the machine."""
    return TileTarget(target.vector_bytes, target.registers, fma=target.fma)


def chosen(triple: str | None, cpu: str = "") -> Target:
    """The machine of a triple (None: this one) and CPU; of neither, this one and its features."""
    for what, value in (("target", triple), ("cpu", cpu)):
        if value is not None and not isinstance(value, str):
            raise ArgumentError(f"{what} is a name of LLVM's, not {value!r}")
    if triple is None:
        return named(host().triple, cpu) if cpu else host()
    return named(triple, cpu, "" if cpu else next(
        (features for known, features in ASSUMED if re.fullmatch(known, triple)), ""))


@lru_cache(maxsize=64)
def data_layout(target: Target) -> str:
    """Sizes and alignments as LLVM writes them; without them its passes assume 64-bit pointers."""
    return str(machine(target).target_data)


def machine(
    target: Target, reloc: Reloc = "default", codemodel: CodeModel = "jitdefault", opt: int = 2
) -> llvm.TargetMachine:
    """A new TargetMachine; opt is 0 to 3.

    Never share one: an MCJIT engine owns and frees the machine it is given.
    """
    return _machine(target.triple, target.cpu, target.features, reloc, codemodel, opt)


@lru_cache(maxsize=1)
def initialize() -> None:
    """Register every code generator of this LLVM, once."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _described(triple: str, cpu: str, features: str) -> Target:
    architecture = triple.split("-")[0]
    added = []
    if architecture in ("x86_64", "amd64", "i386", "i686"):
        # Many AVX-512 CPUs are tuned to split 512-bit vectors; tiles are sized for whole ones.
        added.append("-prefer-256-bit")
    if architecture in ("x86_64", "amd64"):
        # LLVM ends the process when a CPU without 64-bit mode meets a 64-bit triple.
        added.append("+64bit")
    features = ",".join([features, *added] if features else added)
    text = _assembly(triple, cpu, features)
    if "%zmm" in text:
        vector_bytes, registers = 64, 32
    elif "%ymm" in text:
        vector_bytes, registers = 32, 16
    else:
        vector_bytes, registers = 16, 32 if architecture in ("aarch64", "arm64") else 16
    if architecture in ("i386", "i686"):
        registers = 8
    return Target(triple, cpu, features, vector_bytes, registers, fma="fmaf" not in text)


def _assembly(triple: str, cpu: str, features: str) -> str:
    """The probe as this machine's assembly."""
    generator = _machine(triple, cpu, features, "pic", "small", 0)
    return str(generator.emit_assembly(llvm.parse_assembly(PROBE.format(triple=triple))))


@contextmanager
def _refusals() -> Iterator[list[str]]:
    """What LLVM says about unknown names: it writes to file descriptor 2 and carries on."""
    messages: list[str] = []
    saved = os.dup(2)
    with tempfile.TemporaryFile() as capture:
        os.dup2(capture.fileno(), 2)
        try:
            yield messages
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            capture.seek(0)
            messages += (line.decode(errors="replace").strip() for line in capture)


def _machine(
    triple: str, cpu: str, features: str, reloc: str, codemodel: str, opt: int
) -> llvm.TargetMachine:
    initialize()
    try:
        generator = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        raise BackendError(f"LLVM can't compile for {triple!r}: {error}") from error
    return generator.create_target_machine(
        cpu=cpu, features=features, opt=opt, reloc=reloc, codemodel=codemodel
    )


def same_system(triple: str, other: str) -> bool:
    """Whether code for one triple can be linked and loaded where the other is at home."""
    return _system(triple) == _system(other)


def _system(triple: str) -> tuple[str, frozenset[str]]:
    architecture, *rest = triple.split("-")
    return architecture, frozenset(rest) - {"unknown", "pc"}
