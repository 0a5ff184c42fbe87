"""Functions of a matrix that its eigenvectors or singular vectors express, with derivatives of any
order that hold where eigenvalues or singular values coincide.

Each is M(A) = ∇φ(A) for a function φ of the matrix: V f(λ) Vᵀ of a symmetric matrix, U f(σ) Vᵀ, and
the matrix of cofactors, the gradient of the determinant. So the k-th derivative DᵏM[T₁, …, Tₖ] is
symmetric in all Tⱼ and in what its product with a cotangent is, and one op of order k has ops of
order k and k + 1 for derivatives. The factors of A are handed in, but the derivative is that by A:
single vectors, which may have none, are never differentiated. Yu. Daleckii and S. Krein (1965) for
the first derivative; the higher ones sum divided differences f[λᵢ, …, λₗ] over chains of the Tⱼ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise, permutations, zip_longest

from rlx_py.ir.base.errors import ArgumentError, DTypeError, ShapeError
from rlx_py.ir.base.types import TensorType, Type
from rlx_py.ir.graph.transforms import AD
from rlx_py.ir.nodes.node import Node, Op, leaf
from rlx_py.ir.ops.making.batching import unchanged
from rlx_py.ir.ops.making.families import composite
from rlx_py.ir.ops.matrices.divided import DividedDifferences, Point
from rlx_py.ir.ops.matrices.factor import check_matrix
from rlx_py.ir.ops.matrices.factor_gradients import (
    columns_times,
    folded,
    largest_of,
    mirrored,
    outside,
    turned,
)
from rlx_py.ir.ops.matrices.scalar_body import (
    along,
    check_scalar_body,
    elementwise_value,
    inlined,
    opened,
    partial,
    scalar_body,
)
from rlx_py.ir.ops.numpy.creation import eye
from rlx_py.ir.ops.numpy.folding import sum as total
from rlx_py.ir.ops.numpy.products import matmul
from rlx_py.ir.ops.numpy.shaping import broadcast_to, concatenate, moveaxis, window
from rlx_py.ir.ops.primitive.compare import GT, LT
from rlx_py.ir.ops.primitive.elementwise import GUARDED_MUL, MUL, SELECT, fill
from rlx_py.ir.ops.primitive.movement import reshaped

Nodes = Sequence[Node]
Results = Sequence[Node | None]
Rule = Callable[[Node], Node]


class _Parts:
    """The inputs of a node of order k: the matrix, its factors, k directions, parameters of f."""

    def __init__(self, factors: int, order: int, inputs: Nodes) -> None:
        self.start = 1 + factors
        self.a, self.factors = inputs[0], tuple(inputs[1:self.start])
        self.directions = tuple(inputs[self.start:self.start + order])
        self.params = tuple(inputs[self.start + order:])


def field(name: str, factors: int, infer: Callable[..., Type], decompose: Callable[..., Node], *,
           pull: Rule = lambda s: s, push: Rule = lambda t: t,
           weights: Callable[[tuple[Node, ...], Node], Node] | None = None) -> Op:
    """The op of one M with its derivatives of every order.

    pull makes the cotangent of the matrix handed in of that by A, push a tangent the other way.
    weights(factors, ct) is the diagonal of ct in the basis of the factors: what f(λᵢ) gets.
    """

    def vjp(node: Node, ct: Node, ad: AD) -> Results:
        parts, attrs = _Parts(factors, node.attrs["order"], node.inputs), node.attrs
        head, ts = (parts.a, *parts.factors), parts.directions
        more = {**attrs, "order": attrs["order"] + 1}
        found: list[Node | None] = [pull(op(*head, *ts, ct, *parts.params, **more))]
        found += [None] * factors
        for i in range(len(ts)):
            found.append(op(*head, *ts[:i], ct, *ts[i + 1:], *parts.params, **attrs))
        for i, p in enumerate(parts.params):
            found.append(_param_vjp(node, parts, ct, i) if p.dtype.is_float else None)
        return found

    def _param_vjp(node: Node, parts: _Parts, ct: Node, i: int) -> Node:
        body, order, param = node.attrs["body"], node.attrs["order"], parts.params[i]
        if param.shape[-1] == 1:
            # One for each matrix.
            slope = op(*node.inputs, body=partial(body, 1 + i), order=order)
            return total(ct * slope, (-2, -1))[..., None]
        if not order:
            assert weights is not None
            values = parts.factors[factors - 2]
            slope = elementwise_value(partial(body, 1 + i), (values, *parts.params))
            return slope * weights(parts.factors, ct)
        return _one_by_one(node, ct, i)

    def _one_by_one(node: Node, ct: Node, i: int) -> Node:
        """The cotangent of a parameter with an element for each λ: a unit tangent for each."""
        place = len(node.inputs) - (len(opened(node.attrs["body"])[0]) - 1) + i
        param = node.inputs[place]
        n, lead = param.shape[-1], param.shape[:-1]
        units = broadcast_to(reshaped(eye(n, dtype=param.dtype), (n, *[1] * len(lead), n)),
                             (n, *lead, n))
        inputs = [broadcast_to(x, (n, *x.shape)) for x in node.inputs]
        found = op(*inputs, units, body=along(node.attrs["body"], (1 + i,)),
                   order=node.attrs["order"])
        return moveaxis(total(found * ct, (-2, -1)), 0, -1)

    def jvp(node: Node, tangents: Results, ad: AD) -> Node | None:
        parts, attrs = _Parts(factors, node.attrs["order"], node.inputs), node.attrs
        head, ts, order = (parts.a, *parts.factors), parts.directions, attrs["order"]
        terms: list[Node] = []
        if tangents[0] is not None:
            terms.append(op(*head, *ts, push(tangents[0]), *parts.params,
                            **{**attrs, "order": order + 1}))
        for i, t in enumerate(tangents[parts.start:parts.start + order]):
            if t is not None:
                terms.append(op(*head, *ts[:i], t, *ts[i + 1:], *parts.params, **attrs))
        moved = [(i, t) for i, t in enumerate(tangents[parts.start + order:]) if t is not None]
        if moved:
            body = along(attrs["body"], tuple(1 + i for i, _ in moved))
            terms.append(op(*node.inputs, *[t for _, t in moved], body=body, order=order))
        found = None
        for term in terms:
            found = term if found is None else found + term
        return found

    op = composite(name, infer, decompose, vjp=vjp, jvp=jvp, batch=unchanged)
    return op


def check_parts(types: Sequence[TensorType], factors: Sequence[tuple[int, ...]], order: int,
                params: Sequence[TensorType] = ()) -> None:
    """Factors of given trailing shapes, directions like the matrix, then the parameters: of the
    types given here, one for each matrix or for each value."""
    a = types[0]
    check_matrix(a)
    if not 0 <= order < len(types):
        raise ArgumentError(f"{order} directions among {len(types)} inputs")
    batch, size = a.shape[:-2], min(a.shape[-2:])
    wanted = [a.with_shape((*batch, *f)) for f in factors] + [a] * order
    for mine, want in zip_longest(types[1:1 + len(wanted)], wanted):
        require_type(mine, want)
    for mine, scalar in zip_longest(types[1 + len(wanted):], params):
        if mine is not None and scalar is not None and mine.shape == (*batch, size):
            require_type(mine, scalar.with_shape(mine.shape))
        else:
            require_type(mine, scalar and scalar.with_shape((*batch, 1)))


def require_type(found: TensorType | None, wanted: TensorType | None) -> None:
    """An input is there and of its type; else DTypeError or ShapeError."""
    if found is None or wanted is None or found.shape != wanted.shape:
        raise ShapeError(f"an input is {found}, not {wanted}")
    if found.dtype is not wanted.dtype:
        raise DTypeError(f"an input is {found}, not {wanted}")


def _params_of(body: str, a: TensorType) -> list[TensorType]:
    """The types of a body's parameters, whose x and value have the element type of the matrix."""
    x, *params = check_scalar_body(body)
    require_type(x, a.with_shape(()))
    return params


# ---- V f(λ) Vᵀ -------------------------------------------------------------------------------


def _infer_spectral(*types: TensorType, body: str, order: int) -> Type:
    n, _ = check_matrix(types[0], square=True)
    check_parts(types, [(n,), (n, n)], order, _params_of(body, types[0]))
    return types[0]


def _spectral(*inputs: Node, body: str, order: int) -> Node:
    """Order 1: V (f[λᵢ, λⱼ] ∘ Vᵀ T V) Vᵀ; order k: chains of k factors Vᵀ T V, in all orders."""
    parts = _Parts(2, order, inputs)
    w, v = parts.factors
    if not order:
        return matmul(columns_times(v, elementwise_value(body, (w, *parts.params))), turned(v))
    links = [_symmetric(matmul(turned(v), matmul(t, v))) for t in parts.directions]
    table = DividedDifferences(body, _scale(w, order + 1)).at(_points(w, parts.params, order + 1))
    return matmul(v, matmul(_chained(table, list(permutations(links))), turned(v)))


def _symmetric(x: Node) -> Node:
    return 0.5 * (x + turned(x))


def _scale(values: Node, rank: int) -> Node:
    """The largest |value| of each matrix, over further axes of size 1."""
    return reshaped(largest_of(values), (*values.shape[:-1], *[1] * rank))


def _points(x: Node, params: Nodes, rank: int) -> list[Point]:
    """An argument along each of the axes 0 … rank − 1 behind the batch."""
    return [Point(_laid(x, axis, rank), tuple(_laid(p, axis, rank) for p in params))
            for axis in range(rank)]


def _laid(x: Node, axis: int, rank: int) -> Node:
    return reshaped(x, (*x.shape[:-1], *[1] * axis, x.shape[-1], *[1] * (rank - 1 - axis)))


def _chained(table: Node, chains: Sequence[Nodes]) -> Node:
    """Σ over the inner indices of table[i₀ … iₖ] Σ over chains Π links[iₗ, iₗ₊₁]."""
    rank = len(chains[0]) + 1
    if rank == 1:
        return table
    products: Node | None = None
    for links in chains:
        product: Node | None = None
        for axis, link in enumerate(links):
            part = reshaped(link, (*link.shape[:-2], *[1] * axis, *link.shape[-2:],
                                   *[1] * (rank - 2 - axis)))
            product = part if product is None else product * part
        assert product is not None
        products = product if products is None else products + product
    assert products is not None
    # No direction, no contribution: f[λ, λ] may be infinite.
    whole = GUARDED_MUL(products, broadcast_to(table, products.shape))
    return total(whole, tuple(range(1 - rank, -1))) if rank > 2 else whole


def _under_vectors(factors: tuple[Node, ...], ct: Node) -> Node:
    """vᵢᵀ ct vᵢ."""
    _, v = factors
    return total(v * matmul(ct, v), -2)


# Inputs: A (its lower triangle counts), λ, V, then directions and parameters.
SPECTRAL = field("spectral", 2, _infer_spectral, _spectral, pull=folded, push=mirrored,
                 weights=_under_vectors)

# ---- U f(σ) Vᵀ -------------------------------------------------------------------------------


def _infer_singular(*types: TensorType, body: str, order: int) -> Type:
    m, n = check_matrix(types[0])
    if m < n:
        raise ShapeError(f"the primitive takes no more columns than rows, not {types[0]}")
    check_parts(types, [(m, n), (n,), (n, n)], order, _params_of(body, types[0]))
    return types[0]


def _singular(*inputs: Node, body: str, order: int) -> Node:
    """The upper right block of f(B) for B = [[0, A], [Aᵀ, 0]] and f continued as an odd function.

    B has the eigenvalues ±σ with vectors (u, ±v)/√2, and 0 on the complement of U.
    """
    parts = _Parts(3, order, inputs)
    u, s, vt = parts.factors
    if not order:
        return matmul(columns_times(u, elementwise_value(body, (s, *parts.params))), vt)
    found: Node | None = None
    tables: dict[int, Node] = {}
    for missing in _missing(order, square=u.shape[-2] == u.shape[-1]):
        count = len(missing)
        if count not in tables:
            tables[count] = _table(s, parts.params, body, order + 1 - count, count)
        part = _through(parts, tables[count], missing)
        found = part if found is None else found + part
    assert found is not None
    return found


def _missing(order: int, square: bool) -> list[tuple[int, ...]]:
    """The places of a chain that may be in the complement: no two neighbours, since what maps from
    there leads to V; nor the last, which is V."""
    if square:
        return [()]
    return [places for count in range(order + 1) for places in combinations(range(order), count)
            if all(b - a > 1 for a, b in pairwise(places))]


def _through(parts: _Parts, table: Node, missing: tuple[int, ...]) -> Node:
    """The chains that are in the complement of U at some places, given the `_table` of as many."""
    u, _, vt = parts.factors
    order = len(parts.directions)
    places = [i for i in range(order + 1) if i not in missing]
    chains = [[_link(u, vt, *chain[a:b]) for a, b in pairwise(places)]
              for chain in permutations(parts.directions)]
    if 0 not in missing:
        return matmul(matmul(u, _ends(_chained(table, chains), 1)), vt)
    found: Node | None = None
    for chain, links in zip(permutations(parts.directions), chains, strict=True):
        first = outside(matmul(chain[0], turned(vt)), u)
        if links:
            moved = matmul(first, _ends(_chained(table, [links]), -1))
        else:
            moved = GUARDED_MUL(first, broadcast_to(_mean_of_halves(table), first.shape))
        found = moved if found is None else found + moved
    assert found is not None
    return matmul(found, vt)


def _ends(x: Node, sign: int) -> Node:
    """½ (I, ±I) x (I, −I)ᵀ of a matrix between +σ and −σ: its ends are vectors u, or what maps to
    them, and vectors v."""
    n = x.shape[-1] // 2
    left = window(x, x.rank - 1, 0, n) - window(x, x.rank - 1, n, 2 * n)
    upper, lower = (window(left, x.rank - 2, i * n, (i + 1) * n) for i in (0, 1))
    return 0.5 * (upper + lower if sign > 0 else upper - lower)


def _mean_of_halves(x: Node) -> Node:
    n, axis = x.shape[-1] // 2, x.rank - 1
    return 0.5 * (window(x, axis, 0, n) + window(x, axis, n, 2 * n))[..., None, :]


def _table(s: Node, params: Nodes, body: str, rank: int, missing: int) -> Node:
    """Divided differences of the odd function at ±σ along each axis, and 0 some times."""
    x = concatenate([s, -s], -1)
    side = concatenate([fill(s, 1), fill(s, -1)], -1)
    wide = [p if p.shape[-1] != s.shape[-1] else concatenate([p, p], -1) for p in params]
    points = _points(x, (*wide, side), rank)
    return DividedDifferences(_odd(body), _scale(s, rank), free=1).at([*points, *[None] * missing])


def _odd(body: str) -> str:
    """sign(x)·f(|x|), as a function of one more parameter: the sign where x = 0."""
    leaves, _ = opened(body)
    x = leaves[0]
    side = leaf("side", "input", x.tensor)
    sign = SELECT(GT(x, fill(x, 0)), fill(x, 1), SELECT(LT(x, fill(x, 0)), fill(x, -1), side))
    return scalar_body([*leaves, side], MUL(sign, inlined(body, [MUL(x, sign), *leaves[1:]])))


def _link(u: Node, vt: Node, *directions: Node) -> Node:
    """Wᵀ H W for the vectors W of B and H = [[0, T], [Tᵀ, 0]]; of two, Wᵀ H (I − UUᵀ) H W."""
    v = turned(vt)
    if len(directions) == 2:
        a, b = (matmul(t, v) for t in directions)
        inner = 0.5 * matmul(turned(a), outside(b, u))
        return concatenate([concatenate([inner, -inner], -1), concatenate([-inner, inner], -1)], -2)
    p = matmul(turned(u), matmul(directions[0], v))
    even, odd = 0.5 * (p + turned(p)), 0.5 * (p - turned(p))
    return concatenate([concatenate([even, -odd], -1), concatenate([odd, -even], -1)], -2)


def _between_vectors(factors: tuple[Node, ...], ct: Node) -> Node:
    """uᵢᵀ ct vᵢ."""
    u, _, vt = factors
    return total(u * matmul(ct, turned(vt)), -2)


# Inputs: A with no more columns than rows, U, σ, Vᵀ, then directions and parameters.
SINGULAR = field("singular", 3, _infer_singular, _singular, weights=_between_vectors)
