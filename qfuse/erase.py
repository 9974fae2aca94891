"""Erases operations that nothing uses any more."""

from __future__ import annotations

from qfuse._mlir import Operation, Value
from qfuse.matchers.named import MARK
from qfuse.matchers.reader import ScalarReader


def erase(roots: list[Value], reader: ScalarReader) -> None:
    """Erases the producers of `roots` and then what these used, as far as nothing else uses it."""
    # Python objects of values do not own what they name, so what was erased is remembered by hash (the address). The
    # hash of an operation would not do: it is structural.
    pending = list(roots)
    erased: set[int] = set()
    while pending:
        value = pending.pop()
        if hash(value) in erased or next(iter(value.uses), None) is not None:
            continue
        op = getattr(value.owner, "operation", None)
        if op is None:
            continue
        results = list(op.results)
        if len(results) > 1 and any(next(iter(r.uses), None) is not None for r in results):
            continue
        inputs = _inputs_if_pure(op, reader)
        if inputs is None:
            continue
        erased.update(map(hash, results))
        op.erase()
        pending += inputs


#: Operations whose bodies are the same for all and use nothing from outside.
_CAPTURE_NOTHING = ("linalg.fill", "linalg.transpose", "linalg.broadcast", "linalg.matmul", "linalg.batch_matmul")


def _inputs_if_pure(op: Operation, reader: ScalarReader) -> list[Value] | None:
    """Values from outside that `op` and its body use, or None when it must stay even if unused."""
    if MARK in op.attributes:
        return list(op.operands)
    if not op.name.startswith(("linalg.", "tensor.", "arith.", "math.", "quant.", "iree_linalg_ext.", "tosa.")):
        return None
    if not len(op.regions) or op.name in _CAPTURE_NOTHING:
        return list(op.operands)
    view = reader.view(op)
    if view is not None:
        return None if view.structure.asserts else [*view.inputs, *view.inits, *view.outside]
    found = list(op.operands)
    for region in op.regions:
        for block in region.blocks:
            own: set[Value] = set()
            for inner in block.operations:
                inner = inner.operation
                if inner.name == "cf.assert":
                    return None
                found += [v for v in inner.operands if v not in own]
                own.update(inner.results)
    return [v for v in found if getattr(v.owner, "operation", None) is not None]
