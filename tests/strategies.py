"""Writes unfused QDQ functions as torch-mlir spells them, each with its reference in real arithmetic.

    f = Function("linear")
    x = f.argument((4, 16), Grid(scale=0.5, zero=3))            # i8 tensor, values drawn from the grid's range
    w = f.weight((8, 16), Grid(scale=ones(8), axes=(0,)), rng)  # i8 constant
    y = f.matmul(f.dequantize(x), f.transpose(f.dequantize(w), (1, 0)))
    f.results(f.quantize(y, Grid(scale=0.25)))

Every value carries its text and how to evaluate it. A float value is evaluated to a `Real`: its exact value (float64)
and the largest intermediate that any order of evaluation meets, which is what rounding errors are relative to. A
quantize records how far the real value was from the nearest rounding boundary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

Array: TypeAlias = np.ndarray[Any, Any]

FLOAT_DIGITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
_NUMPY_FLOAT = {"f64": np.float64, "f32": np.float32, "f16": np.float16}
_NUMPY_INT = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


# -- descriptions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Grid:
    """How a tensor is quantized.

    Attributes:
        bits: width of the storage.
        signed: its signedness.
        low: least stored integer; that of the type when None.
        high: greatest one.
        axes: dimensions along which scale and zero point vary; `()` for one of each.
        group: size of the groups along the last of `axes`, or None for one an index.
        scale: a number, or an array with an axis for each of `axes` (number of groups along the last).
        zero: zero point(s) likewise; None when the spelling has none.
        run_time: how the parameters arrive: "" as constants, `tensor` as arguments of full shape, `scalar` as captured
            scalar arguments, `one` as one-element tensors, `extract` as rank-0 tensors read outside.
        zero_type: element type of zero points that are tensors.
        form: `fused` (one generic) or `steps` (torchao's: expanded groups, a generic a step, float subtraction).
    """

    bits: int = 8
    signed: bool = True
    low: int | None = None
    high: int | None = None
    axes: tuple[int, ...] = ()
    group: int | None = None
    scale: Any = 0.5
    zero: Any = None
    run_time: str = ""
    zero_type: str = "i64"
    form: str = "fused"

    @property
    def range(self) -> tuple[int, int]:
        """Least and greatest stored integer."""
        low = (-(1 << (self.bits - 1)) if self.signed else 0) if self.low is None else self.low
        high = ((1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1) if self.high is None else self.high
        return low, high

    @property
    def element(self) -> str:
        """The MLIR type of the storage."""
        return f"i{self.bits}"

    def param_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of scale and zero point for data of `shape`."""
        sizes = [shape[a] for a in self.axes]
        if self.group is not None:
            sizes[-1] //= self.group
        return tuple(sizes)

    def spread(self, values: Any, shape: Sequence[int]) -> Array:
        """A parameter as an array that broadcasts over data of `shape`."""
        array = np.asarray(values, np.float64)
        if not self.axes:
            return array.reshape(())
        array = np.broadcast_to(array, self.param_shape(shape))
        if self.group is not None:
            array = np.repeat(array, self.group, axis=-1)
        full = [1] * len(shape)
        order = np.argsort(self.axes)
        for axis in self.axes:
            full[axis] = shape[axis]
        return array.transpose(order).reshape(full)

    def storage_values(self, array: Array) -> Array:
        """Integers as numpy's signless view of the storage, which is what IREE takes."""
        return np.asarray(array).astype(np.int64).astype(_NUMPY_INT[self.bits])


@dataclass(frozen=True, eq=False)
class Real:
    """A float value: exact, and the largest intermediate behind it (both broadcast to the value's shape)."""

    value: Array
    magnitude: Array

    def moved(self, move: Callable[[Array], Array]) -> Real:
        """The same layout operation on both."""
        return Real(move(self.value), move(np.broadcast_to(self.magnitude, self.value.shape)))


@dataclass(frozen=True, eq=False)
class Stored:
    """What a quantize should give.

    Attributes:
        value: the integers of the reference.
        distance: of the real value to the nearest rounding boundary, in steps.
        magnitude: the largest intermediate, in steps.
    """

    value: Array
    distance: Array
    magnitude: Array


Evaluated: TypeAlias = "Real | Stored | Array"


@dataclass(frozen=True, eq=False)
class Value:
    """An SSA value of a function under construction.

    Attributes:
        ssa: its name.
        element: printed element type.
        shape: its extents at run time.
        sizes: names of the index values of dynamic extents, None for static ones.
        evaluate: the reference, given the values of everything before.
        grid: of integers that were quantized.
    """

    ssa: str
    element: str
    shape: tuple[int, ...]
    sizes: tuple[str | None, ...]
    evaluate: Callable[[Evaluation], Evaluated]
    grid: Grid | None = None

    @property
    def type(self) -> str:
        """The printed tensor type."""
        return tensor_type(self.shape, self.sizes, self.element)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)


def tensor_type(shape: Sequence[int], sizes: Sequence[str | None], element: str) -> str:
    """`tensor<4x?xi8>`."""
    return "tensor<" + "".join("?x" if s else f"{n}x" for n, s in zip(shape, sizes, strict=True)) + element + ">"


class Evaluation:
    """One evaluation of a function's reference: inputs, results so far, integers that were observed."""

    def __init__(self, inputs: Mapping[str, Array], observed: Mapping[str, Array] | None = None) -> None:
        """Evaluates with `observed` stored integers in place of the reference's, by SSA name."""
        self.inputs = inputs
        self.observed = {} if observed is None else observed
        self._known: dict[str, Evaluated] = {}

    def of(self, value: Value) -> Evaluated:
        """The reference of a value."""
        if value.ssa not in self._known:
            self._known[value.ssa] = value.evaluate(self)
        return self._known[value.ssa]

    def real(self, value: Value) -> Real:
        """The reference of a float value."""
        found = self.of(value)
        assert isinstance(found, Real)
        return found

    def integers(self, value: Value) -> Array:
        """The integers of a stored value: those observed, if any."""
        found = self.of(value)
        if value.ssa in self.observed:
            return self.observed[value.ssa]
        if isinstance(found, Stored):
            return found.value
        assert isinstance(found, np.ndarray)
        return found


@dataclass(frozen=True, eq=False)
class Argument:
    """An argument of a function: its type and how to draw a value, given a generator and a kind of input."""

    ssa: str
    type: str
    sample: Callable[[np.random.Generator, str], Any]


def as_real(array: Any) -> Real:
    """Floats that are exact."""
    value = np.asarray(array, np.float64)
    return Real(value, np.abs(value))


def dense(array: Array) -> str:
    """A `dense` literal of any numpy array, by its bytes."""
    array = np.ascontiguousarray(array)
    if array.ndim == 0 or array.size == 1:
        item = array.reshape(-1)[0]
        if array.dtype.kind == "f":
            width = array.dtype.itemsize
            return f"dense<0x{int(item.view(f'u{width}')):0{2 * width}X}>"
        return f"dense<{int(item)}>"
    return f'dense<"0x{array.tobytes().hex().upper()}">'


def float_literal(number: float, element: str) -> str:
    """A float constant with all its bits."""
    if element == "bf16":
        return f"{number:e} : bf16"
    array = np.asarray(number, _NUMPY_FLOAT[element])
    width = array.dtype.itemsize
    return f"0x{int(array.view(f'u{width}')):0{2 * width}X} : {element}"


def round_to(array: Any, element: str) -> Array:
    """Numbers rounded to a float type, as float64."""
    if element == "bf16":
        bits = np.asarray(array, np.float32).view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return rounded.astype(np.uint32).view(np.float32).astype(np.float64)
    return np.asarray(array, _NUMPY_FLOAT[element]).astype(np.float64)


# -- functions -------------------------------------------------------------------------------------------------------


class Function:
    """A function under construction: text and reference side by side."""

    def __init__(self, name: str, seed: int = 0) -> None:
        """An empty function; `seed` is that of its weights."""
        self.name = name
        self.rng = np.random.default_rng([seed, *name.encode()])
        self.arguments: list[Argument] = []
        self.lines: list[str] = []
        self.returned: tuple[Value, ...] = ()
        self._count = 0

    # -- text ----------------------------------------------------------------------------------------------------

    def fresh(self, stem: str = "v") -> str:
        """A new SSA name."""
        self._count += 1
        return f"%{stem}{self._count}"

    def line(self, text: str) -> None:
        """Appends one operation."""
        self.lines.append("    " + text)

    def scalar(self, literal: str) -> str:
        """A scalar constant."""
        name = self.fresh("c")
        self.line(f"{name} = arith.constant {literal}")
        return name

    def empty(self, shape: Sequence[int], sizes: Sequence[str | None], element: str) -> str:
        """A `tensor.empty`."""
        name = self.fresh("e")
        given = ", ".join(s for s in sizes if s)
        self.line(f"{name} = tensor.empty({given}) : {tensor_type(shape, sizes, element)}")
        return name

    def zeros(self, shape: Sequence[int], sizes: Sequence[str | None], element: str) -> str:
        """A tensor filled with 0.0."""
        init = self.empty(shape, sizes, element)
        zero = self.scalar(f"0.000000e+00 : {element}")
        name = self.fresh("z")
        type_ = tensor_type(shape, sizes, element)
        self.line(f"{name} = linalg.fill ins({zero} : {element}) outs({init} : {type_}) -> {type_}")
        return name

    def generic(
        self,
        inputs: Sequence[tuple[str, str, str]],
        out: tuple[str, str, str],
        iterators: str,
        body: Callable[[Callable[[str], str], Sequence[str]], str],
    ) -> str:
        """A `linalg.generic`: operands as `(ssa, type, map)`, iterators `p` or `r`; the body returns what it yields."""
        maps = ", ".join(f"affine_map<{m}>" for _, _, m in [*inputs, out])
        kinds = ", ".join('"parallel"' if i == "p" else '"reduction"' for i in iterators)
        elements = [t.removesuffix(">").rpartition("x")[2].removeprefix("tensor<") for _, t, _ in [*inputs, out]]
        names = [self.fresh("b") for _ in elements]
        lines: list[str] = []

        def emit(operation: str) -> str:
            name = self.fresh("b")
            lines.append(f"      {name} = {operation}")
            return name

        yielded = body(emit, names)
        result = self.fresh("g")
        ins = f"ins({', '.join(n for n, _, _ in inputs)} : {', '.join(t for _, t, _ in inputs)}) " if inputs else ""
        self.line(
            f"{result} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} "
            f"{ins}outs({out[0]} : {out[1]}) {{"
        )
        self.lines.append(f"    ^bb0({', '.join(f'{n}: {e}' for n, e in zip(names, elements, strict=True))}):")
        self.lines += lines
        self.lines.append(f"      linalg.yield {yielded} : {elements[-1]}")
        self.lines.append(f"    }} -> {out[1]}")
        return result

    @property
    def text(self) -> str:
        """The module."""
        arguments = ", ".join(f"{a.ssa}: {a.type}" for a in self.arguments)
        types = ", ".join(v.type for v in self.returned)
        lines = [
            f"  func.func @{self.name}({arguments}) -> ({types}) {{",
            *self.lines,
            f"    return {', '.join(v.ssa for v in self.returned)} : {types}",
            "  }",
        ]
        return "module {\n" + "\n".join(lines) + "\n}\n"

    def results(self, *values: Value) -> Function:
        """Ends the function."""
        self.returned = values
        return self

    def sample(self, rng: np.random.Generator, kind: str = "random") -> dict[str, Any]:
        """One set of inputs by argument name; `kind` is `random`, `low`, `high` or `extremes`."""
        return {a.ssa: a.sample(rng, kind) for a in self.arguments}

    # -- sources -------------------------------------------------------------------------------------------------

    def _add_argument(self, type_: str, sample: Callable[[np.random.Generator, str], Any], stem: str) -> str:
        name = f"%arg_{stem}{len(self.arguments)}"
        self.arguments.append(Argument(name, type_, sample))
        return name

    def _sizes_of(self, name: str, shape: Sequence[int], dynamic: Sequence[int], type_: str) -> tuple[str | None, ...]:
        sizes: list[str | None] = [None] * len(shape)
        for position in dynamic:
            index = self.scalar(f"{position} : index")
            size = self.fresh("d")
            self.line(f"{size} = tensor.dim {name}, {index} : {type_}")
            sizes[position] = size
        return tuple(sizes)

    def argument(self, shape: tuple[int, ...], grid: Grid, dynamic: Sequence[int] = ()) -> Value:
        """An integer argument drawn from the grid's range."""
        marks = tuple("?" if i in dynamic else None for i in range(len(shape)))
        type_ = tensor_type(shape, marks, grid.element)
        name = self._add_argument(type_, lambda rng, kind: grid.storage_values(draw(rng, kind, grid, shape)), "q")
        sizes = self._sizes_of(name, shape, dynamic, type_)

        def evaluate(run: Evaluation) -> Array:
            return unsigned_view(run.inputs[name], grid)

        return Value(name, grid.element, shape, sizes, evaluate, grid)

    def weight(self, shape: tuple[int, ...], grid: Grid, values: Array | None = None) -> Value:
        """An integer constant."""
        array = draw(self.rng, "random", grid, shape) if values is None else np.asarray(values, np.int64)
        name = self.fresh("w")
        none = (None,) * len(shape)
        self.line(
            f"{name} = arith.constant {dense(grid.storage_values(array))} : {tensor_type(shape, none, grid.element)}"
        )
        return Value(name, grid.element, shape, none, lambda _: array, grid)

    def float_argument(
        self,
        shape: tuple[int, ...],
        draw_values: Callable[[np.random.Generator], Any],
        element: str = "f32",
        dynamic: Sequence[int] = (),
    ) -> Value:
        """A float argument."""
        marks = tuple("?" if i in dynamic else None for i in range(len(shape)))
        type_ = tensor_type(shape, marks, element)
        dtype = _NUMPY_FLOAT[element]

        def sample(rng: np.random.Generator, kind: str) -> Array:
            return np.broadcast_to(np.asarray(draw_values(rng), dtype), shape).copy()

        name = self._add_argument(type_, sample, "x")
        sizes = self._sizes_of(name, shape, dynamic, type_)
        return Value(name, element, shape, sizes, lambda run: as_real(run.inputs[name]))

    def float_constant(self, array: Array, element: str = "f32") -> Value:
        """A float constant."""
        typed = np.asarray(array, _NUMPY_FLOAT[element])
        name = self.fresh("k")
        none = (None,) * typed.ndim
        self.line(f"{name} = arith.constant {dense(typed)} : {tensor_type(typed.shape, none, element)}")
        return Value(name, element, typed.shape, none, lambda _: as_real(typed))

    # -- quantize and dequantize -----------------------------------------------------------------------------------

    def _param(
        self, grid: Grid, values: Any, shape: tuple[int, ...], element: str, stem: str
    ) -> tuple[str, str | None, str]:
        """`(ssa, tensor type or None for a scalar, results of its map)` of a scale or zero point."""
        dtype = _NUMPY_FLOAT.get(element) or _NUMPY_INT[int(element[1:])]
        array = np.asarray(np.broadcast_to(values, grid.param_shape(shape)), dtype)
        reads = [f"d{a}" for a in grid.axes]
        if grid.group is not None:
            reads[-1] += f" floordiv {grid.group}"
        none = (None,) * array.ndim
        type_ = tensor_type(array.shape, none, element)
        kind = grid.run_time
        if grid.axes:
            if kind:
                return self._add_argument(type_, lambda *_: array, stem), type_, ", ".join(reads)
            name = self.fresh(stem)
            self.line(f"{name} = arith.constant {dense(array)} : {type_}")
            return name, type_, ", ".join(reads)
        number = array.item()
        if kind == "scalar":
            return self._add_argument(element, lambda *_: number, stem), None, ""
        if kind in ("one", "tensor"):
            one = f"tensor<1x{element}>"
            return self._add_argument(one, lambda *_: array.reshape(1), stem), one, "0"
        if kind == "extract":
            rank0 = f"tensor<{element}>"
            source = self._add_argument(rank0, lambda *_: array, stem)
            name = self.fresh(stem)
            self.line(f"{name} = tensor.extract {source}[] : {rank0}")
            return name, None, ""
        literal = float_literal(number, element) if element in _NUMPY_FLOAT else f"{number} : {element}"
        return self.scalar(literal), None, ""

    def dequantize(self, q: Value, expressed: str = "f32", grid: Grid | None = None, scale_type: str = "f32") -> Value:
        """Forms D1 to D5: a dequantize of `q`'s grid (or of another)."""
        grid = q.grid if grid is None else grid
        assert grid is not None
        if grid.form == "steps":
            return self._dequantize_in_steps(q, grid)
        scale_type = "f64" if expressed == "f64" else scale_type
        rank = q.rank
        dims = ", ".join(f"d{i}" for i in range(rank))
        scale = self._param(grid, grid.scale, q.shape, scale_type, "s")
        zero = None
        zero_type = grid.zero_type if grid.axes or grid.run_time else "i64"
        if grid.zero is not None and (grid.axes or grid.run_time or grid.zero != 0):
            zero = self._param(grid, grid.zero, q.shape, zero_type, "zp")
        inputs = [(q.ssa, q.type, f"({dims}) -> ({dims})")]
        inputs += [(p[0], p[1], f"({dims}) -> ({p[2]})") for p in (scale, zero) if p is not None and p[1] is not None]
        out = (self.empty(q.shape, q.sizes, expressed), tensor_type(q.shape, q.sizes, expressed), inputs[0][2])
        ext, to_float = ("arith.extsi", "arith.sitofp") if grid.signed else ("arith.extui", "arith.uitofp")
        compute = scale_type

        def body(emit: Callable[[str], str], args: Sequence[str]) -> str:
            rest = list(args[1:-1])
            s = rest.pop(0) if scale[1] is not None else scale[0]
            x = args[0]
            if zero is None:
                x = emit(f"{to_float} {x} : {q.element} to {compute}")
            else:
                z = rest.pop(0) if zero[1] is not None else zero[0]
                bits = max(grid.bits, int(zero_type[1:]))
                wide = bits if bits > grid.bits and bits == int(zero_type[1:]) else 2 * bits
                if grid.bits < wide:
                    x = emit(f"{ext} {x} : {q.element} to i{wide}")
                if int(zero_type[1:]) < wide:
                    z = emit(f"arith.extsi {z} : {zero_type} to i{wide}")
                x = emit(f"arith.subi {x}, {z} : i{wide}")
                x = emit(f"arith.sitofp {x} : i{wide} to {compute}")
            x = emit(f"arith.mulf {x}, {s} : {compute}")
            return (
                x if compute == expressed else emit(f"arith.{_cast(compute, expressed)} {x} : {compute} to {expressed}")
            )

        name = self.generic(inputs, out, "p" * rank, body)
        return Value(name, expressed, q.shape, q.sizes, _dequantized(q, grid, scale_type))

    def _dequantize_in_steps(self, q: Value, grid: Grid) -> Value:
        """Form D4: groups are a dimension of their own, one generic a step, the subtraction in float."""
        axis, size = grid.axes[-1], grid.group or 1
        assert axis == q.rank - 1
        count = q.shape[-1] // size
        groups = [[i] for i in range(axis)] + [[axis, axis + 1]]
        x = self.expand(q, groups, (*q.shape[:-1], count, size))
        params = replace(grid, axes=tuple(range(x.rank)), group=None)
        shape = (*(n if i in grid.axes else 1 for i, n in enumerate(q.shape[:-1])), count, 1)
        reads = ["0" if n == 1 else f"d{i}" for i, n in enumerate(shape)]
        dims = ", ".join(f"d{i}" for i in range(x.rank))
        ident, across = f"({dims}) -> ({dims})", f"({dims}) -> ({', '.join(reads)})"
        own = f"({dims}) -> ({dims})"
        to_float = "sitofp" if grid.signed else "uitofp"

        def step(
            operands: Sequence[Value | tuple[str, str, str]], like: Value, text: str, element: str = "f32"
        ) -> Value:
            inputs = [(o.ssa, o.type, ident) if isinstance(o, Value) else o for o in operands]
            out = (self.empty(like.shape, like.sizes, element), tensor_type(like.shape, like.sizes, element), ident)
            name = self.generic(inputs, out, "p" * like.rank, lambda emit, a: emit(text.format(*a)))
            return Value(name, element, like.shape, like.sizes, lambda _: np.zeros(()))

        x = step([x], x, f"arith.{to_float} {{0}} : {x.element} to f32")
        if grid.zero is not None:
            z = self._param(params, np.asarray(grid.zero).reshape(shape), shape, grid.zero_type, "zp")
            zf = Value(z[0], grid.zero_type, shape, (None,) * len(shape), lambda _: np.zeros(()))
            zf = step([(zf.ssa, zf.type, own)], zf, f"arith.sitofp {{0}} : {grid.zero_type} to f32")
            x = step([x, (zf.ssa, zf.type, across)], x, "arith.subf {0}, {1} : f32")
        s = self._param(params, np.asarray(grid.scale).reshape(shape), shape, "f32", "s")
        x = step([x, (s[0], s[1] or "", across)], x, "arith.mulf {0}, {1} : f32")
        name = self.fresh("r")
        type_ = tensor_type(q.shape, q.sizes, "f32")
        self.line(f"{name} = tensor.collapse_shape {x.ssa} {groups} : {x.type} into {type_}")
        return Value(name, "f32", q.shape, q.sizes, _dequantized(q, grid, "f32"))

    def quantize(self, x: Value, grid: Grid) -> Value:
        """Forms Q1 and Q2: divide, round half to even, add the zero point, clamp, cast."""
        low, high = grid.range
        element = x.element
        dims = ", ".join(f"d{i}" for i in range(x.rank))
        scale = self._param(grid, grid.scale, x.shape, element, "s")
        zero = 0 if grid.zero is None else grid.zero
        tensor_zero = bool(grid.axes or grid.run_time)
        z = self._param(grid, zero, x.shape, "i64" if tensor_zero else element, "zp")
        least, most = self.scalar(float_literal(low, element)), self.scalar(float_literal(high, element))
        inputs = [(x.ssa, x.type, f"({dims}) -> ({dims})")]
        inputs += [(p[0], p[1], f"({dims}) -> ({p[2]})") for p in (scale, z) if p[1] is not None]
        out = (self.empty(x.shape, x.sizes, grid.element), tensor_type(x.shape, x.sizes, grid.element), inputs[0][2])

        def body(emit: Callable[[str], str], args: Sequence[str]) -> str:
            rest = list(args[1:-1])
            s = rest.pop(0) if scale[1] is not None else scale[0]
            offset = rest.pop(0) if z[1] is not None else z[0]
            if tensor_zero:
                offset = emit(f"arith.sitofp {offset} : i64 to {element}")
            v = emit(f"arith.divf {args[0]}, {s} : {element}")
            v = emit(f"math.roundeven {v} : {element}")
            v = emit(f"arith.addf {v}, {offset} : {element}")
            v = emit(f"arith.maximumf {v}, {least} : {element}")
            v = emit(f"arith.minimumf {v}, {most} : {element}")
            return emit(f"arith.{'fptosi' if grid.signed else 'fptoui'} {v} : {element} to {grid.element}")

        name = self.generic(inputs, out, "p" * x.rank, body)

        def evaluate(run: Evaluation) -> Stored:
            real = run.real(x)
            s = grid.spread(round_to(grid.scale, element), x.shape)
            offset = grid.spread(zero, x.shape)
            steps = real.value / s
            value = np.clip(np.rint(steps) + offset, low, high).astype(np.int64)
            distance = np.abs(np.abs(steps - np.floor(steps)) - 0.5)
            return Stored(value, distance, np.broadcast_to(real.magnitude / s, steps.shape))

        return Value(name, grid.element, x.shape, x.sizes, evaluate, grid)

    # -- contractions ------------------------------------------------------------------------------------------------

    def contract(
        self, lhs: Value, rhs: Value, loops: str, spelling: str = "matmul", init: Value | None = None, out: str = "f32"
    ) -> Value:
        """A product summed over the `loops`, given as in einsum (`mk,kn->mn`).

        Args:
            lhs: first operand.
            rhs: second operand.
            loops: of the operands and the result.
            spelling: a named operation, `generic`, `contract`, or `reduce` (one operation multiplies, the next adds).
            init: what is accumulated into, zeros when None.
            out: element type of the result.
        """
        left, right, result = _letters(loops)
        order = result + "".join(c for c in dict.fromkeys(left + right) if c not in result)
        extents: dict[str, int] = {}
        sizes: dict[str, str | None] = {}
        for letters, value in ((left, lhs), (right, rhs)):
            for letter, n, size in zip(letters, value.shape, value.sizes, strict=True):
                extents[letter] = n
                sizes[letter] = size if letter not in sizes or size is None else sizes[letter]
        shape = tuple(extents[c] for c in result)
        out_sizes = tuple(sizes[c] for c in result) if init is None else init.sizes
        type_ = tensor_type(shape, out_sizes, out)
        start = self.zeros(shape, out_sizes, out) if init is None else init.ssa
        dims = ", ".join(f"d{i}" for i in range(len(order)))
        maps = [f"({dims}) -> ({', '.join(f'd{order.index(c)}' for c in part)})" for part in (left, right, result)]
        iterators = "".join("p" if c in result else "r" for c in order)
        if spelling in ("generic", "reduce"):
            name = self._generic_product(
                lhs, rhs, (start, type_), maps, iterators, spelling, (order, extents, sizes), out
            )
        else:
            name = self.fresh("m")
            written = ", ".join(f"affine_map<{m}>" for m in maps)
            clause = (
                f" indexing_maps = [{written}]" if spelling == "contract" or _needs_maps(left, right, result) else ""
            )
            self.line(
                f"{name} = linalg.{spelling}{clause} ins({lhs.ssa}, {rhs.ssa} : {lhs.type}, {rhs.type}) "
                f"outs({start} : {type_}) -> {type_}"
            )

        def evaluate(run: Evaluation) -> Real:
            a, b = run.real(lhs), run.real(rhs)
            total = as_real(np.zeros(())) if init is None else run.real(init)
            value = np.einsum(loops, a.value, b.value, optimize=True) + total.value
            sizes_a, sizes_b = (np.broadcast_to(r.magnitude, r.value.shape) for r in (a, b))
            return Real(value, np.einsum(loops, sizes_a, sizes_b, optimize=True) + total.magnitude)

        return Value(name, out, shape, out_sizes, evaluate)

    def _generic_product(
        self,
        lhs: Value,
        rhs: Value,
        start: tuple[str, str],
        maps: Sequence[str],
        iterators: str,
        spelling: str,
        loops: tuple[str, dict[str, int], dict[str, str | None]],
        out: str,
    ) -> str:
        operands = [(lhs.ssa, lhs.type, maps[0]), (rhs.ssa, rhs.type, maps[1])]
        if spelling == "generic":
            return self.generic(
                operands, (*start, maps[2]), iterators,
                lambda emit, a: emit(f"arith.addf {a[2]}, {emit(f'arith.mulf {a[0]}, {a[1]} : {out}')} : {out}"),
            )  # fmt: skip
        order, extents, sizes = loops
        shape, dims = [extents[c] for c in order], ", ".join(f"d{i}" for i in range(len(order)))
        marks = [sizes[c] for c in order]
        identity = f"({dims}) -> ({dims})"
        full = tensor_type(shape, marks, out)
        product = self.generic(
            operands, (self.empty(shape, marks, out), full, identity), "p" * len(order),
            lambda emit, a: emit(f"arith.mulf {a[0]}, {a[1]} : {out}"),
        )  # fmt: skip
        return self.generic(
            [(product, full, identity)], (*start, maps[2]), iterators,
            lambda emit, a: emit(f"arith.addf {a[0]}, {a[1]} : {out}"),
        )  # fmt: skip

    def matmul(self, lhs: Value, rhs: Value) -> Value:
        """`linalg.matmul` of [m, k] and [k, n]."""
        return self.contract(lhs, rhs, "mk,kn->mn")

    # -- layout ------------------------------------------------------------------------------------------------------

    def _moved(
        self,
        x: Value,
        name: str,
        shape: tuple[int, ...],
        sizes: tuple[str | None, ...],
        move: Callable[[Array], Array],
        grid: Grid | None = None,
    ) -> Value:  # fmt: skip
        def evaluate(run: Evaluation) -> Evaluated:
            if x.element.startswith("i"):
                return move(run.integers(x))
            return run.real(x).moved(move)

        return Value(name, x.element, shape, sizes, evaluate, grid)

    def transpose(self, x: Value, permutation: tuple[int, ...], grid: Grid | None = None) -> Value:
        """`linalg.transpose`."""
        shape = tuple(x.shape[p] for p in permutation)
        sizes = tuple(x.sizes[p] for p in permutation)
        init = self.empty(shape, sizes, x.element)
        name = self.fresh("t")
        self.line(
            f"{name} = linalg.transpose ins({x.ssa} : {x.type}) outs({init} : {tensor_type(shape, sizes, x.element)}) "
            f"permutation = {list(permutation)}"
        )
        return self._moved(x, name, shape, sizes, lambda a: a.transpose(permutation), grid)

    def collapse(self, x: Value, groups: Sequence[Sequence[int]]) -> Value:
        """`tensor.collapse_shape`; a group with a dynamic dimension must not hold others but that of extent 1."""
        shape = tuple(math.prod(x.shape[i] for i in group) for group in groups)
        sizes = tuple(self._product_of([(x.shape[i], x.sizes[i]) for i in group]) for group in groups)
        name = self.fresh("l")
        type_ = tensor_type(shape, sizes, x.element)
        self.line(f"{name} = tensor.collapse_shape {x.ssa} {[list(g) for g in groups]} : {x.type} into {type_}")
        return self._moved(x, name, shape, sizes, lambda a: a.reshape(shape))

    def _product_of(self, parts: Sequence[tuple[int, str | None]]) -> str | None:
        if all(size is None for _, size in parts):
            return None
        total: str | None = None
        for extent, size in parts:
            factor = self.scalar(f"{extent} : index") if size is None else size
            if total is None:
                total = factor
                continue
            product = self.fresh("d")
            self.line(f"{product} = arith.muli {total}, {factor} : index")
            total = product
        return total

    def expand(
        self,
        x: Value,
        groups: Sequence[Sequence[int]],
        shape: tuple[int, ...],
        sizes: Sequence[str | None] | None = None,
    ) -> Value:
        """`tensor.expand_shape`; `sizes` names dynamic extents."""
        marks = tuple([None] * len(shape) if sizes is None else sizes)
        if sizes is None:
            marks = tuple(
                next((x.sizes[g] for g, group in enumerate(groups) if list(group) == [i]), None)
                for i in range(len(shape))
            )
        name = self.fresh("l")
        written = ", ".join(m or str(n) for n, m in zip(shape, marks, strict=True))
        type_ = tensor_type(shape, marks, x.element)
        self.line(
            f"{name} = tensor.expand_shape {x.ssa} {[list(g) for g in groups]} output_shape [{written}] "
            f": {x.type} into {type_}"
        )
        return self._moved(x, name, shape, marks, lambda a: a.reshape(shape), x.grid)

    def broadcast(
        self, x: Value, shape: tuple[int, ...], reads: Sequence[int], sizes: Sequence[str | None] = ()
    ) -> Value:
        """A copy generic that reads dimension `reads[i]` of the result for `i` of `x`."""
        marks = tuple(sizes) or (None,) * len(shape)
        dims = ", ".join(f"d{i}" for i in range(len(shape)))
        source = f"({dims}) -> ({', '.join(f'd{r}' for r in reads)})"
        out = (self.empty(shape, marks, x.element), tensor_type(shape, marks, x.element), f"({dims}) -> ({dims})")
        name = self.generic([(x.ssa, x.type, source)], out, "p" * len(shape), lambda _, a: a[0])

        def move(array: Array) -> Array:
            placed = [1] * len(shape)
            for position in reads:
                placed[position] = shape[position]
            return np.broadcast_to(array.transpose(np.argsort(reads)).reshape(placed), shape)

        return self._moved(x, name, shape, marks, move)

    def slice(self, x: Value, offsets: Sequence[int], shape: tuple[int, ...], strides: Sequence[int]) -> Value:
        """`tensor.extract_slice`; a dynamic dimension is taken whole."""
        name = self.fresh("l")
        sizes = tuple(x.sizes)
        written = ", ".join(m or str(n) for n, m in zip(shape, sizes, strict=True))
        self.line(
            f"{name} = tensor.extract_slice {x.ssa}{list(offsets)} [{written}] {list(strides)} "
            f": {x.type} to {tensor_type(shape, sizes, x.element)}"
        )
        cut = tuple(slice(o, o + (n - 1) * t + 1, t) for o, n, t in zip(offsets, shape, strides, strict=True))
        return self._moved(x, name, shape, sizes, lambda a: a[cut])

    def pad(self, x: Value, low: Sequence[int], high: Sequence[int], value: float = 0.0) -> Value:
        """`tensor.pad`."""
        shape = tuple(n + a + b for n, a, b in zip(x.shape, low, high, strict=True))
        number = self.scalar(float_literal(value, x.element))
        name = self.fresh("l")
        indices = ", ".join(f"{self.fresh('b')}: index" for _ in shape)
        self.line(f"{name} = tensor.pad {x.ssa} low{list(low)} high{list(high)} {{")
        self.line(f"^bb0({indices}):")
        self.line(f"  tensor.yield {number} : {x.element}")
        self.line(f"}} : {x.type} to {tensor_type(shape, (None,) * len(shape), x.element)}")
        widths = list(zip(low, high, strict=True))

        def evaluate(run: Evaluation) -> Real:
            real = run.real(x)
            magnitude = np.broadcast_to(real.magnitude, real.value.shape)
            # A padded element is stored as the zero point, which is an intermediate of its own.
            padded = np.pad(magnitude, widths, constant_values=magnitude.max(initial=0))
            return Real(np.pad(real.value, widths, constant_values=value), padded)

        return Value(name, x.element, shape, (None,) * len(shape), evaluate)

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """`tensor.concat`."""
        first = values[0]
        total = sum(v.shape[axis] for v in values)
        shape = (*first.shape[:axis], total, *first.shape[axis + 1 :])
        name = self.fresh("l")
        self.line(
            f"{name} = tensor.concat dim({axis}) {', '.join(v.ssa for v in values)} : "
            f"({', '.join(v.type for v in values)}) -> {tensor_type(shape, first.sizes, first.element)}"
        )

        def evaluate(run: Evaluation) -> Real:
            parts = [run.real(v) for v in values]
            magnitudes = [np.broadcast_to(p.magnitude, p.value.shape) for p in parts]
            return Real(np.concatenate([p.value for p in parts], axis), np.concatenate(magnitudes, axis))

        return Value(name, first.element, shape, first.sizes, evaluate)

    # -- elementwise -------------------------------------------------------------------------------------------------

    def _elementwise(
        self,
        x: Value,
        other: tuple[str, str, str] | None,
        body: Callable[..., str],
        evaluate: Callable[[Evaluation], Real],
        element: str | None = None,
    ) -> Value:  # fmt: skip
        element = x.element if element is None else element
        dims = ", ".join(f"d{i}" for i in range(x.rank))
        ident = f"({dims}) -> ({dims})"
        inputs = [(x.ssa, x.type, ident)] + ([] if other is None else [other])
        out = (self.empty(x.shape, x.sizes, element), tensor_type(x.shape, x.sizes, element), ident)
        name = self.generic(inputs, out, "p" * x.rank, body)
        return Value(name, element, x.shape, x.sizes, evaluate)

    def binary(
        self, kind: str, x: Value, other: Value, reads: Sequence[int] | None = None, swap: bool = False
    ) -> Value:
        """`add`, `sub` or `mul` with a tensor read at dimensions `reads` of `x` (all of them by default)."""
        reads = list(range(x.rank)) if reads is None else list(reads)
        dims = ", ".join(f"d{i}" for i in range(x.rank))
        read = (other.ssa, other.type, f"({dims}) -> ({', '.join(f'd{r}' for r in reads)})")

        def body(emit: Callable[[str], str], args: Sequence[str]) -> str:
            a, b = (args[1], args[0]) if swap else (args[0], args[1])
            return emit(f"arith.{kind}f {a}, {b} : {x.element}")

        def evaluate(run: Evaluation) -> Real:
            a, b = run.real(x), run.real(other)
            placed = [x.shape[i] if i in reads else 1 for i in range(x.rank)]
            b = b.moved(lambda array: array.transpose(np.argsort(reads)).reshape(placed))
            if kind == "mul":
                return Real(a.value * b.value, a.magnitude * np.abs(b.value))
            value = a.value + b.value if kind == "add" else a.value - b.value
            return Real(-value if swap and kind == "sub" else value, a.magnitude + b.magnitude)

        return self._elementwise(x, read, body, evaluate)

    def scale_by(self, x: Value, number: float) -> Value:
        """Times a scalar constant."""
        constant = self.scalar(float_literal(number, x.element))
        exact = round_to(number, x.element)

        def evaluate(run: Evaluation) -> Real:
            real = run.real(x)
            return Real(real.value * exact, real.magnitude * abs(float(exact)))

        return self._elementwise(
            x, None, lambda emit, a: emit(f"arith.mulf {a[0]}, {constant} : {x.element}"), evaluate
        )

    def relu(self, x: Value) -> Value:
        """`cmpf ugt x, 0; select`."""
        zero = self.scalar(f"0.000000e+00 : {x.element}")

        def body(emit: Callable[[str], str], a: Sequence[str]) -> str:
            return emit(
                f"arith.select {emit(f'arith.cmpf ugt, {a[0]}, {zero} : {x.element}')}, {a[0]}, {zero} : {x.element}"
            )

        return self._elementwise(x, None, body, lambda run: _clipped(run.real(x), 0.0, np.inf))

    def clamp(self, x: Value, low: float, high: float, spelling: str = "tensors") -> Value:
        """relu6, hardtanh: two generics with rank-0 tensors (PT2E), scalars in one generic (ONNX), or min and max."""
        element = x.element
        dims = ", ".join(f"d{i}" for i in range(x.rank))
        if spelling == "tensors":
            for bound, predicate in ((low, "ogt"), (high, "olt")):
                constant = self.float_constant(np.asarray(bound), element)

                def body(emit: Callable[[str], str], a: Sequence[str], predicate: str = predicate) -> str:
                    return emit(
                        f"arith.select {emit(f'arith.cmpf {predicate}, {a[0]}, {a[1]} : {element}')}, {a[0]}, {a[1]}"
                        f" : {element}"
                    )

                one = (constant.ssa, constant.type, f"({dims}) -> ()")
                least, most = (bound, np.inf) if predicate == "ogt" else (-np.inf, bound)
                x = self._elementwise(x, one, body, _clip_later(x, round_to(least, element), round_to(most, element)))
            return x
        least, most = (self.scalar(float_literal(b, element)) for b in (low, high))

        def one_body(emit: Callable[[str], str], a: Sequence[str]) -> str:
            if spelling == "minmax":
                return emit(f"arith.minimumf {emit(f'arith.maximumf {a[0]}, {least} : {element}')}, {most} : {element}")
            v = emit(
                f"arith.select {emit(f'arith.cmpf ult, {a[0]}, {least} : {element}')}, {least}, {a[0]} : {element}"
            )
            return emit(f"arith.select {emit(f'arith.cmpf ugt, {v}, {most} : {element}')}, {most}, {v} : {element}")

        return self._elementwise(x, None, one_body, _clip_later(x, round_to(low, element), round_to(high, element)))

    def exp_like(self, x: Value) -> Value:
        """A float operation that no fusion takes: x * x + x, so that its float users can be checked exactly."""

        def body(emit: Callable[[str], str], a: Sequence[str]) -> str:
            return emit(f"arith.addf {emit(f'arith.mulf {a[0]}, {a[0]} : {x.element}')}, {a[0]} : {x.element}")

        def evaluate(run: Evaluation) -> Real:
            real = run.real(x)
            return Real(real.value**2 + real.value, real.magnitude**2 + real.magnitude)

        return self._elementwise(x, None, body, evaluate)

    def cast(self, x: Value, element: str) -> Value:
        """`extf` or `truncf` in a generic; a truncation is part of the reference only as its rounding."""
        text = f"arith.{_cast(x.element, element)} {{0}} : {x.element} to {element}"
        return self._elementwise(x, None, lambda emit, a: emit(text.format(a[0])), lambda run: run.real(x), element)


def _cast(source: str, target: str) -> str:
    return "extf" if FLOAT_DIGITS[target] > FLOAT_DIGITS[source] else "truncf"


def _clip_later(x: Value, low: Any, high: Any) -> Callable[[Evaluation], Real]:
    return lambda run: _clipped(run.real(x), low, high)


def _clipped(real: Real, low: Any, high: Any) -> Real:
    return Real(np.clip(real.value, low, high), real.magnitude)


def _dequantized(q: Value, grid: Grid, scale_type: str) -> Callable[[Evaluation], Real]:
    def evaluate(run: Evaluation) -> Real:
        stored = run.integers(q).astype(np.float64)
        scale = grid.spread(round_to(grid.scale, scale_type), q.shape)
        zero = grid.spread(0 if grid.zero is None else grid.zero, q.shape)
        return Real((stored - zero) * scale, (np.abs(stored) + np.abs(zero)) * scale)

    return evaluate


def _letters(loops: str) -> tuple[str, str, str]:
    inputs, _, result = loops.partition("->")
    left, _, right = inputs.partition(",")
    return left, right, result


def _needs_maps(left: str, right: str, result: str) -> bool:
    plain = (("mk", "kn", "mn"), ("bmk", "bkn", "bmn"), ("mk", "k", "m"), ("k", "kn", "n"), ("k", "k", ""))
    return (left, right, result) not in plain


def unsigned_view(array: Array, grid: Grid) -> Array:
    """Stored integers as numbers, read with the grid's signedness."""
    wide = np.asarray(array).astype(np.int64)
    return wide if grid.signed else wide & ((1 << grid.bits) - 1)


def draw(rng: np.random.Generator, kind: str, grid: Grid, shape: Sequence[int]) -> Array:
    """Stored integers: `random`, all `low`, all `high`, or one of the `extremes` each."""
    low, high = grid.range
    if kind == "low":
        return np.full(shape, low, np.int64)
    if kind == "high":
        return np.full(shape, high, np.int64)
    if kind == "extremes":
        return rng.choice(np.array([low, high], np.int64), shape)
    return rng.integers(low, high, shape, np.int64, endpoint=True)


# -- random functions ------------------------------------------------------------------------------------------------

LOOPS = {
    "matmul": ("mk,kn->mn", "matmul"),
    "matmul_t": ("mk,nk->mn", "matmul"),
    "batch_matmul": ("bmk,bkn->bmn", "batch_matmul"),
    "contract": ("bmk,bnk->bmn", "contract"),
    "generic": ("bmk,nk->bmn", "generic"),
    "turned": ("km,nk->nm", "generic"),
    "matvec": ("mk,k->m", "reduce"),
    "dot": ("k,k->", "reduce"),
}
STORAGES = ((8, True, None), (8, False, None), (16, True, None), (8, True, (-8, 7)), (8, False, (0, 127)))
LAYOUTS = ("none", "none", "transpose", "flatten", "slice", "pad", "broadcast")
STEPS = ("bias", "bias_run_time", "full", "relu", "relu6", "minmax", "scale", "first")


@dataclass(frozen=True)
class OperandSpec:
    """One operand of a random contraction.

    Attributes:
        storage: index into `STORAGES`.
        varies: loops along which the parameters vary; with `k`, in groups.
        zero: `none`, `random`, `low` or `high`.
        run_time: as in `Grid`.
        layout: between the dequantize and the contraction.
        constant: whether it is a weight.
    """

    storage: int
    varies: str
    zero: str
    run_time: str
    layout: str
    constant: bool


@dataclass(frozen=True)
class Spec:
    """A random contraction: everything but the numbers, which come from `seed`.

    Attributes:
        seed: of weights and parameters.
        form: key of `LOOPS`.
        extents: by loop.
        group: size of groups along `k`; divides its extent.
        dynamic: loops whose extent is dynamic (never `k`).
        lhs: first operand.
        rhs: second operand.
        steps: of the epilogue, from `STEPS`.
        move: layout before the quantize: `none`, `transpose` or `collapse`.
        output: `float`, or what the output grid varies along (`tensor`, `first`, `last`).
        dyadic: whether all scales are powers of two, so that the result is exact and ties are frequent.
        output_storage: index into `STORAGES`.
        output_run_time: as in `Grid`.
    """

    seed: int
    form: str
    extents: tuple[tuple[str, int], ...]
    group: int
    dynamic: str
    lhs: OperandSpec
    rhs: OperandSpec
    steps: tuple[str, ...]
    move: str
    output: str
    dyadic: bool
    output_storage: int
    output_run_time: str


@st.composite
def operand_specs(draw_: st.DrawFn, loops: str) -> OperandSpec:
    """An operand over these loops."""
    varies = "".join(c for c in loops if draw_(st.booleans()) and (c != "k" or draw_(st.booleans())))
    return OperandSpec(
        draw_(st.integers(0, len(STORAGES) - 1)),
        varies,
        draw_(st.sampled_from(("none", "random", "random", "low", "high"))),
        draw_(st.sampled_from(("", "", "one", "tensor") if varies else ("", "", "scalar", "one", "extract"))),
        draw_(st.sampled_from(LAYOUTS)),
        draw_(st.booleans()),
    )


@st.composite
def specs(draw_: st.DrawFn) -> Spec:
    """Any contraction that fuses."""
    form = draw_(st.sampled_from(sorted(LOOPS)))
    left, right, result = _letters(LOOPS[form][0])
    group = draw_(st.sampled_from((2, 3, 4)))
    extents = {c: draw_(st.sampled_from((1, 2, 3, 5, 8))) for c in sorted(set(left + right) - {"k"})}
    extents["k"] = group * draw_(st.sampled_from((1, 2, 3, 4)))
    return Spec(
        draw_(st.integers(0, 2**16)),
        form,
        tuple(sorted(extents.items())),
        group,
        "".join(c for c in sorted(set(left + right) - {"k"}) if draw_(st.integers(0, 3)) == 0),
        draw_(operand_specs(left)),
        draw_(operand_specs(right)),
        tuple(draw_(st.lists(st.sampled_from(STEPS), max_size=3))),
        draw_(st.sampled_from(("none", "none", "transpose", "collapse"))) if result else "none",
        draw_(st.sampled_from(("float", "tensor", "tensor", "first", "last"))) if result else "tensor",
        draw_(st.booleans()),
        draw_(st.integers(0, len(STORAGES) - 1)),
        draw_(st.sampled_from(("", "", "tensor"))),
    )


def _numbers(f: Function, shape: Sequence[int], spec: Spec, near: float) -> Array:
    if spec.dyadic:
        return near * 2.0 ** -f.rng.integers(0, 4, shape)
    return (near * f.rng.uniform(0.3, 1.7, shape)).astype(np.float32).astype(np.float64)


def _zeros(f: Function, shape: Sequence[int], grid: Grid, kind: str) -> Array | None:
    low, high = grid.range
    if kind == "none":
        return None
    if kind == "random":
        return f.rng.integers(low, high, shape, endpoint=True)
    return np.full(shape, low if kind == "low" else high)


def _stored_shape(layout: str, loops: str, extents: Mapping[str, int]) -> tuple[str, tuple[int, ...]]:
    """Loops (lower case) and extents of the stored tensor, before the layout operation."""
    if layout == "transpose":
        loops = loops[::-1]
    if layout == "broadcast":
        loops = loops[1:]
    shape = [extents[c] for c in loops]
    if layout == "flatten":
        return loops, (*shape[:-1], 1, shape[-1]) if shape[-1] % 2 else (*shape[:-1], 2, shape[-1] // 2)
    if layout == "slice":
        return loops, tuple(2 * n + 1 for n in shape)
    if layout == "pad":
        return loops, tuple(max(n - 1, 1) for n in shape)
    return loops, tuple(shape)


def _usable_layout(spec: Spec, operand: OperandSpec, loops: str) -> str:
    """The layout, or `none` where the parameters or a dynamic extent do not go with it."""
    layout, dynamic = operand.layout, bool(set(loops) & set(spec.dynamic)) and not operand.constant
    if layout == "flatten" and (loops[-1] in operand.varies or dynamic):
        return "none"
    if layout == "slice" and ("k" in operand.varies or dynamic):
        return "none"
    if layout == "pad" and (operand.varies or operand.run_time or dynamic):
        return "none"
    if layout == "broadcast" and (len(loops) != 3 or loops[0] in operand.varies or loops[0] in spec.dynamic):
        return "none"
    return layout


def _operand(f: Function, spec: Spec, operand: OperandSpec, loops: str) -> Value:
    extents = dict(spec.extents)
    layout = _usable_layout(spec, operand, loops)
    stored, shape = _stored_shape(layout, loops, extents)
    bits, signed, limits = STORAGES[operand.storage]
    low, high = limits or (None, None)
    letters = [c for c in stored if c in operand.varies and c != "k"] + ["k"] * ("k" in operand.varies)
    plain = Grid(
        bits, signed, low, high, tuple(stored.index(c) for c in letters), spec.group if "k" in operand.varies else None,
        run_time=operand.run_time,
    )  # fmt: skip
    sizes = plain.param_shape(shape)
    near = 2.0**-5 if bits == 8 else 2.0**-13
    grid = replace(plain, scale=_numbers(f, sizes, spec, near), zero=_zeros(f, sizes, plain, operand.zero))
    dynamic = [] if operand.constant else [i for i, c in enumerate(stored) if c in spec.dynamic]
    q = f.weight(shape, grid) if operand.constant else f.argument(shape, grid, dynamic)
    x = f.dequantize(q)
    wanted = tuple(extents[c] for c in loops)
    if layout == "transpose":
        return f.transpose(x, tuple(range(x.rank))[::-1])
    if layout == "flatten":
        return f.collapse(x, [[i] for i in range(x.rank - 2)] + [[x.rank - 2, x.rank - 1]])
    if layout == "slice":
        return f.slice(x, [1] * x.rank, wanted, [2] * x.rank)
    if layout == "pad":
        return f.pad(x, [n - s for n, s in zip(wanted, shape, strict=True)], [0] * x.rank)
    if layout == "broadcast":
        return f.broadcast(x, wanted, (1, 2), (None, *x.sizes))
    return x


def _step(f: Function, x: Value, kind: str, dyadic: bool) -> Value:
    if kind == "relu":
        return f.relu(x)
    if kind in ("relu6", "minmax"):
        return f.clamp(x, -1.25, 6.0, "scalars") if kind == "relu6" else f.clamp(x, -2.7, 3.3, "minmax")
    if kind == "scale":
        return f.scale_by(x, 0.5 if dyadic else 0.7321)
    full = kind == "full" or not x.rank
    shape = x.shape if full else x.shape[-1:]
    values = f.rng.integers(-64, 64, shape) / 16 if dyadic else f.rng.normal(size=shape)
    reads = None if full else [x.rank - 1]
    dynamic = [i for i, s in enumerate(x.sizes if full else x.sizes[-1:]) if s is not None]
    if kind == "bias_run_time" or dynamic:
        return f.binary("add", x, f.float_argument(shape, lambda _: values, dynamic=dynamic), reads)
    return f.binary("add", x, f.float_constant(values), reads, swap=kind == "first")


def build(spec: Spec, name: str) -> Function:
    """The function of a random contraction."""
    f = Function(name, spec.seed)
    loops, spelling = LOOPS[spec.form]
    left, right, _ = _letters(loops)
    y = f.contract(_operand(f, spec, spec.lhs, left), _operand(f, spec, spec.rhs, right), loops, spelling)
    for kind in spec.steps:
        y = _step(f, y, kind, spec.dyadic)
    if spec.move == "transpose":
        y = f.transpose(y, tuple(range(y.rank))[::-1])
    if spec.move == "collapse" and y.rank > 1 and not any(y.sizes):
        y = f.collapse(y, [list(range(y.rank))])
    if spec.output == "float":
        return f.results(y)
    bits, signed, limits = STORAGES[spec.output_storage]
    low, high = limits or (None, None)
    axes = {"tensor": (), "first": (0,), "last": (y.rank - 1,)}[spec.output]
    if any(y.sizes[a] for a in axes):
        axes = ()
    plain = Grid(
        bits, signed, low, high, axes, run_time=spec.output_run_time if axes or spec.output_run_time == "" else "scalar"
    )
    sizes = plain.param_shape(y.shape)
    near = 2.0**-4 if bits == 8 else 2.0**-9
    grid = replace(plain, scale=_numbers(f, sizes, spec, near), zero=_zeros(f, sizes, plain, "random"))
    return f.results(f.quantize(y, grid))
