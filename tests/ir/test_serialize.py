"""Files: exact, small in what they trust, atomic."""

from __future__ import annotations

import copy
import json
import os
import random
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from rlx_py.ir.base.errors import ArgumentError, DTypeError, FormatError, RLXError, VerifyError
from rlx_py.ir.base.types import DTYPES, TensorType, TupleType
from rlx_py.ir.files import serialize
from rlx_py.ir.files.serialize import KEY, Reader, Writer, load_arrays, save_arrays
from rlx_py.ir.files.text import show
from rlx_py.ir.graph.evaluate import evaluate_all
from rlx_py.ir.graph.graph import Graph, parse
from rlx_py.ir.nodes.node import LEAF, OPS, Op, make
from rlx_py.ir.nodes.verify import verify
from rlx_py.ir.ops.making.constant import constant
from support import corpus

GRAPHS = corpus.graphs()
Edit = Callable[[dict[str, Any]], Any]


def small() -> Graph:
    g = Graph("small")
    x, w = g.input("x", (2, 3)), g.param("w", (3, 2))
    m = g.state("m", (2,), init=np.array([0.5, -0.0], np.float32))
    g.output("y", x @ w + m + constant(np.arange(20, dtype=np.float32)[:2]))
    g.next("m", m * 0.9)
    g.update("w", w * 2)
    return g


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "g.rlx"
    small().save(path)
    return path


@pytest.mark.parametrize("name", GRAPHS)
def test_a_file_loads_as_the_same_graph(name: str, tmp_path: Path) -> None:
    path = tmp_path / "g.rlx"
    GRAPHS[name].save(path)
    found = Graph.load(path)
    verify(found)
    assert show(found) == show(GRAPHS[name])


def test_lines_of_the_source_stay_and_folders_do_not(file: Path) -> None:
    assert str(Path(__file__).parent).encode() not in file.read_bytes()
    kept = [n.loc for n in Graph.load(file).nodes if n.op is not LEAF]
    wrote = [n.loc for n in small().nodes if n.op is not LEAF]
    assert kept == [(Path(loc[0]).name, loc[1]) for loc in wrote if loc]


def test_equal_graphs_make_equal_files(tmp_path: Path) -> None:
    for name in "ab":
        small().save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_file_is_plain_safetensors(file: Path) -> None:
    assert sorted(load_file(file)) == ["0", "1", "2", "3"]


# ---- writing ---------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
        file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.read_bytes()

    def full(*args: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        Graph("other").save(file)
    monkeypatch.undo()
    monkeypatch.setattr(serialize, "save_file", full)
    with pytest.raises(OSError, match="no space"):
        Graph("other").save(file)
    assert file.read_bytes() == before
    assert [p.name for p in file.parent.iterdir()] == [file.name]


def test_a_new_file_has_the_mode_that_the_umask_gives(file: Path) -> None:
    plain = file.with_name("plain")
    plain.touch()
    assert file.stat().st_mode == plain.stat().st_mode


def test_there_must_be_a_folder_to_write_to_and_a_file_to_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none"):
        small().save(tmp_path / "none" / "g.rlx")
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(FileNotFoundError):
            Graph.load(path)


def test_what_can_not_be_loaded_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "g.rlx"
    odd = Graph()
    odd.output("y", make(Op("odd", lambda x, *, k: x), (odd.input("x", 2),), {"k": (0,) * 5000}))
    foreign = Graph()
    foreign.outputs["y"] = Graph().input("x", 2)
    wrong = Graph()
    wrong.state("m", (3,), init=np.zeros(4))
    for graph, error in ((odd, ArgumentError), (foreign, VerifyError), (wrong, ArgumentError)):
        with pytest.raises(error):
            graph.save(path)
    assert not list(tmp_path.iterdir())


# ---- arrays ----------------------------------------------------------------------------------


def test_arrays_of_every_type_and_shape_load_as_they_were(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {f"{d}.{shape}": rng.integers(0, 2, shape).astype(d.numpy)
              for d in DTYPES.values() for shape in ((), (0,), (3, 0, 2), (2, 3))}
    arrays["strided"] = rng.standard_normal((6, 4))[::2, ::-1].T
    arrays["é \n ☃"] = np.array([np.nan, -0.0, np.inf])
    save_arrays(tmp_path / "a", arrays)
    found = load_arrays(tmp_path / "a")
    assert list(found) == sorted(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
        found[name][...] = 0  # they are the caller's own


def test_arrays_are_refused_by_name_or_type(tmp_path: Path) -> None:
    for name in ("__metadata__", 3, "\ud800"):
        with pytest.raises(ArgumentError):
            save_arrays(tmp_path / "a", {name: np.zeros(2)})  # type: ignore[dict-item]
    for array in (np.zeros(2, complex), np.array(["x"]), np.array([None])):
        with pytest.raises(DTypeError):
            save_arrays(tmp_path / "a", {"a": array})
    assert not list(tmp_path.iterdir())


def test_other_byte_orders_are_refused_or_converted(tmp_path: Path) -> None:
    with pytest.raises(DTypeError):
        save_arrays(tmp_path / "a", {"a": np.arange(3, dtype=">f4")})


def test_arrays_hold_no_graph(tmp_path: Path) -> None:
    save_arrays(tmp_path / "a", {"w": np.ones(2)})
    with pytest.raises(FormatError, match="holds no graph"):
        Graph.load(tmp_path / "a")


# ---- hostile files -----------------------------------------------------------------------------


def raw(path: Path, header: Any, data: bytes = b"") -> Path:
    """A safetensors file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def tensor(dtype: str, shape: list[int], *ends: int) -> dict[str, Any]:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": list(ends)}}


CONTAINERS: dict[str, Any] = {
    "empty": b"", "list": b"[]", "deep": b"[" * 200_000, "deep objects": b'{"a":' * 100_000,
    "huge shape": tensor("F32", [10**12, 10**12], 0, 4), "negative": tensor("F32", [-1], 0, 4),
    "empty and huge": tensor("F32", [0, 2**62, 2**62], 0, 0),
    "empty and large": tensor("F32", [0, 2**59], 0, 0), "axes": tensor("F32", [1] * 70, 0, 4),
    "short": tensor("F32", [2], 0, 4), "past the end": tensor("F32", [2], 0, 8),
    "overlap": {**tensor("F32", [1], 0, 4), "b": tensor("F32", [1], 0, 4)["a"]},
    "backwards": tensor("F32", [1], 4, 0), "type": tensor("I16", [2], 0, 4),
    "four bits": tensor("F4", [8], 0, 4), "unknown type": tensor("Q9", [2], 0, 4),
    "bools": tensor("BOOL", [4], 0, 4), "metadata": {"__metadata__": {"rlx": 1}},
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_hostile_container_is_a_typed_error(name: str, tmp_path: Path) -> None:
    path = raw(tmp_path / "bad", CONTAINERS[name], b"\7\7\7\7")
    for load in (load_arrays, Graph.load):
        with pytest.raises(FormatError, match="bad"):
            load(path)


@pytest.mark.parametrize("length", [0, 1, 2**20, 2**31, 2**63, 2**64 - 1])
def test_a_header_longer_than_the_file_is_a_typed_error(length: int, tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_bytes(struct.pack("<Q", length) + b"{}")
    with pytest.raises(FormatError):
        Graph.load(path)


def rewritten(path: Path, edit: Edit) -> Path:
    """The file with the JSON of its graph edited; `edit` may return a text to put instead."""
    blob = path.read_bytes()
    size = struct.unpack("<Q", blob[:8])[0]
    header = json.loads(blob[8:8 + size])
    graph = json.loads(header["__metadata__"][KEY])
    text = edit(graph)
    header["__metadata__"][KEY] = text if isinstance(text, str) else json.dumps(graph)
    return raw(path, header, blob[8 + size:])


def node(graph: dict[str, Any], op: str) -> list[Any]:
    found: list[Any] = next(n for n in graph["nodes"] if n[0] == op)
    return found


def put(value: Any, *path: Any) -> Edit:
    """An edit that sets one place; a name leads to the first node of that op."""

    def edit(graph: dict[str, Any]) -> None:
        place: Any = graph
        for key in path[:-1]:
            place = node(graph, key) if key in OPS and place is graph else place[key]
        place[path[-1]] = value

    return edit


EDITS: dict[str, tuple[Edit, str]] = {
    "version": (put(2, "format"), "format 2"),
    "no version": (lambda g: g.pop("format") and None, "lacks 'format'"),
    "version as text": (put("1", "format"), "expected int"),
    "version as bool": (put(True, "format"), "expected int"),
    "op version": (put(7, "ops", "contract"), "contract has version 1 in this program, not 7"),
    "unknown op": (put(1, "ops", "warp"), "'warp'"),
    "unlisted op": (lambda g: g["ops"].pop("add") and None, "'add' is not listed"),
    "op": (put("leaf", "add", 0), "'leaf'"),
    "op as list": (put([], "add", 0), "expected str"),
    "cycle": (lambda g: put(len(g["leaves"]) + g["nodes"].index(node(g, "add")), "add", 1, 0)(g),
              "no node"),
    "past": (put(99, "add", 1, 0), "no node 99"),
    "negative": (put(-1, "add", 1, 0), "no node -1"),
    "input as text": (put("0", "add", 1, 0), "expected int"),
    "input as bool": (put(True, "add", 1, 0), "expected int"),
    "inputs": (put([], "add", 1), "0 inputs"),
    "attribute": (put({}, "broadcast", 2), "lacks"),
    "more attributes": (put({"out": 1}, "add", 2), "no attribute 'out'"),
    "attribute type": (put("x", "broadcast", 2, "axes"), "axes='x'"),
    "float axes": (put([{"float": "0x1.0p+0"}], "broadcast", 2, "axes"), "axes"),
    "bool axes": (put([True], "broadcast", 2, "axes"), "axes"),
    "null axes": (put(None, "broadcast", 2, "axes"), "axes"),
    "wrong axes": (put([7], "broadcast", 2, "axes"), "broadcast"),
    "huge axis": (put([2**64], "broadcast", 2, "axes"), "64 bits"),
    "huge axes": (put([0] * 10_000, "broadcast", 2, "axes"), "4096"),
    "huge shape": (put([2**62, 2], "broadcast", 2, "shape"), "64-bit"),
    "negative shape": (put([-1, 2], "broadcast", 2, "shape"), "broadcast"),
    "float": (put({"float": "0x1p99999"}, "broadcast", 2, "axes"), "no float"),
    "float beyond": (put({"float": "0x1.0p+9999"}, "broadcast", 2, "axes"), "exceeds f64"),
    "dtype": (put({"dtype": "f99"}, "broadcast", 2, "axes"), "'dtype'"),
    "code": (put({"eval": "1"}, "broadcast", 2, "axes"), "'eval'"),
    "tensor": (put({"tensor": "99"}, "constant", 2, "value"), "'tensor'"),
    "same tensor": (put({"tensor": "0"}, "constant", 2, "value"), "'tensor'"),
    "unused tensor": (put(0.5, "leaves", 2, 2, "init"), "is no integer"),
    "init": (put({"float": "0x1.0p+0"}, "leaves", 2, 2, "init"), "tensor '0' is not used"),
    "init as text": (put("x", "leaves", 2, 2, "init"), "'m'"),
    "kind of leaf": (put("weight", "leaves", 0, 0), "attributes|'weight'"),
    "name": (put("w", "leaves", 0, 1), "'w' is taken"),
    "empty name": (put("", "leaves", 0, 1), "non-empty"),
    "type": (put(["f32", 9, 9], "add", 3), r"f32\[9,9\], but is f32\[2,2\]"),
    "type of a leaf": (put(["f32", 2, -3], "leaves", 0, 3), "negative"),
    "size": (put(["f32", 2, 2**63], "leaves", 0, 3), "64 bits"),
    "float size": (put(["f32", 2, None], "leaves", 0, 3), "expected int"),
    "axes": (put(["f32", *[1] * 65], "leaves", 0, 3), "64 axes"),
    "element type": (put(["q8", 2], "leaves", 0, 3), "element type"),
    "no type": (put([], "leaves", 0, 3), "element type"),
    "tuple leaf": (put({"tuple": [["f32"]]}, "leaves", 0, 3), "'x'"),
    "tuple of what": (put({"type": []}, "leaves", 0, 3), "'type'"),
    "output": (put([["y", 0], ["y", 0]], "output"), "'y' is taken"),
    "next": (put([["m", 2], ["m", 2]], "next"), "twice"),
    "next type": (put([["m", 0]], "next"), "'m'"),
    "update": (put([["z", 0]], "update"), "'z'"),
    "root": (put([["y"]], "output"), "2 entries"),
    "file": (put([9, 1], "add", 4), "no file 9"),
    "line": (put([0, "1"], "add", 4), "expected int"),
    "entry": (put([], "nodes", 0), "5 entries"),
    "nodes": (put({}, "nodes"), "expected list"),
    "NaN": (lambda g: json.dumps(g).replace('"format": 1', '"format": NaN'), "no integer"),
    "decimal": (lambda g: json.dumps(g).replace('"format": 1', '"format": 1.0'), "no integer"),
    "digits": (lambda g: json.dumps(g).replace('"format": 1', f'"format": {"1" * 9999}'), "64"),
    "key twice": (lambda g: json.dumps(g).replace('"format": 1', '"format": 1, "format": 1'),
                  "twice"),
    "cut": (lambda g: json.dumps(g)[:-5], "damaged"),
    "garbage": (lambda g: json.dumps(g) + "]", "damaged"),
    "deep": (lambda g: "[" * 100_000, "damaged"),
    "deep attribute": (put(json.loads("[" * 50 + "]" * 50), "broadcast", 2, "axes"), "deep"),
    "null": (lambda g: "null", "expected dict"),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_hostile_graph_is_a_typed_error_that_names_the_file(name: str, file: Path) -> None:
    edit, message = EDITS[name]
    with pytest.raises(FormatError, match=message) as caught:
        Graph.load(rewritten(file, edit))
    assert str(caught.value).startswith("g.rlx: ")


def test_what_a_file_asks_for_is_bounded(file: Path) -> None:
    """Deep, wide or huge: refused in seconds, in memory proportional to the file."""
    wide: list[Edit] = [
        lambda g: '{"format":1,"x":[' + "[]," * 100_000 + "0]}",
        put([["f", *[2**62] * 60_000]], "leaves"),
        put(["f32", *[2**62] * 60_000], "leaves", 0, 3),
        put([2**62] * 60_000, "broadcast", 2, "shape"),
        put([0] * 60_000, "add", 1),
    ]
    original = file.read_bytes()
    for edit in wide:
        file.write_bytes(original)
        rewritten(file, edit)
        start = time.perf_counter()
        with pytest.raises(FormatError):
            Graph.load(file)
        assert time.perf_counter() - start < 5
        tracemalloc.start()
        with pytest.raises(FormatError):
            Graph.load(file)
        assert tracemalloc.get_traced_memory()[1] < 100 * file.stat().st_size
        tracemalloc.stop()


def test_a_type_takes_no_memory_until_it_is_computed(tmp_path: Path) -> None:
    g = Graph()
    x = g.input("x", (2**40,), "u8")
    g.output("y", x + 1)
    g.save(tmp_path / "g")
    assert show(Graph.load(tmp_path / "g")) == show(g)


def test_a_graph_too_long_for_a_file_is_refused(tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    small().save(tmp_path / "g")
    monkeypatch.setattr(serialize, "MOST_JSON", 100)
    with pytest.raises(ArgumentError, match="more than a file can hold"):
        small().save(tmp_path / "h")
    with pytest.raises(FormatError, match="too long"):
        Graph.load(tmp_path / "g")


@pytest.fixture(scope="session")
def valid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A path to write to, and the bytes of a file that loads."""
    path = tmp_path_factory.mktemp("files") / "g.rlx"
    small().save(path)
    return path, path.read_bytes()


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_a_damaged_file_is_a_graph_or_a_typed_error(
        valid: tuple[Path, bytes], data: st.DataObject) -> None:
    path, blob = valid[0], bytearray(valid[1])
    for _ in range(data.draw(st.integers(1, 3))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(blob)
    try:
        found = Graph.load(path)
    except FormatError as error:
        assert "\n" not in str(error)
        return
    verify(found)
    assert show(parse(show(found))) == show(found)


@given(st.floats(0, 1, exclude_max=True))
@settings(max_examples=100, deadline=None)
def test_a_cut_file_is_a_typed_error(valid: tuple[Path, bytes], part: float) -> None:
    path, blob = valid
    path.write_bytes(blob[:int(part * len(blob))])
    for load in (load_arrays, Graph.load):
        with pytest.raises(FormatError):
            load(path)


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_a_typed_error(valid: tuple[Path, bytes], blob: bytes) -> None:
    path = valid[0]
    path.write_bytes(blob)
    with pytest.raises(FormatError):
        Graph.load(path)


PUT: list[Any] = [0, 1, -1, 3, 2**31, 2**62, -2**62, 2**63 - 1, 2**64, None, True, "clip", "x", [],
                  [0], [0, 1], [-1, 5], [[0], [1]], {"float": "nan"}, {"float": "0x1.8p+1"},
                  {"dtype": "f32"}, {"dtype": "bool"}, {"tensor": "0"}, {"tuple": []}]


def places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Where a JSON value can be changed."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else (
        enumerate(value) if isinstance(value, list) else ())
    for key, entry in items:
        yield from places(entry, *path, key)


def modest(graph: Graph) -> bool:
    """Whether evaluating it takes little memory."""
    types: list[TensorType] = []
    for n in graph.nodes:
        types += n.type.elements if isinstance(n.type, TupleType) else (n.type,)
    return all(isinstance(t.size, int) and t.size < 100_000 for t in types)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(4))
def test_what_loads_also_evaluates_or_is_a_typed_error(seed: int) -> None:
    """One value of the JSON replaced by another: no rule of any op sees what it can't take."""
    rng = random.Random(seed)
    names = [k for k in GRAPHS if k != "constants"]
    for _ in range(600):
        tensors: dict[str, Any] = {}
        source = Writer(GRAPHS[rng.choice(names)], tensors).graph()
        source = json.loads(json.dumps(source))
        attributes = [p for p in places(source) if p[0] == "nodes" and p[2:3] == (2,) and p[3:]]
        *path, last = rng.choice(attributes or list(places(source)))
        place: Any = source
        for key in path:
            place = place[key]
        old = place[last]
        near = type(old) is int and rng.random() < 0.5
        place[last] = old + rng.choice([-1, 1, 2]) if near else copy.deepcopy(rng.choice(PUT))
        try:
            found = Reader(source, tensors).graph(Graph)
            verify(found)
        except RLXError:
            continue
        if modest(found):
            ones = {k: np.ones(n.shape, n.dtype.numpy) for k, n in found.leaves.items()}
            try:
                evaluate_all(found, ones)
            except RLXError:
                continue


def test_narrow_floats_are_stored_narrow(tmp_path: Path) -> None:
    g = Graph()
    g.output("y", constant(np.ones(1000, ml_dtypes.bfloat16)))
    g.save(tmp_path / "g")
    assert 2000 < (tmp_path / "g").stat().st_size < 2600
