"""Samples with a size by name, in the ways that their ops may allow."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

import rlx_py as rlx
from rlx_py.ir.base.errors import DTypeError, RLXError
from rlx_py.ir.base.types import DType, TupleType, f64
from rlx_py.ir.graph.bind import bound_value
from rlx_py.ir.graph.graph import Graph
from support.samples.sample import Sample

Array = np.ndarray[Any, Any]
# Shapes of inputs by position, attributes, and the number that B stands for.
Way = tuple[dict[int, Any], dict[str, Any], int]
B = rlx.dim("B")


def element_type(sample: Sample) -> DType:
    """f64, or the first type that the op takes."""
    return next(t for t in (f64, *sample.dtypes()) if _takes(sample, t))


def _takes(sample: Sample, dtype: DType) -> bool:
    try:
        sample.graph(dtype)
    except DTypeError:
        return False
    return True


def with_leading_size(sample: Sample) -> tuple[Graph, int] | RLXError | None:
    """The sample's graph with B for the first axis of its first input, and of what has to share
    it; and the number B stands for. The first error where no way to do this passes inference; None
    where nothing has such an axis."""
    arrays = sample.converted(element_type(sample))
    ways = _leading_ways(sample, arrays)
    return _first(sample, arrays, ways) if ways else None


def first_axis_is_free(sample: Sample) -> bool:
    """Whether the op itself takes any number there."""
    arrays = sample.converted(element_type(sample))
    for shapes, attrs, n in _leading_ways(sample, arrays):
        numbers = [{"B": k} for k in (1, n + 1, n + 2)]
        tried = [_first(sample, arrays, [(
            {i: bound_value(s, at) for i, s in shapes.items()},
            {k: bound_value(v, at) for k, v in attrs.items()}, n)]) for at in numbers]
        if not any(isinstance(found, RLXError) for found in tried):
            return True
    return False


def _leading_ways(sample: Sample, arrays: list[Array]) -> list[Way]:
    if not arrays or not arrays[0].ndim or _is_key(arrays[0]):
        shape = sample.attrs.get("shape", ())
        alone = bool(shape) and shape[0] > 0
        return [({}, _with_first(sample.attrs, shape[0]), shape[0])] if alone else []
    if not arrays[0].shape[0]:
        return []
    n = arrays[0].shape[0]
    leading = {i: a for i, a in enumerate(arrays) if a.ndim and a.shape[0] and not _is_key(a)}
    numbers = [v for v in sample.attrs.values() if type(v) is int and v > 0 and n % v == 0]
    least = min(a.shape[0] for a in leading.values())
    same = [i for i, a in leading.items() if a.shape[0] == n]
    shared = [{i: (B, *arrays[i].shape[1:]) for i in (0, *others)}
              for count in range(len(same) - 1, -1, -1) for others in combinations(same[1:], count)]
    multiples = {i: (a.shape[0] // least * B, *a.shape[1:]) for i, a in leading.items()
                 if a.shape[0] % least == 0}
    attrs = _with_first(sample.attrs, n)
    ways = [(shapes, a, n) for a in ([attrs, sample.attrs] if attrs != sample.attrs else [attrs])
            for shapes in shared]
    return [
        *ways, (multiples, sample.attrs, least),
        *(({i: (n // v * B, *arrays[i].shape[1:]) for i in same}, _with_numbers(sample.attrs, v), v)
          for v in numbers)]


def with_sizes_of_an_axis(sample: Sample, axis: int) -> tuple[Graph, int] | RLXError:
    """The same for another axis, where every axis of its size is B."""
    arrays = sample.converted(element_type(sample))
    n = arrays[0].shape[axis]
    shapes = {i: tuple(B if d == n else d for d in a.shape) for i, a in enumerate(arrays)
              if n in a.shape and not _is_key(a)}
    return _first(sample, arrays, [
        (shapes, sample.attrs, n), (shapes, _with_any(sample.attrs, n), n)])


def _is_key(array: Array) -> bool:
    return array.dtype == np.uint32 and array.shape == (2,)


def _with_first(attrs: dict[str, Any], n: int) -> dict[str, Any]:
    return {k: (B, *v[1:]) if isinstance(v, tuple) and v and type(v[0]) is int and v[0] == n else v
            for k, v in attrs.items()}


def _with_numbers(attrs: dict[str, Any], n: int) -> dict[str, Any]:
    return {k: B if type(v) is int and v == n else v for k, v in attrs.items()}


def _with_any(attrs: dict[str, Any], n: int) -> dict[str, Any]:
    return {k: tuple(B if type(d) is int and d == n else d for d in v)
            if k in ("shape", "stop", "size") and isinstance(v, tuple) else v
            for k, v in attrs.items()}


def _first(sample: Sample, arrays: list[Array], ways: list[Way]) -> tuple[Graph, int] | RLXError:
    first: RLXError | None = None
    for shapes, attrs, n in ways:
        try:
            return _graph(sample, arrays, shapes, attrs), n
        except RLXError as error:
            first = first or error
        except TypeError as error:
            if sample.prepare is None or "SeedSequence" not in str(error):
                raise
            first = first or rlx.ShapeError("the sample makes arrays of its inputs' sizes")
    assert first is not None
    return first


def _graph(sample: Sample, arrays: list[Array], shapes: dict[int, Any],
           attrs: dict[str, Any]) -> Graph:
    g = Graph(str(sample))
    inputs = [g.input(f"x{i}", shapes.get(i, a.shape), a.dtype) for i, a in enumerate(arrays)]
    node = Sample(sample.op, sample.name, sample.arrays, attrs, prepare=sample.prepare).node(
        *inputs)
    results = list(node) if isinstance(node.type, TupleType) else [node]
    for i, result in enumerate(results):
        g.output(f"y{i}" if isinstance(node.type, TupleType) else "y", result)
    return g


def axes_of(sample: Sample) -> Iterator[int]:
    """The axes of the first input behind the first, of different sizes above 1."""
    if sample.arrays and not _is_key(sample.arrays[0]):
        shape = sample.arrays[0].shape
        yield from (i for i in range(1, len(shape))
                    if shape[i] > 1 and shape[i] not in shape[:i])
