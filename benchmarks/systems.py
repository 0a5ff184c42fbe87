"""One session per system: a case compiled by it, stepping on its own copy of the parameters."""

import importlib
import importlib.util
from abc import ABC, abstractmethod
from time import perf_counter
from types import ModuleType
from typing import Any

from benchmarks.case import Case, Data, load_case

MODULES = {"rlx": "rlx_py", "jax": "jax", "torch": "torch", "torch.compile": "torch"}


class Session(ABC):
    """A compiled training step.

    `compile_seconds` names the phases up to the end of the first step, tracing included and
    importing the system not; `arena_bytes` is the memory planned for one step, where known.
    """

    compile_seconds: dict[str, float]
    arena_bytes: int | None = None

    @abstractmethod
    def reset(self) -> None:
        """Go back to the case's initial parameters."""

    @abstractmethod
    def step(self) -> None:
        """Run one whole step and wait for its end."""

    @abstractmethod
    def loss(self) -> float:
        """The loss that the last step returned, of the parameters before that step."""


class RlxSession(Session):
    """The case's graph, differentiated and compiled by rlx; every compile starts cold."""

    def __init__(self, rlx: ModuleType, case: Case, data: Data, threads: int) -> None:
        start = perf_counter()
        spec = case.rlx_step(rlx, data)
        built = perf_counter()
        train = spec.graph if spec.optimizer is None else rlx.train_step(
            spec.graph, of="loss", optimizer=spec.optimizer)
        differentiated = perf_counter()
        self._exe = rlx.compile(train, threads=threads, cache=False)
        compiled = perf_counter()
        self._data = data
        self.reset()
        ready = perf_counter()
        self.step()
        self.compile_seconds = {
            "build": built - start,
            "grad": differentiated - built,
            "compile": compiled - differentiated,
            "first step": perf_counter() - ready,
        }
        self.arena_bytes = int(self._exe.cost().arena_bytes)

    def reset(self) -> None:
        """Go back to the case's initial parameters."""
        # A step updates its parameters in place; the case's own arrays must keep their values.
        self._state = self._exe.init({name: p.copy() for name, p in self._data.params.items()})

    def step(self) -> None:
        """Run one whole step; it returns when done."""
        self._out: Any = (
            self._exe.step(self._state, **self._data.batch) if self._exe.interface.changed
            else self._exe(**self._data.batch, **self._state.params))

    def loss(self) -> float:
        """The loss that the last step returned."""
        return float(self._out.loss)


class JaxSession(Session):
    """The case's pure step under `jax.jit` with the state donated."""

    def __init__(self, jax: ModuleType, case: Case, data: Data, threads: int) -> None:
        del threads  # XLA takes as many threads as the process may use CPUs; see machine.py
        self._jax = jax
        spec = case.jax_step(jax, data)
        self._initial = spec.state
        self._batch = jax.block_until_ready(jax.device_put(data.batch))
        self._step = jax.jit(spec.step, donate_argnums=0)
        self.reset()
        start = perf_counter()
        self.step()
        self.compile_seconds = {"first call": perf_counter() - start}

    def reset(self) -> None:
        """Go back to the case's initial state."""
        # device_put may alias a NumPy array, which donation would then overwrite.
        fresh = self._jax.tree.map(
            lambda leaf: self._jax.numpy.array(leaf, copy=True), self._initial
        )
        self._state = self._jax.block_until_ready(fresh)

    def step(self) -> None:
        """Run one whole step and wait for its results."""
        self._state, self._loss = self._jax.block_until_ready(
            self._step(self._state, **self._batch)
        )

    def loss(self) -> float:
        """The loss that the last step returned."""
        return float(self._loss)


class TorchSession(Session):
    """The case's step run eagerly, or captured whole by `torch.compile`."""

    def __init__(
        self, torch: ModuleType, case: Case, data: Data, threads: int, compiled: bool = False
    ) -> None:
        torch.set_num_threads(threads)
        self._torch = torch
        spec = case.torch_step(torch, data, functional=compiled)
        self._params, self._batch, self._step = spec.params, spec.batch, spec.step
        self._initial = {name: p.detach().clone() for name, p in spec.params.items()}
        if compiled:
            torch.compiler.config.force_disable_caches = True  # measure a cold compile
            self._step = torch.compile(spec.step, fullgraph=True, dynamic=False)
        start = perf_counter()
        self.step()
        self.compile_seconds = {"first call": perf_counter() - start}

    def reset(self) -> None:
        """Go back to the case's initial parameters."""
        with self._torch.no_grad():
            for name, p in self._params.items():
                p.copy_(self._initial[name])

    def step(self) -> None:
        """Run one whole step; CPU operations return when done."""
        self._loss = self._step(**self._batch)

    def loss(self) -> float:
        """The loss that the last step returned."""
        return float(self._loss)


def installed(system: str) -> bool:
    """Whether the system's package can be imported here."""
    return importlib.util.find_spec(MODULES[system]) is not None


def open_session(case_name: str, system: str, threads: int) -> Session:
    """Compile the case with one system and run its first step."""
    case = load_case(case_name)
    module = importlib.import_module(MODULES[system])
    data = case.data()
    if system == "rlx":
        return RlxSession(module, case, data, threads)
    if system == "jax":
        return JaxSession(module, case, data, threads)
    return TorchSession(module, case, data, threads, compiled=system == "torch.compile")
