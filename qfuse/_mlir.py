# pyright: basic
"""The one place where qfuse meets MLIR's Python bindings.

Several bindings can live in one process (`torch_mlir.ir`, `iree.compiler.ir`, `mlir.ir`) and their objects do not
mix. `Bindings.of(module)` finds the one that owns a module; everything else in qfuse works through it, with the
generic operation API only, so that no other file names a binding.

MLIR objects are typed as `Any` aliases here: the wheels ship no complete stubs.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from qfuse._elements import NUMPY_DTYPES, decode, parse_dense_text
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

_FILE_LOCATION = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')

#: Dynamic extents are `None` in qfuse.
Extents: TypeAlias = "tuple[int | None, ...]"
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
            if name not in NUMPY_DTYPES or name == "index":
                return parse_dense_text(str(attribute), name, shape)
            if 0 in shape:
                return np.zeros(shape, NUMPY_DTYPES[name])
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
        # `key: "0x..."` or `"key": "0x..."`
        parts = text[text.rfind("dialect_resources") :].split('"')
        found: dict[str, str] = {}
        for quoted in range(1, len(parts) - 1, 2):
            if parts[quoted].startswith("0x") and not parts[quoted + 1].startswith(":"):
                before = parts[quoted - 1].rstrip().removesuffix(":")
                found[before.split()[-1] if before else parts[quoted - 2]] = parts[quoted][2:]
        return found

    def _dense_resource(self, attribute: Attribute, key: str) -> np.ndarray[Any, Any] | None:
        blob = self._blobs.get(key)
        if blob is None:
            if key == "__elided__":
                return None
            blob = self._printed_blobs([attribute]).get(key)
            if blob is None:
                return None
        # The first four bytes are the alignment.
        return decode(bytes.fromhex(blob)[4:], self.element_name(attribute.type), self.extents(attribute.type))

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
