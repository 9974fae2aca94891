"""Matmuls of bytes in tiles of AVX-512 VNNI, for IREE's CPU backend.

`vpdpbusd` multiplies unsigned by signed bytes, four products a lane. IREE's data tiling widens bytes to i16 instead, at
half the rate; its flag for other kernels (`--iree-llvmcpu-enable-inner-tiled`) rejects epilogues with a bias in 3.13.
So the tiles are written out: both operands are packed, and a `flow.dispatch.region` holds `iree_codegen.inner_tiled`
and the unpacking. Constant operands are packed here. These operations are registered in IREE's bindings only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qfuse._builder import Builder
from qfuse._mlir import Attribute, Value
from qfuse.emit.base import dims_in
from qfuse.emit.matmul import Axis, Matmul, matmul_of
from qfuse.emit.reshape import reshape
from qfuse.emit.spec import PlannedContraction, Side
from qfuse.graph import Array
from qfuse.indexing import affine_map, dims_of_index, identity

_INTRINSIC = "MMA_X86_AVX512VNNI_1x16x4_I32_UI8_I8"
_LANES, _DEPTH = 16, 4
#: Rows of a tile of one or of two registers' width: 16 accumulators, which hide the latency of a product.
_ROWS = {1: 16, 2: 8}

#: Products that a result element sums up, at least: with fewer, the i32 result costs more than the tiles win.
LEAST_DEPTH = 128
#: The same where the unsigned operand does not have the reduction innermost and is transposed as it is packed.
LEAST_DEPTH_ACROSS = 256
#: Products that are computed for each that is wanted, at most.
MOST_WASTE = 1.5


@dataclass(frozen=True)
class Tiling:
    """A matmul in tiles. The operand with the rows is unsigned, the other one signed."""

    matmul: Matmul

    @property
    def widths(self) -> int:
        """Registers that a tile is wide."""
        registers = _up(self.matmul.size(self.matmul.columns), _LANES)
        return 2 if registers % 2 == 0 or registers > 8 else 1

    @property
    def registers(self) -> tuple[int, ...]:
        """The dimension over the registers of a tile's width, which the kernel has where there are several."""
        return (self.widths,) if self.widths > 1 else ()

    @property
    def tile(self) -> tuple[int, int, int]:
        """Rows, columns and reduction of a tile; the rows so that the last tile has little padding."""
        rows = self.matmul.size(self.matmul.rows)
        return _up(rows, _up(rows, _ROWS[self.widths])), _LANES * self.widths, _DEPTH

    @property
    def waste(self) -> float:
        """Products that are computed for each that is wanted."""
        return math.prod(_up(n := self.matmul.size(a), t) * t / n for a, t in self._tiled)

    @property
    def _tiled(self) -> list[tuple[Axis, int]]:
        return list(zip((self.matmul.rows, self.matmul.columns, self.matmul.depth), self.tile, strict=True))

    def tiles(self, axis: Axis) -> int:
        """How many tiles, or steps of an axis that is not tiled, there are."""
        return _up(self.matmul.size(axis), dict(self._tiled).get(axis, 1))


def tiling_of(planned: PlannedContraction) -> Tiling | None:
    """The tiles of a contraction of bytes into i32, or None where they would not fit or win nothing.

    A constant operand is the signed one, so that the sums that the other's zero point asks for are constant.
    """
    sides = planned.lhs, planned.rhs
    if planned.bits != 32 or max(side.storage.bits for side in sides) > 8:
        return None
    unsigned = _unsigned(*sides)
    matmul = None if unsigned is None else matmul_of(planned, unsigned)
    if matmul is None or matmul.size(matmul.depth) * 255 * 128 >= 1 << 31:
        return None
    is_innermost = dims_in(sides[matmul.rows_of].index)[-1] == matmul.depth[-1]
    tiling = Tiling(matmul)
    if matmul.size(matmul.depth) < (LEAST_DEPTH if is_innermost else LEAST_DEPTH_ACROSS) or tiling.waste > MOST_WASTE:
        return None
    return tiling


def _unsigned(lhs: Side, rhs: Side) -> int | None:
    """Which operand is to be unsigned, 0 or 1; None when both are constant."""
    if lhs.array is not None or rhs.array is not None:
        return None if lhs.array is not None and rhs.array is not None else int(lhs.array is not None)
    return int(lhs.storage.signed and not rhs.storage.signed)


def _up(size: int, tile: int) -> int:
    return -(-size // tile)


def tiled_contraction(
    builder: Builder, tiling: Tiling, planned: PlannedContraction, operands: Sequence[Value]
) -> Value:
    """The accumulators, over `planned.out_loops`, of two packed operands, lhs first."""
    axes = tiling.matmul.axes_of(planned.out_loops)
    type_ = builder.tensor(tuple(tiling.matmul.size(a) for a in axes), "i32")
    segments = {"operandSegmentSizes": builder.attribute("array<i32: 0, 0>")}
    region = builder.create("flow.dispatch.region", [type_], (), segments, regions=2)
    with builder.inside(region.regions[0].blocks.append()):
        tiles = _multiply(builder, tiling, planned, operands)
        builder.create("flow.return", (), [_unpack(builder, tiling, tiles, axes)])
    return reshape(builder, region.results[0], [tiling.matmul.extents[d] for d in planned.out_loops])


@dataclass(frozen=True)
class Packing:
    """How an operand is packed: its outer loops, tiles of rows or columns, tiles of the reduction, and the tile.

    Attributes:
        sizes: of the operand, adjacent loops merged.
        order: of its dimensions; the last two are tiled.
        counts: of the tiles, in that order.
        tile: extents of a tile.
        lanes: the same as the kernel has them.
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]
    counts: tuple[int, ...]
    tile: tuple[int, int]
    lanes: tuple[int, ...]


def packing(tiling: Tiling, side: Side, is_unsigned: bool) -> Packing:
    """How `side` is packed."""
    axes = tiling.matmul.axes_of(dims_in(side.index))
    order = tuple(axes.index(a) for a in tiling.matmul.axes if a in axes)
    width = tiling.tile[0 if is_unsigned else 1]
    lanes = (width, 1) if is_unsigned else (*tiling.registers, _LANES)
    counts = tuple(tiling.tiles(axes[i]) for i in order)
    return Packing(tuple(tiling.matmul.size(a) for a in axes), order, counts, (width, _DEPTH), (*lanes, _DEPTH))


def pack(builder: Builder, how: Packing, value: Value) -> Value:
    """A run-time operand in tiles, filled up with zeros."""
    value = reshape(builder, value, how.sizes)
    dest = builder.empty(None, (*how.counts, *how.tile), "i8")
    attributes = _places(builder, how.order[-2:], how.tile, how.order)
    attributes["operandSegmentSizes"] = builder.attribute("array<i32: 1, 1, 1, 0>")
    op = builder.create("linalg.pack", [dest.type], [value, dest, builder.constant("0 : i8")], attributes)
    return reshape(builder, op.results[0], [*how.counts, *how.lanes])


def packed_constant(builder: Builder, how: Packing, array: Array) -> Value:
    """A constant operand in tiles, filled up with zeros."""
    array = array.reshape(how.sizes).transpose(how.order)
    *outer, across, depth = array.shape
    missing = [(0, -n % t) for n, t in zip((across, depth), how.tile, strict=True)]
    padded = np.pad(array, [(0, 0)] * len(outer) + missing)
    split = padded.reshape(*outer, how.counts[-2], how.tile[0], how.counts[-1], how.tile[1]).swapaxes(-3, -2)
    return builder.dense_constant(np.ascontiguousarray(split, np.int8).reshape(*how.counts, *how.lanes))


def _multiply(builder: Builder, tiling: Tiling, planned: PlannedContraction, operands: Sequence[Value]) -> Value:
    """The products of all tiles over outer loops, tiles of rows, tiles of columns, rows, columns."""
    rows, columns, _ = tiling.tile
    around = tiling.matmul.axes[:-1]
    counts = [tiling.tiles(a) for a in around]
    lanes = (*tiling.registers, 1, _LANES)
    zeros = builder.empty(None, (*counts, rows, *lanes), "i32")
    zeros = builder.fill_tensor(builder.constant("0 : i32"), zeros)
    dims = dict(zip(tiling.matmul.axes, identity(len(tiling.matmul.axes)), strict=True))
    sides = [planned.lhs, planned.rhs]
    values = list(operands)
    if tiling.matmul.rows_of == 1:
        sides.reverse()
        values.reverse()
    read = [[a for a in tiling.matmul.axes if a[0] in dims_of_index(side.index)] for side in sides]
    maps = [affine_map(len(dims), tuple(dims[a] for a in axes)) for axes in (*read, around)]
    iterators = ["#linalg.iterator_type<parallel>"] * len(around) + ["#linalg.iterator_type<reduction>"]
    kind = [f"intrinsic = {_INTRINSIC}"]
    kind += [f"intrinsics_{name} = {n}" for name, n in (("m", rows), ("n", tiling.widths)) if n > 1]
    attributes = {
        "indexing_maps": builder.attribute(f"[{', '.join(maps)}]"),
        "iterator_types": builder.attribute(f"[{', '.join(iterators)}]"),
        "kind": builder.attribute(f"#iree_cpu.data_tiled_mma_layout<{', '.join(kind)}>"),
        "semantics": builder.attribute("#iree_cpu.mma_semantics<>"),
        "operandSegmentSizes": builder.attribute("array<i32: 2, 1>"),
    }
    op = builder.create("iree_codegen.inner_tiled", [zeros.type], [*values, zeros], attributes)
    return reshape(builder, op.results[0], [*counts, rows, columns])


def _unpack(builder: Builder, tiling: Tiling, tiles: Value, axes: Sequence[Axis]) -> Value:
    """Tiles as a tensor over `axes`."""
    dest = builder.empty(None, tuple(tiling.matmul.size(a) for a in axes), "i32")
    places = [axes.index(tiling.matmul.rows), axes.index(tiling.matmul.columns)]
    order = [axes.index(a) for a in tiling.matmul.axes[:-1]]
    attributes = _places(builder, places, tiling.tile[:2], order)
    return builder.create("linalg.unpack", [dest.type], [tiles, dest], attributes).results[0]


def _places(builder: Builder, places: Sequence[int], tile: Sequence[int], order: Sequence[int]) -> dict[str, Attribute]:
    """Attributes of a pack or unpack: which dimensions are tiled, by how much, and the order of the tiles."""
    said = {"inner_dims_pos": places, "static_inner_tiles": tile, "outer_dims_perm": order}
    return {name: builder.attribute(f"array<i64: {', '.join(map(str, n))}>") for name, n in said.items()}
