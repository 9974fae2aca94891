"""Recognises TOSA's contractions, convolutions, reductions and pooling.

Loops of a contraction are the result's dimensions, in order, and then those that are summed over. Padding belongs to
the operation, as strides of a transposed convolution do: elements between and around those of the input are 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from qfuse._mlir import Bindings, Operation, Value
from qfuse.indexing import Extents, Index, Linear, constant, dim, floordiv, identity, mod, plus, times
from qfuse.matchers.nodes import Contraction, Convolution, Node, Reduction
from qfuse.matchers.tosa_layout import is_bilinear, shape_values

_KINDS = {"tosa.reduce_sum": "sum", "tosa.reduce_max": "max", "tosa.reduce_min": "min"}
_POOLS = {"tosa.max_pool2d": "max", "tosa.avg_pool2d": "mean"}


def match_tosa(bindings: Bindings, op: Operation) -> Node | None:
    """A contraction, convolution, reduction (also `argmax`) or pooling of ranked tensors as a node, or None."""
    match = _MATCHERS.get(op.name)
    if match is None or len(op.results) != 1:
        return None
    data = [v for v in op.operands if not str(v.type).startswith("!tosa.shape")]
    ranked = all(bindings.is_ranked_tensor(v.type) for v in (*data, *op.results))
    return match(bindings, op) if ranked else None


def _is_integer(bindings: Bindings, value: Value) -> bool:
    return bindings.element_name(value.type).startswith("i")


def _matmul(bindings: Bindings, op: Operation) -> Node:
    batch, rows, inner = bindings.extents(op.operands[0].type)
    other, inner_again, columns = bindings.extents(op.operands[1].type)
    extents = (_known(batch, other), rows, columns, _known(inner, inner_again))
    b, m, n, k = identity(4)
    result = op.results[0]
    return Contraction(
        op, result, op.operands[0], op.operands[1], None, (b, m, k), (b, k, n), (b, m, n), extents, (3,),
        _is_integer(bindings, op.operands[0]),
    )  # fmt: skip


def _known(a: int | None, b: int | None) -> int | None:
    return b if a is None else a


def _numbers(op: Operation, name: str) -> tuple[int, ...]:
    return tuple(op.attributes[name])


def _window(op: Operation, spatial: int, loops: Sequence[int], kernel: Sequence[int]) -> tuple[list[Linear], _Pads]:
    """Where each spatial dimension is read, and how much padding that reads: `out * stride + k * dilation - before`."""
    strides = _numbers(op, "stride")
    dilations = _numbers(op, "dilation") if "dilation" in op.attributes else (1,) * spatial
    pads = _numbers(op, "pad")
    places = [
        plus(plus(times(dim(loops[i]), strides[i]), times(dim(kernel[i]), dilations[i])), constant(-pads[2 * i]))
        for i in range(spatial)
    ]
    return places, tuple((pads[2 * i], pads[2 * i + 1]) for i in range(spatial))


def _convolution(spatial: int) -> _Match:
    """conv2d, conv3d: input `[n, *spatial, c]`, filters `[o, *kernel, c]`, result `[n, *spatial, o]`."""

    def match(bindings: Bindings, op: Operation) -> Node:
        out = bindings.extents(op.results[0].type)
        filters = bindings.extents(op.operands[1].type)
        rank = spatial + 2
        kernel = tuple(range(rank, rank + spatial))
        channel = rank + spatial
        places, pads = _window(op, spatial, range(1, rank - 1), kernel)
        lhs = (dim(0), *places, dim(channel))
        rhs = (dim(rank - 1), *(dim(k) for k in kernel), dim(channel))
        extents = (*out[:-1], _known(out[-1], filters[0]), *filters[1:])
        return _node(bindings, op, lhs, rhs, extents, (*kernel, channel), ((0, 0), *pads, (0, 0)))

    return match


def _depthwise(bindings: Bindings, op: Operation) -> Node | None:
    """Input `[n, h, w, c]`, filters `[kh, kw, c, m]`, result `[n, h, w, c * m]`."""
    out = bindings.extents(op.results[0].type)
    height, width, channels, multiplier = bindings.extents(op.operands[1].type)
    if channels is None or multiplier is None:
        return None
    extents = (*out[:3], channels * multiplier, height, width)
    places, pads = _window(op, 2, (1, 2), (4, 5))
    channel = floordiv(dim(3), multiplier, extents)
    lhs = (dim(0), *places, channel)
    rhs = (dim(4), dim(5), channel, mod(dim(3), multiplier, extents))
    return _node(bindings, op, lhs, rhs, extents, (4, 5), ((0, 0), *pads, (0, 0)), multiplier=multiplier)


def _transposed(bindings: Bindings, op: Operation) -> Node:
    """`result[i * stride + out_pad + k] += input[i] * filter[k]`, so read at `(o - out_pad - k) / stride`."""
    out = bindings.extents(op.results[0].type)
    inner = bindings.extents(op.operands[0].type)
    filters = bindings.extents(op.operands[1].type)
    extents = (*out[:3], _known(out[3], filters[0]), *filters[1:])
    strides, padding = _numbers(op, "stride"), _numbers(op, "out_pad")
    places: list[Linear] = []
    pads: list[tuple[int, int]] = []
    for axis in (0, 1):
        at = plus(dim(1 + axis), plus(times(dim(4 + axis), -1), constant(-padding[2 * axis])))
        places.append(floordiv(at, strides[axis], extents))
        taps, size, whole = filters[1 + axis], inner[1 + axis], out[1 + axis]
        before = ((taps or 1) - 1 + padding[2 * axis] + strides[axis] - 1) // strides[axis]
        last = None if whole is None else (whole - 1 - padding[2 * axis]) // strides[axis]
        pads.append((max(before, 0), 0 if last is None or size is None else max(last - size + 1, 0)))
    lhs = (dim(0), *places, dim(6))
    rhs = (dim(3), dim(4), dim(5), dim(6))
    steps = (1, *strides, 1)
    return _node(bindings, op, lhs, rhs, extents, (4, 5, 6), ((0, 0), *pads, (0, 0)), spread=steps)


def _node(
    bindings: Bindings,
    op: Operation,
    lhs: Index,
    rhs: Index,
    extents: Extents,
    reduction: tuple[int, ...],
    padding: _Pads,
    spread: tuple[int, ...] = (),
    multiplier: int = 0,
) -> Convolution:
    value, filters, bias = list(op.operands)[:3]
    out = identity(len(bindings.extents(op.results[0].type)))
    channels = bindings.extents(bias.type)[0]
    init_index = (constant(0) if channels == 1 else out[-1],)
    return Convolution(
        op, op.results[0], value, filters, bias, lhs, rhs, out, extents, reduction,
        _is_integer(bindings, value), init_index=init_index, padding=padding, spread=spread, multiplier=multiplier,
    )  # fmt: skip


def _reduce(bindings: Bindings, op: Operation) -> Node:
    """The reduced dimension stays, with extent 1."""
    inner = bindings.extents(op.operands[0].type)
    axis: int = op.attributes["axis"].value
    rank = len(inner)
    index = tuple(dim(rank) if i == axis else dim(i) for i in range(rank))
    extents: Extents = (*inner[:axis], 1, *inner[axis + 1 :], inner[axis])
    kind = _KINDS[op.name]
    return Reduction(op, op.results[0], kind, op.operands[0], None, index, identity(rank), extents, (rank,))


def _pool(bindings: Bindings, op: Operation) -> Node:
    out = bindings.extents(op.results[0].type)
    places, pads = _window(op, 2, (1, 2), (4, 5))
    index = (dim(0), *places, dim(3))
    extents = (*out, *_numbers(op, "kernel"))
    return Reduction(
        op, op.results[0], _POOLS[op.name], op.operands[0], None, index, identity(4), extents, (4, 5),
        padding=((0, 0), *pads, (0, 0)),
    )  # fmt: skip


def _argmax(bindings: Bindings, op: Operation) -> Node:
    """The reduced dimension is gone."""
    inner = bindings.extents(op.operands[0].type)
    axis: int = op.attributes["axis"].value
    last = len(inner) - 1
    index = tuple(dim(last) if i == axis else dim(i - (i > axis)) for i in range(len(inner)))
    extents: Extents = (*inner[:axis], *inner[axis + 1 :], inner[axis])
    return Reduction(op, op.results[0], "argmax", op.operands[0], None, index, identity(last), extents, (last,))


def _resize(bindings: Bindings, op: Operation) -> Node | None:
    """Bilinear: weights are products of places between neighbours, in parts of the two numerators of the scale."""
    scale = shape_values(bindings, op.operands[1])
    if scale is None or not is_bilinear(op):
        return None
    out, index = bindings.extents(op.results[0].type), (dim(0), constant(0), constant(0), dim(3))
    return Reduction(
        op, op.results[0], "bilinear", op.operands[0], None, index, identity(4), out, (), weight=scale[0] * scale[2]
    )


_Pads = tuple[tuple[int, int], ...]
_Match = Callable[[Bindings, Operation], "Node | None"]
_MATCHERS: Mapping[str, _Match] = {
    "tosa.matmul": _matmul,
    "tosa.conv2d": _convolution(2),
    "tosa.conv3d": _convolution(3),
    "tosa.depthwise_conv2d": _depthwise,
    "tosa.transpose_conv2d": _transposed,
    **dict.fromkeys(_KINDS, _reduce),
    **dict.fromkeys(_POOLS, _pool),
    "tosa.argmax": _argmax,
    "tosa.resize": _resize,
}
