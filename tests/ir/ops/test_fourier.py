"""Fourier transforms: NumPy's values for every kind of length, inverses, derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_py as rlx

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(2)
# One product, several stages, odd, with a large prime, prime, two primes.
LENGTHS = [1, 2, 3, 5, 8, 61, 64, 65, 100, 128, 134, 243, 1000, 1024, 67, 127, 37 * 41, 2 * 3 * 71]


def run(function: Any, *arrays: Array) -> tuple[Array, ...]:
    """Results of native code, which agree with the reference path."""
    g = rlx.Graph()
    found = function(*[g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)])
    for i, node in enumerate(found if isinstance(found, tuple) else (found,)):
        g.output(f"y{i}", node)
    feed = {f"x{i}": a for i, a in enumerate(arrays)}
    out = rlx.compile(g)(**feed)
    return tuple(out[f"y{i}"] for i in range(len(g.outputs)))


@pytest.mark.parametrize("dtype,tight", [(np.float64, 2e-15), (np.float32, 1e-6)])
@pytest.mark.parametrize("n", LENGTHS)
def test_values_are_numpys(n: int, dtype: Any, tight: float) -> None:
    re, im = (RNG.standard_normal((2, n)).astype(dtype) for _ in range(2))
    scale = tight * n**0.5 * max(np.log2(n), 1) * 4
    for ours, theirs in ((rlx.fft.fft, np.fft.fft), (rlx.fft.ifft, np.fft.ifft)):
        a, b = run(ours, re, im)
        want = theirs(re.astype(np.float64) + 1j * im)
        assert a.dtype == dtype
        np.testing.assert_allclose(a + 1j * b, want, rtol=0, atol=scale)


def test_long_lines() -> None:
    n = 3 << 16
    x = RNG.standard_normal(n)
    a, b = run(rlx.fft.fft, x)
    np.testing.assert_allclose(a + 1j * b, np.fft.fft(x), atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 7, 8, 130])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_real_transforms_and_their_inverses(n: int, norm: str, axis: int) -> None:
    shape = [3, 2]
    shape[axis] = n
    x = RNG.standard_normal(shape)
    re, im = run(lambda a: rlx.fft.rfft(a, axis, norm), x)
    np.testing.assert_allclose(re + 1j * im, np.fft.rfft(x, axis=axis, norm=norm), atol=1e-12)
    (back,) = run(lambda a, b: rlx.fft.irfft(a, b, n, axis, norm), re, im)
    np.testing.assert_allclose(back, x, atol=1e-13)


@pytest.mark.parametrize("n", [6, 7])
def test_irfft_drops_what_a_real_line_has_not(n: int) -> None:
    z = RNG.standard_normal(n // 2 + 1) + 1j * RNG.standard_normal(n // 2 + 1)
    (x,) = run(lambda a, b: rlx.fft.irfft(a, b, n), z.real.copy(), z.imag.copy())
    np.testing.assert_allclose(x, np.fft.irfft(z, n), atol=1e-14)


def test_several_axes() -> None:
    re, im = RNG.standard_normal((2, 4, 6, 5))
    a, b = run(rlx.fft.fftn, re, im)
    np.testing.assert_allclose(a + 1j * b, np.fft.fftn(re + 1j * im), atol=1e-12)
    c, d = run(lambda u, v: rlx.fft.ifftn(u, v, (0, 2)), a, b)
    np.testing.assert_allclose(c + 1j * d, np.fft.ifftn(a + 1j * b, axes=(0, 2)), atol=1e-12)


@pytest.mark.parametrize("n", [5, 66, 67])
def test_derivatives(n: int) -> None:
    g = rlx.Graph()
    x, w = g.param("x", (n,), rlx.f64), g.param("w", (n,), rlx.f64)
    (a, b), (c, d) = rlx.fft.rfft(x), rlx.fft.rfft(w)
    y = rlx.fft.irfft(a * c - b * d, a * d + b * c, n)  # a cyclic convolution
    g.output("y", (y ** 3).mean())
    rlx.check_grads(g, {"x": RNG.standard_normal(n), "w": RNG.standard_normal(n)}, order=2)


def test_code_grows_with_the_logarithm_of_the_length() -> None:
    sizes = []
    for n in (1 << 8, 1 << 16):
        g = rlx.Graph()
        for name, node in zip("ab", rlx.fft.fft(g.input("x", (n,))), strict=True):
            g.output(name, node)
        sizes.append(rlx.compile(g).cost().kernels)
    assert sizes[1] <= 3 * sizes[0]


@pytest.mark.parametrize("call", [
    lambda: rlx.fft.fft(rlx.ones((2, 0))), lambda: rlx.fft.fft(rlx.ones(())),
    lambda: rlx.fft.fft(rlx.ones((4,), rlx.i32)),
    lambda: rlx.fft.fft(rlx.ones((4,)), rlx.ones((5,))),
    lambda: rlx.fft.fft(rlx.ones((4,)), norm="other"), lambda: rlx.fft.irfft(rlx.ones((4,)), n=5),
])
def test_wrong_use_is_refused(call: Any) -> None:
    with pytest.raises(rlx.RLXError):
        call()


@pytest.mark.parametrize("length", [66, 100, 128, 262, 1000])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_long_real_lines_are_transformed_at_half_the_length(length: int, norm: str) -> None:
    x = np.random.default_rng(length).standard_normal((2, length, 3))
    g = rlx.Graph()
    re, im = rlx.fft.rfft(g.input("x", x.shape, rlx.f64), 1, norm)
    g.output("re", re)
    g.output("im", im)
    g.output("y", (re * re + re * im).sum())
    want = np.fft.rfft(x, axis=1, norm=norm)
    for found in (rlx.evaluate(g, {"x": x}), rlx.compile(g)(x=x)):
        scale = np.abs(want).max()
        np.testing.assert_allclose(found["re"], want.real, rtol=0, atol=1e-14 * scale)
        np.testing.assert_allclose(found["im"], want.imag, rtol=0, atol=1e-14 * scale)
    rlx.check_grads(g, {"x": x}, of="y", order=2)
