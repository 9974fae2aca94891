"""Spells integer operations in linalg on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qfuse._mlir import Body, Builder, Extents, Value
from qfuse.cost.options import Options
from qfuse.emit.base import BuildContext, dims_in, loops_to_dims, out_extents
from qfuse.emit.elementwise import PlannedElementwise, PlannedLookup, elementwise, lookup
from qfuse.emit.epilogue import (
    Epilogue,
    Operand,
    finish_quantize,
    multiply_out,
    simplify_corrections,
    with_steps,
)
from qfuse.emit.expression import Inputs, resolved, write
from qfuse.emit.fixed_epilogue import FixedEpilogues
from qfuse.emit.named import named_contraction
from qfuse.emit.reduction import pool, window_carrier
from qfuse.emit.rounding import round_in_float, round_to_integer
from qfuse.emit.spec import EXACT_IN_FLOAT, PlannedContraction, PlannedPooling, PlannedRequantize, PlannedRescale, Side
from qfuse.graph import AccumForm, Array, Decision, Existing, Step
from qfuse.indexing import Index, affine_map, as_dim, compose, dims_of_index, identity, substitute
from qfuse.matchers.layout import Layout
from qfuse.matchers.nodes import Convolution, Node
from qfuse.matchers.rounding import MAGIC_LIMIT
from qfuse.qparams import Param, StorageType


class Accumulators:
    """Accumulators of a built contraction.

    Attributes:
        planned: what was planned.
        value: integer tensor over `planned.out_loops`.
        corrected: whether the zero points are subtracted already.
    """

    def __init__(self, planned: PlannedContraction, value: Value, corrected: bool) -> None:
        """See the class."""
        self.planned = planned
        self.value = value
        self.corrected = corrected


class LinalgEmitter(FixedEpilogues):
    """linalg generics, or named operations where they can say it. Override single methods to spell otherwise."""

    def __init__(self, builder: Builder, options: Options) -> None:
        """An emitter that creates operations with `builder`."""
        self.builder = builder
        self.options = options

    # -- contraction -------------------------------------------------------------------------------------------

    def accumulate(self, planned: PlannedContraction, context: BuildContext) -> Accumulators:
        """The integer sum of products of a planned contraction."""
        # A convolution keeps its name where it can: compilers know few convolutions by their bodies.
        keeps_name = isinstance(planned.node, Convolution) and planned.node.op.name != "linalg.generic"
        if keeps_name:
            sides = [self.as_signed(side, context) for side in (planned.lhs, planned.rhs)]
            planned = replace(planned, lhs=sides[0], rhs=sides[1])
        lhs = self._operand(planned, planned.lhs, context)
        rhs = lhs if planned.unit else self._operand(planned, planned.rhs, context)
        sizes = context.sizes(planned.node.init, _result_extents(planned))
        if keeps_name or (self.options.spelling == "named" and not planned.unit):
            named = named_contraction(self.builder, planned, lhs, rhs, sizes)
            if named is not None:
                return Accumulators(planned, *named)
        init = self.zeros(planned, planned.out_loops, f"i{planned.bits}", sizes)
        return Accumulators(planned, self.multiply_add(planned, lhs, rhs, init), False)

    def as_signed(self, side: Side, context: BuildContext) -> Side:
        """An operand of unsigned bytes as signed ones, 128 less, its zero point too; others as they are."""
        storage, zero = side.storage, side.params.zero_point
        if storage.signed or storage.bits != 8 or zero.data is None:
            return side
        value = context.q(side.form.q)
        extents = self.builder.bindings.extents(value.type)
        rank = len(extents)
        flip = affine_map(rank, identity(rank))

        def body(inner: Body, args: Sequence[Value]) -> Value:
            return inner.op("arith.xori", "i8", args[0], inner.constant("-128 : i8"))

        init = self.builder.empty(value, extents, "i8")
        shifted = self.builder.generic([value], init, [flip, flip], "p" * rank, body)
        signed = StorageType(8, True)
        zero = Param(zero.index, zero.data.astype(np.int64) - 128, element="i64")
        params = replace(side.params, storage=signed, zero_point=zero)
        form = replace(side.form, q=Existing(shifted), low=side.form.low - 128, high=side.form.high - 128)
        array = None if side.array is None else side.array.astype(np.int16) - 128
        return Side(form, side.index, params, signed, array)

    def _operand(self, planned: PlannedContraction, side: Side, context: BuildContext) -> Value:
        value = context.q(side.form.q)
        if planned.blocked is None:
            return value
        _, size = planned.blocked
        position = next(i for i, e in enumerate(side.index) if as_dim(e) == len(planned.extents) - 1)
        return self.split_dim(value, position, size)

    def split_dim(self, value: Value, position: int, size: int) -> Value:
        """Expands dimension `position` into blocks of `size`."""
        bindings = self.builder.bindings
        extents = bindings.extents(value.type)
        element = bindings.element_name(value.type)
        extent = extents[position]
        assert extent is not None
        expanded = (*extents[:position], extent // size, size, *extents[position + 1 :])
        groups = [[i] for i in range(position)] + [[position, position + 1]]
        groups += [[i + 1] for i in range(position + 1, len(extents))]
        return self.expand_shape(value, groups, expanded, element)

    def expand_shape(
        self, value: Value, groups: Sequence[Sequence[int]], extents: Sequence[int | None], element: str
    ) -> Value:
        """A `tensor.expand_shape`; dynamic extents are those of the source (one a group)."""
        builder = self.builder
        sizes = [builder.dim(value, g) for g, group in enumerate(groups) for d in group if extents[d] is None]
        static = ", ".join(str(-(2**63)) if n is None else str(n) for n in extents)
        attributes = {
            "reassociation": builder.attribute("[" + ", ".join(f"{list(g)}" for g in groups) + "]"),
            "static_output_shape": builder.attribute(f"array<i64: {static}>" if extents else "array<i64>"),
        }
        type_ = builder.tensor(tuple(extents), element)
        return builder.create("tensor.expand_shape", [type_], [value, *sizes], attributes).results[0]

    def zeros(self, planned: PlannedContraction, loops: Sequence[int], element: str, sizes: Sequence[Value]) -> Value:
        """A tensor of integer zeros over `loops`."""
        empty = self.builder.empty(None, out_extents(planned.extents, loops), element, sizes)
        return self.builder.fill_tensor(self.builder.constant(f"0 : {element}"), empty)

    def multiply_add(self, planned: PlannedContraction, lhs: Value, rhs: Value, init: Value) -> Value:
        """The contraction itself, as one generic with the operands extended in its body."""
        rank = len(planned.extents)
        wide = f"i{planned.bits}"
        out = tuple(identity(rank)[d] for d in planned.out_loops)
        iterators = "".join("r" if d in planned.reduction else "p" for d in range(rank))

        if planned.unit:
            return self.add_up(planned, lhs, init, iterators)

        def body(inner: Body, args: Sequence[Value]) -> Value:
            a = self.extend(inner, args[0], planned.lhs.storage.bits, planned.lhs.storage.signed, wide)
            b = self.extend(inner, args[1], planned.rhs.storage.bits, planned.rhs.storage.signed, wide)
            return inner.op("arith.addi", wide, args[2], inner.op("arith.muli", wide, a, b))

        maps = [affine_map(rank, i) for i in (planned.lhs.index, planned.rhs.index, out)]
        return self.builder.generic([lhs, rhs], init, maps, iterators, body)

    def add_up(self, planned: PlannedContraction, value: Value, init: Value, iterators: str) -> Value:
        """The integer sum of one operand over the reduction."""
        rank = len(planned.extents)
        storage = planned.lhs.storage
        wide = f"i{planned.bits}"
        out = tuple(identity(rank)[d] for d in planned.out_loops)
        carrier, carried = window_carrier(self.builder, planned.extents, [planned.lhs.index], out)

        def body(inner: Body, args: Sequence[Value]) -> Value:
            return inner.op(
                "arith.addi", wide, args[-1], self.extend(inner, args[0], storage.bits, storage.signed, wide)
            )

        maps = [affine_map(rank, i) for i in (planned.lhs.index, *carried, out)]
        return self.builder.generic([value, *carrier], init, maps, iterators, body)

    def pool(self, planned: PlannedPooling, context: BuildContext) -> Value:
        """The maximum or minimum of stored integers over windows or dimensions."""
        return pool(self.builder, planned, context)

    def elementwise(self, planned: PlannedElementwise, context: BuildContext) -> Value:
        """An expression of stored integers up to its quantize, in one generic."""
        return elementwise(planned, context)

    def lookup(self, planned: PlannedLookup, context: BuildContext) -> Value:
        """A function of one stored integer, by a table."""
        return lookup(planned, context)

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

    @staticmethod
    def extend(inner: Body, value: Value, bits: int, signed: bool, wide: str) -> Value:
        """`value` of `bits` bits as `wide`."""
        if bits == int(wide[1:]):
            return value
        return inner.op("arith.extsi" if signed else "arith.extui", wide, value)

    def row_sum(self, planned: PlannedContraction, side: Side, context: BuildContext) -> Operand:
        """`sum q` over the reduction of one operand, over the accumulators' dimensions."""
        used = dims_of_index(side.index)
        kept = [d for d in planned.out_loops if d in used]
        to_dims = loops_to_dims(planned.out_loops, len(planned.extents))
        index = tuple(to_dims[d] for d in kept)
        if side.array is not None:
            return Operand(index, _sum_constant(side, planned.reduction, kept))
        loops = sorted(used)
        rank = len(loops)
        dims = identity(rank)
        renumbered = {loop: dims[i] for i, loop in enumerate(loops)}
        read = tuple(substitute(e, renumbered, ()) for e in side.index)
        written = tuple(renumbered[d] for d in kept)
        value = self._operand(planned, side, context)
        wide = f"i{planned.bits}"
        dynamic = [d for d in planned.out_loops if planned.extents[d] is None]
        size_of = dict(zip(dynamic, context.sizes(planned.node.init, _result_extents(planned)), strict=False))
        extents = out_extents(planned.extents, kept)
        empty = self.builder.empty(None, extents, wide, [size_of[d] for d in kept if d in size_of])
        init = self.builder.fill_tensor(self.builder.constant(f"0 : {wide}"), empty)
        carrier, carried = window_carrier(self.builder, out_extents(planned.extents, loops), [read], written)

        def body(inner: Body, args: Sequence[Value]) -> Value:
            extended = self.extend(inner, args[0], side.storage.bits, side.storage.signed, wide)
            return inner.op("arith.addi", wide, args[-1], extended)

        iterators = "".join("r" if d in planned.reduction else "p" for d in loops)
        maps = [affine_map(rank, i) for i in (read, *carried, written)]
        total = self.builder.generic([value, *carrier], init, maps, iterators, body)
        return Operand(index, value=total, element=wide)

    # -- epilogue ----------------------------------------------------------------------------------------------

    def requantize(self, planned: PlannedRequantize, node: Node, context: BuildContext) -> Value:
        """Accumulators to stored integers, in one generic; layout operations in between follow on integers."""
        form = planned.form
        accumulators, epilogue = self._epilogue(form, context, stored=True)
        finish_quantize(epilogue, planned.params)
        outs = _outs(node, form)
        value = self._emit(epilogue, form, accumulators, context, outs)
        zero = planned.params.zero_point.scalar
        for layout in form.moves:
            fill = int(zero) if layout.kind == "pad" and zero is not None else None
            value = self.move(layout, [value], epilogue.element, fill)
        return value

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
        accumulators, epilogue = self._epilogue(form, context, stored=False)
        epilogue.element = form.element
        outs = _outs(node, form)
        value = self._emit(epilogue, form, accumulators, context, outs)
        for layout in form.moves:
            value = self.move(layout, [value], form.element, None)
        return value

    def _epilogue(self, form: AccumForm, context: BuildContext, stored: bool) -> tuple[Accumulators, Epilogue]:
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
        fold = stored and planned.raw_bound < EXACT_IN_FLOAT and planned.blocked is None
        simplify_corrections(epilogue, fold)
        if planned.blocked is not None:
            accumulators, epilogue = self._sum_blocks(accumulators, epilogue, context)
        extents = out_extents(planned.extents, planned.out_loops[: epilogue.rank])
        steps = [_with_values(step, context) for step in form.steps]
        with_steps(epilogue, steps, extents, context.constants.value)
        return accumulators, epilogue

    @staticmethod
    def _over_dims(planned: PlannedContraction, param: Param) -> Operand:
        if not param.index:
            return Operand.of(param)
        to_dims = loops_to_dims(planned.out_loops, len(planned.extents))
        extents = out_extents(planned.extents, planned.out_loops)
        return Operand.of(Param(
            compose(param.index, to_dims, extents), param.data, param.value, param.element, param.signed
        ))  # fmt: skip

    def _corrections(self, planned: PlannedContraction, context: BuildContext) -> list[tuple[int, tuple[Operand, ...]]]:
        """Terms of  - za sum b  - zb sum a  + K za zb, without those that are zero."""
        lhs_zero = self._over_dims(planned, planned.lhs.params.zero_point)
        rhs_zero = self._over_dims(planned, planned.rhs.params.zero_point)
        terms: list[tuple[int, tuple[Operand, ...]]] = []
        if not planned.lhs.params.symmetric:
            terms.append((-1, (lhs_zero, self.row_sum(planned, planned.rhs, context))))
        if not planned.rhs.params.symmetric:
            terms.append((-1, (rhs_zero, self.row_sum(planned, planned.lhs, context))))
        if len(terms) == 2:
            terms.append((1, (self._count(planned, context), lhs_zero, rhs_zero)))
        return terms

    def _count(self, planned: PlannedContraction, context: BuildContext) -> Operand:
        """How many products each accumulator sums up."""
        total: Array = np.asarray(1, np.int64)
        dynamic: list[Value] = []
        for loop in planned.reduction:
            extent = planned.extents[loop]
            if extent is not None:
                total = total * extent
                continue
            value = context.q(planned.lhs.form.q)
            dynamic.append(self.builder.dim(value, dims_in(planned.lhs.index).index(loop)))
        if not dynamic:
            return Operand((), total)
        count = self.builder.constant(f"{int(total)} : index")
        for size in dynamic:
            count = self.builder.create("arith.muli", [self.builder.type("index")], [count, size]).results[0]
        wide = self.builder.type("i64")
        cast = self.builder.create("arith.index_cast", [wide], [count]).results[0]
        return Operand((), value=cast, element="i64")

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

    # -- types -------------------------------------------------------------------------------------------------

    def convert(self, inner: Body | Builder, value: Value, element: str, want: str, signed: bool) -> Value:
        """A scalar of type `element` as `want` (integer or float)."""
        if element == want:
            return value
        from_float, to_float = element.startswith(("f", "bf")), want.startswith(("f", "bf"))
        if from_float and to_float:
            return self.cast_float(inner, value, element, want)
        if from_float:
            return inner.op("arith.fptosi", want, value)
        if element == "index":
            value, element = inner.op("arith.index_cast", "i64", value), "i64"
            if want == "i64":
                return value
        if to_float:
            return inner.op("arith.sitofp" if signed else "arith.uitofp", want, value)
        if int(element[1:]) > int(want[1:]):
            return inner.op("arith.trunci", want, value)
        return inner.op("arith.extsi" if signed else "arith.extui", want, value)

    @staticmethod
    def cast_float(inner: Body | Builder, value: Value, element: str, want: str) -> Value:
        """A float of another width."""
        if element == want:
            return value
        widths = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
        return inner.op("arith.extf" if widths[want] > widths[element] else "arith.truncf", want, value)

    # -- layout ------------------------------------------------------------------------------------------------

    def move(self, layout: Layout, inputs: Sequence[Value], element: str, fill: int | Param | None) -> Value:
        """Repeats a layout operation on tensors of another element type."""
        op = layout.op
        builder = self.builder
        result = builder.tensor(builder.bindings.extents(op.results[0].type), element)
        if op.name == "linalg.transpose" or op.name == "linalg.broadcast":
            outs = list(op.operands)[-1]
            sizes = [builder.dim(outs, i) for i, n in enumerate(builder.bindings.extents(outs.type)) if n is None]
            init = builder.empty(None, builder.bindings.extents(result), element, sizes)
            name = "permutation" if op.name == "linalg.transpose" else "dimensions"
            return self._with_yield(op.name, inputs[0], init, {name: op.attributes[name]})
        if op.name == "linalg.generic":
            return self._move_generic(layout, inputs[0], result, element)
        pad = None if fill is None else self.fill_value(fill, element)
        if op.name == "tensor.insert_slice" and pad is not None:
            return self._insert(op, inputs[0], result, element, pad)
        copy = builder.clone(op)
        for position, value in enumerate(inputs):
            copy.operands[position] = value
        copy.results[0].set_type(result)
        if pad is not None:
            list(copy.regions[0].blocks[0].operations)[-1].operation.operands[0] = pad
        return copy.results[0]

    def fill_value(self, fill: int | Param, element: str) -> Value:
        """A stored integer, or a run-time zero point of one value, as a scalar of the storage type."""
        builder = self.builder
        if isinstance(fill, int):
            return builder.constant(f"{_wrapped(fill, element)} : {element}")
        value, own = fill.value, fill.element
        if builder.bindings.is_ranked_tensor(value.type):
            places = [builder.constant(f"{e.const} : index") for e in fill.index]
            value = builder.create("tensor.extract", [builder.type(own)], [value, *places]).results[0]
        return self.convert(builder, value, own, element, fill.signed)

    def _insert(self, op: Any, source: Value, result: Any, element: str, pad: Value) -> Value:
        """An insertion into a tensor of one value."""
        builder = self.builder
        dest = op.operands[1]
        extents = builder.bindings.extents(dest.type)
        sizes = [builder.dim(dest, i) for i, n in enumerate(extents) if n is None]
        filled = builder.fill_tensor(pad, builder.empty(None, extents, element, sizes))
        copy = builder.clone(op)
        copy.operands[0], copy.operands[1] = source, filled
        copy.results[0].set_type(result)
        return copy.results[0]

    def _with_yield(self, name: str, source: Value, init: Value, attributes: dict[str, Any]) -> Value:
        op = self.builder.create(name, [init.type], [source, init], attributes, regions=1)
        with self.builder.context, self.builder.location:
            self.builder.bindings.linalg.fill_builtin_region(op)
        return op.results[0]

    def _move_generic(self, layout: Layout, source: Value, result: Any, element: str) -> Value:
        """A generic that copies or gathers, on another element type."""
        builder = self.builder
        outs = list(layout.op.operands)[-1]
        sizes = [builder.dim(outs, i) for i, n in enumerate(builder.bindings.extents(outs.type)) if n is None]
        init = builder.empty(None, builder.bindings.extents(result), element, sizes)
        copy = builder.clone(layout.op)
        copy.operands[len(copy.operands) - 1] = init
        copy.results[0].set_type(result)
        block = copy.regions[0].blocks[0]
        arguments = list(block.arguments)
        arguments[-1].set_type(builder.type(element))
        if layout.kind != "gather":
            copy.operands[0] = source
            arguments[0].set_type(builder.type(element))
            return copy.results[0]
        for inner in block.operations:
            inner = inner.operation
            if inner.name == "tensor.extract" and inner.operands[0] == layout.sources[0]:
                inner.operands[0] = source
                inner.results[0].set_type(builder.type(element))
        return copy.results[0]

    def copy(self, value: Value, index: Index, extents: Sequence[int | None]) -> Value:
        """`value` read at a list of dimensions, as a tensor of its own."""
        builder = self.builder
        bindings = builder.bindings
        element = bindings.element_name(value.type)
        rank = len(extents)
        sizes: list[Value] = []
        for position, extent in enumerate(extents):
            if extent is None:
                source = next(i for i, e in enumerate(index) if as_dim(e) == position)
                sizes.append(builder.dim(value, source))
        init = builder.empty(None, tuple(extents), element, sizes)
        maps = [affine_map(rank, index), affine_map(rank, identity(rank))]
        return builder.generic([value], init, maps, "p" * rank, lambda _, args: args[0])


def _narrowest(array: Array, compute: str) -> Array:
    """Constant values of an epilogue in the type that they are held in."""
    if array.dtype.kind == "f":
        return array.astype(np.float64 if compute == "f64" else np.float32)
    array = array.astype(np.int64)
    return array.astype(np.int32) if np.array_equal(array, array.astype(np.int32)) else array


def _with_values(step: Step, context: BuildContext) -> Step:
    """A step whose operand reads SSA values, made where they are not there yet."""
    operand = step.operand
    if operand is None or operand.scalar is None:
        return step
    return replace(step, operand=replace(operand, scalar=resolved(operand.scalar, context)))


def _outs(node: Node, form: AccumForm) -> Value | None:
    """What the node writes into, when that has the accumulators' own shape."""
    return list(node.op.operands)[-1] if node.op.name.startswith("linalg.") and not form.moves else None


def _result_extents(planned: PlannedContraction) -> Extents:
    """Extents of the result: of the accumulators without the loop over blocks."""
    loops = planned.out_loops if planned.blocked is None else planned.out_loops[:-1]
    return out_extents(planned.extents, loops)


def _wrapped(value: int, element: str) -> int:
    bits = int(element[1:])
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def _key(operand: Operand) -> Any:
    if operand.array is not None:
        return id(operand.array), operand.index
    return operand.value, operand.index


def _sum_constant(side: Side, reduction: Sequence[int], kept: Sequence[int]) -> Array:
    """Sum of constant integers over the reduction; axes in the order of `kept`."""
    assert side.array is not None
    loops = dims_in(side.index)
    axes = tuple(i for i, d in enumerate(loops) if d in reduction)
    # Bytes whose sum fits an i32 are summed up there, which is faster.
    is_small = side.array.dtype.itemsize == 1 and side.array.size < 1 << 22
    total = side.array.sum(axis=axes, dtype=np.int32 if is_small else np.int64).astype(np.int64)
    left = [d for d in loops if d not in reduction]
    return total.transpose([left.index(d) for d in kept]) if total.ndim else total
