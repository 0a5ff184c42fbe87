"""Exports for other machines: what they call, how they pass floats, and how programs find them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import get_args

import llvmlite.binding as llvm
import pytest

from rlx_py.backends.llvm import aot
from rlx_py.backends.llvm.targets import chosen, host, machine
from rlx_py.compiling import compile
from rlx_py.ir.base.errors import BackendError
from support.native import CC, needs_cc
from tests.backends.test_export import Make, each_graph, no_inputs, training


@each_graph
@pytest.mark.parametrize(("triple", "cpu"), [
    ("x86_64-linux-gnu", "x86-64-v2"), ("armv7-linux-gnueabihf", ""), ("thumbv7em-none-eabi", "")])
def test_products_and_sums_round_each_where_nothing_does_both(
        make: Make, triple: str, cpu: str, tmp_path: Path) -> None:
    exe = compile(make()[0])
    path = exe.export(tmp_path / "step", "object", target=triple, cpu=cpu)
    assert not re.search(rb"\0fmaf?\0", path.read_bytes()), "a call for every multiply-add"
    assert "no fused multiply-add" in path.with_suffix(".h").read_text()
    exe.export(path, "object", target="x86_64-linux-gnu", cpu="x86-64-v3")
    assert "no fused multiply-add" not in path.with_suffix(".h").read_text()


@pytest.mark.parametrize(("triple", "hard"), [
    ("thumbv7em-none-eabihf", True), ("armv7-linux-gnueabihf", True), ("arm-linux-gnueabihf", True),
    ("armv7-unknown-linux-gnueabihf", True), ("thumbv8m.main-none-eabihf", True),
    ("thumbv7em-none-eabi", False), ("armv7-linux-gnueabi", False)])
def test_hard_float_triples_pass_floats_in_registers(
        triple: str, hard: bool, tmp_path: Path) -> None:
    path = compile(training()[0]).export(tmp_path / "step", "object", target=triple)
    attributes = path.read_bytes().split(b"aeabi\0")[1]
    assert (b"\x1c\x01" in attributes[:80]) is hard  # Tag_ABI_VFP_args
    target = chosen(triple)
    source = f"""
        target triple = "{target.triple}"
        declare float @sinf(float)
        define float @f(float %x, float %y) {{
            %z = fadd float %x, %y
            %s = call float @sinf(float %z)
            ret float %s
        }}"""
    text = machine(target).emit_assembly(llvm.parse_assembly(source))
    assert ("vadd.f32\ts0, s0, s1" in text) is hard
    assert not (hard and "__aeabi_fadd" in text)


def test_hard_float_needs_a_float_unit(tmp_path: Path) -> None:
    for triple, cpu in (("thumbv7em-none-eabihf", "cortex-m3"), ("thumbv6m-none-eabihf", "")):
        with pytest.raises(BackendError, match="name a CPU with a float unit"):
            compile(no_inputs()[0]).export(tmp_path / "x", "object", target=triple, cpu=cpu)


@needs_cc
@pytest.mark.skipif(not host().triple.endswith("linux-gnu"), reason="how this loader finds files")
@pytest.mark.parametrize("lib", [False, True])
def test_a_shared_library_is_found_by_its_name(lib: bool, tmp_path: Path) -> None:
    code = compile(training()[0]).export(tmp_path / "step", lib=lib)
    assert code.name == ("libstep.so" if lib else "step.so")
    (tmp_path / "main.c").write_text('#include "step.h"\nint main(void) { step_step s = {0};'
                                     " return step_run(&s) == STEP_OK; }\n")
    found = re.search(r"Link with: cc (.*)", (tmp_path / "step.h").read_text())
    assert CC is not None and found is not None
    assert ("-lstep" if lib else "-l:step.so") in found[1]
    there = tmp_path / "there"
    for name, line in (("by_path", f"main.c {code} -lm"), ("by_line", found[1])):
        subprocess.run([CC, *line.split(), "-o", name], cwd=tmp_path, check=True)
    there.mkdir()
    code.rename(there / code.name)
    for name in ("by_path", "by_line"):
        subprocess.run([tmp_path / name], check=True, env={"LD_LIBRARY_PATH": str(there)})


@needs_cc
def test_the_link_line_of_every_kind_links(tmp_path: Path) -> None:
    exe = compile(training()[0])
    (tmp_path / "main.c").write_text('#include "step.h"\nint main(void) { return !step_run; }\n')
    for kind in get_args(aot.Kind):
        for lib in (False, True):
            code = exe.export(tmp_path / "step", kind, lib=lib)
            found = re.search(r"Link with: cc (.*)", (tmp_path / "step.h").read_text())
            assert CC is not None and found is not None
            subprocess.run([CC, *found[1].split(), "-o", "main"], cwd=tmp_path, check=True)
            code.unlink()
