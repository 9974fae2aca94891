"""Layout operations repeated on tensors of another element type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qfuse._mlir import Value
from qfuse.emit.casts import Casts
from qfuse.emit.reshape import reshape
from qfuse.indexing import Index, affine_map, as_dim, dim, identity
from qfuse.matchers.layout import Layout
from qfuse.qparams import Param
from qfuse.regrouping import Regrouping


class Moves(Casts):
    """The part of an emitter that moves integers."""

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

    def regroup(self, value: Value, found: Regrouping) -> Value:
        """A tensor transposed and reshaped."""
        own = self.builder.bindings.extents(value.type)
        if found.order != tuple(range(len(own))):
            places = tuple(dim(found.order.index(i)) for i in range(len(own)))
            value = self.copy(value, places, [own[i] for i in found.order])
        return reshape(self.builder, value, found.extents)

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


def _wrapped(value: int, element: str) -> int:
    bits = int(element[1:])
    return value - (1 << bits) if value >= 1 << (bits - 1) else value
