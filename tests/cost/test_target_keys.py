"""Each key of a target has an effect: on the module, on the report, on what a machine costs, on the listing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torch_mlir import ir

import qfuse
from qfuse.cost.schema import TARGET_KEYS
from tests.cost import zoo
from tests.fusions.ir import Function

COST = """memory_bandwidth = 1e10
call_overhead = 1e-6
[throughput]
s8xs8 = 1e12
u8xs8 = 1e12
f32xf32 = 1e12
f32 = 1e11
s8 = 1e11
u8 = 1e11
"""


def long_reduction() -> str:
    """A matmul whose accumulators fit 32 bits in parts only."""
    f = Function("long", (1, 1 << 18))
    x = f.dequantize(f.argument("i8"), zero=0)
    y = f.dequantize(f.argument("i8", (1 << 18, 1)), zero=0, shape=(1 << 18, 1))
    m = zoo.named(f, "matmul", x, y, ((1, 1 << 18), (1 << 18, 1), (1, 1)))
    return f.returns(m, element="f32", shape=(1, 1)).text


def other_operation() -> str:
    """Two operations between dequantize and quantize that no fusion knows."""
    f = Function("other", (4, 8))
    x = f.dequantize(f.argument("i8"), zero=0)
    y = f.line(f'"acme.softmax"({x}) : (tensor<4x8xf32>) -> tensor<4x8xf32>')
    y = f.line(f'"acme.norm"({y}) : (tensor<4x8xf32>) -> tensor<4x8xf32>')
    return f.returns(f.quantize(y, zero=0)).text


def fused(text: str, folder: Path, module: str, **options: Any) -> tuple[str, qfuse.Report, qfuse.Target]:
    """The module, the report and the target of a file."""
    path = folder / "acme.toml"
    path.write_text(text, encoding="utf-8")
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        parsed = ir.Module.parse(module)
    report = qfuse.fuse(parsed, path, **options)
    assert parsed.operation.verify()
    return str(parsed), report, qfuse.Target.load(path)


Seen = tuple[str, qfuse.Report, qfuse.Target]


def module_of(seen: Seen) -> Any:
    """The rewritten module."""
    return seen[0]


def applied(seen: Seen) -> Any:
    """Fusions that were applied, by function."""
    return [(e["function"], e["fusion"]) for e in seen[1].applied]


def missed(seen: Seen) -> Any:
    """Operations that stay in float, without the line that says so."""
    return [(e["function"], e["op"], e["reason"].split(" (")[0]) for e in seen[1].missed]


def costs(seen: Seen) -> Any:
    """What each region costs in integers and in float."""
    return [(r["integer_seconds"], r["float_seconds"]) for r in seen[1].cost]


@dataclass(frozen=True)
class Case:
    """Two values of a key, and where they differ."""

    one: str
    other: str
    differs: Callable[[Seen], Any]
    module: Callable[[], str] = zoo.text
    options: Mapping[str, Any] | None = None


PRICED = {"policy": "profitable"}
CASES = {
    "name": Case("name = 'a'", "name = 'b'", lambda seen: seen[1].target),
    "doc": Case("doc = 'a'", "doc = 'b'", lambda seen: seen[2].doc),
    "emitter": Case("emitter = 'linalg'", "emitter = 'iree'", module_of),
    "fusions": Case("fusions = ['qfuse.sum']", "fusions = ['qfuse.lookup']", applied),
    "forbidden": Case("forbidden = ['qfuse.sum']", "forbidden = ['qfuse.lookup']", missed),
    "storage": Case("storage = ['s8']", "storage = ['s8', 'u8']", missed),
    "granularities": Case("granularities.rhs = ['per-tensor']", "granularities.rhs = ['per-axis']", missed),
    "asymmetric": Case("asymmetric = []", "asymmetric = ['lhs']", missed),
    "accumulators": Case("accumulators = [32]", "accumulators = [64]", module_of),
    "split_reduction": Case(
        "accumulators = [32]\nsplit_reduction = true", "accumulators = [32]\nsplit_reduction = false", missed,
        long_reduction,
    ),
    "spelling": Case("spelling = 'generic'", "spelling = 'named'", module_of),
    "rounding": Case("rounding = 'roundeven'", "rounding = 'magic'", module_of),
    "operands": Case("emitter = 'iree'\noperands = ['i8']", "emitter = 'iree'\noperands = ['i16', 'i8']", module_of),
    "epilogue": Case("epilogue = 'float'", "epilogue = 'fixed-point'", module_of),
    "scaling": Case(
        "epilogue = 'fixed-point'\nscaling = 'single'", "epilogue = 'fixed-point'\nscaling = 'gemmlowp'", module_of
    ),
    "integer_only": Case("integer_only = true", "integer_only = false", missed, other_operation),
    "throughput": Case(COST, COST.replace("s8xs8 = 1e12", "s8xs8 = 1e6"), applied, options=PRICED),
    "memory_bandwidth": Case(COST, COST.replace("= 1e10", "= 1e6"), costs, options=PRICED),
    "call_overhead": Case(COST, COST.replace("= 1e-6", "= 1e-3"), costs, options=PRICED),
}  # fmt: skip


@pytest.mark.parametrize("key", list(TARGET_KEYS))
def test_a_key_of_the_target_has_an_effect(key: str, tmp_path: Path) -> None:
    """Two files that differ in it alone differ where the reference says."""
    case = CASES[key]
    assert key in case.one, "the case is of another key"
    one, other = (fused(file, tmp_path, case.module(), **(case.options or {})) for file in (case.one, case.other))
    assert case.differs(one) != case.differs(other)
