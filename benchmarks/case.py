"""What a benchmark case is, and finding the cases."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks import cases

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Data:
    """Initial parameters and the one batch that every step trains on."""

    params: Arrays
    batch: Arrays


@dataclass(frozen=True)
class RlxStep:
    """A forward graph with a scalar output `loss`, and the optimizer for `rlx.train_step`; None for
    a graph that updates its own params."""

    graph: Any
    optimizer: Any


@dataclass(frozen=True)
class JaxStep:
    """`step(state, **batch) -> (state, loss)`, pure and not yet jitted; `state` may be donated."""

    state: Any
    step: Callable[..., tuple[Any, Any]]


@dataclass(frozen=True)
class TorchStep:
    """`step(**batch) -> loss` trains `params` in place; `params` hold all that a reset restores."""

    params: dict[str, Any]
    batch: dict[str, Any]
    step: Callable[..., Any]


class Case(Protocol):
    """The four functions of a file in `benchmarks/cases`; each system's module is handed in.

    So a case imports none of the systems, and a process that measures one loads only that one.
    `torch_step` writes its gradients with `torch.func` when `functional` is set, the form that
    `torch.compile` captures whole, and with `torch.autograd.grad` when it runs eagerly.
    """

    def data(self) -> Data: ...  # noqa: D102
    def rlx_step(self, rlx: ModuleType, data: Data) -> RlxStep: ...  # noqa: D102
    def jax_step(self, jax: ModuleType, data: Data) -> JaxStep: ...  # noqa: D102
    def torch_step(self, torch: ModuleType, data: Data, functional: bool) -> TorchStep: ...  # noqa: D102


def case_names() -> list[str]:
    """The names of all cases, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(cases.__path__))


def load_case(name: str) -> Case:
    """The case `benchmarks/cases/NAME.py`."""
    return cast(Case, importlib.import_module(f"benchmarks.cases.{name}"))


def he_normal(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> NDArray[Any]:
    """Float32 normal weights of variance 2 / fan_in (He et al., 2015)."""
    weights: NDArray[Any] = rng.standard_normal(shape) * np.sqrt(2.0 / fan_in)
    return weights.astype(np.float32)
