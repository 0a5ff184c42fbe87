"""A step along a Hessian-vector product, w ← w − rate·H v, of the small classifier of mlp64.

Forward over reverse in every system; the loss comes from the same pass.
"""

from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import mlp
from benchmarks.case import Data, JaxStep, RlxStep, TorchStep
from benchmarks.sgd import RATE, torch_arrays


def data() -> Data:
    """Parameters; the batch, and a direction `v_<name>` for each parameter."""
    plain = mlp.mlp_data((784, 256, 128, 10), batch=64)
    rng = np.random.default_rng(1)
    directions = {f"v_{name}": rng.standard_normal(value.shape).astype(np.float32)
                  for name, value in plain.params.items()}
    return Data(plain.params, {**plain.batch, **directions})


def rlx_step(rlx: ModuleType, data: Data) -> RlxStep:
    """The product's graph, and the params' updates by it."""
    loss = mlp.rlx_step(rlx, Data(data.params, {k: data.batch[k] for k in "xy"})).graph
    g = rlx.Graph("hvp")
    given = {"x": g.input("x", data.batch["x"].shape), "y": g.input("y", (64,), rlx.i32)}
    v = {f"v_{k}": g.input(f"v_{k}", a.shape) for k, a in data.params.items()}
    found = g.call(rlx.hvp(loss, of="loss"), **given, **v)
    g.output("loss", g.call(loss, **given).loss)
    for name, w in g.params.items():
        g.update(name, w - RATE * found[f"hvp_{name}"])
    return RlxStep(g, None)


def jax_step(jax: ModuleType, data: Data) -> JaxStep:
    """The same step in JAX."""
    loss = mlp.jax_loss(jax, len(data.params) // 2)

    def step(params: Any, x: Any, y: Any, **directions: Any) -> tuple[Any, Any]:
        v = {name: directions[f"v_{name}"] for name in params}
        (value, _), (_, product) = jax.jvp(
            jax.value_and_grad(lambda p: loss(p, x, y)), (params,), (v,))
        return jax.tree.map(lambda p, h: p - RATE * h, params, product), value

    return JaxStep(data.params, step)


def torch_step(torch: ModuleType, data: Data, functional: bool) -> TorchStep:
    """The same step in PyTorch, by torch.func in either form."""
    loss = mlp.torch_loss(torch, len(data.params) // 2)
    params, batch = torch_arrays(torch, data, trained=False)

    def step(x: Any, y: Any, **directions: Any) -> Any:
        v = {name: directions[f"v_{name}"] for name in params}
        (_, value), (product, _) = torch.func.jvp(
            torch.func.grad_and_value(lambda p: loss(p, x, y)), (params,), (v,))
        torch._foreach_add_(list(params.values()), list(product.values()), alpha=-RATE)
        return value

    return TorchStep(params, batch, step)
