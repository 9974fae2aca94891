"""Costs of single regions, counted by hand: sharing, crossings, overrides, and numbers that are not known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from torch_mlir import ir

import qfuse
from qfuse.cost.model import roofline
from qfuse.cost.workload import element_bits
from qfuse.graph import AccumForm, Environment, Made, StoredForm
from qfuse.matchers.nodes import Contraction, Node
from tests.cli.conftest import Opt, opt  # noqa: F401
from tests.cost.machines import NORMAL
from tests.pipeline import samples

ARGUMENTS = "%qa: tensor<4x4xi8>, %qb: tensor<4x4xi8>, %qc: tensor<4x4xi8>"
Price = Callable[[qfuse.Workload], "float | None"]


def machine(integer: float, float_: float, dequantize: float, crossing: float = 0.0) -> qfuse.Target:
    """Prices of contractions and dequantizes in seconds; quantizes cost 1 in integers and in float."""
    costs: dict[str, Price] = {
        "contraction": lambda w: integer if w.integer else float_,
        "dequantize": lambda w: crossing if w.integer else dequantize,
        "requantize": lambda _: 1.0,
        "quantize": lambda _: 1.0,
    }
    return qfuse.Target("priced", costs=costs)


def planned(body: str, result: str, target: qfuse.Target, **options: Any) -> qfuse.Report:
    returned = "tensor<4x4xi8>" if result.startswith("r") else "tensor<4x4xf32>"
    module = ir.Module.parse(samples.module(samples.function(body, ARGUMENTS, returned, result)), ir.Context())
    return qfuse.plan(module, target, policy="profitable", **options).report


def chosen(report: qfuse.Report) -> list[tuple[str, float, float, float]]:
    return [(e["chosen"], e["integer_seconds"], e["float_seconds"], e["cut_seconds"]) for e in report.cost]


def linear(name: str, lhs: str, rhs: str) -> str:
    return samples.matmul(f"m{name}", lhs, rhs) + samples.quantize(f"r{name}", f"m{name}")


A, B, C = (samples.dequantize(x, f"q{x}") for x in "abc")


# -- regions ---------------------------------------------------------------------------------------------------------


def test_one_layer() -> None:
    """Integer: product and requantize. Float: two dequantizes, product, quantize."""
    body = A + B + linear("0", "a", "b")
    assert chosen(planned(body, "r0", machine(5, 2, 2))) == [("integer", 6, 7, 6)]
    assert chosen(planned(body, "r0", machine(7, 2, 2))) == [("float", 8, 7, 7)]
    assert chosen(planned(body, "r0", machine(6, 2, 2))) == [("integer", 7, 7, 7)]


def shared() -> str:
    """One dequantized value that two layers read; the second layer's quantize reads the first's result as well."""
    return A + B + C + linear("0", "a", "b") + linear("1", "a", "c")


def returning_both(body: str) -> Any:
    text = f"  func.func @main({ARGUMENTS}) -> (tensor<4x4xi8>, tensor<4x4xi8>) {{\n{body}"
    text += "    return %r0, %r1 : tensor<4x4xi8>, tensor<4x4xi8>\n  }\n"
    return ir.Module.parse(samples.module(text), ir.Context())


def test_a_shared_dequantize_is_saved_only_together() -> None:
    """Each layer alone: product 5 instead of 2 saves one dequantize of 2. Both together save three."""
    both = qfuse.plan(returning_both(shared()), machine(5, 2, 2), policy="profitable").report
    assert chosen(both) == [("integer", 12, 12, 12)]
    report = qfuse.plan(returning_both(shared()), machine(5.25, 2, 2), policy="profitable").report
    assert chosen(report) == [("float", 12.5, 12, 12)]
    greedy = qfuse.plan(returning_both(shared()), machine(4.5, 2, 2), policy="profitable").report
    assert chosen(greedy) == [("integer", 11, 12, 11)]


def test_integers_for_one_reader_of_two() -> None:
    """The second layer reads a float argument, so it is float whatever is chosen, and so is what it dequantizes."""
    body = A + B + linear("0", "a", "b") + samples.matmul("m1", "a", "x") + samples.quantize("r1", "m1")
    text = f"  func.func @main({ARGUMENTS}, %x: tensor<4x4xf32>) -> (tensor<4x4xi8>, tensor<4x4xi8>) {{\n{body}"
    text += "    return %r0, %r1 : tensor<4x4xi8>, tensor<4x4xi8>\n  }\n"
    for integer, expected in ((3.5, ("integer", 4.5, 5, 4.5)), (4.5, ("float", 5.5, 5, 5))):
        module = ir.Module.parse(samples.module(text), ir.Context())
        report = qfuse.plan(module, machine(integer, 2, 2), policy="profitable").report
        assert chosen(report) == [expected]


def test_a_float_result_pays_for_the_crossing() -> None:
    body = A + B + samples.matmul("m", "a", "b")
    assert chosen(planned(body, "m", machine(3, 2, 2, crossing=1))) == [("integer", 4, 6, 4)]
    assert chosen(planned(body, "m", machine(3, 2, 2, crossing=4))) == [("float", 7, 6, 6)]


def test_accumulators_that_are_quantized_and_returned_cross_once() -> None:
    body = A + B + linear("0", "a", "b")
    text = f"  func.func @main({ARGUMENTS}) -> (tensor<4x4xi8>, tensor<4x4xf32>) {{\n{body}"
    text += "    return %r0, %m0 : tensor<4x4xi8>, tensor<4x4xf32>\n  }\n"
    for crossing, expected in ((2.5, ("integer", 6.5, 7, 6.5)), (3.5, ("float", 7.5, 7, 7))):
        module = ir.Module.parse(samples.module(text), ir.Context())
        report = qfuse.plan(module, machine(3, 2, 2, crossing), policy="profitable").report
        assert chosen(report) == [expected]


def test_a_quantize_may_stay_behind_an_integer_product() -> None:
    """Where a requantize costs more than a float value and a float quantize of it."""
    target = machine(3, 2, 2, crossing=1)
    target = replace(target, costs={**target.costs, "requantize": lambda _: 9.0})
    report = planned(A + B + linear("0", "a", "b"), "r0", target)
    assert chosen(report) == [("mixed", 12, 7, 5)]
    assert [e["fusion"] for e in report.applied] == ["qfuse.contraction"]
    (missed,) = report.missed
    assert missed["op"] == "linalg.generic"
    assert missed["reason"] == "float is cheaper here: integer 12 s, float 7 s, mixed 5 s"


# -- prices ----------------------------------------------------------------------------------------------------------


def work(**changes: Any) -> qfuse.Workload:
    plain: dict[str, Any] = {
        "kind": "contraction", "integer": True, "fusion": "qfuse.contraction", "compute": "s8xs8", "operations": 1000,
        "reads": (("i8", 100), ("i8", 50)), "writes": (("i32", 50),),
    }  # fmt: skip
    return qfuse.Workload(**{**plain, **changes})


def test_roofline() -> None:
    """The slower of arithmetic and memory, and the start of the operation."""
    target = qfuse.Target("t", throughput={"s8xs8": 1e3}, memory_bandwidth=1e3, call_overhead=0.5)
    assert work().bytes_moved == 200
    assert work().reuse == 5
    assert roofline(work(), target) == 1.5
    assert roofline(work(operations=100), target) == 0.7
    assert roofline(work(operations=0, compute=""), target) == 0.7
    assert roofline(work(compute="f32"), target) is None
    assert roofline(work(operations=None), target) is None
    assert roofline(work(writes=(("i32", None),)), target) is None
    assert roofline(work(), replace(target, memory_bandwidth=None)) is None
    assert roofline(work(), replace(target, call_overhead=None)) is None


@pytest.mark.parametrize(
    ("element", "bits"),
    [("i8", 8), ("ui8", 8), ("f32", 32), ("bf16", 16), ("!quant.uniform<i8:f32, 1.0>", 8), ("index", None),
     ("f8E4M3FN", None)],
)  # fmt: skip
def test_widths_of_elements(element: str, bits: int | None) -> None:
    assert element_bits(element) == bits


def test_a_function_of_the_fusion_goes_before_one_of_the_kind() -> None:
    seen: list[qfuse.Workload] = []

    def own(workload: qfuse.Workload) -> float:
        seen.append(workload)
        return 100.0

    target = machine(1, 2, 2)
    report = planned(
        A + B + linear("0", "a", "b"), "r0", replace(target, costs={**target.costs, "qfuse.contraction": own})
    )
    assert chosen(report) == [("float", 101, 7, 7)]
    (workload,) = seen
    assert workload.operations == 64
    assert workload.compute == "s8xs8"
    assert workload.reads == (("i8", 16), ("i8", 16))
    assert workload.writes == (("i32", 64),)


@pytest.mark.parametrize("returned", [float("nan"), float("inf"), -1.0, "1"])
def test_what_is_no_time_is_an_error(returned: Any) -> None:
    target = replace(machine(1, 2, 2), costs={"contraction": lambda _: returned})
    with pytest.raises(qfuse.UsageError, match="the cost function of target priced for contraction returned"):
        planned(A + B + linear("0", "a", "b"), "r0", target)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        (
            {"contractoin": lambda _: 1.0},
            "target t: costs: unknown kind of workload 'contractoin': did you mean 'contraction'",
        ),
        ({"contraction": 3.0}, "target t: costs.contraction: takes a function, got 3.0"),
    ],
)
def test_costs_are_checked(costs: Any, message: str) -> None:
    with pytest.raises(qfuse.UsageError) as caught:
        qfuse.Target("t", costs=costs)
    assert str(caught.value).startswith(message)


# -- unknown ---------------------------------------------------------------------------------------------------------

UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "bandwidth": ({"memory_bandwidth": None}, "target normal gives no memory_bandwidth"),
    "overhead": ({"call_overhead": None}, "target normal gives no call_overhead"),
    "integers": ({"throughput": {"f32xf32": 1e12, "f32": 1e12}}, "target normal gives no throughput of s8xs8"),
    "floats": ({"throughput": {"s8xs8": 1.0, "f32": 1e12}}, "target normal gives no throughput of f32xf32"),
    "function": (
        {"costs": {"contraction": lambda w: None if w.integer else 0.0}},
        "the cost function of target normal does not know this contraction",
    ),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_a_number_that_is_not_known_is_not_zero(case: str) -> None:
    """The region is decided as with `always`, and the number is named."""
    changes, expected = UNKNOWN[case]
    report = planned(A + B + linear("0", "a", "b"), "r0", replace(NORMAL, **changes), explain_cost=True)
    (entry,) = report.cost
    assert entry["unknown"] == expected
    assert entry["chosen"] == "integer"
    assert [entry[f"{k}_seconds"] for k in ("integer", "float", "cut")] == [None] * 3
    assert entry["would_change"] == []
    assert report.summary["integer_ops"] == 1


def test_only_the_region_with_the_unknown_number_is_decided_so() -> None:
    """The function knows no products of 3 columns: the first layer, of 4, stays in float, the second does not."""
    body = A + B + linear("0", "a", "b")
    body += samples.dequantize("x", "r0") + samples.dequantize("y", "w", "4x3")
    body += samples.matmul("m1", "x", "y", n=3) + samples.quantize("r1", "m1", "4x3")
    text = samples.function(body, ARGUMENTS + ", %w: tensor<4x3xi8>", "tensor<4x3xi8>", "r1")
    priced = machine(9, 1, 1)
    known: Price = lambda w: 9.0 if w.writes == (("i32", 64),) else None  # noqa: E731
    target = replace(priced, costs={**priced.costs, "qfuse.contraction": known})
    module = ir.Module.parse(samples.module(text), ir.Context())
    report = qfuse.fuse(module, target, policy="profitable")
    assert [e["chosen"] for e in report.cost] == ["float", "integer"]
    assert [bool(e["unknown"]) for e in report.cost] == [False, True]
    assert [e["op"] for e in report.missed] == ["linalg.matmul"]
    assert str(module).count("linalg.matmul") == 1


def test_dynamic_extents_are_unknown() -> None:
    text = samples.LINEAR.replace("tensor<4x4x", "tensor<?x4x")
    text = text.replace(
        "linalg.matmul ins(%a, %b : tensor<?x4xf32>, tensor<?x4xf32>)",
        "linalg.matmul ins(%a, %b : tensor<?x4xf32>, tensor<?x4xf32>)",
    )
    text = text.replace("tensor.empty() : tensor<?x4", "tensor.empty(%n) : tensor<?x4")
    text = text.replace("{\n    %a_e", "{\n    %n = arith.constant 4 : index\n    %a_e", 1)
    module = ir.Module.parse(text, ir.Context())
    report = qfuse.plan(module, NORMAL, policy="profitable", max_reduction=4).report
    assert [(e["chosen"], e["unknown"]) for e in report.cost] == [
        ("integer", "the extents of a contraction are dynamic")
    ]


# -- command line ----------------------------------------------------------------------------------------------------


def test_explain_cost_on_the_command_line(opt: Opt) -> None:  # noqa: F811
    done = opt("-", "--explain-cost", stdin=samples.LINEAR)
    assert done.code == 0
    assert done.err.splitlines()[1:] == [
        "  cost: integer unknown, float unknown, cut unknown",
        "  unknown: target linalg gives no memory_bandwidth; decided as with the policy always",
        "  chosen (policy always): integer",
    ]
    assert "arith.muli" in done.out or "arith.extsi" in done.out


def test_policy_never_on_the_command_line(opt: Opt) -> None:  # noqa: F811
    done = opt("-", "--option", "policy=never", "--remarks", stdin=samples.LINEAR)
    assert done.code == 0
    assert "linalg.matmul" in done.out
    assert "the policy is to fuse nothing" in done.err


# -- fusions of others -----------------------------------------------------------------------------------------------


class OwnProduct(qfuse.Fusion):
    """A whole product whose float result takes the place of the matmul's."""

    id = "acme.product"
    benefit = 10
    nodes = (Contraction,)

    def match(self, node: Node) -> bool:
        return True

    def check(self, node: Node, env: Environment) -> qfuse.Decision | None:
        assert isinstance(node, Contraction)
        forms = [env.form(node.lhs), env.form(node.rhs)]
        needs = tuple(f.q for f in forms if isinstance(f, StoredForm))
        if len(needs) < 2:
            return None
        decision = qfuse.Decision(self, node, "reassociated", needs=needs, payload="private")
        if self.accumulates:
            decision.form = AccumForm(decision, (), (), None, (4, 4), "f32")
        else:
            decision.replacement = Made(decision)
        return decision

    def __init__(self, accumulates: bool) -> None:
        self.accumulates = accumulates


@pytest.mark.parametrize("accumulates", [False, True])
def test_fusions_of_others_are_priced_by_their_function(accumulates: bool) -> None:
    registry = qfuse.FusionRegistry.discover().with_(OwnProduct(accumulates), owner="acme")
    body = A + B + samples.matmul("m", "a", "b")

    def report(**costs: Price) -> dict[str, Any]:
        priced = machine(0, 2, 2, crossing=1)
        target = replace(priced, costs={**priced.costs, **{f"acme.{k}": v for k, v in costs.items()}})
        return planned(body, "m", target, registry=registry).cost[0]

    crossing = int(accumulates)
    assert report(product=lambda _: 4.0)["chosen"] == "integer"
    assert report(product=lambda _: 4.0)["integer_seconds"] == 4 + crossing
    assert report(product=lambda _: 7.0)["chosen"] == "float"
    unpriced = report()
    assert unpriced["chosen"] == "integer"
    assert unpriced["unknown"] == (
        "target priced has no cost function for fusion acme.product"
        if accumulates
        else "target priced gives no memory_bandwidth"
    )
