"""What operations compute and move: multiply-accumulates, elements, bytes through memory. Numbers only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from qfuse._mlir import Bindings, Extents, Operation, Type, Value

#: Operations whose operands and results are not read and written as they stand.
FREE = (
    "tensor.empty", "tensor.dim", "tensor.cast", "tensor.expand_shape", "tensor.collapse_shape", "arith.constant",
    "tosa.const", "tosa.const_shape", "tosa.reshape", "tosa.identity", "quant.scast",
)  # fmt: skip
#: Dialects of operations on tensors.
DIALECTS = ("linalg.", "tensor.", "tosa.", "iree_linalg_ext.", "quant.")
#: What `Workload.kind` can be.
KINDS = (
    "contraction", "convolution", "sum", "max", "min", "elementwise", "layout", "quantize", "dequantize", "requantize",
    "rescale", "lookup", "concat", "other",
)  # fmt: skip

_ELEMENT = re.compile(r"(?:i|si|ui|f|bf|!quant\.uniform<[iu])(\d+)(?![\dE])")


@dataclass(frozen=True)
class Workload:
    """What one operation computes and moves. What depends on a dynamic extent is None, never 0.

    Attributes:
        kind: `contraction`, `convolution`, `sum`, `max`, `min`, `elementwise`, `layout`, `quantize`, `dequantize`,
            `requantize`, `rescale`, `lookup`, `concat`, or `other`; a key of `Target.costs`.
        integer: whether it reads stored integers or accumulators, planned by a fusion; else it is the module's own.
        fusion: id of the fusion that builds it, or empty. Also a key of `Target.costs`, looked up first.
        compute: what it computes in, as a key of `Target.throughput` (`s8xs8`, `f32`); empty when it only moves.
        operations: multiply-accumulates of a contraction, else elements times operations an element.
        reads: for each tensor that is read its printed type and bytes.
        writes: the same for each tensor that is written.
    """

    kind: str
    integer: bool
    fusion: str
    compute: str
    operations: int | None
    reads: tuple[tuple[str, int | None], ...]
    writes: tuple[tuple[str, int | None], ...]

    @property
    def bytes_moved(self) -> int | None:
        """Bytes read and written; each operand once."""
        total = 0
        for _, size in (*self.reads, *self.writes):
            if size is None:
                return None
            total += size
        return total

    @property
    def reuse(self) -> float | None:
        """Operations a byte (arithmetic intensity)."""
        moved = self.bytes_moved
        return None if not moved or self.operations is None else self.operations / moved


@lru_cache(maxsize=1 << 12)
def element_bits(element: str) -> int | None:
    """Width of a printed integer, float or quantized type, None for any other."""
    found = _ELEMENT.match(element)
    return None if found is None else int(found[1])


@lru_cache(maxsize=1 << 12)
def size_in_bytes(extents: Extents, bits: int | None) -> int | None:
    """Bytes of a tensor, None when an extent or the width is not known."""
    if bits is None:
        return None
    elements = count(extents)
    return None if elements is None else (elements * bits + 7) // 8


@lru_cache(maxsize=1 << 12)
def count(extents: Extents) -> int | None:
    """Elements of a tensor, None when an extent is not known."""
    total = 1
    for extent in extents:
        if extent is None:
            return None
        total *= extent
    return total


def type_bytes(bindings: Bindings, type_: Type) -> int | None:
    """Bytes of a ranked tensor type, 0 for what is no tensor, None when an extent or the element is not known."""
    info = bindings.tensor_info(type_)
    return 0 if info is None else size_in_bytes(info[0], element_bits(info[1]))


def value_bytes(bindings: Bindings, value: Value) -> int | None:
    """Bytes of a tensor of known shape, 0 for what is no tensor, None when an extent or the element is not known."""
    return type_bytes(bindings, value.type)


def tensors_read(op: Operation) -> list[Value]:
    """Operands of an operation without those that a linalg operation writes its results into."""
    operands = list(op.operands)
    return operands[: len(operands) - len(op.results)] if op.name.startswith("linalg.") else operands


def bytes_moved(bindings: Bindings, operations: Iterable[Operation]) -> int | None:
    """Bytes that tensor operations read and write, each operand and result once; None when a shape is dynamic.

    An upper bound of the traffic: nothing is assumed to stay in a cache or to be fused by a later compiler.
    """
    total = 0
    for op in operations:
        if op.name in FREE or not op.name.startswith(DIALECTS):
            continue
        for value in (*tensors_read(op), *op.results):
            size = value_bytes(bindings, value)
            if size is None:
                return None
            total += size
    return total
