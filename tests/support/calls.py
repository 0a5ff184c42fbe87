"""A right call of every public function that makes nodes, from which wrong ones are made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import rlx_py as rlx
from rlx_py.ir.base.types import DType, bool_, f64, i32, u32

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
MODULES = {"rlx": rlx, "nn": rlx.nn, "linalg": rlx.linalg, "fft": rlx.fft, "random": rlx.random}


@dataclass(frozen=True)
class Leaf:
    """An input of a call: its shape and element type, and the bound of its integers."""

    shape: tuple[int, ...]
    dtype: DType = f64
    below: int = 3

    def array(self, rng: np.random.Generator) -> Array:
        """Positive numbers, so that logarithms and probabilities have values."""
        if self.dtype.is_float:
            return rng.uniform(0.1, 0.9, self.shape).astype(self.dtype.numpy)
        if self.dtype is bool_:
            return np.asarray(rng.uniform(size=self.shape) < 0.7)
        return rng.integers(0, self.below, self.shape).astype(self.dtype.numpy)


@dataclass(frozen=True)
class Call:
    """A function with its arguments; those not given keep their defaults."""

    name: str
    function: Function
    args: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def floats(*shape: int) -> Leaf:
    return Leaf(shape)


def whole(below: int, *shape: int) -> Leaf:
    return Leaf(shape, i32, below)


A, V, S, KEY = floats(3, 3), floats(3), floats(), Leaf((2,), u32, 100)
N, B, IMAGE = whole(3, 3), Leaf((3, 3), bool_), floats(2, 4, 6, 6)
HEADS = floats(1, 2, 4, 6)
STATISTICS = {"running_mean": floats(4), "running_var": floats(4)}
SCALE = {"weight": floats(4), "bias": floats(4)}
LOSS = {"input": A, "target": floats(3, 3)}
LABELS = {"input": A, "target": N, "weight": V}
POOL = {"input": IMAGE, "kernel_size": 2}
SCATTER = {"x": A, "indices": N, "updates": floats(3, 3)}


def conv(rank: int) -> dict[str, Any]:
    return {"input": floats(1, 2, *(5,) * rank), "bias": floats(2),
            "weight": floats(2, 2, *(2,) * rank)}


def state(kind: str, *lead: int) -> Any:
    return (floats(*lead, 3), floats(*lead, 3)) if kind == "lstm" else floats(*lead, 3)


def mamba3(rank: int) -> dict[str, Any]:
    row = floats(1, 3, 2)
    return {"C": floats(1, 3, rank, 4), "B": floats(1, 3, rank, 4), "x": floats(1, 3, 2, 3),
            "adt": row, "dt": row, "trap": row, "angle": floats(1, 3, 2), "c_bias": floats(2, 4),
            "b_bias": floats(2, 4)}


def lines(rank: int, **args: Any) -> dict[str, Any]:
    return {"input": floats(1, 2, *(6,) * rank), **args}


CELLS = {"rnn_tanh": 1, "gru": 3, "lstm": 4}  # and their gates
# Arguments where the names of parameters do not say them.
GIVEN: dict[str, dict[str, Any]] = {
    "arange": {"start": 5}, "array_split": {"x": A, "indices_or_sections": 2},
    "astype": {"x": A, "dtype": "f32"}, "bitwise_and": {"x1": N, "x2": N}, "bitwise_or": {
        "x1": N, "x2": N}, "bitwise_xor": {"x1": N, "x2": N}, "invert": {"x": N},
    "left_shift": {"x1": N, "x2": N}, "right_shift": {"x1": N, "x2": N},
    "broadcast_to": {"x": V, "shape": (2, 3)}, "concatenate": {"arrays": [A, A]},
    "stack": {"arrays": [A, A]}, "constant": {"value": 2.5}, "einsum": {
        "subscripts": "ij,jk->ik", "arrays": (A, A)}, "expand_dims": {"x": A, "axis": 1},
    "eye": {"n": 3}, "tri": {"n": 3}, "full": {"shape": (2, 3), "fill_value": 1.5},
    "full_like": {"x": A, "fill_value": 2}, "iota": {"shape": (2, 3)},
    "linspace": {"start": 0.0, "stop": 1.0, "num": 5}, "meshgrid": {"xs": (V, V)},
    "moveaxis": {"x": A, "source": 0, "destination": 1}, "one_hot": {"idx": N, "n": 4},
    "ones": {"shape": (2,)}, "zeros": {"shape": (2,)}, "pad": {"x": A, "pad_width": 1},
    "polygamma": {"n": 1, "x": A}, "quantile": {"x": A, "q": 0.3}, "repeat": {
        "x": A, "repeats": 2}, "reshape": {"x": A, "shape": (9,)}, "roll": {"x": A, "shift": 1},
    "scatter_add": SCATTER, "scatter_set": SCATTER, "scatter_max": SCATTER,
    "scatter_min": SCATTER, "split": {"x": A, "indices_or_sections": 3},
    "swapaxes": {"x": A, "axis1": 0, "axis2": 1}, "take": {"x": A, "indices": N},
    "take_along_axis": {"x": A, "indices": whole(3, 3, 3)}, "tile": {"x": A, "reps": 2},
    "top_k": {"x": A, "k": 2}, "where": {"condition": B, "x": A, "y": A},
    "reduce_window": {"x": A, "monoid": "max", "window": 2},
    "tensordot": {"a": A, "b": A, "axes": 1}, "percentile": {"x": A, "q": 30.0},
    "hstack": {"arrays": [A, A]}, "vstack": {"arrays": [A, A]}, "tril_indices": {"n": 3},
    "triu_indices": {"n": 3}, "convolve": {"a": V, "v": V}, "correlate": {"a": V, "v": V},
    "searchsorted": {"a": V, "v": A}, "interp": {"x": A, "xp": V, "fp": V}, "trapezoid": {"y": A},
    "average": {"x": A, "axis": 1, "weights": V},
    # nn
    **{f"conv{r}d": conv(r) for r in (1, 2, 3)},
    **{f"conv_transpose{r}d": conv(r) for r in (1, 2, 3)},
    **{f"{kind}_pool{r}d{tail}": lines(r, kernel_size=2) for r in (1, 2, 3)
       for kind, tail in (("avg", ""), ("max", ""), ("max", "_with_indices"))},
    **{f"adaptive_{kind}_pool{r}d{tail}": lines(r, output_size=3) for r in (1, 2, 3)
       for kind, tail in (("avg", ""), ("max", ""), ("max", "_with_indices"))},
    **{f"dropout{r}": {"x": floats(2, 3, *(2,) * n),
                       "key": KEY} for r, n in (("", 1), ("1d", 1), ("2d", 2), ("3d", 3))},
    **dict.fromkeys(("attention", "flash_attention"), {"q": HEADS, "k": HEADS, "v": HEADS}),
    "scaled_dot_product_attention": {"query": HEADS, "key": HEADS, "value": HEADS},
    "batch_norm": {"input": IMAGE, **STATISTICS, **SCALE, "training": True},
    "batch_norm_statistics": {"input": IMAGE, **STATISTICS},
    "bmm": {"input": floats(2, 3, 4), "mat2": floats(2, 4, 2)},
    "bmm_nt": {"input": floats(2, 3, 4), "mat2": floats(2, 2, 4)},
    "bmm_tn": {"input": floats(2, 4, 3), "mat2": floats(2, 4, 2)},
    "channel_norm": {"input": floats(2, 4, 3), **SCALE}, "col2im": {
        "columns": floats(32, 8), "shape": (2, 2, 5, 5), "kernel_size": 2},
    "cosine_embedding_loss": {"input1": A, "input2": A, "target": V},
    "cross_entropy": LABELS, "nll_loss": LABELS, "multi_margin_loss": LABELS,
    "embedding": {"input": N, "weight": A}, "expert_plan": {
        "experts": whole(4, 3, 2), "num_experts": 4},
    "fake_quantize_lsq": {"input": A, "step": S}, "flow_euler_step": {
        "state": A, "velocity": A, "dt": 0.1}, "flow_linear_state": {
        "clean": A, "noise": A, "t": V}, "flow_linear_velocity": {"clean": A, "noise": A},
    "flow_masked_mse": {"prediction": A, "target": A, "mask": B},
    "fold": {"input": floats(1, 8, 16), "output_size": 5, "kernel_size": 2},
    "unfold": POOL, "im2col": POOL, "gaussian_nll_loss": {**LOSS, "var": A},
    "grid_sample": {"input": IMAGE, "grid": floats(2, 3, 3, 2)},
    "group_norm": {"input": IMAGE, "num_groups": 2, **SCALE},
    "grouped_gemm_m": {"x": A, "weight": floats(2, 4, 3), "offsets": whole(3, 3)},
    "grouped_linear_m": {"x": A, "weight": floats(2, 4, 3), "offsets": whole(3, 3),
                         "bias": floats(2, 4)},
    "instance_norm": {"input": IMAGE, **STATISTICS, **SCALE},
    "interpolate": {"input": IMAGE, "size": 4}, "upsample": {"input": IMAGE, "size": 4},
    "layer_norm": {"input": A, "normalized_shape": 3, "weight": V, "bias": V},
    "layer_norm2d": {"input": IMAGE, **SCALE},
    "rms_norm": {"input": A, "normalized_shape": 3, "weight": V, "bias": V},
    "rms_norm_gated": {"input": A, "gate": A, "weight": V, "bias": V},
    "linear": {"input": A, "weight": A, "bias": V},
    "margin_ranking_loss": {"input1": A, "input2": A, "target": A},
    "masked_cross_entropy": {"logits": A, "labels": N, "mask": V},
    "softmax_cross_entropy": {"logits": A, "labels": N},
    "split_heads": {"input": floats(2, 3, 4), "num_heads": 2}, "merge_heads": {
        "input": floats(2, 3, 4), "num_heads": 2},
    "moe_combine": {"packed": floats(6, 4), "gates": floats(3, 2), "packed_slot": whole(6, 6),
                    "inverse": whole(6, 6)},
    "moe_gather": {"x": floats(3, 4), "packed_slot": whole(6, 6), "inverse": whole(6, 6)},
    "moe_route_weights": {"probabilities": A, "experts": whole(3, 3, 2)},
    "pairwise_distance": {"x1": A, "x2": A}, "pixel_shuffle": {
        "input": IMAGE, "upscale_factor": 2}, "pixel_unshuffle": {
        "input": IMAGE, "downscale_factor": 2}, "prelu": {"input": A, "weight": V},
    "ppo_clipped_policy_loss": {"log_probs": A, "old_log_probs": A, "advantages": A},
    "rope": {"input": HEADS, "cos": floats(4, 3), "sin": floats(4, 3)},
    "silu_mul": {"gate": A, "up": A}, "swiglu": {"input": floats(3, 4)},
    "glu": {"input": floats(3, 4)}, "softmax_scaled_masked": {"input": A, "mask": A},
    "threshold": {"input": A, "threshold": 0.5, "value": 2.0},
    **dict.fromkeys(("triplet_margin_loss", "triplet_margin_with_distance_loss"),
                    {"anchor": A, "positive": A, "negative": floats(3, 3)}),
    **{f"{kind}_cell": {"input": floats(2, 3), "hx": state(kind, 2), "w_ih": floats(3 * n, 3),
                        "w_hh": floats(3 * n, 3)} for kind, n in CELLS.items()},
    **{kind: {"input": floats(4, 2, 3), "hx": state(kind, 1, 2),
              "weights": [[floats(3 * n, 3), floats(3 * n, 3)]]} for kind, n in CELLS.items()},
    **{f"{kind.split('_')[0]}_{form}": {
        "gates": floats(2, *steps, 3 * n), "weight_hh": floats(3 * n, 3),
        "state" if kind == "lstm" else first: state(kind, 2)}
       for kind, n in CELLS.items() for form, steps, first in (("step", (), "h"),
                                                               ("scan", (4,), "h0"))},
    "selective_scan": {"u": floats(2, 3, 4), "delta": floats(2, 3, 4), "A": floats(4, 2),
                       "B": floats(2, 3, 2), "C": floats(2, 3, 2), "D": floats(4)},
    "mamba2_ssd": {"x": floats(2, 3, 4, 2), "dt": floats(2, 3, 4), "A": floats(4),
                   "B": floats(2, 3, 2, 5), "C": floats(2, 3, 2, 5), "D": floats(4)},
    "gated_delta_net": {"q": floats(2, 3, 2, 4), "k": floats(2, 3, 2, 4), "v": floats(2, 3, 2, 5),
                        "g": floats(2, 3, 2), "beta": floats(2, 3, 2)},
    "mamba3_preprocess": {"projected": floats(2, 3, 28), "dt_bias": floats(2), "heads": 2,
                          "width": 3, "depth": 4, "angles": 2},
    "mamba3_siso": mamba3(1), "mamba3_mimo": {
        **mamba3(2), "c_bias": floats(2, 2, 4), "b_bias": floats(2, 2, 4),
        "mimo_x": floats(2, 2, 3), "mimo_o": floats(2, 2, 3)},
    # linalg, fft, random
    "lstsq": {"a": A, "b": V}, "matrix_power": {"a": A, "n": 2},
    "irfft": {"re": A, "im": A}, "key": {"seed": 3}, "fold_in": {"key": KEY, "data": 5},
    "bits": {"key": KEY, "shape": (3,)}, "categorical": {"key": KEY, "logits": A},
    "permutation": {"key": KEY, "x": A}, "randint": {
        "key": KEY, "shape": (3,), "minval": 0, "maxval": 9},
    "truncated_normal": {"key": KEY, "lower": -1.0, "upper": 2.0},
}
# What takes or gives graphs, functions or files instead of nodes, and has tests of its own.
OTHER = frozenset([
    "autocast", "batch_norm_with_state", "bind", "budget", "call", "check_grads", "checkpoint",
    "compile", "cond", "count", "custom_jvp", "custom_vjp", "decompose", "dim", "evaluate",
    "every", "grad", "hessian", "hvp", "jacfwd", "jacrev", "jvp", "key_state", "linearize",
    "load", "load_arrays", "parse", "retype", "save_arrays", "scan", "simplify",
    "singular_report", "spec", "trace", "train_step", "value_and_grad", "verify", "vjp", "vmap",
    "while_loop"])
LIKELY = {"x": A, "x1": A, "x2": A, "x3": A, "input": A, "target": A, "a": A, "b": A, "re": A,
          "key": KEY}


def calls() -> Iterator[Call]:
    """A call of every public function that makes nodes."""
    for module, found in MODULES.items():
        for name in found.__all__:
            function = getattr(found, name)
            if not inspect.isfunction(function) or name in OTHER:
                continue
            parameters = inspect.signature(function).parameters.values()
            needed = [p.name for p in parameters if p.default is p.empty]
            given = GIVEN.get(name, {}) if (module, name) != ("random", "split") else {"key": KEY}
            yield Call(f"{module}.{name}", function,
                       {**{k: LIKELY[k] for k in needed if k not in given}, **given})
