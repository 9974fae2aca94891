"""Brings a quantized layer into the terms of a kernel's description, for `qfuse.KernelFusion`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from qfuse.emit.base import out_extents
from qfuse.emit.call import KernelCall, KernelValue
from qfuse.emit.spec import PlannedContraction
from qfuse.fusions.fixed_point import FixedPlan
from qfuse.fusions.layer import Layer
from qfuse.fusions.roles import (
    Arrangement,
    Roles,
    arrange,
    arranged_constant,
    roles_of,
)
from qfuse.graph import AccumForm, Array, Environment, Moved, Refusal
from qfuse.indexing import Extents, Index, Linear, as_dim, constant, plus
from qfuse.matchers.nodes import Convolution, Quantize

_I32 = 1 << 31
#: What is a number a dimension of the window.
_WINDOW = ("strides", "dilations", "padding")


class Description(Protocol):
    """What a layer is held against; see `qfuse.KernelFusion`."""

    call: KernelCall
    computes: str
    storage: Mapping[str, frozenset[str]]
    multiples: Mapping[str, int]
    pads: Mapping[str, int]
    limits: Mapping[str, int]
    constants: frozenset[str]


class LayerPlanner:
    """Brings one layer into the terms of a description."""

    def __init__(
        self,
        fusion: Description,
        node: Quantize,
        form: AccumForm,
        planned: PlannedContraction,
        plan: FixedPlan,
        env: Environment,
    ) -> None:
        self.fusion, self.call = fusion, fusion.call
        self.node, self.form, self.planned, self.plan, self.env = node, form, planned, plan, env
        self.sides = {"lhs": planned.lhs, "rhs": planned.rhs}
        turned = planned.lhs.array is not None and planned.rhs.array is None
        if turned and not isinstance(planned.node, Convolution):
            self.sides = {"lhs": planned.rhs, "rhs": planned.lhs}
        self.q = {name: side.form.q for name, side in self.sides.items()}
        self.index = {name: side.index for name, side in self.sides.items()}
        self.padding: tuple[int, ...] | None = None

    def layer(self) -> Layer | Refusal:
        """The layer, or what the kernel has no place for."""
        refusal = self._storage()
        if refusal is not None:
            return refusal
        refusal = self._read_padding()
        if refusal is not None:
            return refusal
        self._absorb_pad()
        roles = roles_of(self.planned, self.index["lhs"], self.index["rhs"])
        if isinstance(roles, Refusal):
            return roles
        ways = self._ways(roles)
        if isinstance(ways, Refusal):
            return ways
        letters: dict[str, int | None] = {}
        for name in ("lhs", "rhs", "result"):
            given = self._layout(name)
            if not isinstance(self.planned.node, Convolution) or name != "lhs":
                letters |= dict(zip(given, ways[name].extents, strict=True))
        refusal = self._extents(letters)
        if refusal is not None:
            return refusal
        values = self._values(roles)
        if isinstance(values, Refusal):
            return values
        constants, fills = self._padded(ways, letters)
        given = {**values, **constants}
        types = {name: self._type(name, ways[name], fills) for name in ("lhs", "rhs")}
        element = self.node.params.storage.mlir
        result = _tensor(ways["result"].extents, element)
        sizes = self._dynamic(ways["result"])
        if isinstance(sizes, Refusal):
            return sizes
        refusal = self.call.check(self.node.op, self.env, {**types, **given}, result)
        if refusal is not None:
            return refusal
        return Layer(self.form, self.plan, self.q["lhs"], self.q["rhs"], ways, fills, given, element, result, sizes)

    def _dynamic(self, way: Arrangement) -> dict[str, tuple[str, int]] | Refusal:
        """For each letter of the result whose extent is dynamic the operand and dimension that has it."""
        sizes: dict[str, tuple[str, int]] = {}
        for letter, extent in zip(self.call.result, way.extents, strict=True):
            if extent is not None:
                continue
            name = next((n for n in ("lhs", "rhs") if letter in self._layout(n)), None)
            if name is None or (letter in "dhw" and self.fusion.computes == "convolution"):
                return Refusal(f"the extent {letter} of the result is dynamic")
            sizes[letter] = name, self._layout(name).index(letter)
        return sizes

    def _layout(self, name: str) -> str:
        found = self.call.find(name)
        return self.call.result if found is None else found.layout

    def _storage(self) -> Refusal | None:
        for name in ("lhs", "rhs", "result"):
            params = self.node.params if name == "result" else self.sides[name].params
            allowed = self.fusion.storage.get(name, frozenset({"s8"}))
            if str(params.storage) not in allowed:
                return Refusal(f"takes {', '.join(sorted(allowed))} for {name}, found {params.storage}")
            if params.storage.bits not in (8, 16, 32):
                return Refusal(f"operands of 8, 16 or 32 bits, found {params.storage} for {name}")
            if name in self.fusion.constants and name != "result" and self.sides[name].array is None:
                return Refusal(f"takes a constant {name}, found one known only at run time")
        return None

    def _read_padding(self) -> Refusal | None:
        """Takes what a convolution reads around its input as the kernel's padding: its 0.0 is the zero point."""
        node = self.planned.node
        if not isinstance(node, Convolution) or not (node.spread or node.padding):
            return None
        if node.spread:
            return Refusal("the input is spread out, as of a transposed convolution")
        pads: dict[int, tuple[int, int]] = {}
        for expr, around in zip(node.lhs_index, node.padding, strict=True):
            moved = [atom.position for atom, _ in expr.terms if atom.position in self.planned.out_loops]
            if any(around) and (len(expr.terms) != 2 or len(moved) != 1):
                return Refusal("the window is not one position and one place in it a dimension")
            pads |= dict.fromkeys(moved, around)
        out = self.planned.out_loops
        read: list[Linear] = []
        found: dict[int, tuple[int, int]] = {}
        for position, expr in enumerate(self.index["lhs"]):
            if len(expr.terms) != 2:
                read.append(expr)
                continue
            place = self._moved(self.index["lhs"], position)
            found[place] = pads[out[place]]
            read.append(plus(expr, constant(found[place][0])))
        self.index["lhs"] = tuple(read)
        self.padding = tuple(n for place in sorted(found) for n in found[place])
        return None

    def _absorb_pad(self) -> None:
        """Reads the first operand through a pad by the zero point where the kernel takes the padding."""
        q, zero = self.q["lhs"], self.sides["lhs"].params.zero_point.scalar
        if self.call.find("padding") is None or not isinstance(q, Moved) or q.layout.op.name != "tensor.pad":
            return
        if not isinstance(q.fill, int) or zero is None or q.fill != int(zero):
            return
        low, high = (list(q.layout.op.attributes[f"static_{end}"]) for end in ("low", "high"))
        inner, read = q.inputs[0]
        places = [as_dim(e) for e in read]
        outer = self.index["lhs"]
        window = [i for i, e in enumerate(outer) if len(e.terms) == 2]
        padded = {i for i in range(len(low)) if low[i] or high[i]}
        if min(low + high) < 0 or None in places or len(set(places)) != len(outer) or not padded <= set(window):
            return
        self.q["lhs"] = inner
        self.index["lhs"] = tuple(outer[p] for p in places if p is not None)
        order = sorted(window, key=lambda i: self._moved(outer, i))
        own = self.padding or (0, 0) * len(window)
        around = [int(n) for i in order for n in (low[i], high[i])]
        self.padding = tuple(a + b for a, b in zip(own, around, strict=True))

    def _moved(self, index: Index, position: int) -> int:
        """Which dimension of the accumulators a window's dimension moves along."""
        out = self.planned.out_loops
        return next((out.index(a.position) for a, _ in index[position].terms if a.position in out), 0)

    def _ways(self, roles: Roles) -> dict[str, Arrangement] | Refusal:
        ways: dict[str, Arrangement] = {}
        own = {"lhs": roles.lhs, "rhs": roles.rhs}
        for name, dims in own.items():
            extents = self._own_extents(name)
            found = arrange(name, dims, extents, self._layout(name))
            if isinstance(found, Refusal):
                return found
            ways[name] = found
        extents = out_extents(self.planned.extents, self.planned.out_loops)
        found = arrange("result", roles.out, extents, self.call.result)
        if isinstance(found, Refusal):
            return found
        ways["result"] = found
        return ways

    def _own_extents(self, name: str) -> tuple[int | None, ...]:
        """Extents of the stored integers of an operand."""
        return self.env.extents_of(self.q[name])

    def _extents(self, letters: Mapping[str, int | None]) -> Refusal | None:
        fusion = self.fusion
        for letter, extent in letters.items():
            multiple, limit = fusion.multiples.get(letter, 1), fusion.limits.get(letter)
            shown = "a dynamic one" if extent is None else str(extent)
            if multiple > 1 and (extent is None or extent % multiple):
                return Refusal(f"takes a multiple of {multiple} for {letter}, found {shown}")
            if limit is not None and (extent is None or extent > limit):
                return Refusal(f"takes at most {limit} for {letter}, found {shown}")
            if letter in fusion.pads and (extent is None or self._weights() is None):
                return Refusal(f"{letter} can be padded where it is static and the weights are constant")
            if letter in fusion.pads and not self.sides["rhs"].params.symmetric:
                return Refusal(f"{letter} can be padded where the weights have no zero point")
        return None

    def _weights(self) -> Array | None:
        """Constant integers of the second operand as they are stored."""
        side = self.sides["rhs"]
        return None if side.array is None else self.env.array(self.q["rhs"], side.storage)

    # -- values ------------------------------------------------------------------------------------------------

    def _values(self, roles: Roles) -> dict[str, Any] | Refusal:
        """All numbers and constant arrays that the kernel is given."""
        scale, params = self.plan.scale, self.node.params
        zeros = {name: self.sides[name].params.zero_point.scalar for name in ("lhs", "rhs")}
        if None in zeros.values():
            return Refusal("takes one constant zero point an operand")
        one = (1,) * len(self.planned.out_loops)
        window = len(roles.strides)
        found: dict[str, Any] = {
            "multiplier": scale.multiplier.mantissa,
            "shift": scale.multiplier.shift,
            "lhs_zero_point": np.full(one, int(zeros["lhs"] or 0)),
            "rhs_zero_point": np.full(one, int(zeros["rhs"] or 0)),
            "result_zero_point": scale.zero_point,
            "result_min": scale.low,
            "result_max": scale.high,
            "bias": scale.bias,
            "strides": roles.strides,
            "dilations": roles.dilations,
            "padding": self.padding or (0, 0) * window,
        }
        folded = self._folded(int(zeros["lhs"] or 0), int(zeros["rhs"] or 0))
        if isinstance(folded, Refusal):
            return folded
        if folded is not None:
            found["folded_bias"] = folded
            del found["bias"]
            if self.call.find("lhs_zero_point") is None:
                del found["lhs_zero_point"]
        neutral = {"bias": 0, "lhs_zero_point": 0, "rhs_zero_point": 0, "result_zero_point": 0, "strides": 1,
                   "dilations": 1, "padding": 0, "multiplier": 1,
                   "result_min": params.storage.min, "result_max": params.storage.max}  # fmt: skip
        values: dict[str, Any] = {}
        for name, value in found.items():
            given = self.call.find(name)
            if given is None:
                if not bool((np.asarray(value) == neutral.get(name)).all()):
                    return Refusal(f"takes no {name}, found {_shown(value)}")
                continue
            placed = value if name in _WINDOW else self._placed(given, value, roles)
            if isinstance(placed, Refusal):
                return placed
            values[name] = placed
        return values

    def _folded(self, zero: int, weight_zero: int) -> Array | Refusal | None:
        """The bias with the zero point of the first operand folded into it, where the kernel wants it like that."""
        if self.call.find("folded_bias") is None:
            return None
        bias, side = self.plan.scale.bias, self.sides["rhs"]
        if not zero:
            return bias
        if side.array is None:
            return Refusal("takes the zero point of lhs as part of the bias, and the weights are not constant")
        loops = [as_dim(e) for e in side.index]
        used = [d for d in loops if d is not None and d not in self.planned.reduction]
        axes = tuple(i for i, d in enumerate(loops) if d is None or d in self.planned.reduction)
        weights = side.array.astype(np.int64) - weight_zero
        sums = weights.sum(axis=axes)
        out = self.planned.out_loops
        order = sorted(range(len(used)), key=lambda i: out.index(used[i]))
        shape = [1] * len(out)
        for axis in order:
            shape[out.index(used[axis])] = sums.shape[axis]
        folded = bias - zero * sums.transpose(order).reshape(shape)
        lhs = self.sides["lhs"].form
        largest = max(abs(lhs.low), abs(lhs.high)) * int(np.abs(weights).sum(axis=axes).max(initial=0))
        reach = largest + int(np.abs(folded).max(initial=0))
        return folded if reach < _I32 else Refusal(f"products and bias can reach {reach}, which does not fit i32")

    def _placed(self, given: KernelValue, array: Array, roles: Roles) -> Array | int | Refusal:
        """An array over the accumulators' dimensions (extent 1 where nothing varies) in the layout it is taken in."""
        if array.size and bool((array == array.reshape(-1)[0]).all()):
            array = array.reshape(-1)[:1].reshape((1,) * array.ndim)
        lowest, highest = int(array.min(initial=0)), int(array.max(initial=0))
        bits = int((given.element or "i32")[1:])
        if lowest < -(1 << (bits - 1)) or highest >= 1 << (bits - 1):
            return Refusal(f"takes {given.element} for {given.name}, found {_shown(array)}")
        varying = "".join(letter for (letter, _), n in zip(roles.out, array.shape, strict=True) if n != 1)
        if not given.layout:
            if array.size != 1:
                return Refusal(f"takes one {given.name}, found one for each of {varying}")
            return int(array.reshape(-1)[0])
        if set(varying) - set(given.layout):
            return Refusal(f"takes {given.name} along {given.layout}, found it along {varying}")
        extents = out_extents(self.planned.extents, self.planned.out_loops)
        if any(n is None for (letter, _), n in zip(roles.out, extents, strict=True) if letter in given.layout):
            return Refusal(f"takes {given.name} along {given.layout}, whose extent is dynamic")
        full = [n or 1 if letter in given.layout else 1 for (letter, _), n in zip(roles.out, extents, strict=True)]
        whole = np.broadcast_to(array, full)
        way = arrange(given.name, roles.out, tuple(full), given.layout)
        return way if isinstance(way, Refusal) else arranged_constant(whole, way)

    def _padded(
        self, ways: Mapping[str, Arrangement], letters: Mapping[str, int | None]
    ) -> tuple[dict[str, Array], dict[str, tuple[tuple[int, ...], str]]]:
        """Constant operands in their layouts, and what is padded at run time."""
        constants: dict[str, Array] = {}
        fills: dict[str, tuple[tuple[int, ...], str]] = {}
        for name, side in self.sides.items():
            more = tuple(-(letters.get(c) or 0) % self.fusion.pads.get(c, 1) for c in self._layout(name))
            raw = self.env.array(self.q[name], side.storage)
            zero = int(side.params.zero_point.scalar or 0)
            if raw is not None:
                array = arranged_constant(raw, ways[name])
                constants[name] = np.pad(array, [(0, n) for n in more], constant_values=zero).astype(
                    f"int{side.storage.bits}"
                )
            elif any(more):
                fills[name] = more, f"{_signed(zero, side.storage.bits)} : {side.storage.mlir}"
        return constants, fills

    def _type(
        self,
        name: str,
        way: Arrangement,
        fills: Mapping[str, tuple[tuple[int, ...], str]],
    ) -> str:
        more = fills[name][0] if name in fills else (0,) * len(way.extents)
        extents = tuple(None if n is None else n + m for n, m in zip(way.extents, more, strict=True))
        return _tensor(extents, self.sides[name].storage.mlir)


def _tensor(extents: Extents, element: str) -> str:
    return f"tensor<{''.join('?x' if n is None else f'{n}x' for n in extents)}{element}>"


def _signed(number: int, bits: int) -> int:
    return number - (1 << bits) if number >= 1 << (bits - 1) else number


def _shown(value: Any) -> str:
    least, most = int(np.min(value)), int(np.max(value))
    return str(least) if least == most else f"{least} to {most}"


__all__ = ["LayerPlanner"]
