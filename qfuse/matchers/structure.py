"""Structured operations seen uniformly: loops, indexing maps, and a body read as scalar expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from qfuse._mlir import Bindings, Operation, Value
from qfuse.indexing import Extents, Index, Linear, as_dim, constant, dim, permutation_of
from qfuse.matchers.scalar import Scalar, substitute_index

_Body: TypeAlias = "list[Scalar] | None"


class Structure:
    """What operations of one structure have in common: maps, loops and body, with holes for what they are applied to.

    A model repeats a few bodies many times; each is read into expressions once.

    Attributes:
        maps: indexing maps, inputs first.
        rank: number of loops.
        parallel: loops that are not summed over.
        reduction: loops that are.
        yielded: an expression a result over the loops, or None when the body is not understood. Leaves are `hole`
            (payload: number of a captured value) and `elem` (payload: (number of the operand, index)).
        asserts: whether the body has side effects (an assertion).
        results: the expressions over the result's own dimensions, for elementwise operations.
        signless: whether the dialect reads every integer as signed.
        found: room for matchers to keep what they found, by their own keys.
    """

    __slots__ = ("asserts", "found", "maps", "parallel", "rank", "reduction", "results", "signless", "yielded")

    def __init__(self, maps: list[Index], rank: int, inputs: int, parallel_only: bool, body: _Body, pure: bool) -> None:
        """Built by `ScalarReader.view`."""
        self.maps = maps
        self.rank = rank
        self.asserts = not pure
        self.signless = False
        self.found: dict[Any, Any] = {}
        in_results = {p for index in maps[inputs:] for p in map(as_dim, index) if p is not None}
        self.reduction = () if parallel_only else tuple(d for d in range(rank) if d not in in_results)
        self.parallel = tuple(d for d in range(rank) if d not in self.reduction)
        if body is not None and not self.reduction:
            body = [_read_inits(expression, maps, inputs, {}) for expression in body]
        self.yielded = body
        self.results = None if self.reduction or body is None else _over_results(body, maps[inputs:], rank)


class View:
    """A structured operation seen uniformly, named or generic.

    Attributes:
        op: the operation.
        structure: what it shares with others.
        inputs: operands that are read.
        inits: operands that are written into.
        captured: values from outside that the body uses, and constants inside it, in the order of the holes.
        outside: those of them that are defined outside.
    """

    __slots__ = ("_bindings", "_extents", "captured", "inits", "inputs", "op", "outside", "structure")

    def __init__(
        self,
        bindings: Bindings,
        op: Operation,
        inputs: list[Value],
        inits: list[Value],
        structure: Structure,
        captured: list[Value],
        outside: list[Value],
    ) -> None:
        """Built by `ScalarReader.view`."""
        self._bindings = bindings
        self._extents: Extents | None = None
        self.op = op
        self.structure = structure
        self.inputs = inputs
        self.inits = inits
        self.captured = captured
        self.outside = outside

    @property
    def extents(self) -> Extents:
        """Extents of the loops, None for dynamic."""
        if self._extents is None:
            operands = [*self.inputs, *(self.inits or self.op.results)]
            self._extents = _loop_extents(self._bindings, operands, self.structure.maps, self.structure.rank)
        return self._extents


def _loop_extents(bindings: Bindings, operands: Sequence[Value], maps: Sequence[Index], rank: int) -> Extents:
    found: list[int | None] = [None] * rank
    for value, index in zip(operands, maps, strict=False):
        if not index or not bindings.is_ranked_tensor(value.type):
            continue
        for expr, extent in zip(index, bindings.extents(value.type), strict=True):
            position = as_dim(expr)
            if position is not None and extent is not None:
                found[position] = extent
    return tuple(found)


def _read_inits(scalar: Scalar, maps: list[Index], inputs: int, known: dict[int, Scalar]) -> Scalar:
    """An elementwise operation that reads what it writes into reads one more operand."""
    found = known.get(id(scalar))
    if found is not None:
        return found
    if scalar.op == "init":
        number = inputs + scalar.payload
        found = Scalar("elem", scalar.type, payload=(number, maps[number]))
    elif scalar.args:
        args = tuple(_read_inits(a, maps, inputs, known) for a in scalar.args)
        found = scalar if args == scalar.args else Scalar(scalar.op, scalar.type, args, scalar.payload)
    else:
        found = scalar
    known[id(scalar)] = found
    return found


def _over_results(body: list[Scalar], written: list[Index], rank: int) -> list[Scalar | None]:
    """Expressions over the dimensions of each result instead of over the loops."""
    found: list[Scalar | None] = []
    for expression, index in zip(body, written, strict=True):
        loops = permutation_of(index, rank)
        if loops is None or len(loops) != rank:
            found.append(None)
            continue
        if loops == tuple(range(rank)):
            found.append(expression)
            continue
        inverse: list[Linear] = [constant(0)] * rank
        for position, loop in enumerate(loops):
            inverse[loop] = dim(position)
        found.append(substitute_index(expression, tuple(inverse), ()))
    return found
