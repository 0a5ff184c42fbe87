"""Lines of products, convolutions, layers, losses and factorisations."""

from __future__ import annotations

import math

import numpy as np

from fuzz.arrays import Drawn, axis_of, first
from fuzz.scope import FLOATS, Scope


def matmul(scope: Scope) -> Drawn:
    x = first(scope, "float")
    if x is None:
        return None
    shape, dtype = scope.shape_of(x), scope.dtype_of(x)

    def fits(other: tuple[int, ...], kind: str) -> bool:
        if kind not in FLOATS or not other or (kind != dtype and not scope.style.mixed):
            return False
        rows = other[-2] if len(other) > 1 else other[0]
        if rows != shape[-1]:
            return False
        try:
            lead = np.broadcast_shapes(shape[:-2], other[:-2])
        except ValueError:
            return False
        return math.prod(lead) * math.prod(shape[-2:-1]) * other[-1] <= scope.style.largest

    other = scope.pick(fits)
    if other is None:
        width = scope.rng.choice(scope.style.sizes)
        if math.prod(shape[:-1]) * width > scope.style.largest:
            return None
        other = scope.leaf((shape[-1], width), dtype)
    return scope.rng.choice(["{x} @ {k}", "0.3 * ({x} @ {k})", "rlx.tanh({x} @ {k})"]), \
        {"x": x, "k": other}


def einsum(scope: Scope) -> Drawn:
    x, k = (scope.floating(lambda s: 1 <= len(s) <= 3) for _ in range(2))
    if x is None or k is None or scope.dtype_of(x) != scope.dtype_of(k):
        return None
    rng, left, right = scope.rng, scope.shape_of(x), scope.shape_of(k)
    letters = "abcdefgh"
    size = dict(zip(letters, left, strict=False))
    first_letters, second, unused = letters[:len(left)], "", letters[len(left):]
    for d in right:
        same = [c for c in first_letters if size[c] == d and c not in second]
        if same and rng.random() < 0.7:
            second += rng.choice(same)
        else:
            second, unused = second + unused[0], unused[1:]
            size[second[-1]] = d
    kept = [c for c in dict.fromkeys(first_letters + second) if rng.random() < 0.6]
    rng.shuffle(kept)
    if math.prod(size[c] for c in kept) > scope.style.largest or math.prod(size.values()) > 4e6:
        return None
    return f"0.3 * rlx.einsum('{first_letters},{second}->{''.join(kept)}', {{x}}, {{k}})", \
        {"x": x, "k": k}


def outer(scope: Scope) -> Drawn:
    x, k = scope.floating(), scope.floating()
    if x is None or k is None or scope.dtype_of(x) != scope.dtype_of(k):
        return None
    if math.prod(scope.shape_of(x)) * math.prod(scope.shape_of(k)) > scope.style.largest:
        return None
    return scope.rng.choice(["0.3 * rlx.outer({x}, {k})", "0.3 * rlx.tensordot({x}, {k}, 0)"]), \
        {"x": x, "k": k}


def convolution(scope: Scope) -> Drawn:
    rng, rank = scope.rng, scope.rng.choice([1, 1, 2, 2, 3])
    x = scope.floating(lambda s: len(s) == rank + 2 and math.prod(s) > 0)
    if x is None:
        if rng.random() < 0.5:
            return None
        space = tuple(rng.choice([1, 2, 3, 5, 7]) for _ in range(rank))
        x = scope.leaf((rng.choice([1, 2, 3]), rng.choice([1, 2, 3, 4, 6]), *space),
                       scope.style.dtype)
    shape, dtype = scope.shape_of(x), scope.dtype_of(x)
    channels = shape[1]
    groups = rng.choice([g for g in (1, 1, 2, 3, channels) if channels % g == 0])
    kernel = tuple(rng.randint(1, min(3, d + 1)) for d in shape[2:])
    padding, stride = (tuple(rng.randint(*ends) for _ in kernel) for ends in ((0, 1), (1, 3)))
    dilation = tuple(rng.choice([1, 1, 2]) for _ in kernel)
    if any(d + 2 * p < s * (k - 1) + 1
           for d, p, s, k in zip(shape[2:], padding, dilation, kernel, strict=True)):
        return None
    out = rng.choice([1, 2, 3, 5])
    more = f"stride={stride}, groups={groups}, dilation={dilation}"
    if rng.random() < 0.6:
        weight = scope.leaf((out * groups, channels // groups, *kernel), dtype)
        return f"0.3 * rlx.conv{rank}d({{x}}, {{k}}, padding={padding}, {more})", \
            {"x": x, "k": weight}
    weight = scope.leaf((channels, out, *kernel), dtype)
    cut = tuple(min(p, (k - 1) * d) for p, k, d in zip(padding, kernel, dilation, strict=True))
    return f"0.3 * rlx.conv_transpose{rank}d({{x}}, {{k}}, padding={cut}, {more})", \
        {"x": x, "k": weight}


def pool(scope: Scope) -> Drawn:
    rng, rank = scope.rng, scope.rng.choice([1, 2, 2])
    x = scope.floating(lambda s: len(s) == rank + 2 and math.prod(s) > 0)
    if x is None:
        return None
    kernel = tuple(rng.randint(1, min(3, d)) for d in scope.shape_of(x)[2:])
    sizes = (f"{kernel}, {tuple(rng.randint(1, 3) for _ in kernel)}, "
             f"{tuple(rng.randint(0, k // 2) for k in kernel)}, ceil_mode={rng.random() < 0.3}")
    wanted = tuple(rng.randint(1, 4) for _ in kernel)
    kinds = ["avg"] if scope.style.smooth else ["avg", "max"]
    return rng.choice([f"rlx.nn.{rng.choice(kinds)}_pool{rank}d({{x}}, {sizes})",
                       f"rlx.nn.adaptive_{rng.choice(kinds)}_pool{rank}d({{x}}, {wanted})"]), \
        {"x": x}


def norm(scope: Scope) -> Drawn:
    x = first(scope, "float", filled=True)
    if x is None:
        return None
    rng, shape, axis = scope.rng, scope.shape_of(x), axis_of(scope, x)
    found = [f"rlx.layer_norm({{x}}, axes={axis}, eps=0.1)",
             f"rlx.rms_norm({{x}}, axes={axis}, eps=0.1)",
             f"rlx.nn.normalize({{x}}, dim={axis}, eps=0.1)",
             f"rlx.softmax({{x}}, {axis})", f"rlx.log_softmax({{x}}, {axis})",
             f"rlx.nn.softmin({{x}}, {axis})", f"rlx.layer_norm({{x}}, {shape[-1:]}, eps=0.1)"]
    if len(shape) >= 3:
        groups = rng.choice([g for g in (1, 2, 3) if shape[1] % g == 0])
        found.append(f"rlx.nn.group_norm({{x}}, {groups}, eps=0.1)")
        if math.prod(shape[2:]) > 1:
            found.append("rlx.nn.instance_norm({x}, eps=0.1)")
    if len(shape) >= 2 and math.prod(shape) > shape[1]:
        found.append("rlx.nn.batch_norm({x}, training=True, eps=0.1)")
    return rng.choice(found), {"x": x}


def attention(scope: Scope) -> Drawn:
    x = scope.floating(lambda s: len(s) == 4 and math.prod(s) > 0)
    if x is None:
        return None
    shape, dtype = scope.shape_of(x), scope.dtype_of(x)
    keys = scope.pick(lambda s, d: d == dtype and len(s) == 4 and s[:2] == shape[:2]
                      and s[3] == shape[3] and s[2] > 0) or x
    causal = f"is_causal={scope.rng.random() < 0.4}"
    mask = scope.rng.choice(["'none'", "'causal'"])
    return scope.rng.choice([
        f"rlx.nn.scaled_dot_product_attention({{x}}, {{k}}, {{k}}, {causal})",
        f"rlx.nn.flash_attention({{x}}, {{k}}, {{k}}, mask={mask})[0]",
        f"rlx.nn.attention({{x}}, {{k}}, {{k}}, mask={mask}, softcap=2.0)"]), {"x": x, "k": keys}


def recurrent(scope: Scope) -> Drawn:
    x = scope.floating(lambda s: len(s) == 3 and math.prod(s) > 0 and s[2] <= 16)
    if x is None:
        return None
    rng, (batch, _, width), dtype = scope.rng, scope.shape_of(x), scope.dtype_of(x)
    hidden = rng.choice([1, 2, 3, 5])
    kind, gates = rng.choice([("gru", 3), ("lstm", 4), ("rnn", 1)])
    into = scope.leaf((gates * hidden, width), dtype)
    over = scope.leaf((gates * hidden, hidden), dtype)
    start = scope.leaf((batch, hidden), dtype)
    state = "({h}, {h})" if kind == "lstm" else "{h}"
    return (f"rlx.nn.{kind}_scan(rlx.linear({{x}}, {{u}}), {state}, {{w}}, "
            f"reverse={rng.random() < 0.4})[0]", {"x": x, "u": into, "w": over, "h": start})


def spatial(scope: Scope) -> Drawn:
    x = scope.floating(lambda s: len(s) in (3, 4) and math.prod(s) > 0 and max(s[2:]) <= 16)
    if x is None:
        return None
    shape, rng = scope.shape_of(x), scope.rng
    size = tuple(rng.randint(1, 2 * d + 1) for d in shape[2:])
    modes = ["nearest", "linear"] if len(shape) == 3 else ["nearest", "bilinear"]
    return f"rlx.nn.interpolate({{x}}, {size}, mode={rng.choice(modes)!r})", {"x": x}


def loss(scope: Scope) -> Drawn:
    x = scope.floating(lambda s: len(s) == 2 and math.prod(s) > 0 and s[0] <= 100)
    if x is None:
        return None
    shape = scope.shape_of(x)
    labels = scope.maker.arrays.integers(0, shape[1], shape[0]).tolist()
    target = f"rlx.constant(np.array({labels}))"
    found = [f"rlx.softmax_cross_entropy({{x}}, {target})",
             f"rlx.cross_entropy({{x}}, {target}, label_smoothing=0.1)",
             "rlx.mse_loss({x}, {z})", "rlx.nn.kl_div(rlx.log_softmax({x}), rlx.softmax({z}))",
             "rlx.binary_cross_entropy_with_logits({x}, rlx.sigmoid({z}))",
             "rlx.nn.cosine_similarity({x}, {z}, eps=0.1)"]
    if not scope.style.smooth:
        found += [f"rlx.nn.{n}_loss({{x}}, {{z}})" for n in ("huber", "l1", "smooth_l1")]
        found.append("rlx.binary_cross_entropy(rlx.sigmoid({x}), rlx.sigmoid({z}))")
    return scope.rng.choice(found), {"x": x}


def matrices(scope: Scope) -> Drawn:
    x = scope.floating(lambda s: len(s) >= 2 and s[-1] == s[-2] and 0 < s[-1] <= 8)
    if x is None or scope.style.hostile or scope.dtype_of(x) not in ("f64", "f32"):
        return None
    n, dtype = scope.shape_of(x)[-1], scope.dtype_of(x)
    half = "rlx.tanh({x})"
    square = f"0.3 * {half} @ rlx.swapaxes({half}, -1, -2)"
    positive = f"({square} + 2.0 * rlx.eye({n}, dtype=rlx.{dtype}))"
    return scope.rng.choice([
        f"rlx.linalg.cholesky({positive})", f"rlx.linalg.inv({positive})",
        f"rlx.linalg.solve({positive}, {{x}})", f"rlx.linalg.slogdet({positive})[1]",
        f"rlx.linalg.det(0.5 * {positive})", f"rlx.linalg.eigvalsh({positive})",
        f"0.1 * rlx.linalg.matrix_power({half}, 3)"]), {"x": x}


def fourier(scope: Scope) -> Drawn:
    x = scope.floating(lambda s: len(s) > 0 and math.prod(s) > 0 and max(s) <= 64)
    if x is None:
        return None
    axis, part = axis_of(scope, x), scope.rng.randint(0, 1)
    return scope.rng.choice([f"0.3 * rlx.fft.fft({{x}}, axis={axis})[{part}]",
                             f"0.3 * rlx.fft.rfft({{x}}, axis={axis})[{part}]",
                             f"rlx.fft.ifft({{x}}, axis={axis})[{part}]"]), {"x": x}


FAMILIES = [(matmul, 7), (einsum, 4), (outer, 2), (convolution, 8), (pool, 3), (norm, 8),
            (attention, 2), (recurrent, 2), (spatial, 2), (loss, 3), (matrices, 2), (fourier, 1)]
