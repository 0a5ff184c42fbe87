"""Random numbers: published vectors, the same bits everywhere, the moments of each distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_py as rlx
from rlx_py.ir.ops.primitive.random import threefry

Array = np.ndarray[Any, Any]
SIZE = 1 << 16

# From the known-answer tests of Random123: counter, key, result of threefry2x32 with 20 rounds.
KNOWN = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


def both(node: rlx.Node) -> Array:
    """The value on the reference path, which native code must give too."""
    g = rlx.Graph()
    g.output("y", node)
    expected, found = rlx.evaluate(g, {})["y"], rlx.compile(g)().y
    assert expected.dtype == found.dtype
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=5e-6,
                                   atol=1e-6 if found.itemsize > 2 else 1e-2)
    return found


@pytest.mark.parametrize("counter,key,result", KNOWN)
def test_published_vectors(counter: Any, key: Any, result: Any) -> None:
    words = threefry(np.array(key, np.uint32), *np.array(counter, np.uint32))
    assert tuple(map(int, words)) == result


def test_native_code_counts_as_the_published_vector() -> None:
    key = rlx.constant(np.array([0x13198A2E, 0x03707344], np.uint32))
    pair = both(rlx.random.fold_in(key, 0x85A308D3))
    expected = threefry(np.array([0x13198A2E, 0x03707344]), np.uint32(0), np.uint32(0x85A308D3))
    assert tuple(pair) == expected


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5), (2, 0, 3), (2, 3, 65)])
@pytest.mark.parametrize("dtype", [rlx.u32, rlx.i64])
def test_bits_depend_on_key_and_position_alone(shape: Any, dtype: Any) -> None:
    key = rlx.random.key(5)
    found = both(rlx.random.bits(key, shape, dtype))
    longer = both(rlx.random.bits(key, (int(np.prod(shape)) + 9,), dtype))
    np.testing.assert_array_equal(found.ravel(), longer[: found.size])


def test_keys_are_independent() -> None:
    key = rlx.random.key(2**63 + 11)
    keys = [*rlx.random.split(key, 3), *(rlx.random.fold_in(key, i) for i in (100, 101)), key]
    drawn = [both(rlx.random.bits(k, (50,))) for k in keys]
    for i, a in enumerate(drawn):
        assert all(np.mean(a == b) < 0.1 for b in drawn[:i])
    assert both(rlx.random.split(key, 0)).shape == (0, 2)


def test_seeds_of_either_sign_and_of_64_bits() -> None:
    keys = [both(rlx.random.key(s)).tolist() for s in (0, 1, -1, 2**32, 2**64 - 1)]
    assert keys == [[0, 0], [0, 1], [2**32 - 1] * 2, [1, 0], [2**32 - 1] * 2]


# mean, variance, lowest, highest
NORMAL = (0.0, 1.0, -np.inf, np.inf)
MOMENTS = {
    "uniform": (lambda k, t: rlx.random.uniform(k, (SIZE,), t), (0.5, 1 / 12, 0, 1)),
    "uniform_bounds": (lambda k, t: rlx.random.uniform(k, (SIZE,), t, -3, 5), (1, 64 / 12, -3, 5)),
    "normal": (lambda k, t: rlx.random.normal(k, (SIZE,), t), NORMAL),
    "exponential": (lambda k, t: rlx.random.exponential(k, (SIZE,), t), (1, 1, 0, np.inf)),
    "gumbel": (lambda k, t: rlx.random.gumbel(k, (SIZE,), t),
               (np.euler_gamma, np.pi**2 / 6, -np.inf, np.inf)),
    "truncated": (lambda k, t: rlx.random.truncated_normal(k, -1.0, 1.0, (SIZE,), t),
                  (0, 0.2911250947, -1, 1)),
}


@pytest.mark.parametrize("dtype", [rlx.f64, rlx.f32, rlx.f16, rlx.bf16], ids=str)
@pytest.mark.parametrize("name", MOMENTS)
def test_moments(name: str, dtype: Any) -> None:
    sample, (mean, variance, low, high) = MOMENTS[name]
    x = both(sample(rlx.random.key(3), dtype)).astype(np.float64)
    assert np.isfinite(x).all() and x.min() >= low and x.max() <= high
    slack = 6 * np.sqrt(variance / SIZE) + (0.01 if dtype.bits == 16 else 0)
    assert abs(x.mean() - mean) < slack
    assert abs(x.var() / variance - 1) < 0.06


def test_the_normal_distribution_function() -> None:
    x = np.sort(both(rlx.random.normal(rlx.random.key(8), (SIZE,))))
    g = rlx.Graph()
    node = g.input("x", x.shape)
    g.output("cdf", 0.5 * rlx.erfc(-node / np.sqrt(2.0)))
    cdf = rlx.evaluate(g, {"x": x})["cdf"]
    assert np.abs(cdf - (np.arange(SIZE) + 0.5) / SIZE).max() < 1.95 / np.sqrt(SIZE)
    assert x.max() > 3.8 and x.min() < -3.8


@pytest.mark.parametrize("bounds,dtype", [((0, 10), rlx.i64), ((-5, 3), rlx.i32), ((-128, 128),
                         rlx.i8), ((0, 256), rlx.u8), ((0, 2**32 - 1), rlx.u32), ((7, 8), rlx.i64)])
def test_integers(bounds: tuple[int, int], dtype: Any) -> None:
    x = both(rlx.random.randint(rlx.random.key(1), (SIZE,), *bounds, dtype)).astype(np.int64)
    assert x.min() >= bounds[0] and x.max() < bounds[1]
    span = bounds[1] - bounds[0]
    assert abs(x.mean() - (bounds[0] + (span - 1) / 2)) < 6 * span / np.sqrt(12 * SIZE) + 1e-9
    if span <= 256:
        assert set(x) == set(range(*bounds))


def test_bernoulli_and_its_ends() -> None:
    key = rlx.random.key(2)
    p = np.array([0.0, 0.25, 1.0], np.float32)
    x = both(rlx.random.bernoulli(key, p, (SIZE, 3)))
    assert not x[:, 0].any() and x[:, 2].all() and abs(x[:, 1].mean() - 0.25) < 0.01
    assert both(rlx.random.bernoulli(key, p)).shape == (3,)


def test_categorical() -> None:
    p = np.array([[0.1, 0.2, 0.7, 0.0], [0.25, 0.25, 0.0, 0.5]])
    with np.errstate(divide="ignore"):
        logits = np.log(p).astype(np.float32)
    x = both(rlx.random.categorical(rlx.random.key(4), logits, shape=(SIZE, 2)))
    for row in range(2):
        seen = np.bincount(x[:, row], minlength=4) / SIZE
        np.testing.assert_allclose(seen, p[row], atol=0.01)
        assert not seen[p[row] == 0].any()
    one = both(rlx.random.categorical(rlx.random.key(4), logits.T, axis=0))
    assert one.shape == (2,)


@pytest.mark.parametrize("size", [0, 1, 2, 100, 5000])
def test_permutations(size: int) -> None:
    key = rlx.random.key(12)
    found = both(rlx.random.permutation(key, size))
    assert sorted(found) == list(range(size))
    if size > 99:
        assert abs(np.corrcoef(found, np.arange(size))[0, 1]) < 0.3
    rows = np.arange(3.0 * size).reshape(3, size)
    np.testing.assert_array_equal(both(rlx.random.permutation(key, rows, 1)), rows[:, found])


def test_gradients_flow_through_bounds_and_scales() -> None:
    g = rlx.Graph()
    mean, scale, bound = (g.param(n, (3,), rlx.f64) for n in ("mean", "scale", "bound"))
    key = rlx.random.key(0)
    z = mean + scale * rlx.random.normal(key, (3,), rlx.f64)
    u = rlx.random.uniform(rlx.random.fold_in(key, 1), (3,), rlx.f64, -bound, bound)
    t = rlx.random.truncated_normal(rlx.random.fold_in(key, 2), -1.0, bound, (3,), rlx.f64)
    g.output("y", rlx.sum(z * z + u * z + t * u))
    point = {"mean": np.array([0.1, -0.4, 2]), "scale": np.array([1, 2, 0.3]),
             "bound": np.array([0.5, 1.5, 2.5])}
    rlx.check_grads(g, point, order=2)


# ---- dropout ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [rlx.f64, rlx.f32, rlx.f16, rlx.bf16], ids=str)
def test_dropout_keeps_the_same_elements_in_every_type(dtype: Any) -> None:
    key = rlx.random.key(6)
    y = both(rlx.nn.dropout(rlx.ones((64, 65), dtype), 0.25, key=key)).astype(float)
    np.testing.assert_allclose(y[y > 0], 1 / 0.75, rtol=1e-2)
    assert abs((y > 0).mean() - 0.75) < 0.03
    other = both(rlx.nn.dropout(rlx.ones((64, 65)), 0.25, key=key))
    np.testing.assert_array_equal(y > 0, other > 0)


def test_dropout_passes_the_gradient_where_it_kept() -> None:
    g = rlx.Graph()
    x = g.param("x", (40, 30))
    y = rlx.nn.dropout(x, 0.5, key=rlx.random.key(1))
    g.output("y", y)
    g.output("loss", rlx.sum(y * y))
    exe = rlx.compile(rlx.value_and_grad(g, of="loss"))
    value = np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32)
    out = exe(x=value)
    np.testing.assert_array_equal(out.y, np.where(out.y == 0, 0, 2 * value))
    np.testing.assert_allclose(out.grad_x, 4 * out.y)
    with_nan = exe(x=np.where(out.y == 0, np.nan, value).astype(np.float32))
    np.testing.assert_array_equal(with_nan.grad_x, out.grad_x)


def test_dropout_at_its_ends_and_of_channels() -> None:
    key, x = rlx.random.key(3), rlx.ones((8, 16, 3, 3))
    assert (both(rlx.nn.dropout(x, 0.0, key=key)) == 1).all()
    assert (both(rlx.nn.dropout(x, 1.0, key=key)) == 0).all()
    assert rlx.nn.dropout(x, 0.5, training=False) is x
    y = both(rlx.nn.dropout2d(x, 0.5, key=key))
    assert (y == y[:, :, :1, :1]).all() and 0.3 < (y > 0).mean() < 0.7


def test_a_step_has_a_new_key_each_time_and_repeats_from_its_seed() -> None:
    g = rlx.Graph()
    w = g.param("w", (100,))
    key = rlx.random.key_state(g, seed=9)
    g.output("mask", rlx.nn.dropout(rlx.ones((100,)), 0.5, key=key))
    g.output("loss", rlx.sum(rlx.nn.dropout(w, 0.5, key=key)))
    exe = rlx.compile(rlx.train_step(g, of="loss", optimizer=rlx.optim.sgd(0.0)))
    runs = []
    for _ in range(2):
        state = exe.init({"w": np.ones(100, np.float32)})
        runs.append([exe.step(state).mask.copy() for _ in range(3)])
    assert not np.array_equal(runs[0][0], runs[0][1])
    assert not np.array_equal(runs[0][1], runs[0][2])
    np.testing.assert_array_equal(runs[0], runs[1])


@pytest.mark.parametrize("call,error", [
    (lambda k: rlx.random.bits(k, (2,), rlx.f32), rlx.DTypeError),
    (lambda k: rlx.random.uniform(k, (2,), rlx.i32), rlx.DTypeError),
    (lambda k: rlx.random.uniform(rlx.ones((2,)), (2,)), rlx.DTypeError),
    (lambda k: rlx.random.split(k, -1), rlx.ArgumentError),
    (lambda k: rlx.random.key(1.5), rlx.ArgumentError),
    (lambda k: rlx.random.key(2**64), rlx.ArgumentError),
    (lambda k: rlx.random.fold_in(k, 0.5), rlx.DTypeError),
    (lambda k: rlx.random.randint(k, (2,), 3, 3), rlx.ArgumentError),
    (lambda k: rlx.random.randint(k, (2,), 0, 300, rlx.u8), rlx.ArgumentError),
    (lambda k: rlx.random.categorical(k, rlx.ones((2, 3)), shape=(4,)), rlx.RLXError),
    (lambda k: rlx.nn.dropout(rlx.ones((2,)), 1.5, key=k), rlx.ArgumentError),
    (lambda k: rlx.nn.dropout(rlx.ones((2,)), 0.5), rlx.ArgumentError),
    (lambda k: rlx.nn.dropout(rlx.ones((2,), rlx.i32), 0.5, key=k), rlx.DTypeError),
    (lambda k: rlx.nn.dropout2d(rlx.ones((2, 3)), 0.5, key=k), rlx.ShapeError),
])
def test_wrong_use_is_refused(call: Any, error: Any) -> None:
    with pytest.raises(error):
        call(rlx.random.key(0))
