"""Sample calls of every op in the registry: shapes and values on which mistakes show."""

from __future__ import annotations

from support.samples import (
    activations,
    attention,
    elementwise,
    experts,
    folds,
    layers,
    mamba3,
    matrices,
    movement,
    norms,
    orders,
    positions,
    random,
    recurrent,
    regions,
    resampling,
    state_spaces,
)
from support.samples.sample import Sample

SAMPLES: tuple[Sample, ...] = (
    *elementwise.SAMPLES, *movement.SAMPLES, *folds.SAMPLES, *positions.SAMPLES, *layers.SAMPLES,
    *norms.SAMPLES, *orders.SAMPLES, *matrices.SAMPLES, *random.SAMPLES, *attention.SAMPLES,
    *activations.SAMPLES, *experts.SAMPLES, *resampling.SAMPLES,
    *recurrent.SAMPLES, *regions.SAMPLES, *state_spaces.SAMPLES,
    *mamba3.SAMPLES, *layers.LABELLED)

# Ops that are no computation of their own, and where they are tested.
EXEMPT = {
    "checkpoint": "a user's function: test_checkpoint",
    "batched": "a composite for each of many elements: test_vmap",
    "custom_jvp": "a user's function and rule: test_custom",
    "custom_vjp": "a user's function and rule: test_custom",
    "cond": "a user's branches: test_cond",
    "scan": "a user's body: test_scan, test_while",
    "leaf": "an input, param or state: every graph has them",
    "tuple": "several results as one: test_transforms",
    "project": "one of several results: every sample of an op with several",
}


def samples_of(name: str) -> list[Sample]:
    """The samples of an op."""
    return [s for s in SAMPLES if s.op.name == name]
