"""Kernel calls: three spellings of one description, what is folded and arranged, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from torch_mlir import ir, passmanager

import qfuse
from qfuse import KernelCall, KernelFusion, KernelValue
from qfuse._mlir import Bindings
from tests.conftest import Parse
from tests.pipeline import samples

V = KernelValue
NUMBERS = (V("lhs_zero_point"), V("result_zero_point"), V("result_min"), V("result_max"))
CALL = KernelCall(
    "acme_qmatmul",
    (
        V("lhs", "mk"),
        V("rhs", "nk"),
        V("bias", "n", "i32"),
        V("multiplier", "n", "i32"),
        V("shift", "n", "i8"),
        *NUMBERS,
    ),
    "mn",
)
MATMUL = KernelFusion(id="acme.qmatmul", call=CALL, doc="quantized matmul and requantize -> acme_qmatmul")
OP = KernelCall(
    "acme.qmatmul",
    (V("lhs", "mk"), V("rhs", "nk"), V("bias", "n", "i32")),
    "mn",
    attributes=(V("multiplier", "n", "i32"), V("shift", "n", "i8"), *NUMBERS),
    fixed={"rounding": '"single"'},
    spelling="op",
)


def linear(rows: str = "4", zero_point: int = 3, weight_zero: int = 0, weight: str | None = None) -> str:
    """A linear layer of constant weights 0, 1, ... (4 x 4), or of an argument."""
    values = [[4 * i + j for j in range(4)] for i in range(4)]
    constant = f"    %qb = arith.constant dense<{values}> : tensor<4x4xi8>\n" if weight is None else ""
    arguments = f"%qa: tensor<{rows}x4xi8>" + ("" if weight is None else f", %qb: {weight}")
    text = (
        constant
        + samples.dequantize("a", "qa", f"{rows}x4", zero_point=zero_point)
        + samples.dequantize("b", "qb", scale="0.125", zero_point=weight_zero)
        + samples.matmul("m", "a", "b", m=rows)  # type: ignore[arg-type]
        + samples.quantize("r", "m", f"{rows}x4", zero_point=-7)
    )
    return samples.module(samples.function(text, arguments, f"tensor<{rows}x4xi8>", "r"))


def registry(*fusions: qfuse.Fusion) -> qfuse.FusionRegistry:
    return qfuse.FusionRegistry.discover().with_(*fusions, owner="acme")


def fused(text: str, fusion: KernelFusion, **options: Any) -> tuple[ir.Module, qfuse.Report]:
    """A module that the kernel took."""
    context = ir.Context()
    context.allow_unregistered_dialects = True
    module = ir.Module.parse(text, context)
    report = qfuse.fuse(module, registry=registry(fusion), **options)
    assert module.operation.verify()
    return module, report


def changed(fusion: KernelFusion = MATMUL, **fields: Any) -> KernelFusion:
    return dataclasses.replace(fusion, **fields)


def the_operation(module: ir.Module, name: str) -> Any:
    """The only operation of a name in the function @main."""
    found: list[Any] = []
    for function in module.body.operations:
        for block in function.operation.regions[0].blocks if len(function.operation.regions[0].blocks) else ():
            found += [o.operation for o in block.operations if o.operation.name == name]
    (operation,) = found
    return operation


def constant_of(value: Any) -> Any:
    """The number or array behind an operand."""
    op = value.owner
    while op.name == "tensor.cast":
        op = op.operands[0].owner
    attribute = op.attributes["value"]
    return np.array(attribute) if isinstance(attribute, ir.DenseElementsAttr) else attribute.value


# -- spellings -------------------------------------------------------------------------------------------------------


def test_a_layer_becomes_a_call_of_a_declared_function() -> None:
    """Signature, operands and constants; nothing else is left of the layer."""
    module, report = fused(linear(), MATMUL)
    declaration = module.body.operations[0].operation
    dynamic, vector = "tensor<?x?xi8>", "tensor<?xi32>"
    assert str(declaration.attributes["function_type"].value) == (
        f"({dynamic}, {dynamic}, {vector}, {vector}, tensor<?xi8>, i32, i32, i32, i32, {dynamic}) -> {dynamic}"
    )
    assert declaration.attributes["sym_visibility"].value == "private"
    assert "llvm.emit_c_interface" in declaration.attributes
    access = [str(a) for a in declaration.attributes["arg_attrs"]]
    assert access == ['{bufferization.access = "read"}'] * 5 + ["{}"] * 4 + ['{bufferization.access = "write"}']
    call = the_operation(module, "func.call")
    weights, bias, multiplier, shift, *numbers = map(constant_of, list(call.operands)[1:-1])
    assert np.array_equal(weights, np.arange(16).reshape(4, 4).T)
    # 0.5 * 0.125 / 0.25 is 2^30 / 2^32
    assert (bias == 0).all()
    assert (multiplier == 1 << 30).all()
    assert (shift == 32).all()
    assert numbers == [3, -7, -128, 127]
    assert "linalg" not in str(module)
    assert [e["fusion"] for e in report.applied] == ["qfuse.contraction", "acme.qmatmul"]
    assert report.applied[1]["kernel"] == "acme_qmatmul"
    assert report.summary["integer_ops"] == 1


def test_a_layer_becomes_an_operation_with_attributes() -> None:
    """Arrays are dense arrays, what is fixed is as given."""
    module, _ = fused(linear(), changed(call=OP))
    op = the_operation(module, "acme.qmatmul")
    assert list(op.attributes["multiplier"]) == [1 << 30] * 4
    assert str(op.attributes["shift"]) == "array<i8: 32, 32, 32, 32>"
    assert op.attributes["lhs_zero_point"].value == 3
    assert op.attributes["rounding"].value == "single"
    assert [str(o.type) for o in op.operands] == ["tensor<4x4xi8>", "tensor<4x4xi8>", "tensor<4xi32>"]


def test_a_layer_becomes_a_custom_operator_of_tosa() -> None:
    """Attributes are one JSON text; numbers among the operands are constant tensors."""
    call = dataclasses.replace(OP, kernel="qmatmul", spelling="tosa.custom", domain="acme")
    module, _ = fused(linear(), changed(call=call))
    op = the_operation(module, "tosa.custom")
    assert op.attributes["operator_name"].value == "qmatmul"
    assert op.attributes["domain_name"].value == "acme"
    carried = json.loads(op.attributes["implementation_attrs"].value)
    assert carried["multiplier"] == [1 << 30] * 4
    assert carried["result_zero_point"] == -7
    assert op.operands[2].owner.name == "tosa.const"


@pytest.mark.parametrize("spelling", ["func.call", "op", "tosa.custom"])
def test_each_spelling_verifies_in_each_binding(spelling: str, each_bindings: Bindings) -> None:
    call = CALL if spelling == "func.call" else dataclasses.replace(OP, spelling=spelling, kernel="acme.qmatmul")
    module = each_bindings.parse_source(linear(), "test.mlir")
    report = qfuse.fuse(module, registry=registry(changed(call=call)))
    assert report.applied[-1]["fusion"] == "acme.qmatmul"
    assert module.operation.verify()


def test_a_function_of_static_shapes_has_them_in_its_name() -> None:
    call = dataclasses.replace(CALL, dynamic=False)
    module, _ = fused(linear(), changed(call=call))
    assert module.body.operations[0].operation.attributes["sym_name"].value == "acme_qmatmul_4x4_4x4_4_4_4_4x4"
    assert "tensor.cast" not in str(module)


def test_one_declaration_serves_all_calls_and_a_second_run_changes_nothing() -> None:
    text = linear()
    twice = text[: text.rindex("}")] + text[text.index("func.func") : text.rindex("}")].replace("@main", "@other") + "}"
    module, _ = fused(twice, MATMUL)
    assert str(module).count("func.func private @acme_qmatmul") == 1
    assert str(module).count("call @acme_qmatmul") == 2
    before = str(module)
    report = qfuse.fuse(module, registry=registry(MATMUL))
    assert report.applied == []
    assert str(module) == before


def test_rows_of_dynamic_extent(parse: Parse) -> None:
    """The result's extent is that of the first operand."""
    text = linear("?").replace("tensor.empty() : tensor<?x", "tensor.empty(%rows) : tensor<?x")
    start = text.index("{", text.index("func.func")) + 1
    size = "\n    %zero = arith.constant 0 : index\n    %rows = tensor.dim %qa, %zero : tensor<?x4xi8>\n"
    module = parse(text[:start] + size + text[start:])
    report = qfuse.fuse(module, registry=registry(MATMUL))
    assert report.applied[-1]["fusion"] == "acme.qmatmul"
    destination = list(the_operation(module, "func.call").operands)[-1].owner.operands[0].owner
    assert destination.name == "tensor.empty"
    assert destination.operands[0].owner.name == "tensor.dim"


def test_a_pass_on_the_module_declares_the_kernel(parse: Parse) -> None:
    """In a pass manager that verifies after each pass."""
    module = parse(linear())
    step = qfuse.as_pass(registry=registry(MATMUL))
    with module.context:
        pipeline = passmanager.PassManager("builtin.module")
    pipeline.enable_verifier(True)
    pipeline.add("canonicalize")
    pipeline.add(step)
    pipeline.add("cse")
    pipeline.run(module.operation)
    assert "call @acme_qmatmul" in str(module)
    (report,) = step.reports  # type: ignore[attr-defined]
    assert report.applied[-1]["kernel"] == "acme_qmatmul"


# -- folding ---------------------------------------------------------------------------------------------------------


def test_the_zero_point_is_folded_into_the_bias() -> None:
    operands = tuple(dataclasses.replace(v, name="folded_bias") if v.name == "bias" else v for v in CALL.operands)
    call = dataclasses.replace(CALL, operands=tuple(v for v in operands if v.name != "lhs_zero_point"))
    module, _ = fused(linear(), changed(call=call))
    folded = constant_of(list(the_operation(module, "func.call").operands)[2])
    assert folded.tolist() == (-3 * np.arange(16).reshape(4, 4).sum(axis=0)).tolist()


def test_the_reduction_is_padded_to_a_multiple() -> None:
    """Weights by zeros now, the other operand by its zero point at run time."""
    module, _ = fused(linear(), changed(pads={"k": 16}))
    call = the_operation(module, "func.call")
    weights = constant_of(call.operands[1])
    assert weights.shape == (4, 16)
    assert not weights[:, 4:].any()
    pad = call.operands[0].owner.operands[0].owner
    assert str(pad.results[0].type) == "tensor<4x16xi8>"
    yielded = list(pad.regions[0].blocks[0].operations)[-1].operation.operands[0]
    assert constant_of(yielded) == 3


def test_weights_on_the_left_are_the_kernels_second_operand() -> None:
    """W x: the kernel computes x W, and its result is transposed."""
    text = linear().replace("ins(%a, %b : ", "ins(%b, %a : ")
    module, _ = fused(text, MATMUL)
    call = the_operation(module, "func.call")
    assert np.array_equal(constant_of(call.operands[1]), np.arange(16).reshape(4, 4))
    assert call.operands[0].owner.operands[0].owner.name == "linalg.transpose"
    assert "linalg.transpose" in str(call.results[0].owner.parent)


# -- refusals --------------------------------------------------------------------------------------------------------


def test_no_folded_bias_that_does_not_fit() -> None:
    """128 * 9436100 of stored integers and 100 * 9436100 of the zero point; 227 * 9436100 of corrected ones fit."""
    k = 74300
    text = (
        f"    %qb = arith.constant dense<127> : tensor<{k}x1xi8>\n"
        + samples.dequantize("a", "qa", f"1x{k}", zero_point=-100)
        + samples.dequantize("b", "qb", f"{k}x1", scale="0.125")
        + samples.matmul("m", "a", "b", m=1, k=k, n=1)
        + samples.quantize("r", "m", "1x1", scale="1048576.0")
    )
    text = samples.module(samples.function(text, f"%qa: tensor<1x{k}xi8>", "tensor<1x1xi8>", "r"))
    _, report = fused(text, MATMUL)
    assert report.applied[-1]["fusion"] == "acme.qmatmul"
    folded = tuple(dataclasses.replace(v, name="folded_bias") if v.name == "bias" else v for v in CALL.operands)
    _, report = fused(text, changed(call=dataclasses.replace(CALL, operands=folded)))
    (declined,) = report.applied[-1]["declined"]
    assert declined == (
        f"acme.qmatmul: acme_qmatmul: products and bias can reach {228 * 127 * k}, which does not fit i32"
    )


@pytest.mark.parametrize(
    ("fusion", "text", "reason"),
    [
        (changed(multiples={"k": 16}), linear(), "takes a multiple of 16 for k, found 4"),
        (changed(limits={"n": 3}), linear(), "takes at most 3 for n, found 4"),
        (changed(storage={"lhs": frozenset({"u8"})}), linear(), "takes u8 for lhs, found s8"),
        (changed(), linear(weight_zero=2), "takes no rhs_zero_point, found 2"),
        (
            changed(constants=frozenset({"rhs"})),
            linear(weight="tensor<4x4xi8>"),
            "takes a constant rhs, found one known only at run time",
        ),
        (
            changed(call=dataclasses.replace(CALL, operands=CALL.operands[:5] + CALL.operands[6:])),
            linear(),
            "takes no lhs_zero_point, found 3",
        ),
        (
            changed(call=dataclasses.replace(CALL, operands=CALL.operands[:-1])),
            linear().replace("arith.constant 127.0", "arith.constant 100.0"),
            "takes no result_max, found 100",
        ),
        (changed(power_of_two=True), linear().replace("0.125", "0.13"), None),
    ],
)
def test_what_the_description_has_no_place_for_is_declined(fusion: KernelFusion, text: str, reason: str | None) -> None:
    """A built-in takes the layer, and its entry says why the kernel did not."""
    module, report = fused(text, fusion)
    assert "acme" not in str(module)
    (entry,) = [e for e in report.applied if e["fusion"] == "qfuse.requantize"]
    (declined,) = entry["declined"]
    if reason is not None:
        assert declined == f"acme.qmatmul: acme_qmatmul: {reason}"
    else:
        assert "must be a power of two" in declined


def test_no_call_when_the_reason_is_all_that_is_left() -> None:
    """Without built-in requantizes the layer's quantize stays in float, and its entry says why."""
    context = ir.Context()
    module = ir.Module.parse(linear(), context)
    own = registry(changed(multiples={"k": 16})).without("qfuse.requantize")
    (missed,) = qfuse.fuse(module, registry=own).missed
    assert missed["reason"] == "acme_qmatmul: takes a multiple of 16 for k, found 4"


def test_no_call_when_the_name_is_another_functions(parse: Parse) -> None:
    text = linear().replace("func.func @main", "func.func private @acme_qmatmul(i32) -> i32\n  func.func @main")
    report = qfuse.fuse(parse(text), registry=registry(MATMUL))
    (declined,) = report.applied[-1]["declined"]
    assert declined.startswith("acme.qmatmul: acme_qmatmul: @acme_qmatmul is (i32) -> i32 already")


def test_no_declaration_from_a_run_on_one_function(parse: Parse) -> None:
    """Unless the function is declared already."""
    module = parse(linear())
    report = qfuse.fuse(module.body.operations[0], registry=registry(MATMUL))
    assert "is not declared" in report.applied[-1]["declined"][0]
    module, _ = fused(linear(), MATMUL)
    declaration = str(module.body.operations[0])
    module = parse(linear().replace("func.func @main", f"{declaration}\n  func.func @main"))
    report = qfuse.fuse(module.body.operations[1], registry=registry(MATMUL))
    assert report.applied[-1]["fusion"] == "acme.qmatmul"


def test_no_operation_that_the_context_does_not_know(parse: Parse) -> None:
    module = parse(linear())
    module.context.allow_unregistered_dialects = False
    report = qfuse.fuse(module, registry=registry(changed(call=OP)))
    assert "acme.qmatmul is not registered" in report.applied[-1]["declined"][0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dataclasses.replace(CALL, spelling="call"), "spelling is one of func.call, tosa.custom, op"),
        (lambda: dataclasses.replace(CALL, fixed={"a": "unit"}), "a function takes no attributes"),
        (lambda: dataclasses.replace(OP, kernel="qmatmul"), "name is dialect.name"),
        (lambda: dataclasses.replace(OP, operands=(*OP.operands, V("bias"))), "given twice: bias"),
        (lambda: changed(computes="pooling"), "computes is one of contraction, convolution"),
        (lambda: changed(scaling="up"), "scaling is one of"),
        (lambda: changed(pads={"n": 4}), "only k can be padded, not n"),
        (lambda: changed(call=dataclasses.replace(CALL, operands=(V("lhs", "mk"),))), "rhs must be an operand"),
        (lambda: changed(call=dataclasses.replace(CALL, operands=(V("weight"),))), "'weight' is not one of lhs"),
        (lambda: dataclasses.replace(CALL, kernel=""), "a kernel has a name, got ''"),
        (
            lambda: dataclasses.replace(CALL, operands=(V("lhs", "mk", "int8"),)),
            "lhs has an MLIR type such as i32, not",
        ),
        (lambda: dataclasses.replace(CALL, operands="lhs"), "operands and attributes are KernelValue objects"),
        (lambda: changed(call=dataclasses.replace(CALL, result="mk")), "layout of result has each of b, m, n once at"),
        (lambda: changed(call=dataclasses.replace(CALL, result="mm")), "not 'mm'"),
        (lambda: changed(computes="convolution"), "layout of lhs has each of n, g, c, d, h, w once at most, not 'mk'"),
        (lambda: changed(multiples={"K": 16}), "multiples are of b, k, m, n, not of 'K'"),
        (lambda: changed(limits={"k": 0}), "limits of k takes a positive integer, got 0"),
        (lambda: changed(constants="rhs"), "constants takes a set of lhs and rhs, got 'rhs'"),
        (lambda: changed(constants={"weight"}), "constants takes a set of lhs and rhs, got {'weight'}"),
        (lambda: changed(storage={"weight": {"s8"}}), "storage is of lhs, rhs, result, not of 'weight'"),
        (lambda: changed(storage={"rhs": {"int8"}}), "storage of rhs takes storage types such as s8 or u4, got 'int8'"),
        (lambda: changed(storage={"rhs": "s8"}), "storage of rhs takes a list, got 's8'"),
    ],
)
def test_a_description_that_contradicts_itself_is_an_error(make: Any, message: str) -> None:
    with pytest.raises(qfuse.UsageError, match=message):
        make()
