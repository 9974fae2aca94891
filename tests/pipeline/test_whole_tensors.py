"""Quantization spelled with `arith` and `math` operations on whole tensors, as before they become generics."""

from __future__ import annotations

import numpy as np
import pytest
from torch_mlir import ir

import qfuse
from qfuse.integrations.iree import Program, compile_module

M, K, N = 4, 16, 5
STEP = 0.25

STATIC = f"""
  %s = arith.constant dense<0.125> : tensor<{M}x{K}xf32>
  %zf = arith.constant dense<-5.0> : tensor<{M}x{K}xf32>
  %lo = arith.constant dense<-128.0> : tensor<{M}x{K}xf32>
  %hi = arith.constant dense<127.0> : tensor<{M}x{K}xf32>
  %z = arith.constant dense<-5> : tensor<{M}x{K}xi32>
"""
DYNAMIC = f"""
  %zero = arith.constant 0 : index
  %m = tensor.dim %x, %zero : tensor<?x{K}xf32>
  %cs = arith.constant 0.125 : f32
  %cz = arith.constant -5.0 : f32
  %cl = arith.constant -128.0 : f32
  %ch = arith.constant 127.0 : f32
  %ci = arith.constant -5 : i32
  %se = tensor.empty(%m) : tensor<?x{K}xf32>
  %s = linalg.fill ins(%cs : f32) outs(%se : tensor<?x{K}xf32>) -> tensor<?x{K}xf32>
  %zfe = tensor.empty(%m) : tensor<?x{K}xf32>
  %zf = linalg.fill ins(%cz : f32) outs(%zfe : tensor<?x{K}xf32>) -> tensor<?x{K}xf32>
  %loe = tensor.empty(%m) : tensor<?x{K}xf32>
  %lo = linalg.fill ins(%cl : f32) outs(%loe : tensor<?x{K}xf32>) -> tensor<?x{K}xf32>
  %hie = tensor.empty(%m) : tensor<?x{K}xf32>
  %hi = linalg.fill ins(%ch : f32) outs(%hie : tensor<?x{K}xf32>) -> tensor<?x{K}xf32>
  %ze = tensor.empty(%m) : tensor<?x{K}xi32>
  %z = linalg.fill ins(%ci : i32) outs(%ze : tensor<?x{K}xi32>) -> tensor<?x{K}xi32>
"""


def linear(rows: str, constants: str, activation: str) -> str:
    """`[rows, K]` by `[K, N]`, both dequantized, then an activation; a quantize and a dequantize if rows are static."""
    x, q, i, y = (f"tensor<{rows}x{n}>" for n in (f"{K}xf32", f"{K}xi8", f"{K}xi32", f"{N}xf32"))
    dynamic = rows == "?"
    init = f"tensor.empty({'%m' if dynamic else ''}) : {y}"
    tail = "" if dynamic else REQUANTIZE
    return f"""
func.func @main(%x: {x}, %w: tensor<{K}x{N}xi8>) -> {y} {{{constants}
  %d = arith.divf %x, %s : {x}
  %r = math.roundeven %d : {x}
  %a1 = arith.addf %r, %zf : {x}
  %a2 = arith.maximumf %a1, %lo : {x}
  %a3 = arith.minimumf %a2, %hi : {x}
  %q = arith.fptosi %a3 : {x} to {q}
  %e = arith.extsi %q : {q} to {i}
  %e1 = arith.subi %e, %z : {i}
  %e2 = arith.sitofp %e1 : {i} to {x}
  %a = arith.mulf %e2, %s : {x}
  %ws = arith.constant dense<0.03125> : tensor<{K}x{N}xf32>
  %w1 = arith.sitofp %w : tensor<{K}x{N}xi8> to tensor<{K}x{N}xf32>
  %b = arith.mulf %w1, %ws : tensor<{K}x{N}xf32>
  %c0 = arith.constant 0.0 : f32
  %empty = {init}
  %filled = linalg.fill ins(%c0 : f32) outs(%empty : {y}) -> {y}
  %acc = linalg.matmul ins(%a, %b : {x}, tensor<{K}x{N}xf32>) outs(%filled : {y}) -> {y}
  {activation}{tail}
  return %result : {y}
}}"""


Y = f"tensor<{M}x{N}xf32>"
REQUANTIZE = f"""
  %os = arith.constant dense<{STEP}> : {Y}
  %od = arith.divf %act, %os : {Y}
  %or = math.roundeven %od : {Y}
  %ol = arith.constant dense<-128.0> : {Y}
  %oh = arith.constant dense<127.0> : {Y}
  %o1 = arith.maximumf %or, %ol : {Y}
  %o2 = arith.minimumf %o1, %oh : {Y}
  %oq = arith.fptosi %o2 : {Y} to tensor<{M}x{N}xi8>
  %of = arith.sitofp %oq : tensor<{M}x{N}xi8> to {Y}
  %result = arith.mulf %of, %os : {Y}"""
RELU = f"%c = arith.constant dense<0.0> : {Y}\n  %act = arith.maximumf %acc, %c : {Y}"
CHOSEN = f"""
  %c = arith.constant dense<0.0> : {Y}
  %i1 = arith.cmpf ogt, %acc, %c : {Y}
  %act = arith.select %i1, %acc, %c : tensor<{M}x{N}xi1>, {Y}"""
_EACH = 'iterator_types = ["parallel", "parallel"]'
_SAME = "affine_map<(d0, d1) -> (d0, d1)>"
CHOSEN_IN_GENERICS = f"""
  %be = tensor.empty() : tensor<{M}x{N}xi1>
  %i1 = linalg.generic {{indexing_maps = [{_SAME}, {_SAME}], {_EACH}}} ins(%acc : {Y}) outs(%be : tensor<{M}x{N}xi1>) {{
  ^bb0(%u: f32, %v: i1):
    %p = arith.cmpf ult, %u, %c0 : f32
    linalg.yield %p : i1
  }} -> tensor<{M}x{N}xi1>
  %act = linalg.generic {{indexing_maps = [{_SAME}, {_SAME}, {_SAME}], {_EACH}}}
    ins(%i1, %acc : tensor<{M}x{N}xi1>, {Y}) outs(%empty : {Y}) {{
  ^bb0(%p: i1, %u: f32, %v: f32):
    %o = arith.select %p, %c0, %u : f32
    linalg.yield %o : f32
  }} -> {Y}"""
TWICE = f"%result = arith.addf %acc, %acc : tensor<?x{N}xf32>"


def run(text: str, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The result in IREE."""
    (result,) = Program(compile_module(text))(x, w)
    return np.asarray(result)


def inputs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Values on and off the grid, ties and far outside the range; any bytes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 4, (M, K)).astype(np.float32)
    x[0] = (rng.integers(-100, 100, K) + 0.5) * 0.125
    x[1] = rng.choice([-1e6, 1e6, 0.0], K)
    return x, rng.integers(-128, 128, (K, N)).astype(np.int8)


@pytest.mark.parametrize("activation", [RELU, CHOSEN, CHOSEN_IN_GENERICS], ids=["maximum", "select", "generics"])
@pytest.mark.parametrize("target", ["linalg", "iree-cpu", "integer-only"])
def test_a_linear_becomes_integer(target: str, activation: str) -> None:
    """Quantize, dequantize, relu and requantize are read; the result is within the step that is stated."""
    text = linear(str(M), STATIC, activation)
    module = ir.Module.parse(text, ir.Context())
    report = qfuse.fuse(module, target)
    assert module.operation.verify()
    assert report.missed == []
    assert {"qfuse.contraction", "qfuse.requantize"} <= {entry["fusion"] for entry in report.applied}
    fused = str(module)
    assert qfuse.fuse(module, target).applied == []
    assert str(module) == fused
    for seed in range(4):
        x, w = inputs(seed)
        assert np.abs(run(fused, x, w) - run(text, x, w)).max() <= STEP


@pytest.mark.parametrize("target", ["linalg", "iree-cpu"])
def test_a_linear_of_dynamic_rows(target: str) -> None:
    """What has no quantize behind it gives floats; extents come from the operands."""
    text = linear("?", DYNAMIC, TWICE)
    module = ir.Module.parse(text, ir.Context())
    report = qfuse.fuse(module, target)
    assert module.operation.verify()
    assert report.summary["integer_ops"] == 1
    for seed in range(2):
        x, w = inputs(seed)
        assert np.allclose(run(str(module), x, w), run(text, x, w), rtol=1e-5, atol=1e-4)
