"""Programs as object files, archives and shared libraries, each with a C header.

The code is position independent, keeps no state and calls nothing but memory functions of the C
library, functions of libm, and of LAPACK where the program has linear algebra. What it takes and
gives is in it as JSON, for rlx.load.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from rlx_py.backends.llvm.entry import add_constant, add_init, add_run
from rlx_py.backends.llvm.header import fields_of, header, identifier
from rlx_py.backends.llvm.jit import is_parallel, optimized
from rlx_py.backends.llvm.lapack import LIBRARIES, called
from rlx_py.backends.llvm.program import emit_module
from rlx_py.backends.llvm.targets import Target, host, machine, same_system
from rlx_py.ir.base.errors import ArgumentError, BackendError
from rlx_py.ir.base.paths import file_path
from rlx_py.ir.graph.interface import Interface
from rlx_py.ir.loops.program import Program
from rlx_py.passes.analysis.cost import bytes_moved, flops

Kind = Literal["object", "shared", "static"]
SUFFIXES = {"object": ".o", "shared": ".so", "static": ".a"}
FORMAT = 1
MARK = b'{"rlx_interface":'
NO_DIGEST = "0" * 64
COMPILERS = ("cc", "gcc", "clang")
# Instructions of the system and of hand-written code, which LLVM makes of no program.
SYSTEM = """
    64bit clflushopt clwb clzero cldemote fsgsbase fxsr invpcid mwaitx pku prfchw rdpid rdpru rdrnd
    rdseed rtm serialize sgx shstk waitpkg wbnoinvd xsave xsavec xsaveopt xsaves
"""
UNUSED = frozenset(SYSTEM.split())


def export_program(program: Program, interface: Interface, path: str | Path, *,
                   kind: Kind = "shared", name: str | None = None, target: Target | None = None,
                   lib: bool = False) -> Path:
    """Write a program, scheduled for the target, as `path`.o, .so or .a and a header `path`.h.

    lib: the code's file name begins with lib, as -l looks for; that of an object never does.
    Symbols begin with `name` (None: the file's name), made an identifier: NAME_run, NAME_init and
    NAME_interface. Returns the path of the code; both files are written aside and renamed. Raises
    ArgumentError for another kind, BackendError where the code can't be made or linked.
    """
    if kind not in get_args(Kind):
        raise ArgumentError(f"no kind {kind!r} of export; there are {list(get_args(Kind))}")
    target = target or host()
    base = _without_suffix(file_path(path))
    symbol = identifier(base.name if name is None else name).rstrip("_")
    fields = fields_of(program, interface)
    module = emit_module(program, target, f"{symbol}_entry")
    description = describe(program, interface, symbol, target)
    add_constant(module, f"{symbol}_interface", description.encode() + b"\0", public=True)
    add_run(module, program, symbol, fields)
    add_init(module, symbol, fields, interface)
    generator = machine(target, reloc="pic", codemodel="default")
    code = generator.emit_object(optimized(str(module), generator))
    base.parent.mkdir(parents=True, exist_ok=True)
    libraries = LIBRARIES if called(program) else ()
    begin = "lib" if lib and kind != "object" and not base.name.startswith("lib") else ""
    written = base.with_name(begin + base.name + SUFFIXES[kind])
    with tempfile.TemporaryDirectory(prefix=".export-", dir=base.parent) as folder:
        aside = Path(folder)
        if kind == "shared":
            code = sealed(link(code, target, aside, written.name, libraries))
        elif kind == "static":
            code = archive(code, [f"{symbol}_{s}" for s in ("init", "interface", "run")], target)
        _replace(written, code, aside, mode=0o755 if kind == "shared" else 0o644)
        _replace(base.with_name(base.name + ".h"),
                 header(symbol, program, fields, target, arguments(written.name, libraries)
                        ).encode(), aside, mode=0o644)
    return written


def arguments(name: str, libraries: Sequence[str]) -> str:
    """What a C compiler in the folder of the code is told to link with it."""
    shared, static, named = (*map(name.endswith, (".so", ".a")), name.startswith("lib"))
    found = [name]
    if shared or (static and named):
        found = ["-L.", f"-l{Path(name).stem[3:]}" if named else f"-l:{name}"]
    return " ".join((*found, *(() if shared else libraries), "-lm"))


def _without_suffix(path: Path) -> Path:
    return path.with_suffix("") if path.suffix in SUFFIXES.values() else path


def _replace(path: Path, content: bytes, aside: Path, mode: int) -> None:
    # A process that has the old file mapped keeps it; writing into it would crash that process.
    fresh = aside / "fresh"
    fresh.write_bytes(content)
    fresh.chmod(mode)
    os.replace(fresh, path)


def describe(program: Program, interface: Interface, symbol: str, target: Target) -> str:
    """What rlx.load needs to know, as one line of ASCII."""
    features = {f[1:] for f in target.features.split(",") if f.startswith("+")} - UNUSED
    return json.dumps({
        "rlx_interface": FORMAT, "digest": NO_DIGEST, "symbol": symbol, **interface.fields(),
        "arena": program.arena, "scratch": program.scratch, "parallel": is_parallel(program),
        "flops": flops(program), "bytes_moved": bytes_moved(program),
        "kernels": len(program.kernels),
        "triple": target.triple, "cpu": target.cpu, "features": sorted(features),
    }, separators=(",", ":"))


def link(code: bytes, target: Target, folder: Path, name: str, libraries: Sequence[str] = ()
         ) -> bytes:
    """A shared library of one object and the libraries it calls, by the system's C compiler.

    Programs linked with it look for `name`, wherever it lay when they were.
    """
    if not same_system(target.triple, host().triple):
        raise BackendError(f"this system's linker does not make shared libraries for "
                           f"{target.triple}: export kind='object' and link it there")
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise BackendError(f"kind='shared' needs a C compiler to link with, and none of "
                           f"{', '.join(COMPILERS)} is on the PATH: export kind='object' instead")
    source, result = folder / "program.o", folder / "program.so"
    source.write_bytes(code)
    command = [compiler, "-shared", "-o", str(result), str(source), *libraries, "-lm"]
    if "linux" in target.triple:
        # Without the compiler's start files there is nothing to run when the library is opened.
        command[1:1] = ["-nostartfiles", "-Wl,-z,defs", "-Wl,--as-needed",
                        "-Xlinker", "-soname", "-Xlinker", name]
    environment = {k: v for k, v in os.environ.items() if k != "LD_RUN_PATH"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    except OSError as error:  # of processes or memory there are no more
        raise BackendError(f"{compiler} can't be run to link the library: {error}") from error
    if done.returncode or not result.exists():
        raise BackendError(f"{compiler} could not link the library: {done.stderr.strip()}")
    return result.read_bytes()


def sealed(library: bytes) -> bytes:
    """An ELF library with its own digest in its description, so that damage shows before it runs.

    Others (Mach-O) carry the linker's signature and may not be changed.
    """
    if not library.startswith(b"\x7fELF"):
        return library
    return with_digest(library, digest(library))


def digest(library: bytes) -> str:
    """SHA-256 of a library whose own digest is blank."""
    return hashlib.sha256(with_digest(library, NO_DIGEST)).hexdigest()


def with_digest(library: bytes, value: str) -> bytes:
    """The library with another digest in its description."""
    pattern = re.compile(re.escape(MARK) + rb'\d+,"digest":"([0-9a-f]{64})"')
    match = pattern.search(library)
    if match is None:
        return library
    return library[:match.start(1)] + value.encode() + library[match.end(1):]


def archive(code: bytes, symbols: list[str], target: Target) -> bytes:
    """A System V archive of one object, with the index that linkers look symbols up in."""
    if "apple" in target.triple or "windows" in target.triple:
        raise BackendError(f"archives for {target.triple} have another format: export "
                           f"kind='object' and use its ar")
    names = b"".join(s.encode() + b"\0" for s in symbols)
    size = 4 + 4 * len(symbols) + len(names)
    names += b"\0" * (size % 2)
    place = (8 + 60 + size + size % 2).to_bytes(4, "big")
    index = len(symbols).to_bytes(4, "big") + place * len(symbols) + names
    return (b"!<arch>\n" + _member("/", len(index)) + index
            + _member("program.o/", len(code)) + code + b"\n" * (len(code) % 2))


def _member(name: str, size: int) -> bytes:
    """Name, date, owner, group, mode and size in fixed columns."""
    return f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{size:<10}`\n".encode()
