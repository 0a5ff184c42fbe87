"""NumPy scalars, arrays and lists beside nodes take the nodes' element type where the kind allows.

Over every public function: of a call's tensors one at a time is an array of 64 bits, the others
are nodes of 32. And the rules one by one.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx_py as rlx
from support.calls import KEY, Call, Leaf, calls
from support.mutations import bound
from tests.ir.ops.test_arguments import nodes_of

Array = np.ndarray[Any, Any]
Path = tuple[Any, ...]
BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv,
          operator.mod, operator.pow, operator.lt, operator.ge, operator.eq, operator.ne]
VALUES = {"scalar": np.float64(1.1), "array": np.array([1.1, 2.2]), "list": [1.1, 2.2],
          "tuple": (1.1, 2.2), "rank 0": np.array(1.1)}


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Leaf]]:
    """The tensors of a call and where they lie."""
    if isinstance(value, Leaf):
        yield path, value
    elif isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for k, v in items:
            yield from leaves(v, (*path, k))


def replaced(value: Any, of: Callable[[Path], Any], path: Path = ()) -> Any:
    """The arguments of a call with something else in the place of each tensor."""
    if isinstance(value, Leaf):
        return of(path)
    if isinstance(value, dict):
        return {k: replaced(v, of, (*path, k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(replaced(v, of, (*path, k)) for k, v in enumerate(value))
    return value


def types(call: Call, of: Callable[[Path], Any]) -> list[rlx.TensorType]:
    positional, named, _ = bound(call, replaced(call.args, of), rlx.Graph("g"))
    return [n.tensor for n in nodes_of(call.function(*positional, **named))]


CALLS = {c.name: (c, dict(leaves(c.args))) for c in calls()}
PLACES = [pytest.param(c, places, at, id=f"{name}-{'.'.join(map(str, at))}")
          for name, (c, places) in CALLS.items() for at in places
          if any(leaf != KEY for path, leaf in places.items() if path != at)]


@pytest.mark.parametrize("kind", ["array", "list"])
@pytest.mark.parametrize(("call", "places", "at"), PLACES)
def test_the_nodes_element_type_is_kept(call: Call, places: dict[Path, Leaf], at: Path,
                                        kind: str) -> None:
    rng, g = np.random.default_rng(0), rlx.Graph("g")
    nodes = {path: g.input(f"x{i}", leaf.shape, rlx.f32 if leaf.dtype is rlx.f64 else leaf.dtype)
             for i, (path, leaf) in enumerate(places.items())}
    array = places[at].array(rng)
    wide = {"f": np.float64, "i": np.int64, "u": np.int64, "b": np.bool_}[array.dtype.kind]
    given = array.astype(wide) if kind == "array" else array.tolist()
    found = types(call, lambda path: given if path == at else nodes[path])
    assert found == types(call, nodes.__getitem__)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("dtype", [rlx.f64, rlx.f32, rlx.f16, rlx.bf16], ids=str)
@pytest.mark.parametrize("combine", BINARY, ids=lambda f: f.__name__)
def test_operators_on_either_side(combine: Any, dtype: rlx.DType, value: Any) -> None:
    g = rlx.Graph("g")
    x = g.input("x", (2,), dtype)
    as_its_own = rlx.constant(np.asarray(value), dtype)
    left, right = combine(x, value), combine(value, x)
    assert left.tensor == combine(x, as_its_own).tensor and left.dtype in (dtype, rlx.bool)
    assert right.tensor == combine(as_its_own, x).tensor
    for i, (found, wanted) in enumerate([(left, combine(x, as_its_own)),
                                         (right, combine(as_its_own, x))]):
        g.output(f"found{i}", found)
        g.output(f"wanted{i}", wanted)
    out = rlx.evaluate(g, {"x": np.array([1.5, -2]).astype(dtype.numpy)})
    for i in range(2):
        np.testing.assert_array_equal(out[f"found{i}"].astype(np.float64),
                                      out[f"wanted{i}"].astype(np.float64))


def test_a_network_stays_in_its_type() -> None:
    g = rlx.Graph("g")
    x = g.input("x", (2, 4))
    assert (x @ np.ones((4, 4)) / np.sqrt(4)).dtype is rlx.f32
    assert (x @ np.ones((4, 4)).tolist()).dtype is rlx.f32
    assert (np.ones((3, 2)) @ x).dtype is rlx.f32
    assert rlx.clip(x, np.float64(0), np.ones(4)).dtype is rlx.f32
    assert rlx.power(x, np.array([0.5] * 4)).dtype is rlx.f32
    assert (x ** np.float64(0.5)).dtype is rlx.f32
    assert rlx.where(x > 0, x, np.zeros(4)).dtype is rlx.f32
    assert rlx.concatenate([np.zeros((1, 4)), x, [[1.0] * 4]]).dtype is rlx.f32
    assert rlx.einsum("ij,jk->ik", x, np.ones((4, 3))).dtype is rlx.f32


@pytest.mark.parametrize("array", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_floats_are_one_kind(array: Any) -> None:
    g = rlx.Graph("g")
    for dtype in (rlx.f64, rlx.f32, rlx.f16, rlx.bf16):
        x = g.input(str(dtype), (2,), dtype)
        assert (x + np.ones(2, array)).dtype is dtype
        assert (array(1) * x).dtype is dtype
    for dtype in (rlx.i64, rlx.i32, rlx.i8, rlx.u32, rlx.u8, rlx.bool):
        x = g.input(str(dtype), (2,), dtype)
        assert (x + np.ones(2, array)).dtype is rlx.f32  # as a Python float
        assert rlx.where(x, array(1), np.ones(2, array)).dtype is rlx.f32


@pytest.mark.parametrize("array", [np.int64, np.int32, np.int8, np.uint32, np.uint8])
def test_integers_are_one_kind(array: Any) -> None:
    g = rlx.Graph("g")
    for dtype in (rlx.i64, rlx.i32, rlx.i8, rlx.u32, rlx.u8):
        x = g.input(str(dtype), (2,), dtype)
        assert (x + np.ones(2, array)).dtype is dtype
        assert (array(1) * x).dtype is dtype
    for dtype in (rlx.f64, rlx.f32, rlx.f16, rlx.bf16):
        assert (g.input(str(dtype), (2,), dtype) + array(1)).dtype is dtype
    mask = g.input("mask", (2,), rlx.bool)
    assert (mask + np.ones(2, array)).dtype.numpy == array


def test_bools_give_way() -> None:
    g = rlx.Graph("g")
    for dtype in (rlx.f32, rlx.bf16, rlx.i8, rlx.bool):
        assert (g.input(str(dtype), (2,), dtype) * np.array([True, False])).dtype is dtype


@pytest.mark.parametrize(("dtype", "value"), [
    (rlx.i8, np.int64(128)), (rlx.u8, np.array([0, -1])), (rlx.u32, [2**32]), (rlx.i32, [[2**40]]),
    (rlx.i8, 128), (rlx.f32, np.float64(1e39)), (rlx.f16, np.array([1.0, 7e4])), (rlx.f16, 7e4),
    (rlx.f16, np.int64(70000)), (rlx.f16, 70000), (rlx.bf16, -3.4e38 * 1.1), (rlx.f32, [1e300])])
def test_what_does_not_fit_is_a_typed_error(dtype: rlx.DType, value: Any) -> None:
    x = rlx.Graph("g").input("x", (2,), dtype)
    for combine in (operator.add, operator.mul, operator.lt, operator.eq):
        for left, right in ((x, value), (value, x)):
            with pytest.raises(rlx.DTypeError, match=f"does not fit {dtype}") as caught:
                combine(left, right)
            assert re.search(r"\n  at .*test_beside_nodes\.py:\d+$", str(caught.value))
    with pytest.raises(rlx.DTypeError, match=f"does not fit {dtype}"):
        rlx.where(x > 0, x, value)


def test_infinities_and_what_rounds_to_zero_fit() -> None:
    x = rlx.Graph("g").input("x", (2,), rlx.f16)
    for value in (np.inf, -np.inf, np.nan, 1e-30, np.array([np.inf, np.nan]), np.float64(65519)):
        assert (x + value).dtype is rlx.f16


def test_nodes_promote_among_themselves() -> None:
    g = rlx.Graph("g")
    x, y, i = g.input("x", (2,)), g.input("y", (2,), rlx.f64), g.input("i", (2,), rlx.i32)
    assert (x * y).dtype is rlx.f64
    assert (x * rlx.constant(np.ones(2))).dtype is rlx.f64
    assert rlx.where(np.array([True, False]), x, y).dtype is rlx.f64
    assert rlx.concatenate([i, np.ones(2), x]).dtype is rlx.f32
    assert rlx.concatenate([i, np.ones(2), y]).dtype is rlx.f64
    assert rlx.concatenate([i, np.ones(2, np.int64)]).dtype is rlx.i32


def test_without_nodes_arrays_keep_their_type() -> None:
    assert rlx.add(np.ones(2), np.float32(1)).dtype is rlx.f64
    assert rlx.where(np.array([True, False]), np.ones(2), 0).dtype is rlx.f64
    assert rlx.exp(np.ones(2)).dtype is rlx.f64 and rlx.exp(np.float16(1)).dtype is rlx.f16
    assert rlx.constant(np.ones(2)).dtype is rlx.f64
    assert rlx.concatenate([np.ones(2), np.ones(2, np.float32)]).dtype is rlx.f64


def test_the_dtype_that_a_call_names_is_what_arrays_are_for() -> None:
    x = rlx.Graph("g").input("x", (2,))
    full = rlx.full_like(x, np.float64(0.1), dtype=rlx.f64)
    g = rlx.Graph("g")
    g.output("y", full)
    np.testing.assert_array_equal(rlx.evaluate(g, {})["y"], [0.1, 0.1])
    key = rlx.random.key(0)
    by_name = rlx.random.uniform(key, (3,), minval=np.full(3, 0.1), maxval=0.1, dtype=rlx.f64)
    by_position = rlx.random.uniform(key, (3,), rlx.f64, np.full(3, 0.1), 0.1)
    g.output("by_name", by_name)
    g.output("by_position", by_position)
    for name in ("by_name", "by_position"):
        np.testing.assert_array_equal(rlx.evaluate(g, {})[name], [0.1] * 3)


def test_positions_are_left_alone() -> None:
    x = rlx.Graph("g").input("x", (300,), rlx.i8)
    assert rlx.take(x, np.array([299])).dtype is rlx.i8
    assert x[np.array([299, 256])].shape == (2,)


def test_carries_and_arguments_of_control() -> None:
    g = rlx.Graph("g")
    xs = g.input("xs", (5, 3))
    last, _ = rlx.scan(lambda s, x: (s + x, None), np.zeros(3), xs)
    assert last.dtype is rlx.f32
    both, _ = rlx.scan(lambda s, x: ((s[0] + x, s[1] * 2.0), None), (np.zeros(3), 1.0), xs)
    assert [n.dtype for n in both] == [rlx.f32, rlx.f32]
    chosen = rlx.cond(xs[0, 0] > 0, lambda a, b: a + b, lambda a, b: a - b, xs, np.ones(3))
    assert chosen.dtype is rlx.f32
    alone = rlx.while_loop(lambda s: s["x"].sum() < 9, lambda s: {"x": s["x"] * 2},
                           {"x": np.ones(3)})
    assert alone["x"].dtype is rlx.f64


def test_on_a_tape() -> None:
    w = rlx.Parameter(np.ones((2, 2), np.float32))
    with rlx.Tape() as tape:
        y = (np.ones((3, 2)) @ w / np.sqrt(2) - [0.5, 0.5]) ** 2
        loss = y.mean()
    assert y.dtype is rlx.f32 and y.numpy().dtype == np.float32
    tape.backward(loss)
    assert w.grad.dtype == np.float32


@pytest.mark.parametrize("value", [np.int16(1), np.uint64(1), np.ones(2, np.complex64)], ids=repr)
def test_a_type_there_is_none_for_is_named(value: Any) -> None:
    x = rlx.Graph("g").input("x", (2,))
    with pytest.raises(rlx.DTypeError, match="element type .* is not one of"):
        x + value


def test_a_random_key_is_no_operand() -> None:
    key = rlx.random.key(0)
    assert rlx.nn.dropout(np.ones(3), key=key).dtype is rlx.f64
    assert rlx.random.permutation(key, np.ones(3)).dtype is rlx.f64
