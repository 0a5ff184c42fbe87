"""The plain SGD step of each peer, built from a case's loss."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from benchmarks.case import Data, JaxStep, TorchStep

Loss = Callable[..., Any]
RATE = 0.01


def jax_sgd(jax: ModuleType, loss: Loss, data: Data, rate: float = RATE) -> JaxStep:
    """SGD on `loss(params, **batch)`."""

    def step(params: Any, **batch: Any) -> tuple[Any, Any]:
        value, grads = jax.value_and_grad(loss)(params, **batch)
        return jax.tree.map(lambda p, g: p - rate * g, params, grads), value

    return JaxStep(data.params, step)


def torch_arrays(torch: ModuleType, data: Data, trained: bool
                 ) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters, which ask for gradients if `trained`, and the batch; its integers become int64,
    as PyTorch's losses ask."""
    params = {n: torch.tensor(v, requires_grad=trained) for n, v in data.params.items()}
    batch = {n: torch.tensor(v) for n, v in data.batch.items()}
    return params, {n: v if v.is_floating_point() else v.long() for n, v in batch.items()}


def torch_sgd(
    torch: ModuleType, loss: Loss, data: Data, functional: bool, rate: float = RATE
) -> TorchStep:
    """In-place SGD on `loss(params, **batch)`."""
    params, batch = torch_arrays(torch, data, trained=not functional)
    values = list(params.values())

    def eager(**batch: Any) -> Any:
        value = loss(params, **batch)
        grads = torch.autograd.grad(value, values)
        with torch.no_grad():
            torch._foreach_add_(values, grads, alpha=-rate)
        return value.detach()

    def whole(**batch: Any) -> Any:
        grads, value = torch.func.grad_and_value(loss)(params, **batch)
        torch._foreach_add_(values, [grads[n] for n in params], alpha=-rate)
        return value

    return TorchStep(params, batch, whole if functional else eager)
