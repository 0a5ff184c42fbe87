"""Register tiles of matrix products: the only part of a contraction that is written in LLVM IR.

A tile keeps mr x nr results in vector registers over the whole k loop. Each result is the chain
c = fma(A[i,k], B[k,j], c) in order of k, so neither the tile's shape nor how k is cut into blocks
changes a bit; or chains over runs of k, each from 0 and then added to C. Where the machine has no
such instruction, product and sum round each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import llvmlite.ir as ll

from rlx_py.ir.base.errors import ArgumentError, DTypeError

I1, I32, I64, PTR = ll.IntType(1), ll.IntType(32), ll.IntType(64), ll.PointerType()
SCALARS = {"f32": ll.FloatType(), "f64": ll.DoubleType()}
ITEM_BYTES = {"f32": 4, "f64": 8}

_Load = Callable[[ll.Value, int], ll.Value]


@dataclass(frozen=True)
class TileSpec:
    """A tile C[i,j] (+)= sum over k of A[i,k] * B[k,j], i < mr, j < nr.

    dtype: 'f32' or 'f64'. lanes: elements of a vector. accumulate: start from C, not from 0.
    run: k of a chain from 0 that is added to C; 0 for one chain. b_padded: rows of B may be read
    up to the next multiple of lanes.

    The k loop is not unrolled and its strides are arguments: with 8 or more accumulators the
    multiply-adds hide both (measured), and tiles that differ in strides share one function.
    """

    dtype: str
    mr: int
    nr: int
    lanes: int
    accumulate: bool
    b_padded: bool = False
    run: int = 0
    fma: bool = True

    @property
    def name(self) -> str:
        """The symbol of its function; equal specs have equal names."""
        tail = ("_padded" if self.b_padded else "") + (f"_run{self.run}" if self.run else "")
        tail += "" if self.fma else "_twice_rounded"
        return _symbol("tile", self.dtype, self.mr, self.nr, self.lanes, self.accumulate) + tail


@dataclass(frozen=True)
class DotSpec:
    """A tile C[i,j] (+)= sum over k of A[i,k] * B[j,k], both contiguous along k.

    The sum over k is split over lanes * chains accumulators, k into number k % (lanes * chains);
    then vectors and halves of vectors are added pairwise. C is added last if `accumulate`.
    """

    dtype: str
    mr: int
    nr: int
    lanes: int
    accumulate: bool
    chains: int = 1

    @property
    def name(self) -> str:
        """The symbol of its function; equal specs have equal names."""
        chains = f"_chains{self.chains}"
        return _symbol("dot", self.dtype, self.mr, self.nr, self.lanes, self.accumulate) + chains


@dataclass(frozen=True)
class CopySpec:
    """C[i,j] = A[i,j], j < cols, where A is contiguous along i and C along j; cols <= lanes."""

    dtype: str
    cols: int
    lanes: int

    @property
    def name(self) -> str:
        """The symbol of its function; equal specs have equal names."""
        return f"copy_{self.dtype}_{self.cols}_lanes{self.lanes}"


def tile_function(module: ll.Module, spec: TileSpec) -> ll.Function:
    """The function of a tile in `module`, made at the first call for an equal spec.

    void (i64 k, T* a, i64 a_row, i64 a_col, T* b, i64 b_row, T* c, i64 c_row): element A[i,k] at
    a + i*a_row + k*a_col, B[k,j] at b + k*b_row + j, C[i,j] at c + i*c_row + j. k <= 0 leaves an
    empty sum. Only elements named by i < mr, j < nr are read or written, save for b_padded.
    """
    _check(spec.dtype, spec.mr, spec.nr, spec.lanes)
    function, is_new = _declare(module, spec.name, [I64, PTR, I64, I64, PTR, I64, PTR, I64])
    if is_new:
        _emit_tile(function, spec)
    return function


def dot_function(module: ll.Module, spec: DotSpec) -> ll.Function:
    """The function of a dot tile in `module`, made at the first call for an equal spec.

    void (i64 k, T* a, i64 a_row, T* b, i64 b_row, T* c, i64 c_row): element A[i,k] at
    a + i*a_row + k, B[j,k] at b + j*b_row + k, C[i,j] at c + i*c_row + j. k <= 0 leaves an empty
    sum. Only elements named by i < mr, j < nr and the given k are read or written.
    """
    _check(spec.dtype, spec.mr, spec.nr, spec.lanes)
    if spec.chains not in (1, 2, 4, 8):
        raise ArgumentError(f"dot tile: chains must be 1, 2, 4 or 8, not {spec.chains}")
    function, is_new = _declare(module, spec.name, [I64, PTR, I64, PTR, I64, PTR, I64])
    if is_new:
        _emit_dot(function, spec)
    return function


def copy_function(module: ll.Module, spec: CopySpec) -> ll.Function:
    """The function of a transposing copy in `module`, made at the first call for an equal spec.

    void (i64 rows, T* a, i64 a_col, T* c, i64 c_row): element A[i,j] at a + i + j*a_col, C[i,j] at
    c + i*c_row + j, i < rows. Only these elements are read or written.
    """
    _check(spec.dtype, 1, spec.cols, spec.lanes)
    if spec.cols > spec.lanes:
        raise ArgumentError(f"a copy of {spec.cols} columns in {spec.lanes} lanes")
    function, is_new = _declare(module, spec.name, [I64, PTR, I64, PTR, I64])
    if is_new:
        _emit_copy(function, spec)
    return function


def _emit_tile(function: ll.Function, spec: TileSpec) -> None:
    k, a, a_row, a_col, b, b_row, c, c_row = function.args
    build = ll.IRBuilder(function.append_basic_block("entry"))
    access = _Access(build, spec.dtype, spec.lanes, spec.fma)
    widths = [min(spec.lanes, spec.nr - j) for j in range(0, spec.nr, spec.lanes)]
    places = [
        (access.at(c, build.mul(I64(i), c_row), I64(v * spec.lanes)), width)
        for i in range(spec.mr)
        for v, width in enumerate(widths)
    ]
    rows = [build.mul(I64(i), a_row) for i in range(spec.mr)]

    def step(state: Sequence[ll.Value]) -> list[ll.Value]:
        a_k, b_k, *sums = state
        vectors = [
            access.load(access.at(b_k, I64(v * spec.lanes)), spec.lanes if spec.b_padded else width)
            for v, width in enumerate(widths)
        ]
        for i, row in enumerate(rows):
            element = access.broadcast(access.at(a_k, row))
            for v, vector in enumerate(vectors):
                at = i * len(widths) + v
                sums[at] = access.fma(element, vector, sums[at])
        return [access.at(a_k, a_col), access.at(b_k, b_row), *sums]

    nothing = [access.zero] * len(places)

    def run(state: Sequence[ll.Value]) -> list[ll.Value]:
        a_k, b_k, left = state
        is_last = build.icmp_signed("<", left, I64(spec.run))
        steps = build.select(is_last, left, I64(spec.run))
        a_k, b_k, *sums = _repeat(build, steps, [a_k, b_k, *nothing], step)
        for place, value in zip(places, sums, strict=True):
            access.store(build.fadd(access.load(*place), value), *place)
        return [a_k, b_k, build.sub(left, steps)]

    if spec.run:
        times = build.sdiv(build.add(k, I64(spec.run - 1)), I64(spec.run))
        _repeat(build, times, [a, b, k], run)
    else:
        start = [access.load(*p) for p in places] if spec.accumulate else nothing
        sums = _repeat(build, k, [a, b, *start], step)[2:]
        for place, value in zip(places, sums, strict=True):
            access.store(value, *place)
    build.ret_void()


def _emit_dot(function: ll.Function, spec: DotSpec) -> None:
    k, a, a_row, b, b_row, c, c_row = function.args
    build = ll.IRBuilder(function.append_basic_block("entry"))
    access = _Access(build, spec.dtype, spec.lanes)
    stride = spec.lanes * spec.chains
    a_rows = [build.mul(I64(i), a_row) for i in range(spec.mr)]
    b_rows = [build.mul(I64(j), b_row) for j in range(spec.nr)]

    def accumulate(state: Sequence[ll.Value], load: _Load) -> list[ll.Value]:
        a_k, b_k, *sums = state
        for chain in range(spec.chains):
            offset = I64(chain * spec.lanes)
            vectors = [load(access.at(b_k, row, offset), chain) for row in b_rows]
            for i, row in enumerate(a_rows):
                element = load(access.at(a_k, row, offset), chain)
                for j, vector in enumerate(vectors):
                    at = (i * spec.nr + j) * spec.chains + chain
                    sums[at] = access.fma(element, vector, sums[at])
        return [access.at(a_k, I64(stride)), access.at(b_k, I64(stride)), *sums]

    def full(place: ll.Value, chain: int) -> ll.Value:
        return access.load(place, spec.lanes)

    state: list[ll.Value] = [a, b, *[access.zero] * (spec.mr * spec.nr * spec.chains)]
    state = _repeat(build, build.sdiv(k, I64(stride)), state, lambda s: accumulate(s, full))
    rest = build.srem(k, I64(stride))
    masks = [access.below(rest, chain * spec.lanes) for chain in range(spec.chains)]
    # Masked lanes add 0 * 0, which changes no value (a sum that underflowed to -0 becomes +0).
    state = _repeat(
        build,
        build.zext(build.icmp_signed(">", rest, I64(0)), I64),
        state,
        lambda s: accumulate(s, lambda place, chain: access.masked_load(place, masks[chain])),
    )
    sums = state[2:]
    for i in range(spec.mr):
        for j in range(spec.nr):
            first = (i * spec.nr + j) * spec.chains
            total = access.total(sums[first : first + spec.chains])
            place = access.at(c, build.mul(I64(i), c_row), I64(j))
            if spec.accumulate:
                total = build.fadd(access.load_scalar(place), total)
            build.store(total, place, align=access.align)
    build.ret_void()


def _emit_copy(function: ll.Function, spec: CopySpec) -> None:
    rows, a, a_col, c, c_row = function.args
    build = ll.IRBuilder(function.append_basic_block("entry"))
    access = _Access(build, spec.dtype, spec.lanes)
    columns = [build.mul(I64(j), a_col) for j in range(spec.cols)]
    places = [build.mul(I64(i), c_row) for i in range(spec.lanes)]

    def block(a: ll.Value, c: ll.Value, count: ll.Value | None) -> None:
        heads = [access.at(a, column) for column in columns]
        if count is None:
            vectors = [access.load(head, spec.lanes) for head in heads]
        else:
            below = access.below(count, 0)
            vectors = [access.masked_load(head, below) for head in heads]
        vectors += [access.zero] * (spec.lanes - spec.cols)
        for i, row in enumerate(_transposed(build, vectors)):
            place = access.at(c, places[i])
            if count is None:
                access.store(row, place, spec.cols)
                continue
            exists = build.icmp_signed("<", I64(i), count)
            kept = build.select(exists, access.first(spec.cols), access.first(0))
            access.masked_store(row, place, kept)

    def step(state: Sequence[ll.Value]) -> list[ll.Value]:
        block(state[0], state[1], None)
        return [access.at(state[0], I64(spec.lanes)),
                access.at(state[1], build.mul(I64(spec.lanes), c_row))]

    def last(state: Sequence[ll.Value]) -> list[ll.Value]:
        block(state[0], state[1], rest)
        return list(state)

    state = _repeat(build, build.sdiv(rows, I64(spec.lanes)), [a, c], step)
    rest = build.srem(rows, I64(spec.lanes))
    _repeat(build, build.zext(build.icmp_signed(">", rest, I64(0)), I64), state, last)
    build.ret_void()


def _transposed(build: ll.IRBuilder, vectors: Sequence[ll.Value]) -> list[ll.Value]:
    """Rows of a square as columns: quarters off the diagonal change places, at every size."""
    rows, lanes = list(vectors), len(vectors)
    distance = lanes // 2
    while distance:
        numbers = ll.VectorType(I32, lanes)
        upper = [n - distance + lanes if n & distance else n for n in range(lanes)]
        lower = [n + lanes if n & distance else n + distance for n in range(lanes)]
        for i in range(lanes):
            if not i & distance:
                pair = rows[i], rows[i + distance]
                rows[i], rows[i + distance] = (
                    build.shuffle_vector(*pair, ll.Constant(numbers, [I32(n) for n in order]))
                    for order in (upper, lower)
                )
        distance //= 2
    return rows


class _Access:
    """Vector loads, stores and arithmetic of one element type; elements alone are aligned."""

    def __init__(self, build: ll.IRBuilder, dtype: str, lanes: int, fma: bool = True) -> None:
        self.build, self.lanes, self.is_fused = build, lanes, fma
        self.scalar, self.align = SCALARS[dtype], ITEM_BYTES[dtype]
        self.vector = ll.VectorType(self.scalar, lanes)
        self.mask = ll.VectorType(I1, lanes)
        self.suffix = f"v{lanes}{dtype}"
        self.zero = ll.Constant(self.vector, [self.scalar(0.0)] * lanes)

    def at(self, pointer: ll.Value, *offsets: ll.Value) -> ll.Value:
        for offset in offsets:
            pointer = self.build.gep(pointer, [offset], source_etype=self.scalar)
        return pointer

    def load_scalar(self, place: ll.Value) -> ll.Value:
        return self.build.load(place, typ=self.scalar, align=self.align)

    def broadcast(self, place: ll.Value) -> ll.Value:
        undefined = ll.Constant(self.vector, ll.Undefined)
        one = self.build.insert_element(undefined, self.load_scalar(place), I32(0))
        same = ll.Constant(ll.VectorType(I32, self.lanes), [I32(0)] * self.lanes)
        return self.build.shuffle_vector(one, undefined, same)

    def load(self, place: ll.Value, width: int) -> ll.Value:
        if width == self.lanes:
            return self.build.load(place, typ=self.vector, align=self.align)
        return self.masked_load(place, self.first(width))

    def masked_load(self, place: ll.Value, mask: ll.Value) -> ll.Value:
        kind = ll.FunctionType(self.vector, [PTR, I32, self.mask, self.vector])
        load = self.intrinsic(f"llvm.masked.load.{self.suffix}.p0", kind)
        return self.build.call(load, [place, I32(self.align), mask, self.zero])

    def store(self, value: ll.Value, place: ll.Value, width: int) -> None:
        if width == self.lanes:
            self.build.store(value, place, align=self.align)
        else:
            self.masked_store(value, place, self.first(width))

    def masked_store(self, value: ll.Value, place: ll.Value, mask: ll.Value) -> None:
        kind = ll.FunctionType(ll.VoidType(), [self.vector, PTR, I32, self.mask])
        store = self.intrinsic(f"llvm.masked.store.{self.suffix}.p0", kind)
        self.build.call(store, [value, place, I32(self.align), mask])

    def fma(self, x: ll.Value, y: ll.Value, z: ll.Value) -> ll.Value:
        if not self.is_fused:
            return self.build.fadd(self.build.fmul(x, y), z)
        kind = ll.FunctionType(self.vector, [self.vector] * 3)
        return self.build.call(self.intrinsic(f"llvm.fma.{self.suffix}", kind), [x, y, z])

    def first(self, width: int) -> ll.Constant:
        """The mask of the first `width` lanes."""
        return ll.Constant(self.mask, [I1(lane < width) for lane in range(self.lanes)])

    def below(self, count: ll.Value, offset: int) -> ll.Value:
        """The mask of lanes whose number + offset is less than `count`."""
        numbers = ll.VectorType(I64, self.lanes)
        one = self.build.insert_element(ll.Constant(numbers, ll.Undefined), count, I32(0))
        same = ll.Constant(ll.VectorType(I32, self.lanes), [I32(0)] * self.lanes)
        counts = self.build.shuffle_vector(one, one, same)
        lanes = ll.Constant(numbers, [I64(offset + lane) for lane in range(self.lanes)])
        return self.build.icmp_signed("<", lanes, counts)

    def total(self, vectors: Sequence[ll.Value]) -> ll.Value:
        """The sum of all elements: vectors pairwise, then the upper half onto the lower."""
        while len(vectors) > 1:
            half = len(vectors) // 2
            vectors = [self.build.fadd(vectors[n], vectors[n + half]) for n in range(half)]
        value, width = vectors[0], self.lanes
        while width > 1:
            width //= 2
            halves = [
                self.build.shuffle_vector(value, value, _numbers(start, width))
                for start in (0, width)
            ]
            value = self.build.fadd(*halves)
        return self.build.extract_element(value, I32(0))

    def intrinsic(self, name: str, kind: ll.FunctionType) -> ll.Function:
        module = self.build.module
        return module.globals.get(name) or ll.Function(module, kind, name)


def _repeat(
    build: ll.IRBuilder,
    times: ll.Value,
    state: Sequence[ll.Value],
    body: Callable[[Sequence[ll.Value]], Sequence[ll.Value]],
) -> list[ll.Value]:
    """state = body(state), `times` times (none if <= 0), with the state in phi nodes."""
    before = build.block
    loop = build.append_basic_block("loop")
    after = build.append_basic_block("after")
    build.cbranch(build.icmp_signed(">", times, I64(0)), loop, after)
    build.position_at_end(loop)
    left = build.phi(I64)
    carried = [build.phi(value.type) for value in state]
    for phi, value in zip([left, *carried], [times, *state], strict=True):
        phi.add_incoming(value, before)
    results = body(carried)
    remaining = build.sub(left, I64(1))
    for phi, value in zip([left, *carried], [remaining, *results], strict=True):
        phi.add_incoming(value, build.block)
    last = build.block
    build.cbranch(build.icmp_signed(">", remaining, I64(0)), loop, after)
    build.position_at_end(after)
    merged = []
    for value, result in zip(state, results, strict=True):
        phi = build.phi(value.type)
        phi.add_incoming(value, before)
        phi.add_incoming(result, last)
        merged.append(phi)
    return merged


def _declare(
    module: ll.Module, name: str, arguments: Sequence[ll.Type]
) -> tuple[ll.Function, bool]:
    if name in module.globals:
        return module.globals[name], False
    function = ll.Function(module, ll.FunctionType(ll.VoidType(), arguments), name)
    function.linkage = "internal"
    function.attributes.add("nounwind")
    return function, True


def _numbers(start: int, count: int) -> ll.Constant:
    return ll.Constant(ll.VectorType(I32, count), [I32(start + n) for n in range(count)])


def _symbol(kind: str, dtype: str, mr: int, nr: int, lanes: int, accumulate: bool) -> str:
    return f"{kind}_{dtype}_{mr}x{nr}_lanes{lanes}_{'add' if accumulate else 'set'}"


def _check(dtype: str, mr: int, nr: int, lanes: int) -> None:
    if dtype not in SCALARS:
        raise DTypeError(f"a register tile computes in f32 or f64, not {dtype}")
    if min(mr, nr) < 1 or lanes not in (1, 2, 4, 8, 16):
        raise ArgumentError(f"no register tile of {mr}x{nr} with {lanes} lanes")
