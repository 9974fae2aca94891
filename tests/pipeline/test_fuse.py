"""`fuse` rewrites in place: all of the plan, or nothing at all when something raises."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from typing import Any

import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.graph import AccumForm, Decision, Environment, Made, Refusal
from qfuse.matchers.nodes import Contraction, Node, Quantize
from tests.conftest import Parse
from tests.pipeline import samples


def with_locations(module: Any) -> str:
    """The text of a module, its source locations included."""
    return module.operation.get_asm(enable_debug_info=True)


class Toy(qfuse.Fusion):
    """Takes the place of a requantize; `make` is its build."""

    id = "test.toy"
    benefit = 10

    def __init__(self, make: Callable[[Decision, Any], Any]) -> None:
        """A fusion that builds by `make`."""
        self.make = make

    def match(self, node: Node) -> bool:
        """Quantize nodes."""
        return isinstance(node, Quantize)

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Applies behind a contraction."""
        assert isinstance(node, Quantize)
        form = env.form(node.input.payload[0])
        if not isinstance(form, AccumForm):
            return None
        decision = Decision(self, node, "within-1-lsb", needs=(form.decision,), payload=form)
        decision.replacement = Made(decision)
        return decision

    def build(self, decision: Decision, context: Any) -> Any:
        """By `make`."""
        return self.make(decision, context)


class BoomError(Exception):
    """What a broken fusion raises."""


class StopError(BaseException):
    """Not even an Exception, as KeyboardInterrupt is."""


def build_then_raise(error: BaseException) -> Callable[[Decision, Any], Any]:
    """A build that makes accumulators, a constant and an operation, and raises."""

    def make(decision: Decision, context: Any) -> Any:
        context.build(decision.payload.decision)
        context.builder.constant("7 : i32")
        context.builder.create("test.half", [decision.node.result.type])
        raise error

    return make


def build_wrong_type(decision: Decision, context: Any) -> Any:
    """An i32 tensor in the place of an i8 one."""
    return context.builder.create("test.wide", [context.builder.type("tensor<4x4xi32>")]).results[0]


def build_wrong_shape(decision: Decision, context: Any) -> Any:
    """Another shape of the right element type."""
    return context.builder.create("test.short", [context.builder.type("tensor<2x4xi8>")]).results[0]


def build_invalid(decision: Decision, context: Any) -> Any:
    """An operation that does not verify: an addition of two types."""
    accumulators = context.build(decision.payload.decision).value
    operands = [accumulators, context.builder.constant("7 : i32")]
    return context.builder.create("arith.addi", [decision.node.result.type], operands).results[0]


def with_toy(make: Callable[[Decision, Any], Any]) -> qfuse.FusionRegistry:
    """Everything installed and the toy fusion."""
    return qfuse.FusionRegistry.discover().with_(Toy(make))


TWO = samples.module(samples.linear_function("f"), samples.linear_function("g", scale="0.75"))


def test_the_module_is_rewritten_in_place(each_bindings: Bindings) -> None:
    """The same object, which verifies, with no float contraction left."""
    module = each_bindings.parse_source(samples.LINEAR, "test.mlir")
    report = qfuse.fuse(module)
    assert isinstance(report, qfuse.Report)
    assert module.operation.verify()
    text = str(module)
    assert "linalg.matmul" not in text
    assert "arith.muli" in text
    assert "tensor<4x4xf32>" not in text


def test_the_report_of_a_fused_linear(parse: Parse) -> None:
    """Every field, on one contraction and one requantize."""
    module = parse(samples.LINEAR)
    report = qfuse.fuse(module)
    assert report.target == "linalg"
    assert report.quantization_found
    assert report.problems == []
    assert report.missed == []
    assert report.already_integer == []
    assert report.summary == {
        "quantized_compute_ops": 1,
        "integer_ops": 1,
        "float_ops_left": 0,
        "quantized_macs": 64,
        "integer_macs": 64,
    }
    contraction, requantize = report.applied
    assert contraction["fusion"] == "qfuse.contraction"
    assert contraction["op"] == "linalg.matmul"
    assert contraction["function"] == "main"
    assert contraction["exactness"] == "within-1-lsb"
    assert contraction["lhs"] == "s8 per-tensor asymmetric"
    assert contraction["rhs"] == "s8 per-tensor symmetric"
    assert contraction["accumulator"] == "i32"
    assert contraction["accumulator_bound"] == 4 * 131 * 128
    assert contraction["result"] == "s8 per-tensor symmetric"
    assert requantize["fusion"] == "qfuse.requantize"
    assert requantize["exactness"] == "within-1-lsb"
    assert requantize["result"] == "s8 per-tensor symmetric"


def test_the_report_outlives_the_module(parse: Parse) -> None:
    """It holds text and numbers, no operations."""
    module = parse(samples.WEIGHT_ONLY)
    report = qfuse.fuse(module)
    del module
    gc.collect()
    assert "operand 0 (lhs) is not dequantized" in json.dumps(report.to_json())
    assert str(report)
    assert report.remarks()


def test_a_missed_operation_leaves_the_text_unchanged(parse: Parse) -> None:
    """Refused, with reason and hint."""
    module = parse(samples.WEIGHT_ONLY)
    before = with_locations(module)
    report = qfuse.fuse(module)
    assert with_locations(module) == before
    (missed,) = report.missed
    assert missed["op"] == "linalg.matmul"
    assert missed["reason"] == "operand 0 (lhs) is not dequantized"
    assert missed["hint"]
    assert report.summary["quantized_compute_ops"] == 0


def test_a_module_without_quantization_is_told_so_and_unchanged(parse: Parse) -> None:
    """No entry, one remark."""
    module = parse(samples.FLOAT_ONLY)
    before = with_locations(module)
    report = qfuse.fuse(module)
    assert with_locations(module) == before
    assert not report.quantization_found
    assert report.remarks() == [
        "qfuse: remark: the module holds no quantize, dequantize or integer contraction; unchanged"
    ]
    assert "it is unchanged" in str(report)


@pytest.mark.parametrize("text", [samples.LINEAR, samples.PER_AXIS, TWO], ids=["linear", "per-axis", "two"])
@pytest.mark.parametrize("options", [{}, {"spelling": "named"}, {"rounding": "magic"}], ids=str)
def test_a_second_run_applies_nothing(text: str, options: dict[str, Any], parse: Parse) -> None:
    """And changes nothing; the contractions count as integer already."""
    module = parse(text)
    first = qfuse.fuse(module, **options)
    assert first.applied
    after = with_locations(module)
    second = qfuse.fuse(module, **options)
    assert second.applied == []
    assert second.missed == []
    assert with_locations(module) == after
    assert second.summary["integer_ops"] == first.summary["integer_ops"]


@pytest.mark.parametrize("error", [BoomError("boom"), StopError("stop")], ids=repr)
@pytest.mark.parametrize("text", [samples.LINEAR, TWO], ids=["one", "two functions"])
def test_an_exception_while_building_passes_and_the_module_is_unchanged(
    text: str, error: BaseException, each_bindings: Bindings
) -> None:
    """Byte for byte, locations included, and the exception has its own type and identity."""
    module = each_bindings.parse_source(text, "test.mlir")
    before = with_locations(module)
    with pytest.raises(type(error)) as caught:
        qfuse.fuse(module, registry=with_toy(build_then_raise(error)))
    assert caught.value is error
    assert with_locations(module) == before
    assert module.operation.verify()


def test_an_exception_after_another_fusion_was_built_undoes_that_too(parse: Parse) -> None:
    """The first function's fusion is complete when the second's raises."""
    module = parse(TWO)
    before = with_locations(module)
    built: list[Decision] = []

    def second_raises(decision: Decision, context: Any) -> Any:
        built.append(decision)
        if len(built) == 2:
            raise BoomError
        return context.builder.create("test.fine", [decision.node.result.type]).results[0]

    with pytest.raises(BoomError):
        qfuse.fuse(module, registry=with_toy(second_raises))
    assert len(built) == 2
    assert with_locations(module) == before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (build_wrong_type, "fusion test.toy built tensor<4x4xi32> in place of tensor<4x4xi8>"),
        (build_invalid, "'arith.addi' op requires the same type for all operands and results"),
    ],
    ids=["type", "invalid"],
)
def test_a_fusion_that_builds_wrongly_is_an_error_and_changes_nothing(
    make: Callable[[Decision, Any], Any], message: str, each_bindings: Bindings
) -> None:
    """The error names the fusion, or says what does not verify."""
    module = each_bindings.parse_source(samples.LINEAR, "test.mlir")
    before = with_locations(module)
    with pytest.raises(qfuse.QfuseError) as caught:
        qfuse.fuse(module, registry=with_toy(make))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert with_locations(module) == before


def test_a_fusion_that_builds_another_shape_is_an_error_and_changes_nothing(parse: Parse) -> None:
    """No cast makes tensor<2x4xi8> fit tensor<4x4xi8>."""
    module = parse(samples.LINEAR)
    before = with_locations(module)
    with pytest.raises(qfuse.QfuseError):
        qfuse.fuse(module, registry=with_toy(build_wrong_shape))
    assert with_locations(module) == before


def test_an_exception_in_a_check_passes_and_the_module_is_unchanged(parse: Parse) -> None:
    """A bug is not a non-match."""

    class Broken(qfuse.Fusion):
        id = "test.broken"
        benefit = 10

        def match(self, node: Node) -> bool:
            return isinstance(node, Contraction)

        def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
            raise BoomError

    module = parse(samples.LINEAR)
    before = with_locations(module)
    with pytest.raises(BoomError):
        qfuse.fuse(module, registry=qfuse.FusionRegistry.discover().with_(Broken()))
    assert with_locations(module) == before


def test_after_a_failed_run_the_module_can_be_fused(parse: Parse) -> None:
    """Nothing of the failure stays behind."""
    module, untouched = parse(samples.LINEAR), parse(samples.LINEAR)
    with pytest.raises(BoomError):
        qfuse.fuse(module, registry=with_toy(build_then_raise(BoomError())))
    assert qfuse.fuse(module).to_json() == qfuse.fuse(untouched).to_json()
    assert str(module) == str(untouched)


def test_disabled_fusions_are_not_used(parse: Parse) -> None:
    """Without the requantize the contraction ends in a float value, which the quantize reads."""
    module = parse(samples.LINEAR)
    report = qfuse.fuse(module, disable=["qfuse.requantize"])
    assert [entry["fusion"] for entry in report.applied] == ["qfuse.contraction"]
    assert report.applied[0]["result"] == "f32"
    assert "math.roundeven" in str(module)
    assert module.operation.verify()


def test_a_chosen_fusion_alone_is_used(parse: Parse) -> None:
    """`fusions` names what may be used; reading dequantizes is not a choice."""
    report = qfuse.fuse(parse(samples.LINEAR), fusions=["qfuse.contraction"])
    assert [entry["fusion"] for entry in report.applied] == ["qfuse.contraction"]
