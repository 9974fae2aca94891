# pyright: basic
"""The one place where qfuse meets MLIR's Python bindings.

Several bindings can live in one process (`torch_mlir.ir`, `iree.compiler.ir`, `mlir.ir`) and their objects do not
mix. `Bindings.of(module)` finds the one that owns a module; everything else in qfuse works through it, with the
generic operation API only, so that no other file names a binding.

MLIR objects are typed as `Any` aliases here: the wheels ship no complete stubs.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from qfuse.errors import InputError
from qfuse.indexing import Index, Linear, constant, dim, floordiv, mod, plus, times

Operation: TypeAlias = Any
Value: TypeAlias = Any
Type: TypeAlias = Any
Attribute: TypeAlias = Any
Block: TypeAlias = Any
Module: TypeAlias = Any

#: Packages that may hold MLIR bindings, in the order in which they are tried for parsing text.
PACKAGES = ("torch_mlir", "iree.compiler", "mlir")

_BLOB = re.compile(r'([\w.$-]+|"[^"]*"): "0x([0-9A-Fa-f]*)"')

_FILE_LOCATION = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')

#: Dynamic extents are `None` in qfuse.
Extents: TypeAlias = "tuple[int | None, ...]"

_NUMPY_DTYPES: dict[str, Any] = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "index": np.int64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


_UNREAD: Any = object()

#: Resources are read together up to so many elements in all, and a 32nd of that each.
_PREFETCHED_ELEMENTS = 1 << 23


class Bindings:
    """One MLIR Python package: its `ir` module and the few linalg utilities that qfuse needs."""

    def __init__(self, package: str) -> None:
        """Imports `package`.ir; raises ImportError when it is not installed."""
        self.package = package
        self.ir: Any = importlib.import_module(f"{package}.ir")
        self.linalg: Any = importlib.import_module(f"{package}.dialects.linalg")
        self._maps: dict[Any, Index] = {}
        self._types: dict[Any, str] = {}
        self._tensors: dict[Any, Any] = {}
        self._blobs: dict[str, str] = {}
        self._resource_keys: dict[Any, str | None] = {}
        self._integers: dict[Any, tuple[int, ...]] = {}

    @staticmethod
    def of(module_or_op: Any) -> Bindings:
        """The bindings that own `module_or_op` (a Module, Operation or OpView).

        Raises:
            InputError: the object is not of a known binding.
        """
        for cls in type(module_or_op).__mro__:
            for package in PACKAGES:
                if cls.__module__.startswith(package + "."):
                    return Bindings(package)
        raise InputError(
            f"expected an MLIR module or operation of one of {', '.join(PACKAGES)}, got {type(module_or_op).__name__}"
        )

    @staticmethod
    def first_available() -> Bindings:
        """The first installed binding of `PACKAGES`."""
        for package in PACKAGES:
            try:
                return Bindings(package)
            except ModuleNotFoundError as error:
                if error.name is None or not package.startswith(error.name.split(".")[0]):
                    raise
        raise InputError(f"no MLIR Python bindings found: install one of {', '.join(PACKAGES)}")

    # -- reading -----------------------------------------------------------------------------------------------

    def type_name(self, type_: Type) -> str:
        """The printed form of a type, cached (`f32`, `i8`, `tensor<4x8xi8>`)."""
        name = self._types.get(type_)
        if name is None:
            name = self._types[type_] = str(type_)
        return name

    def tensor_info(self, type_: Type) -> tuple[Extents, str] | None:
        """`(extents, printed element type)` of a ranked tensor type, or None for other types; cached."""
        found = self._tensors.get(type_, _UNREAD)
        if found is _UNREAD:
            shaped = self._downcast(type_)
            found = None
            if isinstance(shaped, self.ir.RankedTensorType):
                extents = tuple(None if shaped.is_dynamic_dim(i) else n for i, n in enumerate(shaped.shape))
                found = (extents, self.type_name(shaped.element_type))
            self._tensors[type_] = found
        return found

    def is_ranked_tensor(self, type_: Type) -> bool:
        """Whether `type_` is a ranked tensor type."""
        return self.tensor_info(type_) is not None

    def _downcast(self, type_: Type) -> Type:
        return type_.maybe_downcast() if type(type_) is self.ir.Type else type_

    def extents(self, type_: Type) -> Extents:
        """Shape of a ranked tensor type with `None` for dynamic extents."""
        info = self.tensor_info(type_)
        assert info is not None, f"{type_} is not a ranked tensor type"
        return info[0]

    def element_name(self, type_: Type) -> str:
        """Printed element type of a ranked tensor type."""
        info = self.tensor_info(type_)
        assert info is not None, f"{type_} is not a ranked tensor type"
        return info[1]

    def index_map(self, affine_map: Any) -> Index:
        """An affine map as a qfuse index (one `Linear` a result); raises ValueError for symbols and ceildiv."""
        found = self._maps.get(affine_map)
        if found is None:
            found = self._maps[affine_map] = tuple(self._linear(e) for e in affine_map.results)
        return found

    def _linear(self, expr: Any) -> Linear:
        ir = self.ir
        if isinstance(expr, ir.AffineDimExpr):
            return dim(expr.position)
        if isinstance(expr, ir.AffineConstantExpr):
            return constant(expr.value)
        if isinstance(expr, ir.AffineAddExpr):
            return plus(self._linear(expr.lhs), self._linear(expr.rhs))
        if isinstance(expr, ir.AffineMulExpr) and isinstance(expr.rhs, ir.AffineConstantExpr):
            return times(self._linear(expr.lhs), expr.rhs.value)
        if isinstance(expr, ir.AffineFloorDivExpr | ir.AffineModExpr):
            divisor = getattr(expr.rhs, "value", 0) if isinstance(expr.rhs, ir.AffineConstantExpr) else 0
            if divisor > 0:
                divide = floordiv if isinstance(expr, ir.AffineFloorDivExpr) else mod
                return divide(self._linear(expr.lhs), divisor, ())
        raise ValueError(f"unsupported affine expression {expr}")

    def integers(self, attribute: Attribute) -> tuple[int, ...]:
        """The numbers of a dense integer array attribute, cached."""
        found = self._integers.get(attribute)
        if found is None:
            found = self._integers[attribute] = tuple(attribute)
        return found

    def indexing_maps(self, op: Operation) -> list[Any]:
        """Affine maps of a linalg operation (empty when it is not one)."""
        maps = self.linalg.get_indexing_maps(op)
        return [] if maps is None else [getattr(m, "value", m) for m in maps]

    def location(self, op: Operation) -> str:
        """The source location as `file:line:column` (the first of a fused or nested one), else as printed."""
        text = str(op.location)
        found = _FILE_LOCATION.search(text)
        if found is not None:
            return ":".join(found.groups())
        return text[4:-1] if text.startswith("loc(") else text

    def dense(self, attribute: Attribute) -> np.ndarray[Any, Any] | None:
        """Values of an elements attribute, or None when they cannot be read (elided, unknown kind).

        Reads dense, splat and `dense_resource` attributes. Splats come as broadcast views (no copy). Integers are
        signed as stored; i4 comes as int8, bf16 as float32.
        """
        ir = self.ir
        if isinstance(attribute, ir.DenseElementsAttr):
            shape = tuple(attribute.type.shape)
            name = self.type_name(attribute.type.element_type)
            if name not in _NUMPY_DTYPES or name == "index":
                return _parse_dense_text(str(attribute), name, shape)
            if 0 in shape:
                return np.zeros(shape, _NUMPY_DTYPES[name])
            if attribute.is_splat and len(shape) > 0:
                return np.broadcast_to(np.array(attribute).reshape(-1)[:1].reshape((1,) * len(shape)), shape)
            return np.array(attribute)
        key = self._resource_key(attribute)
        return None if key is None else self._dense_resource(attribute, key)

    def prefetch(self, attributes: Sequence[Attribute]) -> None:
        """Reads small resource attributes together, so that `dense` need not print each by itself."""
        chosen: list[Attribute] = []
        left = _PREFETCHED_ELEMENTS
        for attribute in attributes:
            size = 1
            for extent in self.extents(attribute.type):
                size *= extent or 0
            if size > _PREFETCHED_ELEMENTS >> 5 or size > left or self._resource_key(attribute) == "__elided__":
                continue
            left -= size
            chosen.append(attribute)
        if chosen:
            self._blobs.update(self._printed_blobs(chosen))

    def is_resource(self, attribute: Attribute) -> bool:
        """Whether an attribute is a `dense_resource`."""
        return type(attribute) is self.ir.Attribute and self._resource_key(attribute) is not None

    def _resource_key(self, attribute: Attribute) -> str | None:
        found = self._resource_keys.get(attribute, _UNREAD)
        if found is _UNREAD:
            text = str(attribute)
            is_resource = text.startswith("dense_resource<")
            found = text[len("dense_resource<") : text.index(">")].strip('"') if is_resource else None
            self._resource_keys[attribute] = found
        return found

    def _printed_blobs(self, attributes: Sequence[Attribute]) -> dict[str, str]:
        # Resource blobs have no buffer interface in Python: print the attributes in a module of their own and read
        # the hexadecimal blobs behind it.
        ir = self.ir
        with attributes[0].context as context:
            holder = ir.Module.create(ir.Location.unknown(context))
            holder.operation.attributes["qfuse.read"] = ir.ArrayAttr.get(list(attributes))
            text = holder.operation.get_asm(enable_debug_info=False)
        section = text[text.rfind("dialect_resources") :]
        return {key.strip('"'): blob for key, blob in _BLOB.findall(section)}

    def _dense_resource(self, attribute: Attribute, key: str) -> np.ndarray[Any, Any] | None:
        blob = self._blobs.get(key)
        if blob is None:
            if key == "__elided__":
                return None
            blob = self._printed_blobs([attribute]).get(key)
            if blob is None:
                return None
        # The first four bytes are the alignment.
        return _decode(bytes.fromhex(blob)[4:], self.element_name(attribute.type), self.extents(attribute.type))

    # -- walking -----------------------------------------------------------------------------------------------

    def blocks(self, op: Operation) -> Iterator[Block]:
        """All blocks of `op` that hold top-level computation: function bodies and structured control flow.

        Bodies of linalg operations are not visited (they belong to their operation).
        """
        for region in op.regions:
            for block in _by_dominance(list(region.blocks)):
                yield block
                for inner in block.operations:
                    inner = inner.operation
                    if len(inner.regions) and not inner.name.startswith(("linalg.", "tensor.", "iree_linalg_ext.")):
                        yield from self.blocks(inner)

    # -- parsing -----------------------------------------------------------------------------------------------

    def parse_file(self, path: str, *, allow_unregistered: bool = True) -> Module:
        """Parses a file of text or bytecode.

        Raises:
            InputError: with the parser's first message.
        """
        return self._parse(lambda ctx: self.ir.Module.parseFile(path, ctx), path, allow_unregistered)

    def parse_source(self, source: str | bytes, name: str, *, allow_unregistered: bool = True) -> Module:
        """Parses a module from text or bytecode in memory; `name` is used in messages."""
        return self._parse(lambda ctx: self.ir.Module.parse(source, ctx), name, allow_unregistered)

    def _parse(self, parse: Callable[[Any], Module], name: str, allow_unregistered: bool) -> Module:
        context = self.ir.Context()
        context.allow_unregistered_dialects = allow_unregistered
        if self.package == "torch_mlir":
            importlib.import_module("torch_mlir.dialects.torch").register_dialect(context)
        try:
            return parse(context)
        except (self.ir.MLIRError, ValueError, RuntimeError) as error:
            raise InputError(_first_message(error, name)) from None

    def verify(self, op: Operation) -> None:
        """Verifies `op`; raises InputError with the first diagnostic."""
        try:
            op.verify()
        except (self.ir.MLIRError, ValueError, RuntimeError) as error:
            raise InputError(_first_message(error, "module")) from None


def _by_dominance(blocks: list[Block]) -> list[Block]:
    """Blocks of a region so that what dominates comes first: reverse postorder, unreachable blocks last."""
    if len(blocks) < 2:
        return blocks

    def targets(position: int) -> list[int]:
        operations = list(blocks[position].operations)
        successors = list(operations[-1].operation.successors) if operations else []
        return [next(i for i, b in enumerate(blocks) if b == s) for s in successors]

    seen, finished = {0}, list[int]()
    stack = [(0, iter(targets(0)))]
    while stack:
        position, rest = stack[-1]
        following = next((t for t in rest if t not in seen), None)
        if following is None:
            finished.append(position)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(targets(following))))
    order = finished[::-1] + [i for i in range(len(blocks)) if i not in seen]
    return [blocks[i] for i in order]


def _first_message(error: Exception, name: str) -> str:
    diagnostics = getattr(error, "error_diagnostics", None)
    if diagnostics:
        first = diagnostics[0]
        place = str(first.location)
        place = place[4:-1].replace('"', "") if place.startswith("loc(") else place
        message = first.message.strip().splitlines()[0].rstrip().removesuffix(", has")
        return f"{place if place != 'unknown' else name}: {message}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{name}: {lines[-1] if lines else 'not a valid MLIR module'}"


def _decode(blob: bytes, element: str, shape: Extents) -> np.ndarray[Any, Any] | None:
    if element == "bf16" and len(blob) % 2 == 0:
        raw = np.frombuffer(blob, np.uint16).astype(np.uint32) << 16
        values: np.ndarray[Any, Any] = raw.view(np.float32)
    elif element in ("i2", "i4"):
        values = _sign_extend(np.frombuffer(blob, np.uint8), int(element[1:]))
    elif element == "i1":
        return None
    elif element in _NUMPY_DTYPES and len(blob) % np.dtype(_NUMPY_DTYPES[element]).itemsize == 0:
        values = np.frombuffer(blob, _NUMPY_DTYPES[element])
    else:
        return None
    sizes = [extent or 0 for extent in shape]
    count = math.prod(sizes)
    if values.size == 1 and count != 1:
        return np.broadcast_to(values.reshape((1,) * len(sizes)), sizes)
    return values.reshape(sizes) if values.size == count else None


def _sign_extend(raw: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    shift = np.uint8(8 - bits)
    return (raw << shift).astype(np.uint8).view(np.int8) >> shift.astype(np.int8)


def _parse_dense_text(text: str, element: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any] | None:
    """Element types without a buffer interface (i4, bf16, index): read the printed form."""
    is_integer = element == "index" or (element[0] == "i" and element[1:].isdigit() and int(element[1:]) <= 64)
    if element != "bf16" and not is_integer:
        return None
    body = text[text.index("<") + 1 : text.rindex(">", 0, text.rindex(":"))]
    if body.startswith('"0x'):
        return _decode(bytes.fromhex(body[3:-1]), element, shape)
    tokens = body.replace("[", " ").replace("]", " ").replace(",", " ").split()
    if element == "bf16":
        array = nearest_bf16(np.array([_float_token(token) for token in tokens], np.float32))
    else:
        is_small = element != "index" and int(element[1:]) <= 8
        array = np.array([int(token) for token in tokens], np.int8 if is_small else np.int64)
    return np.broadcast_to(array.reshape((1,) * len(shape)), shape) if array.size == 1 else array.reshape(shape)


def _float_token(token: str) -> float:
    if not token.startswith("0x"):
        return float(token)
    return float((np.array([int(token, 16)], np.uint32) << 16).view(np.float32)[0])


def nearest_bf16(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The nearest bf16 numbers (ties to even), as f32: numpy has no bf16."""
    values = np.asarray(array, np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(values), rounded.view(np.float32), values)


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
        kinds = {"p": "#linalg.iterator_type<parallel>", "r": "#linalg.iterator_type<reduction>"}
        attributes = {
            "indexing_maps": self.attribute("[" + ", ".join(maps) + "]"),
            "iterator_types": self.attribute("[" + ", ".join(kinds[i] for i in iterators) + "]"),
            "operandSegmentSizes": self.attribute(f"array<i32: {len(inputs)}, 1>"),
        }
        op = self.create("linalg.generic", [init.type], [*inputs, init], attributes, regions=1)
        arguments = [self._element(v) for v in (*inputs, init)]
        block = op.regions[0].blocks.append(*arguments, arg_locs=[self.location] * len(arguments))
        self.fill(block, "linalg.yield", body)
        return op.results[0]

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


_MLIR_NAMES = {
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "float16": "f16", "float32": "f32", "float64": "f64",
}  # fmt: skip
