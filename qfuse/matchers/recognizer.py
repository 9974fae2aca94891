"""Turns operations of a module into typed nodes, one at a time, without changing anything."""

from __future__ import annotations

from qfuse._mlir import Bindings, Operation, Value
from qfuse.indexing import Extents, Linear, constant, identity, is_identity, plus, times
from qfuse.matchers.constants import ConstantReader
from qfuse.matchers.contraction import match_reduction
from qfuse.matchers.layout import Layout, match_layout
from qfuse.matchers.named import match_named
from qfuse.matchers.nodes import (
    Contradiction,
    Dequantize,
    Elementwise,
    FakeQuantize,
    LayoutNode,
    Node,
    Opaque,
    Quantize,
)
from qfuse.matchers.quantization import QuantizationMatcher, Quantized
from qfuse.matchers.reader import ScalarReader
from qfuse.matchers.roles import ContradictionError
from qfuse.matchers.scalar import Scalar
from qfuse.matchers.structure import View
from qfuse.matchers.tosa import match_tosa

#: Operations that create or describe tensors and compute nothing.
_SILENT = (
    "tensor.empty", "linalg.fill", "arith.constant", "tensor.dim", "tensor.from_elements", "tensor.splat",
    "tosa.const", "tosa.const_shape",
)  # fmt: skip


class Recognizer:
    """Reads operations of one module; expressions and constants are kept between calls."""

    def __init__(self, bindings: Bindings) -> None:
        """A recognizer for modules of `bindings`."""
        self.bindings = bindings
        self.constants = ConstantReader(bindings)
        self.reader = ScalarReader(bindings, self.constants)
        self.quantization = QuantizationMatcher(self.reader)

    def node(self, op: Operation) -> Node | None:
        """The node of `op`, or None for operations that are of no interest (no tensor result, constants, ...)."""
        name = op.name
        if name in _SILENT or not len(op.results):
            return None
        result = op.results[0]
        if not self.bindings.is_ranked_tensor(result.type):
            reads = any(self.bindings.is_ranked_tensor(v.type) for v in op.operands)
            return Opaque(op, result, op.name) if reads else None
        if name != "linalg.generic":  # a generic is what its body says
            try:
                named = match_named(self.bindings, self.constants, op)
            except ContradictionError as error:
                return Contradiction(op, result, str(error))
            if named is not None:
                return named
            layout = match_layout(self.bindings, op)
            if layout is not None:
                return LayoutNode(op, result, layout)
            found = match_tosa(self.bindings, op)
            if found is not None:
                return found
        view = self.reader.view(op)
        if view is None:
            return Opaque(op, result, _called(op))
        if view.structure.reduction:
            return match_reduction(self.reader, view)
        return self._elementwise(op, result, view)

    def _elementwise(self, op: Operation, result: Value, view: View) -> Node:
        templates = view.structure.results
        template = None if templates is None or len(templates) != 1 else templates[0]
        if template is None:
            return Opaque(op, result, "elementwise")
        extents = self.bindings.extents(result.type)
        if template.op in ("elem", "opaque"):
            layout = _copied(op, self.reader.applied(template, view), extents)
            if layout is not None:
                return LayoutNode(op, result, layout)
        matcher = self.quantization
        try:
            if template.type.startswith(("f", "bf")):
                stored = matcher.dequantize_of(view, template, extents)
                if stored is not None:
                    return Dequantize(op, result, stored.storage, stored.index, stored.params, repaired=stored.repaired)
                fake = matcher.fake_quantize_of(view, template, extents)
                if fake is not None:
                    return FakeQuantize(op, result, fake.input, fake.params)
            else:
                if op.name == "tosa.cast":
                    matcher.unsigned.survey(op)
                found = matcher.quantize_of(view, template, extents)
                if found is not None:
                    matcher.unsigned.of_quantize[result] = not found.params.storage.signed
                    return _quantize(op, result, found)
        except ContradictionError as error:
            return Contradiction(op, result, str(error))
        return Elementwise(op, result, self.reader.applied(template, view))


def _quantize(op: Operation, result: Value, found: Quantized) -> Quantize:
    return Quantize(
        op, result, found.input, found.params, found.reciprocal, found.zero_point_first, found.repaired
    )  # fmt: skip


def _called(op: Operation) -> str:
    """What an operation that is not understood is called; a custom one by its own name."""
    return f"tosa.custom {op.attributes['operator_name'].value}" if op.name == "tosa.custom" else op.name


def _copied(op: Operation, scalar: Scalar, extents: Extents) -> Layout | None:
    """A body that only copies or gathers elements of one tensor."""
    if scalar.op != "elem":
        return _gathered(op, scalar)
    value, index = scalar.payload
    inverse = identity(len(extents)) if is_identity(index, extents) else None
    return Layout("broadcast", op, (value,), index, inverse)


def _gathered(op: Operation, scalar: Scalar) -> Layout | None:
    """A body that only computes indices and extracts one element of one tensor is a gather."""
    if scalar.op != "opaque" or scalar.payload != "tensor.extract":
        return None
    places = [_linear(a) for a in scalar.args[1:]]
    index = None if None in places else tuple(p for p in places if p is not None)
    for inner in op.regions[0].blocks[0].operations:
        inner = inner.operation
        if inner.name == "tensor.extract" and inner.results[0] == _yielded(op):
            return Layout("gather", op, (inner.operands[0],), index)
    return None


def _linear(scalar: Scalar) -> Linear | None:
    """An index expression as a linear one, or None."""
    if scalar.op == "index":
        return scalar.payload
    if scalar.op == "const":
        return constant(int(scalar.payload))
    args = [_linear(a) for a in scalar.args]
    first, second = [*args, None, None][:2]
    if first is None:
        return None
    if scalar.op in ("index_cast", "extsi") and len(args) == 1:
        return first
    if second is None:
        return None
    if scalar.op in ("addi", "subi"):
        return plus(first, times(second, 1 if scalar.op == "addi" else -1))
    if scalar.op == "muli" and not second.terms:
        return times(first, second.const)
    return None


def _yielded(op: Operation) -> Value:
    return list(op.regions[0].blocks[0].operations)[-1].operation.operands[0]
