"""The reader of the text that `rlx_py.ir.files.text` describes and writes."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple

import numpy as np

from rlx_py.ir.base.dim import read_size
from rlx_py.ir.base.errors import ArgumentError, FormatError, RLXError
from rlx_py.ir.base.literal import Literal
from rlx_py.ir.base.types import DTYPES, TensorType, TupleType, Type
from rlx_py.ir.files.restore import array_of_bytes, restored, set_leaf, set_root
from rlx_py.ir.files.text import NUMBER, element_of, number_of
from rlx_py.ir.nodes.graph_base import G, GraphBase
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.nodes.signature import MOST_DEPTH, check_type, first_line
from rlx_py.ir.nodes.verify import verify

Array = np.ndarray[Any, Any]
WORDS: Mapping[str, Any] = {"true": True, "false": False, "none": None}


class Token(NamedTuple):
    """A word of the text; `kind` is a group of TOKEN."""

    kind: str
    text: str
    line: int


TOKEN = re.compile(rf"""
    (?P<newline> \n )
  | (?P<space>   [ \t\r]+ | \#[^\n]* )
  | (?P<string>  "[^"\\\n]*(?:\\.[^"\\\n]*)*" )
  | (?P<value>   %\w+ )
  | (?P<number>  {NUMBER} )
  | (?P<name>    [A-Za-z_]\w* )
  | (?P<mark>    // | [][(){{}}=:,+*-] )
""", re.VERBOSE | re.ASCII)


def tokens(text: str) -> Iterator[Token]:
    """The words of a text, then one of kind "end". Raises FormatError at what is no word."""
    position, line = 0, 1
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise FormatError(f"line {line}: unexpected {text[position]!r}")
        kind = str(match.lastgroup)
        if kind not in ("newline", "space"):
            yield Token(kind, match.group(), line)
        line += kind == "newline"
        position = match.end()
    yield Token("end", "", line)


def parse_graph(text: str, make: Callable[[str], G]) -> G:
    """The graph a text describes, every type inferred again and compared with the text.

    `make` gives an empty graph of a name. Raises FormatError with the line.
    """
    if not isinstance(text, str):
        raise ArgumentError(f"a graph is parsed from a string, not {type(text).__name__}")
    return Parser(text, make).file()


class Parser(Generic[G]):
    """A recursive-descent reader; only attributes nest, and they do so up to a bound."""

    def __init__(self, text: str, make: Callable[[str], G]) -> None:
        self.make = make
        self.words = tokens(text)
        self.word = next(self.words)
        self.line = 1  # that of the statement being read

    def file(self) -> G:
        """The whole text as one graph."""
        try:
            graph = self._graph()
            self._take("end")
            verify(graph)
        except RLXError as error:
            message = first_line(error)
            raise FormatError(message if message.startswith("line ")
                              else f"line {self.line}: {message}") from error
        return graph

    # ---- words ---------------------------------------------------------------------------------

    def _next(self) -> Token:
        word = self.word
        if word.kind != "end":
            self.word = next(self.words)
        return word

    def _take(self, kind: str, text: str | None = None) -> str:
        word = self._next()
        if word.kind != kind or text not in (None, word.text):
            wanted = repr(text) if text else {"end": "the end"}.get(kind, f"a {kind}")
            found = repr(word.text[:40]) if word.text else "the end"
            raise FormatError(f"line {word.line}: expected {wanted}, found {found}")
        return word.text

    def _at(self, text: str) -> bool:
        """Take a mark if it is next."""
        if self.word.kind == "mark" and self.word.text == text:
            self._next()
            return True
        return False

    def _list(self, item: Callable[[], Any], end: str = ")") -> list[Any]:
        """What stands between commas up to a mark."""
        found: list[Any] = []
        while not self._at(end):
            if found:
                self._take("mark", ",")
                if self._at(end):
                    break
            found.append(item())
        return found

    def _string(self) -> str:
        text = self._take("string")
        try:
            value = json.loads(text)
        except ValueError as error:
            raise FormatError(f"{text[:40]} is no string: {error}") from error
        return str(value)

    # ---- statements ----------------------------------------------------------------------------

    def _graph(self) -> G:
        self._take("name", "graph")
        graph = self.make(self._string())
        self._take("mark", "{")
        values: dict[str, Node] = {}
        while not self._at("}"):
            self.line = self.word.line
            if self.word.kind == "value":
                self._definition(graph, values)
            else:
                self._root(graph, values)
        return graph

    def _root(self, graph: GraphBase, values: Mapping[str, Node]) -> None:
        word = self._take("name")
        if word not in ("next", "update", "output"):
            raise FormatError(f"there is no statement {word[:40]!r}")
        name = self._string()
        self._take("mark", "=")
        set_root(graph, word, name, self._value(values))

    def _value(self, values: Mapping[str, Node]) -> Node:
        name = self._take("value")
        if name not in values:
            raise FormatError(f"{name} is used before it is defined")
        return values[name]

    def _definition(self, graph: GraphBase, values: dict[str, Node]) -> None:
        value = self._take("value")
        if value in values:
            raise FormatError(f"{value} is defined twice")
        self._take("mark", "=")
        word = self._take("name")
        if word in ("input", "param", "state"):
            name, attrs = self._string(), self._attributes()
            values[value] = set_leaf(graph, word, name, self._type(), attrs)
            return
        inputs = self._list(lambda: self._value(values)) if self._at("(") else []
        attrs = self._attributes()
        values[value] = restored(word, inputs, attrs, self._type(), None)

    # ---- types and attributes ------------------------------------------------------------------

    def _type(self) -> Type:
        self._take("mark", ":")
        if self._at("("):
            return check_type(TupleType(tuple(self._list(self._tensor_type))))
        return check_type(self._tensor_type())

    def _tensor_type(self) -> TensorType:
        name = self._take("name")
        if name not in DTYPES:
            raise FormatError(f"{name!r} is no element type")
        return TensorType(DTYPES[name], self._shape())

    def _shape(self) -> tuple[int, ...]:
        self._take("mark", "[")
        return tuple(self._list(self._size, "]"))

    def _size(self) -> Any:
        """A size, up to the comma or bracket that ends it."""
        words, depth = [], 0
        while depth or self.word.text not in (",", "]"):
            word = self._next()
            if word.kind not in ("number", "name", "mark"):
                raise FormatError(f"a size ends before {word.text[:40]!r}")
            depth += (word.text == "(") - (word.text == ")")
            words.append(word.text)
        if len(words) == 1 and words[0][:1] in "-0123456789":
            value = number_of(words[0])
            if not isinstance(value, int):
                raise FormatError(f"a size must be an integer, not {value}")
            return value
        return read_size(" ".join(words))

    def _attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._at("{"):
            for key, value in self._list(self._attribute, "}"):
                if key in found:
                    raise FormatError(f"the attribute {key!r} is given twice")
                found[key] = value
        return found

    def _attribute(self) -> tuple[str, Any]:
        key = self._take("name")
        self._take("mark", "=")
        return key, self._attribute_value(0)

    def _attribute_value(self, depth: int) -> Any:
        if self._at("("):
            if depth == MOST_DEPTH:
                raise FormatError(f"an attribute is nested more than {MOST_DEPTH} deep")
            return tuple(self._list(lambda: self._attribute_value(depth + 1)))
        if self.word.kind == "string":
            return self._string()
        if self.word.kind == "number":
            return number_of(self._next().text)
        if self._at("["):
            size = self._size()
            self._take("mark", "]")
            return size
        word = self._take("name")
        if word in WORDS:
            return WORDS[word]
        if word not in DTYPES:
            raise FormatError(f"{word!r} is no value of an attribute")
        dtype = DTYPES[word]
        if self.word.text != "[":
            return dtype
        return Literal(self._array(TensorType(dtype, self._shape())))

    def _array(self, type: TensorType) -> Array:
        check_type(type)
        if self.word.kind == "string":
            return array_of_bytes(_decoded(self._string()), type)
        self._take("mark", "(")
        elements = [element_of(x, type.dtype) for x in self._list(lambda: self._next().text)]
        if len(elements) != type.size:
            raise FormatError(f"{type} has {type.size} elements, not {len(elements)}")
        return np.array(elements, type.dtype.numpy).reshape(type.shape)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise FormatError(f"an array is not in base64: {error}") from error
