"""What calls take for arrays, what they convert, and that no address they use is stale."""

from __future__ import annotations

import copy
import ctypes
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.backends.llvm.places import Place, Places
from rlx_py.ir.base.arrays import as_array
from rlx_py.ir.base.types import DTYPES, FLOATS, INTS, DType, TensorType, f32, i32

Array = np.ndarray[Any, Any]
each_backend = pytest.mark.parametrize("backend", ["cpu", "reference"])


def taken(value: Any, dtype: DType = f32, shape: tuple[int, ...] = (2,),
          **options: Any) -> Array:
    return as_array("x", value, TensorType(dtype, shape), **options)


# ---- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", FLOATS, ids=str)
@pytest.mark.parametrize("of", FLOATS, ids=str)
def test_floats_become_floats_and_what_is_finite_stays_finite(of: Any, to: Any) -> None:
    special = np.array([0.5, -0.0, np.nan, np.inf, -np.inf, 3.0], of.numpy)
    found = taken(special, to, (6,))
    assert found.dtype == to.numpy
    np.testing.assert_array_equal(found.astype(float), special.astype(float))
    assert np.signbit(found[1])
    most = ml_dtypes.finfo(of.numpy).max  # type: ignore[no-untyped-call]
    for size in (1, 7, 1000):  # scalar, vector and tail of NumPy's loops
        large = np.zeros(size, of.numpy)
        large[-1] = most
        with np.errstate(all="ignore"):
            fits = np.isfinite(large.astype(to.numpy)).all()
        if fits:
            assert (taken(large, to, (size,)) == large.astype(to.numpy)).all()
        else:
            with pytest.raises(rlx.DTypeError, match=f"finite .* becomes infinite in {to}"):
                taken(large, to, (size,))


@pytest.mark.parametrize("to", INTS, ids=str)
@pytest.mark.parametrize("of", [*(d.numpy for d in INTS), *map(np.dtype, ("i2", "u2", "u8"))],
                         ids=str)
def test_integers_become_integers_that_hold_them(of: Any, to: Any) -> None:
    had, has = np.iinfo(of), np.iinfo(to.numpy)
    for value in (had.min, had.max, max(had.min, has.min), min(had.max, has.max), 0):
        array = np.zeros(5, of)
        array[3] = value
        if has.min <= value <= has.max:
            assert taken(array, to, (5,)).tolist() == [0, 0, 0, value, 0]
        else:
            with pytest.raises(rlx.DTypeError, match=f"'x': {value} does not fit {to}"):
                taken(array, to, (5,))


@pytest.mark.parametrize(("value", "dtype", "want"), [
    ([1, 2], "f32", [1, 2]), ((1.5, 2), "f32", [1.5, 2]), ([True, False], "f32", [1, 0]),
    ([2**70, 1], "f32", [2.0**70, 1]), ([np.float64(0.5), 1], "f32", [0.5, 1]),
    ([1, 2], "bf16", [1, 2]), ([1, 2], "i32", [1, 2]), ([True, False], "i32", [1, 0]),
    ([np.int64(1), 2], "u8", [1, 2]), ([True, False], "bool", [True, False]),
    ([0.1, float("inf")], "f32", [np.float32(0.1), np.inf])])
def test_lists_take_the_type_of_their_place(value: Any, dtype: str, want: Any) -> None:
    assert taken(value, DTYPES[dtype]).tolist() == np.asarray(want, DTYPES[dtype].numpy).tolist()


def test_numbers_and_empty_lists_take_the_type_of_their_place() -> None:
    for value, name in ((3, "f32"), (True, "f32"), (2.5, "f16"), (7, "i8"), (False, "bool"),
                        (np.float64(0.5), "f32"), (np.int64(7), "u8")):
        assert taken(value, DTYPES[name], ()) == value
    for dtype in DTYPES.values():
        assert taken([[], []], dtype, (2, 0)).dtype == dtype.numpy


@pytest.mark.parametrize(("value", "dtype", "words"), [
    (np.array([1, 2]), "f32", "not i64"), ([np.int64(1), 2], "f32", "not i64"),
    ([np.array(1), np.array(2)], "f32", "not i64"), ([1.0, 2], "i32", "not f64"),
    (np.ones(2, bool), "f32", "not bool"), (np.ones(2, bool), "i32", "not bool"),
    ([1, 0], "bool", "not i64"), (np.array([1, 0]), "bool", "not i64"),
    ([1j, 0], "f32", "complex128"), ([None, 1], "f32", "object"), (["a", "b"], "f32", "<U1"),
    ([2**70, 1], "i64", "1180591620717411303424 does not fit i64"), ([-1, 0], "u8", "-1 does not"),
    ([1e39, 0], "f32", "becomes infinite"), ([70000, 0], "f16", "becomes infinite"),
    (np.ma.array([1.0, 2.0]), "f32", "filled")])
def test_other_kinds_and_what_does_not_fit_are_refused(value: Any, dtype: str, words: str) -> None:
    with pytest.raises(rlx.DTypeError, match=words):
        taken(value, DTYPES[dtype])


def test_what_is_no_array_is_refused() -> None:
    class Elsewhere:
        def __dlpack__(self) -> Any:
            raise BufferError("it is on another device")

    for value in ("ab", None, {}, {1, 2}, object(), b"ab", Elsewhere()):
        with pytest.raises(rlx.ArgumentError, match="'x' takes"):
            taken(value)
    for ragged in ([[1.0], [1.0, 2.0]], [10**400, 1]):
        with pytest.raises(rlx.ShapeError, match="no array"):
            taken(ragged)
    with pytest.raises(rlx.ShapeError, match=r"f32\[2\], not f64\[\]"):
        taken(1.0)


def test_a_right_array_is_not_copied_and_any_layout_is_read() -> None:
    x = np.arange(8, dtype=np.float32)
    assert taken(x, f32, (8,)) is x
    for laid in (x[::-1], x.astype(">f4"), x.reshape(2, 4).T):
        found = taken(laid, f32, laid.shape)
        assert found.flags.carray and not np.shares_memory(found, laid)
        np.testing.assert_array_equal(found, laid)


# ---- calls -------------------------------------------------------------------------------------


def classifier() -> rlx.Graph:
    g = rlx.Graph("classifier")
    x, y = g.input("x", (4, 3)), g.input("y", (4,), rlx.i32)
    g.output("loss", rlx.softmax_cross_entropy(x @ g.param("w", (3, 5)), y).mean())
    return g


X = np.random.default_rng(0).standard_normal((4, 3))
Y, W = np.array([0, 4, 2, 1]), np.random.default_rng(1).standard_normal((3, 5))
NARROW = {"x": X.astype(np.float32), "y": Y.astype(np.int32), "w": W.astype(np.float32)}


@each_backend
def test_the_defaults_of_numpy_are_taken(backend: str) -> None:
    exe = rlx.compile(classifier(), backend)
    want = exe(**NARROW).loss
    assert exe(x=X, y=Y, w=W).loss == want
    assert exe(x=X.tolist(), y=Y.tolist(), w=W.tolist()).loss == want
    assert exe(x=X.astype(">f8"), y=Y.astype(np.uint8), w=np.asfortranarray(W)).loss == want
    assert exe.profile(x=X, y=Y, w=W).kernels and exe.find_nan(x=X, y=Y, w=W) is None
    assert rlx.evaluate(exe.graph, {"x": X, "y": Y, "w": W})["loss"] == want or backend == "cpu"
    with pytest.raises(rlx.DTypeError, match="'y'.*does not fit i32"):
        exe(x=X, y=Y + 2**40, w=W)
    step = rlx.compile(rlx.train_step(classifier(), of="loss", optimizer=rlx.optim.adam(0.1)),
                       backend)
    state, other = step.init({"w": W}), step.init({"w": NARROW["w"]})
    for _ in range(3):
        assert step.step(state, x=X, y=Y).loss == step.step(
            other, x=NARROW["x"], y=NARROW["y"]).loss


@each_backend
def test_strict_converts_nothing(backend: str) -> None:
    exe = rlx.compile(classifier(), backend, strict=True)
    assert np.isfinite(exe(**NARROW).loss)
    step = rlx.compile(rlx.train_step(classifier(), of="loss", optimizer=rlx.optim.sgd(0.1)),
                       backend, strict=True)
    state = step.init({"w": NARROW["w"]})
    for name, wrong in (("x", X), ("y", Y), ("w", W), ("x", X.tolist()), ("y", Y.tolist())):
        with pytest.raises(rlx.DTypeError, match=f"{name!r}.*strict=True"):
            exe(**{**NARROW, name: wrong})
        if name != "w":
            given = {k: v for k, v in NARROW.items() if k != "w"}
            with pytest.raises(rlx.DTypeError, match=f"{name!r}.*strict=True"):
                step.step(state, **{**given, name: wrong})
    with pytest.raises(rlx.DTypeError, match="strict=True"):
        step.init({"w": W})


def test_strict_holds_for_every_kind_of_executable(tmp_path: Any) -> None:
    B = rlx.dim("B")
    g = rlx.Graph("any")
    g.output("y", g.input("x", (B,)).sum())
    traced = rlx.trace(lambda p: p["x"].sum(), {"x": rlx.spec((3,))})
    path = rlx.compile(rlx.bind(g, {"B": 3})).export(tmp_path / "any")
    for strict in (False, True):
        runs: list[Any] = [rlx.compile(h, strict=strict) for h in (g, traced)]
        runs.append(rlx.load(path, strict=strict))
        for run in runs:
            for wide in (np.ones(3), [1.0] * 3):
                if strict:
                    with pytest.raises(rlx.DTypeError, match="strict=True"):
                        run(x=wide)
                else:
                    assert next(iter(run(x=wide).values())) == 3
            assert next(iter(run(x=np.ones(3, np.float32)).values())) == 3


def test_buffers_are_used_again_and_never_seen() -> None:
    g = rlx.Graph("id")
    x = g.input("x", (1000,))
    g.output("y", x + 0)
    exe = rlx.compile(g)
    found = [exe(x=np.full(1000, float(n))).y for n in range(4)]
    assert [y[0] for y in found] == [0, 1, 2, 3]
    assert len(exe._called._spare["x"]) == 1
    with ThreadPoolExecutor(8) as pool:
        for n, y in enumerate(pool.map(lambda n: exe(x=np.full(1000, float(n))).y, range(200))):
            assert (y == n).all()
    assert len(exe._called._spare["x"]) <= 8


def test_what_is_written_is_never_converted() -> None:
    exe = rlx.compile(classifier())
    wrong: Any
    for wrong in (np.zeros(()), [0.0], np.zeros((), np.int32)):
        with pytest.raises(rlx.RLXError, match=r"out\['loss'\]"):
            exe(**NARROW, out={"loss": wrong})
    step = rlx.compile(rlx.train_step(classifier(), of="loss", optimizer=rlx.optim.sgd(0.1)))
    given = {"x": X, "y": Y}
    for wrong, error, words in ((W, rlx.DTypeError, r"f32\[3,5\], not f64.*exe\.init"),
                                (W.tolist(), rlx.ArgumentError, "list, not an array"),
                                (NARROW["w"][:2], rlx.ShapeError, r"not f32\[2,5\]"),
                                (np.asfortranarray(W).astype(np.float32), rlx.ArgumentError,
                                 "C-contiguous")):
        state = step.init({"w": W})
        state.params["w"] = wrong
        with pytest.raises(error, match=f"'w' of the state.*{words}"):
            step.step(state, **given)
        step.step(step.init({"w": wrong if np.shape(wrong) == (3, 5) else W}), **given)


@each_backend
def test_tools_run_a_step_without_writing(backend: str) -> None:
    exe = rlx.compile(rlx.train_step(classifier(), of="loss", optimizer=rlx.optim.adam(0.1)),
                      backend)
    state = exe.init({"w": W})
    exe.step(state, x=X, y=Y)
    before = copy.deepcopy(state)
    assert exe.profile(**state.params, **state.states, x=X, y=Y).kernels
    assert exe.find_nan(**state.params, **state.states, x=X, y=Y) is None
    for table in ("params", "states"):
        for name, array in getattr(state, table).items():
            np.testing.assert_array_equal(array, getattr(before, table)[name])


# ---- addresses ---------------------------------------------------------------------------------


def moved_by_setstate(a: Array) -> None:
    a.__setstate__((1, a.shape, a.dtype, False, (a + 1).tobytes()))  # type: ignore[arg-type]


def moved_by_resize(a: Array) -> None:
    size, values = a.size, a + 1
    a.resize((100_000,), refcheck=False)
    keep = np.ones(1000)  # what may lie where it was
    a.resize((size,), refcheck=False)
    a[:] = values
    del keep


@each_backend
@pytest.mark.parametrize("move", [moved_by_setstate, moved_by_resize])
def test_an_array_that_moved_is_read_where_it_is(backend: str, move: Callable[[Array], None]
                                                 ) -> None:
    g = rlx.Graph("double")
    g.output("y", g.input("x", (5,)) * 2)
    g.update("w", g.param("w", (5,)) + g.inputs["x"])
    exe = rlx.compile(g, backend)
    x = np.arange(5, dtype=np.float32)
    state = exe.init({"w": np.zeros(5)})
    for n in range(4):
        assert exe(x=x, w=x, discard_updates=True).y.tolist() == (2 * x).tolist()
        w = state.params["w"]
        want = w + x
        exe.step(state, x=x)
        np.testing.assert_array_equal(w, want)
        assert n == 0 or w[0] > 0
        move(x)
        move(w)


CHANGES: dict[str, tuple[Callable[[Array], None], type[rlx.RLXError]]] = {
    "reshaped": (lambda a: setattr(a, "shape", (2, 3)), rlx.ShapeError),
    "another type": (lambda a: setattr(a, "dtype", np.int32), rlx.DTypeError),
    "shrunk": (lambda a: a.resize((1,), refcheck=False), rlx.ShapeError),
    "read-only": (lambda a: a.setflags(write=False), rlx.ArgumentError),
    "strided": (lambda a: setattr(a, "strides", (0,)), rlx.ArgumentError),
    "swapped": (lambda a: setattr(a, "dtype", np.dtype(np.float32).newbyteorder()),
                rlx.DTypeError),
}


@each_backend
@pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")
@pytest.mark.parametrize(("change", "error"), CHANGES.values(), ids=CHANGES)
def test_a_state_changed_after_the_first_step_is_refused(
        backend: str, change: Callable[[Array], None], error: type[rlx.RLXError]) -> None:
    g = rlx.Graph("sum")
    g.update("w", g.param("w", (6,)) + g.input("x", (6,)))
    g.output("y", g.params["w"].sum())
    exe = rlx.compile(g, backend)
    state = exe.init({"w": np.ones(6)})
    x = np.ones(6, np.float32)
    exe.step(state, x=x)
    change(state.params["w"])
    before = state.params["w"].copy()
    with pytest.raises(error, match="'w' of the state"):
        exe.step(state, x=x)
    np.testing.assert_array_equal(state.params["w"], before)


def test_what_lies_in_memory_is_what_numpy_says() -> None:
    for dtype in DTYPES.values():
        for shape in ((), (1,), (3, 4), (0, 2), (2, 1, 3)):
            places = Places([Place(TensorType(dtype, shape), 1), Place(TensorType(i32, ()), 0)])
            a, b = np.zeros(shape, dtype.numpy), np.zeros((), np.int32)
            slots = np.zeros(2, np.uint64)
            frame = places.frame(slots.ctypes.data)
            at = ctypes.addressof(frame)
            assert places.find((a, b), at) == -1
            assert slots.tolist() == [b.ctypes.data, a.ctypes.data]
            assert places.find((pickle.loads(pickle.dumps(a)), b), at) == -1
            assert places.find((a[None], b), at) == 0
            assert places.find((a, b.view(np.uint32)), at) == 1
    one, slot = Places([Place(TensorType(f32, (4,)), 0)]), np.zeros(1, np.uint64)
    x, frame = np.ones(8, np.float32), one.frame(slot.ctypes.data)
    raw = np.zeros(17, np.uint8)[1:].view(np.float32)
    for wrong in (x, x[::2], x[:4][::-1], x[:3], x[:4].astype(">f4"), x[:4].view(np.int32),
                  np.ma.array(x[:4]), x[:4].view(np.recarray), raw, x[0], 1.0, None):
        assert one.find((wrong,), ctypes.addressof(frame)) == 0
    x.setflags(write=False)
    assert one.find((x[:4],), ctypes.addressof(frame)) == -1
    write = Places([Place(TensorType(f32, (4,)), 0, written=True)])
    frame = write.frame(slot.ctypes.data)
    assert write.find((x[:4],), ctypes.addressof(frame)) == 0


def test_subclasses_and_equal_types_of_another_number_are_written_in_place(tmp_path: Any) -> None:
    g = rlx.Graph("count")
    g.update("n", g.param("n", (3,), rlx.i64) + 1)
    g.update("w", g.param("w", (3,)) + 1)
    exe = rlx.compile(g)
    state = exe.init({"n": [1, 2, 3], "w": [0, 0, 0]})
    state.params["n"] = np.zeros(3, np.longlong)
    state.params["w"] = np.memmap(tmp_path / "w", np.float32, "w+", shape=(3,))
    for _ in range(2):
        exe.step(state)
    assert state.params["n"].tolist() == [2, 2, 2] and state.params["w"].tolist() == [2, 2, 2]


# ---- one array in two places -------------------------------------------------------------------


def two() -> rlx.Executable:
    g = rlx.Graph("two")
    x, a, b = g.input("x", (4,)), g.param("a", (4,)), g.param("b", (4,))
    g.param("kept", (4,))
    g.state("m", (4,))
    g.next("m", x)
    g.update("a", a + b * x)
    g.update("b", b + 1)
    g.output("y", a.sum() + g.params["kept"].sum())
    return rlx.compile(g)


@pytest.mark.parametrize("backend", ["cpu"])
def test_one_array_in_two_places_of_a_state_is_refused(backend: str) -> None:
    exe, line, x = two(), np.zeros(7, np.float32), np.ones(4, np.float32)

    def state() -> rlx.State:
        return exe.init(dict.fromkeys(("a", "b", "kept"), np.zeros(4)))

    for one, other in (("a", "b"), ("a", "kept"), ("b", "m"), ("kept", "m")):
        for first, second in ((line[:4], line[:4]), (line[:4], line[3:]), (line[2:6], line[:4])):
            s = state()
            exe.step(s, x=x)
            for name, array in ((one, first), (other, second)):
                (s.states if name == "m" else s.params)[name] = array
            before = line.copy()
            with pytest.raises(rlx.ArgumentError, match=f"'({one}|{other})' of the state and "
                               f"'({one}|{other})' of the state share memory"):
                exe.step(s, x=x)
            np.testing.assert_array_equal(line, before)
    line = np.zeros(12, np.float32)
    s = state()
    s.params |= {"a": line[4:8], "b": line[8:], "kept": line[:4]}  # side by side is apart
    exe.step(s, x=x)
    assert line.tolist() == [0] * 8 + [1] * 4


def test_frozen_arrays_may_share_memory_and_be_read_only() -> None:
    g = rlx.Graph("tied")
    x, e, d = g.input("x", (4,)), g.param("e", (4,)), g.param("d", (4,))
    g.update("w", g.param("w", (4,)) + x * e * d)
    exe = rlx.compile(g)
    state = exe.init(dict.fromkeys("edw", np.ones(4)))
    state.params["e"] = state.params["d"] = np.full(4, 2, np.float32)
    state.params["e"].setflags(write=False)
    exe.step(state, x=np.ones(4))
    assert state.params["w"].tolist() == [5] * 4


def test_an_input_that_holds_the_state_is_read_as_it_was() -> None:
    """Whichever of the two is a view of the other."""
    g = rlx.Graph("shift")
    x, w = g.input("x", (6,)), g.param("w", (4,))
    g.update("w", w + x[1:5])
    g.output("y", (x * 1).sum())
    exe = rlx.compile(g)
    for lo in range(3):
        line = np.arange(6, dtype=np.float32)
        state = exe.init({"w": np.zeros(4)})
        state.params["w"] = line[lo : lo + 4]
        want = line.copy()
        want[lo : lo + 4] += line[1:5]
        exe.step(state, x=line)
        np.testing.assert_array_equal(line, want)
