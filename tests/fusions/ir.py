"""Writes functions with elementwise operations between dequantize and quantize, and runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch_mlir import ir

import qfuse
from qfuse.integrations.iree import Program, compile_module

FLAGS = ("--iree-opt-level=O2", "--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false")
DTYPES = {"i8": np.int8, "i16": np.int16, "i1": np.bool_, "f32": np.float32, "f16": np.float16, "i64": np.int64}


class Function:
    """The text of one function, a line at a time."""

    def __init__(self, name: str, shape: Sequence[int | None] = (4, 6)) -> None:
        self.name = name
        self.shape = tuple(shape)
        self.arguments: list[tuple[str, tuple[int | None, ...], str]] = []
        self.lines: list[str] = []
        self.returned: list[tuple[str, str]] = []

    def argument(self, element: str, shape: Sequence[int | None] | None = None) -> str:
        name = f"%arg{len(self.arguments)}"
        self.arguments.append((name, self.shape if shape is None else tuple(shape), element))
        return name

    def _new(self) -> str:
        return f"%v{len(self.lines)}"

    def line(self, text: str) -> str:
        name = self._new()
        self.lines.append(f"{name} = {text}")
        return name

    def empty(self, shape: Sequence[int | None], element: str) -> str:
        if None not in shape:
            return self.line(f"tensor.empty() : {tensor(shape, element)}")
        name, own, kind = self.arguments[0]
        sizes: list[str] = []
        for position, extent in enumerate(shape):
            if extent is None:
                place = self.line(f"arith.constant {position} : index")
                sizes.append(self.line(f"tensor.dim {name}, {place} : {tensor(own, kind)}"))
        return self.line(f"tensor.empty({', '.join(sizes)}) : {tensor(shape, element)}")

    def elementwise(
        self,
        inputs: Sequence[tuple[str, Sequence[int | None], str, str]],
        body: str,
        element: str = "f32",
        shape: Sequence[int | None] | None = None,
    ) -> str:
        """A generic; inputs are (value, shape, element, map results), %a, %b, ... in the body, which yields %y."""
        shape = self.shape if shape is None else tuple(shape)
        dims = ", ".join(f"d{i}" for i in range(len(shape)))
        maps = [f"affine_map<({dims}) -> ({m})>" for *_, m in inputs] + [f"affine_map<({dims}) -> ({dims})>"]
        out = self.empty(shape, element)
        names = [f"%{chr(ord('a') + i)}" for i in range(len(inputs))]
        arguments = ", ".join(f"{n}: {e}" for n, (_, _, e, _) in zip(names, inputs, strict=True))
        kinds = ", ".join('"parallel"' for _ in shape)
        return self.line(
            f"linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{kinds}]}}\n"
            f"  ins({', '.join(v for v, *_ in inputs)} : {', '.join(tensor(s, e) for _, s, e, _ in inputs)})\n"
            f"  outs({out} : {tensor(shape, element)}) {{\n  ^bb0({arguments}, %o: {element}):\n{body}\n"
            f"    linalg.yield %y : {element}\n  }} -> {tensor(shape, element)}"
        )

    def dequantize(
        self,
        q: str,
        scale: float | Sequence[float] = 0.0625,
        zero: int | Sequence[int] = 3,
        storage: str = "i8",
        shape: Sequence[int | None] | None = None,
        axis: int = 1,
        real: str = "f32",
        unsigned: bool = False,
    ) -> str:
        shape = self.shape if shape is None else tuple(shape)
        dims = ", ".join(f"d{i}" for i in range(len(shape)))
        extend = "arith.extui" if unsigned else "arith.extsi"
        inputs: list[tuple[str, Sequence[int | None], str, str]] = [(q, shape, storage, dims)]
        s, z = "%s", "%z"
        head = ""
        if isinstance(scale, Sequence):
            values = ", ".join(f"{x:.9e}" for x in scale)
            inputs.append(
                (
                    self.line(f"arith.constant dense<[{values}]> : tensor<{len(scale)}xf32>"),
                    (len(scale),),
                    "f32",
                    f"d{axis}",
                )
            )
            s = "%" + chr(ord("a") + len(inputs) - 1)
        else:
            head += f"    %s = arith.constant {scale:.9e} : {real}\n"
        if isinstance(zero, Sequence):
            values = ", ".join(map(str, zero))
            inputs.append(
                (
                    self.line(f"arith.constant dense<[{values}]> : tensor<{len(zero)}xi64>"),
                    (len(zero),),
                    "i64",
                    f"d{axis}",
                )
            )
            z = "%" + chr(ord("a") + len(inputs) - 1)
        else:
            head += f"    %z = arith.constant {zero} : i64\n"
        body = (
            f"{head}    %w = {extend} %a : {storage} to i64\n    %t = arith.subi %w, {z} : i64\n"
            f"    %f = arith.sitofp %t : i64 to {real}\n    %y = arith.mulf %f, {s} : {real}"
        )
        return self.elementwise(inputs, body, real, shape)

    def quantize(
        self,
        x: str,
        scale: float = 0.0513,
        zero: int = -5,
        storage: str = "i8",
        shape: Sequence[int | None] | None = None,
        real: str = "f32",
        low: int | None = None,
        high: int | None = None,
    ) -> str:
        bits = int(storage[1:])
        low = -(1 << (bits - 1)) if low is None else low
        high = (1 << (bits - 1)) - 1 if high is None else high
        shape = self.shape if shape is None else tuple(shape)
        dims = ", ".join(f"d{i}" for i in range(len(shape)))
        cast = "arith.fptosi" if low < 0 else "arith.fptoui"
        body = (
            f"    %s = arith.constant {scale:.9e} : {real}\n    %z = arith.constant {zero}.0 : {real}\n"
            f"    %l = arith.constant {low}.0 : {real}\n    %h = arith.constant {high}.0 : {real}\n"
            f"    %d = arith.divf %a, %s : {real}\n    %r = math.roundeven %d : {real}\n"
            f"    %p = arith.addf %r, %z : {real}\n    %m = arith.maximumf %p, %l : {real}\n"
            f"    %n = arith.minimumf %m, %h : {real}\n    %y = {cast} %n : {real} to {storage}"
        )
        return self.elementwise([(x, shape, real, dims)], body, storage, shape)

    def binary(self, op: str, x: str, y: str, real: str = "f32") -> str:
        dims = ", ".join(f"d{i}" for i in range(len(self.shape)))
        body = f"    %y = arith.{op} %a, %b : {real}"
        return self.elementwise([(x, self.shape, real, dims), (y, self.shape, real, dims)], body, real)

    def unary(self, x: str, body: str, real: str = "f32") -> str:
        """The body computes %y from %a."""
        dims = ", ".join(f"d{i}" for i in range(len(self.shape)))
        return self.elementwise([(x, self.shape, real, dims)], body, real)

    def returns(self, *values: str, element: str = "i8", shape: Sequence[int | None] | None = None) -> Function:
        kind = tensor(self.shape if shape is None else shape, element)
        self.returned = [(v, kind) for v in values]
        return self

    @property
    def text(self) -> str:
        arguments = ", ".join(f"{n}: {tensor(s, e)}" for n, s, e in self.arguments)
        results = ", ".join(t for _, t in self.returned)
        values = ", ".join(v for v, _ in self.returned)
        body = "\n".join("  " + line for line in self.lines)
        return f"func.func @{self.name}({arguments}) -> ({results}) {{\n{body}\n  return {values} : {results}\n}}\n"

    def inputs(self) -> list[tuple[Any, ...]]:
        """Random, extreme and constant inputs; the first covers as many stored integers as it has elements."""
        rng = np.random.default_rng([11, *self.name.encode()])
        return [
            tuple(
                _sample(rng, kind, [5 if n is None else n for n in shape], element)
                for _, shape, element in self.arguments
            )
            for kind in ("count", "random", "extremes", "low", "high")
        ]


def _sample(rng: np.random.Generator, kind: str, shape: Sequence[int], element: str) -> Any:
    dtype = DTYPES[element]
    if element == "i1":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if element.startswith("f"):
        return rng.normal(size=shape).astype(dtype)
    info = np.iinfo(dtype)
    size = int(np.prod(shape))
    if kind == "count":
        return (np.arange(size) * (1 if size >= 256 else 7) % 256 - 128).astype(dtype).reshape(shape)
    if kind == "random":
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)
    if kind == "extremes":
        return rng.choice([info.min, info.max], shape).astype(dtype)
    return np.full(shape, info.min if kind == "low" else info.max, dtype)


def tensor(shape: Sequence[int | None], element: str) -> str:
    """The printed type."""
    return f"tensor<{''.join('?x' if n is None else f'{n}x' for n in shape)}{element}>"


def parse(function: Function | str) -> Any:
    """A module with the function."""
    return ir.Module.parse(function if isinstance(function, str) else function.text, ir.Context())


def fused(function: Function, target: str = "linalg", **options: Any) -> tuple[Any, qfuse.Report]:
    """The fused module, which verifies and on which a second run applies nothing, and its report."""
    module = parse(function)
    report = qfuse.fuse(module, target, **options)
    assert module.operation.verify()
    text = str(module)
    again = qfuse.fuse(module, target, **options)
    assert again.applied == []
    assert str(module) == text
    return module, report


def refused(function: Function, target: str = "linalg", **options: Any) -> list[str]:
    """The reasons of what is missed; the module's text is unchanged."""
    module = parse(function)
    text = str(module)
    report = qfuse.fuse(module, target, **options)
    assert report.applied == []
    assert str(module) == text
    return [e["reason"] for e in report.missed]


def run(texts: Mapping[str, Any], functions: Sequence[Function]) -> dict[str, list[list[Any]]]:
    """Compiles modules of one function each together, and runs each on its inputs."""
    with ir.Context(), ir.Location.unknown():
        whole = ir.Module.create()
        for text in texts.values():
            for op in ir.Module.parse(str(text)).body.operations:
                whole.body.append(op.operation.clone())
        program = Program(compile_module(whole, flags=FLAGS))
    return {f.name: [list(program(*inputs, entry=f.name)) for inputs in f.inputs()] for f in functions}
