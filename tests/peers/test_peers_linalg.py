"""Gradients of linear algebra against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_py as rlx

torch = pytest.importorskip("torch", reason="comparisons need PyTorch")
ours, theirs = rlx.linalg, torch.linalg
RNG = np.random.default_rng(3)
A = RNG.standard_normal((2, 4, 4)) + 3 * np.eye(4)
B = RNG.standard_normal((2, 4, 3))
W = np.arange(16.0).reshape(4, 4) / 10


def spd(a: Any, transposed: Any) -> Any:
    return a @ transposed(a)


CASES: dict[str, Any] = {
    "cholesky": (lambda a: (ours.cholesky(spd(a, lambda m: rlx.swapaxes(m, -1, -2))) * W).sum(),
                 lambda a, w: (theirs.cholesky(spd(a, lambda m: m.mT)) * w).sum()),
    "inv": (lambda a: (ours.inv(a) * W).sum(), lambda a, w: (theirs.inv(a) * w).sum()),
    "det": (lambda a: ours.det(a).sum(), lambda a, w: theirs.det(a).sum()),
    "slogdet": (lambda a: ours.slogdet(a)[1].sum(), lambda a, w: theirs.slogdet(a)[1].sum()),
    "solve": (lambda a: (ours.solve(a, B) ** 2).sum(),
              lambda a, w: (theirs.solve(a, torch.tensor(B)) ** 2).sum()),
    "svdvals": (lambda a: (ours.svdvals(a) ** 3).sum(),
                lambda a, w: (theirs.svdvals(a) ** 3).sum()),
    "nuclear": (lambda a: ours.norm(a, "nuc", (1, 2)).sum(),
                lambda a, w: theirs.norm(a, "nuc", (1, 2)).sum()),
    "qr": (lambda a: (ours.qr(a[:, :, :3])[1] ** 2 * W[:3, :3]).sum(),
           lambda a, w: (theirs.qr(a[:, :, :3])[1] ** 2 * w[:3, :3]).sum()),
    "lstsq": (lambda a: (ours.lstsq(a[:, :, :2], B) ** 2).sum(),
              lambda a, w: (theirs.lstsq(a[:, :, :2], torch.tensor(B))[0] ** 2).sum()),
    "power": (lambda a: (ours.matrix_power(a, -2) * W).sum(),
              lambda a, w: (theirs.matrix_power(a, -2) * w).sum()),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    mine, peer = CASES[name]
    g = rlx.Graph()
    g.output("y", mine(g.param("a", A.shape, rlx.f64)))
    found = rlx.compile(rlx.value_and_grad(g, of="y"))(a=A)
    a = torch.tensor(A, requires_grad=True)
    y = peer(a, torch.tensor(W))
    y.backward()
    np.testing.assert_allclose(found.y, y.item(), rtol=1e-9)
    np.testing.assert_allclose(found.grad_a, a.grad, rtol=1e-8, atol=1e-9)
