"""Wrong input is a typed error before anything runs, and odd input is handled; never a crash."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py import nn

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def here() -> int:
    """The line of the caller."""
    return sys._getframe(1).f_lineno


# ---- while the graph is built ----------------------------------------------------------------

G = rlx.Graph("leaves")
X, Y = G.input("x", (3, 4)), G.input("y", (5, 6))
N, IMAGE = G.input("n", (3,), rlx.i32), G.input("image", (2, 3, 8, 8))

# What is called, the error, what its message names beside the line.
MISTAKES: list[tuple[Callable[[], Any], type[rlx.RLXError], str]] = [
    (lambda: X + Y, rlx.ShapeError, r"f32\[3,4\].*f32\[5,6\]|\(3, 4\).*\(5, 6\)"),
    (lambda: X @ Y, rlx.ShapeError, r"matmul.*f32\[3,4\].*f32\[5,6\]"),
    (lambda: nn.relu(N), rlx.DTypeError, r"relu.*i32"),
    (lambda: rlx.bitwise_and(X, X), rlx.DTypeError, r"and.*f32"),
    (lambda: X.sum(2), rlx.ArgumentError, r"axis 2"),
    (lambda: X.reshape(5, 5), rlx.ShapeError, r"reshape.*f32\[3,4\]"),
    (lambda: rlx.concatenate([X, Y], 0), rlx.ShapeError, r"f32\[3,4\].*f32\[5,6\]"),
    (lambda: rlx.take(X, X), rlx.DTypeError, r"f32"),
    (lambda: X[7], rlx.ArgumentError, r"7"),
    (lambda: X.transpose(0, 0), rlx.ArgumentError, r"axes"),
    (lambda: nn.linear(X, Y), rlx.ShapeError, r"linear.*f32\[3,4\].*f32\[5,6\]"),
    (lambda: nn.conv2d(IMAGE, G.leaves["x"]), rlx.ShapeError, r"conv.*f32\[2,3,8,8\]"),
    (lambda: nn.layer_norm(X, 5), rlx.ShapeError, r"f32\[3,4\]"),
    (lambda: nn.softmax(N), rlx.DTypeError, r"softmax.*i32"),
    (lambda: nn.max_pool2d(IMAGE, 9), rlx.ShapeError, r"max_pool.*f32\[2,3,8,8\]"),
    (lambda: nn.softmax_cross_entropy(X, X[0]), rlx.ShapeError, r"f32\[3,4\].*f32\[4\]"),
    (lambda: rlx.left_shift(X, X), rlx.DTypeError, r"shl.*f32"),
    (lambda: bool(X > 0), rlx.ArgumentError, r"truth value"),
]


@pytest.mark.parametrize("call,error,names", MISTAKES)
def test_a_mistake_is_reported_at_its_own_line(
    call: Callable[[], Any], error: type[rlx.RLXError], names: str
) -> None:
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert re.search(names, message, re.DOTALL), message
    assert f"{__file__}:{call.__code__.co_firstlineno}" in message, message


def test_the_line_is_that_of_the_node_and_not_of_a_pass() -> None:
    g = rlx.Graph()
    x = g.input("x", (3, 2))
    made = rlx.exp(x); line = here()  # noqa: E702
    assert made.loc == (__file__, line)
    g.output("y", made)
    with pytest.raises(rlx.ShapeError, match=f"{re.escape(__file__)}:{line}"):
        rlx.grad(g, of="y", wrt="x")


@pytest.mark.parametrize("shape", [(2**62,), (2**32, 2**31), (2**61, 2), (2**40, 2**40, 0)])
def test_sizes_beyond_64_bits_are_shape_errors(shape: tuple[int, ...]) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: rlx.Graph().input("x", shape), lambda: rlx.zeros(shape),
        lambda: rlx.broadcast_to(rlx.Graph().input("x", ()), shape)]
    for call in calls:
        with pytest.raises(rlx.ShapeError, match="64-bit"):
            call()
    with pytest.raises(rlx.ShapeError, match="64-bit"):
        x = rlx.Graph().input("x", (2**31,))
        rlx.outer(x, x)


@pytest.mark.parametrize("shape", [(-1,), (2.5,), ("3",), (True,)])
def test_a_size_is_a_whole_number(shape: Any) -> None:
    with pytest.raises(rlx.ShapeError, match="test_bad_input"):
        rlx.Graph().input("x", shape)


def test_names_are_unique_and_known() -> None:
    g = rlx.Graph()
    x = g.input("x", (2,))
    no_node: Any = 3
    calls: list[Callable[[], Any]] = [
        lambda: g.input("x", (2,)), lambda: g.param("x", (2,)), lambda: g.input("", ()),
        lambda: g.output("y", no_node), lambda: g.next("m", x), lambda: g.update("w", x)]
    for call in calls:
        with pytest.raises(rlx.ArgumentError, match="test_bad_input"):
            call()
    g.output("y", x.sum())
    for of, wrt in (("z", "x"), ("y", "w")):
        with pytest.raises(rlx.ArgumentError, match="has no"):
            rlx.grad(g, of=of, wrt=wrt)
    n = g.input("n", (2,), rlx.i32)
    g.output("z", (x * n).sum())
    with pytest.raises(rlx.DTypeError):
        rlx.grad(g, of="z", wrt="n")


# ---- calls of compiled code ------------------------------------------------------------------


@pytest.fixture(scope="module")
def affine() -> rlx.Executable:
    g = rlx.Graph("affine")
    x, w, n = g.input("x", (3, 4)), g.param("w", (4, 5)), g.input("n", (3,), rlx.i32)
    g.output("y", x @ w + rlx.expand_dims(n, 1))
    return rlx.compile(g)


def given(**changed: Any) -> dict[str, Any]:
    values = {"x": np.ones((3, 4), np.float32), "w": np.ones((4, 5), np.float32),
              "n": np.arange(3, dtype=np.int32)}
    return {k: v for k, v in {**values, **changed}.items() if v is not None}


REFUSED: list[tuple[dict[str, Any], type[rlx.RLXError], str]] = [
    ({"w": None}, rlx.ArgumentError, "'w' is missing"),
    ({"z": np.ones(3, np.float32)}, rlx.ArgumentError, "no 'z'"),
    ({"x": np.ones((4, 3), np.float32)}, rlx.ShapeError, r"'x' takes f32\[3,4\], not f32\[4,3\]"),
    ({"x": np.ones(12, np.float32)}, rlx.ShapeError, r"f32\[12\]"),
    ({"x": np.ones((3, 4, 1), np.float32)}, rlx.ShapeError, r"f32\[3,4,1\]"),
    ({"x": np.float32(3)}, rlx.ShapeError, r"f32\[\]"),
    ({"x": 1.0}, rlx.ShapeError, r"f64\[\]"),
    ({"x": [[1.0] * 4] * 2}, rlx.ShapeError, r"f64\[2,4\]"),
    ({"x": np.ones((3, 4), int)}, rlx.DTypeError, r"not i64\[3,4\].*astype\('float32'\)"),
    ({"x": np.ones((3, 4), np.complex64)}, rlx.DTypeError, "complex64"),
    ({"x": np.ones((3, 4), object)}, rlx.DTypeError, "object"),
    ({"n": np.ones(3, np.float32)}, rlx.DTypeError, "f32"),
    ({"n": np.full(3, 2**32 - 1, np.uint32)}, rlx.DTypeError, "4294967295 does not fit i32"),
    ({"x": "text"}, rlx.ArgumentError, "str"),
    ({"x": {}}, rlx.ArgumentError, "dict"),
]


@pytest.mark.parametrize("changed,error,message", REFUSED)
def test_a_wrong_array_is_refused(affine: rlx.Executable, changed: dict[str, Any],
                                  error: type[rlx.RLXError], message: str) -> None:
    with pytest.raises(error, match=message):
        affine(**given(**changed))


def odd_layouts(x: Array) -> dict[str, Array]:
    """The same numbers laid out in other ways."""
    wide = np.zeros((6, 9), x.dtype)
    wide[::2, 1::2] = x
    raw = np.zeros(x.nbytes + 1, np.uint8)
    misaligned = raw[1:].view(x.dtype).reshape(x.shape)
    misaligned[...] = x
    frozen = x.copy()
    frozen.setflags(write=False)
    return {"transposed": np.ascontiguousarray(x.T).T, "strided": wide[::2, 1::2],
            "reversed": np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
            "misaligned": misaligned, "frozen": frozen, "fortran": np.asfortranarray(x),
            "broadcast": np.broadcast_to(x[:1], x.shape)}


@pytest.mark.parametrize("layout", odd_layouts(np.ones((3, 4), np.float32)))
def test_any_layout_is_read_right(affine: rlx.Executable, layout: str) -> None:
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    laid = odd_layouts(x)[layout]
    before = laid.copy()
    assert (layout == "misaligned") is not laid.flags.aligned
    np.testing.assert_array_equal(affine(**given(x=laid)).y, affine(**given(x=before)).y)
    np.testing.assert_array_equal(laid, before)


def test_out_is_checked_as_inputs_are(affine: rlx.Executable) -> None:
    arrays = given()
    y = np.zeros((3, 5), np.float32)
    assert affine(**arrays, out={"y": y}).y is y
    np.testing.assert_array_equal(y, affine(**arrays).y)
    frozen = y.copy()
    frozen.setflags(write=False)
    square = np.zeros((5, 5), np.float32)
    for wrong in (frozen, y.T.copy().T, y[:, :4], y.astype(np.float64), None, [1.0]):
        with pytest.raises(rlx.RLXError):
            affine(**arrays, out={"y": wrong})
    with pytest.raises(rlx.ArgumentError, match="no output"):
        affine(**arrays, out={"z": y})
    with pytest.raises(rlx.ArgumentError, match=r"'w' and out\['y'\] share memory"):
        affine(**{**arrays, "w": square[:4]}, out={"y": square[1:4]})


def test_outputs_may_not_overlap() -> None:
    g = rlx.Graph()
    x = g.input("x", (4,))
    g.output("a", x + 1)
    g.output("b", x + 2)
    line = np.zeros(6, np.float32)
    with pytest.raises(rlx.ArgumentError, match="share memory"):
        rlx.compile(g)(x=np.ones(4, np.float32), out={"a": line[:4], "b": line[2:]})


@pytest.fixture(scope="module")
def trained() -> rlx.Executable:
    g = rlx.Graph("step")
    x, w = g.input("x", (4,)), g.param("w", (4,))
    g.output("loss", ((x * w - 1) ** 2).sum())
    return rlx.compile(rlx.train_step(g, of="loss", optimizer=rlx.optim.sgd(0.1)))


@pytest.mark.parametrize("view", [lambda w: w, lambda w: w[:], lambda w: w[::-1]])
def test_state_given_as_an_input_is_read_before_it_changes(
    trained: rlx.Executable, view: Callable[[Array], Array]
) -> None:
    w = np.array([1.0, -2.0, 3.0, 0.5], np.float32)
    aliased, plain = trained.init({"w": w}), trained.init({"w": w})
    for _ in range(3):
        x = view(aliased.params["w"])
        want = trained.step(plain, x=x.copy())
        found = trained.step(aliased, x=x)
        assert found.loss == want.loss
        np.testing.assert_array_equal(aliased.params["w"], plain.params["w"])
    with pytest.raises(rlx.ArgumentError, match="share memory"):
        trained.step(plain, x=w, out={"loss": plain.params["w"][:1].reshape(())})


def test_a_foreign_state_is_refused(trained: rlx.Executable) -> None:
    g = rlx.Graph()
    g.output("y", g.param("v", (2,)).sum())
    other = rlx.compile(g).init({"v": np.ones(2, np.float32)})
    with pytest.raises(rlx.ArgumentError, match="state has no"):
        trained.step(other, x=np.ones(4, np.float32))
    with pytest.raises(rlx.ShapeError):
        trained.init({"w": np.ones(5, np.float32)})
    with pytest.raises(rlx.ArgumentError, match="missing"):
        trained.init({})


# ---- positions and labels outside ------------------------------------------------------------

GUARDED = '''
import ctypes, mmap, sys
import numpy as np, rlx_py as rlx
from rlx_py import nn
from rlx_py.ir.ops import arrays as rnp

libc = ctypes.CDLL(None)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
KEPT = []

def fenced(array):
    """A copy that ends at, and one that begins after, a page that may not be touched."""
    page = mmap.PAGESIZE
    size = -(-max(array.nbytes, 1) // page) * page
    found = []
    for at_end in (True, False):
        area = mmap.mmap(-1, size + 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(area))
        offset = page + (size - array.nbytes if at_end else 0)
        copy = np.frombuffer(area, np.uint8, array.nbytes, offset).view(array.dtype)
        copy = copy.reshape(array.shape)
        copy[...] = array
        for at in (start, start + page + size):
            assert libc.mprotect(at, page, 0) == 0
        KEPT.append(area)
        found.append(copy)
    return found

x = np.arange(12, dtype=np.float32).reshape(4, 3)
for dtype in sys.argv[1].split(","):
    limits = np.iinfo(dtype)
    idx = np.array([limits.min, limits.max, 4, 3, 0, limits.min // 2, limits.max // 2 + 1], dtype)
    u = np.ones((7, 3), np.float32)
    cases = {
        "take_error": lambda x, u, i: rnp.take(x, i, 0), "take_clip": lambda x, u, i:
        rnp.take(x, i, 0, mode="clip"), "take_fill": lambda x, u, i: rnp.take(x, i, 0, mode="fill"),
        "take_wrap": lambda x, u, i: rnp.take(x, i, 0, mode="wrap"),
        "index": lambda x, u, i: x[i], "pair": lambda x, u, i: x[i, i],
        "embedding": lambda x, u, i: nn.embedding(i, x),
        "along": lambda x, u, i: rnp.take_along_axis(x, rnp.stack([i, i, i], 1), 0),
        "cross_entropy": lambda x, u, i: nn.softmax_cross_entropy(u, i),
        "one_hot": lambda x, u, i: rnp.one_hot(i, 3) * x[0],
        **{f"scatter_{k}_{mode}": (lambda x, u, i, f=getattr(rnp, f"scatter_{k}"), mode=mode:
                                   f(x, i, u, 0, mode=mode))
           for k in ("add", "set", "max") for mode in ("error", "clip", "fill")},
    }
    for name, function in cases.items():
        g = rlx.Graph(name)
        g.output("y", function(g.input("x", x.shape), g.input("u", u.shape),
                               g.input("i", idx.shape, dtype)))
        back = rlx.vjp(g, ["x", "u"])
        whole = rlx.compile(back.derive({**g.outputs, **back.outputs}), threads=1)
        ct = np.ones(g.outputs["y"].shape, np.float32)
        for side in range(2):
            arrays = {"x": x, "u": u, "i": idx, "ct_y": ct}
            out = whole(**{k: fenced(a)[side] for k, a in arrays.items()},
                        out={k: fenced(np.empty(t.shape, t.dtype.numpy))[side]
                             for k, t in whole.interface.outputs.items()})
            assert all(np.isfinite(a).all() for a in out.values()), name
print("done")
'''
FENCED = GUARDED[:GUARDED.index("x = np.arange")] + '''
for width in (5, 31, 32, 33, 70, 200):
    x = np.random.default_rng(width).standard_normal((2, 6, width)).astype(np.float32)
    for size, stride, padding in ((3, 2, 1), (2, 2, 1), (4, 3, 2), (3, 1, 1), (5, 4, 2)):
        g = rlx.Graph("pool")
        y = nn.max_pool2d(g.input("x", x.shape), size, stride, padding)
        g.output("y", y)
        g.output("mean", nn.avg_pool2d(g.inputs["x"], size, stride, padding))
        back = rlx.vjp(g, "x")
        whole = back.derive({**g.outputs, **back.outputs})
        given = {"x": x} | {k: np.ones(n.shape, np.float32)
                            for k, n in back.inputs.items() if k != "x"}
        want = rlx.compile(whole, "reference")(**given)
        exe = rlx.compile(whole, threads=1)
        for side in range(2):
            out = exe(**{k: fenced(a)[side] for k, a in given.items()},
                      out={k: fenced(np.empty(t.shape, t.dtype.numpy))[side]
                           for k, t in exe.interface.outputs.items()})
            for name, got in out.items():
                np.testing.assert_allclose(got, want[name], 1e-5, 1e-5)
print("done")
'''


def fenced_run(code: str, *arguments: str) -> None:
    """In a process of its own, between pages that may not be touched."""
    found = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True,
                           text=True, timeout=300)
    assert found.returncode == 0, (found.returncode, found.stderr[-3000:])
    assert "done" in found.stdout


@pytest.mark.parametrize("dtypes", ["int32,int64", "int8,uint8,uint32"])
def test_no_position_reaches_outside_its_array(dtypes: str) -> None:
    fenced_run(GUARDED, dtypes)


def test_no_window_reaches_outside_its_array() -> None:
    fenced_run(FENCED)


def test_a_label_that_is_no_class_matches_none() -> None:
    logits = RNG.standard_normal((4, 3)).astype(np.float32)
    labels = np.array([-1, 3, 2**31 - 1, -(2**31)], np.int32)
    g = rlx.Graph()
    x = g.param("x", (4, 3))
    g.output("loss", nn.softmax_cross_entropy(x, g.input("labels", (4,), rlx.i32)).sum())
    out = rlx.compile(rlx.value_and_grad(g, of="loss"))(x=logits, labels=labels)
    sums = np.exp(logits).sum(1)
    np.testing.assert_allclose(out.loss, np.log(sums).sum(), rtol=1e-6)
    np.testing.assert_allclose(out.grad_x, np.exp(logits) / sums[:, None], rtol=1e-5)


# ---- numbers that are none -------------------------------------------------------------------

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3e38, 1e-45], np.float32)
FLOW: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "arithmetic": (lambda x: (x + 1) * x - x / x, lambda x: (x + 1) * x - x / x),
    "sum": (lambda x: x.sum(), lambda x: x.sum()),
    "cumsum": (lambda x: x.cumsum(0), lambda x: x.cumsum(0)),
    "max": (lambda x: x.max(), lambda x: x.max()), "min": (lambda x: x.min(), lambda x: x.min()),
    "argmax": (lambda x: x.argmax(), lambda x: x.argmax()),
    "maximum": (lambda x: rlx.maximum(x, 0.5), lambda x: np.maximum(x, np.float32(0.5))),
    "fmax": (lambda x: rlx.fmax(x, 0.5), lambda x: np.fmax(x, np.float32(0.5))),
    "compare": (lambda x: x < 1, lambda x: x < 1), "isnan": (rlx.isnan, np.isnan),
    "where": (lambda x: rlx.where(x > 0, x, -1.0), lambda x: np.where(x > 0, x, np.float32(-1))),
    "exp": (rlx.exp, np.exp), "log": (rlx.log, np.log), "sqrt": (rlx.sqrt, np.sqrt),
    "matmul": (lambda x: rlx.outer(x, x) @ x, lambda x: np.outer(x, x) @ x),
    "sort of": (lambda x: rlx.clip(x, -2, 2), lambda x: np.clip(x, -2, 2)),
}


@pytest.mark.parametrize("name", FLOW)
def test_nan_and_infinity_flow_as_in_numpy(name: str) -> None:
    ours, numpys = FLOW[name]
    for x in (SPECIAL, SPECIAL[1:3], SPECIAL[3:6], SPECIAL[5:]):
        g = rlx.Graph(name)
        g.output("y", ours(g.input("x", x.shape)))
        with np.errstate(all="ignore"):
            want = np.asarray(numpys(x))
        np.testing.assert_allclose(rlx.compile(g)(x=x).y, want, rtol=1e-6)


# ---- nothing at all --------------------------------------------------------------------------


def empty_network(rows: int) -> rlx.Graph:
    g = rlx.Graph("empty")
    x, labels = g.input("x", (rows, 2, 6, 6)), g.input("labels", (rows,), rlx.i32)
    h = nn.relu(nn.conv2d(x, g.param("k", (4, 2, 3, 3)), g.param("kb", (4,)), 1, 1))
    h = nn.max_pool2d(h, 2).reshape(rows, 36)
    h = nn.layer_norm(h, 36, g.param("s", (36,)), g.param("t", (36,)))
    h = rlx.take(g.param("table", (5, 36)), labels, 0) + nn.gelu(h)
    logits = nn.linear(rlx.cumsum(h, 1), g.param("w", (3, 36)), g.param("b", (3,)))
    g.output("probabilities", nn.softmax(logits))
    g.output("loss", nn.softmax_cross_entropy(logits, labels).sum())
    return g


def test_a_training_step_of_no_rows_changes_nothing() -> None:
    g = empty_network(0)
    exe = rlx.compile(rlx.train_step(g, of="loss", optimizer=rlx.optim.adam(0.1)))
    params = {k: RNG.standard_normal(n.shape).astype(np.float32) for k, n in g.params.items()}
    state = exe.init(params)
    out = exe.step(state, x=np.zeros((0, 2, 6, 6), np.float32), labels=np.zeros(0, np.int32))
    assert out.loss == 0 and out.probabilities.shape == (0, 3)
    for name, array in params.items():
        np.testing.assert_array_equal(state.params[name], array)


# ---- size, threads, processes ----------------------------------------------------------------

LARGE = '''
import sys, time
import numpy as np, rlx_py as rlx

def program(kind, count):
    g = rlx.Graph("large")
    x = y = g.input("x", (8, 8))
    w, size = g.param("w", (8, 8)), 1
    while size < count:
        if kind == "chain":
            y, size = rlx.tanh(y + x), size + 2
        else:
            y, size = rlx.tanh(y @ w + x), size + 3
    g.output("loss", y.sum())
    return g

def timed(g):
    start = time.process_time()
    exe = rlx.compile(g)
    return exe, time.process_time() - start

kind = sys.argv[1]
whole, seconds = timed(program(kind, 20000))
derived = rlx.value_and_grad(program(kind, 1500), of="loss", wrt=["x", "w"])
exe, _ = timed(derived)
values = {k: np.full(n.shape, 0.1, np.float32) for k, n in derived.leaves.items()}
found, want = exe(**values), rlx.evaluate(derived, values)
assert all(np.allclose(found[k], want[k], rtol=1e-3, atol=1e-5) for k in want)
rlx.verify(derived), str(derived), rlx.simplify(derived), rlx.decompose(derived)
print(seconds)
'''


@pytest.mark.parametrize("kind", ["chain", "deep"])
def test_twenty_thousand_nodes_compile_in_twenty_seconds(kind: str) -> None:
    found = subprocess.run([sys.executable, "-c", LARGE, kind], capture_output=True, text=True,
                           timeout=300)
    assert found.returncode == 0, found.stderr[-3000:]
    assert float(found.stdout) < 20


def test_threads_compile_and_call_at_once() -> None:
    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        size = 16 + seed
        g = rlx.Graph(f"g{seed}")
        x, w = g.input("x", (size, 40)), g.param("w", (40, 7))
        g.output("loss", (rlx.tanh(x @ w) ** 2).sum())
        exe = rlx.compile(rlx.value_and_grad(g, of="loss"))
        arrays = {"x": rng.standard_normal((size, 40)).astype(np.float32),
                  "w": rng.standard_normal((40, 7)).astype(np.float32)}
        want = rlx.evaluate(rlx.value_and_grad(g, of="loss"), arrays)
        for _ in range(20):
            np.testing.assert_allclose(exe(**arrays).grad_w, want["grad_w"], rtol=1e-4, atol=1e-5)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(16)))


def test_threads_share_one_executable() -> None:
    g = rlx.Graph()
    x = g.input("x", (200, 300))
    g.output("y", nn.softmax(x @ rlx.transpose(x)).sum(0))
    exe = rlx.compile(g)

    def work(seed: int) -> None:
        a = np.random.default_rng(seed).standard_normal((200, 300)).astype(np.float32)
        first = exe(x=a).y
        for _ in range(10):
            np.testing.assert_array_equal(exe(x=a).y, first)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


FORK = '''
import os, sys
import numpy as np, rlx_py as rlx
g = rlx.Graph()
x = g.input("x", (1000, 700))
g.output("y", (rlx.tanh(x) @ rlx.transpose(x)).sum(0))
exe = rlx.compile(g, threads=2)
a = np.random.default_rng(0).standard_normal((1000, 700)).astype(np.float32)
want = exe(x=a).y
child = os.fork()
if child == 0:
    ok = np.array_equal(exe(x=a).y, want) and np.array_equal(rlx.compile(g)(x=a).y, want)
    os._exit(0 if ok else 3)
_, status = os.waitpid(child, 0)
assert np.array_equal(exe(x=a).y, want)
sys.exit(os.waitstatus_to_exitcode(status))
'''


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_forked_child_computes_the_same() -> None:
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True,
                           text=True, timeout=120)
    assert found.returncode == 0, found.stderr[-3000:]


def test_nothing_was_written_beside_this_file() -> None:
    assert not list(Path(__file__).parent.glob("core*"))
