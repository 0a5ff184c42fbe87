"""Comparisons, logic and shifts: element-wise ops without derivative."""

from __future__ import annotations

import numpy as np

from rlx_py.ir.base.types import bool_
from rlx_py.ir.ops.making.families import ANY, NUMERIC, elementwise

INTEGER = ("int", "uint")
LOGICAL = ("bool", *INTEGER)

EQ = elementwise("eq", np.equal, None, kinds=ANY, result=bool_)
NE = elementwise("ne", np.not_equal, None, kinds=ANY, result=bool_)
LT = elementwise("lt", np.less, None, kinds=NUMERIC, result=bool_)
LE = elementwise("le", np.less_equal, None, kinds=NUMERIC, result=bool_)
GT = elementwise("gt", np.greater, None, kinds=NUMERIC, result=bool_)
GE = elementwise("ge", np.greater_equal, None, kinds=NUMERIC, result=bool_)

# On bool they are logic, on integers they work bit by bit.
AND = elementwise("and", np.bitwise_and, None, kinds=LOGICAL)
OR = elementwise("or", np.bitwise_or, None, kinds=LOGICAL)
XOR = elementwise("xor", np.bitwise_xor, None, kinds=LOGICAL)
NOT = elementwise("not", np.invert, None, kinds=LOGICAL)

# A count outside 0 … bits − 1 shifts every bit out: 0, or −1 for a negative number shifted right.
SHL = elementwise("shl", np.left_shift, None, kinds=INTEGER)
SHR = elementwise("shr", np.right_shift, None, kinds=INTEGER)
