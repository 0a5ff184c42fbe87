"""Every example runs, warnings as errors, and prints what it is there to show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.documents import ROOT, run_python

EXAMPLES = {p.name: p for p in sorted((ROOT / "examples").glob("*.py"))}
ARGUMENTS = {
    "char_gpt.py": ["--steps", "80", "--letters", "40"],
    "train_digits.py": ["--seeds", "1", "--epochs-mlp", "3", "--epochs-cnn", "1"],
    "second_order.py": ["--tasks", "1", "--samples", "3"],
    "dynamic_batch.py": ["--epochs", "4"],
    "train_options.py": ["--steps", "40"],
    "export_mlp.py": ["--epochs", "2"],
    "tape.py": ["--steps", "40"],
    "mamba.py": ["--steps", "300"],
    "maml.py": ["--sine-steps", "200", "--digit-steps", "120"],
    "implicit_maml.py": ["--steps", "150"],
    "learned_optimizer.py": ["--meta-steps", "60"],
    "gradient_penalty.py": ["--steps", "250"],
    "mixed_precision.py": ["--epochs", "4"],
    "newton.py": ["--steps", "10"],
}
PRINTS = {
    "char_gpt.py": ["bytes of weights saved", "--- after"],
    "checkpoint.py": ["keep products", "same bits: True"],
    "checks.py": ["agree with central differences", "wrong gradient: order 1", "checks.py:",
                  "log: 1 elements"],
    "control_flow.py": ["root of 2: 1.414213562373 after 5 steps", "slope: 0.353553390593",
                        "[ 0  5 15]", "[0.25, -6.0]"],
    "custom_rules.py": ["clipped gradient: [-1.", "root 2.000000000000"],
    "draw_graph.py": ["logistic.dot", "logistic_grad.dot"],
    "dynamic_batch.py": ["i64[] of f32[B,64]", "the last of", "test accuracy 0.9", "{'B': 29}]",
                         "refused: 'y' takes i32[B]: axis 0 is 4, not 3: B is"],
    "export_mlp.py": ["bytes of object file"],
    "find_nan.py": ["forward:  nan in sqrt", "in the backward of sqrt", "find_nan.py:",
                    "finite:   None"],
    "gradient_penalty.py": ["of other real images", "@"],
    "hessian_vector.py": ["largest eigenvalue"],
    "jacobians.py": ["2 J'r is the gradient", "stationary after"],
    "linear_regression.py": ["largest difference"],
    "linearize.py": ["6 residuals", "6 runs of the function, 54 products"],
    "mamba.py": ["by chance 12.5%", "ms a step"],
    "maml.py": ["after 0, 1 and 5 steps", "±"],
    "newton.py": ["training accuracy"],
    "implicit_maml.py": ["inner steps"],
    "learned_optimizer.py": ["there and back", "SGD at its best rate"],
    "mixed_precision.py": ["f32: loss", "bf16: loss", "steps skipped, loss scale"],
    "profiling.py": ["kernels\n", "GFLOP/s", "profiling.py:", "% of ", "  line "],
    "per_sample_gradients.py": ["64 gradients in one call", "are cut to"],
    "save_load.py": ['graph "scaled"', "same bits"],
    "scan_rnn.py": ["step 1000: loss 0.0", "checkpoint=None", 'checkpoint="sqrt"'],
    "second_order.py": ["worst relative error"],
    "streaming.py": ["last states", "of the whole sequence", "as causal attention: True"],
    "tape.py": ["rounds taken: [0, 2, 3, 4]", "compiled agrees: True", "refused: backward takes"],
    "trace_nested.py": ["layers.0.w", "(1, 32)"],
    "train_digits.py": ["mlp: mean test accuracy 0.", "cnn: mean test accuracy 0.", "us a step"],
    "train_options.py": ["an optimiser and a schedule of your own", "unchanged ['embed.table']"],
}
# The first group of each pattern, and between what its numbers lie.
BOUNDS: dict[str, list[tuple[str, float, float]]] = {
    "gradient_penalty.py": [
        (r"(\S+) in the last 100 steps", 0.9, 1.1),
        (r"untrained generator: (\S+)", 0.2, 0.5),
        (r"the trained generator: (\S+)", 0.01, 0.16),
        (r"other real images: (\S+)", 0.005, 0.03),
    ],
    "learned_optimizer.py": [
        (r"; (\d+) KiB for 100 steps", 500, 5000),
        (r"untrained optimiser: (\S+)", 1, 100),
        (r"  trained optimiser: (\S+)", 0, 0.25),
        (r"Adam at .*: (\S+)", 0.05, 0.3),
    ],
    "implicit_maml.py": [
        (r"1000 inner steps: .* own gradient (\S+);", 0, 1e-4),
        (r"inner steps: .*; (\d+) KiB against", 1, 400),
        (r"1000 inner steps: .* KiB against (\d+)", 5000, 1e6),
        (r"random start: (\S+)", 1.7, 5),
        (r"trained start: (\S+)", 0, 1.5),
    ],
    "newton.py": [
        (r"regression: loss .*, gradient (\S+) after \d+ steps and", 0, 1e-9),
        (r"regression: loss .*, gradient (\S+) after \d+ steps of gradient descent", 1e-3, 1),
        (r"network: loss (\S+),.* steps and", 0, 0.16),
    ],
    "char_gpt.py": [
        (r"held-out text: (\S+) bits a letter by frequency", 4.3, 5),
        (r"held-out text: (\S+) bits a letter by the network", 2, 4),
    ],
    "mamba.py": [
        (r"selective steps: .* (\S+)% of new letters", 80, 100.1),
        (r"fixed     steps: .* (\S+)% of new letters", 40, 80),
    ],
    "maml.py": [
        (r"new sines after.*\n.*random start: \S+ \S+   \S+ \S+   (\S+)", 2.5, 7),
        (r"new sines after.*\n.*\n.*trained start: \S+ \S+   \S+ \S+   (\S+)", 0, 2),
        (r"digits after.*\n.*\n.*trained start: (\S+)", 0.25, 0.42),
        (r"digits after.*\n.*\n.*trained start: \S+ \S+   \S+ \S+   (\S+)", 0.5, 1),
    ],
}
# Other flags, at a size that shows only that they run.
ALSO = [
    ("char_gpt.py", ["--steps", "3", "--letters", "5", "--greedy"]),
    ("maml.py", ["--sine-steps", "3", "--digit-steps", "2", "--first-order"]),
]


def test_every_example_has_its_expectations() -> None:
    assert list(EXAMPLES) == sorted(PRINTS)
    assert set(BOUNDS) <= set(PRINTS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(name: str, tmp_path: Path) -> None:
    printed = run_python([str(EXAMPLES[name]), *ARGUMENTS.get(name, [])], tmp_path)
    for part in PRINTS[name]:
        assert part in printed, printed
    for pattern, low, high in BOUNDS.get(name, []):
        found = re.findall(pattern, printed)
        assert found, (pattern, printed)
        assert all(low < float(number) < high for number in found), (pattern, printed)


@pytest.mark.parametrize(("name", "arguments"), ALSO, ids=[name for name, _ in ALSO])
def test_other_flags_run(name: str, arguments: list[str], tmp_path: Path) -> None:
    assert run_python([str(EXAMPLES[name]), *arguments], tmp_path)
