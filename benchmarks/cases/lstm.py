"""Long short-term memory: 64 steps, batch 32, 64 inputs, width 128, the last state to 10 classes."""

from functools import partial

from benchmarks import recurrent

data = partial(recurrent.recurrent_data, "lstm")
rlx_step = partial(recurrent.rlx_recurrent, kind="lstm")
jax_step = partial(recurrent.jax_recurrent, kind="lstm")
torch_step = partial(recurrent.torch_recurrent, kind="lstm")
