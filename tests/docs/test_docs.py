"""The pages keep up with the code: snippets run, every reason is documented, links resolve."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import qfuse
from qfuse.cost import schema
from tests.cost import test_policy
from tests.pipeline import samples

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").glob("*/README.md"),
    ]
)
DIGITS = "examples/digits/mlp.linalg.mlir"

#: Arguments of `Refusal` that are no text of their own: reasons made elsewhere, which are collected there.
PASSED_ON = {"node.reason", "reason", "None"}
#: Functions that return a reason as text begin like this.
REASON_FUNCTIONS = "limit_"

RESCALE = """
module {
  func.func @main(%q: tensor<4x4xi8>) -> tensor<4x4xi8> {
    %e = tensor.empty() : tensor<4x4xf32>
    %x = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%q : tensor<4x4xi8>) outs(%e : tensor<4x4xf32>) {
    ^bb0(%v: i8, %o: f32):
      %w = arith.extsi %v : i8 to i32
      %z = arith.constant 3 : i32
      %d = arith.subi %w, %z : i32
      %f = arith.sitofp %d : i32 to f32
      %s = arith.constant 0.5 : f32
      %r = arith.mulf %f, %s : f32
      linalg.yield %r : f32
    } -> tensor<4x4xf32>
    %g = tensor.empty() : tensor<4x4xi8>
    %y = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x4xf32>) outs(%g : tensor<4x4xi8>) {
    ^bb0(%v: f32, %o: i8):
      %s = arith.constant 0.25 : f32
      %d = arith.divf %v, %s : f32
      %n = math.roundeven %d : f32
      %z = arith.constant -7.0 : f32
      %p = arith.addf %n, %z : f32
      %l = arith.constant -128.0 : f32
      %a = arith.maximumf %p, %l : f32
      %h = arith.constant 127.0 : f32
      %b = arith.minimumf %a, %h : f32
      %c = arith.fptosi %b : f32 to i8
      linalg.yield %c : i8
    } -> tensor<4x4xi8>
    return %y : tensor<4x4xi8>
  }
}
"""


# -- snippets --------------------------------------------------------------------------------------------------------


def code_blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [text for name, text in blocks if name == language]


def parse(text: str, *, unregistered: bool = False) -> Any:
    from torch_mlir import ir

    context = ir.Context()
    context.allow_unregistered_dialects = unregistered
    return ir.Module.parse(text, context)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the README's relative paths exist and its output files may be written."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("checkout")
def test_the_python_snippet_of_the_readme_runs() -> None:
    (snippet,) = code_blocks("README.md", "python")
    names: dict[str, Any] = {}
    exec(compile(snippet, "README.md", "exec"), names)
    assert names["report"].summary["integer_ops"] == 3
    assert "arith.sitofp" in str(names["module"])


def test_the_commands_of_the_readme_run(checkout: Path) -> None:
    (block,) = code_blocks("README.md", "sh")
    commands = [shlex.split(line) for line in block.splitlines() if line.strip()]
    assert any(command[0] == "qfuse-opt" for command in commands)
    scripts = Path(sys.executable).parent
    for command in commands:
        done = subprocess.run(
            [str(scripts / command[0]), *command[1:]], cwd=checkout, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
    assert "linalg.quantized_matmul" in (checkout / "mlp.named.mlir").read_text()
    report = json.loads((checkout / "mlp.json").read_text())
    assert report["version"] == 1
    assert report["summary"]["float_ops_left"] == 0


@pytest.mark.usefixtures("checkout")
def test_the_report_in_the_readme_is_the_real_one() -> None:
    from torch_mlir import ir

    text = qfuse.plan(ir.Module.parseFile(DIGITS, ir.Context())).report.text()
    (shown,) = [b for b in code_blocks("README.md", "") if b.startswith("target linalg\nquantized")]
    for line in shown.splitlines():
        assert line.strip() == "..." or line in text.splitlines()


def operations(text: str) -> list[str]:
    """Names of the operations in a piece of IR, in order, without constants and what only declares."""
    names = re.findall(r"\b(?:arith|math|linalg)\.[a-z_]+", text)
    return [n for n in names if n not in ("arith.constant", "linalg.fill", "linalg.iterator_type")]


@pytest.mark.usefixtures("checkout")
def test_the_ir_after_fusion_in_the_readme_is_the_real_one() -> None:
    from torch_mlir import ir

    module = ir.Module.parseFile(DIGITS, ir.Context())
    _, after = code_blocks("README.md", "mlir")
    qfuse.fuse(module)
    shown, real = operations(after), operations(str(module))
    assert any(real[i : i + len(shown)] == shown for i in range(len(real))), shown


def test_the_template_of_a_fusion_works() -> None:
    (snippet,) = code_blocks("docs/authoring-a-fusion.md", "python")
    module = parse(RESCALE)
    names: dict[str, Any] = {"module": module}
    exec(compile(snippet, "docs/authoring-a-fusion.md", "exec"), names)
    (entry,) = names["report"].applied
    assert entry["fusion"] == "acme.shift-rescale"
    assert entry["exactness"] == "bit-exact"
    assert str(module).count("linalg.generic") == 1
    assert "arith.shli" in str(module)
    assert module.operation.verify()
    again = qfuse.fuse(module, registry=names["registry"])
    assert not again.applied


def test_the_snippets_of_the_vendor_guide_work() -> None:
    from torch_mlir import ir

    text = (ROOT / DIGITS).read_text()
    blocks = code_blocks("docs/vendor-guide.md", "python")
    names: dict[str, Any] = {"module": parse(text, unregistered=True)}
    for block in blocks:
        exec(compile(block, "docs/vendor-guide.md", "exec"), names)
    assert names["report"].target == "acme-npu"
    assert names["report"].summary["integer_ops"] == 3

    module = parse(text, unregistered=True)
    qfuse.fuse(module, target="acme", registry=names["registry"])
    assert str(module).count('"acme.mac"') == 3

    refused = qfuse.plan(ir.Module.parse(text, ir.Context()), target=names["MultipleOf16"]("acme-16")).report
    assert [e["reason"] for e in refused.missed] == [
        "target acme-16 takes a multiple of 16 in the last dimension, rhs has 10"
    ]


def test_the_snippets_of_kernel_calls_work() -> None:
    """The template takes the layers of the digits MLP, the fusion of one's own a rescale."""
    names: dict[str, Any] = {"module": parse((ROOT / DIGITS).read_text())}
    template, own = code_blocks("docs/kernel-calls.md", "python")
    exec(compile(template, "docs/kernel-calls.md", "exec"), names)
    assert [e["kernel"] for e in names["report"].applied if "kernel" in e] == ["acme_qmatmul"] * 3
    assert str(names["module"]).count("call @acme_qmatmul") == 3
    exec(compile(own, "docs/kernel-calls.md", "exec"), names)
    module = parse(RESCALE, unregistered=True)
    registry = qfuse.FusionRegistry.discover().with_(names["RescaleKernel"](), owner="acme")
    report = qfuse.fuse(module, registry=registry)
    assert [e["fusion"] for e in report.applied] == ["acme.rescale"]
    assert "zero_point = 3 : i32" in str(module)
    assert "linalg" not in str(module)


def test_the_snippets_of_named_affine_operations_work() -> None:
    affine, own = code_blocks("docs/named-affine-operations.md", "python")
    names: dict[str, Any] = {"module": parse((ROOT / DIGITS).read_text())}
    exec(compile(affine, "docs/named-affine-operations.md", "exec"), names)
    assert str(names["module"]).count("quant.dcast") == 7
    names["module"] = parse((ROOT / DIGITS).read_text(), unregistered=True)
    exec(compile(own, "docs/named-affine-operations.md", "exec"), names)
    assert str(names["module"]).count('"acme.dequantize"') == 7
    assert str(names["module"]).count('"acme.quantize"') == 4


# -- the schema ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("checkout")
def test_every_field_of_the_json_report_is_documented() -> None:
    from torch_mlir import ir

    page = (ROOT / "docs/diagnostics.md").read_text()
    module = ir.Module.parseFile(DIGITS, ir.Context())
    reports = [
        qfuse.plan(module, disable="qfuse.contraction").to_json(),
        qfuse.fuse(module).to_json(),
        qfuse.fuse(module).to_json(),
    ]
    fields: set[str] = set()
    for report in reports:
        fields |= {*report, *report["summary"]}
        for entries in ("applied", "missed", "already_integer"):
            for entry in report[entries]:
                fields |= set(entry)
    undocumented = {f for f in fields if not re.search(rf"`{f}`", page)}
    assert not undocumented


# -- targets ---------------------------------------------------------------------------------------------------------


def test_the_snippets_of_the_target_reference_work(tmp_path: Path) -> None:
    """The file is a target, and the target in Python refuses and allows what the page says."""
    (toml,) = code_blocks("docs/target-reference.md", "toml")
    file = tmp_path / "acme.toml"
    file.write_text(toml)
    target = qfuse.Target.load(file)
    page = (ROOT / "docs/target-reference.md").read_text()
    assert target.quoted(("contraction", "multiple_of", "K")).replace(f"{tmp_path}/", "") in page
    file.write_text(toml.replace("granularities", "granularitis"))
    with pytest.raises(qfuse.UsageError) as caught:
        qfuse.Target.load(file)
    assert str(caught.value).replace(f"{tmp_path}/", "").split("known are")[0] in page
    names: dict[str, Any] = {}
    for block in code_blocks("docs/target-reference.md", "python"):
        exec(compile(block, "docs/target-reference.md", "exec"), names)
    own = names["npu"].limits["contraction"]
    assert own.multiple_of == target.limits["contraction"].multiple_of
    assert own.operands == target.limits["contraction"].operands
    assert names["npu"].limits["depthwise"] == target.limits["depthwise"]
    body = samples.dequantize("a", "qa", "3x4") + samples.dequantize("b", "qb") + samples.matmul("m", "a", "b", 3)
    odd = samples.function(body, "%qa: tensor<3x4xi8>, %qb: tensor<4x4xi8>", "tensor<3x4xf32>", "m")
    even = names["EvenRows"]("even")
    refused = qfuse.plan(parse(samples.module(odd)), even).report
    assert [e["reason"] for e in refused.missed] == ["target even takes an even number of rows"]
    assert qfuse.plan(parse(samples.LINEAR), even).report.missed == []


def test_the_file_of_the_vendor_guide_is_the_target_beside_it(tmp_path: Path) -> None:
    """Both describe one machine."""
    names: dict[str, Any] = {}
    exec(compile(code_blocks("docs/vendor-guide.md", "python")[0], "docs/vendor-guide.md", "exec"), names)
    described = [b for b in code_blocks("docs/vendor-guide.md", "toml") if b.startswith("doc = ")]
    file = tmp_path / "acme-npu.toml"
    file.write_text(described[0])
    assert qfuse.Target.load(file) == names["npu"]


def table_keys(page: str, heading: str) -> set[str]:
    """The first column of the tables under a heading."""
    text = (ROOT / page).read_text()
    part = re.split(rf"^## {re.escape(heading)}$", text, flags=re.MULTILINE)[1].split("\n## ")[0]
    return {key for row in re.findall(r"^\| (`[^|]*) \|", part, re.MULTILINE) for key in re.findall(r"`([^`]+)`", row)}


def test_every_key_of_a_target_is_documented() -> None:
    """Each table of the target reference has the keys of its level, all of them and no other."""
    page = "docs/target-reference.md"
    of_target = (
        table_keys(page, "Of the target") | table_keys(page, "Of all operands") | table_keys(page, "Of the cost")
    )
    assert of_target == set(schema.TARGET_KEYS)
    sizes = {s for kind in schema.KINDS.values() for s in (*kind.multiples, *kind.extents)}
    roles = {role for kind in schema.KINDS.values() for role in kind.roles}
    keys = {key for kind in schema.KINDS for key in schema.kind_keys(kind)} - roles
    assert table_keys(page, "Of a kind of operation") == keys | sizes | set(schema.KINDS)
    assert table_keys(page, "Of an operand") == {*schema.OPERAND_KEYS, "layouts"}
    text = (ROOT / page).read_text()
    values = (*roles, *schema.GRANULARITIES, *schema.EPILOGUES, *schema.ROUNDINGS, *schema.SPELLINGS, *schema.SCALINGS)
    assert [v for v in (*values, *schema.CLAMPS, *schema.OPERANDS, *schema.SIDES) if f"`{v}`" not in text] == []


# -- cost ------------------------------------------------------------------------------------------------------------


def test_the_explanation_in_the_cost_model_is_the_real_one(checkout: Path) -> None:
    """The target, the command and what it prints; every field of an entry has its line."""
    page = "docs/cost-model.md"
    (toml,), (command,), (shown,) = (code_blocks(page, kind) for kind in ("toml", "sh", ""))
    (checkout / "slow.toml").write_text(toml)
    words = shlex.split(command)
    script = Path(sys.executable).parent / words[0]
    done = subprocess.run([str(script), *words[1:]], cwd=checkout, capture_output=True, text=True, check=True)
    assert done.stderr == shown
    assert (checkout / "mlp.mixed.mlir").read_text().count("linalg.matmul") == 1
    report = qfuse.plan(parse((ROOT / DIGITS).read_text()), checkout / "slow.toml", explain_cost=True).report
    assert {key for entry in report.cost for key in entry} == table_keys(page, "Report")


def test_the_plans_in_the_cost_model_are_those_that_are_tested() -> None:
    page = (ROOT / "docs/cost-model.md").read_text()
    rows = re.findall(r"^\| [^|]*\b(mlp|cnn|resnet_block)`[^|]*\|(.*)\|$", page, re.MULTILINE)
    shown = {
        (model, machine): plan.strip()
        for model, plans in rows
        for machine, plan in zip(test_policy.MACHINES, plans.split("|"), strict=True)
    }
    assert shown == test_policy.PLANS


def test_the_snippet_of_the_cost_model_works() -> None:
    names: dict[str, Any] = {"module": parse((ROOT / DIGITS).read_text())}
    (snippet,) = code_blocks("docs/cost-model.md", "python")
    exec(compile(snippet, "docs/cost-model.md", "exec"), names)
    assert names["report"].summary["integer_ops"] == 3
    assert [e["chosen"] for e in names["report"].cost] == ["integer"] * 3


# -- reasons ---------------------------------------------------------------------------------------------------------


def texts_of(node: ast.expr, function: ast.AST) -> list[str]:
    """The texts that an expression can be, with `<>` in place of each formatted value; empty when that is not known."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return ["".join(p.value if isinstance(p, ast.Constant) else "<>" for p in node.values)]  # type: ignore[misc]
    if isinstance(node, ast.IfExp):
        return texts_of(node.body, function) + texts_of(node.orelse, function)
    if not isinstance(node, ast.Name):
        return []
    assignments = [n for n in ast.walk(function) if isinstance(n, ast.Assign)]
    values = [a.value for a in assignments if any(isinstance(t, ast.Name) and t.id == node.id for t in a.targets)]
    return [text for value in values if not isinstance(value, ast.Name) for text in texts_of(value, function)]


def reasons_in(path: Path) -> Iterator[tuple[int, ast.expr, list[str]]]:
    """Line, expression and texts of every reason that a file can give."""
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if function.name.startswith(REASON_FUNCTIONS) and isinstance(node, ast.Return) and node.value is not None:
                yield node.lineno, node.value, texts_of(node.value, function)
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in ("Refusal", "ContradictionError"):
                yield node.lineno, node.args[0], texts_of(node.args[0], function)


def sources() -> list[Path]:
    return sorted((ROOT / "qfuse").rglob("*.py"))


def documented_reasons() -> set[str]:
    page = (ROOT / "docs/diagnostics.md").read_text()
    return {re.sub(r"<[^>]*>", "<>", cell) for cell in re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)}


def all_reasons() -> list[Any]:
    found: dict[str, str] = {}
    for path in sources():
        for line, _, texts in reasons_in(path):
            for text in texts:
                found.setdefault(text, f"{path.relative_to(ROOT)}:{line}")
    return [pytest.param(text, id=place) for text, place in found.items()]


@pytest.mark.parametrize("reason", all_reasons())
def test_reason_is_documented(reason: str) -> None:
    assert reason in documented_reasons(), f"docs/diagnostics.md says nothing about: {reason}"


def test_every_reason_can_be_read_from_the_source() -> None:
    unread = [
        f"{path.relative_to(ROOT)}:{line}: {ast.unparse(reason)}"
        for path in sources()
        for line, reason, texts in reasons_in(path)
        if not texts and ast.unparse(reason) not in PASSED_ON
    ]
    assert not unread


def test_no_documented_reason_is_out_of_date() -> None:
    known = {param.values[0] for param in all_reasons()}
    gone = {reason for reason in documented_reasons() if " " in reason} - known
    assert not gone


# -- links -----------------------------------------------------------------------------------------------------------


def anchor_of(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        found = Path(os.path.normpath(page.parent / path)) if path else page
        assert found.is_relative_to(ROOT), f"{page}: {target} leaves the project"
        assert found.exists(), f"{page}: {target} does not exist"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
            assert anchor in map(anchor_of, headings), f"{page}: no heading for {target}"
