"""Optimisers, learning-rate schedules and the loss scale, as nodes of the training step."""

from rlx_py.optim.descent import adam, adamw, lamb, lion, momentum, sgd
from rlx_py.optim.matrices import adafactor, muon
from rlx_py.optim.scaling import dynamic_loss_scale
from rlx_py.optim.schedules import (
    Rate,
    Schedule,
    constant,
    exponential_decay,
    linear,
    rate_at,
    step_decay,
    warmup_cosine,
)

__all__ = [
    "Rate",
    "Schedule",
    "adafactor",
    "adam",
    "adamw",
    "constant",
    "dynamic_loss_scale",
    "exponential_decay",
    "lamb",
    "linear",
    "lion",
    "momentum",
    "muon",
    "rate_at",
    "sgd",
    "step_decay",
    "warmup_cosine",
]
