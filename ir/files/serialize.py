"""Graphs and named arrays as safetensors files.

A graph is JSON under the metadata key "rlx"; its constants and array-valued first states are the
tensors "0", "1" … of the same file. Of source locations only the file's name and the line are
kept, so no path of the writer's machine gets out. Plain JSON holds an attribute that is null, a
bool, an int or a string; a list is a tuple; {"float": "0x1.8p+0"}, {"dtype": "f32"} and
{"tensor": "0"} are the rest.

A file is written beside its place and renamed, so that a reader never sees half of one. Whatever a
file says is checked: the outcome of reading one is the graph that was written, or a FormatError.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from rlx_py.ir.base.dim import Dim, read_size
from rlx_py.ir.base.errors import ArgumentError, FormatError, RLXError
from rlx_py.ir.base.literal import Literal
from rlx_py.ir.base.paths import file_path
from rlx_py.ir.base.types import DTYPES, TensorType, TupleType, Type, as_dtype
from rlx_py.ir.files.restore import check_bools, restored, set_leaf, set_root, state_init
from rlx_py.ir.nodes.graph_base import G, GraphBase
from rlx_py.ir.nodes.node import LEAF, OPS, Location, Node
from rlx_py.ir.nodes.signature import MOST_DEPTH, check_attribute, check_type, first_line
from rlx_py.ir.nodes.verify import verify

Array = np.ndarray[Any, Any]
T = TypeVar("T")
FORMAT = 1
KEY = "rlx"
MOST_JSON = 2**25  # characters, of some 300,000 nodes; bounds the memory that a file can ask for
CODES = {"F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "I64": "i64", "I32": "i32",
         "I8": "i8", "U32": "u32", "U8": "u8", "BOOL": "bool"}

# ---- files -------------------------------------------------------------------------------------


def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write named arrays as a plain safetensors file.

    Raises ArgumentError (a name), DTypeError (an element type that no graph has), OSError.
    """
    found: dict[str, Array] = {}
    for name, value in arrays.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise ArgumentError(f"an array can't be named {name!r}")
        array = np.asarray(value)
        found[name] = np.asarray(array, as_dtype(array.dtype).numpy, order="C")
    _write(path, found, None)


def load_arrays(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The named arrays of a safetensors file, sorted by name.

    Raises FormatError (damaged, another format, an element type that no graph has), OSError.
    """
    return _read(path)[1]


def _write(path: str | os.PathLike[str], arrays: dict[str, Array],
           metadata: dict[str, str] | None) -> None:
    target = file_path(path)
    aside = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(target.parent)!r}")
    try:
        aside.touch(exist_ok=False)
        mode = aside.stat().st_mode  # what the umask gives; the writer's own file is private
        save_file(arrays, aside, metadata)
        aside.chmod(mode)
        with open(aside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(aside, target)
    except SafetensorError as error:
        raise OSError(f"can't write {target.name!r}: {error}") from error
    except UnicodeEncodeError as error:
        raise ArgumentError(f"a name is not valid Unicode: {error}") from error
    finally:
        aside.unlink(missing_ok=True)


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, Array]]:
    """Metadata and arrays of a file."""
    target = file_path(path)
    name = target.name
    if not target.is_file():
        raise FileNotFoundError(f"there is no file {str(target)!r}")
    try:
        with safe_open(str(target), framework="numpy") as file:
            arrays = {key: _array(file, key) for key in sorted(file.keys())}
            return dict(file.metadata() or {}), arrays
    except (SafetensorError, ValueError, MemoryError) as error:
        raise FormatError(f"{name}: {error}") from error
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from error


def _array(file: Any, key: str) -> Array:
    described = file.get_slice(key)
    code, shape = described.get_dtype(), tuple(described.get_shape())
    if code not in CODES:
        raise FormatError(f"tensor {key!r} has the element type {code}, not one of "
                          f"{', '.join(CODES)}")
    type = TensorType(DTYPES[CODES[code]], shape)
    check_type(type)
    array: Array = file.get_tensor(key)
    check_bools(array)
    return array


# ---- graphs to JSON ----------------------------------------------------------------------------


def save_graph(path: str | os.PathLike[str], graph: GraphBase) -> None:
    """Write a graph with its constants.

    Raises VerifyError (a graph that breaks its invariants), ArgumentError (an attribute that can't
    be written), OSError.
    """
    text, tensors = graph_parts(graph)
    _write(path, tensors, {KEY: text})


def graph_parts(graph: GraphBase) -> tuple[str, dict[str, Array]]:
    """A graph as JSON and the arrays it names. Raises VerifyError, ArgumentError (an attribute that
    can't be written, too many nodes)."""
    verify(graph)
    tensors: dict[str, Array] = {}
    text = json.dumps(Writer(graph, tensors).graph(), separators=(",", ":"), allow_nan=False)
    if len(text) > MOST_JSON:
        raise ArgumentError(f"graph {graph.name!r} takes {len(text)} characters, more than a file "
                            "can hold")
    return text, tensors


class Writer:
    """The JSON of one graph; arrays are put into `tensors`."""

    def __init__(self, graph: GraphBase, tensors: dict[str, Array]) -> None:
        self.source, self.tensors = graph, tensors
        self.order = graph.nodes
        self.number = {n: i for i, n in enumerate(self.order)}
        self.files: dict[str, int] = {}

    def graph(self) -> dict[str, Any]:
        """The whole graph."""
        g = self.source
        nexts = {k: s.next for k, s in g.states.items() if s.next is not None}
        count = len(g.leaves)
        return {
            "format": FORMAT,
            "name": g.name,
            "leaves": [self._leaf(n) for n in self.order[:count]],
            "nodes": [self._node(n) for n in self.order[count:]],
            "next": self._roots(nexts),
            "update": self._roots(g.updates),
            "output": self._roots(g.outputs),
            "files": list(self.files),
            "ops": {n.op.name: n.op.version for n in self.order if n.op is not LEAF},
        }

    def _roots(self, table: Mapping[str, Node]) -> list[Any]:
        return [[k, self.number[v]] for k, v in table.items()]

    def _leaf(self, node: Node) -> list[Any]:
        name, kind = node.attrs["name"], node.attrs["kind"]
        attrs = {"init": state_init(self.source, name)} if kind == "state" else {}
        return [kind, name, self._attributes(name, attrs), _type_json(node.type)]

    def _node(self, node: Node) -> list[Any]:
        return [node.op.name, [self.number[i] for i in node.inputs],
                self._attributes(node.op.name, node.attrs), _type_json(node.type),
                self._location(node.loc)]

    def _location(self, loc: Location | None) -> list[int] | None:
        if loc is None:
            return None
        return [self.files.setdefault(PurePath(loc[0]).name, len(self.files)), loc[1]]

    def _attributes(self, name: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            for value in attrs.values():
                check_attribute(value)
        except FormatError as error:
            raise ArgumentError(f"{name}: {error}") from error
        return {k: self._value(attrs[k]) for k in sorted(attrs)}

    def _value(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return [self._value(v) for v in value]
        if isinstance(value, Literal):
            key = str(len(self.tensors))
            self.tensors[key] = value.array
            return {"tensor": key}
        if isinstance(value, Dim):
            return {"size": str(value)}
        if isinstance(value, float):
            return {"float": value.hex()}
        if value is None or isinstance(value, bool | int | str):
            return value
        return {"dtype": value.name}


def _type_json(type: Type) -> Any:
    if isinstance(type, TupleType):
        return {"tuple": [_type_json(t) for t in type.elements]}
    return [type.dtype.name, *map(_size_json, type.shape)]


def _size_json(size: Any) -> Any:
    return str(size) if isinstance(size, Dim) else size


# ---- JSON to graphs ----------------------------------------------------------------------------


def load_graph(path: str | os.PathLike[str], make: Callable[[str], G]) -> G:
    """The graph of a file, inferred again and verified. `make` gives an empty graph of a name.

    Raises FormatError and OSError.
    """
    metadata, tensors = _read(path)
    name = file_path(path).name
    if KEY not in metadata:
        raise FormatError(f"{name} holds no graph")
    with _named(name):
        return graph_of(metadata[KEY], tensors, make)


def graph_of(text: str, tensors: dict[str, Array], make: Callable[[str], G]) -> G:
    """The graph that `graph_parts` wrote, verified. Raises FormatError."""
    graph = Reader(_json(text), tensors).graph(make)
    verify(graph)
    return graph


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Errors inside name the file."""
    try:
        yield
    except RLXError as error:
        raise FormatError(f"{name}: {first_line(error)}") from error


def _json(text: str) -> dict[str, Any]:
    if len(text) > MOST_JSON:
        raise FormatError("the graph is too long")
    try:
        found = json.loads(text, parse_float=_refuse, parse_constant=_refuse, parse_int=_integer,
                           object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"damaged JSON: {error}") from error
    return _as(dict, found)


def _refuse(text: str) -> Any:
    raise FormatError(f"{text[:40]} is no integer")


def _integer(text: str) -> int:
    if len(text) > 20:
        raise FormatError("an integer exceeds 64 bits")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise FormatError("a key is given twice")
    return found


def _as(kind: type[T], value: Any) -> T:
    """The value, which must be exactly of that kind: a bool is no int."""
    if not isinstance(value, kind) or type(value) is not kind:
        raise FormatError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value


def _entries(value: Any, count: int) -> list[Any]:
    """The value, which must be a list of so many entries."""
    found = _as(list, value)
    if len(found) != count:
        raise FormatError(f"expected {count} entries, found {len(found)}")
    return found


def _single(value: Any) -> tuple[str, Any]:
    """Key and value of an object that has only one."""
    found = _as(dict, value)
    if len(found) != 1:
        raise FormatError(f"expected one key, found {len(found)}")
    ((key, entry),) = found.items()
    return key, entry


class Reader:
    """One graph from its JSON; every access states what it expects."""

    def __init__(self, source: dict[str, Any], tensors: Mapping[str, Array]) -> None:
        self.source, self.tensors = source, dict(tensors)
        self.nodes: list[Node] = []

    def graph(self, make: Callable[[str], G]) -> G:
        """The whole graph."""
        version = self._field("format", int)
        if version != FORMAT:
            raise FormatError(f"format {version} is not the format {FORMAT} of this program")
        self._check_ops()
        graph = make(self._field("name", str))
        for entry in self._field("leaves", list):
            kind, name, attrs, type = _entries(entry, 4)
            self.nodes.append(set_leaf(graph, _as(str, kind), _as(str, name), self._type(type),
                                       self._attributes(attrs)))
        files = [_as(str, f) for f in self._field("files", list)]
        for entry in self._field("nodes", list):
            self.nodes.append(self._node(entry, files))
        for kind in ("next", "update", "output"):
            for entry in self._field(kind, list):
                name, index = _entries(entry, 2)
                set_root(graph, kind, _as(str, name), self._at(index))
        if self.tensors:
            raise FormatError(f"tensor {min(self.tensors)!r} is not used")
        return graph

    def _field(self, key: str, kind: type) -> Any:
        if key not in self.source:
            raise FormatError(f"the graph lacks {key!r}")
        return _as(kind, self.source[key])

    def _check_ops(self) -> None:
        for name, version in self._field("ops", dict).items():
            if name not in OPS:
                raise FormatError(f"there is no op {name[:40]!r}")
            if _as(int, version) != OPS[name].version:
                raise FormatError(f"{name} has version {OPS[name].version} in this program, "
                                  f"not {version}")

    def _at(self, index: Any) -> Node:
        position = _as(int, index)
        if not 0 <= position < len(self.nodes):
            raise FormatError(f"there is no node {index} among the {len(self.nodes)} before")
        return self.nodes[position]

    def _node(self, entry: Any, files: list[str]) -> Node:
        op, inputs, attrs, type, loc = _entries(entry, 5)
        if loc is not None:
            file, line = _entries(loc, 2)
            if not 0 <= _as(int, file) < len(files):
                raise FormatError(f"there is no file {file}")
            loc = files[file], _as(int, line)
        if _as(str, op) not in self.source["ops"]:
            raise FormatError(f"op {op[:40]!r} is not listed with its version")
        return restored(op, [self._at(i) for i in _as(list, inputs)],
                        self._attributes(attrs), self._type(type), loc)

    def _type(self, source: Any) -> Type:
        if isinstance(source, dict):
            kind, elements = _single(source)
            if kind != "tuple":
                raise FormatError(f"{kind[:40]!r} is no type")
            return check_type(TupleType(tuple(self._tensor_type(e) for e in _as(list, elements))))
        return check_type(self._tensor_type(source))

    def _tensor_type(self, source: Any) -> TensorType:
        if not _as(list, source) or _as(str, source[0]) not in DTYPES:
            raise FormatError("a type begins with its element type")
        return TensorType(DTYPES[source[0]], tuple(map(_size, source[1:])))

    def _attributes(self, source: Any) -> dict[str, Any]:
        return {k: self._value(v, 0) for k, v in _as(dict, source).items()}

    def _value(self, source: Any, depth: int) -> Any:
        if depth > MOST_DEPTH:
            raise FormatError(f"an attribute is nested more than {MOST_DEPTH} deep")
        if isinstance(source, list):
            return tuple(self._value(v, depth + 1) for v in source)
        if not isinstance(source, dict):
            return source
        kind, text = _single(source)
        if kind == "float":
            return _float(_as(str, text))
        if kind == "size":
            return read_size(_as(str, text))
        if kind == "dtype" and _as(str, text) in DTYPES:
            return DTYPES[text]
        if kind == "tensor" and _as(str, text) in self.tensors:
            return Literal(self.tensors.pop(text))
        raise FormatError(f"{kind[:40]!r} is no kind of attribute, or it has no such value")


def _size(value: Any) -> Any:
    """An integer, or the text of a size of a dynamic graph."""
    return read_size(value) if isinstance(value, str) else _as(int, value)


def _float(text: str) -> float:
    """What float.hex wrote."""
    if re.fullmatch(r"-?0x[01]\.[0-9a-f]{1,13}p[+-]\d{1,4}|-?inf|nan", text):
        try:
            return float.fromhex(text)
        except OverflowError as error:
            raise FormatError(f"{text} exceeds f64") from error
    raise FormatError(f"{text[:40]!r} is no float")
