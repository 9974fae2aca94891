"""Epilogues in float arithmetic: from accumulators to stored integers or float values, in one generic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qfuse._builder import Body
from qfuse._mlir import Value
from qfuse.emit.base import BuildContext, out_extents
from qfuse.emit.behind import followed
from qfuse.emit.contractions import Accumulators, Contractions
from qfuse.emit.epilogue import (
    Epilogue,
    Operand,
    finish_quantize,
    multiply_out,
    simplify_corrections,
    with_steps,
)
from qfuse.emit.expression import Inputs, resolved, write
from qfuse.emit.moves import Moves
from qfuse.emit.rounding import round_in_float, round_to_integer
from qfuse.emit.spec import EXACT_IN_FLOAT, PlannedRequantize, PlannedRescale
from qfuse.graph import AccumForm, Array, Decision, Step
from qfuse.indexing import Extents, Index, affine_map, identity
from qfuse.matchers.nodes import Node
from qfuse.matchers.rounding import MAGIC_LIMIT


class FloatEpilogues(Contractions, Moves):
    """The part of an emitter that ends accumulators in float arithmetic."""

    def corrected(self, decision: Decision, context: BuildContext) -> Value:
        """Accumulators less what the zero points add to them."""
        accumulators: Accumulators = context.build(decision)
        planned = accumulators.planned
        rank = len(planned.out_loops)
        epilogue = Epilogue(rank, [] if accumulators.corrected else self._corrections(planned, context))
        simplify_corrections(epilogue, False)
        if not epilogue.corrections:
            return accumulators.value
        element = f"i{planned.bits}"
        extents = self.builder.bindings.extents(accumulators.value.type)
        init = self.builder.empty(None, extents, element, context.sizes(planned.node.init))
        inputs, maps, load = self._inputs(epilogue)
        same = affine_map(rank, identity(rank))

        def body(inner: Body, args: Sequence[Value]) -> Value:
            return self.corrected_in(inner, args, epilogue, load, element)

        return self.builder.generic([accumulators.value, *inputs], init, [same, *maps, same], "p" * rank, body)

    def requantize(self, planned: PlannedRequantize, node: Node, context: BuildContext) -> Value:
        """Accumulators to stored integers, in one generic; layout operations in between follow on integers."""
        form = planned.form
        accumulators, epilogue = self._epilogue(form, context, planned.folds)
        finish_quantize(epilogue, planned.params)
        outs = _outs(node, form)
        value = self._emit(epilogue, form, accumulators, context, outs)
        return followed(value, form, planned.params, context)

    def rescale(self, planned: PlannedRescale, node: Node, context: BuildContext) -> Value:
        """Stored integers of other parameters, in one generic that repeats the float arithmetic of the IR."""
        form, params = planned.form, planned.params
        storage = form.params.storage
        extents = params.extents
        rank = len(extents)
        compute = "f64" if params.expressed == "f64" else "f32"
        epilogue = Epilogue(rank, quantize=params, low=params.quant_min, high=params.quant_max, compute=compute)
        epilogue.element = params.storage.mlir
        epilogue.factors = [Operand.of(form.params.scale)]
        epilogue.corrections = [] if form.params.symmetric else [(-1, (Operand.of(form.params.zero_point),))]
        epilogue.divisor = Operand.of(params.scale)
        source = context.q(form.q)
        outs = list(node.op.operands)[-1]
        inputs, maps, load = self._inputs(epilogue)

        def body(inner: Body, args: Sequence[Value]) -> Value:
            wide = "i32" if storage.bits < 32 else "i64"
            extended = [self.extend(inner, args[0], storage.bits, storage.signed, wide), *args[1:]]
            x = self._scaled(inner, extended, epilogue, load, wide, compute)
            divisor = load(inner, args, Operand.of(params.scale), compute)
            return self.quantize(inner, inner.op("arith.divf", compute, x, divisor), epilogue, load, args, compute)

        all_maps = [affine_map(rank, form.index), *maps, affine_map(rank, identity(rank))]
        return self.builder.generic([source, *inputs], context.empty_of(outs), all_maps, "p" * rank, body)

    def materialize(self, form: AccumForm, node: Node, context: BuildContext) -> Value:
        """The float value of a form, for users that stay in float."""
        accumulators, epilogue = self._epilogue(form, context, folds=False)
        epilogue.element = form.element
        outs = _outs(node, form)
        value = self._emit(epilogue, form, accumulators, context, outs)
        for layout in form.moves:
            value = self.move(layout, [value], form.element, None)
        return value

    def _epilogue(self, form: AccumForm, context: BuildContext, folds: bool) -> tuple[Accumulators, Epilogue]:
        accumulators: Accumulators = context.build(form.decision)
        planned = accumulators.planned
        rank = len(planned.out_loops)
        epilogue = Epilogue(rank, compute="f64" if form.element == "f64" else "f32")
        epilogue.factors = multiply_out(
            [self._over_dims(planned, s.params.scale) for s in (planned.lhs, planned.rhs)], rank
        )
        if not accumulators.corrected:
            epilogue.corrections = self._corrections(planned, context)
        # A float result keeps its corrections in integers: what is zero then comes out as exactly zero.
        fold = folds and planned.raw_bound < EXACT_IN_FLOAT and planned.blocked is None
        simplify_corrections(epilogue, fold)
        if planned.blocked is not None:
            accumulators, epilogue = self._sum_blocks(accumulators, epilogue, context)
        extents = out_extents(planned.extents, planned.out_loops[: epilogue.rank])
        with_steps(epilogue, form.steps, extents, context.constants.value)
        epilogue.steps = [_with_values(step, extents, context) for step in epilogue.steps]
        return accumulators, epilogue

    def _sum_blocks(
        self, accumulators: Accumulators, epilogue: Epilogue, context: BuildContext
    ) -> tuple[Accumulators, Epilogue]:
        """Blocks of integer sums become one float sum; what follows works on that."""
        planned = accumulators.planned
        rank = epilogue.rank
        outer = planned.out_loops[:-1]
        compute = epilogue.compute
        extents = out_extents(planned.extents, outer)
        empty = self.builder.empty(None, extents, compute, context.sizes(planned.node.init, extents))
        init = self.builder.fill_tensor(self.builder.constant(f"0.0 : {compute}"), empty)
        inputs, maps, load = self._inputs(epilogue)

        def body(inner: Body, args: Sequence[Value]) -> Value:
            x = self._scaled(inner, args, epilogue, load, f"i{planned.bits}", compute)
            return inner.op("arith.addf", compute, args[-1], x)

        all_maps = [affine_map(rank, identity(rank)), *maps, affine_map(rank, identity(rank)[:-1])]
        value = self.builder.generic([accumulators.value, *inputs], init, all_maps, "p" * (rank - 1) + "r", body)
        return Accumulators(planned, value, True), Epilogue(rank - 1, compute=compute)

    def _emit(
        self, epilogue: Epilogue, form: AccumForm, accumulators: Accumulators, context: BuildContext, outs: Any
    ) -> Value:
        planned = accumulators.planned
        rank = epilogue.rank
        source = accumulators.value
        bindings = self.builder.bindings
        extents = bindings.extents(source.type)
        result = self.builder.tensor(extents, epilogue.element)
        compute = epilogue.compute
        from_element = compute if planned.blocked is not None else f"i{planned.bits}"
        if from_element == epilogue.element and not (epilogue.bias or epilogue.steps or epilogue.factors):
            return source
        if outs is not None and outs.type == result:
            init = context.empty_of(outs)
        else:
            sizes = context.sizes(planned.node.init, extents)
            init = self.builder.empty(None, extents, epilogue.element, sizes)
        inputs, maps, load = self._inputs(epilogue)

        def body(inner: Body, args: Sequence[Value]) -> Value:
            x = self._scaled(inner, args, epilogue, load, from_element, compute)
            if epilogue.bias is not None:
                x = inner.op("arith.addf", compute, x, load(inner, args, epilogue.bias, compute))
            for step in epilogue.steps:
                x = self.apply_step(inner, step, x, load, args, compute)
            if epilogue.quantize is None:
                return self.cast_float(inner, x, compute, epilogue.element)
            if epilogue.divisor is not None:
                x = inner.op("arith.divf", compute, x, load(inner, args, epilogue.divisor, compute))
            return self.quantize(inner, x, epilogue, load, args, compute)

        identity_map = affine_map(rank, identity(rank))
        return self.builder.generic([source, *inputs], init, [identity_map, *maps, identity_map], "p" * rank, body)

    def _inputs(self, epilogue: Epilogue) -> tuple[list[Value], list[str], Callable[..., Value]]:
        """Tensor operands of an epilogue, their maps, and how a body loads an operand."""
        operands: list[Operand] = []
        for _, parts in epilogue.corrections:
            operands += parts
        operands += epilogue.factors
        operands += [o for o in (epilogue.bias, epilogue.divisor) if o is not None]
        if epilogue.quantize is not None:
            operands.append(Operand.of(epilogue.quantize.zero_point))
        keys: dict[Any, int] = {}
        values: list[Value] = []
        maps: list[str] = []

        def add(key: Any, value: Value, index: Index) -> None:
            if key in keys:
                return
            keys[key] = 1 + len(values)
            values.append(value)
            maps.append(affine_map(epilogue.rank, index))

        for operand in operands:
            if operand.number is not None:
                continue
            if operand.array is not None:
                array = _narrowest(operand.array, epilogue.compute)
                add(_key(operand), self.builder.dense_constant(array), operand.index)
            elif self.builder.bindings.is_ranked_tensor(operand.value.type):
                add(_key(operand), operand.value, operand.index)
        for value, index in self._read_by_steps(epilogue):
            add((value, index), value, index)

        def load(inner: Body, args: Sequence[Value], operand: Operand, want: str) -> Value:
            if operand.number is not None:
                return inner.number(operand.number, want)
            position = keys.get(_key(operand))
            value = operand.value if position is None else args[position]
            element = self.builder.bindings.type_name(value.type)
            return self.convert(inner, value, element, want, operand.signed)

        return values, maps, load

    def _read_by_steps(self, epilogue: Epilogue) -> list[tuple[Value, Index]]:
        """Tensors that the steps of an epilogue read, and where."""
        found: list[tuple[Value, Index]] = []
        for step in epilogue.steps:
            o = step.operand
            if o is not None and o.scalar is not None:
                read = Inputs([o.scalar], epilogue.rank)
                found += zip(read.values, read.indices, strict=True)
            elif o is not None and o.value is not None and self.builder.bindings.is_ranked_tensor(o.value.type):
                found.append((o.value, o.index))
        return found

    def _scaled(
        self,
        inner: Body,
        args: Sequence[Value],
        epilogue: Epilogue,
        load: Callable[..., Value],
        element: str,
        compute: str,
    ) -> Value:
        """`float(acc + corrections) * factors` in the body."""
        x = self.convert(inner, self.corrected_in(inner, args, epilogue, load, element), element, compute, True)
        for factor in epilogue.factors:
            x = inner.op("arith.mulf", compute, x, load(inner, args, factor, compute))
        return x

    @staticmethod
    def corrected_in(
        inner: Body, args: Sequence[Value], epilogue: Epilogue, load: Callable[..., Value], element: str
    ) -> Value:
        """`acc + corrections` in the body."""
        x = args[0]
        for multiple, operands in epilogue.corrections:
            term = load(inner, args, operands[0], element)
            for operand in operands[1:]:
                term = inner.op("arith.muli", element, term, load(inner, args, operand, element))
            x = inner.op("arith.addi" if multiple > 0 else "arith.subi", element, x, term)
        return x

    def apply_step(
        self, inner: Body, step: Step, x: Value, load: Callable[..., Value], args: Sequence[Value], compute: str
    ) -> Value:
        """One float operation of an epilogue."""
        if step.operand is None:
            return inner.op("arith.negf", compute, x)
        o = step.operand
        if o.number is not None:
            other = inner.number(o.number, compute)
        elif o.scalar is not None:
            other = write(inner, o.scalar, lambda key: load(inner, args, *self._element(key)))
            other = self.cast_float(inner, other, o.scalar.type, compute)
        else:
            other = load(inner, args, Operand(o.index, value=o.value, element=o.element), compute)
        names = {"max": "maximumf", "min": "minimumf", "rsub": "subf"}
        name = names.get(step.kind, step.kind + "f")
        operands = (other, x) if step.kind == "rsub" else (x, other)
        return inner.op(f"arith.{name}", compute, *operands)

    def _element(self, key: tuple[Value, Index]) -> tuple[Operand, str]:
        """An element of a tensor as an operand, and its own type."""
        value, index = key
        bindings = self.builder.bindings
        is_tensor = bindings.is_ranked_tensor(value.type)
        element = bindings.element_name(value.type) if is_tensor else bindings.type_name(value.type)
        return Operand(index, value=value, element=element), element

    def quantize(
        self,
        inner: Body,
        x: Value,
        epilogue: Epilogue,
        load: Callable[..., Value],
        args: Sequence[Value],
        compute: str,
    ) -> Value:
        """Round half to even, add the zero point, clamp, narrow."""
        params = epilogue.quantize
        assert params is not None
        zero = params.zero_point.scalar
        magic = self.options.rounding == "magic" and compute == "f32"
        if magic and zero is not None and max(abs(epilogue.low - zero), abs(epilogue.high - zero)) < MAGIC_LIMIT:
            return round_to_integer(inner, x, epilogue.low, epilogue.high, int(zero), epilogue.element)
        x = round_in_float(inner, x) if magic else inner.op("math.roundeven", compute, x)
        if zero != 0:
            x = inner.op("arith.addf", compute, x, load(inner, args, Operand.of(params.zero_point), compute))
        x = self.clamp(inner, x, epilogue.low, epilogue.high, compute)
        return inner.op("arith.fptosi" if params.storage.signed else "arith.fptoui", epilogue.element, x)

    @staticmethod
    def clamp(inner: Body, x: Value, low: float, high: float, compute: str) -> Value:
        """`x` within [low, high]; NaN becomes `low`, so that the cast behind it is defined."""
        x = inner.op("arith.maxnumf", compute, x, inner.number(low, compute))
        return inner.op("arith.minnumf", compute, x, inner.number(high, compute))


def _narrowest(array: Array, compute: str) -> Array:
    """Constant values of an epilogue in the type that they are held in."""
    if array.dtype.kind == "f":
        return array.astype(np.float64 if compute == "f64" else np.float32)
    array = array.astype(np.int64)
    return array.astype(np.int32) if np.array_equal(array, array.astype(np.int32)) else array


def _with_values(step: Step, extents: Extents, context: BuildContext) -> Step:
    """A step whose operand reads SSA values, made where they are not there yet."""
    operand = step.operand
    if operand is None or operand.scalar is None:
        return step
    return replace(step, operand=replace(operand, scalar=resolved(operand.scalar, extents, context)))


def _outs(node: Node, form: AccumForm) -> Value | None:
    """What the node writes into, when that has the accumulators' own shape."""
    return list(node.op.operands)[-1] if node.op.name.startswith("linalg.") and not form.moves else None


def _key(operand: Operand) -> Any:
    if operand.array is not None:
        return id(operand.array), operand.index
    return operand.value, operand.index
