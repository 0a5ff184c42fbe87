"""Lines that move, fold, order and address elements; each a function that gives a template.

A function draws its first operand, since axes and sizes depend on it, and names it under its hole.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuzz.scope import FLOATS, Name, Scope

Drawn = tuple[str, dict[str, Name]] | None


def first(scope: Scope, kind: str = "any", rank: int = 1, *, filled: bool = False) -> Name | None:
    """A name of at least this rank; filled: without empty axes."""
    def fits(shape: tuple[int, ...], dtype: str) -> bool:
        return (len(shape) >= rank and (kind == "any" or dtype in FLOATS)
                and (not filled or 0 not in shape))

    return scope.pick(fits)


def axis_of(scope: Scope, name: Name) -> int:
    """An axis, negative now and then."""
    rank = len(scope.shape_of(name))
    axis = scope.rng.randrange(rank)
    return axis - rank if scope.rng.random() < 0.3 else axis


def axes_of(scope: Scope, name: Name) -> Any:
    """None, an axis, or several."""
    rank = len(scope.shape_of(name))
    if not rank or scope.rng.random() < 0.25:
        return None
    if scope.rng.random() < 0.5:
        return axis_of(scope, name)
    return tuple(scope.rng.sample(range(rank), scope.rng.randint(1, rank)))


def reshape(scope: Scope) -> Drawn:
    n = first(scope, rank=0)
    if n is None:
        return None
    shape, rng = scope.shape_of(n), scope.rng
    size = math.prod(shape)
    plain = ["rlx.ravel({n})", "rlx.squeeze({n})", "{n}.reshape(-1)"]
    if shape:
        plain.append(f"rlx.expand_dims({{n}}, {rng.randrange(len(shape) + 1)})")
    if not size or rng.random() < 0.4:
        return rng.choice(plain[:2] if not size else plain), {"n": n}
    a = rng.choice([d for d in range(1, 18) if size % d == 0])
    b = rng.choice([d for d in range(1, 9) if size // a % d == 0])
    sizes = [a, b, size // a // b]
    rng.shuffle(sizes)
    if rng.random() < 0.3:
        sizes[:2] = [sizes[0] * sizes[1]]
    return f"{{n}}.reshape({tuple(sizes)})", {"n": n}


def transpose(scope: Scope) -> Drawn:
    n = first(scope, rank=2)
    if n is None:
        return None
    rank = len(scope.shape_of(n))
    a, b = axis_of(scope, n), axis_of(scope, n)
    p, q = (tuple(scope.rng.sample(range(rank), rank)) for _ in range(2))
    return scope.rng.choice([
        "{n}.T", f"rlx.transpose({{n}}, {p})", f"rlx.transpose({{n}}, {p}).transpose({q})",
        f"rlx.swapaxes({{n}}, {a}, {b})", f"rlx.moveaxis({{n}}, {a}, {b})"]), {"n": n}


def _index(scope: Scope, size: int) -> str:
    rng = scope.rng
    drawn = rng.random()
    if drawn < 0.3:
        return ":"
    if drawn < 0.4 and size:
        return str(rng.randrange(-size, size))
    if drawn < 0.6:
        return rng.choice(["::-1", "::2", "::-2", "1:", ":-1", "::3", "-2:", "1::2", "2::-1",
                           "-1:0:-1"])
    start, stop = rng.randint(-size - 1, size + 1), rng.randint(-size - 1, size + 1)
    return f"{start}:{stop}:{rng.choice([1, 1, 2, 3, -1, -2])}"


def index(scope: Scope) -> Drawn:
    n = first(scope)
    if n is None:
        return None
    parts = [_index(scope, size) for size in scope.shape_of(n)]
    if scope.rng.random() < 0.15:
        parts.insert(scope.rng.randint(0, len(parts)), "None")
    if scope.rng.random() < 0.15:
        parts[scope.rng.randrange(len(parts))] = "..."
    return f"{{n}}[{', '.join(parts)}]", {"n": n}


def move(scope: Scope) -> Drawn:
    n = first(scope)
    if n is None:
        return None
    rng, shape, axis = scope.rng, scope.shape_of(n), axis_of(scope, n)
    rank = len(shape)
    widths = [(rng.randint(0, 2), rng.randint(0, 2)) for _ in shape]
    reps = tuple(rng.randint(1, 2) for _ in range(rng.randint(1, rank + 1)))
    found = [f"rlx.flip({{n}}, {axes_of(scope, n)})",
             f"rlx.roll({{n}}, {rng.randint(-4, 4)}, {axis})",
             f"rlx.roll({{n}}, {rng.randint(-4, 4)})",
             f"rlx.repeat({{n}}, {rng.randint(0, 3)}, {axis})",
             f"rlx.tile({{n}}, {reps})",
             f"rlx.pad({{n}}, {widths})", f"rlx.concatenate([{{n}}, {{n}}], axis={axis})",
             f"rlx.stack([{{n}}, {{n}}], axis={axis})",
             f"rlx.broadcast_to({{n}}, {(rng.choice([1, 2, 3]), *shape)})"]
    if all(shape):
        mode = rng.choice(["reflect", "edge", "wrap", "symmetric"])
        widths = [(min(d - 1, 1), min(d - 1, 2)) for d in shape]
        found.append(f"rlx.pad({{n}}, {widths}, mode={mode!r})")
    if rank > 1:
        k = rng.randint(-1, 2)
        found += [f"rlx.tril({{n}}, {k})", f"rlx.triu({{n}}, {k})", f"rlx.rot90({{n}}, {k})",
                  f"rlx.diagonal({{n}}, {k})", "rlx.flipud({n})"]
    if rank in (1, 2):
        found.append(f"rlx.diag({{n}}, {rng.randint(-1, 1)})")
    return rng.choice(found), {"n": n}


def join(scope: Scope) -> Drawn:
    n = first(scope)
    if n is None:
        return None
    shape, dtype = scope.shape_of(n), scope.dtype_of(n)
    axis = scope.rng.randrange(len(shape))
    if scope.rng.random() < 0.3:
        other = scope.alike(n)
        return f"rlx.stack([{{n}}, {{k}}], axis={axis_of(scope, n)})", {"n": n, "k": other or n}
    other = scope.pick(lambda s, d: d == dtype and len(s) == len(shape)
                       and s[:axis] == shape[:axis] and s[axis + 1:] == shape[axis + 1:])
    return f"rlx.concatenate([{{n}}, {{k}}, {{n}}], axis={axis})", {"n": n, "k": other or n}


def split(scope: Scope) -> Drawn:
    n = first(scope)
    if n is None:
        return None
    shape = scope.shape_of(n)
    axis = max(range(len(shape)), key=lambda i: shape[i])
    pieces, piece = scope.rng.randint(2, 3), scope.rng.randint(0, 1)
    return f"rlx.array_split({{n}}, {pieces}, axis={axis})[{piece}]", {"n": n}


def fold(scope: Scope) -> Drawn:
    x = first(scope, "float", 0)
    if x is None:
        return None
    rng, axes = scope.rng, axes_of(scope, x)
    keep = f"axis={axes}, keepdims={rng.random() < 0.4}"
    if 0 in scope.shape_of(x):
        return f"rlx.{rng.choice(['sum', 'prod'])}({{x}}, {keep})", {"x": x}
    one = axes[0] if isinstance(axes, tuple) else axes
    found = [f"rlx.sum({{x}}, {keep})", f"rlx.mean({{x}}, {keep})", f"rlx.var({{x}}, {keep})",
             f"rlx.std({{x}}, {keep})", f"rlx.logsumexp({{x}}, {keep})",
             f"rlx.prod(rlx.tanh({{x}}), {keep})",
             f"rlx.norm({{x}}, axis={one})", f"rlx.sum({{x}} * {{x}}, {keep})"]
    if not scope.style.smooth:
        found += [f"rlx.{name}({{x}}, {keep})" for name in
                  ("max", "min", "ptp", "nansum", "nanmean", "nanmax", "nanvar", "count_nonzero")]
        found += [f"rlx.any({{x}} > 0.0, {keep})", f"rlx.all({{x}} < 1.0, {keep})"]
    return rng.choice(found), {"x": x}


def fold_integers(scope: Scope) -> Drawn:
    n = scope.pick(lambda s, d: d not in FLOATS and math.prod(s) > 0)
    if n is None:
        return None
    names = ["any", "all", "sum"] if scope.dtype_of(n) == "bool" else ["sum", "prod", "max", "min"]
    return f"rlx.{scope.rng.choice(names)}({{n}}, axis={axes_of(scope, n)})", {"n": n}


def order(scope: Scope) -> Drawn:
    n = scope.pick(lambda s, d: len(s) > 0 and math.prod(s) > 0 and d != "bool")
    if n is None:
        return None
    rng, axis = scope.rng, axis_of(scope, n)
    k = rng.randint(1, scope.shape_of(n)[axis])
    found = [f"rlx.sort({{n}}, {axis})", f"rlx.sort({{n}}, {axis}, descending=True)",
             f"rlx.top_k({{n}}, {k}, {axis})[0]"]
    if not scope.style.smooth:
        found += [f"rlx.argmax({{n}}, {axis})", f"rlx.argmin({{n}}, {axis})", "rlx.argmax({n})",
                  f"rlx.argsort({{n}}, {axis})", f"rlx.argsort({{n}}, {axis}, descending=True)",
                  f"rlx.top_k({{n}}, {k}, {axis}, largest=False)[1]"]
    if scope.dtype_of(n) in FLOATS:
        found += [f"rlx.median({{n}}, {axis})", f"rlx.quantile({{n}}, 0.3, {axis})"]
    return rng.choice(found), {"n": n}


def running(scope: Scope) -> Drawn:
    x = first(scope, "float")
    if x is None:
        return None
    rng, axis, back = scope.rng, axis_of(scope, x), f"reverse={scope.rng.random() < 0.4}"
    without = f"exclusive={rng.random() < 0.3}"
    found = [f"rlx.cumsum({{x}}, {axis}, {without}, {back})",
             f"rlx.cumprod(rlx.tanh({{x}}), {axis}, {without}, {back})",
             f"rlx.cumlogsumexp({{x}}, {axis}, {back})", f"rlx.diff({{x}}, axis={axis})"]
    if not scope.style.smooth:
        found += [f"rlx.cummax({{x}}, {axis}, {back})", f"rlx.cummin({{x}}, {axis}, {back})"]
    return rng.choice(found), {"x": x}


def _constant(values: Any) -> str:
    array = f"np.array({values.tolist()}, np.{values.dtype.name})"
    return f"rlx.constant({array}.reshape({values.shape}))"


def gather(scope: Scope) -> Drawn:
    n = first(scope, filled=True)
    if n is None:
        return None
    rng, axis = scope.rng, axis_of(scope, n)
    shape = scope.shape_of(n)
    size = shape[axis]
    drawn = scope.maker.arrays
    mode = rng.choice(["error", "clip", "wrap", "fill"])
    low, high = (0, size) if mode == "error" else (-3, size + 3)
    places = scope.pick(lambda s, d: d in ("i32", "i64") and len(s) < 3)
    if places is not None and mode != "error" and rng.random() < 0.5:
        return f"rlx.take({{n}}, {{k}}, {axis}, mode={mode!r})", {"n": n, "k": places}
    if rng.random() < 0.5:
        where = tuple(rng.randint(1, 4) for _ in range(rng.randint(0, 2)))
        kind = rng.choice([np.int32, np.int64])
        values = np.asarray(drawn.integers(low, high, where)).astype(kind)
        return f"rlx.take({{n}}, {_constant(values)}, {axis}, mode={mode!r})", {"n": n}
    along = list(shape)
    along[axis] = rng.randint(1, 4)
    if math.prod(along) > 300:
        return None
    values = np.asarray(drawn.integers(0, size, along))
    return f"rlx.take_along_axis({{n}}, {_constant(values)}, {axis})", {"n": n}


def scatter(scope: Scope) -> Drawn:
    x = first(scope, "float", filled=True)
    if x is None:
        return None
    rng, shape = scope.rng, scope.shape_of(x)
    axis = rng.randrange(len(shape))
    names = ["scatter_add", "scatter_add", "scatter_set"]
    names += [] if scope.style.smooth else ["scatter_max", "scatter_min"]
    name, mode = rng.choice(names), rng.choice(["error", "clip", "fill"])
    low, high = (0, shape[axis]) if mode == "error" else (-3, shape[axis] + 3)
    places = np.asarray(scope.maker.arrays.integers(low, high, rng.randint(1, 5)))
    if name == "scatter_set" and mode == "error":
        places = np.unique(places)
    wanted = (*shape[:axis], len(places), *shape[axis + 1:])
    dtype = scope.dtype_of(x)
    update = scope.pick(lambda s, d: (s, d) == (wanted, dtype))
    if update is None:
        return (f"rlx.{name}({{x}}, {_constant(places)}, rlx.tanh(rlx.take({{x}}, "
                f"{_constant(np.abs(places) % shape[axis])}, {axis})), axis={axis}, mode={mode!r})",
                {"x": x})
    return (f"rlx.{name}({{x}}, {_constant(places)}, {{k}}, axis={axis}, mode={mode!r})",
            {"x": x, "k": update})


def windows(scope: Scope) -> Drawn:
    x = first(scope, "float", filled=True)
    if x is None:
        return None
    rng, axis = scope.rng, scope.rng.randrange(len(scope.shape_of(x)))
    size = rng.randint(1, min(4, scope.shape_of(x)[axis]))
    monoid = "sum" if scope.style.smooth else rng.choice(["sum", "max", "min"])
    return (f"rlx.reduce_window({{x}}, {monoid!r}, {size}, stride={rng.randint(1, 2)}, "
            f"padding={rng.randint(0, size // 2)}, axes={axis})", {"x": x})


def creation(scope: Scope) -> Drawn:
    shape, dtype, rng = scope.maker.shape(2), scope.style.dtype, scope.rng
    key = f"rlx.random.key({rng.randint(0, 99)})"
    return rng.choice([
        f"rlx.full({shape}, 0.3, rlx.{dtype})",
        f"rlx.eye({shape[0]}, {shape[1]}, dtype=rlx.{dtype})",
        f"rlx.linspace(-1.0, 1.0, {max(1, shape[0])}, dtype=rlx.{dtype})",
        f"rlx.iota({shape}, {rng.randint(0, 1)})", f"rlx.zeros({shape}, rlx.{dtype})",
        f"rlx.random.uniform({key}, {shape}, rlx.{dtype})",
        f"rlx.tri({shape[0]}, {shape[1]}, dtype=rlx.{dtype})"]), {}


FAMILIES = [(reshape, 6), (transpose, 6), (index, 9), (move, 8), (join, 5), (split, 3), (fold, 10),
            (fold_integers, 2), (order, 6), (running, 7), (gather, 6), (scatter, 4), (windows, 2),
            (creation, 2)]
