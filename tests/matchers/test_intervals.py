"""Ranges of integer tensors: sums of products, what is added and moved behind them, and what is not known."""

from __future__ import annotations

import pytest

from qfuse._mlir import Bindings
from qfuse.matchers.intervals import interval_of
from qfuse.matchers.recognizer import Recognizer
from tests.conftest import Parse
from tests.matchers.ir import function

MATMUL = """%acc = linalg.matmul ins(%a, %b : tensor<4x10xi8>, tensor<10x3xi8>) outs(%init : tensor<4x3xi32>)
    -> tensor<4x3xi32>"""
FILL = """%n = arith.constant {start} : i32
    %e = tensor.empty() : tensor<4x3xi32>
    %init = linalg.fill ins(%n : i32) outs(%e : tensor<4x3xi32>) -> tensor<4x3xi32>"""
EACH = """%x = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
    iterator_types = ["parallel", "parallel"]}} ins({of} : tensor<4x3xi32>) outs(%e : tensor<4x3xi32>) {{
    ^bb0(%in: i32, %o: i32):
      %c = arith.constant {number} : i32
      %r = arith.{op} %in, %c : i32
      linalg.yield %r : i32
    }} -> tensor<4x3xi32>"""
WHOLE = (-(1 << 31), (1 << 31) - 1)


def each(op: str, number: int, of: str = "%acc") -> str:
    return EACH.format(op=op, number=number, of=of)


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ((FILL.format(start=0), MATMUL), (10 * -128 * 127, 10 * 128 * 128)),
        ((FILL.format(start=5), MATMUL), (5 + 10 * -128 * 127, 5 + 10 * 128 * 128)),
        ((FILL.format(start=(1 << 31) - 10), MATMUL), WHOLE),
        ((FILL.format(start=0), MATMUL, each("addi", 100)), (100 + 10 * -128 * 127, 100 + 10 * 128 * 128)),
        ((FILL.format(start=0), MATMUL, each("subi", 100)), (-100 + 10 * -128 * 127, -100 + 10 * 128 * 128)),
        ((FILL.format(start=0), MATMUL, each("maxsi", 0)), (0, 10 * 128 * 128)),
        ((FILL.format(start=0), MATMUL, each("minsi", -7)), (10 * -128 * 127, -7)),
        ((FILL.format(start=0), MATMUL, each("muli", -2)), (-20 * 128 * 128, 20 * 128 * 127)),
        ((FILL.format(start=0), MATMUL, each("muli", 1 << 20)), WHOLE),
        ((FILL.format(start=0), MATMUL, each("xori", 1)), WHOLE),
        (
            (
                FILL.format(start=0), MATMUL,
                "%x = tensor.collapse_shape %acc [[0, 1]] : tensor<4x3xi32> into tensor<12xi32>",
            ),
            (10 * -128 * 127, 10 * 128 * 128),
        ),
    ],
)  # fmt: skip
def test_ranges(parse: Parse, torch_bindings: Bindings, operations: tuple[str, ...], expected: tuple[int, int]) -> None:
    module = parse(function("%a: tensor<4x10xi8>, %b: tensor<10x3xi8>", *operations), torch_bindings)
    body = list(module.body.operations[0].regions[0].blocks[0].operations)
    reader = Recognizer(torch_bindings).reader
    found = interval_of(body[-2].operation.results[0], 32, True, reader, lambda *_: None)
    assert found == expected


def test_unsigned_operands(parse: Parse, torch_bindings: Bindings) -> None:
    """Extensions say how bytes are read, and a sum of bytes is not negative."""
    text = """%acc = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>,
        affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a : tensor<4x10xi8>) outs(%init : tensor<4x3xi32>) {
    ^bb0(%in: i8, %o: i32):
      %u = arith.extui %in : i8 to i32
      %r = arith.addi %o, %u : i32
      linalg.yield %r : i32
    } -> tensor<4x3xi32>"""
    module = parse(function("%a: tensor<4x10xi8>", FILL.format(start=0), text), torch_bindings)
    body = list(module.body.operations[0].regions[0].blocks[0].operations)
    reader = Recognizer(torch_bindings).reader
    for signed in (True, False):
        assert interval_of(body[-2].operation.results[0], 32, signed, reader, lambda *_: None) == (0, 2550)


TOSA = """%w = "tosa.const"() <{{values = dense<[[[1, -7], [3, 2], [5, 4]]]> : tensor<1x3x2xi8>}}>
    : () -> tensor<1x3x2xi8>
    %za = "tosa.const"() <{{values = dense<11> : tensor<1xi8>}}> : () -> tensor<1xi8>
    %zw = "tosa.const"() <{{values = dense<{zero}> : tensor<1xi8>}}> : () -> tensor<1xi8>
    %acc = tosa.matmul %a, {rhs}, %za, %zw
        : (tensor<1x4x3xi8>, tensor<1x3x2xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x4x2xi32>"""
SUM = "%x = tosa.reduce_sum %acc {axis = 1 : i32} : (tensor<1x4x2xi32>) -> tensor<1x1x2xi32>"


@pytest.mark.parametrize(
    ("operations", "most"),
    [
        ((TOSA.format(rhs="%w", zero=0),), 3 * 255 * 7),
        ((TOSA.format(rhs="%w", zero=-3),), 3 * 255 * 8),
        ((TOSA.format(rhs="%b", zero=0),), 3 * 255 * 255),
        ((TOSA.format(rhs="%w", zero=0), SUM), 4 * 3 * 255 * 7),
    ],
)
def test_integer_sums_of_tosa(parse: Parse, torch_bindings: Bindings, operations: tuple[str, ...], most: int) -> None:
    """Bytes less their zero point are less than 256, whether they are signed or not; weights are known."""
    module = parse(function("%a: tensor<1x4x3xi8>, %b: tensor<1x3x2xi8>", *operations), torch_bindings)
    body = list(module.body.operations[0].regions[0].blocks[0].operations)
    reader = Recognizer(torch_bindings).reader
    assert interval_of(body[-2].operation.results[0], 32, True, reader, lambda *_: None) == (-most, most)
