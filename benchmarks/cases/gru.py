"""A gated recurrent unit of width 128: 64 steps of 64 inputs, batch 32, 10 classes at the end."""

from functools import partial

from benchmarks import recurrent

data = partial(recurrent.recurrent_data, "gru")
rlx_step = partial(recurrent.rlx_recurrent, kind="gru")
jax_step = partial(recurrent.jax_recurrent, kind="gru")
torch_step = partial(recurrent.torch_recurrent, kind="gru")
