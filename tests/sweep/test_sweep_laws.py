"""What the registry promises: each op is sampled, has its rules, and its backward is whole."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from rlx_py.ir.base.types import f64
from rlx_py.ir.graph.evaluate import evaluate
from rlx_py.ir.nodes.node import OPS, Op
from rlx_py.passes.derive.vjp import vjp
from rlx_py.passes.rewrite.decompose import decompose
from support.samples import EXEMPT, SAMPLES, samples_of
from support.samples.sample import Sample
from support.sweep import assert_near, float_inputs, fresh

BACKWARDS = [n for n in OPS if "_backward" in n]


def test_samples_cover_the_registry() -> None:
    sampled = {s.op.name for s in SAMPLES}
    missing = [n for n in OPS if n not in sampled and n not in EXEMPT]
    assert not missing, f"no sample of {missing}: add some to tests/support/samples"
    assert not sampled & EXEMPT.keys()
    assert all(n in OPS for n in EXEMPT)


def test_samples_have_names_of_their_own() -> None:
    assert len({str(s) for s in SAMPLES}) == len(SAMPLES)


@pytest.mark.parametrize("op", OPS.values(), ids=str)
def test_each_op_has_a_meaning_and_a_rule_or_a_mark(op: Op) -> None:
    if op.name in EXEMPT:
        return
    assert op.eval or op.decompose, "neither a NumPy meaning nor a decomposition"
    assert op.element or op.kernel or op.decompose, "nothing to lower it by"
    if op.differentiable:
        assert op.vjp or op.decompose, "no reverse rule, and not marked differentiable=False"
        assert op.jvp or op.decompose, "no forward rule, and not marked differentiable=False"
    else:
        assert op.vjp is None and op.jvp is None, "a rule that nothing asks"


@pytest.mark.parametrize("s", SAMPLES, ids=str)
def test_types_are_inferred_as_numpy_evaluates(s: Sample) -> None:
    for dtype in s.dtypes():
        g, feed = s.graph(dtype), s.feed(dtype)
        if s.op.eval is None or s.prepare is not None:
            evaluate(g, feed)  # refuses another shape
            continue
        with np.errstate(all="ignore"):
            found = s.op.eval(*feed.values(), **s.attrs)
        results = found if isinstance(found, tuple) else (found,)
        for want, result in zip(g.outputs.values(), results, strict=True):
            array = np.asarray(result)
            assert array.shape == want.shape
            # Floats may be evaluated in a wider type, and then are rounded.
            wider = want.dtype.is_float and array.dtype.kind == "f"
            assert array.dtype == want.dtype.numpy or wider


@pytest.mark.parametrize("s", [s for s in SAMPLES if s.op.decompose and f64 in s.dtypes()], ids=str)
def test_decompositions_are_the_op_and_its_derivative(s: Sample) -> None:
    g, feed = s.graph(), s.feed()
    assert_near(evaluate(decompose(g), feed), evaluate(g, feed), str(s))
    wrt = float_inputs(g)
    backward = vjp(g, wrt)
    values = {**feed, **fresh(backward, g, np.random.default_rng(5))}
    found = evaluate(backward, values)
    expanded = evaluate(vjp(decompose(g), wrt), values)
    if s.smooth:
        assert_near(found, expanded, str(s), factor=10)


def test_every_backward_has_its_forward() -> None:
    for name in BACKWARDS:
        assert name.split("_backward")[0] in OPS, f"{name} is the backward of nothing"


@pytest.mark.parametrize("name", BACKWARDS)
def test_a_backward_carries_every_attribute_of_its_forward(name: str) -> None:
    forward = name.split("_backward")[0]
    reached = 0
    for s in samples_of(forward):
        attrs = s.attrs.items()
        for node in vjp(s.graph(), float_inputs(s.graph())).nodes:
            if node.op.name == name:
                missing = [k for k, v in attrs if k not in node.attrs or node.attrs[k] != v]
                assert not missing, f"{name} lacks {missing} of {forward}'s attributes"
                reached += 1
    assert reached, f"no sample of {forward} has a gradient through {name}"


@pytest.mark.parametrize("name", BACKWARDS)
def test_samples_vary_every_attribute(name: str) -> None:
    """An attribute that no sample of a forward op varies is one that a rule may forget."""
    forward = name.split("_backward")[0]
    seen: dict[str, set[str]] = {}
    for s in samples_of(forward):
        for k, v in s.attrs.items():
            seen.setdefault(k, set()).add(repr(v))
    assert not [k for k, values in seen.items() if len(values) < 2]


def test_inference_takes_no_attribute_by_default() -> None:
    """A default could be left out of a backward op without an error."""
    for op in OPS.values():
        for p in inspect.signature(op.infer).parameters.values():
            assert p.default is inspect.Parameter.empty, (op.name, p.name)
