"""Epilogues without a float operation:  clamp(rescale(acc + corrections + bias) + zero point),  in one generic.

A planned epilogue is spelled by `LinalgEmitter.requantize_fixed` and `rescale_fixed`, which a vendor's emitter
overrides to call its own rescale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qfuse._builder import Body, Builder
from qfuse._mlir import Value
from qfuse.emit.base import BuildContext
from qfuse.emit.behind import followed
from qfuse.emit.contractions import Contractions
from qfuse.emit.epilogue import Epilogue, Operand, constant_operand, simplify_corrections
from qfuse.emit.fixed_point import I64, FixedPoint, narrowed
from qfuse.emit.moves import Moves
from qfuse.emit.spec import PlannedContraction
from qfuse.fixed_point import Multiplier, apply
from qfuse.graph import AccumForm, Array, QValue, StoredForm
from qfuse.indexing import Extents, Index, affine_map, identity
from qfuse.matchers.nodes import Node
from qfuse.qparams import QuantParams, StorageType


@dataclass(eq=False)
class FixedAddend:
    """Stored integers that are rescaled and added before the result is rounded.

    Attributes:
        q: where they come from.
        index: where they are read, over the values' dimensions.
        storage: their type.
        bias: int64, added to them (the negated zero point).
        sign: 1 or -1, of the rescaled integers.
        multiplier: from them to the guarded grid.
    """

    q: QValue
    index: Index
    storage: StorageType
    bias: Array
    sign: int
    multiplier: Multiplier


@dataclass(eq=False)
class FixedScale:
    """From i32 values to stored integers, over the dimensions of the values (extent 1 where nothing varies).

    Attributes:
        multiplier: what the values are multiplied by.
        rounding: how; see `qfuse.fixed_point`.
        bias: int64, added to the values.
        sign: 1 or -1, multiplied by first.
        zero_point: int64, added to the rounded product.
        low: int64, least stored integer.
        high: int64, greatest one.
        addends: stored integers that are added; then `multiplier` leads to a grid with guard bits.
        guard: by how many bits that grid is finer than the step of the result.
        narrowed: by how many bits values with their bias are moved down to i32 first, a tie up, before anything else;
            None where they are not.
    """

    multiplier: Multiplier
    rounding: str
    bias: Array
    sign: Array
    zero_point: Array
    low: Array
    high: Array
    addends: tuple[FixedAddend, ...] = ()
    guard: int = 0
    narrowed: int | None = None

    def apply(self, values: Any, added: Sequence[Array] = ()) -> Array:
        """The stored integers of integer values (accumulators with their corrections), as numpy computes them.

        Args:
            values: the integers.
            added: stored integers of each addend, over the same dimensions.
        """
        x = np.asarray(values, np.int64) * self.sign + self.bias
        if self.narrowed:
            x = ((x * self.sign + (1 << (self.narrowed - 1))) >> self.narrowed) * self.sign
        x = apply(x, self.multiplier, self.rounding)
        for addend, stored in zip(self.addends, added, strict=True):
            term = apply(stored.astype(np.int64) + addend.bias, addend.multiplier, self.rounding)
            x = x + addend.sign * term
        if self.addends:
            x = apply(x, Multiplier(np.asarray(1), np.asarray(self.guard), 0), self.rounding)
        return np.clip(x + self.zero_point, self.low, self.high)


@dataclass(eq=False)
class PlannedFixedRequantize:
    """Accumulators and how they become stored integers.

    Attributes:
        form: the accumulators; its steps are part of `scale`, its layout operations follow.
        params: of the output, over the accumulators' dimensions.
        scale: multiplier, bias, zero point and clamp.
        is_mean: whether the emitter has one operation for it, see `Vocabulary.mean_multiplier`.
    """

    form: AccumForm
    params: QuantParams
    scale: FixedScale
    is_mean: bool = False


@dataclass(eq=False)
class PlannedFixedRescale:
    """Stored integers and how they become those of other parameters.

    Attributes:
        form: the integers and their parameters.
        params: of the output.
        scale: as above; the bias is the negated zero point of `form`.
    """

    form: StoredForm
    params: QuantParams
    scale: FixedScale


class FixedEpilogues(Contractions, Moves):
    """The part of an emitter that ends accumulators and stored integers in fixed point."""

    def requantize_fixed(self, planned: PlannedFixedRequantize, node: Node, context: BuildContext) -> Value:
        """Accumulators to stored integers, in one generic; layout operations in between follow on integers."""
        accumulators = context.build(planned.form.decision)
        contraction: PlannedContraction = accumulators.planned
        source: Value = accumulators.value
        rank = len(contraction.out_loops)
        element, result = f"i{contraction.bits}", planned.params.storage.mlir
        corrections = [] if accumulators.corrected else self._corrections(contraction, context)
        positive = bool((planned.scale.sign == 1).all())
        bias = (1, (constant_operand(planned.scale.bias, rank),))
        # Where the sign is positive the bias is one more constant correction.
        before = Epilogue(rank, [*corrections, bias] if positive else corrections)
        simplify_corrections(before, False)
        operands = IntegerOperands(self.builder, rank)
        terms = [(multiple, [operands.add(o) for o in parts]) for multiple, parts in before.corrections]
        behind = None if positive or not planned.scale.bias.any() else operands.add(planned.scale.bias)
        extents = self.builder.bindings.extents(source.type)
        scale = FixedBody(planned.scale, operands, extents, context)

        def body(inner: Body, args: Sequence[Value]) -> Value:
            x = args[0]
            for multiple, parts in terms:
                term = parts[0].load(inner, args, element)
                for part in parts[1:]:
                    term = inner.op("arith.muli", element, term, part.load(inner, args, element))
                x = inner.op("arith.addi" if multiple > 0 else "arith.subi", element, x, term)
            x = scale.negated(inner, args, x, element)
            if behind is not None:
                x = inner.op("arith.addi", element, x, behind.load(inner, args, element))
            return scale.stored(inner, args, x, element, result)

        outs = list(node.op.operands)[-1] if node.op.name.startswith("linalg.") else None
        if outs is not None and outs.type == self.builder.tensor(extents, result):
            init = context.empty_of(outs)
        else:
            init = self.builder.empty(None, extents, result, context.sizes(contraction.node.init))
        same = affine_map(rank, identity(rank))
        maps = [same, *operands.maps, same]
        value = self.builder.generic([source, *operands.values], init, maps, "p" * rank, body)
        return followed(value, planned.form, planned.params, context)

    def rescale_fixed(self, planned: PlannedFixedRescale, node: Node, context: BuildContext) -> Value:
        """Stored integers of other parameters, in one generic."""
        form, params = planned.form, planned.params
        storage = form.params.storage
        rank = len(params.extents)
        source = context.q(form.q)
        operands = IntegerOperands(self.builder, rank)
        bias = operands.add(planned.scale.bias)
        scale = FixedBody(planned.scale, operands, params.extents, context)

        def body(inner: Body, args: Sequence[Value]) -> Value:
            x = args[0]
            if storage.bits < 64:
                x = inner.op("arith.extsi" if storage.signed else "arith.extui", I64, x)
            if bias.number != 0:
                x = inner.op("arith.addi", I64, x, bias.load(inner, args, I64))
            return scale.stored(inner, args, x, I64, params.storage.mlir)

        maps = [affine_map(rank, form.index), *operands.maps, affine_map(rank, identity(rank))]
        init = context.empty_of(list(node.op.operands)[-1])
        return self.builder.generic([source, *operands.values], init, maps, "p" * rank, body)


class IntegerOperands:
    """Integer operands of a generic: constants become numbers where they are uniform, else tensors."""

    def __init__(self, builder: Builder, rank: int) -> None:
        """No operands yet, over `rank` dimensions."""
        self.values: list[Value] = []
        self.maps: list[str] = []
        self._builder = builder
        self._rank = rank

    def add(self, operand: Operand | Array) -> _Loaded:
        """An operand; call what is returned in the body."""
        if not isinstance(operand, Operand):
            uniform = operand.size and bool((operand == operand.reshape(-1)[0]).all())
            array = operand.reshape(-1)[:1].reshape((1,) * operand.ndim) if uniform else operand
            operand = constant_operand(array, self._rank)
        if operand.number is not None:
            return _Loaded(int(operand.number), None, I64, True)
        if operand.array is not None:
            value = self._builder.dense_constant(_narrow(operand.array))
        elif not self._builder.bindings.is_ranked_tensor(operand.value.type):
            return _Loaded(None, operand.value, operand.element, operand.signed)
        else:
            value = operand.value
        self.values.append(value)
        self.maps.append(affine_map(self._rank, operand.index))
        element = self._builder.bindings.element_name(value.type)
        return _Loaded(None, None, element, operand.signed, len(self.values))


@dataclass(frozen=True)
class _Loaded:
    """An operand inside a body; `position` counts the generic's operands, the first being the values themselves."""

    number: int | None
    value: Any
    element: str
    signed: bool
    position: int = 0

    def load(self, inner: Body, args: Sequence[Value], want: str) -> Value:
        """As an integer of printed type `want`."""
        if self.number is not None:
            return inner.constant(f"{_wrapped(self.number, int(want[1:]))} : {want}")
        value = args[self.position] if self.value is None else self.value
        if self.element == "index":
            return inner.op("arith.index_cast", want, value)
        if self.element == want:
            return value
        if int(self.element[1:]) > int(want[1:]):
            return inner.op("arith.trunci", want, value)
        return inner.op("arith.extsi" if self.signed else "arith.extui", want, value)

    def known(self, inner: Body, args: Sequence[Value]) -> Value | int:
        """The number where it is one, else the value as i64."""
        return self.load(inner, args, I64) if self.number is None else self.number


class FixedBody:
    """The operands of a `FixedScale`, and its arithmetic in a body."""

    def __init__(self, scale: FixedScale, operands: IntegerOperands, extents: Extents, context: BuildContext) -> None:
        """Adds the operands that are tensors, read over dimensions of `extents`."""
        multiplier = scale.multiplier
        self._scale = scale
        self._sign = operands.add(scale.sign)
        self._mantissa = operands.add(multiplier.mantissa)
        self._shift = operands.add(multiplier.shift)
        self._zero = operands.add(scale.zero_point)
        self._low, self._high = operands.add(scale.low), operands.add(scale.high)
        self._addends = [
            (
                operands.add(_stored(a, extents, context)),
                operands.add(a.bias),
                operands.add(a.multiplier.mantissa),
                operands.add(a.multiplier.shift),
                a.sign,
            )
            for a in scale.addends
        ]

    def negated(self, inner: Body, args: Sequence[Value], x: Value, element: str) -> Value:
        """`x` times the sign."""
        if self._sign.number == 1:
            return x
        if self._sign.number == -1:
            return inner.op("arith.subi", element, inner.constant(f"0 : {element}"), x)
        return inner.op("arith.muli", element, x, self._sign.load(inner, args, element))

    def stored(self, inner: Body, args: Sequence[Value], x: Value, element: str, result: str) -> Value:
        """`x` (of type `element`) as a stored integer of type `result`."""
        fixed = FixedPoint(inner, self._scale.rounding, self._scale.multiplier.bits)
        wide = fixed.extended(x, element)
        wide = fixed.times(wide, self._mantissa.known(inner, args), self._shift.known(inner, args))
        for stored, bias, mantissa, shift, sign in self._addends:
            term = stored.load(inner, args, I64)
            if bias.number != 0:
                term = inner.op("arith.addi", I64, term, bias.load(inner, args, I64))
            term = fixed.times(term, mantissa.known(inner, args), shift.known(inner, args))
            wide = inner.op("arith.addi" if sign > 0 else "arith.subi", I64, wide, term)
        if self._addends:
            wide = FixedPoint(inner, self._scale.rounding, 0).times(wide, 1, self._scale.guard)
        if self._zero.number != 0:
            wide = inner.op("arith.addi", I64, wide, self._zero.load(inner, args, I64))
        return narrowed(inner, wide, self._low.known(inner, args), self._high.known(inner, args), result)


def _stored(addend: FixedAddend, extents: Extents, context: BuildContext) -> Operand:
    value, index = context.regrouped(context.q(addend.q), addend.index, extents)
    return Operand(index, value=value, element=addend.storage.mlir, signed=addend.storage.signed)


def _narrow(array: Array) -> Array:
    """The narrowest of i8, i32 and i64 that holds the constants."""
    for dtype in (np.int8, np.int32):
        if np.array_equal(array, array.astype(dtype)):
            return array.astype(dtype)
    return array.astype(np.int64)


def _wrapped(number: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half
