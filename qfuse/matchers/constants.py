"""Reads constant tensors: dense, splat and resource attributes, also through layout operations on constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from qfuse._mlir import Attribute, Bindings, Operation, Value

Array = np.ndarray[Any, Any]

_CONSTANTS = ("arith.constant", "tosa.const")
#: Where the permutation of a transposition stands.
_PERMUTATION = {"linalg.transpose": "permutation", "tosa.transpose": "perms"}
#: Operations whose result has the elements of their first operand in the same order.
_SAME_ORDER = ("tensor.collapse_shape", "tensor.expand_shape", "tensor.cast", "tosa.reshape", "tosa.identity")


class ConstantReader:
    """Values of SSA constants, read once and kept for one run.

    A splat stays a broadcast view, so reading a large uniform constant costs nothing.
    """

    def __init__(self, bindings: Bindings) -> None:
        """A reader for modules of `bindings`."""
        self._bindings = bindings
        self._arrays: dict[Value, Array | None] = {}
        self._numeric = (bindings.ir.IntegerAttr, bindings.ir.BoolAttr, bindings.ir.FloatAttr)
        #: Computes values that are not constants themselves but made of constants; set by the expression reader.
        self.compute: Callable[[Value], Array | None] | None = None

    def prefetch(self, operations: Iterable[Operation]) -> None:
        """Reads the small resource constants among `operations` together."""
        attributes = [self._attribute(op) for op in operations if op.name in _CONSTANTS]
        self._bindings.prefetch([a for a in attributes if a is not None and self._bindings.is_resource(a)])

    def scalar(self, value: Value) -> tuple[Any, str] | None:
        """`(number, printed type)` of a scalar constant, or of the element of a `tosa.const` of one; else None."""
        op = getattr(value.owner, "operation", None)
        if op is None or op.name not in _CONSTANTS:
            return None
        if op.name == "tosa.const":
            return self._element(value)
        attribute = op.attributes["value"]
        if isinstance(attribute, self._numeric):
            return attribute.value, self._bindings.type_name(value.type)
        return None

    def _element(self, value: Value) -> tuple[Any, str] | None:
        info = self._bindings.tensor_info(value.type)
        if info is None or any(n != 1 for n in info[0]):
            return None
        array = self.read(value)
        return None if array is None or not array.size else (array.reshape(-1)[0].item(), info[1])

    def read(self, value: Value) -> Array | None:
        """Values of a constant tensor (or of a layout operation on one), or None.

        Integers are signed as stored; the caller reinterprets unsigned storage.
        """
        if value not in self._arrays:
            self._arrays[value] = self._read(value)
        return self._arrays[value]

    def _attribute(self, op: Operation) -> Attribute | None:
        """The values of a constant, or None for complex numbers, which the bindings cannot hand out."""
        type_ = op.results[0].type
        if self._bindings.is_ranked_tensor(type_) and self._bindings.element_name(type_).startswith("complex<"):
            return None
        return op.attributes["value" if op.name == "arith.constant" else "values"]

    def value(self, value: Value) -> Array | None:
        """Values of a constant, or of arithmetic on constants, or None."""
        array = self.read(value)
        return self.compute(value) if array is None and self.compute is not None else array

    def _read(self, value: Value) -> Array | None:
        owner = value.owner
        op = getattr(owner, "operation", None)
        if op is None:
            return None
        if op.name in _CONSTANTS:
            attribute = self._attribute(op)
            return None if attribute is None else self._bindings.dense(attribute)
        if op.name in _PERMUTATION:
            source = self.read(op.operands[0])
            return None if source is None else source.transpose(list(op.attributes[_PERMUTATION[op.name]]))
        if op.name in _SAME_ORDER:
            source = self.read(op.operands[0])
            extents = self._bindings.extents(op.results[0].type)
            return None if source is None or None in extents else source.reshape([n or 0 for n in extents])
        return None
