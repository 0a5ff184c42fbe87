"""What a call of a compiled graph gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_py.backends.base import Array
from rlx_py.ir.base.arrays import described
from rlx_py.ir.base.errors import ArgumentError
from rlx_py.ir.base.named import Named

SHOWN = 6  # elements of an array up to which it is printed whole


class Outputs(Named[Any]):
    """Named arrays: out.loss or out["loss"]; printed with their types and values."""

    __slots__ = ()

    def __array__(self, *args: Any, **options: Any) -> Array:
        name = next(iter(self), "loss")
        raise ArgumentError(f"outputs are {len(self)} arrays by name, not one array: "
                            f"np.asarray(out[{name!r}]) takes one")

    def _shown(self, value: Any) -> str:
        if not isinstance(value, np.ndarray):  # nested, as a traced function's params
            return repr(value)
        text = np.array2string(value, threshold=SHOWN, edgeitems=2, precision=6)
        return f"{described(value)} {' '.join(text.split())}"
