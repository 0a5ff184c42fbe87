"""Exported shared libraries, opened again: everything is checked before any of their code runs."""

from __future__ import annotations

import ctypes
import json
import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rlx_py.backends.base import Array, Cost
from rlx_py.backends.llvm.aot import FORMAT, MARK, SUFFIXES, digest
from rlx_py.backends.llvm.native import NativeStep
from rlx_py.backends.llvm.parallel import parallel_for, team_size
from rlx_py.backends.llvm.targets import host, same_system
from rlx_py.ir.base.errors import ArgumentError, BackendError, FormatError
from rlx_py.ir.base.paths import file_path
from rlx_py.ir.graph.interface import Interface, from_fields

LEVEL_2 = frozenset(("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"))
LEVEL_3 = LEVEL_2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}
LEVEL_4 = LEVEL_3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
LEVELS = {"": frozenset[str](), "generic": frozenset[str](), "x86-64": frozenset[str](),
          "x86-64-v2": LEVEL_2, "x86-64-v3": LEVEL_3, "x86-64-v4": LEVEL_4}


@dataclass(frozen=True)
class Description:
    """What a library says of itself."""

    symbol: str
    interface: Interface
    arena: int
    scratch: int
    parallel: bool
    flops: int
    bytes_moved: int
    kernels: int
    triple: str
    cpu: str
    features: frozenset[str]


class LibraryRunner:
    """The step of a library."""

    def __init__(self, description: Description, step: NativeStep) -> None:
        self.description, self.run = description, step.run
        self._arena_bytes = step.arena_bytes

    def cost(self) -> Cost:
        """Counted when it was exported."""
        d = self.description
        return Cost(d.flops, d.bytes_moved, self._arena_bytes, d.kernels)


def open_library(path: str | Path, *, threads: int | None = None
                 ) -> tuple[Interface, LibraryRunner]:
    """The interface and the step of an exported shared library, `path` or `path`.so.

    Raises ArgumentError (no such file), FormatError (no such library, or a damaged one),
    BackendError (one for another machine).
    """
    file = _find(file_path(path))
    content = file.read_bytes()
    found = _description(file, content)
    _check_machine(file, found)
    library = _opened(file, content)
    run, init = (_address(file, library, f"{found.symbol}_{name}") for name in ("run", "init"))
    team = team_size(threads) if found.parallel else 1
    interface = replace(found.interface, defaults=_defaults(file, found, init))
    step = NativeStep(
        interface.name, run, interface.leaves, interface.changed,
        list(interface.outputs.items()), found.arena + team * found.scratch, parallel_for(team),
        team, library)
    return interface, LibraryRunner(found, step)


def _find(path: Path) -> Path:
    for candidate in (path, path.with_name(path.name + SUFFIXES["shared"])):
        if candidate.is_file():
            return candidate
    raise ArgumentError(f"there is no library {str(path)!r}")


def _description(file: Path, content: bytes) -> Description:
    marks = content.count(MARK)
    if content.startswith(b"!<arch>\n") or (
            content.startswith(b"\x7fELF") and content[16:18] in (b"\x01\0", b"\0\x01")):
        raise FormatError(f"{file} is to be linked into a program; load takes kind='shared'")
    if marks != 1:
        raise FormatError(f"{file} is no library of one exported graph, it describes {marks}")
    start = content.index(MARK)
    text = content[start : content.find(b"\0", start)]
    try:
        fields = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{file} is damaged: {error}") from error
    if fields.get("rlx_interface") != FORMAT:
        raise FormatError(f"{file} has format {fields.get('rlx_interface')!r}, not {FORMAT}")
    if content.startswith(b"\x7fELF") and fields.get("digest") != digest(content):
        raise FormatError(f"{file} is damaged, or was changed after it was exported")
    return _parsed(file, fields)


def _parsed(file: Path, fields: dict[str, Any]) -> Description:
    try:
        interface = from_fields(fields)
        symbol, triple, cpu = (_text(fields[k]) for k in ("symbol", "triple", "cpu"))
        arena, scratch, flops, moved, kernels = (
            _count(fields[k]) for k in ("arena", "scratch", "flops", "bytes_moved", "kernels"))
        features = frozenset(map(_text, fields["features"]))
        parallel = bool(fields["parallel"])
    except (FormatError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{file} has a description that does not parse: {error}") from error
    return Description(symbol, interface, arena, scratch, parallel, flops, moved, kernels, triple,
                       cpu, features)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[\w.+-]*", value, re.ASCII):
        raise ValueError(f"not a name: {value!r}")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**62:
        raise ValueError(f"not a count: {value!r}")
    return value


def _check_machine(file: Path, found: Description) -> None:
    here = host()
    if not same_system(found.triple, here.triple):
        raise BackendError(f"{file} is for {found.triple}; this process is {here.triple}")
    present = {f[1:] for f in here.features.split(",") if f.startswith("+")}
    needed = found.features | LEVELS.get(found.cpu, frozenset())
    if not needed <= present:
        raise BackendError(f"{file} needs a CPU with {', '.join(sorted(needed - present))}")
    if found.cpu not in LEVELS and found.cpu != here.cpu and not found.features & LEVEL_2:
        raise BackendError(f"{file} is for a CPU {found.cpu}, this one is {here.cpu}")


def _opened(file: Path, content: bytes) -> ctypes.CDLL:
    # The dynamic loader takes a path it has seen for the library it had then: open a fresh copy.
    with tempfile.TemporaryDirectory(prefix="rlx-") as folder:
        copy = Path(folder) / file.name
        copy.write_bytes(content)
        try:
            return ctypes.CDLL(str(copy))
        except OSError as error:
            raise BackendError(f"{file} does not open: {error}") from error


def _address(file: Path, library: ctypes.CDLL, name: str) -> int:
    try:
        function = getattr(library, name)
    except AttributeError as error:
        raise FormatError(f"{file} has no function {name}") from error
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _defaults(file: Path, found: Description, init: int) -> dict[str, Array]:
    """Initial values of states, written by the library itself."""
    interface = found.interface
    arrays = {k: np.empty(t.shape, t.dtype.numpy) for k, t in interface.states.items()}
    slots = (ctypes.c_uint64 * (len(interface.leaves) + len(interface.outputs) + 3))()
    for n, name in enumerate(interface.leaves):
        if name in arrays:
            slots[n] = arrays[name].ctypes.data
    status = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(init)(ctypes.addressof(slots))
    if status:
        raise FormatError(f"{file} gives no initial values: {status}")
    return arrays
