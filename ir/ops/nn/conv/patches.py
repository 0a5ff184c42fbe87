"""Images as rows of patches and back, and channels as pixels: moves of elements alone."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from rlx_py.ir.base.errors import ShapeError
from rlx_py.ir.base.types import as_shape
from rlx_py.ir.nodes.node import Node
from rlx_py.ir.ops.making.arguments import integer
from rlx_py.ir.ops.making.located import located
from rlx_py.ir.ops.nn.pool.pool import folded_windows, padded_windows
from rlx_py.ir.ops.operands.operand import as_node
from rlx_py.ir.ops.operands.spatial import padding_pairs, per_axis
from rlx_py.ir.ops.primitive.movement import permuted, reshaped
from rlx_py.ir.ops.primitive.windows import window_count

Sizes = tuple[int, ...]


def _line(rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any
          ) -> dict[str, Sizes]:
    low, high = padding_pairs(padding, rank)
    return {"size": per_axis("kernel_size", kernel_size, rank, 1),
            "stride": per_axis("stride", stride, rank, 1), "low": low, "high": high,
            "dilation": per_axis("dilation", dilation, rank, 1)}


def _places(lengths: Sizes, line: dict[str, Sizes]) -> Sizes:
    padded = (n + a + b for n, a, b in zip(lengths, line["low"], line["high"], strict=True))
    return tuple(map(window_count, padded, line["size"], line["stride"], line["dilation"]))


def _axes(rank: int) -> tuple[Sizes, Sizes]:
    """Of [N, C, P…, K…]: the places and the taps."""
    return tuple(range(2, 2 + rank)), tuple(range(2 + rank, 2 + 2 * rank))


# ---- rows ------------------------------------------------------------------------------------


@located
def im2col(input: Any, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1
           ) -> Node:
    """The windows of input[N, C, L…] as rows: [N·P…, C·K…], rows (n, p…), columns (c, k…).

    P are the places of a convolution with the same arguments. Raises ShapeError (no spatial axis,
    kernel beyond the padded input), ArgumentError (stride 0, …).
    """
    x = as_node(input)
    rank = x.rank - 2
    if rank < 1:
        raise ShapeError(f"input must be [N, C, L…], not {x.type}")
    line = _line(rank, kernel_size, stride, padding, dilation)
    windows = padded_windows(x, 0, **line)
    places, taps = _axes(rank)
    rows = permuted(windows, (0, *places, 1, *taps))
    sizes = rows.shape[:rank + 1], rows.shape[rank + 1:]
    return reshaped(rows, (prod(sizes[0]), prod(sizes[1])))


@located
def col2im(columns: Any, shape: Any, kernel_size: Any, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1) -> Node:
    """The adjoint of `im2col`: rows of patches added into an input of shape [N, C, L…]."""
    rows, sizes = as_node(columns), as_shape(shape)
    rank = len(sizes) - 2
    if rank < 1:
        raise ShapeError(f"shape must be [N, C, L…], not {sizes}")
    line = _line(rank, kernel_size, stride, padding, dilation)
    counts = _places(sizes[2:], line)
    whole = (sizes[0], *counts, sizes[1], *line["size"])
    if rows.shape != (prod(whole[:rank + 1]), prod(whole[rank + 1:])):
        raise ShapeError(f"{rows.type} are not the [{prod(whole[:rank + 1])}, "
                         f"{prod(whole[rank + 1:])}] patches of {sizes}")
    places, taps = tuple(range(1, rank + 1)), tuple(range(rank + 2, 2 * rank + 2))
    windows = permuted(reshaped(rows, whole), (0, rank + 1, *places, *taps))
    return folded_windows(windows, sizes, **line)


# ---- PyTorch's, of images --------------------------------------------------------------------


def _batched(node: Node, rank: int, name: str, call: Callable[[Node], Node]) -> Node:
    """The call, on a batch of one where the batch axis is missing."""
    if node.rank == rank:
        return call(node)
    if node.rank != rank - 1:
        raise ShapeError(f"{name} takes rank {rank - 1} or {rank}, not {node.type}")
    y = call(reshaped(node, (1, *node.shape)))
    return reshaped(y, y.shape[1:])


@located
def unfold(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
           ) -> Node:
    """The windows of input[N, C, H, W] or [C, H, W] as columns: [N, C·Kh·Kw, Ho·Wo].

    Raises as `im2col`.
    """
    line = _line(2, kernel_size, stride, padding, dilation)

    def columns(x: Node) -> Node:
        windows = padded_windows(x, 0, **line)
        n, c, h, w, *taps = windows.shape
        return reshaped(permuted(windows, (0, 1, 4, 5, 2, 3)), (n, c * prod(taps), h * w))

    return _batched(as_node(input), 4, "unfold", columns)


@located
def fold(input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
         stride: Any = 1) -> Node:
    """The adjoint of `unfold`: columns [N, C·Kh·Kw, P] or [C·Kh·Kw, P] added into [N, C, H, W].

    output_size is (H, W). Raises ShapeError (sizes that are not those of windows), ArgumentError.
    """
    line = _line(2, kernel_size, stride, padding, dilation)
    size = per_axis("output_size", output_size, 2, 1)
    counts, taps = _places(size, line), prod(line["size"])

    def image(columns: Node) -> Node:
        n, rows, places = columns.shape
        if rows % taps or places != prod(counts):
            raise ShapeError(f"{columns.type} does not hold windows {line['size']} at "
                             f"{prod(counts)} places of {size}")
        windows = reshaped(columns, (n, rows // taps, *line["size"], *counts))
        return folded_windows(permuted(windows, (0, 1, 4, 5, 2, 3)), (n, rows // taps, *size),
                              **line)

    return _batched(as_node(input), 3, "fold", image)


@located
def pixel_shuffle(input: Any, upscale_factor: int) -> Node:
    """input[…, C·r², H, W] as […, C, H·r, W·r]: channel c·r² + i·r + j to pixel (h·r + i, w·r + j).

    Raises ShapeError (rank below 3, channels that r² does not divide), ArgumentError (r below 1).
    """
    x, r = as_node(input), per_axis("upscale_factor", integer("upscale_factor", upscale_factor),
                                    1, 1)[0]
    if x.rank < 3 or x.shape[-3] % (r * r):
        raise ShapeError(f"{x.type} does not hold {r}·{r} channels a pixel")
    lead, (c, h, w) = x.shape[:-3], x.shape[-3:]
    n = len(lead)
    split = reshaped(x, (*lead, c // (r * r), r, r, h, w))
    moved = permuted(split, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshaped(moved, (*lead, c // (r * r), h * r, w * r))


@located
def pixel_unshuffle(input: Any, downscale_factor: int) -> Node:
    """input[…, C, H·r, W·r] as […, C·r², H, W]: the inverse of `pixel_shuffle`.

    Raises ShapeError (rank below 3, sizes that r does not divide), ArgumentError (r below 1).
    """
    x, r = as_node(input), per_axis("downscale_factor",
                                    integer("downscale_factor", downscale_factor), 1, 1)[0]
    if x.rank < 3 or x.shape[-2] % r or x.shape[-1] % r:
        raise ShapeError(f"{x.type} does not hold squares of {r}·{r} pixels")
    lead, (c, h, w) = x.shape[:-3], x.shape[-3:]
    n = len(lead)
    split = reshaped(x, (*lead, c, h // r, r, w // r, r))
    moved = permuted(split, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshaped(moved, (*lead, c * r * r, h // r, w // r))
