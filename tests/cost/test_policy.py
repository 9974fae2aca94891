"""What the policies carry out: three models on four machines, numbers of results, TOSA, reports, long chains."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_mlir import ir

import qfuse
from qfuse.cost.region import scaled
from qfuse.integrations.iree import Program, compile_module
from tests.cost.machines import FAST_MEMORY, NORMAL, SLOW_INTEGER, SLOW_MEMORY
from tests.pipeline import samples
from tests.tosa.ir import Lines

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MODELS = {
    "mlp": EXAMPLES / "digits/mlp.linalg.mlir",
    "cnn": EXAMPLES / "digits/cnn.linalg.mlir",
    "resnet_block": EXAMPLES / "vendor_pipeline/models/resnet_block.linalg.mlir",
}
#: What each region becomes: `i`nteger, `f`loat, `m`ixed. docs/cost-model.md tells why.
PLANS = {
    ("mlp", "normal"): "iii",
    ("mlp", "slow-integer"): "fff",
    ("mlp", "fast-memory"): "ffi",
    ("mlp", "slow-memory"): "iii",
    ("cnn", "normal"): "iiiiiii",
    ("cnn", "slow-integer"): "fmifiif",
    ("cnn", "fast-memory"): "ffifiii",
    ("cnn", "slow-memory"): "iiiiiii",
    ("resnet_block", "normal"): "iii",
    ("resnet_block", "slow-integer"): "ffi",
    ("resnet_block", "fast-memory"): "ffi",
    ("resnet_block", "slow-memory"): "iii",
}
MACHINES = {m.name: m for m in (NORMAL, SLOW_INTEGER, FAST_MEMORY, SLOW_MEMORY)}


def load(name: str) -> Any:
    return ir.Module.parse(MODELS[name].read_text(), ir.Context())


def parse(text: str) -> Any:
    return ir.Module.parse(text, ir.Context())


# -- plans -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "machine"), PLANS)
def test_the_plan_follows_the_machine(model: str, machine: str) -> None:
    report = qfuse.plan(load(model), MACHINES[machine], policy="profitable").report
    assert "".join(entry["chosen"][0] for entry in report.cost) == PLANS[model, machine]
    counts = report.summary
    left = [e for e in report.missed if e["reason"].startswith("float is cheaper here: integer ")]
    assert len(left) == (counts["quantized_compute_ops"] or 0) - (counts["integer_ops"] or 0)
    for entry in report.cost:
        assert entry["cut_seconds"] <= min(entry["integer_seconds"], entry["float_seconds"])
        assert (entry["chosen"] == "integer") == (not entry["cut_float"])


def test_the_direction_is_the_expected_one() -> None:
    """Slower integers take multiply-accumulates out of the plan, slower memory brings them in, on each model."""
    for model in MODELS:
        integer = {
            name: qfuse.plan(load(model), machine, policy="profitable").report.summary["integer_macs"] or 0
            for name, machine in MACHINES.items()
        }
        assert integer["slow-integer"] < integer["normal"]
        assert integer["fast-memory"] < integer["slow-memory"]


@pytest.mark.parametrize("model", MODELS)
def test_always_looks_at_no_number(model: str) -> None:
    """The same module as on a target without numbers, and the same as `profitable` where all is worth it."""
    texts = []
    for target, policy in ((SLOW_INTEGER, "always"), (qfuse.Target("none"), "always"), (NORMAL, "profitable")):
        module = load(model)
        report = qfuse.fuse(module, target, policy=policy)
        assert report.policy == policy
        texts.append(str(module))
    assert texts[0] == texts[1] == texts[2]


def test_a_factor_of_the_explanation_changes_the_choice() -> None:
    """And a factor 3 % nearer to 1 does not."""
    seen = 0
    for machine in (SLOW_INTEGER, FAST_MEMORY):
        report = qfuse.plan(load("mlp"), machine, policy="profitable", explain_cost=True).report
        for position, entry in enumerate(report.cost):
            for change in entry["would_change"]:
                for factor, changes in ((change["factor"], True), (change["factor"] ** 0.97, False)):
                    other = scaled(machine, change["number"], factor)
                    again = qfuse.plan(load("mlp"), other, policy="profitable").report.cost[position]
                    assert (again["cut_float"] != entry["cut_float"]) == changes, (machine.name, position, change)
                seen += 1
    assert seen > 8


def test_the_hint_names_what_would_change() -> None:
    (first, *_) = qfuse.plan(load("mlp"), SLOW_INTEGER, policy="profitable", explain_cost=True).report.missed
    assert first["hint"].startswith("throughput.s8xs8 24.9 times as high, or ")
    (first, *_) = qfuse.plan(load("mlp"), SLOW_INTEGER, policy="profitable").report.missed
    assert "explain_cost" in first["hint"]


# -- numbers ---------------------------------------------------------------------------------------------------------


@cache
def outputs(model: str) -> Any:
    """Of the module as it came, and its inputs."""
    path = MODELS[model].parent / ("test.npz" if model in ("mlp", "cnn") else "resnet_block.npz")
    with np.load(path) as data:
        x, scale = data["x"], float(data["output_scale" if model == "resnet_block" else f"{model}.output_scale"])
    x = x.reshape(-1, 1, 8, 8) if model == "cnn" else x
    return x, scale, run(load(model), x)


def run(module: Any, x: Any) -> Any:
    """The only result of a module's only function."""
    program = Program(compile_module(module))
    (name,) = [str(o.attributes["sym_name"]).strip('"') for o in module.body.operations]
    found = program.run(name, x) if hasattr(program, "run") else program(x)
    return np.asarray(found[0] if isinstance(found, tuple | list) else found)


@pytest.mark.parametrize("machine", ["slow-integer", "fast-memory"])
@pytest.mark.parametrize("model", MODELS)
def test_results_are_right_with_a_part_in_integers(model: str, machine: str) -> None:
    """Within a step of the original's; in the CNN's depth a few values go further, by what one rounding moves."""
    x, scale, expected = outputs(model)
    module = load(model)
    report = qfuse.fuse(module, MACHINES[machine], policy="profitable")
    assert report.missed
    assert module.operation.verify()
    steps = np.abs(run(module, x) - expected) / scale
    assert steps.max() < (1.5 if model != "cnn" else 3.5)
    assert (steps > 0.5).mean() < 0.05
    before = str(module)
    again = qfuse.fuse(module, MACHINES[machine], policy="profitable")
    assert not again.applied
    assert str(module) == before


# -- never -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"boundary": "drop"}, {"explain_cost": True}])
def test_never_changes_nothing(options: dict[str, Any]) -> None:
    module = load("cnn")
    before = str(module)
    report = qfuse.fuse(module, NORMAL, policy="never", **options)
    assert str(module) == before
    assert not report.applied
    assert report.summary["quantized_compute_ops"] == 7
    assert report.summary["integer_ops"] == 0
    assert {e["reason"] for e in report.missed} == {"the policy is to fuse nothing"}
    assert [e["chosen"] for e in report.cost] == (["float"] * 7 if options.get("explain_cost") else [])


def test_a_policy_that_is_not_known_is_an_error() -> None:
    with pytest.raises(qfuse.UsageError, match="option policy takes one of always, profitable, never, got 'cheap'"):
        qfuse.plan(parse(samples.LINEAR), policy="cheap")


# -- TOSA ------------------------------------------------------------------------------------------------------------


def tosa_convolution() -> str:
    """dequantize, convolution by constant weights, quantize."""
    f = Lines(q="1x8x8x16xi8")
    x = f.dequantize("%q", 0.05)
    weight = f.const(np.random.default_rng(1).integers(-127, 128, (32, 3, 3, 16)), "i8")
    bias = f.const(np.zeros(32), "f32")
    y = f.conv("conv2d", x, f.dequantize(weight, 0.01), bias, "1x8x8x32xf32", "pad = array<i64: 1, 1, 1, 1>")
    return f.module(f.quantize(y, 0.1))


def test_tosa_is_chosen_for_alike() -> None:
    always = qfuse.FusionRegistry.discover().target("tosa-int")
    chosen = {}
    for machine in (NORMAL, SLOW_INTEGER):
        numbers = {k: getattr(machine, k) for k in ("throughput", "memory_bandwidth", "call_overhead")}
        module = parse(tosa_convolution())
        report = qfuse.fuse(module, replace(always, **numbers), policy="profitable", workload=True)
        (entry,) = report.cost
        assert not entry["unknown"]
        chosen[machine.name] = entry["chosen"], "tosa.rescale" in str(module)
        facts = report.functions["main"]
        before, after = facts["bytes_before"], facts["bytes_after"]
        assert before is not None
        assert after is not None
        assert before > 64 * 16 * 4 + 32 * 9 * 16 * 4
        assert (after < before / 4) == (machine is NORMAL)
    assert chosen == {"normal": ("integer", True), "slow-integer": ("float", False)}


def test_a_layer_in_float_is_repaired_all_the_same() -> None:
    """Unsigned storage that TOSA reads as signed: as with the fusions disabled, not as it came."""
    f = Lines(q="1x8x8x16xi8")
    weight = f.const(np.random.default_rng(1).integers(-127, 128, (32, 3, 3, 16)), "i8")
    bias = f.const(np.zeros(32), "f32")
    x, w = f.dequantize("%q", 0.05, 130), f.dequantize(weight, 0.01)
    y = f.conv("conv2d", x, w, bias, "1x8x8x32xf32", "pad = array<i64: 1, 1, 1, 1>")
    text = f.module(f.quantize(y, 0.1, 140, low=0, high=255))
    numbers = {k: getattr(SLOW_INTEGER, k) for k in ("throughput", "memory_bandwidth", "call_overhead")}
    numbers["throughput"] = {**numbers["throughput"], "u8xs8": 1e9}
    target = replace(qfuse.FusionRegistry.discover().target("tosa-int"), **numbers)
    chosen, disabled = parse(text), parse(text)
    report = qfuse.fuse(chosen, target, policy="profitable")
    repaired = qfuse.fuse(disabled, target, disable="qfuse.convolution")
    assert [e["fusion"] for e in report.applied] == ["qfuse.repair-dequantize", "qfuse.repair-quantize"]
    assert [e["fusion"] for e in repaired.applied] == ["qfuse.repair-dequantize", "qfuse.repair-quantize"]
    assert str(chosen) == str(disabled)
    assert str(chosen) != str(parse(text))
    assert not qfuse.fuse(chosen, target, policy="profitable").applied
    untouched = parse(text)
    assert not qfuse.fuse(untouched, target, policy="never").applied
    assert str(untouched) == str(parse(text))


# -- size ------------------------------------------------------------------------------------------------------------


def layers(count: int) -> str:
    """That many products by one weight, each quantized and dequantized again."""
    body, x = "", "q0"
    for i in range(count):
        body += samples.dequantize(f"a{i}", x) + samples.dequantize(f"b{i}", "qb", scale="0.125")
        body += samples.matmul(f"m{i}", f"a{i}", f"b{i}") + samples.quantize(f"r{i}", f"m{i}")
        x = f"r{i}"
    return samples.module(
        samples.function(body, "%q0: tensor<4x4xi8>, %qb: tensor<4x4xi8>", "tensor<4x4xi8>", f"r{count - 1}")
    )


def test_regions_stay_small_and_equal_ones_are_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from qfuse.cost import region

    solved: list[int] = []
    solve = region.solve
    monkeypatch.setattr(region, "solve", lambda p: solved.append(len(p.chosen)) or solve(p))
    report = qfuse.plan(parse(layers(60)), SLOW_INTEGER, policy="profitable").report
    assert len(report.cost) == 60
    assert len(solved) == 1
    assert max(solved) <= 4


def test_long_chains_of_floats_are_no_recursion() -> None:
    """A dequantized value behind which thousands of operations stay in float."""
    relu = (
        "    %y{0} = linalg.max ins(%{1}, %m : tensor<4x4xf32>, tensor<4x4xf32>) outs(%a_e : tensor<4x4xf32>)"
        " -> tensor<4x4xf32>\n"
    )
    body = samples.dequantize("a", "qa") + samples.dequantize("b", "qb") + samples.matmul("m", "a", "b")
    body += "".join(relu.format(i, f"y{i - 1}" if i else "m") for i in range(3000))
    text = samples.function(body, "%qa: tensor<4x4xi8>, %qb: tensor<4x4xi8>", "tensor<4x4xf32>", "y2999")
    for policy in ("always", "profitable"):
        module = parse(samples.module(text))
        qfuse.fuse(module, SLOW_INTEGER, policy=policy)
        assert module.operation.verify()


def test_networkx_is_imported_only_where_a_cut_is_needed() -> None:
    program = (
        "import sys, qfuse\nfrom torch_mlir import ir\n"
        f"module = ir.Module.parseFile({str(MODELS['mlp'])!r}, ir.Context())\n"
        "qfuse.fuse(module)\nprint('networkx' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
