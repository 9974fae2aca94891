"""What a function moves and multiplies: bytes through memory, multiply-accumulates. Numbers only."""

from __future__ import annotations

from collections.abc import Iterable

from qfuse._mlir import Bindings, Operation, Value

#: Operations whose operands and results are not read and written as they stand.
_FREE = ("tensor.empty", "tensor.dim", "tensor.cast", "tensor.expand_shape", "tensor.collapse_shape", "arith.constant")


def value_bytes(bindings: Bindings, value: Value) -> int | None:
    """Bytes of a tensor of known shape, 0 for what is no tensor, None when an extent or the element is not known."""
    info = bindings.tensor_info(value.type)
    if info is None:
        return 0
    extents, element = info
    digits = element.lstrip("bfi")
    if not digits.isdigit() or None in extents:
        return None
    count = 1
    for extent in extents:
        count *= extent or 0
    return (count * int(digits) + 7) // 8


def bytes_moved(bindings: Bindings, operations: Iterable[Operation]) -> int | None:
    """Bytes that tensor operations read and write, each operand and result once; None when a shape is dynamic.

    An upper bound of the traffic: nothing is assumed to stay in a cache or to be fused by a later compiler.
    """
    total = 0
    for op in operations:
        if op.name in _FREE or not op.name.startswith(("linalg.", "tensor.", "iree_linalg_ext.", "quant.")):
            continue
        results = list(op.results)
        inputs = list(op.operands)
        if op.name.startswith("linalg."):
            inputs = inputs[: len(inputs) - len(results)]
        for value in (*inputs, *results):
            size = value_bytes(bindings, value)
            if size is None:
                return None
            total += size
    return total
