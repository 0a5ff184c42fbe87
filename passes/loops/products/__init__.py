"""Products: Contract statements as packing loops, register tiles and epilogue loops."""

from rlx_py.passes.loops.products.expand import expand_contract
from rlx_py.passes.loops.products.target import TileTarget, choose_tile

__all__ = ["TileTarget", "choose_tile", "expand_contract"]
