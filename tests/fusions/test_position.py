"""Places of maxima and minima: taken on the integers, the same first place, run in IREE against the unfused module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_mlir import ir

import qfuse
from qfuse.integrations.iree import Program, compile_module
from tests.fusions.ir import FLAGS

DEQUANTIZED = """
#m = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#z = affine_map<(d0, d1, d2) -> (d2)>
#r = affine_map<(d0, d1, d2) -> (d0, d2)>
module {{
  func.func @main(%q: tensor<2x5x3xi8>) -> tensor<2x3x{place}> {{
    %nil = arith.constant {start} : {float}
    %none = arith.constant {first} : {place}
    %steps = arith.constant dense<{scale}> : tensor<3x{float}>
    %e0 = tensor.empty() : tensor<2x5x3x{float}>
    %x = linalg.generic {{indexing_maps = [#m, {along}, #m], iterator_types = ["parallel", "parallel", "parallel"]}}
        ins(%q, %steps : tensor<2x5x3xi8>, tensor<3x{float}>) outs(%e0 : tensor<2x5x3x{float}>) {{
    ^bb0(%in: i8, %s: {float}, %o: {float}):
      %z = arith.constant 9 : i32
      %w = arith.{extend} %in : i8 to i32
      %d = arith.subi %w, %z : i32
      %f = arith.sitofp %d : i32 to {float}
      %y = arith.mulf %f, %s : {float}
      linalg.yield %y : {float}
    }} -> tensor<2x5x3x{float}>
    %e1 = tensor.empty() : tensor<2x3x{place}>
    %n = linalg.fill ins(%none : {place}) outs(%e1 : tensor<2x3x{place}>) -> tensor<2x3x{place}>
    %e2 = tensor.empty() : tensor<2x3x{float}>
    %i = linalg.fill ins(%nil : {float}) outs(%e2 : tensor<2x3x{float}>) -> tensor<2x3x{float}>
    %both:2 = linalg.generic {{indexing_maps = [#m, #r, #r], iterator_types = ["parallel", "reduction", "parallel"]}}
        ins(%x : tensor<2x5x3x{float}>) outs(%i, %n : tensor<2x3x{float}>, tensor<2x3x{place}>) {{
    ^bb0(%in: {float}, %o: {float}, %at: {place}):
      %j = linalg.index 1 : index
      %k = arith.index_cast %j : index to {place}
      %a = arith.{value} %in, %o : {float}
      %b = arith.cmpf {compare} : {float}
      %c = arith.select %b, {choice} : {place}
      linalg.yield %a, %c : {float}, {place}
    }} -> (tensor<2x3x{float}>, tensor<2x3x{place}>)
    return %both#1 : tensor<2x3x{place}>
  }}
}}
"""
MAXIMUM: dict[str, Any] = {
    "float": "f32", "start": "0xFF800000", "first": 0, "place": "i64", "scale": "0.0371", "along": "#z",
    "extend": "extsi", "value": "maximumf", "compare": "ogt, %in, %o", "choice": "%k, %at",
}  # fmt: skip
MINIMUM = {**MAXIMUM, "start": "0x7F800000", "value": "minimumf", "compare": "olt, %in, %o"}
SPELLINGS: dict[str, dict[str, Any]] = {
    "max": MAXIMUM,
    "min": MINIMUM,
    "exchanged": {**MAXIMUM, "compare": "ult, %o, %in"},
    "negated": {**MAXIMUM, "compare": "oge, %o, %in", "choice": "%at, %k"},
    "negated min": {**MINIMUM, "compare": "uge, %in, %o", "choice": "%at, %k"},
    "unsigned": {**MAXIMUM, "extend": "extui"},
    "unsigned min": {**MINIMUM, "extend": "extui", "place": "i32"},
    "scales beside": {**MAXIMUM, "scale": "[0.5, 0.01, 3.0]"},
}


def inputs() -> list[Any]:
    """Random ones, ties, and the least and greatest everywhere."""
    rng = np.random.default_rng(2)
    shape = (2, 5, 3)
    return [
        rng.integers(-128, 128, shape).astype(np.int8),
        rng.integers(-1, 2, shape).astype(np.int8),
        rng.choice(np.asarray([-128, 127], np.int8), shape),
        *(np.full(shape, n, np.int8) for n in (-128, 127, 0, -1)),
    ]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("target", ["linalg", "iree-cpu", "integer-only"])
def test_places_are_those_of_the_integers(spelling: str, target: str) -> None:
    text = DEQUANTIZED.format(**SPELLINGS[spelling])
    plain, module = (ir.Module.parse(text, ir.Context()) for _ in range(2))
    report = qfuse.fuse(module, target)
    assert [(e["fusion"], e["exactness"]) for e in report.applied] == [("qfuse.argmax", "bit-exact")]
    assert report.missed == []
    assert report.summary["integer_ops"] == 1
    after = str(module)
    assert "f32" not in after
    assert qfuse.fuse(module, target).applied == []
    assert str(module) == after
    programs = [Program(compile_module(m, flags=FLAGS)) for m in (plain, module)]
    for q in inputs():
        (want,), (got,) = (run(q) for run in programs)
        np.testing.assert_array_equal(want, got)
        held = q.astype(np.int64) + (256 * (q < 0) if "unsigned" in spelling else 0)
        np.testing.assert_array_equal(got, held.argmin(1) if "min" in spelling else held.argmax(1))


def refused(text: str) -> list[str]:
    """The reasons of what is missed; the module's text is unchanged."""
    module = ir.Module.parse(text, ir.Context())
    before = str(module)
    report = qfuse.fuse(module, "linalg")
    assert report.applied == []
    assert str(module) == before
    return [e["reason"] for e in report.missed]


@pytest.mark.parametrize("change", [{"start": "0.0"}, {"start": "0x7F800000"}, {"first": 1}], ids=str)
def test_no_fuse_when_it_starts_elsewhere(change: dict[str, Any]) -> None:
    reason = "the reduction does not start from the neutral infinity at place 0"
    assert refused(DEQUANTIZED.format(**{**MAXIMUM, **change})) == [reason]


def test_no_fuse_when_the_scale_varies_along_the_reduction() -> None:
    text = DEQUANTIZED.format(**{**MAXIMUM, "scale": "[0.5, 0.01, 3.0, 0.1, 1.0]"})
    text = text.replace("tensor<3xf32>", "tensor<5xf32>").replace("-> (d2)>", "-> (d1)>")
    assert refused(text) == ["the parameters vary along a reduced dimension"]


def test_no_fuse_when_two_integers_may_be_one_float() -> None:
    """In f16 neighbours near 1024 may round to one number, whose first place is another."""
    reason = "different integers may be the same f16, whose first place is another"
    assert refused(DEQUANTIZED.format(**{**MAXIMUM, "float": "f16", "start": "0xFC00"})) == [reason]


def test_no_fuse_when_dequantized_values_may_be_infinite() -> None:
    """The first infinity may not be the greatest integer."""
    reason = "different integers may be the same f32, whose first place is another"
    assert refused(DEQUANTIZED.format(**{**MAXIMUM, "scale": "3.0e36"})) == [reason]


@pytest.mark.parametrize("compare", ["oge, %in, %o", "olt, %in, %o"])
def test_no_fuse_of_the_last_place(compare: str) -> None:
    reason = "no fusion is registered for a reduction with several results on dequantized values"
    assert refused(DEQUANTIZED.format(**{**MAXIMUM, "compare": compare})) == [reason]


def test_no_fuse_when_the_value_is_read_too() -> None:
    text = DEQUANTIZED.format(**MAXIMUM).replace(
        "-> tensor<2x3xi64> {\n    %nil", "-> (tensor<2x3xi64>, tensor<2x3xf32>) {\n    %nil"
    )
    text = text.replace(
        "return %both#1 : tensor<2x3xi64>", "return %both#1, %both#0 : tensor<2x3xi64>, tensor<2x3xf32>"
    )
    reason = "no fusion is registered for a reduction with several results on dequantized values"
    assert refused(text) == [reason]
