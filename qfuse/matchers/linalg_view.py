"""Reads `linalg` operations, and `arith` and `math` on whole tensors, as structured ones; like bodies are read once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qfuse._mlir import Bindings, Operation, Value
from qfuse.indexing import Index, identity
from qfuse.matchers.scalar import Scalar, operation
from qfuse.matchers.structure import Structure, View

#: Named operations whose bodies follow from their name and element types.
_FIXED_BODY = frozenset(f"linalg.{name}" for name in ("fill", "transpose", "broadcast", "matmul", "batch_matmul"))
#: One-result operations whose result has the type of their first operand, and those whose meaning depends on an
#: attribute.
_SAME_TYPE = frozenset(
    f"arith.{name}"
    for name in (
        "addf", "subf", "mulf", "divf", "negf", "maximumf", "minimumf", "maxnumf", "minnumf",
        "addi", "subi", "muli", "maxsi", "minsi",
    )
) | {"math.roundeven"}  # fmt: skip
#: Attributes that the maps of operations with a fixed body depend on.
_SHAPING = ("indexing_maps", "permutation", "dimensions")
_WITH_ATTRIBUTE = {"arith.cmpf": "predicate", "arith.cmpi": "predicate", "linalg.index": "dim"}


class LinalgViews:
    """Structured operations of one module; what several have in common is kept."""

    def __init__(self, bindings: Bindings) -> None:
        """A reader for modules of `bindings`."""
        self.bindings = bindings
        self._structures: dict[Any, Structure] = {}

    def view(self, op: Operation) -> View | None:
        """An operation on ranked tensors as a structured one, or None."""
        results = list(op.results)
        if op.name.startswith(("arith.", "math.")):
            return self._elementwise(op, results)
        return self._with_body(op, results)

    def _with_body(self, op: Operation, results: list[Value]) -> View | None:
        name = op.name
        if not name.startswith("linalg.") or len(op.regions) != 1:
            return None
        for result in results:
            if not self.bindings.is_ranked_tensor(result.type):
                return None
        blocks = op.regions[0].blocks
        if len(blocks) != 1:
            return None
        attributes = op.attributes
        operands = list(op.operands)
        inputs = len(operands) - len(results)
        fixed = name in _FIXED_BODY and "cast" not in attributes
        key: Any = None
        if fixed:
            # What the body and the maps of these follow from.
            named = tuple(attributes[n] for n in _SHAPING if n in attributes)
            key = (name, named, tuple([v.type for v in operands]))
            structure = self._structures.get(key)
            if structure is not None:
                return View(self.bindings, op, operands[:inputs], operands[inputs:], structure, [], [])
        rows, captured, outside, pure = _rows(blocks[0])
        if name == "linalg.generic":
            key = (attributes["indexing_maps"], attributes["iterator_types"], len(operands), tuple(rows))
        elif not fixed:
            key = (name, tuple(self.bindings.indexing_maps(op)), len(operands), tuple(rows))
            if not key[1]:
                return None
        structure = self._structures.get(key)
        if structure is None:
            try:
                structure = self._structures[key] = self._structure(op, name, inputs, rows, pure)
            except ValueError:  # an affine expression outside the supported algebra
                return None
        return View(self.bindings, op, operands[:inputs], operands[inputs:], structure, captured, outside)

    def _elementwise(self, op: Operation, results: list[Value]) -> View | None:
        """An operation of scalars on whole tensors, which all have one shape."""
        operands = list(op.operands)
        if len(results) != 1 or not operands or not all(map(self.bindings.is_ranked_tensor, _types(operands, results))):
            return None
        name = op.name
        extra = op.attributes[_WITH_ATTRIBUTE[name]].value if name in _WITH_ATTRIBUTE else None
        rank = len(self.bindings.extents(results[0].type))
        elements = tuple([self.bindings.element_name(t) for t in _types(operands, results)])
        key = (name, extra, rank, elements)
        structure = self._structures.get(key)
        if structure is None:
            index = identity(rank)
            read = tuple([Scalar("elem", e, payload=(n, index)) for n, e in enumerate(elements[:-1])])
            body = [operation(name, elements[-1], read, extra)]
            structure = Structure([index] * len(elements), rank, len(operands), True, body, True)
            self._structures[key] = structure
        return View(self.bindings, op, operands, [], structure, [], [])

    def _structure(self, op: Operation, name: str, inputs: int, rows: list[Any], pure: bool) -> Structure:
        maps = self.bindings.indexing_maps(op)
        indices = [self.bindings.index_map(m) for m in maps]
        parallel_only = name == "linalg.generic" and "reduction" not in str(op.attributes["iterator_types"])
        rank = maps[0].n_dims if maps else 0
        body = _read_rows(rows, indices, inputs, self.bindings.type_name)
        return Structure(indices, rank, inputs, parallel_only, body, pure)


def _types(operands: list[Value], results: list[Value]) -> list[Any]:
    return [v.type for v in (*operands, *results)]


def _rows(block: Any) -> tuple[list[Any], list[Value], list[Value], bool]:
    """A body as hashable rows; what it captures, what of that is outside, and whether it is pure.

    The first row has the types of the arguments, the last those of what is captured, the others an operation each.

    Operands are numbers: block arguments and results counted from 0 up, captured values from -1 down. Types are
    MLIR's own, which hash fast.
    """
    numbers: dict[Value, int] = {}
    captured: list[Value] = []
    outside: list[Value] = []
    arguments: list[Any] = []
    for argument in block.arguments:
        numbers[argument] = len(arguments)
        arguments.append(argument.type)
    rows: list[Any] = [tuple(arguments)]
    count = len(arguments)
    pure = True
    for op in block.operations:
        name = op.operation.name
        if name == "arith.constant":
            captured.append(op.operation.results[0])
            numbers[captured[-1]] = -len(captured)
            continue
        operands: list[int] = []
        for value in op.operation.operands:
            number = numbers.get(value)
            if number is None:
                captured.append(value)
                outside.append(value)
                number = numbers[value] = -len(captured)
            operands.append(number)
        if name in _SAME_TYPE:
            numbers[op.operation.results[0]] = count
            count += 1
            rows.append((name, None, tuple(operands), None))
            continue
        extra: Any = None
        if name in _WITH_ATTRIBUTE:
            extra = op.operation.attributes[_WITH_ATTRIBUTE[name]].value
        elif name == "cf.assert":
            pure = False
        types: list[Any] = []
        for result in op.operation.results:
            numbers[result] = count
            count += 1
            types.append(result.type)
        rows.append((name, tuple(types), tuple(operands), extra))
    rows.append(tuple([v.type for v in captured]))
    return rows, captured, outside, pure


def _read_rows(rows: list[Any], maps: list[Index], inputs: int, type_name: Callable[[Any], str]) -> list[Scalar] | None:
    """The expressions that a body yields, from its rows (see `_rows`)."""
    holes = [Scalar("hole", type_name(t), payload=n) for n, t in enumerate(rows[-1])]
    known: list[Scalar] = []
    for position, type_ in enumerate(rows[0]):
        if position < inputs:
            known.append(Scalar("elem", type_name(type_), payload=(position, maps[position])))
        else:
            known.append(Scalar("init", type_name(type_), payload=position - inputs))
    operands: tuple[int, ...]
    for name, types, operands, extra in rows[1:-1]:
        args = tuple([known[n] if n >= 0 else holes[-n - 1] for n in operands])
        if name == "linalg.yield":
            return list(args)
        if types is None:
            known.append(operation(name, args[0].type, args, extra))
        elif len(types) == 1:
            known.append(operation(name, type_name(types[0]), args, extra))
        elif types:
            return None
    return None
