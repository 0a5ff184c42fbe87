"""A gated recurrent unit: 64 steps, batch 32, 64 inputs, width 128, the last state to 10 classes."""

from functools import partial

from benchmarks import recurrent

data = partial(recurrent.recurrent_data, "gru")
rlx_step = partial(recurrent.rlx_recurrent, kind="gru")
jax_step = partial(recurrent.jax_recurrent, kind="gru")
torch_step = partial(recurrent.torch_recurrent, kind="gru")
