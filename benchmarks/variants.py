"""Hand-written spellings of one quantized Linear + bias + relu in integers, measured against each other.

Each spelling is a combination of choices (`CHOICES`). Candidates are the base and everything that differs from it as
given by `--variant key=value,...`, or, without any, in one choice. This is how the emitter's defaults were chosen.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np
from _iree import prepare
from _pt2e import QuantizedLayer, quantized_linear
from _timing import interleaved_medians
from torch_mlir import fx

Array = np.ndarray[Any, Any]

CHOICES: dict[str, tuple[str, ...]] = {
    "matmul": (
        "maps",
        "kn",
        "transpose",
        "generic",
        "quantized",
        "i16",
        "i16ext",
        "contract",
        "u8s8",
        "i16xi8",
        "i8xi16",
    ),
    "quantize": ("magic", "roundeven", "magic-mul", "roundeven-mul", "clamp-roundeven"),
    "epilogue": ("magic", "roundeven", "clamp-roundeven", "magic-div", "roundeven-div"),
    "clamp": ("minmax", "select"),
    "correction": ("f32", "i32", "i32-init"),
    "dequantize": ("i64", "i32"),
    "constant": ("resource", "inline"),
    "barrier": ("no", "yes"),
}
"""Every choice with its spellings; the first is the base."""

MAGIC = 12582912.0  # 1.5 * 2^23: adding it rounds |x| < 2^22 to an integer, half to even, in the low mantissa bits
MAGIC_BITS = 0x4B400000


class _Module:
    """Collects the constants and lines of one function."""

    def __init__(self, inline: bool) -> None:
        self.inline = inline
        self.lines: list[str] = []
        self.resources: list[str] = []
        self.scalars: dict[str, str] = {}

    def tensor(self, name: str, values: Array) -> str:
        """Define a constant and return its type."""
        element = {"int8": "i8", "int16": "i16", "int32": "i32", "float32": "f32"}[str(values.dtype)]
        kind = f"tensor<{'x'.join(map(str, values.shape))}x{element}>"
        blob = np.ascontiguousarray(values).tobytes()
        if self.inline:
            self.lines.append(f'%{name} = arith.constant dense<"0x{blob.hex().upper()}"> : {kind}')
        else:
            self.lines.append(f"%{name} = arith.constant dense_resource<{name}> : {kind}")
            head = values.dtype.itemsize.to_bytes(4, "little")
            self.resources.append(f'{name}: "0x{(head + blob).hex().upper()}"')
        return kind

    def f32(self, value: float) -> str:
        """Return an f32 constant."""
        bits = int(np.float32(value).view(np.uint32))
        return self.scalars.setdefault(f"0x{bits:08X} : f32", f"%s{len(self.scalars)}")

    def integer(self, value: int, kind: str) -> str:
        """Return an integer constant."""
        return self.scalars.setdefault(f"{value} : {kind}", f"%s{len(self.scalars)}")

    def text(self, signature: str) -> str:
        """Return the module."""
        scalars = [f"{name} = arith.constant {value}" for value, name in self.scalars.items()]
        body = "\n".join(f"    {line}" for line in scalars + self.lines)
        text = f"{MAPS}module {{\n  func.func @main{signature} {{\n{body}\n  }}\n}}\n"
        if self.resources:
            blobs = ",\n      ".join(self.resources)
            text += f"{{-#\n  dialect_resources: {{\n    builtin: {{\n      {blobs}\n    }}\n  }}\n#-}}\n"
        return text


MAPS = """#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d1, d2)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
"""


def _clamp(m: _Module, how: str, low: float, high: float) -> list[str]:
    """Clamp %v to [low, high] in f32, giving %w; a NaN becomes `low` with select and stays one with minmax."""
    lo, hi = m.f32(low), m.f32(high)
    if how == "minmax":
        return [f"%v1 = arith.maximumf %v, {lo} : f32", f"%w = arith.minimumf %v1, {hi} : f32"]
    return [
        f"%p = arith.cmpf ogt, %v, {lo} : f32",
        f"%v1 = arith.select %p, %v, {lo} : f32",
        f"%r = arith.cmpf olt, %v1, {hi} : f32",
        f"%w = arith.select %r, %v1, {hi} : f32",
    ]


def _round(m: _Module, spelling: str, clamp: str, low: int, high: int, zero_point: int, kind: str = "i8") -> list[str]:
    """Round %v, add the zero point, clamp to [low, high] and narrow, giving %q of type `kind`."""
    if spelling.startswith("magic"):
        return [
            *_clamp(m, clamp, low - zero_point, high - zero_point),
            f"%x = arith.addf %w, {m.f32(MAGIC)} : f32",
            "%y = arith.bitcast %x : f32 to i32",
            f"%z = arith.subi %y, {m.integer(MAGIC_BITS - zero_point, 'i32')} : i32",
            f"%q = arith.trunci %z : i32 to {kind}",
        ]
    if spelling.startswith("clamp-"):
        return [
            *_clamp(m, clamp, low - zero_point, high - zero_point),
            "%x = math.roundeven %w : f32",
            f"%y = arith.addf %x, {m.f32(zero_point)} : f32",
            f"%q = arith.fptosi %y : f32 to {kind}",
        ]
    clamped = [line.replace("%v,", "%y,") for line in _clamp(m, clamp, low, high)]
    return [
        "%x = math.roundeven %v : f32",
        f"%y = arith.addf %x, {m.f32(zero_point)} : f32",
        *clamped,
        f"%q = arith.fptosi %w : f32 to {kind}",
    ]


def _generic(m: _Module, name: str, ins: list[tuple[str, str, str, str]], out: str, body: list[str]) -> None:
    """Append a parallel 2-D generic; `ins` holds (block argument, value, type, map), the body yields %q."""
    maps = ", ".join([entry[3] for entry in ins] + ["#id"])
    values = ", ".join(entry[1] for entry in ins)
    kinds = ", ".join(entry[2] for entry in ins)
    element = out.rsplit("x", 1)[1][:-1]
    arguments = [f"{entry[0]}: {entry[2].rsplit('x', 1)[1][:-1]}" for entry in ins] + [f"%out: {element}"]
    m.lines += [
        f"%{name}_init = tensor.empty() : {out}",
        (
            f'%{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}} '
            f"ins({values} : {kinds}) outs(%{name}_init : {out}) {{"
        ),
        f"^bb0({', '.join(arguments)}):",
        *(f"  {line}" for line in body),
        f"  linalg.yield %q : {element}",
        f"}} -> {out}",
    ]


def _matmul(m: _Module, spelling: str, operand: str, a: str, weight: Array, zero_point: int, accumulator: str) -> None:
    """Append the contraction of `operand` with the weight into %acc, starting from %zero."""
    outs = f"outs(%zero : {accumulator})"
    if spelling in ("kn", "quantized"):
        b = m.tensor("weight", weight.T)
    elif spelling in ("i16", "i8xi16"):
        b = m.tensor("weight", weight.astype(np.int16))
    else:
        b = m.tensor("weight", weight)
    if spelling == "i16ext":
        wide = b.replace("xi8>", "xi16>")
        _generic(m, "wide", [("%w8", "%weight", b, "#id")], wide, ["%q = arith.extsi %w8 : i8 to i16"])
        operands = f"ins({operand}, %wide : {a}, {wide})"
    elif spelling == "transpose":
        n, k = weight.shape
        turned = f"tensor<{k}x{n}xi8>"
        m.lines += [
            f"%turned_init = tensor.empty() : {turned}",
            f"%turned = linalg.transpose ins(%weight : {b}) outs(%turned_init : {turned}) permutation = [1, 0]",
        ]
        operands = f"ins({operand}, %turned : {a}, {turned})"
    else:
        operands = f"ins({operand}, %weight : {a}, {b})"
    if spelling in ("kn", "transpose"):
        m.lines.append(f"%acc = linalg.matmul {operands} {outs} -> {accumulator}")
    elif spelling == "quantized":
        za, zb = m.integer(zero_point, "i32"), m.integer(0, "i32")
        operands = f"ins({operand}, %weight, {za}, {zb} : {a}, {b}, i32, i32)"
        m.lines.append(f"%acc = linalg.quantized_matmul {operands} {outs} -> {accumulator}")
    elif spelling in ("generic", "u8s8"):
        extend = "arith.extui" if spelling == "u8s8" else "arith.extsi"
        m.lines += [
            (
                "%acc = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = "
                f'["parallel", "parallel", "reduction"]}} {operands} {outs} {{'
            ),
            "^bb0(%l: i8, %r: i8, %o: i32):",
            f"  %le = {extend} %l : i8 to i32",
            "  %re = arith.extsi %r : i8 to i32",
            "  %p = arith.muli %le, %re : i32",
            "  %t = arith.addi %o, %p : i32",
            "  linalg.yield %t : i32",
            f"}} -> {accumulator}",
        ]
    else:
        name = "linalg.contract" if spelling == "contract" else "linalg.matmul"
        m.lines.append(f"%acc = {name} indexing_maps = [#a, #b, #c] {operands} {outs} -> {accumulator}")


def spell(layer: QuantizedLayer, choice: Mapping[str, str]) -> str:
    """Return the text of a module that computes `layer` with integers as `choice` says."""
    m = _Module(choice["constant"] == "inline")
    rows, k = layer.x.shape
    n = layer.weight.shape[0]
    wide = choice["matmul"].startswith("i16")
    kind = "i16" if wide else "i8"
    x, a = f"tensor<{rows}x{k}xf32>", f"tensor<{rows}x{k}x{kind}>"
    accumulator, i8, f32 = (f"tensor<{rows}x{n}x{element}>" for element in ("i32", "i8", "f32"))
    vector_f32, vector_i32 = f"tensor<{n}xf32>", f"tensor<{n}xi32>"

    if choice["quantize"].endswith("-mul"):
        scaled = f"%v = arith.mulf %in, {m.f32(float(np.float32(1) / np.float32(layer.in_scale)))} : f32"
    else:
        scaled = f"%v = arith.divf %in, {m.f32(layer.in_scale)} : f32"
    low, high, zero_point = -128, 127, layer.in_zero_point
    if wide:
        low, high, zero_point = low - zero_point, high - zero_point, 0
    if choice["matmul"] == "u8s8":
        low, high, zero_point = 0, 255, zero_point + 128
    rounded = _round(m, choice["quantize"], choice["clamp"], low, high, zero_point, kind)
    _generic(m, "qa", [("%in", "%arg0", x, "#id")], a, [scaled, *rounded])

    if choice["barrier"] == "yes":  # keeps IREE from storing the quantized values straight into packed tiles
        m.lines.append(f'%qa_kept = "util.optimization_barrier"(%qa) : ({a}) -> {a}')
    corrected = wide or choice["matmul"] == "quantized"
    sums = layer.weight.astype(np.int64).sum(axis=1)
    shift = np.zeros_like(sums) if corrected else -zero_point * sums
    m.lines.append(f"%empty = tensor.empty() : {accumulator}")
    if choice["correction"] == "i32-init":
        m.tensor("shift", shift.astype(np.int32))
        m.lines.append(
            f"%zero = linalg.broadcast ins(%shift : {vector_i32}) outs(%empty : {accumulator}) dimensions = [0]"
        )
    else:
        zero = m.integer(0, "i32")
        m.lines.append(f"%zero = linalg.fill ins({zero} : i32) outs(%empty : {accumulator}) -> {accumulator}")
    operand = "%qa_kept" if choice["barrier"] == "yes" else "%qa"
    _matmul(m, choice["matmul"], operand, a, layer.weight, layer.in_zero_point, accumulator)

    scale = np.float64(layer.in_scale) * layer.weight_scale.astype(np.float64)
    bias = layer.bias.astype(np.float64)
    divides = choice["epilogue"].endswith("-div")
    if choice["correction"] == "f32":
        bias = bias + shift * scale
    if not divides:
        scale, bias = scale / layer.out_scale, bias / layer.out_scale
    m.tensor("scale", scale.astype(np.float32))
    m.tensor("bias", bias.astype(np.float32))
    ins = [
        ("%in", "%acc", accumulator, "#id"),
        ("%m", "%scale", vector_f32, "#row"),
        ("%b", "%bias", vector_f32, "#row"),
    ]
    body = ["%f = arith.sitofp %in : i32 to f32", "%g = arith.mulf %f, %m : f32"]
    if choice["correction"] == "i32":
        m.tensor("shift", shift.astype(np.int32))
        ins.append(("%c", "%shift", vector_i32, "#row"))
        body[:1] = ["%i = arith.addi %in, %c : i32", "%f = arith.sitofp %i : i32 to f32"]
    if divides:
        body += ["%h = arith.addf %g, %b : f32", f"%v = arith.divf %h, {m.f32(layer.out_scale)} : f32"]
    else:
        body.append("%v = arith.addf %g, %b : f32")
    low = max(-128, layer.out_zero_point)  # relu
    body += _round(m, choice["epilogue"], choice["clamp"], low, 127, layer.out_zero_point)
    _generic(m, "qc", ins, i8, body)

    width = choice["dequantize"]
    body = [
        f"%e = arith.extsi %in : i8 to {width}",
        f"%d = arith.subi %e, {m.integer(layer.out_zero_point, width)} : {width}",
        f"%f = arith.sitofp %d : {width} to f32",
        f"%q = arith.mulf %f, {m.f32(layer.out_scale)} : f32",
    ]
    _generic(m, "result", [("%in", "%qc", i8, "#id")], f32, body)
    m.lines.append(f"return %result : {f32}")
    return m.text(f"(%arg0: {x}) -> {f32}")


def _overrides(text: str) -> dict[str, str]:
    """Parse `key=value,key=value` and check it against `CHOICES`."""
    chosen: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        if value not in CHOICES.get(key, ()):
            known = "; ".join(f"{name}: {', '.join(values)}" for name, values in CHOICES.items())
            raise argparse.ArgumentTypeError(f"unknown choice {part!r} (known: {known})")
        chosen[key] = value
    return chosen


def main() -> None:
    """Measure the spellings and print their speed relative to the unfused module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", nargs="+", default=["128x1024x1024", "128x768x3072"], metavar="MxKxN")
    parser.add_argument("--variant", nargs="+", type=_overrides, metavar="KEY=VALUE,...")
    parser.add_argument("--base", type=_overrides, default={}, help="change the base all variants start from")
    parser.add_argument("--repeat", type=int, default=41, help="rounds (default: %(default)s)")
    parser.add_argument("--cpu", default="host", help="IREE's target CPU (default: %(default)s)")
    parser.add_argument("--print", action="store_true", help="print the text of the first variant and exit")
    arguments = parser.parse_args()
    base = {key: values[0] for key, values in CHOICES.items()} | arguments.base
    if arguments.variant is not None:
        variants = arguments.variant
    else:
        alternatives = [{k: v} for k, values in CHOICES.items() for v in values if v != base[k]]
        variants = [{}, *alternatives]
    for shape in arguments.shape:
        layer = quantized_linear(*map(int, shape.split("x")))
        if arguments.print:
            print(spell(layer, base | variants[0]))
            return
        unfused = fx.export_and_import(layer.program, output_type="linalg-on-tensors")
        native = fx.export_and_import(layer.program, output_type="torch")
        calls = {
            "unfused": prepare(unfused, layer.x, cpu=arguments.cpu),
            "native": prepare(native, layer.x, input_type="torch", cpu=arguments.cpu),
        }
        for variant in variants:
            name = ",".join(f"{key}={value}" for key, value in variant.items()) or "base"
            calls[name] = prepare(spell(layer, base | variant), layer.x, cpu=arguments.cpu)
        expected = calls["unfused"].output()
        medians = interleaved_medians({k: call.run for k, call in calls.items()}, rounds=arguments.repeat)
        print(f"{shape}, base {base}, unfused {medians['unfused'] * 1e3:.2f} ms")
        print(f"{'unfused / it':>12} {'native / it':>12} {'max steps':>9} {'differ':>7}  candidate")
        for name, seconds in sorted(medians.items(), key=lambda item: item[1]):
            steps = np.abs(calls[name].output() - expected) / layer.out_scale
            print(
                f"{medians['unfused'] / seconds:12.2f} {medians['native'] / seconds:12.2f} {steps.max():9.2f}"
                f" {int((steps > 0.5).sum()):7d}  {name}",
                flush=True,
            )


if __name__ == "__main__":
    main()
