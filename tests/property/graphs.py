"""Random whole networks between quantizes, from a seed: as a list of layers, so that a failing one can be cut down.

A graph is a number of float or integer inputs and of layers. Each layer dequantizes results of earlier ones, computes
in float, and quantizes. The parameters of each quantize are those that an observer would choose, and often worse ones.
Numbers of a layer depend on the seed of the graph and the layer's position only, so layers can be left out from the
end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.property.operations import Network, stored_scale
from tests.strategies import Array, Grid, Value

KINDS = (
    "conv", "conv", "conv", "depthwise", "grouped", "linear", "linear", "add", "add", "mul", "act", "act", "maxpool",
    "avgpool", "mean", "concat", "layout", "layout", "attention", "gate",
)  # fmt: skip
ACTIVATIONS = ("none", "none", "relu", "relu", "relu6", "hardtanh")


@dataclass(frozen=True)
class Graph:
    """A random network.

    Attributes:
        seed: of everything.
        kinds: of its layers, from `KINDS`.
        only: the one layer to build, its operands being arguments with the parameters in `grids`; None for all.
        grids: parameters of stored values by position, as a whole graph was built with them.
        shapes: extents of stored values likewise.
    """

    seed: int
    kinds: tuple[str, ...]
    only: int | None = None
    grids: Mapping[int, Grid] = field(default_factory=dict)
    shapes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"graph {self.seed} of {', '.join(self.kinds)}" + ("" if self.only is None else f", layer {self.only}")


def random_graph(seed: int) -> Graph:
    """A graph of 2 to 8 layers."""
    rng = np.random.default_rng([seed, 1])
    return Graph(seed, tuple(str(k) for k in rng.choice(KINDS, int(rng.integers(2, 9)))))


@dataclass(eq=False)
class Built:
    """A graph as a function.

    Attributes:
        function: its text and reference; every stored value of a layer is returned.
        stored: all stored values; those of layers are the last ones.
        lines: of the text, by position of the result: where its quantize is.
        layers: by position of the result: the layer it is of, -1 for the quantize of an input.
        floats: how many results behind the stored ones are float.
        graph: what it was built from.
    """

    function: Network
    stored: list[Value]
    lines: list[int]
    layers: list[int]
    floats: int
    graph: Graph

    @property
    def last_only(self) -> str:
        """The text of the function with no result but the last."""
        f = self.function
        every, f.returned = f.returned, f.returned[-1:]
        text = f.text
        f.returned = every
        return text

    def samples(self, kinds: Sequence[str] = ("random", "extremes", "low")) -> list[dict[str, Any]]:
        """Inputs by argument name, always the same."""
        rng = np.random.default_rng([self.graph.seed, 9])
        return [self.function.sample(rng, kind) for kind in kinds]


def build(graph: Graph, name: str = "main") -> Built:
    """The function of a graph."""
    return _Builder(graph, name).built()


class _Builder:
    def __init__(self, graph: Graph, name: str) -> None:
        self.graph = graph
        self.f = Network(name, graph.seed)
        self.rng = np.random.default_rng([graph.seed, 2])
        self.dyadic = bool(self.rng.random() < 0.3)
        self.extreme = bool(self.rng.random() < 0.08)
        self.stored: list[Value] = []
        self.results: list[Value] = []
        self.real: dict[int, Value] = {}
        self.layers: list[int] = []
        self.grids: dict[int, Grid] = {}

    def built(self) -> Built:
        """All layers, or one."""
        self._inputs()
        floats: list[Value] = []
        for position, kind in enumerate(self.graph.kinds):
            self.rng = np.random.default_rng([self.graph.seed, 3, position])
            if self.graph.only in (None, position):
                y = self._layer(kind)
                last = position + 1 == len(self.graph.kinds)
                if last and self.graph.only is None and self.rng.random() < 0.15:
                    floats.append(y)
                else:
                    self._store(y)
                self.layers.append(position)
            elif self.graph.only > position:
                self._skip()
        if not floats and self.graph.only is None and self.rng.random() < 0.3:
            floats.append(self.f.dequantize(self.results[-1]))
        self.f.results(*self.results, *floats)
        text = "\n".join(self.f.lines)
        self.f.arguments = [a for a in self.f.arguments if re.search(rf"{a.ssa}\b", text)]
        lines = self.f.lines_of(self.results)
        return Built(self.f, self.stored, lines, self.layers, len(floats), self.graph)

    # -- stored values -----------------------------------------------------------------------------------------

    def _inputs(self) -> None:
        shape = (int(self.rng.choice((1, 1, 2))), int(self.rng.choice((1, 2, 4, 6))), *self.rng.integers(4, 9, 2))
        flat = (int(self.rng.integers(1, 5)), int(self.rng.choice((1, 3, 8, 16))))
        images = tuple(int(n) for n in shape)
        for extents in [images, images, flat][: int(self.rng.integers(1, 4))]:
            near = float(self.rng.choice((0.02, 0.05, 0.007, 1.0))) * (
                2.0 ** int(self.rng.integers(-38, 20)) if self.extreme else 1.0
            )
            grid = self._grid_of(np.array([-100.0, 110.0]) * near)
            position = len(self.stored)
            # Both ways to begin: a quantize of a float argument, or an integer argument.
            quantized = self.rng.random() < 0.5
            grid = self.graph.grids.get(position, grid)
            if self.graph.only is None and quantized:
                spread = 140 * near
                x = self.f.float_argument(extents, lambda rng, s=spread, e=extents: rng.normal(size=e) * s / 2)
                self._keep(self.f.quantize(x, grid), grid)
                self.results.append(self.stored[-1])
                self.layers.append(-1)
            else:
                self._keep(self.f.argument(extents, grid), grid)

    def _keep(self, q: Value, grid: Grid) -> None:
        self.grids[len(self.stored)] = grid
        self.stored.append(q)

    def _store(self, y: Value) -> None:
        """Quantizes a layer's result."""
        position = len(self.stored)
        grid = self.graph.grids.get(position)
        if grid is None:
            grid = self._grid_of(self.f.observed(y).value)
        self._keep(self.f.quantize(y, grid), grid)
        self.results.append(self.stored[-1])

    def _skip(self) -> None:
        """Stands in for a layer that is left out, for those that read its result: an argument."""
        position = len(self.stored)
        grid = self.graph.grids[position]
        self._keep(self.f.argument(self.graph.shapes[position], grid), grid)

    def _grid_of(self, values: Array) -> Grid:
        """Parameters for a tensor: as an observer finds them, or too fine, too coarse, at an end, extreme."""
        rng = self.rng
        finite = values[np.isfinite(values)]
        low, high = min(float(finite.min(initial=0.0)), 0.0), max(float(finite.max(initial=0.0)), 0.0)
        signed = bool(rng.random() < 0.65)
        narrow = bool(rng.random() < 0.1)
        grid = Grid(signed=signed, low=(-127 if signed else 0) if narrow else None)
        least, most = grid.range
        style = str(rng.choice(("affine", "affine", "affine", "symmetric", "low end", "high end")))
        factor = float(rng.choice((1.0, 1.0, 1.0, 0.9, 0.3, 4.0, 1 / 256)))
        if style == "symmetric":
            zero = 0 if signed else 128
            scale = max(-low, high) / 127
        else:
            scale = (high - low) / (most - least)
            zero = {"low end": least, "high end": most}.get(style, 0)
            if style == "affine":
                zero = int(np.clip(least - round(low / scale), least, most)) if scale > 1e-30 else 0
        scale = scale * factor if scale > 0 else 1 / 128
        if rng.random() < 0.02:
            scale = 2.0 ** int(rng.integers(-40, 21)) * rng.uniform(0.5, 1.0)
        if self.dyadic:
            scale = 2.0 ** np.ceil(np.log2(scale))
        scale = float(stored_scale(np.clip(scale, 2.0**-40, 2.0**20)))
        bits = 16 if signed and not narrow and rng.random() < 0.03 else 8
        return Grid(bits, signed, grid.low, None, scale=scale / (256 if bits == 16 else 1), zero=zero)

    def _read(self, position: int) -> Value:
        """The dequantized value: shared between readers, or of its own."""
        if position not in self.real or self.rng.random() < 0.5:
            self.real[position] = self.f.dequantize(self.stored[position])
        return self.real[position]

    def _pick(self, *ranks: int) -> int | None:
        """A stored value of one of these ranks, mostly a late one."""
        found = [i for i, v in enumerate(self.stored) if v.rank in ranks]
        if not found:
            return None
        return found[-1] if self.rng.random() < 0.6 else int(self.rng.choice(found))

    def _alike(self, position: int, axis: int | None = None) -> int:
        """A stored value of the same shape (but along `axis`); itself when there is no other."""
        shape = self.stored[position].shape

        def same(other: tuple[int, ...]) -> bool:
            return len(other) == len(shape) and all(
                a == b for i, (a, b) in enumerate(zip(other, shape, strict=True)) if i != axis
            )

        found = [i for i, v in enumerate(self.stored) if same(v.shape)]
        others = [i for i in found if i != position]
        return int(self.rng.choice(others)) if others and self.rng.random() < 0.85 else position

    # -- layers ------------------------------------------------------------------------------------------------

    def _layer(self, kind: str) -> Value:
        """The float result of a layer; where there is no operand for it, an activation."""
        maker = {
            "conv": self._conv, "depthwise": self._conv, "grouped": self._conv, "linear": self._linear,
            "maxpool": self._maxpool, "avgpool": self._avgpool, "mean": self._mean, "add": self._binary,
            "mul": self._binary, "concat": self._concat, "layout": self._layout, "attention": self._attention,
            "gate": self._gate, "act": self._act,
        }[kind]  # fmt: skip
        y = maker(kind)
        return self._act("act") if y is None else y

    def _weight(self, shape: tuple[int, ...], near: float) -> tuple[Value, Array]:
        """A constant weight and its scales, one an output channel."""
        rng = self.rng
        per_channel = bool(rng.random() < 0.6)
        low = None if rng.random() < 0.3 else -127
        sizes = (shape[0],) if per_channel else ()
        scale = near * rng.uniform(0.2, 1.5, sizes)
        if rng.random() < 0.05 and per_channel:
            scale[int(rng.integers(shape[0]))] *= 2.0 ** int(rng.integers(-30, 20))
        if self.dyadic:
            scale = 2.0 ** np.round(np.log2(scale))
        scale = stored_scale(np.clip(scale, 2.0**-40, 2.0**20))
        zero: Array | int | None = np.zeros(sizes, np.int64) if per_channel else None
        if rng.random() < 0.12:
            zero = rng.integers(-20, 21, sizes) if per_channel else int(rng.integers(-128, 128))
        grid = Grid(low=low, axes=(0,) if per_channel else (), scale=scale if per_channel else float(scale), zero=zero)
        least, most = grid.range
        values = rng.integers(least, most, shape, endpoint=True)
        extreme = rng.random()
        if extreme < 0.08:
            values = np.full(shape, least)
        elif extreme < 0.12:
            values = rng.choice(np.array([least, most]), shape)
        elif extreme < 0.15:
            values[: (shape[0] + 1) // 2] = 0
        return self.f.weight(shape, grid, values), np.broadcast_to(scale, (shape[0],))

    def _bias(self, y_scale: Array, count: int) -> Value | None:
        """A bias of one a channel: none, float, or 32-bit integers at (or near) the accumulators' scale."""
        rng = self.rng
        kind = str(rng.choice(("none", "float", "float", "float", "integer", "coarse")))
        if kind == "none":
            return None
        reach = float(rng.choice((10, 1000, 20000)))
        whole = rng.integers(-reach, reach, count, endpoint=True)
        if kind == "float":
            return self.f.float_constant(stored_scale(rng.normal(size=count) * reach * y_scale))
        scale = stored_scale(y_scale * (1.0 if kind == "integer" else float(rng.choice((7.3, 0.11)))))
        scale = np.maximum(scale, 2.0**-100)
        one = bool((scale == scale[0]).all() and rng.random() < 0.5)
        zero = None if one else np.zeros(count, np.int64)
        grid = Grid(32, axes=() if one else (0,), scale=float(scale[0]) if one else scale, zero=zero, zero_type="i32")
        return self.f.dequantize(self.f.weight((count,), grid, whole))

    def _activated(self, y: Value, position: int | None = None) -> Value:
        """Adds a residual (run-time tensor) sometimes, then clamps sometimes."""
        f, rng = self.f, self.rng
        if position is not None and rng.random() < 0.2:
            others = [i for i, v in enumerate(self.stored) if v.shape == y.shape]
            if others:
                y = f.binary("add", y, self._read(int(rng.choice(others))), swap=bool(rng.random() < 0.5))
        kind = str(rng.choice(ACTIVATIONS))
        if kind == "relu":
            return f.relu(y)
        if kind == "none":
            return y
        low, high = (0.0, 6.0) if kind == "relu6" else (-1.3, 1.7)
        if rng.random() < 0.6:
            reach = float(np.abs(f.observed(y).value).max(initial=0.0)) or 1.0
            low, high = (float(stored_scale(b * reach / 6)) for b in (low, high))
        return f.clamp(y, low, high, str(rng.choice(("tensors", "scalars", "minmax"))))

    def _near(self, reduction: int) -> float:
        return float(0.02 / np.sqrt(max(reduction, 1)))

    def _conv(self, kind: str) -> Value | None:
        f, rng = self.f, self.rng
        position = self._pick(4)
        if position is None:
            return None
        channels = self.stored[position].shape[1]
        groups, out = 1, int(rng.choice((1, 2, 3, 4, 6)))
        if kind == "depthwise":
            groups = out = channels
        if kind == "grouped":
            groups = 2 if channels % 2 == 0 else 1
            out = groups * int(rng.integers(1, 4))
        x = self._read(position)
        size = min(x.shape[2:])
        kernel = (int(rng.choice((1, 2, 3))), int(rng.choice((1, 3)))) if rng.random() < 0.2 else (
            (1, 1) if rng.random() < 0.3 else (3, 3))  # fmt: skip
        dilation = 2 if rng.random() < 0.15 else 1
        stride = 2 if rng.random() < 0.25 else 1
        reach = (max(kernel) - 1) * dilation
        pad = int(rng.choice((0, 1, 2))) if size > reach else reach
        if pad:
            high = pad if rng.random() < 0.8 else pad - 1 if size + 2 * pad - 1 > reach else pad
            x = f.pad(x, [0, 0, pad, pad], [0, 0, high, high])
        grid = self.grids[position]
        per_group = channels // groups
        near = self._near(per_group * kernel[0] * kernel[1])
        w, scales = self._weight((out, per_group, *kernel), near)
        bias = self._bias(scales * float(grid.scale), out)
        return self._activated(f.conv(x, f.dequantize(w), bias, stride, dilation, groups), position)

    def _linear(self, kind: str) -> Value | None:
        f, rng = self.f, self.rng
        position = self._pick(2, 3)
        if position is None:
            position = self._pick(4)
        if position is None:
            return None
        x = self._read(position)
        shape = x.shape
        if x.rank == 4:
            x = f.collapse(x, [[0], [1, 2, 3]])
            shape = x.shape
        if x.rank == 3:
            x = f.collapse(x, [[0, 1], [2]])
        out = int(rng.choice((1, 3, 5, 8)))
        w, scales = self._weight((out, x.shape[1]), self._near(x.shape[1]))
        y = f.matmul(x, f.transpose(f.dequantize(w), (1, 0)))
        bias = self._bias(scales * float(self.grids[position].scale), out)
        if bias is not None:
            y = f.linear_bias(y, bias)
        if len(shape) == 3:
            y = f.expand(y, [[0, 1], [2]], (*shape[:2], out))
        return self._activated(y, position)

    def _attention(self, kind: str) -> Value | None:
        """A product of two stored tensors."""
        f = self.f
        position = self._pick(2, 3)
        if position is None:
            return None
        x, y = self._read(position), self._read(self._alike(position, axis=0 if self.stored[position].rank == 2 else 1))
        if x.rank == 2:
            return self._activated(f.matmul(x, f.transpose(y, (1, 0))))
        return self._activated(f.contract(x, f.transpose(y, (0, 2, 1)), "bmk,bkn->bmn", "batch_matmul"))

    def _maxpool(self, kind: str) -> Value | None:
        f, rng = self.f, self.rng
        position = self._pick(4)
        if position is None or min(self.stored[position].shape[2:]) < 3:
            return None
        x = self._read(position)
        kernel, stride = int(rng.choice((2, 3))), int(rng.choice((1, 2)))
        if rng.random() < 0.5:
            x = f.pad(x, [0, 0, 1, 1], [0, 0, 1, 1], -np.inf)
        return self._activated(f.pool(x, "max", kernel, stride))

    def _avgpool(self, kind: str) -> Value | None:
        f, rng = self.f, self.rng
        position = self._pick(4)
        if position is None or min(self.stored[position].shape[2:]) < 3:
            return None
        x = self._read(position)
        kernel, stride = int(rng.choice((2, 3))), int(rng.choice((1, 2)))
        if rng.random() < 0.3:
            x = f.pad(x, [0, 0, 1, 1], [0, 0, 1, 1])
        return self._activated(f.divide_by(f.pool(x, "sum", kernel, stride), float(kernel * kernel)))

    def _mean(self, kind: str) -> Value | None:
        position = self._pick(4, 3)
        if position is None:
            return None
        x = self._read(position)
        kept = 2 if x.rank == 4 or self.rng.random() < 0.5 else 1
        return self._activated(self.f.divide_by(self.f.mean_sum(x, kept), float(np.prod(x.shape[kept:]))))

    def _binary(self, kind: str) -> Value | None:
        rng = self.rng
        position = self._pick(2, 3, 4)
        assert position is not None
        x, y = self._read(position), self._read(self._alike(position))
        if kind == "add" and rng.random() < 0.2:
            return self._activated(self.f.binary("sub", x, y))
        return self._activated(self.f.binary(kind, x, y), position)

    def _gate(self, kind: str) -> Value | None:
        """A tensor times one number a channel, as squeeze and excite do."""
        position = self._pick(4)
        if position is None:
            return None
        shape = self.stored[position].shape[:2]
        found = [i for i, v in enumerate(self.stored) if v.shape == shape]
        if not found:
            return None
        return self.f.binary("mul", self._read(position), self._read(int(self.rng.choice(found))), [0, 1])

    def _concat(self, kind: str) -> Value | None:
        position = self._pick(2, 3, 4)
        assert position is not None
        axis = 1
        values = [self._read(position), self._read(self._alike(position, axis))]
        if self.rng.random() < 0.25:
            values.append(self._read(self._alike(position, axis)))
        return self._activated(self.f.concat(values, axis))

    def _layout(self, kind: str) -> Value | None:
        f, rng = self.f, self.rng
        position = self._pick(2, 3, 4)
        assert position is not None
        x = self._read(position)
        move = str(rng.choice(("transpose", "reshape", "slice", "pad")))
        if move == "transpose":
            x = f.transpose(x, tuple(int(p) for p in rng.permutation(x.rank)))
        elif move == "slice":
            strides = [int(rng.choice((1, 1, 2))) if n > 2 else 1 for n in x.shape]
            offsets = [int(rng.integers(0, 2)) if n > 2 else 0 for n in x.shape]
            shape = tuple((n - o - 1) // t + 1 for n, o, t in zip(x.shape, offsets, strides, strict=True))
            x = f.slice(x, offsets, shape, strides)
        elif move == "pad":
            x = f.pad(x, [int(n) for n in rng.integers(0, 2, x.rank)], [int(n) for n in rng.integers(0, 2, x.rank)])
        elif x.rank == 4:
            x = f.collapse(x, [[0], [1], [2, 3]])
        elif x.rank == 3:
            x = f.collapse(x, [[0], [1, 2]])
        elif x.shape[1] % 2 == 0:
            x = f.expand(x, [[0], [1, 2]], (x.shape[0], 2, x.shape[1] // 2))
        return self._activated(x)

    def _act(self, kind: str) -> Value:
        f = self.f
        position = self._pick(2, 3, 4)
        assert position is not None
        x = self._read(position)
        which = str(self.rng.choice(("clamped", "clamped", "sigmoid", "hardswish", "scaled")))
        if which == "sigmoid":
            return f.sigmoid(x)
        if which == "hardswish":
            return f.hardswish(x)
        if which == "scaled":
            return f.scale_by(x, float(stored_scale(self.rng.uniform(0.2, 3.0))))
        return self._activated(x)
