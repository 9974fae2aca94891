# pyright: basic
"""Creation of operations through the bindings, remembered so that it can be undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from qfuse._mlir import Attribute, Bindings, Block, Extents, Operation, Type, Value

_MLIR_NAMES = {
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "float16": "f16", "float32": "f32", "float64": "f64",
}  # fmt: skip


class Builder:
    """Creates operations at one insertion point and remembers them, so that a failed build can be undone."""

    def __init__(self, bindings: Bindings, context: Any) -> None:
        """A builder for modules of `context`."""
        self.bindings = bindings
        self.ir = bindings.ir
        self.context = context
        self.created: list[Operation] = []
        self.location: Any = None
        self._point: Any = None
        self._block: Any = None
        self._attributes: dict[str, Attribute] = {}
        self._cached_types: dict[str, Type] = {}

    def before(self, op: Operation) -> None:
        """Inserts before `op`, with its location, from now on."""
        self._point = self.ir.InsertionPoint(op)
        self._block = op.block
        self.location = op.location

    @contextmanager
    def behind(self, value: Value) -> Iterator[None]:
        """Inserts right behind what defines `value` inside a `with`."""
        before = self._point, self.location
        op = getattr(value.owner, "operation", None)
        if op is None:
            self._point = self.ir.InsertionPoint.at_block_begin(value.owner)
        else:
            self._point, self.location = self.ir.InsertionPoint.after(op), op.location
        try:
            yield
        finally:
            self._point, self.location = before

    @contextmanager
    def at_start(self) -> Iterator[Block]:
        """Inserts at the start of the current block, which is handed out, inside a `with`."""
        before = self._point
        self._point = self.ir.InsertionPoint.at_block_begin(self._block)
        try:
            yield self._block
        finally:
            self._point = before

    @contextmanager
    def inside(self, block: Block) -> Iterator[None]:
        """Inserts at the end of `block` inside a `with`."""
        before = self._point
        self._point = self.ir.InsertionPoint(block)
        try:
            yield
        finally:
            self._point = before

    def type(self, text: str) -> Type:
        """A type from its printed form, cached."""
        found = self._cached_types.get(text)
        if found is None:
            found = self._cached_types[text] = self.ir.Type.parse(text, self.context)
        return found

    def attribute(self, text: str) -> Attribute:
        """An attribute from its printed form, cached."""
        found = self._attributes.get(text)
        if found is None:
            found = self._attributes[text] = self.ir.Attribute.parse(text, self.context)
        return found

    def number(self, number: float, element: str) -> Attribute:
        """The nearest number of printed type `element` (an integer type, f32 or f64) as an attribute."""
        if element[0] != "f":
            return self.attribute(f"{int(number)} : {element}")
        if number != number:
            return self.attribute("0x7FC00000 : f32" if element == "f32" else "0x7FF8000000000000 : f64")
        value = float(np.asarray(number, np.float32)) if element == "f32" else float(number)
        return self.ir.FloatAttr.get(self.type(element), value, loc=self.location)

    def tensor(self, extents: Extents, element: str) -> Type:
        """The ranked tensor type with these extents (`None` is dynamic)."""
        dims = "".join("?x" if n is None else f"{n}x" for n in extents)
        return self.type(f"tensor<{dims}{element}>")

    def create(
        self,
        name: str,
        results: Sequence[Type] = (),
        operands: Sequence[Value] = (),
        attributes: Mapping[str, Attribute] | None = None,
        regions: int = 0,
    ) -> Operation:
        """Creates an operation by its name."""
        op = self.ir.Operation.create(
            name,
            results=list(results),
            operands=list(operands),
            attributes=dict(attributes) if attributes else None,
            regions=regions,
            loc=self.location,
            ip=self._point,
        )
        self.created.append(op)
        return op

    def clone(self, op: Operation) -> Operation:
        """A copy of `op` at the insertion point."""
        copy = op.clone(self._point)
        self.created.append(copy.operation)
        return copy.operation

    def named_linalg(
        self, name: str, operands: Sequence[Value], inputs: int, result: Type, attributes: Mapping[str, Attribute]
    ) -> Value:
        """A named linalg operation; its region is filled by the bindings."""
        segments = self.attribute(f"array<i32: {inputs}, {len(operands) - inputs}>")
        op = self.create(name, [result], operands, {**attributes, "operandSegmentSizes": segments}, regions=1)
        with self.context, self.location:
            self.bindings.linalg.fill_builtin_region(op)
        return op.results[0]

    def transpose(self, value: Value, init: Value, permutation: Sequence[int]) -> Value:
        """A `linalg.transpose` of `value` into `init`."""
        attributes = {"permutation": self.attribute(f"array<i64: {', '.join(map(str, permutation))}>")}
        op = self.create("linalg.transpose", [init.type], [value, init], attributes, regions=1)
        with self.context, self.location:
            self.bindings.linalg.fill_builtin_region(op)
        return op.results[0]

    def transposed(self, value: Value, permutation: Sequence[int]) -> Value:
        """`value`, of static shape, with its dimensions in another order; itself where the order is the same."""
        if list(permutation) == sorted(permutation):
            return value
        extents = self.bindings.extents(value.type)
        element = self.bindings.element_name(value.type)
        return self.transpose(value, self.empty(None, tuple(extents[i] for i in permutation), element), permutation)

    def pad(self, value: Value, low: Sequence[int], high: Sequence[int], fill: str) -> Value:
        """A `tensor.pad` by static amounts with a constant, given as printed (`-3 : i8`)."""
        extents = [
            None if n is None else n + a + b
            for n, a, b in zip(self.bindings.extents(value.type), low, high, strict=True)
        ]
        attributes = {
            "static_low": self.attribute(f"array<i64: {', '.join(map(str, low))}>"),
            "static_high": self.attribute(f"array<i64: {', '.join(map(str, high))}>"),
            "operandSegmentSizes": self.attribute("array<i32: 1, 0, 0>"),
        }
        type_ = self.tensor(tuple(extents), self.bindings.element_name(value.type))
        constant = self.constant(fill)
        op = self.create("tensor.pad", [type_], [value], attributes, regions=1)
        indices = [self.type("index")] * len(extents)
        block = op.regions[0].blocks.append(*indices, arg_locs=[self.location] * len(indices))
        self.fill(block, "tensor.yield", lambda *_: constant)
        return op.results[0]

    def generic(
        self,
        inputs: Sequence[Value],
        init: Value,
        maps: Sequence[str],
        iterators: str,
        body: Callable[[Body, Sequence[Value]], Value],
    ) -> Value:
        """A `linalg.generic` with one result.

        Args:
            inputs: the `ins` operands (tensors or scalars).
            init: the `outs` operand.
            maps: one printed affine map an operand.
            iterators: one letter a loop, `p` for parallel and `r` for reduction.
            body: called with a body builder and the block arguments (the last is `init`'s); returns what to yield.
        """
        return self.generics(inputs, [init], maps, iterators, lambda inner, args: [body(inner, args)])[0]

    def generics(
        self,
        inputs: Sequence[Value],
        inits: Sequence[Value],
        maps: Sequence[str],
        iterators: str,
        body: Callable[[Body, Sequence[Value]], Sequence[Value]],
    ) -> Sequence[Value]:
        """A `linalg.generic` with a result for each of `inits`; else as `generic`."""
        kinds = {"p": "#linalg.iterator_type<parallel>", "r": "#linalg.iterator_type<reduction>"}
        attributes = {
            "indexing_maps": self.attribute("[" + ", ".join(maps) + "]"),
            "iterator_types": self.attribute("[" + ", ".join(kinds[i] for i in iterators) + "]"),
            "operandSegmentSizes": self.attribute(f"array<i32: {len(inputs)}, {len(inits)}>"),
        }
        op = self.create("linalg.generic", [v.type for v in inits], [*inputs, *inits], attributes, regions=1)
        arguments = [self._element(v) for v in (*inputs, *inits)]
        block = op.regions[0].blocks.append(*arguments, arg_locs=[self.location] * len(arguments))
        inner = Body(self, self.ir.InsertionPoint(block))
        inner.create("linalg.yield", (), body(inner, list(block.arguments)))
        return list(op.results)

    def fill(self, block: Block, terminator: str, body: Callable[[Body, Sequence[Value]], Value]) -> None:
        """Fills an empty block by `body` and ends it with `terminator` of what `body` returns."""
        inner = Body(self, self.ir.InsertionPoint(block))
        result = body(inner, list(block.arguments))
        inner.create(terminator, (), [result])

    def _element(self, value: Value) -> Type:
        info = self.bindings.tensor_info(value.type)
        return value.type if info is None else self.type(info[1])

    def op(self, name: str, type_: str, *operands: Value) -> Value:
        """The result of a one-result operation of printed result type `type_`."""
        return self.create(name, [self.type(type_)], operands).results[0]

    def constant(self, text: str) -> Value:
        """An `arith.constant` from its attribute's printed form (`0 : i32`, `1.0 : f32`)."""
        attribute = self.attribute(text)
        return self.create("arith.constant", [attribute.type], (), {"value": attribute}).results[0]

    def dense_constant(self, array: np.ndarray[Any, Any]) -> Value:
        """An `arith.constant` tensor that holds `array` (int8/16/32/64 or float16/32/64)."""
        attribute = self.elements(array)
        return self.create("arith.constant", [attribute.type], (), {"value": attribute}).results[0]

    def elements(self, array: np.ndarray[Any, Any]) -> Attribute:
        """The elements attribute that holds `array` (int8/16/32/64 or float16/32/64)."""
        if not (array.size and array.flat[0] == array.flat[-1] and np.all(array == array.reshape(-1)[0])):
            return self.ir.DenseElementsAttr.get(np.ascontiguousarray(array), context=self.context)
        element = self.type(_MLIR_NAMES[array.dtype.name])
        type_ = self.ir.RankedTensorType.get(array.shape, element, loc=self.location)
        scalar = array.reshape(-1)[0].item()
        make = self.ir.FloatAttr.get if array.dtype.kind == "f" else self.ir.IntegerAttr.get
        with self.context, self.location:
            return self.ir.DenseElementsAttr.get_splat(type_, make(element, scalar))

    def empty(self, like: Value | None, extents: Extents, element: str, sizes: Sequence[Value] = ()) -> Value:
        """A `tensor.empty`; dynamic extents come from `sizes`, or from `like` when it has the same shape."""
        if not sizes and like is not None:
            sizes = [self.dim(like, i) for i, n in enumerate(extents) if n is None]
        return self.create("tensor.empty", [self.tensor(extents, element)], sizes).results[0]

    def dim(self, value: Value, position: int) -> Value:
        """A `tensor.dim` of `value`."""
        index = self.constant(f"{position} : index")
        return self.create("tensor.dim", [self.type("index")], [value, index]).results[0]

    def fill_tensor(self, value: Value, init: Value) -> Value:
        """A `linalg.fill` of `init` by the scalar `value`."""
        return self.named_linalg("linalg.fill", [value, init], 1, init.type, {})

    def undo(self) -> None:
        """Erases everything that was created, latest first."""
        for op in reversed(self.created):
            op.erase()
        self.created.clear()


class Body:
    """Creates scalar operations inside the body of an operation."""

    def __init__(self, builder: Builder, point: Any) -> None:
        """A body builder at `point`; constants are created in the body itself."""
        self._builder = builder
        self._point = point
        self._create = builder.ir.Operation.create

    def create(
        self, name: str, results: Sequence[Type], operands: Sequence[Value], attributes: Any = None
    ) -> Operation:
        """Creates an operation by its name (not remembered: it dies with its parent)."""
        return self._create(
            name,
            results=results if type(results) is list else list(results),
            operands=operands if type(operands) is list else list(operands),
            attributes=attributes,
            loc=self._builder.location,
            ip=self._point,
        )

    def op(self, name: str, type_: str, *operands: Value) -> Value:
        """The result of a one-result operation of printed result type `type_`."""
        return self.create(name, [self._builder.type(type_)], operands).results[0]

    def is_less(self, a: Value, b: Value) -> Value:
        """Whether the float `a` is less than `b`; no for NaN."""
        below = {"predicate": self._builder.attribute("4 : i64")}
        return self.create("arith.cmpf", [self._builder.type("i1")], [a, b], below).results[0]

    def index(self, loop: int) -> Value:
        """The place in a loop of a `linalg.generic`."""
        how = {"dim": self._builder.attribute(f"{loop} : i64")}
        return self.create("linalg.index", [self._builder.type("index")], [], how).results[0]

    def compare(self, name: str, predicate: int, a: Value, b: Value) -> Value:
        """`arith.cmpf` or `arith.cmpi` of this predicate number."""
        how = {"predicate": self._builder.attribute(f"{predicate} : i64")}
        return self.create(name, [self._builder.type("i1")], [a, b], how).results[0]

    def constant(self, text: str) -> Value:
        """A scalar `arith.constant` from its attribute's printed form."""
        return self._literal(self._builder.attribute(text))

    def number(self, number: float, element: str) -> Value:
        """A scalar `arith.constant` of a number and a printed type."""
        return self._literal(self._builder.number(number, element))

    def _literal(self, attribute: Attribute) -> Value:
        return self.create("arith.constant", [attribute.type], (), {"value": attribute}).results[0]
