"""Exported code: C programs and loaded libraries do what the compiled graph does, to the bit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_py.ir.ops.numpy.arrays as a
import rlx_py.ir.ops.numpy.pointwise as p
from rlx_py import optim
from rlx_py.backends.llvm import aot
from rlx_py.backends.llvm.header import identifier
from rlx_py.backends.llvm.native import Array
from rlx_py.backends.llvm.targets import host
from rlx_py.compiling import compile
from rlx_py.executable import CompiledFunction
from rlx_py.io import load
from rlx_py.ir.base.errors import ArgumentError, BackendError, FormatError
from rlx_py.ir.base.types import DTYPES, bool_, i32
from rlx_py.ir.graph.graph import Graph
from rlx_py.ir.ops.making.constant import constant
from rlx_py.passes.train import train_step
from support.native import CC, STRICT, build, fields, needs_cc, run_c

Case = tuple[Graph, dict[str, Any], list[dict[str, Any]]]  # params, and inputs of each step
Make = Callable[[], Case]

RNG = np.random.default_rng(5)
# What a step may call: memory functions, and libm where a target lacks the instruction.
ALLOWED = re.compile(r"(memcpy|memmove|memset|memcmp|(floor|ceil|trunc|rint|round|roundeven|"
                     r"nearbyint|fmod|fmin|fmax|fminimum|fmaximum)f?)(@.*)?")
STEPS = 4


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def training() -> Case:
    """A step of AdamW with clipping: products, reductions, states, a constant."""
    g = Graph("net")
    x, y = g.input("x", (9, 6)), g.input("y", (9, 3))
    w, v, b = g.param("w", (6, 17)), g.param("v", (17, 3)), g.param("b", (17,))
    table = constant(np.linspace(-1, 1, 27, dtype=np.float32).reshape(9, 3))
    hidden = p.tanh(p.add(x @ w, b))
    g.output("loss", a.mean(p.square(p.subtract(p.add(hidden @ v, table), y))))
    step = train_step(g, "loss", optim.adamw(1e-2), clip_norm=1.0)
    params = {"w": normal(6, 17), "v": normal(17, 3), "b": normal(17)}
    return step, params, [{"x": normal(9, 6), "y": normal(9, 3)} for _ in range(STEPS)]


def every_type() -> Case:
    """Each element type as input, state and output; states of one value, of several, of zeros."""
    g = Graph("types")
    inputs = {}
    for name, dtype in DTYPES.items():
        x = g.input(f"x_{name}", (5,), dtype)
        first = np.asarray([0, 1, 1, 0, 1]).astype(dtype.numpy)
        for kind, init in (("many", first), ("one", first[1]), ("zero", 0)):
            s = g.state(f"{kind}_{name}", (5,), dtype, init=init)
            g.next(s.attrs["name"], p.logical_xor(s, x) if dtype is bool_ else p.add(s, x))
            g.output(f"{kind}_{name}_out", s)
        inputs[x.attrs["name"]] = np.asarray([1, 2, 0, 1, 3]).astype(dtype.numpy)
    return g, {}, [inputs] * STEPS


def odd_names() -> Case:
    """Names that C does not take, that are equal once they are sanitised, or that C has taken."""
    g = Graph('a "name"\n*/ int x; /* ??/ \\')
    names = ["0.weight", "v0_weight", "layer.0", "layer_0", "layer 0", "int", "int_", "class",
             "arena", "threads", "NULL", "*/", "/* ??/", "\\", "é", "日本", "__x__", "_", "errno",
             "INT32_MAX", "linux", "step", "net_run", "\n", '"']
    total = None
    for name in names:
        x = g.input(name, (2,))
        total = x if total is None else p.add(p.multiply(total, constant(np.float32(1.5))), x)
    assert total is not None
    g.output("int", total)
    g.output("out_int", p.negative(total))
    g.output("sum", a.sum(total))
    return g, {}, [{n: normal(2) for n in names}] * 2


def empty() -> Case:
    """Arrays without elements, and scalars."""
    g = Graph("empty")
    x, s = g.input("x", (0, 3)), g.input("s", ())
    w, m = g.param("w", (3, 0)), g.state("m", (0,), init=1.0)
    g.next("m", p.negative(m))
    g.output("product", p.add(w @ x, s))
    g.output("nothing", p.negative(x))
    g.output("twice", p.add(s, s))
    return g, {"w": normal(3, 0)}, [{"x": normal(0, 3), "s": normal()} for _ in range(2)]


def no_inputs() -> Case:
    """A counter."""
    g = Graph("counter")
    n = g.state("n", (), i32, init=7)
    g.next("n", p.add(n, constant(np.int32(3))))
    return g, {}, [{}] * STEPS


GRAPHS = {f.__name__: f for f in (training, every_type, odd_names, empty, no_inputs)}
each_graph = pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS)


def stepped(fn: CompiledFunction, params: dict[str, Any],
            inputs: list[dict[str, Any]]) -> list[dict[str, Array]]:
    """What Python sees after each step, named as `run_c` does."""
    state = fn.init(params)
    found = []
    for x in inputs:
        out = (fn.step(state, **x) if fn.interface.changed
               else fn(**state.params, **{**state.states, **x}))
        found.append({**{f"param {k}": v.copy() for k, v in state.params.items()},
                      **{f"state {k}": v.copy() for k, v in state.states.items()},
                      **{f"output {k}": v for k, v in out.items()}})
    return found


def assert_same(got: list[dict[str, Array]], want: list[dict[str, Array]]) -> None:
    assert len(got) == len(want)
    for n, (x, y) in enumerate(zip(got, want, strict=True)):
        assert x.keys() == y.keys()
        for name in x:
            assert x[name].dtype == y[name].dtype and x[name].shape == y[name].shape
            assert x[name].tobytes() == y[name].tobytes(), f"{name} differs in step {n}"


@needs_cc
@pytest.mark.parametrize(("make", "kind"), [
    (training, "static"), (training, "shared"), *((make, "object") for make in GRAPHS.values())])
def test_c_program_has_the_bits_of_python(
        make: Make, kind: aot.Kind, tmp_path: Path) -> None:
    graph, params, inputs = make()
    exe = compile(graph, threads=1)
    assert_same(run_c(exe, tmp_path, params, inputs, kind), stepped(exe, params, inputs))


@needs_cc
@each_graph
def test_loaded_library_has_the_bits_of_the_compiled_graph(
        make: Make, tmp_path: Path) -> None:
    graph, params, inputs = make()
    exe = compile(graph)
    path = exe.export(tmp_path / "build" / "step")
    assert path == tmp_path / "build" / "step.so"
    loaded = load(tmp_path / "build" / "step")
    assert loaded.interface == exe.interface
    assert loaded.cost() == exe.cost()
    for name, value in exe.interface.defaults.items():
        assert loaded.interface.defaults[name].tobytes() == value.tobytes()
    assert_same(stepped(loaded, params, inputs), stepped(exe, params, inputs))
    called = loaded(**params, **inputs[0], discard_updates=True)
    for name, value in exe(**params, **inputs[0], discard_updates=True).items():
        assert called[name].tobytes() == value.tobytes()


@needs_cc
def test_parallel_loops_run_on_threads_with_the_same_bits(tmp_path: Path) -> None:
    exe = compile(large())
    exe.export(tmp_path / "step")
    x = normal(300, 900)
    want = compile(large(), threads=1)(x=x)
    for threads in (1, 2, 3):
        loaded = load(tmp_path / "step", threads=threads)
        got = loaded(x=x)
        assert all(got[k].tobytes() == want[k].tobytes() for k in want)
    assert loaded._runner.description.parallel  # type: ignore[attr-defined]


def large() -> Graph:
    """Work enough for threads."""
    g = Graph("large")
    x = g.input("x", (300, 900))
    g.output("y", p.tanh(p.exp(p.multiply(x, x))))
    g.output("s", a.sum(p.sin(x), axis=1))
    return g


THREADS_MAIN = """\
#include <stdio.h>
#include <stdlib.h>
#include "net.h"
static float x[NET_SIZE_x], y[NET_SIZE_y], s[NET_SIZE_s];
static int calls;
/* Two workers, from the last block to the first. */
static void backwards(net_body *body, void *context, int64_t blocks) {
    int64_t n;
    calls++;
    for (n = blocks; n-- > 0;) body(context, n, n + 1, (int32_t)(n % 2));
}
int main(void) {
    net_step step = {0};
    unsigned char *memory = malloc(NET_ARENA_BYTES(2) + NET_ALIGNMENT);
    step.x = x, step.y = y, step.s = s;
    step.arena = memory + (-(uintptr_t)memory & (NET_ALIGNMENT - 1));
    step.parallel_for = backwards;
    step.threads = 2;
    if (fread(x, sizeof x, 1, stdin) != 1 || net_run(&step) != NET_OK || !calls) return 1;
    return fwrite(y, sizeof y, 1, stdout) != 1 || fwrite(s, sizeof s, 1, stdout) != 1;
}
"""


@needs_cc
def test_any_parallel_for_gives_the_same_bits(tmp_path: Path) -> None:
    exe = compile(large(), threads=1)
    program = build(exe, tmp_path, "net", "object", THREADS_MAIN)
    x = normal(300, 900)
    out = exe(x=x)
    done = subprocess.run([program], input=x.tobytes(), stdout=subprocess.PIPE, check=True)
    assert done.stdout == out.y.tobytes() + out.s.tobytes()


CODES_MAIN = """\
#include <stdio.h>
#include "net.h"
static void never(net_body *body, void *context, int64_t blocks) {
    (void)body, (void)context, (void)blocks;
}
int main(void) {
    static float x[NET_SIZE_x + 1], m[NET_SIZE_m], y[NET_SIZE_y], s[NET_SIZE_s];
    static unsigned char memory[NET_ARENA_BYTES(1) + 2 * NET_ALIGNMENT];
    net_step step = {0}, good;
    step.x = x, step.m = m, step.y = y, step.s = s;
    step.arena = memory + (-(uintptr_t)memory & (NET_ALIGNMENT - 1));
    good = step;
    if (net_run(NULL) != NET_NULL_STEP || net_init(NULL) != NET_NULL_STEP) return 1;
    step.y = NULL;
    if (net_run(&step) != NET_NULL_ARRAY || net_init(&step) != NET_OK || m[0] != 0.5f) return 2;
    step = good, step.x = (const float *)((const char *)x + 2);
    if (net_run(&step) != NET_MISALIGNED_ARRAY) return 3;
    step = good, step.m = NULL;
    if (net_run(&step) != NET_NULL_ARRAY || net_init(&step) != NET_NULL_ARRAY) return 4;
    step = good, step.m = (float *)((char *)m + 1);
    if (net_init(&step) != NET_MISALIGNED_ARRAY) return 5;
    step = good, step.arena = NULL;
    if (net_run(&step) != NET_BAD_ARENA) return 6;
    step = good, step.arena = (char *)good.arena + 8;
    if (net_run(&step) != NET_BAD_ARENA) return 7;
    step = good, step.parallel_for = never;
    if (net_run(&step) != NET_BAD_THREADS) return 8;
    step.threads = -1;
    if (net_run(&step) != NET_BAD_THREADS || m[0] != 0.5f || y[0] != 0.0f) return 9;
    return net_run(&good) != NET_OK || m[0] != 1.0f;
}
"""


@needs_cc
def test_wrong_arguments_are_refused_by_code(tmp_path: Path) -> None:
    g = Graph("net")
    x, m = g.input("x", (8, 8)), g.state("m", (4,), init=0.5)
    g.next("m", p.add(m, m))
    shifted = p.add(x @ x, constant(np.float32(1)))
    g.output("y", p.divide(shifted, a.sum(shifted)))
    g.output("s", a.sum(shifted @ shifted))
    exe = compile(g)
    assert exe.cost().arena_bytes > 0
    subprocess.run([build(exe, tmp_path, "net", "object", CODES_MAIN)], check=True)


@needs_cc
@each_graph
def test_header_compiles_as_c_and_c_plus_plus(
        make: Make, tmp_path: Path) -> None:
    compile(make()[0]).export(tmp_path / "step", "object")
    for name, flags in (("twice.c", STRICT), ("twice.cc", ("-Wall", "-Wextra", "-Werror"))):
        (tmp_path / name).write_text('#include "step.h"\n#include "step.h"\n'
                                     "int use(step_step *s) { return step_run(s); }\n")
        assert CC is not None
        compiler = CC if name.endswith(".c") else shutil.which("c++")
        if compiler is not None:
            subprocess.run([compiler, *flags, "-fsyntax-only", str(tmp_path / name)], check=True)


def undefined(path: Path) -> list[str]:
    """Symbols that a file needs."""
    listed = subprocess.run(["nm", "-u", "-P", str(path)], stdout=subprocess.PIPE, text=True,
                            check=True)
    return [line.split()[0] for line in listed.stdout.splitlines()]


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm")
@each_graph
@pytest.mark.parametrize("cpu", ["", "x86-64"])
def test_code_needs_only_memory_functions_and_libm(
        make: Make, cpu: str, tmp_path: Path) -> None:
    if cpu and not host().triple.startswith("x86_64"):
        pytest.skip("another architecture")
    exe = compile(make()[0])
    kinds: list[aot.Kind] = ["object", "shared"] if CC and not cpu else ["object"]
    for kind in kinds:
        path = exe.export(tmp_path / "step", kind, cpu=cpu)
        foreign = [s for s in undefined(path) if not ALLOWED.fullmatch(s)]
        assert not foreign
        if kind == "shared":
            listed = subprocess.run(["nm", "-D", "--defined-only", "-P", str(path)],
                                    capture_output=True, text=True, check=True).stdout
            assert {line.split()[0] for line in listed.splitlines()} == {
                "step_init", "step_run", "step_interface"}


@needs_cc
@pytest.mark.skipif(shutil.which("readelf") is None, reason="there is no readelf")
def test_library_runs_nothing_when_opened_and_has_no_search_path(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_RUN_PATH", "/somewhere")
    path = compile(training()[0]).export(tmp_path / "step")
    dynamic = subprocess.run(["readelf", "-dlW", str(path)], capture_output=True, text=True,
                             check=True).stdout
    assert not re.search(r"INIT|FINI|PATH|TEXTREL|ctors", dynamic)
    assert set(re.findall(r"NEEDED.*\[(.*)\]", dynamic)) <= {"libm.so.6", "libc.so.6"}
    assert re.search(r"GNU_STACK.* RW ", dynamic)


MAKE_AGAIN = """\
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from typing import Any
from tests.backends.test_export import training, compile
for kind in ("object", "static", {shared}):
    compile(training()[0]).export(Path({folder!r}) / "step", kind)
"""


def test_equal_graphs_give_equal_bytes_in_any_process(tmp_path: Path) -> None:
    kinds: list[aot.Kind] = ["object", "static"]
    if CC:
        kinds.append("shared")
    compile(every_type()[0])  # other work before shows no trace
    first = {k: compile(training()[0]).export(tmp_path / "one" / "step", k).read_bytes()
             for k in kinds}
    source = MAKE_AGAIN.format(paths=[str(Path(__file__).parents[i]) for i in (1, 2)],
                               folder=str(tmp_path / "two"),
                               shared=repr("shared" if CC else "object"))
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    subprocess.run([sys.executable, "-c", source], check=True, env=environment)
    for kind in kinds:
        assert (tmp_path / "two" / f"step{aot.SUFFIXES[kind]}").read_bytes() == first[kind]
    assert (tmp_path / "one" / "step.h").read_text() == (tmp_path / "two" / "step.h").read_text()


def test_objects_for_other_machines(tmp_path: Path) -> None:
    exe = compile(training()[0])
    for triple in ("aarch64-linux-gnu", "wasm32", "thumbv7em-none-eabihf", "riscv64-linux-gnu"):
        path = exe.export(tmp_path / triple, "object", target=triple)
        assert path == tmp_path / f"{triple}.o" and path.stat().st_size > 500
    static = exe.export(tmp_path / "arm", "static", target="aarch64-linux-gnu")
    assert static.read_bytes().startswith(b"!<arch>\n")
    with pytest.raises(BackendError, match="linker does not make shared libraries for aarch64"):
        exe.export(tmp_path / "x", "shared", target="aarch64-linux-gnu")
    # LLVM knows some of these, and would end the process.
    for triple in ("pdp11", "avr", "nvptx64-nvidia-cuda", "spirv64", "", "s390x-linux-gnu"):
        with pytest.raises(BackendError, match=f"no code can be made for '{triple}'"):
            exe.export(tmp_path / "x", "object", target=triple)
    with pytest.raises(BackendError, match="hal9000"):
        exe.export(tmp_path / "x", "object", cpu="hal9000")
    with pytest.raises(BackendError, match="archives for"):
        exe.export(tmp_path / "x", "static", target="aarch64-apple-darwin")
    assert not list(tmp_path.glob("x*"))


def test_without_a_compiler_only_linking_is_refused(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exe = compile(no_inputs()[0])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match="needs a C compiler"):
        exe.export(tmp_path / "step")
    assert not list(tmp_path.iterdir())
    exe.export(tmp_path / "step", "object")
    exe.export(tmp_path / "step", "static")
    assert {f.name for f in tmp_path.iterdir()} == {"step.o", "step.a", "step.h"}


def test_kind_and_path_are_checked(tmp_path: Path) -> None:
    exe = compile(no_inputs()[0])
    with pytest.raises(ArgumentError, match="no kind 'dll'"):
        exe.export(tmp_path / "step", "dll")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="no path of a file"):
        exe.export("", "object")
    assert exe.export(tmp_path / "v1.2", "object").name == "v1.2.o"
    assert "v1_2_run" in (tmp_path / "v1.2.h").read_text()
    exe.export(tmp_path / "v1.2.o", "object", name="7 things")
    assert "v7_things_run" in (tmp_path / "v1.2.h").read_text()


def test_identifiers_are_c_and_distinct() -> None:
    names = [f.identifier for f in fields(compile(odd_names()[0]))]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", n) for n in names)
    assert identifier("x") == "x" and identifier("layer.0.weight") == "layer_0_weight"
    assert identifier("0") == "v0" and identifier("int") == "int_" and identifier("…") == "v"
    assert "const float *v0_weight;" not in names


# ---- loading what is no library, or a damaged one ----------------------------------------------


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bytes]:
    if CC is None:
        pytest.skip("there is no C compiler")
    exe = compile(training()[0], threads=1)
    yield exe.export(tmp_path_factory.mktemp("library") / "step").read_bytes()


def refused(path: Path, content: bytes, match: str | None = None) -> None:
    path.write_bytes(content)
    with pytest.raises(FormatError, match=match):
        load(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    for content in (b"", b"\x7fELF", b"{}", b"\0" * 5000, bytes(range(256)) * 40):
        refused(tmp_path / "x.so", content, "no library of one exported graph")
    libm = next(iter(Path("/").glob("lib*/x86_64-linux-gnu/libm.so.6")), None)
    if libm is not None:
        refused(tmp_path / "x.so", libm.read_bytes(), "no library of one exported graph")
    with pytest.raises(ArgumentError, match="no library"):
        load(tmp_path / "absent")
    with pytest.raises(ArgumentError, match="no library"):
        load(tmp_path)


def test_objects_and_archives_are_refused(tmp_path: Path) -> None:
    exe = compile(no_inputs()[0])
    kinds: tuple[aot.Kind, ...] = ("object", "static")
    for kind in kinds:
        path = exe.export(tmp_path / "step", kind)
        with pytest.raises(FormatError, match="linked into a program"):
            load(path)


def test_any_damage_is_refused(library: bytes, tmp_path: Path) -> None:
    for size in (*range(0, len(library), 97), len(library) - 1):
        refused(tmp_path / "x.so", library[:size])
    places = np.random.default_rng(0).integers(0, len(library), 200)
    for place in places:
        changed = bytearray(library)
        changed[place] ^= 1 << int(place % 8)
        refused(tmp_path / "x.so", bytes(changed))
    refused(tmp_path / "x.so", library + b"\0", "damaged")
    refused(tmp_path / "x.so", library + library, "describes 2")


def resealed(library: bytes, **changes: object) -> bytes:
    """The library with another description of the same length, and the digest of that."""
    start = library.index(aot.MARK)
    end = library.index(b"\0", start)
    fields = {**json.loads(library[start:end]), "cpu": "", **changes}
    text = json.dumps(fields, separators=(",", ":")).encode()
    assert len(text) <= end - start
    changed = library[:start] + text.ljust(end - start) + library[end:]
    return aot.with_digest(changed, aot.digest(changed))


@pytest.mark.parametrize(("changes", "match"), [
    ({"rlx_interface": 9}, "format 9"),
    ({"symbol": "gone"}, "no function gone_run"),
    ({"symbol": 1}, "not a name"),
    ({"inputs": [["x", "f32", [9, -6]]]}, "negative"),
    ({"inputs": [["x", "f99", [9]]]}, "no element type"),
    ({"inputs": [["x", "f32", [2**40, 2**40]]]}, "beyond 64-bit"),
    ({"inputs": [["w", "f32", [9, 6]]]}, "contradicts"),
    ({"inputs": [["x"]]}, "no description"),
    ({"inputs": 3}, "no description"),
    ({"changed": ["zz"]}, "contradicts"),
    ({"name": None}, "contradicts"),
    ({"arena": -1}, "not a count"),
    ({"arena": "1"}, "not a count"),
])
def test_descriptions_are_checked(
        library: bytes, tmp_path: Path, changes: dict[str, object], match: str) -> None:
    refused(tmp_path / "x.so", resealed(library, **changes), match)


@pytest.mark.parametrize(("changes", "match"), [
    ({"triple": "aarch64-linux-gnu"}, "is for aarch64-linux-gnu"),
    ({"features": ["hovers"]}, "needs a CPU with hovers"),
    ({"features": [], "cpu": "hal9000"}, "for a CPU hal9000"),
])
def test_code_for_other_machines_is_refused(
        library: bytes, tmp_path: Path, changes: dict[str, object], match: str) -> None:
    (tmp_path / "x.so").write_bytes(resealed(library, **changes))
    with pytest.raises(BackendError, match=match):
        load(tmp_path / "x")


def test_loaded_function_checks_as_the_compiled_one(library: bytes, tmp_path: Path) -> None:
    (tmp_path / "step.so").write_bytes(library)
    fn = load(tmp_path / "step.so")
    _, params, inputs = training()
    state = fn.init(params)
    with pytest.raises(ArgumentError, match="'y' is missing"):
        fn.step(state, x=inputs[0]["x"])
    with pytest.raises(ArgumentError, match="no 'z'"):
        fn.step(state, **inputs[0], z=1)
    with pytest.raises(ArgumentError, match="threads"):
        load(tmp_path / "step", threads=0)
    state.params["w"] = np.broadcast_to(np.float32(1), (6, 17))
    with pytest.raises(ArgumentError, match="C-contiguous"):
        fn.step(state, **inputs[0])


@needs_cc
def test_a_new_export_to_the_same_path_is_the_one_loaded(tmp_path: Path) -> None:
    found = []
    functions = []
    for factor in (2.0, 3.0):
        g = Graph("scale")
        g.output("y", p.multiply(g.input("x", (3,)), constant(np.float32(factor))))
        compile(g).export(tmp_path / "step")
        functions.append(load(tmp_path / "step"))
        found.append(functions[-1](x=np.ones(3, np.float32)).y[0])
    assert found == [2.0, 3.0]
    assert functions[0](x=np.ones(3, np.float32)).y[0] == 2.0
