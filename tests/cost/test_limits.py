"""Each key of a target turns exactly the operations that it names back to float, and says which line did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from torch_mlir import ir

import qfuse
from qfuse.cost.limits import KIND_CHECKS, OPERAND_CHECKS, SIZE_CHECKS
from qfuse.cost.schema import KINDS, kind_keys
from tests.cost import zoo
from tests.fusions.ir import Function, parse

MATMULS = ("contraction", "attention", "grouped")


@dataclass(frozen=True)
class Case:
    """One key.

    Attributes:
        refusing: the target with a value that refuses.
        line: the line of it that is quoted, from 1, and its text.
        found: for each function that is refused the finding.
        allowing: the same key with a value that refuses nothing.
        options: of the run.
    """

    refusing: str
    line: tuple[int, str]
    found: Mapping[str, str]
    allowing: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


def in_table(table: str, key: str, refusing: str, allowing: str, found: Mapping[str, str], **options: Any) -> Case:
    """A key of a table."""
    text = f"{key} = {refusing}"
    return Case(f"[{table}]\n{text}\n", (2, text), found, f"[{table}]\n{key} = {allowing}\n", options)


def of_all(key: str, refusing: str, allowing: str, found: Mapping[str, str]) -> Case:
    """A key of the target itself."""
    text = f"{key} = {refusing}"
    return Case(f"doc = 'x'\n{text}\n", (2, text), found, f"{key} = {allowing}\n")


def size(kind: str, key: str, name: str, numbers: tuple[int, int], found: Mapping[str, str]) -> Case:
    """A size, as an entry of an inline table."""
    refusing, allowing = numbers
    text = f"[{kind}]\n{key} = {{ {name} = %d }}\n"
    return Case(text % refusing, (2, f"{name} = {refusing}"), found, text % allowing)


def for_each(names: tuple[str, ...], finding: str) -> dict[str, str]:
    """The same finding."""
    return dict.fromkeys(names, finding)


FIXED = {"epilogue": "fixed-point"}
#: Functions that end in a quantize and have an epilogue in integers.
CASES = {
    "forbidden": of_all("forbidden", '["qfuse.concat"]', "[]", {"concat": "does not use fusion qfuse.concat"}),
    "fusions": of_all(
        "fusions",
        '["qfuse.contraction", "qfuse.convolution", "qfuse.requantize", "qfuse.sum", "qfuse.maximum", "qfuse.cancel",'
        ' "qfuse.rescale", "qfuse.concat", "qfuse.elementwise"]',
        '["qfuse.contraction", "qfuse.convolution", "qfuse.requantize", "qfuse.sum", "qfuse.maximum", "qfuse.cancel",'
        ' "qfuse.rescale", "qfuse.concat", "qfuse.elementwise", "qfuse.lookup"]',
        {},
    ),
    "storage": of_all("storage", '["s8"]', '["s8", "u8"]', {"convolution": "takes storage s8, input is u8"}),
    "granularities": in_table(
        "granularities", "rhs", '["per-tensor"]', '["per-tensor", "per-axis", "per-group"]',
        {
            "contraction": "takes per-tensor for rhs, it is per-axis(1)",
            "grouped": "takes per-tensor for rhs, it is per-group(8)",
        },
    ),
    "asymmetric": of_all("asymmetric", '["lhs"]', '["lhs", "rhs"]', {"attention": "takes no zero point on rhs"}),
    "supported": in_table(
        "depthwise", "supported", "false", "true", {"depthwise": "has no depthwise in integers"}
    ),
    "lookup.supported": in_table(
        # Without a table the function would be computed in float arithmetic inside one operation.
        "lookup", "supported", "false", "true", {},
    ),
    "elementwise.operations": in_table(
        "elementwise", "operations", '["mul"]', '["add"]', {"elementwise": "takes the operations mul, found add"}
    ),
    "lookup.operations": Case(
        "[elementwise]\nsupported = true\noperations = ['add']\n[lookup]\noperations = ['tanh']\n",
        (5, "operations = ['tanh']"),
        {"lookup": "takes the operations tanh, found neg"},
        "[lookup]\noperations = ['neg', 'exp', 'add', 'div']\n",
    ),
    "lookup.table_sizes": Case(
        "[elementwise]\noperations = ['add']\n[lookup]\ntable_sizes = [1024]\n",
        (4, "table_sizes = [1024]"),
        {"lookup": "takes tables of 1024 entries, this one has 256"},
        "[lookup]\ntable_sizes = [256, 1024]\n",
    ),
    "epilogues": in_table(
        "convolution", "epilogues", '["fixed-point"]', '["fixed-point", "float"]',
        {"convolution": "takes epilogues fixed-point, this one is float"},
    ),
    "rescale.epilogues": in_table(
        "rescale", "epilogues", '["power-of-two"]', '["float"]',
        {"rescale": "takes epilogues power-of-two, this one is float"},
    ),
    "scalings": in_table(
        "depthwise", "scalings", '["double"]', '["single", "double"]',
        {"depthwise": "takes scaling double, this one is single"}, **FIXED,
    ),
    "concat.scalings": in_table(
        "concat", "scalings", '["half-even"]', '["single"]',
        {"concat": "takes scaling half-even, this one is single"}, **FIXED,
    ),
    "contraction.clamp": in_table(
        "contraction", "clamp", '"storage"', '"relu"',
        {"contraction": "clamps results to storage at most, this one to relu"},
    ),
    "contraction.clamp in fixed point": in_table(
        "contraction", "clamp", '"storage"', '"relu"',
        {"contraction": "clamps results to storage at most, this one to relu"}, **FIXED,
    ),
    "depthwise.clamp": in_table(
        "depthwise", "clamp", '"relu"', '"range"',
        {"depthwise": "clamps results to relu at most, this one to range"},
    ),
    "operand.storage": in_table(
        "convolution.input", "storage", '["s8"]', '["u8"]', {"convolution": "takes storage s8, input is u8"}
    ),
    "operand.signed": in_table(
        "convolution.input", "signed", "true", "false",
        {"convolution": "takes signed integers only, input is u8"},
    ),
    "result.signed": in_table(
        "rescale.result", "signed", "true", "false", {"rescale": "takes signed integers only, result is u8"}
    ),
    "operand.granularities": in_table(
        "contraction.rhs", "granularities", '["per-tensor", "per-axis"]', '["per-tensor", "per-axis", "per-group"]',
        {"grouped": "takes per-axis, per-tensor for rhs, it is per-group(8)"},
    ),
    "operand.zero_point": in_table(
        "elementwise.input", "zero_point", "false", "true", {"elementwise": "takes no zero point on input"}
    ),
    "result.zero_point": in_table(
        "contraction.result", "zero_point", "false", "true", {"contraction": "takes no zero point on result"}
    ),
    "sum.zero_point": in_table(
        "sum.input", "zero_point", "false", "true", {"sum": "takes no zero point on input"}
    ),
    "maximum.zero_point": in_table(
        "maximum.input", "zero_point", "false", "true", {"maximum": "takes no zero point on input"}
    ),
    "operand.block_sizes": in_table(
        "contraction.rhs", "block_sizes", "[16, 32]", "[8]",
        {"grouped": "takes blocks of 16, 32 for rhs, they are of 8"},
    ),
    "operand.constant": in_table(
        "contraction.rhs", "constant", "true", "false",
        {"attention": "takes constants only for rhs, it is known at run time"},
    ),
    "contraction.layouts": in_table(
        "contraction.rhs", "layouts", '["NK", "KN"]', '["KN", "BKN"]',
        {"attention": "takes layout KN, NK for rhs, it is BKN"},
    ),
    "convolution.layouts": in_table(
        "convolution.input", "layouts", '["NHWC"]', '["NCHW"]',
        {"convolution": "takes layout NHWC for input, it is NCHW"},
    ),
    "convolution.weight.layouts": in_table(
        "convolution.weight", "layouts", '["HWIO"]', '["OIHW"]',
        {"convolution": "takes layout HWIO for weight, it is OIHW"},
    ),
    "depthwise.layouts": in_table(
        "depthwise.input", "layouts", '["NCHW"]', '["NHWG"]',
        {"depthwise": "takes layout NCHW for input, it is NHWG"},
    ),
    "convolution.result.layouts": in_table(
        "convolution.result", "layouts", '["NHWC"]', '["NCHW"]',
        {"convolution": "takes layout NHWC for result, it is NCHW"},
    ),
    "multiple_of.K": size("contraction", "multiple_of", "K", (16, 4), {
        "contraction": "takes multiples of 16 for K, it is 20",
    }),
    "multiple_of.in_channels": size("convolution", "multiple_of", "in_channels", (16, 4), {
        "convolution": "takes multiples of 16 for in_channels, it is 4",
    }),
    "multiple_of.groups": size("depthwise", "multiple_of", "groups", (4, 3), {
        "depthwise": "takes multiples of 4 for groups, it is 6",
    }),
    "multiple_of.inner": size("elementwise", "multiple_of", "inner", (8, 2), {
        "elementwise": "takes multiples of 8 for inner, it is 6",
    }),
    "max_size.K": size("contraction", "max_size", "K", (16, 32), {
        "contraction": "takes 16 at most for K, it is 20",
        "grouped": "takes 16 at most for K, it is 32",
    }),
    "max_size.M": size("contraction", "max_size", "M", (7, 8), {"contraction": "takes 7 at most for M, it is 8"}),
    "max_size.B": size("contraction", "max_size", "B", (1, 2), {"attention": "takes 1 at most for B, it is 2"}),
    "max_size.stride": size("convolution", "max_size", "stride", (1, 2), {
        "convolution": "takes 1 at most for stride, it is 2",
    }),
    "max_size.dilation": size("depthwise", "max_size", "dilation", (1, 2), {
        "depthwise": "takes 1 at most for dilation, it is 2",
    }),
    "max_size.window": size("convolution", "max_size", "window", (2, 3), {
        "convolution": "takes 2 at most for window, it is 3",
    }),
    "max_size.spatial": size("convolution", "max_size", "spatial", (3, 4), {
        "convolution": "takes 3 at most for spatial, it is 4",
    }),
    "max_size.reduction": size("convolution", "max_size", "reduction", (35, 36), {
        "convolution": "takes 35 at most for reduction, it is 36",
    }),
    "max_size.out_channels": size("convolution", "max_size", "out_channels", (7, 8), {
        "convolution": "takes 7 at most for out_channels, it is 8",
    }),
    "max_size.reduction of a sum": size("sum", "max_size", "reduction", (23, 24), {
        "sum": "takes 23 at most for reduction, it is 24",
    }),
    "max_size.elements": size("rescale", "max_size", "elements", (23, 24), {
        "rescale": "takes 23 at most for elements, it is 24",
    }),
}  # fmt: skip


@pytest.fixture(scope="module")
def unlimited() -> Mapping[str, qfuse.Report]:
    """Reports of the module without any limit, by epilogue."""
    return {name: fused(qfuse.Target("any"), epilogue=name)[1] for name in ("float", "fixed-point")}


def fused(target: Any, **options: Any) -> tuple[str, qfuse.Report]:
    """The module and the report of all functions."""
    module = ir.Module.parse(zoo.text(), ir.Context())
    report = qfuse.fuse(module, target, **options)
    assert module.operation.verify()
    return str(module), report


def entries(report: qfuse.Report, leave_out: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Applied fusions with their functions, but for some functions."""
    return [(e["function"], e["fusion"]) for e in report.applied if e["function"] not in leave_out]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.found])
def test_a_key_refuses_what_it_names_and_nothing_else(
    name: str, tmp_path: Path, unlimited: Mapping[str, qfuse.Report]
) -> None:
    """The reason is the finding with file, line and text of the key; everything else is fused as without the key."""
    case = CASES[name]
    path = tmp_path / "acme.toml"
    path.write_text(case.refusing, encoding="utf-8")
    _, report = fused(path, **case.options)
    before = unlimited[case.options.get("epilogue", "float")]
    missed = {e["function"]: e["reason"] for e in report.missed if e not in before.missed}
    number, text = case.line
    where = f"({path}:{number}: {text})"
    assert missed == {f: f"target acme {finding} {where}" for f, finding in case.found.items()}
    assert entries(report, case.found) == entries(before, case.found)


@pytest.mark.parametrize("name", list(CASES))
def test_the_same_key_allows(name: str, tmp_path: Path, unlimited: Mapping[str, qfuse.Report]) -> None:
    """With another value the report is that of a target without limits."""
    case = CASES[name]
    path = tmp_path / "acme.toml"
    path.write_text(case.allowing, encoding="utf-8")
    _, report = fused(path, **case.options)
    before = unlimited[case.options.get("epilogue", "float")]
    assert report.applied == before.applied
    assert report.missed == before.missed


def test_where_a_limit_refuses_the_next_fusion_is_asked(tmp_path: Path) -> None:
    """A table that is not to be had is one elementwise operation in float instead, and nothing is missed."""
    path = tmp_path / "acme.toml"
    path.write_text(CASES["lookup.supported"].refusing, encoding="utf-8")
    _, report = fused(path)
    assert ("lookup", "qfuse.elementwise") in entries(report, {})
    assert report.missed == []


def test_a_limit_of_accumulators_names_its_line(tmp_path: Path) -> None:
    """Those of all kinds, those of one kind; where nothing is said, no line."""
    path = tmp_path / "acme.toml"
    for text, line, refused in (
        ("split_reduction = false\naccumulators = [16]\n", "2: accumulators = [16]", {*MATMULS, "convolution"}),
        ("[convolution]\naccumulators = [16]\n", "2: accumulators = [16]", {"convolution"}),
        ("[sum]\naccumulators = [8]\n", "2: accumulators = [8]", {"sum"}),
    ):
        path.write_text(text, encoding="utf-8")
        _, report = fused(path)
        reasons = {e["function"]: e["reason"] for e in report.missed}
        assert refused <= set(reasons)
        for function in refused:
            assert "the accumulator can reach" in reasons[function]
            assert reasons[function].endswith(f"({path}:{line})")
    _, report = fused(qfuse.Target("toy", accumulators=(16,)))
    assert report.missed[0]["reason"].endswith("(field accumulators)")
    function = Function("long", (1, 1 << 18))
    x = function.dequantize(function.argument("i16"), storage="i16", zero=0)
    y = function.dequantize(function.argument("i16", (1 << 18, 1)), storage="i16", zero=0, shape=(1 << 18, 1))
    m = zoo.named(function, "matmul", x, y, ((1, 1 << 18), (1 << 18, 1), (1, 1)))
    report = qfuse.plan(
        parse(function.returns(m, element="f32", shape=(1, 1))), qfuse.Target("t", accumulators=(32, 64))
    ).report
    assert not any("(field" in e["reason"] for e in report.missed)


def test_a_kind_goes_before_all_kinds(tmp_path: Path) -> None:
    """Of storage and of zero points."""
    path = tmp_path / "acme.toml"
    path.write_text('storage = ["s8"]\n[convolution.input]\nstorage = ["u8"]\n', encoding="utf-8")
    assert fused(path)[1].missed == []
    path.write_text("asymmetric = []\n[attention]\n", encoding="utf-8")
    with pytest.raises(qfuse.UsageError, match="unknown key 'attention'"):
        fused(path)
    path.write_text("asymmetric = ['lhs']\n[contraction.rhs]\nzero_point = true\n", encoding="utf-8")
    assert fused(path)[1].missed == []


def test_dynamic_sizes_are_refused() -> None:
    """Nothing is known of them; a multiple of 1 is."""
    f = Function("dynamic", (None, 16))
    x = f.dequantize(f.argument("i8"), 0.05, 0)
    w = f.dequantize(f.argument("i8", (16, 4)), 0.05, 0, shape=(16, 4))
    init = f.empty((None, 4), "f32")
    zero = f.line("arith.constant 0.0 : f32")
    zeros = f.line(f"linalg.fill ins({zero} : f32) outs({init} : tensor<?x4xf32>) -> tensor<?x4xf32>")
    m = f.line(
        f"linalg.matmul ins({x}, {w} : tensor<?x16xf32>, tensor<16x4xf32>) outs({zeros} : tensor<?x4xf32>)"
        " -> tensor<?x4xf32>"
    )
    function = f.returns(m, element="f32", shape=(None, 4))

    def reasons(**limits: Mapping[str, int]) -> list[str]:
        target = qfuse.Target("toy", limits={"contraction": qfuse.Limits(**limits)})  # type: ignore[arg-type]
        return [e["reason"] for e in qfuse.fuse(parse(function), target).missed]

    where = "(field contraction.{}.M)"
    assert reasons(multiple_of={"M": 4}) == [
        f"target toy takes multiples of 4 for M, it is dynamic {where.format('multiple_of')}"
    ]
    assert reasons(max_size={"M": 4}) == [f"target toy takes 4 at most for M, it is dynamic {where.format('max_size')}"]
    assert reasons(multiple_of={"M": 1}) == []
    assert reasons(multiple_of={"K": 16}) == []


def test_every_key_has_a_case() -> None:
    """Each check of limits is tested at least once, and each kind of operation."""
    text = "\n".join(case.refusing for case in CASES.values())
    assert {key for key in (*OPERAND_CHECKS, *KIND_CHECKS, *SIZE_CHECKS) if f"{key} = " not in text} == set()
    assert {kind for kind in KINDS if f"[{kind}" not in text} == set()
    known = {*OPERAND_CHECKS, *KIND_CHECKS, *SIZE_CHECKS, "accumulators"}
    for kind, facts in KINDS.items():
        assert set(kind_keys(kind)) <= known | set(facts.roles)


def test_limits_in_python_name_the_field() -> None:
    """Dotted, as the table and key of a file would be."""
    operands = {"weight": qfuse.OperandLimits(layouts={"HWIO"})}
    target = qfuse.Target("toy", limits={"convolution": qfuse.Limits(operands=operands)})
    (missed,) = fused(target)[1].missed
    assert missed["reason"] == "target toy takes layout HWIO for weight, it is OIHW (field convolution.weight.layouts)"
    assert missed["op"] == "linalg.conv_2d_nchw_fchw"


@pytest.mark.parametrize(
    ("activation", "result", "clamp"),
    [
        ("    %y = arith.addf %a, %a : f32", {}, "storage"),
        (zoo.RELU, {}, "relu"),
        (zoo.RELU, {"zero": -128}, "storage"),
        (zoo.HARDTANH, {}, "range"),
        (zoo.HARDTANH, {"scale": 0.001}, "storage"),
        ("    %k = arith.constant 6.0 : f32\n    %y = arith.minimumf %a, %k : f32", {"scale": 0.01}, "storage"),
        ("    %k = arith.constant 6.0 : f32\n    %y = arith.minimumf %a, %k : f32", {"scale": 0.1}, "range"),
        ("    %y = arith.negf %a : f32", {"low": -5, "zero": -5}, "relu"),
        ("    %y = arith.negf %a : f32", {"high": 126}, "range"),
    ],
    ids=range(9),
)
def test_clamps(activation: str, result: dict[str, Any], clamp: str) -> None:
    """What the machine has to clamp to: saturated bounds are those of the storage."""
    f = zoo.contraction(activation=activation, **result)
    order = ("storage", "relu", "range")
    for most in order:
        target = qfuse.Target("toy", limits={"contraction": qfuse.Limits(clamp=most)})
        reasons = [e["reason"] for e in qfuse.fuse(parse(f), target).missed]
        if order.index(clamp) <= order.index(most):
            assert reasons == []
        else:
            assert reasons == [
                f"target toy clamps results to {most} at most, this one to {clamp} (field contraction.clamp)"
            ]


def test_a_limit_of_an_override(tmp_path: Path) -> None:
    """A target's own method sees the requirements of every operation, those of a file included."""
    seen: list[qfuse.Requirements] = []

    class Watching(qfuse.Target):
        def refuses(self, needs: qfuse.Requirements) -> str | None:
            seen.append(needs)
            return "no sums on Mondays" if needs.kind == "sum" else super().refuses(needs)

    (missed,) = fused(Watching("toy"))[1].missed
    assert (missed["function"], missed["reason"]) == ("sum", "no sums on Mondays")
    assert {needs.kind for needs in seen} == set(KINDS)
    layouts = {(n.kind, o.role, o.layout) for n in seen for o in n.operands if o.layout is not None}
    assert ("contraction", "lhs", "MK") in layouts
    assert ("contraction", "result", "MN") in layouts
    assert ("depthwise", "weight", "HWG") in layouts
    assert ("depthwise", "result", "NHWG") in layouts
