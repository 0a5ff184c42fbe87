"""C programs around exported steps, for tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from rlx_py.backends.llvm.aot import Kind
from rlx_py.backends.llvm.backend import program_for
from rlx_py.backends.llvm.header import C_TYPES, Field, fields_of
from rlx_py.backends.llvm.native import Array
from rlx_py.backends.llvm.targets import host
from rlx_py.executable import Executable

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_cc = pytest.mark.skipif(CC is None, reason="there is no C compiler")
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")

MAIN = """\
#include <stdio.h>
#include <string.h>
#include "{name}.h"
{arrays}
static unsigned char memory[{NAME}_ARENA_BYTES(1) + {NAME}_ALIGNMENT];

static int get(void *array, size_t bytes) {{ return fread(array, 1, bytes, stdin) == bytes; }}
static int put(void *array, size_t bytes) {{ return fwrite(array, 1, bytes, stdout) == bytes; }}

int main(void) {{
    {name}_step step;
    int32_t status;
    int n;
    (void)get, (void)put;
    memset(&step, 0, sizeof step);
    {pointers}
    step.arena = memory + (-(uintptr_t)memory & ({NAME}_ALIGNMENT - 1));
    status = {name}_init(&step);
    if (status != {NAME}_OK) return 10 + (int)status;
    {read_params}
    for (n = 0; n < {steps}; n++) {{
        {read_inputs}
        status = {name}_run(&step);
        if (status != {NAME}_OK) return 20 + (int)status;
        {write}
    }}
    return 0;
}}
"""


def fields(exe: Executable) -> tuple[Field, ...]:
    """The struct's arrays."""
    return fields_of(program_for(exe.graph, host()), exe.interface)


def driver(exe: Executable, name: str, steps: int) -> str:
    """A program that reads params, then inputs a step, and writes all that a step may write."""
    all_ = fields(exe)

    def lines(text: str, kinds: tuple[str, ...], indent: int) -> str:
        return ("\n" + " " * indent).join(
            text.format(f=f.identifier, NAME=name.upper(), bytes=f.type.nbytes)
            for f in all_ if f.kind in kinds and f.type.size)

    every = ("input", "param", "state", "output")
    return MAIN.format(
        name=name, NAME=name.upper(), steps=steps,
        arrays="\n".join(
            f"static {C_TYPES[f.type.dtype.name]} a_{f.identifier}[{name.upper()}_SIZE_"
            f"{f.identifier}];" for f in all_ if f.type.size),
        pointers=lines("step.{f} = a_{f};", every, 4),
        read_params=lines("if (!get(a_{f}, sizeof a_{f})) return 2;", ("param",), 4),
        read_inputs=lines("if (!get(a_{f}, sizeof a_{f})) return 3;", ("input",), 8),
        write=lines("if (!put(a_{f}, sizeof a_{f})) return 4;", ("param", "state", "output"), 8),
    )


def build(exe: Executable, folder: Path, name: str, kind: Kind, main: str) -> Path:
    """An executable of a C program and an exported step."""
    assert CC is not None
    code = exe.export(folder / name, kind, name=name)
    (folder / "main.c").write_text(main)
    program = folder / "main"
    sources = [str(folder / "main.c"), str(code)]
    command = [CC, *STRICT, "-I", str(folder), "-o", str(program), *sources]
    if kind == "shared":
        command.append(f"-Wl,-rpath,{folder}")
    subprocess.run([*command, "-lm"], check=True)
    return program


def run_c(exe: Executable, folder: Path, params: dict[str, Array],
          inputs: list[dict[str, Array]], kind: Kind = "object") -> list[dict[str, Array]]:
    """What the C program writes after each step: outputs under "out", params and states by name."""
    program = build(exe, folder, "net", kind, driver(exe, "net", len(inputs)))
    data = b"".join(params[k].tobytes() for k in exe.interface.params)
    data += b"".join(x[k].tobytes() for x in inputs for k in exe.interface.inputs)
    done = subprocess.run([program], input=data, stdout=subprocess.PIPE, check=True)
    found, place = [], 0
    for _ in inputs:
        values = {}
        for f in fields(exe):
            if f.kind != "input":
                end = place + f.type.nbytes
                flat = np.frombuffer(done.stdout[place:end], f.type.dtype.numpy)
                values[f"{f.kind} {f.name}"] = flat.reshape(f.type.shape)
                place = end
        found.append(values)
    assert place == len(done.stdout)
    return found
