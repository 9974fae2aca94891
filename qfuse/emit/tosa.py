"""Spells integer operations in TOSA: integer operations with zero-point operands, RESCALE behind them.

    %c = tosa.conv2d %x, %w, %bias, %zx, %zw {acc_type = i32} : i8, i8, i32 -> i32
    %r = tosa.rescale %c, %multiplier, %shift, %zero, %z {per_channel = true} : i32 -> i8

How a convolution or a pooling moves its window is taken from the operation that is replaced; what it computes comes
from the plan. Needs static shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qfuse._builder import Builder
from qfuse._mlir import Value
from qfuse.cost.options import Options
from qfuse.emit.base import BuildContext
from qfuse.emit.behind import followed
from qfuse.emit.elementwise import PlannedElementwise, PlannedLookup
from qfuse.emit.fixed_epilogue import FixedAddend, FixedScale, PlannedFixedRequantize, PlannedFixedRescale
from qfuse.emit.spec import PlannedContraction, PlannedPooling
from qfuse.emit.tosa_contraction import Sums, reduce_sum
from qfuse.emit.tosa_expression import TosaExpression
from qfuse.emit.tosa_lookup import looked_up
from qfuse.emit.tosa_operand import accumulator_of, fits_operand, held_as, held_result, multiplier_bits_of, uniform
from qfuse.emit.tosa_ops import TosaOps
from qfuse.emit.tosa_pool import average, held_input, held_result_of, mean_multiplier
from qfuse.emit.tosa_products import over_dims
from qfuse.emit.tosa_supports import refuse
from qfuse.emit.tosa_unsigned import as_stored, flip, unflip
from qfuse.emit.vocabulary import Vocabulary
from qfuse.fixed_point import Multiplier
from qfuse.graph import AccumForm, Array, Decision, Environment, Pooling, Refusal, Step, StoredForm
from qfuse.indexing import Extents, Index
from qfuse.matchers.layout import Layout
from qfuse.matchers.nodes import Node
from qfuse.qparams import Param, QuantParams, StorageType, over_extents
from qfuse.regrouping import Regrouping

_STEPS = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum"}


class TosaEmitter(Vocabulary):
    """TOSA operations on integers. Override single methods to spell otherwise."""

    dialect = "tosa"
    epilogues = ("fixed-point", "power-of-two")
    scalings = ("single", "double", "inexact")
    repairs = True

    def __init__(self, builder: Builder, options: Options) -> None:
        """An emitter that creates operations with `builder`."""
        self.builder = builder
        self.options = options
        self.ops = TosaOps(builder)

    @classmethod
    def supports(cls, decision: Decision, env: Environment) -> Refusal | None:
        """Why TOSA cannot say what was decided, or None."""
        return refuse(decision, env)

    @classmethod
    def accumulator(cls, lhs: StorageType, rhs: StorageType) -> int | None:
        """i32, or i48 for operands of 16 bits."""
        return accumulator_of(lhs, rhs)

    @classmethod
    def mean_multiplier(cls, form: AccumForm, params: QuantParams) -> Multiplier | None:
        """That of `avg_pool2d`, for a mean whose result has the parameters of its operand."""
        return mean_multiplier(form, params)

    @classmethod
    def multiplier_bits(cls, accumulator: int) -> int:
        """31, or 15 for i48: RESCALE takes no other."""
        return multiplier_bits_of(accumulator)

    @classmethod
    def tabulated(cls, storage: StorageType, low: int, high: int) -> tuple[StorageType, int] | None:
        """Integers of 8 and 16 bits, the latter in i32 as well."""
        return held_as(storage, low, high)

    def constant(self, array: Array) -> Value:
        """A constant tensor."""
        return self.ops.constant(array, f"i{8 * array.dtype.itemsize}")

    # -- sums --------------------------------------------------------------------------------------------------

    def accumulate(self, planned: PlannedContraction, context: BuildContext) -> Sums:
        """The integer sums of a planned contraction, built when their bias is known."""
        return Sums(planned, self.ops, context)

    def corrected(self, decision: Decision, context: BuildContext) -> Value:
        """The sums as i32."""
        sums: Sums = context.build(decision)
        return sums.value()

    def pool(self, planned: PlannedPooling, context: BuildContext) -> Value:
        """The maximum or minimum of stored integers: the same operation on integers."""
        value, signed, offset = held_input(self.ops, planned, context)
        neutral = signed.min if planned.node.kind == "max" else signed.max
        return self._pooled(planned, value, neutral, planned.storage, offset)

    def pooled(self, move: Pooling, value: Value, params: QuantParams, neutral: int, context: BuildContext) -> Value:
        """The maximum or minimum of the elements of `value`, which stay stored integers of these parameters."""
        value, offset = held_result_of(self.ops, value, params)
        return self._pooled(move, value, neutral - offset, params.storage, offset)

    def _pooled(
        self, planned: PlannedPooling | Pooling, value: Value, neutral: int, storage: StorageType, offset: int
    ) -> Value:
        element = self.ops.element(value)
        value = value if planned.pad is None else self.move(planned.pad, [value], element, neutral)
        return as_stored(self.ops, self._repeated(planned.node.op, [value], element), storage, offset)

    def position(self, planned: PlannedPooling, context: BuildContext) -> Value:
        """The place of the first greatest of stored integers."""
        op = planned.node.op
        return self._repeated(op, [held_input(self.ops, planned, context)[0]], self.ops.element(op.results[0]))

    # -- epilogues ---------------------------------------------------------------------------------------------

    def requantize_fixed(self, planned: PlannedFixedRequantize, node: Node, context: BuildContext) -> Value:
        """Sums to stored integers; layout operations in between follow on integers."""
        value = average(self.ops, planned, context) if planned.is_mean else self._rescaled(planned, context)
        return followed(value, planned.form, planned.params, context)

    def _rescaled(self, planned: PlannedFixedRequantize, context: BuildContext) -> Value:
        sums: Sums = context.build(planned.form.decision)
        scale = planned.scale
        value = sums.value(scale.bias * scale.sign)
        bound = sums.planned.bound + int(np.abs(scale.bias).max(initial=0))
        if scale.narrowed is not None and (scale.narrowed or self.ops.element(value) == "i48"):
            value = self.ops.rescale(value, Multiplier(np.asarray(1), np.asarray(scale.narrowed), 0), "single", "i32")
            bound = (bound >> scale.narrowed) + 1
        value = self.within_range(self._signed(value, scale.sign), bound, scale)
        return self.scaled(value, scale, planned.params.storage, context)

    def _signed(self, value: Value, sign: Array) -> Value:
        """`value * sign`."""
        if (sign == 1).all():
            return value
        element, rank = self.ops.element(value), sign.ndim
        if (sign == -1).all():
            return self.ops.binary("sub", self.ops.number(0, rank, element), value)
        return self.ops.binary("mul", value, self.ops.constant(sign, element))

    def within_range(self, value: Value, bound: int, scale: FixedScale) -> Value:
        """Values that RESCALE's shift allows: beyond, the result is saturated whatever they are."""
        shift = int(scale.multiplier.shift.min(initial=62))
        narrow = self.ops.element(value) == "i32" and scale.multiplier.bits != 15
        if scale.addends or not narrow or shift > 31 or bound < 1 << max(shift - 1, 0):
            return value
        most = (1 << (shift - 1)) - 1
        return self.ops.clamp(value, -most, most)

    def rescale_fixed(self, planned: PlannedFixedRescale, node: Node, context: BuildContext) -> Value:
        """Stored integers of other parameters: one RESCALE where both zero points are of 8 bits."""
        form, params = planned.form, planned.params
        rank = len(params.extents)
        value = self.ops.aligned(context.q(form.q), form.index, rank)
        value, zero = self._less_zero(value, form.params.storage, planned.scale.bias)
        result = self.scaled(
            value, replace(planned.scale, bias=np.zeros_like(planned.scale.bias)), params.storage, context, zero
        )
        return self.ops.tiled(result, [n or 0 for n in params.extents])

    def _less_zero(self, value: Value, storage: StorageType, bias: Array) -> tuple[Value, int]:
        """Stored integers and their zero point, as RESCALE takes it; else as i32 with it subtracted."""
        ops = self.ops
        rank = len(ops.shape(value))
        if not storage.signed and storage.bits == 8:
            value, bias = flip(ops, value), bias + 128
        uniform = bias.size and bool((bias == bias.reshape(-1)[0]).all())
        number = -int(bias.reshape(-1)[0]) if uniform else None
        if number == 0:
            return value, 0
        if number is not None and ops.element(value) == "i8" and -128 <= number <= 127:
            return value, number
        value = ops.cast(value, "i32")
        return ops.binary("add", value, ops.constant(bias.reshape((1,) * (rank - bias.ndim) + bias.shape), "i32")), 0

    def scaled(
        self, value: Value, scale: FixedScale, storage: StorageType, context: BuildContext, own_zero: int = 0
    ) -> Value:
        """Integers (biased already) as stored ones.

        Args:
            value: the integers.
            scale: multiplier, rounding, addends, zero point and clamp.
            storage: what is stored.
            context: makes the addends.
            own_zero: zero point of `value`, of 8 bits.
        """
        ops = self.ops
        multiplier, rounding = scale.multiplier, scale.rounding
        if scale.addends:
            value = ops.rescale(value, multiplier, rounding, "i32", own_zero)
            for addend in scale.addends:
                value = ops.binary(
                    "add" if addend.sign > 0 else "sub", value, self._addend(addend, rounding, context, value)
                )
            multiplier, rounding, own_zero = Multiplier(np.asarray(1), np.asarray(scale.guard), 0), "single", 0
        limits = [uniform(a) for a in (scale.zero_point, scale.low, scale.high)]
        zero, low, high = limits
        held, offset = held_result(storage, scale)
        if zero is not None and low is not None and high is not None and fits_operand(held, zero - offset):
            result = ops.rescale(value, multiplier, rounding, held.mlir, own_zero, zero - offset)
            return as_stored(ops, ops.clamp(result, low - offset, high - offset), storage, offset)
        value = ops.rescale(value, multiplier, rounding, "i32", own_zero)
        rank = len(ops.shape(value))
        bounds = (scale.low - scale.zero_point, scale.high - scale.zero_point, scale.zero_point - offset)
        for name, array in zip(("maximum", "minimum", "add"), bounds, strict=True):
            if name != "add" or array.any():
                limited = np.clip(array, -(1 << 31), (1 << 31) - 1)
                value = ops.binary(
                    name, value, ops.constant(limited.reshape((1,) * (rank - limited.ndim) + limited.shape), "i32")
                )
        return as_stored(ops, ops.cast(value, held.mlir), storage, offset)

    def _addend(self, addend: FixedAddend, rounding: str, context: BuildContext, like: Value) -> Value:
        shape = self.ops.shape(like)
        read, index = context.regrouped(context.q(addend.q), addend.index, shape)
        value = self.ops.aligned(read, index, len(shape))
        value, zero = self._less_zero(value, addend.storage, addend.bias)
        return self.ops.rescale(value, addend.multiplier, rounding, "i32", zero)

    # -- element by element ------------------------------------------------------------------------------------

    def elementwise(self, planned: PlannedElementwise, context: BuildContext) -> Value:
        """An expression of stored integers."""
        unsigned = not planned.node.params.storage.signed
        value = TosaExpression(self.ops, planned.extents, context, unsigned).result(planned.scalar)
        return self._moved(value, planned.moves, planned.node.params.storage.mlir)

    def lookup(self, planned: PlannedLookup, context: BuildContext) -> Value:
        """A function of one stored integer, as `tosa.table`."""
        value = TosaExpression(self.ops, planned.extents, context).result(planned.stored)
        return self._moved(looked_up(self.ops, value, planned), planned.moves, planned.node.params.storage.mlir)

    def _moved(self, value: Value, moves: Sequence[Layout], element: str, padding: int | None = None) -> Value:
        """Layout operations in order; pads are by `padding`."""
        for layout in moves:
            value = self.move(layout, [value], element, padding if layout.kind == "pad" else None)
        return value

    # -- unsigned storage at the boundary ----------------------------------------------------------------------

    def repaired_quantize(self, source: Value, params: QuantParams) -> Value:
        """Whole floats, clamped to the bounds of unsigned bytes, as these."""
        rank, element = len(self.ops.shape(source)), self.ops.element(source)
        value = self.ops.clamp(source, params.quant_min, params.quant_max)
        value = self.ops.binary("sub", value, self.ops.number(128.0, rank, element))
        return unflip(self.ops, self.ops.cast(value, "i8"))

    def repaired_dequantize(self, form: StoredForm, context: BuildContext) -> Value:
        """The float value of unsigned bytes."""
        ops, params = self.ops, form.params
        rank = len(params.extents)
        value = ops.cast(flip(ops, self.copy(context.q(form.q), form.index, params.extents)), "i32")
        if params.zero_point.data is None:
            value = ops.binary("add", value, ops.number(128, rank, "i32"))
        value = ops.binary("sub", value, self._parameter(params.zero_point, params.extents, "i32", -128))
        return ops.binary("mul", ops.cast(value, "f32"), self._parameter(params.scale, params.extents, "f32"))

    def repaired_contraction(self, op: Any, sides: Sequence[tuple[int, int]], tensors: Sequence[Value]) -> Value:
        """An integer operation on unsigned bytes with signed ones and their zero points in place of `sides`."""
        inputs = list(op.operands)
        for (side, zero), value in zip(sides, tensors, strict=True):
            inputs[side] = flip(self.ops, value)
            inputs[side - 2] = self.ops.constant(np.asarray([zero]), "i8")
        return self._repeated(op, inputs, self.ops.element(op.results[0]))

    def _parameter(self, param: Param, extents: Extents, element: str, plus: int = 0) -> Value:
        """A scale or zero point over dimensions of `extents`; a constant with `plus` added."""
        if param.data is None:
            return self.ops.aligned(self.ops.cast(param.value, element), param.index, len(extents))
        held = over_extents(param.data, param.index, extents)
        assert held is not None
        return self.ops.constant(held + plus if plus else held, element)

    # -- floats ------------------------------------------------------------------------------------------------

    def materialize(self, form: AccumForm, node: Node, context: BuildContext) -> Value:
        """The float value of a form, for users that stay in float."""
        sums: Sums = context.build(form.decision)
        planned = sums.planned
        value, shift = self._as_float(sums)
        for side in (planned.lhs, planned.rhs):
            if planned.unit and side is planned.rhs:
                continue
            value = self.ops.binary("mul", value, over_dims(self.ops, planned, side.params.scale, "f32"))
        if shift:
            value = self.ops.binary("mul", value, self.ops.number(2.0**shift, len(self.ops.shape(value)), "f32"))
        if planned.blocked is not None:
            rank = len(planned.out_loops)
            value = reduce_sum(self.ops, value, rank - 1)
            value = self.ops.reshape(value, self.ops.shape(value)[:-1])
        for step in form.steps:
            value = self._step(value, step, context)
        value = self.ops.cast(value, form.element)
        return self._moved(value, form.moves, form.element, 0)

    def _as_float(self, sums: Sums) -> tuple[Value, int]:
        """Sums as f32, and how many bits they were shifted by to fit i32 (i48 has no other way)."""
        value = sums.value()
        if self.ops.element(value) != "i48":
            return self.ops.cast(value, "f32"), 0
        shift = max(sums.planned.bound.bit_length() - 30, 0)
        value = self.ops.rescale(value, Multiplier(np.asarray(1), np.asarray(shift), 0), "single", "i32")
        return self.ops.cast(value, "f32"), shift

    def _step(self, value: Value, step: Step, context: BuildContext) -> Value:
        ops = self.ops
        rank = len(ops.shape(value))
        if step.operand is None:
            return ops.binary("sub", ops.number(0.0, rank, "f32"), value)
        operand = step.operand
        if operand.number is not None:
            other = ops.number(1.0 / operand.number if step.kind == "div" else operand.number, rank, "f32")
        elif operand.value is not None:
            source, index = context.regrouped(ops.cast(operand.value, "f32"), operand.index, ops.shape(value))
            other = ops.aligned(source, index, rank)
            other = ops.elementwise("tosa.reciprocal", [other], "f32") if step.kind == "div" else other
        else:
            assert operand.scalar is not None
            other = ops.cast(TosaExpression(ops, ops.shape(value), context).value(operand.scalar), "f32")
            other = ops.elementwise("tosa.reciprocal", [other], "f32") if step.kind == "div" else other
        if step.kind in ("sub", "rsub"):
            return ops.binary("sub", *((value, other) if step.kind == "sub" else (other, value)))
        return ops.binary("mul" if step.kind == "div" else _STEPS[step.kind], value, other)

    # -- layout ------------------------------------------------------------------------------------------------

    def move(self, layout: Layout, inputs: Sequence[Value], element: str, fill: int | Param | None) -> Value:
        """Repeats a layout operation on tensors of another element type."""
        op, ops = layout.op, self.ops
        narrow = [ops.widened(v) for v in inputs] if element == "i32" else [None]
        held = [n for n in narrow if n is not None]
        if len(held) == len(narrow) and len({offset for _, offset in held}) == 1:
            offset = held[0][1]
            less = fill - offset if isinstance(fill, int) else 0
            if -(1 << 15) <= less < 1 << 15:
                return ops.widen(self.move(layout, [v for v, _ in held], "i16", less), offset)
        if op.name == "tosa.transpose":
            return ops.transpose(inputs[0], [int(p) for p in op.attributes["perms"]])
        if op.name == "tosa.reshape":
            return ops.reshape(inputs[0], [n or 0 for n in ops.bindings.extents(op.results[0].type)])
        if op.name == "tosa.identity":
            return inputs[0]
        if op.name == "tosa.concat":
            return self._concat(layout, inputs)
        if op.name == "tosa.pad":
            assert isinstance(fill, int)
            amounts = [int(n) for n in ops.numbers(op.operands[1])]
            return self._padded(inputs[0], amounts, fill)
        if op.name == "tosa.gather":
            inputs = [inputs[0], ops.computed(op.operands[1])]
        return self._repeated(op, inputs, element)

    def _concat(self, layout: Layout, inputs: Sequence[Value]) -> Value:
        ops = self.ops
        moved = [ops.transposed_from(v) for v in inputs]
        perms = moved[0][1]
        axis = layout.axis or 0
        if any(p != perms for _, p in moved):
            perms = list(range(len(perms)))
            moved = [(v, perms) for v in inputs]
        sources = [v for v, _ in moved]
        return ops.transpose(ops.concat(sources, perms[axis]), perms)

    def _padded(self, value: Value, amounts: Sequence[int], number: int) -> Value:
        source, perms = self.ops.transposed_from(value)
        back = [perms.index(i) for i in range(len(perms))]
        moved = [n for i in back for n in amounts[2 * i : 2 * i + 2]]
        return self.ops.transpose(self.ops.pad(source, moved, number), perms)

    def _repeated(self, op: Any, inputs: Sequence[Value], element: str) -> Value:
        """The same operation on tensors of another element type."""
        copy = self.builder.clone(op)
        for position, value in enumerate(inputs):
            copy.operands[position] = value
        copy.results[0].set_type(self.builder.tensor(self.ops.bindings.extents(op.results[0].type), element))
        return copy.results[0]

    def regroup(self, value: Value, found: Regrouping) -> Value:
        """A tensor transposed and reshaped."""
        return self.ops.reshape(self.ops.transpose(value, found.order), found.extents)

    def copy(self, value: Value, index: Index, extents: Sequence[int | None]) -> Value:
        """`value` read at a list of dimensions, as a tensor of its own."""
        return self.ops.tiled(self.ops.aligned(value, index, len(extents)), [n or 0 for n in extents])

    def split_dim(self, value: Value, position: int, size: int) -> Value:
        """Splits dimension `position` into blocks of `size`."""
        shape = self.ops.shape(value)
        return self.ops.reshape(value, [*shape[:position], shape[position] // size, size, *shape[position + 1 :]])
