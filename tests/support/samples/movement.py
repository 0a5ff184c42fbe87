"""Samples of the ops that move elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.ir.base.literal import Literal
from rlx_py.ir.base.types import f16, f32, i8, i64, u8
from rlx_py.ir.nodes.node import OPS
from support.samples.sample import Sample, hostile, reals, sample, spiked, ties

SCALAR = np.asarray(1.5)


def op(name: str, case: str, *arrays: Any, smooth: bool = True, **attrs: Any) -> Sample:
    return sample(OPS[name], case, *arrays, smooth=smooth, **attrs)


SAMPLES = [
    op("size", "number", size=70000, dtype=f32),
    op("size", "beyond", size=70000, dtype=f16),
    op("size", "wraps", size=300, dtype=u8),
    op("constant", "scalar", value=Literal(np.asarray(2.5, np.float32))),
    op("constant", "array", value=Literal(reals(3, 5).astype(np.float16))),
    op("constant", "special", value=Literal(hostile(4, 5))),
    op("constant", "empty", value=Literal(np.zeros((0, 2), np.int32))),
    op("iota", "first", shape=(5, 3), axis=0, dtype=i64),
    op("iota", "last", shape=(2, 19), axis=1, dtype=f32),
    op("iota", "narrow", shape=(300,), axis=0, dtype=i8),
    op("iota", "half", shape=(3, 2), axis=0, dtype=f16),
    op("iota", "empty", shape=(0, 3), axis=1, dtype=f32),
    op("reshape", "split", reals(2, 12), shape=(4, 3, 2)),
    op("reshape", "merge", reals(2, 3, 4), shape=(6, 4)),
    op("reshape", "across", reals(4, 6), shape=(3, 8)),
    op("reshape", "ones", reals(1, 3, 1), shape=(3, 1, 1)),
    op("reshape", "to_scalar", reals(1, 1), shape=()),
    op("reshape", "empty", reals(0, 5), shape=(3, 0, 2)),
    op("transpose", "pair", reals(3, 17), axes=(1, 0)),
    op("transpose", "cycle", reals(2, 3, 4), axes=(2, 0, 1)),
    op("transpose", "inner", reals(2, 3, 4, 5), axes=(0, 2, 1, 3)),
    op("transpose", "empty", reals(2, 0, 4), axes=(2, 1, 0)),
    op("broadcast", "rows", reals(7), shape=(5, 7), axes=(1,)),
    op("broadcast", "columns", reals(5), shape=(5, 7), axes=(0,)),
    op("broadcast", "square", reals(4), shape=(4, 4), axes=(0,)),
    op("broadcast", "around", reals(3, 2), shape=(2, 3, 4, 2), axes=(1, 3)),
    op("broadcast", "scalar", SCALAR, shape=(3, 19), axes=()),
    op("broadcast", "to_nothing", SCALAR, shape=(0, 3), axes=()),
    op("slice", "inside", reals(5, 7), start=(1, 2), stop=(4, 7), step=(1, 1)),
    op("slice", "steps", reals(8, 9), start=(1, 0), stop=(8, 8), step=(3, 2)),
    op("slice", "remainder", reals(3, 10), start=(0, 1), stop=(3, 9), step=(2, 3)),
    op("slice", "nothing", reals(4, 3), start=(2, 0), stop=(2, 3), step=(1, 1)),
    op("pad", "around", reals(3, 4), SCALAR, low=(1, 2), high=(2, 0), interior=(0, 0)),
    op("pad", "interior", reals(3, 4), SCALAR, low=(0, 1), high=(0, 1), interior=(2, 1)),
    op("pad", "crop", reals(5, 6), SCALAR, low=(-1, 2), high=(1, -3), interior=(0, 0)),
    op("pad", "crop_interior", reals(4, 3), SCALAR, low=(-2, -1), high=(-1, 1), interior=(1, 2)),
    op("pad", "empty", reals(0, 3), SCALAR, low=(1, 0), high=(1, 1), interior=(3, 1)),
    op("pad", "special", hostile(3, 4), np.asarray(np.nan), low=(1, 0), high=(0, 2),
       interior=(0, 1), smooth=False),
    op("concat", "first", reals(2, 5), reals(3, 5), axis=0),
    op("concat", "last", reals(3, 2), reals(3, 1), reals(3, 4), axis=1),
    op("concat", "middle", reals(2, 3, 4), reals(2, 1, 4), axis=1),
    op("concat", "many", *(reals(2, i % 3, seed=i) for i in range(9)), axis=1),
    op("concat", "one", reals(3, 2), axis=0),
    op("concat", "with_empty", reals(0, 3), reals(2, 3), reals(0, 3, seed=1), axis=0),
    op("concat", "all_empty", reals(3, 0), reals(3, 0), axis=1),
    op("reverse", "first", reals(4, 5), axes=(0,)),
    op("reverse", "both", reals(3, 19), axes=(0, 1)),
    op("reverse", "none", reals(3, 2), axes=()),
    op("reverse", "empty", reals(0, 3), axes=(0,)),
    op("windows", "line", reals(2, 10), size=(3,), stride=(1,), dilation=(1,)),
    op("windows", "stride_remainder", reals(2, 11), size=(3,), stride=(2,), dilation=(1,)),
    op("windows", "dilation", reals(2, 10), size=(3,), stride=(2,), dilation=(2,)),
    op("windows", "plane", reals(2, 5, 7), size=(2, 3), stride=(2, 1), dilation=(1, 2)),
    op("windows", "no_batch", reals(0, 6), size=(2,), stride=(1,), dilation=(1,)),
    op("fold", "line", reals(2, 8, 3), shape=(10,), size=(3,), stride=(1,), dilation=(1,)),
    op("fold", "stride_remainder", reals(2, 5, 3), shape=(12,), size=(3,), stride=(2,),
       dilation=(1,)),
    op("fold", "gaps", reals(3, 2), shape=(9,), size=(2,), stride=(3,), dilation=(1,)),
    op("fold", "dilation", reals(2, 3, 3), shape=(10,), size=(3,), stride=(2,), dilation=(2,)),
    op("fold", "plane", reals(2, 2, 3, 2, 3), shape=(4, 7), size=(2, 3), stride=(2, 1),
       dilation=(1, 2)),
    op("fold", "phases", reals(9, 4, 4), shape=(17,), size=(4,), stride=(3,), dilation=(2,)),
    op("fold", "common_factor", reals(9, 3, 2), shape=(10,), size=(2,), stride=(2,), dilation=(4,)),
    op("fold", "long_stride", reals(2, 2, 18), shape=(36,), size=(18,), stride=(17,),
       dilation=(1,)),
    op("fold", "no_batch", reals(0, 5, 2), shape=(6,), size=(2,), stride=(1,), dilation=(1,)),
    op("fold", "special", spiked(4, 4, 3), shape=(6,), size=(3,), stride=(1,), dilation=(1,),
       smooth=False),
    op("fold", "ties", ties(2, 4, 3), shape=(6,), size=(3,), stride=(1,), dilation=(1,)),
]
