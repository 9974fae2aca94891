"""What is said of functions and elementwise operations that stay in float: the true reason, and a hint that works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from tests.fusions.ir import Function, parse
from tests.tosa.ir import Lines
from tests.tosa.test_execution import floats_in, matmul

Stored = tuple[str, int, int]
S8: Stored = ("i8", -128, 127)
S16: Stored = ("i16", -32768, 32767)
S32: Stored = ("i32", -(1 << 20), 1 << 20)
SHAPE = "1x4x8xf32"
NO_FORM = "the elementwise operation has no integer form: "


def through(f: Lines, value: str, stored: Stored, step: float, zero: int = 0) -> str:
    """A value through a quantize and a dequantize."""
    element, low, high = stored
    q = f.quantize(value, np.float32(step), zero, low, high, element)
    return f.dequantize(q, np.float32(step), zero)


def function(
    write: Callable[[Lines, str], str], source: Stored, step: float, result: Stored, out: float
) -> Callable[[Lines], str]:
    """A function of one tensor."""
    return lambda f: through(f, write(f, through(f, "%x", source, step)), result, out)


def unary(name: str) -> Callable[[Lines, str], str]:
    return lambda f, x: f.op(name, [x], SHAPE)


def moved_reciprocal(f: Lines, x: str) -> str:
    """With a pole inside a quarter of the integers."""
    return f.op("reciprocal", [f.op("add", [x, f.number(0.3, x, "f32")], SHAPE)], SHAPE)


def bent(at: float) -> Callable[[Lines, str], str]:
    """`x` below a number and `2 x - at` above it: a choice, which elementwise arithmetic in integers does not have."""

    def write(f: Lines, x: str) -> str:
        more = f.op("sub", [f.mul(x, f.number(2.0, x, "f32"), SHAPE), f.number(at, x, "f32")], SHAPE)
        above = f.op("greater", [x, f.number(at, x, "f32")], f.like(x, "i1"))
        return f.op("select", [above, more, x], SHAPE)

    return write


def of_two(
    write: Callable[[Lines, str, str], str], out: float = 0.01, steps: tuple[float, float] = (0.02, 0.03)
) -> Callable[[Lines], str]:
    """An expression of two tensors."""
    return lambda f: through(f, write(f, through(f, "%x", S8, steps[0]), through(f, "%y", S8, steps[1])), S8, out)


def added(f: Lines, x: str, y: str) -> str:
    return f.op("add", [x, y], SHAPE)


def exp_of_sum(f: Lines, x: str, y: str) -> str:
    return f.op("exp", [added(f, x, y)], SHAPE)


def exp_of_quantized(f: Lines, x: str, y: str) -> str:
    return f.op("exp", [through(f, added(f, x, y), S8, 0.05)], SHAPE)


def quotient(f: Lines, x: str, y: str) -> str:
    return f.mul(x, f.op("reciprocal", [added(f, x, y)], SHAPE), SHAPE)


def quotient_quantized(f: Lines, x: str, y: str) -> str:
    divisor = through(f, added(f, x, y), S8, 0.05)
    return f.mul(x, through(f, f.op("reciprocal", [divisor], SHAPE), S8, 0.2), SHAPE)


def float_added(f: Lines) -> str:
    return through(f, added(f, through(f, "%x", S8, 0.02), "%y"), S8, 0.05)


def float_behind_sums(f: Lines) -> str:
    return through(f, f.op("add", [matmul(f, through(f, "%x", S8, 0.02)), "%z"], "1x4x5xf32"), S8, 0.05)


def quantized_behind_sums(f: Lines) -> str:
    sums = matmul(f, through(f, "%x", S8, 0.02))
    return through(f, f.op("add", [sums, through(f, "%z", S8, 0.02)], "1x4x5xf32"), S8, 0.05)


Options = dict[str, Any]
#: What stays in float, the reason, the hint, and what it leads to: another module, or options.
CASES: dict[str, tuple[Callable[[Lines], str], str, str, Callable[[Lines], str] | None, Options]] = {
    "bends": (
        function(unary("exp"), S16, 2.0**-10, S16, 2.0**-13),
        "a table of 2049 points is up to 143 steps of the result from the function",
        "quantize the input to 8 bits",
        function(unary("exp"), S8, 2.0**-2, S16, 2.0**-13),
        {},
    ),
    "jumps": (
        function(moved_reciprocal, S16, 2.0**-13, S16, 2.0**-12),
        "a line of a table of 2049 points is steeper than i16 holds",
        "quantize the input to 8 bits",
        function(moved_reciprocal, S8, 2.0**-5, S16, 2.0**-12),
        {},
    ),
    "wide input": (
        function(unary("tanh"), S32, 2.0**-17, S16, 2.0**-15),
        "a lookup table takes at most 16 bits, the input has 32",
        "quantize the input to 8 bits",
        function(unary("tanh"), S8, 2.0**-5, S16, 2.0**-15),
        {},
    ),
    "wide result": (
        function(unary("tanh"), S16, 2.0**-13, S32, 2.0**-20),
        "a lookup table between points gives at most 16 bits, the result has 32",
        "quantize the result to 16 bits",
        function(unary("tanh"), S16, 2.0**-13, S16, 2.0**-15),
        {},
    ),
    "a choice between points": (
        function(bent(0.497), S16, 2.0**-14, S16, 2.0**-13),
        "a table of 2049 points is up to 3 steps of the result from the function",
        "quantize the input to 8 bits",
        function(bent(0.497), S8, 2.0**-6, S16, 2.0**-13),
        {},
    ),
    "a function of two": (
        of_two(exp_of_sum),
        f"{NO_FORM}exp of a dequantized value",
        "quantize its operand",
        of_two(exp_of_quantized),
        {},
    ),
    "a quotient": (
        of_two(quotient),
        f"{NO_FORM}a division by a dequantized value",
        "quantize the divisor, and its reciprocal",
        of_two(quotient_quantized),
        {},
    ),
    "a fine result": (
        of_two(added, 1e-6, (1000.0, 0.02)),
        f"{NO_FORM}an intermediate value exceeds i32 at the step of the result",
        "a larger scale of the result",
        of_two(added, 1.0, (1000.0, 0.02)),
        {},
    ),
    "a float tensor": (
        float_added,
        f"{NO_FORM}it reads a float tensor that is known only at run time",
        "quantize that tensor",
        of_two(added),
        {},
    ),
    "a float tensor behind sums": (
        float_behind_sums,
        "the epilogue has an addition of a float tensor that is known only at run time",
        "quantize that tensor",
        quantized_behind_sums,
        {},
    ),
}


def planned(build: Callable[[Lines], str], **options: Any) -> tuple[Any, qfuse.Report]:
    f = Lines(x=SHAPE, y=SHAPE, z="1x4x5xf32")
    module = Bindings.first_available().parse_source(f.module(build(f)), "module")
    return module, qfuse.fuse(module, "tosa-int", **options)


@pytest.mark.parametrize("name", CASES)
def test_the_hint_works(name: str) -> None:
    before, reason, hint, after, options = CASES[name]
    _, report = planned(before)
    assert (report.missed[0]["reason"], report.missed[0]["hint"]) == (reason, hint)
    assert not any("epilogue=float" in e["hint"] or "lookup16" in e["hint"] for e in report.missed)
    module, report = planned(before if after is None else after, **options)
    assert report.missed == []
    assert floats_in(str(module)) == []


def test_scales_that_are_no_powers_of_two() -> None:
    build = of_two(added)
    (entry, *_) = planned(build, epilogue="power-of-two")[1].missed
    assert entry["reason"] == f"{NO_FORM}the scales are not powers of two apart"
    assert entry["hint"] == "use epilogue=fixed-point"
    assert planned(build, epilogue="fixed-point")[1].missed == []


@pytest.mark.parametrize("lookup16", ["false", "true"])
def test_a_table_where_there_is_no_other_form(lookup16: str) -> None:
    """Without being asked for; a choice at a point is exact but for rounding."""
    module, report = planned(function(bent(0.5), S16, 2.0**-14, S16, 2.0**-14), lookup16=lookup16)
    assert report.missed == []
    assert [(e["fusion"], e["entries"]) for e in report.applied] == [("qfuse.lookup", 513)]
    assert floats_in(str(module)) == []


def in_linalg(storage: str, result: str, body: str) -> Function:
    f = Function("f")
    y = f.unary(f.dequantize(f.argument(storage), 2.0**-12, 0, storage), body)
    return f.returns(f.quantize(y, 2.0**-12, 0, result), element=result)


TANH = "    %y = math.tanh %a : f32"
#: Storage of input and result, the body, reasons and hints, and the options that these lead to.
LINALG: dict[str, tuple[str, str, str, str, str, Options]] = {
    "not asked for": (
        "i16", "i16", TANH, "a lookup table takes at most 8 bits, the input has 16", "use lookup16=true",
        {"epilogue": "fixed-point", "lookup16": True},
    ),
    "no table of it": (
        "i16", "i16", "    %y = math.floor %a : f32", f"{NO_FORM}floor of a dequantized value",
        "quantize its operand, or use epilogue=float", {"epilogue": "float"},
    ),
    "wide input": (
        "i32", "i16", TANH, "a lookup table takes at most 16 bits, the input has 32", "quantize the input to 8 bits",
        {"epilogue": "float"},
    ),
    "wide result": (
        "i16", "i32", TANH, "a lookup table between points gives at most 16 bits, the result has 32",
        "quantize the result to 16 bits, and use lookup16=true", {"epilogue": "float"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINALG)
def test_in_linalg_the_float_epilogue_is_named_where_it_would_do(name: str) -> None:
    storage, result, body, reason, hint, options = LINALG[name]
    f = in_linalg(storage, result, body)
    (entry, *_) = qfuse.fuse(parse(f), "linalg", epilogue="fixed-point").missed
    assert (entry["reason"], entry["hint"]) == (reason, hint)
    assert qfuse.fuse(parse(f), "linalg", **options).missed == []
