"""How a tensor was quantized: `QuantParams`, the one description that every matcher produces and fusion consumes.

    real value = scale * (stored integer - zero point)

Terms are those of MLIR's quant dialect and of torchao's block sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from qfuse.indexing import (
    Extents,
    Index,
    as_block,
    as_dim,
    compose,
    constant,
    dims_of_index,
    drop_unit,
    first_of,
    gather,
    identity,
    substitute,
)


@dataclass(frozen=True)
class StorageType:
    """An integer type with its signedness, which MLIR's signless integers do not carry.

    Attributes:
        bits: width of the values' type.
        signed: whether values are read by sign extension.
    """

    bits: int
    signed: bool

    @property
    def min(self) -> int:
        """Least value."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def max(self) -> int:
        """Greatest value."""
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    @property
    def mlir(self) -> str:
        """The signless MLIR type."""
        return f"i{self.bits}"

    def __str__(self) -> str:
        return f"{'s' if self.signed else 'u'}{self.bits}"


@dataclass(eq=False)
class Param:
    """A scale or zero point: constant values, or an SSA value known only at run time.

    Attributes:
        index: for each dimension of the parameter, where in the quantized data's dimensions it is read
            (`()` for one value, `(d0,)` for one a row, `(d0, d1 floordiv 32)` for one a group of 32).
        data: the constant values (rank = `len(index)`), or None.
        value: the SSA tensor (rank = `len(index)`) or scalar that holds them, or None.
        element: printed element type of `value` (`f32`, `i64`, ...).
        signed: whether an integer `value` is to be sign-extended.
        negated: whether the parameter is `-value`.
        inverted: whether the parameter is `1 / value`.
    """

    index: Index
    data: np.ndarray[Any, Any] | None = None
    value: Any = None
    element: str = "f32"
    signed: bool = True

    @property
    def is_constant(self) -> bool:
        """Whether the values are known."""
        return self.data is not None

    @cached_property
    def scalar(self) -> float | None:
        """The one constant value, or None."""
        data = self.data
        if data is None or data.size == 0:
            return None
        if data.ndim == 0:
            return data.item()
        first = data.flat[0]
        return first.item() if first == data.flat[-1] and bool((data == first).all()) else None

    @cached_property
    def span(self) -> tuple[float, float] | None:
        """Least and greatest constant value; None where there are none, NaN where one is NaN."""
        data = self.data
        if data is None or not data.size:
            return None
        return (data.item(), data.item()) if data.ndim == 0 else (data.min().item(), data.max().item())

    @cached_property
    def is_zero(self) -> bool:
        """Whether it is known to be zero everywhere."""
        return self.data is not None and not self.data.any()

    def over(self, index: Index, extents: Extents) -> Param:
        """The same parameter for data of shape `extents`: `index` maps the new data's dimensions to the old ones."""
        if not self.index:
            return self
        return self._read_at(drop_unit(compose(self.index, index, extents), extents), self.data, extents)

    def simplified(self, extents: Extents) -> Param:
        """Uniform constants become scalars, dimensions that are never read are dropped."""
        data = self.data
        if data is not None and data.ndim and self.scalar is not None:
            return Param((), data.reshape(-1)[:1].reshape(()), self.value, self.element, self.signed)
        if not self.index:
            return self
        return self._read_at(drop_unit(self.index, extents), data, extents)

    def _read_at(self, index: Index, data: np.ndarray[Any, Any] | None, extents: Extents) -> Param:
        if data is not None and not all(e.terms for e in index):
            data = data[tuple(slice(None) if e.terms else e.const for e in index)]
            index = tuple(e for e in index if e.terms)
        if data is not None and any(as_block(e) is None for e in index):
            index, data = _along_dims(index, data, extents)
        if data is not None:
            dims = [as_dim(e) for e in index]
            data = first_of(data, tuple(None if d is None or d >= len(extents) else extents[d] for d in dims))
        return Param(index, data, self.value, self.element, self.signed)

    def equals(self, other: Param) -> bool:
        """Whether two parameters are the same for every element (same constants, or the same SSA value)."""
        if self.is_zero and other.is_zero:
            return True
        if self.index != other.index:
            return False
        if self.data is not None and other.data is not None:
            return self.data.shape == other.data.shape and bool(np.all(self.data == other.data))
        if self.value is None or other.value is None:
            return False
        return bool(self.value == other.value) and self.signed == other.signed


def _along_dims(index: Index, data: np.ndarray[Any, Any], extents: Extents) -> tuple[Index, np.ndarray[Any, Any]]:
    """Values read at sums of dimensions (channels split into groups) as values along these dimensions."""
    used = sorted(dims_of_index(index))
    known = [extents[d] for d in used]
    sizes = [n for n in known if n is not None]
    if len(sizes) != len(used) or any(e.terms and as_block(e) not in (None, (as_dim(e), 1)) for e in index):
        return index, data
    dims = identity(len(used))
    inner = tuple(substitute(e, dict(zip(used, dims, strict=True)), tuple(sizes)) for e in index)
    values = np.broadcast_to(gather(data, inner, sizes), sizes)
    return tuple(identity(d + 1)[d] for d in used), np.ascontiguousarray(values)


ZERO = Param((), np.zeros((), np.int64), element="i64")
ONE = Param((), np.ones((), np.float32))


@dataclass(eq=False)
class QuantParams:
    """How a tensor of shape `extents` was quantized.

    Attributes:
        storage: integer type and signedness of the stored values.
        quant_min: least stored value.
        quant_max: greatest stored value.
        scale: positive scale(s).
        zero_point: integer zero point(s); `ZERO` when symmetric.
        expressed: printed float type of the real values.
        extents: shape of the data, `None` for dynamic.
    """

    storage: StorageType
    quant_min: int
    quant_max: int
    scale: Param
    zero_point: Param
    expressed: str
    extents: Extents

    def over(self, index: Index, extents: Extents) -> QuantParams:
        """The parameters of data of shape `extents` whose elements come from here by `index`."""
        return QuantParams(
            self.storage,
            self.quant_min,
            self.quant_max,
            self.scale.over(index, extents),
            self.zero_point.over(index, extents),
            self.expressed,
            extents,
        )

    def equals(self, other: QuantParams) -> bool:
        """Whether the same integers mean the same real values under both."""
        return (
            self.storage == other.storage
            and self.scale.equals(other.scale)
            and self.zero_point.equals(other.zero_point)
        )

    @property
    def symmetric(self) -> bool:
        """Whether the zero point is known to be zero."""
        return self.zero_point.is_zero

    @property
    def block_size(self) -> tuple[int | None, ...] | None:
        """One entry a dimension: None for the whole extent, 1 for one parameter an index, g for groups of g.

        None instead of a tuple when the parameters are not laid out in blocks.
        """
        return block_size((self.scale.index, self.zero_point.index), self.extents)

    @property
    def granularity(self) -> str:
        """`per-tensor`, `per-axis(n)`, `per-token`, `per-group(g)` or `per-block(...)`."""
        return granularity((self.scale.index, self.zero_point.index), self.extents)

    def __str__(self) -> str:
        kind = "symmetric" if self.symmetric else "asymmetric"
        where = "" if self.scale.is_constant else " run-time"
        return f"{self.storage} {self.granularity} {kind}{where}"


@lru_cache(maxsize=4096)
def granularity(indices: tuple[Index, ...], extents: Extents) -> str:
    """The name of a granularity; see `QuantParams.granularity`."""
    blocks = block_size(indices, extents)
    if blocks is None:
        return "unstructured"
    divided = [i for i, g in enumerate(blocks) if g is not None]
    if not divided:
        return "per-tensor"
    sizes = [blocks[i] for i in divided]
    rank = len(blocks)
    if len(divided) == 1 and sizes == [1]:
        return f"per-axis({divided[0]})"
    if all(g == 1 for g in sizes) and divided == list(range(rank - 1)):
        return "per-token"
    groups = [g for g in sizes if g is not None and g > 1]
    if len(groups) == 1:
        return f"per-group({groups[0]})"
    return "per-block(" + ",".join("*" if g is None else str(g) for g in blocks) + ")"


def block_size(indices: Sequence[Index], extents: Extents) -> tuple[int | None, ...] | None:
    """The common block size of parameters read at `indices`; see `QuantParams.block_size`."""
    blocks: list[int | None] = [None] * len(extents)
    for index in indices:
        for expr in drop_unit(index, extents):
            if not expr.terms:
                continue
            block = as_block(expr)
            if block is None:
                return None
            position, size = block
            before = blocks[position]
            blocks[position] = size if before is None else min(size, before)
    return tuple(blocks)


def axis_param(data: np.ndarray[Any, Any], axis: int) -> Param:
    """A constant parameter with one value an index of `axis`."""
    return Param((identity(axis + 1)[axis],), data, element="f32" if data.dtype.kind == "f" else "i64")


def broadcast_to_dims(param: Param, dims: Sequence[int]) -> np.ndarray[Any, Any] | None:
    """Constant values as an array whose axes are `dims` (extent 1 where the parameter does not vary).

    None when the parameter is not constant or is not read along whole dimensions.
    """
    return None if param.data is None else broadcast(param.data, param.index, tuple(dims))


def broadcast(data: np.ndarray[Any, Any], index: Index, dims: tuple[int, ...]) -> np.ndarray[Any, Any] | None:
    """`data`, read at `index`, as an array whose axes are `dims`; None when it is not read along whole dimensions."""
    if not index:
        return data.reshape((1,) * len(dims))
    axes = _axes(index, dims)
    if axes is None:
        return None
    moved = data if len(index) == 1 else data.transpose([a for a in axes if a is not None])
    return moved.reshape([1 if a is None else data.shape[a] for a in axes])


def over_extents(data: np.ndarray[Any, Any], index: Index, extents: Extents) -> np.ndarray[Any, Any] | None:
    """`data`, read at `index`, as an array over dimensions of `extents`: extent 1 where it does not vary.

    Blocks and remainders are written out. None where that takes an extent that is not known.
    """
    aligned = broadcast(data, index, tuple(range(len(extents))))
    if aligned is not None:
        return aligned
    used = dims_of_index(index)
    if any(extents[d] is None for d in used):
        return None
    return gather(data, index, [(extents[d] or 0) if d in used else 1 for d in range(len(extents))])


@lru_cache(maxsize=1 << 10)
def _axes(index: Index, dims: tuple[int, ...]) -> tuple[int | None, ...] | None:
    """For each of `dims` the axis that is read along it, or None where nothing is."""
    positions = [as_dim(e) for e in index]
    if any(p is None or p not in dims for p in positions) or len(set(positions)) != len(positions):
        return None
    return tuple(positions.index(d) if d in positions else None for d in dims)


def varies_along(params: QuantParams, dims: frozenset[int]) -> bool:
    """Whether scale or zero point depends on any of `dims`."""
    return bool(dims & (dims_of_index(params.scale.index) | dims_of_index(params.zero_point.index)))


__all__ = [
    "ONE",
    "ZERO",
    "Param",
    "QuantParams",
    "StorageType",
    "axis_param",
    "block_size",
    "broadcast_to_dims",
    "over_extents",
    "constant",
    "varies_along",
]
