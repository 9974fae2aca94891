"""TOSA operations that move, and add: constants that fold, transposes that cancel, 16 bits in i32.

A transpose of a transpose is one, or none. An operation that works element by element on transposed tensors works on
what they were transposed from, and its result is transposed: so transposes move on until they meet another, and the
two cancel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from qfuse._builder import Builder
from qfuse._mlir import Attribute, Type, Value
from qfuse.graph import Array
from qfuse.indexing import Index, as_dim
from qfuse.matchers.constants import ConstantReader
from qfuse.matchers.reader import ScalarReader

_NAMES = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "f32": np.float32, "f16": np.float16}
#: Elements of a constant that is computed.
_MOST_COMPUTED = 1 << 20


class TosaMoves:
    """Creates TOSA operations through a builder."""

    def __init__(self, builder: Builder) -> None:
        """Creates nothing yet."""
        self.builder = builder
        self.bindings = builder.bindings
        self._constants = ScalarReader(builder.bindings, ConstantReader(builder.bindings)).constants
        self._made: dict[Any, Value] = {}

    # -- types and constants -----------------------------------------------------------------------------------

    def shape(self, value: Value) -> tuple[int, ...]:
        """Extents of a tensor, which are static."""
        return tuple(n or 0 for n in self.bindings.extents(value.type))

    def element(self, value: Value) -> str:
        """Printed element type of a tensor."""
        return self.bindings.element_name(value.type)

    def constant(self, array: Array, element: str) -> Value:
        """A `tosa.const` at the start of the block, equal ones once; what one number says is a splat."""
        array = np.asarray(array) if element[0] == "f" else np.asarray(array).astype(np.int64)
        type_ = self.builder.tensor(array.shape, element)
        with self.builder.at_start() as block:
            key = (hash(block), element, array.shape, array.dtype.str, array.tobytes())
            if key not in self._made:
                attribute = self._attribute(array, element, type_)
                self._made[key] = self.builder.create("tosa.const", [type_], (), {"values": attribute}).results[0]
        return self._made[key]

    def _attribute(self, array: Array, element: str, type_: Type) -> Attribute:
        flat = array.reshape(-1)
        if flat.size and bool((flat == flat[0]).all()):
            return self.builder.attribute(f"dense<{_literal(flat[0], element)}> : {type_}")
        if element in _NAMES:
            return self.builder.elements(array.astype(_NAMES[element]))
        return self.builder.attribute(f"dense<{array.astype(np.int64).tolist()}> : {type_}")

    def const_shape(self, numbers: Sequence[int]) -> Value:
        """A `tosa.const_shape`."""
        listed = ", ".join(map(str, numbers))
        type_ = self.builder.type(f"!tosa.shape<{len(numbers)}>")
        with self.builder.at_start() as block:
            key = (hash(block), listed)
            if key not in self._made:
                attribute = self.builder.attribute(f"dense<[{listed}]> : tensor<{len(numbers)}xindex>")
                self._made[key] = self.builder.create("tosa.const_shape", [type_], (), {"values": attribute}).results[0]
        return self._made[key]

    def numbers(self, value: Value) -> list[int]:
        """The numbers of a `tosa.const_shape`."""
        array = self.bindings.dense(value.owner.attributes["values"])
        assert array is not None
        return [int(n) for n in array.reshape(-1)]

    def read(self, value: Value) -> Array | None:
        """The numbers of a constant, or None; nothing is looked through."""
        op = getattr(value.owner, "operation", None)
        return self._constants.read(value) if op is not None and op.name == "tosa.const" else None

    def computed(self, value: Value) -> Value:
        """A constant in place of arithmetic on constants: of indices and conditions; else `value`."""
        if self.read(value) is not None or prod(self.shape(value)) > _MOST_COMPUTED:
            return value
        known = self._constants.value(value)
        return value if known is None else self.constant(known, self.element(value))

    # -- moves -------------------------------------------------------------------------------------------------

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """`value` in another shape: itself, a constant, or a `tosa.reshape`."""
        if self.shape(value) == tuple(shape):
            return value
        value = self._before_reshapes(value)
        if self.shape(value) == tuple(shape):
            return value
        held = self.widened(value)
        if held is not None:
            return self.widen(self.reshape(held[0], shape), held[1])
        known = self.read(value)
        if known is not None:
            return self.constant(known.reshape(tuple(shape)), self.element(value))
        type_ = self.builder.tensor(tuple(shape), self.element(value))
        return self.builder.create("tosa.reshape", [type_], [value, self.const_shape(shape)]).results[0]

    @staticmethod
    def _before_reshapes(value: Value) -> Value:
        op = getattr(value.owner, "operation", None)
        while op is not None and op.name == "tosa.reshape":
            value = op.operands[0]
            op = getattr(value.owner, "operation", None)
        return value

    def transpose(self, value: Value, perms: Sequence[int]) -> Value:
        """Dimension i of the result is dimension `perms[i]` of `value`; the same ones are made once."""
        source, own = self.transposed_from(value)
        perms = [own[p] for p in perms]
        shape = self.shape(source)
        if perms == list(range(len(perms))):
            return source
        known = self.read(source)
        moved = tuple(shape[p] for p in perms)
        if known is not None:
            return self.constant(known.transpose(perms), self.element(source))
        key = (source, *perms)
        if key not in self._made:
            attributes = {"perms": self.builder.attribute(f"array<i32: {', '.join(map(str, perms))}>")}
            type_ = self.builder.tensor(moved, self.element(source))
            with self.builder.behind(source):  # where all that read it can
                self._made[key] = self.builder.create("tosa.transpose", [type_], [source], attributes).results[0]
        return self._made[key]

    def transposed_from(self, value: Value) -> tuple[Value, list[int]]:
        """What a tensor is transposed from, and how; itself where it is not."""
        perms = list(range(len(self.bindings.extents(value.type))))
        op = getattr(value.owner, "operation", None)
        while op is not None and op.name == "tosa.transpose":
            inner = [int(p) for p in op.attributes["perms"]]
            perms = [inner[p] for p in perms]
            value = op.operands[0]
            op = getattr(value.owner, "operation", None)
        return value, perms

    def sliced(self, value: Value, starts: Sequence[int], sizes: Sequence[int]) -> Value:
        """A part of `value`, or of the constant that it is."""
        known = self.read(value)
        if known is not None:
            return self.constant(known[tuple(map(slice, starts, np.add(starts, sizes)))], self.element(value))
        operands = [value, self.const_shape(starts), self.const_shape(sizes)]
        type_ = self.builder.tensor(tuple(sizes), self.element(value))
        return self.builder.create("tosa.slice", [type_], operands).results[0]

    def aligned(self, value: Value, index: Index, rank: int) -> Value:
        """`value`, read at a list of dimensions, over `rank` dimensions: extent 1 where it is not read."""
        dims = [as_dim(e) for e in index]
        kept = [i for i, d in enumerate(dims) if d is not None]
        shape = self.shape(value)
        order = sorted(kept, key=lambda i: dims[i] or 0)
        if order != kept:  # what is not read has extent 1
            value = self.transpose(value, [*(i for i in range(len(shape)) if i not in kept), *order])
        wanted = [1] * rank
        for i in kept:
            wanted[dims[i] or 0] = shape[i]
        return self.reshape(value, wanted)

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """Tensors of one type one behind the other; neighbouring constants are one."""
        pieces: list[Value] = []
        for value in values:
            known, before = self.read(value), self.read(pieces[-1]) if pieces else None
            if known is not None and before is not None:
                pieces[-1] = self.constant(np.concatenate([before, known], axis), self.element(value))
            else:
                pieces.append(value)
        if len(pieces) == 1:
            return pieces[0]
        shape = list(self.shape(pieces[0]))
        shape[axis] = sum(self.shape(v)[axis] for v in pieces)
        type_ = self.builder.tensor(tuple(shape), self.element(pieces[0]))
        attributes = {"axis": self.builder.attribute(f"{axis} : i32")}
        return self.builder.create("tosa.concat", [type_], pieces, attributes).results[0]

    def pad(self, value: Value, amounts: Sequence[int], number: int) -> Value:
        """Pads each dimension (before, behind) by one number."""
        shape = tuple(n + a + b for n, a, b in zip(self.shape(value), amounts[::2], amounts[1::2], strict=True))
        element = self.element(value)
        operands = [value, self.const_shape(amounts), self.constant(np.asarray([number]), element)]
        return self.builder.create("tosa.pad", [self.builder.tensor(shape, element)], operands).results[0]

    def tiled(self, value: Value, shape: Sequence[int]) -> Value:
        """`value` repeated along dimensions of extent 1 to be of this shape."""
        own = self.shape(value)
        if own == tuple(shape):
            return value
        known = self.read(value)
        if known is not None:
            return self.constant(np.broadcast_to(known, tuple(shape)), self.element(value))
        times = self.const_shape([n // m for n, m in zip(shape, own, strict=True)])
        type_ = self.builder.tensor(tuple(shape), self.element(value))
        return self.builder.create("tosa.tile", [type_], [value, times]).results[0]

    # -- element by element ------------------------------------------------------------------------------------

    def elementwise(
        self,
        name: str,
        operands: Sequence[Value],
        element: str,
        attributes: Mapping[str, Any] | None = None,
        extra: Sequence[Value] = (),
    ) -> Value:
        """An operation that works element by element on tensors of one rank, broadcasting.

        Args:
            name: of the operation.
            operands: the tensors.
            element: printed element type of the result.
            attributes: of the operation.
            extra: operands behind them that do not depend on the place of an element (zero points, a shift).
        """
        sources, perms = self._before_transposes(operands)
        shape = np.broadcast_shapes(*(self.shape(v) for v in sources))
        type_ = self.builder.tensor(shape, element)
        result = self.builder.create(name, [type_], [*sources, *extra], attributes).results[0]
        return self.transpose(result, perms)

    def _before_transposes(self, operands: Sequence[Value]) -> tuple[list[Value], list[int]]:
        """The operands before the transpose that all of them have in common, and that."""
        rank = len(self.shape(operands[0]))
        same = list(range(rank))
        moved = [self.transposed_from(v) for v in operands]
        varying = [p for v, (_, p) in zip(operands, moved, strict=True) if not self._is_free(v)]
        if not varying or any(p != varying[0] for p in varying) or varying[0] == same:
            return list(operands), same
        perms = varying[0]
        back = [perms.index(i) for i in range(rank)]
        sources = [
            self.transpose(v, back) if self._is_free(v) else source
            for v, (source, _) in zip(operands, moved, strict=True)
        ]
        return sources, perms

    def _is_free(self, value: Value) -> bool:
        """Whether a transpose of a tensor costs nothing: a constant, or one element."""
        return self.read(value) is not None or all(n == 1 for n in self.shape(value))

    def cast(self, value: Value, element: str) -> Value:
        """`value` as another element type; i16 that was extended to i32 is what it was."""
        if self.element(value) == element:
            return value
        source = self.extended(value)
        if source is not None and self.element(source) == element:
            return source
        return self.elementwise("tosa.cast", [value], element)

    def extended(self, value: Value) -> Value | None:
        """What an i32 tensor is a cast of, where that is of i16; or None."""
        value, perms = self.transposed_from(value)
        op = getattr(value.owner, "operation", None)
        if op is None or op.name != "tosa.cast" or self.element(value) != "i32":
            return None
        source = op.operands[0]
        return self.transpose(source, perms) if self.element(source) == "i16" else None

    def binary(self, name: str, a: Value, b: Value) -> Value:
        """`add`, `sub`, `mul`, `maximum`, `minimum` of two tensors of one type and rank; added constants become one."""
        if name in ("add", "sub"):
            merged = self._merged(a, b, 1 if name == "add" else -1)
            if merged is not None:
                return merged
        extra = [self.constant(np.zeros(1), "i8")] if name == "mul" else []
        return self.elementwise(f"tosa.{name}", [a, b], self.element(a), extra=extra)

    def _merged(self, a: Value, b: Value, sign: int) -> Value | None:
        """`a + sign * b` of i32, where `b` is a constant and `a` an addition of one."""
        second, first = self.read(b), self.added(a)
        if second is None or first is None or self.element(a) != "i32":
            return None
        value, number = first
        total = number.astype(np.int64) + sign * second.astype(np.int64)
        if total.size and max(-int(total.min()), int(total.max())) >= 1 << 31:
            return None
        if not total.any() and np.broadcast_shapes(self.shape(value), total.shape) == self.shape(value):
            return value
        return self.elementwise("tosa.add", [value, self.constant(total, "i32")], "i32")

    def added(self, value: Value) -> tuple[Value, Array] | None:
        """The tensor and the constant that `value` is the sum of, or None."""
        source, perms = self.transposed_from(value)
        op = getattr(source.owner, "operation", None)
        number = None if op is None or op.name != "tosa.add" else self.read(op.operands[1])
        if op is None or number is None:
            return None
        return self.transpose(op.operands[0], perms), number.transpose(perms)

    # -- 16 bits in i32 ----------------------------------------------------------------------------------------

    def narrow(self, value: Value, offset: int) -> Value:
        """i32 integers less `offset` as i16, which they are known to fit; right behind what defines them."""
        known = self.widened(value)
        if known is not None and known[1] == offset:
            return known[0]
        key = ("narrow", value, offset)
        if key not in self._made:
            with self.builder.behind(value):
                self._made[key] = self.cast(self.plus(value, -offset), "i16")
        return self._made[key]

    def widen(self, value: Value, offset: int) -> Value:
        """i16 integers plus `offset` as i32."""
        return self.plus(self.cast(value, "i32"), offset)

    def plus(self, value: Value, number: int) -> Value:
        """An i32 tensor plus a number."""
        if not number:
            return value
        return self.binary("add", value, self.number(number, len(self.shape(value)), "i32"))

    def widened(self, value: Value) -> tuple[Value, int] | None:
        """The i16 integers and the offset that `widen` made `value` of, or None."""
        if self.element(value) != "i32":
            return None
        source, number = self.added(value) or (value, np.zeros(1, np.int64))
        narrow = self.extended(source)
        if narrow is None or number.size != 1:
            return None
        return narrow, int(number.reshape(-1)[0])

    def number(self, number: float, rank: int, element: str) -> Value:
        """A constant of one element and `rank` dimensions."""
        return self.constant(np.full((1,) * rank, number), element)


def _literal(number: Any, element: str) -> str:
    if element[0] == "i":
        return ("true" if number else "false") if element == "i1" else str(int(number))
    width = int(element[1:])
    pattern = np.asarray(number, f"f{width // 8}").view(f"u{width // 8}")[()]
    return f"0x{int(pattern):0{width // 4}X}"
