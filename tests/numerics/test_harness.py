"""The judge, the interpreter and the references are right themselves."""

from __future__ import annotations

import numpy as np
import pytest
from torch_mlir import ir

from tests.numerics.harness import Batch, Case, judge
from tests.numerics.interpreter import PoisonError, interpret
from tests.numerics.test_granularities import PLAINS
from tests.strategies import Function, Grid


def small(exact: bool = False) -> Case:
    """One linear whose scales are no powers of two."""
    f = Function("small")
    a = f.dequantize(f.argument((3, 5), Grid(scale=0.021, zero=4)))
    b = f.dequantize(f.weight((5, 4), Grid(scale=0.013)))
    return Case(f.results(f.quantize(f.matmul(a, b), Grid(scale=0.04))), exact=exact)


@pytest.mark.parametrize("name", [n for n in PLAINS if n.startswith("l_tensor")])
def test_the_unfused_program_meets_its_reference(name: str) -> None:
    """Text and reference say the same: f32 arithmetic in any order is near real arithmetic."""
    case = PLAINS[name]
    module = Batch([case], None).fused(name).module
    for inputs in case.inputs():
        judge(case, inputs, interpret(module, name, list(inputs.values())))


def test_the_interpreter_agrees_with_the_compiler() -> None:
    """Bit for bit, on integers."""
    case = small()
    batch = Batch([case], None)
    for inputs in case.inputs():
        compiled = batch.run("small", inputs)
        np.testing.assert_array_equal(
            interpret(batch.fused("small").module, "small", list(inputs.values()))[0], compiled[0]
        )


@pytest.mark.parametrize("step", [1, -1, 2])
def test_a_wrong_step_is_rejected(step: int) -> None:
    """One step off, far from a rounding boundary, is wrong."""
    case = small()
    inputs = case.inputs()[0]
    (right,) = interpret(Batch([case], None).fused("small").module, "small", list(inputs.values()))
    wrong = right.copy()
    wrong[1, 2] += step if abs(int(wrong[1, 2]) + step) < 128 else -step
    judge(case, inputs, [right])
    with pytest.raises(AssertionError, match="1 of 12 stored outputs"):
        judge(case, inputs, [wrong])


def test_poison_is_an_error() -> None:
    """A float that does not fit the integer it is cast to."""
    text = """
    func.func @f(%x: tensor<2xf32>) -> tensor<2xi8> {
      %e = tensor.empty() : tensor<2xi8>
      %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                           iterator_types = ["parallel"]} ins(%x : tensor<2xf32>) outs(%e : tensor<2xi8>) {
      ^bb0(%a: f32, %b: i8):
        %i = arith.fptosi %a : f32 to i8
        linalg.yield %i : i8
      } -> tensor<2xi8>
      return %r : tensor<2xi8>
    }
    """
    with ir.Context():
        module = ir.Module.parse(text)
        np.testing.assert_array_equal(interpret(module, "f", [np.array([3.9, -2.2])])[0], [3, -2])
        with pytest.raises(PoisonError, match="does not fit s8"):
            interpret(module, "f", [np.array([3.0, 128.0])])
