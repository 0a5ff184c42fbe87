"""Nested dicts, lists and tuples of leaves, and the dotted paths that name the leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlx_py.ir.base.errors import ArgumentError


@dataclass(frozen=True)
class Tree:
    """The nesting of a value: `kind` is dict, list, tuple, a named tuple's class, NoneType for
    None (which holds no leaf), or None for a leaf."""

    kind: type | None = None
    keys: tuple[Any, ...] = ()
    children: tuple[Tree, ...] = ()

    @property
    def named(self) -> bool:
        """Whether its entries have names of their own: a dict or a named tuple."""
        return self.kind is dict or hasattr(self.kind, "_fields")

    def names(self, prefix: str = "") -> list[str]:
        """The paths of the leaves in order, such as "layer.bias" or "w.0"."""
        if self.kind is None:
            return [prefix]
        return [name for key, child in zip(self.keys, self.children, strict=True)
                for name in child.names(f"{prefix}.{key}" if prefix else str(key))]

    def leaves(self, value: Any, where: str) -> list[Any]:
        """The leaves of a value of this nesting in order; ArgumentError names where it differs."""
        found = structure(value)
        if self.kind is None:
            return [value]
        if found.kind is not self.kind or set(found.keys) != set(self.keys):
            raise ArgumentError(f"{where} takes {self.describe()}, not {found.describe()}")
        entries = _entries(value)
        return [x for key, child in zip(self.keys, self.children, strict=True)
                for x in child.leaves(entries[key], f"{where}.{key}")]

    def build(self, leaves: Iterable[Any]) -> Any:
        """The value of this nesting with these leaves."""
        return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.kind is None:
            return next(leaves)
        if self.kind is type(None):
            return None
        parts = [child._build(leaves) for child in self.children]
        if self.kind is dict:
            return dict(zip(self.keys, parts, strict=True))
        return self.kind(*parts) if hasattr(self.kind, "_fields") else self.kind(parts)

    def describe(self) -> str:
        """The outermost level in words."""
        if self.kind is None:
            return "one array"
        if self.kind is type(None):
            return "None"
        return f"{self.kind.__name__} of {list(self.keys) if self.named else len(self.keys)}"


def structure(value: Any) -> Tree:
    """The nesting of a value. Any mapping counts as a dict; what is no container is a leaf."""
    if value is None:
        return Tree(type(None))
    if isinstance(value, Mapping | list | tuple):
        entries = _entries(value)
        kind = dict if isinstance(value, Mapping) else type(value)
        return Tree(kind, tuple(entries), tuple(map(structure, entries.values())))
    return Tree()


def flatten(value: Any) -> tuple[list[Any], Tree]:
    """The leaves in order, and the nesting that `Tree.build` puts them back into."""
    tree = structure(value)
    return tree.leaves(value, "value"), tree


def _entries(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if value is None:
        return {}
    return dict(zip(getattr(value, "_fields", range(len(value))), value, strict=True))


@dataclass(frozen=True)
class Nesting:
    """How a traced function takes and returns its arrays: names and trees of the arguments (the
    params first), and the tree of the result."""

    arguments: tuple[tuple[str, Tree], ...]
    result: Tree

    @property
    def roots(self) -> dict[str, Tree]:
        """The trees of the arguments by name."""
        return dict(self.arguments)

    def argument_names(self, root: str) -> list[str]:
        """The leaf names of an argument: params in named containers bear their paths alone."""
        tree = self.roots[root]
        alone = tree.named and root == self.arguments[0][0]
        return tree.names("" if alone else root)

    @property
    def result_names(self) -> list[str]:
        """The names of the outputs: a dict's keys, else "out" or "out.0" …"""
        return self.result.names("" if self.result.named else "out")
