"""Every op with a size by name, bound again, is the op at that size, bit for bit and with both
derivatives; or an error says what the size leaves open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

import numpy as np
import pytest

from rlx_py.ir.base.dim import dim
from rlx_py.ir.base.errors import RLXError, Undecided
from rlx_py.ir.graph.bind import bind, names_of
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.graph.graph import Graph
from rlx_py.passes.derive.jvp import jvp
from rlx_py.passes.derive.vjp import vjp
from support.dynamic import (
    axes_of,
    element_type,
    first_axis_is_free,
    with_leading_size,
    with_sizes_of_an_axis,
)
from support.layers import CASES
from support.samples import SAMPLES, samples_of
from support.samples.sample import Sample
from support.sweep import Arrays, assert_near, float_inputs, fresh, same_bits

# Samples whose first axis may have any number, but not a name, and why.
FIXED: dict[str, str] = {
    "svd-*": "the shapes of the results depend on which side is longer",
    "fake_quantize*": "the sample makes an array of the input's size",
    "flow_masked_mse-*": "the sample makes an array of the input's size",
}
# Samples that build, but whose derivative depends on what the size is.
OPEN = {"slice-steps": "of no step but maybe none, the gaps behind the last one"}


def derivatives(g: Graph, differentiable: bool) -> Iterator[Callable[[Graph], Graph]]:
    """The graph itself, and what is made of it in both modes."""
    yield lambda h: h
    wrt = float_inputs(g)
    if differentiable and wrt and any(n.dtype.is_float for n in g.outputs.values()):
        yield lambda h: vjp(h, wrt)
        yield lambda h: jvp(h, wrt)


def check(dynamic: Graph, static: Graph, n: int, feed: Arrays, differentiable: bool) -> None:
    """Equal bits at a size n > 1, of values and of both derivatives."""
    rng = np.random.default_rng(0)
    for derive in derivatives(static, differentiable):
        wanted = derive(static)
        found = derive(dynamic)
        bound = bind(found, dict.fromkeys(names_of(found), n))
        given = {**feed, **fresh(wanted, static, rng)}
        expected = evaluate(wanted, given)
        got = evaluate(bound, given)
        assert list(got) == list(expected)
        # Axes of size 1 are simplified away where they are known, which may reorder sums.
        (assert_near if n == 1 else same_bits)(got, expected)


def known(table: dict[str, str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in table)


LED = {str(s): (s, found) for s in SAMPLES if (found := with_leading_size(s)) is not None}


@pytest.mark.parametrize("name", LED)
def test_the_first_axis_may_have_any_size(name: str) -> None:
    s, found = LED[name]
    if isinstance(found, RLXError):
        assert known(FIXED, name) or not first_axis_is_free(s), found
        return
    dtype = element_type(s)
    try:
        check(found[0], s.graph(dtype), found[1], s.feed(dtype), s.op.differentiable)
    except Undecided:
        assert known(OPEN, name)


def test_what_is_said_to_be_fixed_is() -> None:
    for table in (FIXED, OPEN):
        for pattern in table:
            assert any(fnmatchcase(name, pattern) for name in LED), pattern
    assert sum(not isinstance(found, RLXError) for _, found in LED.values()) > 0.95 * len(LED)
    assert not first_axis_is_free(samples_of("cholesky")[0])
    assert first_axis_is_free(samples_of("exp")[0])


OTHERS = [(s, axis) for s in SAMPLES for axis in axes_of(s)]


@pytest.mark.parametrize(("s", "axis"), OTHERS, ids=[f"{s}-{axis}" for s, axis in OTHERS])
def test_another_axis_is_right_or_refused(s: Sample, axis: int) -> None:
    found = with_sizes_of_an_axis(s, axis)
    if isinstance(found, RLXError):
        return
    dtype = element_type(s)
    try:
        check(found[0], s.graph(dtype), found[1], s.feed(dtype), s.op.differentiable)
    except Undecided as error:
        assert "for every B >= 1" in str(error) or "while the graph is built" in str(error)


def test_most_other_axes_may_have_any_size() -> None:
    found = [with_sizes_of_an_axis(s, axis) for s, axis in OTHERS]
    assert sum(not isinstance(f, RLXError) for f in found) > 0.7 * len(found)


# Layers all of whose arrays are of one batch, and those that take none, or labels of a number.
SHARED = ("cross_entropy_soft", "mse_loss", "bce_with_logits")
WITHOUT_BATCH = ("layer_norm_two_axes", "rms_norm_first", "linear_vector", "cross_entropy_rows",
                 "cross_entropy_smooth", "cross_entropy", "binary_cross_entropy")


@pytest.mark.parametrize("name", [k for k in CASES if k not in WITHOUT_BATCH])
def test_layers_take_a_batch_of_any_size(name: str) -> None:
    function, arrays = CASES[name]
    g, static, b = Graph(name), Graph(name), dim("B")
    first = next(iter(arrays))
    shapes = {k: (b, *a.shape[1:]) for k, a in arrays.items() if k == first or name in SHARED}
    for h, given in ((g, shapes), (static, {})):
        inputs = {k: h.input(k, given.get(k, a.shape), a.dtype) for k, a in arrays.items()}
        h.output("y", function(**inputs))
    check(g, static, arrays[first].shape[0], arrays, True)
