"""A third party's fusion, target and emitter, registered by hand, are used and seen in the IR and in the report."""

from __future__ import annotations

from typing import Any

import pytest

import qfuse
from qfuse._mlir import Bindings
from tests.conftest import Parse
from tests.pipeline import samples
from tests.plugin.toy_vendor import toy_vendor


@pytest.fixture(scope="module")
def registry() -> qfuse.FusionRegistry:
    """Everything installed, and the toy vendor's."""
    return qfuse.FusionRegistry.discover().with_(
        *toy_vendor.fusions(), *toy_vendor.targets(), owner="toy", emitters={"toy": toy_vendor.ToyEmitter}
    )


# -- fusion --------------------------------------------------------------------------------------------------------


def test_a_fusion_of_greater_benefit_is_used(registry: qfuse.FusionRegistry, each_bindings: Bindings) -> None:
    """In the IR: one operation on the stored integers, with attributes. In the report: an entry of its own."""
    module = each_bindings.parse_source(samples.LINEAR, "test.mlir")
    report = qfuse.fuse(module, registry=registry)
    assert module.operation.verify()
    text = str(module)
    assert '%0 = "toy.qmatmul"(%arg0, %arg1) {' in text
    assert "lhs_zero_point = 3 : i32" in text
    assert "multiplier = 2.500000e-01 : f64" in text
    assert "linalg." not in text
    toy = report.applied[-1]
    assert toy["fusion"] == "toy.qmatmul"
    assert toy["exactness"] == "within-1-lsb"
    assert toy["kernel"] == "qmatmul"
    assert toy["multiplier"] == 0.25
    assert report.missed == []
    assert report.summary["integer_ops"] == report.summary["quantized_compute_ops"] == 1
    assert any("toy.qmatmul" in line and "multiplier 0.25" in line for line in report.remarks())


def test_where_the_fusion_refuses_the_next_one_is_asked(registry: qfuse.FusionRegistry, parse: Parse) -> None:
    """Per-axis weights: qfuse's own requantize takes over, and nothing is missed."""
    report = qfuse.fuse(parse(samples.PER_AXIS_REQUANTIZED), registry=registry)
    assert [entry["fusion"] for entry in report.applied] == ["qfuse.contraction", "qfuse.requantize"]
    assert report.missed == []


def test_where_no_fusion_is_left_the_refusal_is_the_reason(registry: qfuse.FusionRegistry, parse: Parse) -> None:
    """The toy's reason and its location, and the float quantize stays."""
    module = parse(samples.PER_AXIS_REQUANTIZED)
    report = qfuse.fuse(module, registry=registry.without("qfuse.requantize"))
    (missed,) = report.missed
    assert missed["reason"] == "the toy kernel takes one scale and zero point a tensor"
    assert "math.roundeven" in str(module)
    assert module.operation.verify()


def test_a_second_run_leaves_the_vendors_operation_alone(registry: qfuse.FusionRegistry, parse: Parse) -> None:
    """It is neither fused again nor missed."""
    module = parse(samples.LINEAR)
    qfuse.fuse(module, registry=registry)
    after = str(module)
    report = qfuse.fuse(module, registry=registry)
    assert report.applied == []
    assert report.missed == []
    assert str(module) == after


def test_the_vendors_operation_feeds_a_built_in_fusion(registry: qfuse.FusionRegistry, parse: Parse) -> None:
    """Two linears in a row, of which the vendor's kernel takes the first by choice of `fusions`."""
    body = (
        samples.dequantize("a", "qa", zero_point=3)
        + samples.dequantize("b", "qb", scale="0.125")
        + samples.matmul("m", "a", "b")
        + samples.quantize("r", "m")
        + samples.dequantize("c", "r", scale="0.25")
        + samples.matmul("n", "c", "b")
    )
    module = parse(
        samples.module(samples.function(body, "%qa: tensor<4x4xi8>, %qb: tensor<4x4xi8>", "tensor<4x4xf32>", "n"))
    )
    report = qfuse.fuse(module, registry=registry)
    assert [entry["fusion"] for entry in report.applied] == ["qfuse.contraction", "toy.qmatmul", "qfuse.contraction"]
    assert report.missed == []
    assert str(module).index("toy.qmatmul") < str(module).index("arith.muli")


# -- target --------------------------------------------------------------------------------------------------------


def missed_reason(module: Any, target: qfuse.Target) -> str:
    """The one reason why a module is not fused on a target; its text stays."""
    before = str(module)
    report = qfuse.fuse(module, target)
    assert report.target == target.name
    assert report.applied == []
    assert str(module) == before
    (missed,) = report.missed
    assert missed["op"] == "linalg.matmul"
    return missed["reason"]


@pytest.mark.parametrize(
    ("restrictions", "reason"),
    [
        ({"storage": frozenset({"u8"})}, "target toy takes storage u8, lhs is s8 (field storage)"),
        ({"storage": frozenset({"u8", "s4"})}, "target toy takes storage s4, u8, lhs is s8 (field storage)"),
        (
            {"granularities": {"rhs": frozenset({"per-tensor"})}},
            "target toy takes per-tensor for rhs, it is per-axis(1) (field granularities.rhs)",
        ),
        (
            {"granularities": {"lhs": frozenset({"per-token", "per-axis"})}},
            "target toy takes per-axis, per-token for lhs, it is per-tensor (field granularities.lhs)",
        ),
        ({"asymmetric": frozenset({"rhs"})}, "target toy takes no zero point on lhs (field asymmetric)"),
        ({"asymmetric": frozenset()}, "target toy takes no zero point on lhs (field asymmetric)"),
        (
            {"accumulators": (8,), "split_reduction": False},
            # columns of absolute weights sum up to 28, 32, 36 and 40; |q - 3| is at most 131
            "the accumulator can reach 5240, which does not fit i8 (field accumulators)",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_each_restriction_refuses_with_its_reason(restrictions: dict[str, Any], reason: str, parse: Parse) -> None:
    """What the target takes, and what was found; without the restriction it is fused."""
    assert missed_reason(parse(samples.PER_AXIS), qfuse.Target("toy", **restrictions)) == reason
    assert qfuse.fuse(parse(samples.PER_AXIS), qfuse.Target("toy")).summary["integer_ops"] == 1


def test_an_allowed_combination_is_fused(parse: Parse) -> None:
    """All restrictions at once, none of them violated."""
    target = qfuse.Target(
        "toy",
        storage=frozenset({"s8"}),
        granularities={"lhs": frozenset({"per-tensor"}), "rhs": frozenset({"per-axis"})},
        asymmetric=frozenset({"lhs"}),
        accumulators=(32,),
    )
    report = qfuse.fuse(parse(samples.PER_AXIS), target)
    assert report.target == "toy"
    assert report.summary["integer_ops"] == 1
    assert report.missed == []


def test_a_narrow_accumulator_is_used_where_the_weights_prove_it(parse: Parse) -> None:
    """5240 fits 16 bits; by the types alone it would not."""
    report = qfuse.fuse(parse(samples.PER_AXIS), qfuse.Target("toy", accumulators=(16, 32)))
    assert report.applied[0]["accumulator"] == "i16"
    assert report.applied[0]["accumulator_bound"] == 5240


def test_no_fuse_when_the_target_forbids_the_contraction(parse: Parse) -> None:
    """A forbidden fusion is not used; the contraction is missed with a reason, the text unchanged."""
    for target in (
        qfuse.Target("toy", forbidden=frozenset({"qfuse.contraction"})),
        qfuse.Target("toy", fusions=frozenset({"qfuse.dequantize", "qfuse.layout"})),
    ):
        assert missed_reason(parse(samples.PER_AXIS), target)


def test_a_target_forbids_a_requantize_only(parse: Parse) -> None:
    """The contraction is integer, its result a float."""
    module = parse(samples.LINEAR)
    report = qfuse.fuse(module, qfuse.Target("toy", forbidden=frozenset({"qfuse.requantize"})))
    assert [entry["fusion"] for entry in report.applied] == ["qfuse.contraction"]
    assert "math.roundeven" in str(module)


def test_a_targets_defaults_are_options_that_the_caller_overrides(parse: Parse) -> None:
    """Here the rounding."""
    target = qfuse.Target("toy", rounding="magic")
    by_default, overridden = parse(samples.LINEAR), parse(samples.LINEAR)
    qfuse.fuse(by_default, target)
    qfuse.fuse(overridden, target, rounding="roundeven")
    assert "math.roundeven" not in str(by_default)
    assert "math.roundeven" in str(overridden)


def test_a_registered_target_is_found_by_name(registry: qfuse.FusionRegistry, parse: Parse) -> None:
    """And its restrictions hold."""
    report = qfuse.fuse(parse(samples.LINEAR), "toy-npu", registry)
    assert report.target == "toy-npu"
    assert report.summary["integer_ops"] == 1
    swapped = samples.LINEAR.replace("ins(%a, %b : ", "ins(%b, %a : ")
    (missed,) = qfuse.fuse(parse(swapped), "toy-npu", registry).missed
    assert missed["reason"] == "target toy-npu takes no zero point on rhs (field asymmetric)"


# -- emitter -------------------------------------------------------------------------------------------------------


def test_one_overridden_method_of_an_emitter_is_used(registry: qfuse.FusionRegistry, each_bindings: Bindings) -> None:
    """The rest is spelled as ever."""
    module = each_bindings.parse_source(samples.LINEAR, "test.mlir")
    report = qfuse.fuse(module, qfuse.Target("toy", emitter="toy"), registry.without("toy.qmatmul"))
    assert module.operation.verify()
    assert [entry["fusion"] for entry in report.applied] == ["qfuse.contraction", "qfuse.requantize"]
    text = str(module)
    assert '"toy.mac"(%arg0, %arg1, ' in text
    assert "(tensor<4x4xi8>, tensor<4x4xi8>, tensor<4x4xi32>) -> tensor<4x4xi32>" in text
    assert "math.roundeven" in text


def test_other_targets_keep_their_emitter(registry: qfuse.FusionRegistry, parse: Parse) -> None:
    """An emitter is the target's choice."""
    module = parse(samples.LINEAR)
    qfuse.fuse(module, "linalg", registry.without("toy.qmatmul"))
    assert "toy.mac" not in str(module)
