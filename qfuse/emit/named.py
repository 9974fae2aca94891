"""Named linalg operations for contractions, where they can say what is wanted."""

from __future__ import annotations

from collections.abc import Sequence

from qfuse._builder import Builder
from qfuse._mlir import Value
from qfuse.emit.base import out_extents
from qfuse.emit.spec import PlannedContraction, Side
from qfuse.indexing import Extents, Index, affine_map, as_dim, dims_of_index, identity
from qfuse.matchers.nodes import Convolution


def named_contraction(
    builder: Builder, planned: PlannedContraction, lhs: Value, rhs: Value, sizes: Sequence[Value]
) -> tuple[Value, bool] | None:
    """`(accumulators, whether zero points are subtracted)` as a named operation, or None.

    `linalg.quantized_matmul` / `quantized_batch_matmul` where both zero points are scalars and the loops are those of
    a matmul, `linalg.matmul` / `batch_matmul` without zero points, else `linalg.contract`. All of them sign-extend, so
    unsigned storage is left to a generic.
    """
    if not (planned.lhs.storage.signed and planned.rhs.storage.signed):
        return None
    wide = f"i{planned.bits}"
    if isinstance(planned.node, Convolution):
        return _convolution(builder, planned, lhs, rhs, sizes)
    loops = _matmul_loops(planned)
    init = builder.empty(None, out_extents(planned.extents, planned.out_loops), wide, sizes)
    init = builder.fill_tensor(builder.constant(f"0 : {wide}"), init)
    if loops is None:
        return _contract(builder, planned, lhs, rhs, init), False
    batched = len(loops) == 4
    zeros = [_scalar_zero(builder, s, wide) for s in (planned.lhs, planned.rhs)]
    if planned.bits == 32 and zeros[0] is not None and zeros[1] is not None and not _symmetric(planned):
        left = _standard(builder, lhs, planned.lhs, [d for d in loops if d != loops[-2]])
        right = _standard(builder, rhs, planned.rhs, [*loops[:-3], loops[-1], loops[-2]])
        name = "linalg.quantized_batch_matmul" if batched else "linalg.quantized_matmul"
        return builder.named_linalg(name, [left, right, zeros[0], zeros[1], init], 4, init.type, {}), True
    if not _is_direct(planned, loops):
        return _contract(builder, planned, lhs, rhs, init), False
    order = {loop: i for i, loop in enumerate(loops)}
    dims = identity(len(loops))
    maps = [
        affine_map(len(loops), tuple(dims[order[d]] for d in _loops_of(index)))
        for index in (planned.lhs.index, planned.rhs.index, _out(planned))
    ]
    attributes = {"indexing_maps": builder.attribute("[" + ", ".join(maps) + "]")}
    name = "linalg.batch_matmul" if batched else "linalg.matmul"
    return builder.named_linalg(name, [lhs, rhs, init], 2, init.type, attributes), False


def _convolution(
    builder: Builder, planned: PlannedContraction, lhs: Value, rhs: Value, sizes: Sequence[Value]
) -> tuple[Value, bool] | None:
    """The named convolution of the float one on integers, when its operands are read as there."""
    if not is_read_as_named(planned):
        return None
    extents = out_extents(planned.extents, planned.out_loops)
    return integer_convolution(builder, planned, planned.node.op.name, [lhs, rhs], extents, sizes), False


def integer_convolution(
    builder: Builder,
    planned: PlannedContraction,
    name: str,
    operands: Sequence[Value],
    extents: Extents,
    sizes: Sequence[Value] = (),
) -> Value:
    """The convolution `name` on integers, with the strides and dilations of the float one; `extents` of its result."""
    wide = f"i{planned.bits}"
    init = builder.empty(None, extents, wide, sizes)
    init = builder.fill_tensor(builder.constant(f"0 : {wide}"), init)
    own = planned.node.op.attributes
    attributes = {n: own[n] for n in ("strides", "dilations") if n in own}
    return builder.named_linalg(name, [*operands, init], 2, init.type, attributes)


def is_read_as_named(planned: PlannedContraction) -> bool:
    """Whether this is a named convolution whose operands are read as the name says."""
    node = planned.node
    if not isinstance(node, Convolution) or node.op.name == "linalg.generic":
        return False
    same = planned.lhs.index == node.lhs_index and planned.rhs.index == node.rhs_index
    return same and list(node.op.operands)[:2] == [node.lhs, node.rhs]


def _symmetric(planned: PlannedContraction) -> bool:
    return planned.lhs.params.symmetric and planned.rhs.params.symmetric


def _loops_of(index: Index) -> list[int]:
    return [d for d in map(as_dim, index) if d is not None]


def _out(planned: PlannedContraction) -> Index:
    dims = identity(len(planned.extents))
    return tuple(dims[d] for d in planned.out_loops)


def _matmul_loops(planned: PlannedContraction) -> list[int] | None:
    """Loops in the order (batch,) m, n, k when the contraction is a matmul, else None."""
    left, right = dims_of_index(planned.lhs.index), dims_of_index(planned.rhs.index)
    out = list(planned.out_loops)
    batch = [d for d in out if d in left and d in right]
    rows = [d for d in out if d in left and d not in right]
    columns = [d for d in out if d in right and d not in left]
    if len(planned.reduction) != 1 or len(rows) != 1 or len(columns) != 1 or len(batch) > 1:
        return None
    if out != [*batch, *rows, *columns]:
        return None
    return [*batch, *rows, *columns, planned.reduction[0]]


def _is_direct(planned: PlannedContraction, loops: list[int]) -> bool:
    """Whether a matmul's indexing maps may read the operands where they lie (batch first)."""
    if len(loops) == 3:
        return True
    return all(_loops_of(s.index)[0] == loops[0] for s in (planned.lhs, planned.rhs))


def _scalar_zero(builder: Builder, side: Side, wide: str) -> Value | None:
    number = side.params.zero_point.scalar
    return None if number is None else builder.constant(f"{int(number)} : {wide}")


def _standard(builder: Builder, value: Value, side: Side, wanted: list[int]) -> Value:
    """The operand with its dimensions in the order of `wanted`."""
    loops = _loops_of(side.index)
    if loops == wanted:
        return value
    permutation = [loops.index(d) for d in wanted]
    bindings = builder.bindings
    extents = bindings.extents(value.type)
    element = bindings.element_name(value.type)
    moved = tuple(extents[i] for i in permutation)
    sizes = [builder.dim(value, permutation[i]) for i, n in enumerate(moved) if n is None]
    return builder.transpose(value, builder.empty(None, moved, element, sizes), permutation)


def _contract(builder: Builder, planned: PlannedContraction, lhs: Value, rhs: Value, init: Value) -> Value:
    rank = len(planned.extents)
    maps = [affine_map(rank, i) for i in (planned.lhs.index, planned.rhs.index, _out(planned))]
    attributes = {"indexing_maps": builder.attribute("[" + ", ".join(maps) + "]")}
    return builder.named_linalg("linalg.contract", [lhs, rhs, init], 2, init.type, attributes)
