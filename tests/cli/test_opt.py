"""`qfuse-opt` on good input: what goes in, what comes out, where to, and with which exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import qfuse
from qfuse import builtin, cli
from qfuse._mlir import Bindings
from tests.cli.conftest import Opt
from tests.pipeline import samples

COMMAND = [sys.executable, "-m", "qfuse.cli"]
REMARK = re.compile(r"^linear\.mlir:(\d+):(\d+): (remark|missed): \S.*$")
BYTECODE = b"ML\xefR"
SUMMARY = ("quantized_compute_ops", "integer_ops", "float_ops_left", "integer_macs", "quantized_macs")

MIXED = samples.module(
    samples.linear_function("f"),
    samples.WEIGHT_ONLY.removeprefix("module {\n").removesuffix("}\n").replace("@main", "@g"),
)


def fused_text(text: str, **options: Any) -> str:
    """What the library makes of it."""
    module = Bindings.first_available().parse_source(text, "test.mlir")
    qfuse.fuse(module, **options)
    return str(module).rstrip("\n") + "\n"


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    """`linear.mlir` in the working directory."""
    path = tmp_path / "linear.mlir"
    path.write_text(samples.LINEAR, encoding="utf-8")
    return path


# -- in and out ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("linear")
def test_a_file_to_standard_output(opt: Opt) -> None:
    """The fused module, nothing else, and silence on stderr."""
    done = opt("linear.mlir")
    assert (done.code, done.err) == (0, "")
    assert done.out == fused_text(samples.LINEAR)


@pytest.mark.parametrize("where", [["-o", "out.mlir"], ["--output=out.mlir"]], ids=" ".join)
@pytest.mark.usefixtures("linear")
def test_a_file_to_a_file(where: list[str], opt: Opt) -> None:
    """Standard output stays empty."""
    done = opt("linear.mlir", *where)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert Path("out.mlir").read_text(encoding="utf-8") == fused_text(samples.LINEAR)


def test_a_file_onto_itself(opt: Opt, linear: Path) -> None:
    """The input is read whole before the output is opened."""
    assert opt(linear, "-o", linear).code == 0
    assert linear.read_text(encoding="utf-8") == fused_text(samples.LINEAR)


@pytest.mark.parametrize("arguments", [["-"], ["-", "-o", "-"]], ids=" ".join)
def test_standard_input_to_standard_output(arguments: list[str], opt: Opt) -> None:
    """`-` is either."""
    done = opt(*arguments, stdin=samples.LINEAR)
    assert (done.code, done.err) == (0, "")
    assert done.out == fused_text(samples.LINEAR)


@pytest.mark.usefixtures("linear")
def test_bytecode_in_and_out(opt: Opt) -> None:
    """Bytecode is recognised by its first bytes, from a file and from standard input, and says the same."""
    assert opt("linear.mlir", "--disable", "qfuse.contraction", "--emit-bytecode", "-o", "in.mlirbc").code == 0
    data = Path("in.mlirbc").read_bytes()
    assert data.startswith(BYTECODE)
    from_file, from_input = opt("in.mlirbc"), opt("-", stdin=data)
    assert (from_file.code, from_input.code) == (0, 0)
    assert from_file.out == from_input.out == fused_text(samples.LINEAR)


def test_bytecode_on_standard_streams(linear: Path) -> None:
    """In processes of its own, through a pipe: text -> bytecode -> text."""
    first = subprocess.run([*COMMAND, str(linear), "--emit-bytecode"], capture_output=True, check=True)
    assert first.stdout.startswith(BYTECODE)
    second = subprocess.run([*COMMAND, "-", "--remarks"], input=first.stdout, capture_output=True, check=True)
    assert second.stdout.decode() == fused_text(samples.LINEAR)
    assert b"linalg.generic is integer already" in second.stderr


def test_a_file_that_is_not_regular(linear: Path) -> None:
    """A pipe that the shell gives a name is read like a file."""
    done = subprocess.run([*COMMAND, "/dev/stdin"], input=linear.read_bytes(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == fused_text(samples.LINEAR)


def test_a_reader_that_goes_away_is_no_traceback(linear: Path) -> None:
    """As in `qfuse-opt x.mlir | head -1`."""
    with subprocess.Popen([*COMMAND, str(linear)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
    assert errors == b""
    assert process.returncode == 1


@pytest.mark.parametrize("binding", ["torch_mlir", "iree.compiler"])
@pytest.mark.usefixtures("linear")
def test_the_binding_can_be_chosen(binding: str, opt: Opt) -> None:
    """Every installed one."""
    pytest.importorskip(f"{binding}.ir")
    done = opt("linear.mlir", "--binding", binding)
    assert (done.code, done.err) == (0, "")
    assert "linalg.matmul" not in done.out


def test_the_installed_command_is_the_same(linear: Path) -> None:
    """The script beside the interpreter, when it is installed."""
    script = Path(sys.executable).with_name("qfuse-opt")
    if not script.exists():
        pytest.skip("the console script is not installed beside the interpreter")
    done = subprocess.run([str(script), str(linear)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == fused_text(samples.LINEAR)


# -- choices -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--target", "iree-cpu"], {"target": "iree-cpu"}),
        (["--option", "spelling=named"], {"spelling": "named"}),
        (["--option", "rounding=magic", "--option", "spelling=named"], {"rounding": "magic", "spelling": "named"}),
        (["--disable", "qfuse.requantize"], {"disable": ["qfuse.requantize"]}),
        (["--disable", "qfuse.requantize, qfuse.cancel"], {"disable": ["qfuse.requantize", "qfuse.cancel"]}),
        (["--fusions", "qfuse.dequantize,qfuse.contraction"], {"fusions": ["qfuse.dequantize", "qfuse.contraction"]}),
        (["--option", "max_reduction=4096"], {"max_reduction": 4096}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("linear")
def test_choices_reach_the_library(arguments: list[str], options: dict[str, Any], opt: Opt) -> None:
    """The same text as from `qfuse.fuse`."""
    done = opt("linear.mlir", *arguments)
    assert (done.code, done.err) == (0, "")
    assert done.out == fused_text(samples.LINEAR, **options)


# -- remarks and report --------------------------------------------------------------------------------------------


def test_remarks_are_compiler_diagnostics_on_standard_error(opt: Opt, linear: Path) -> None:
    """`file:line:column: remark|missed: ...`, a line an entry, at the operation."""
    linear.write_text(MIXED, encoding="utf-8")
    done = opt("linear.mlir", "--remarks", "-o", "out.mlir")
    assert done.code == 0
    lines = done.err.splitlines()
    assert all(REMARK.match(line) for line in lines), lines
    assert [line.split(": ", 3)[1] for line in lines] == ["remark", "remark", "missed"]
    assert "remark: qfuse.contraction: linalg.matmul: " in lines[0]
    assert "remark: qfuse.requantize: linalg.generic: " in lines[1]
    assert "missed: linalg.matmul: operand 0 (lhs) is not dequantized" in lines[2]
    source = MIXED.splitlines()
    for line, operation in zip(lines, ("linalg.matmul", "linalg.generic", "linalg.matmul"), strict=True):
        found = REMARK.match(line)
        assert found
        assert source[int(found[1]) - 1][int(found[2]) - 1 :].startswith(operation)


def test_without_remarks_standard_error_is_silent(opt: Opt, linear: Path) -> None:
    """A miss is no error."""
    linear.write_text(samples.WEIGHT_ONLY, encoding="utf-8")
    assert opt("linear.mlir").err == ""


def check_entries(entries: list[dict[str, Any]], keys: dict[str, type]) -> None:
    """Each has at least these keys, of these types."""
    for entry in entries:
        for key, kind in keys.items():
            assert isinstance(entry[key], kind), (key, entry)


def test_the_report_has_the_documented_schema(opt: Opt, linear: Path) -> None:
    """Version 1: keys and their types, on a module with an applied, a missed and an integer contraction."""
    linear.write_text(MIXED, encoding="utf-8")
    assert opt("linear.mlir", "-o", "out.mlir", "--report", "report.json").code == 0
    first = json.loads(Path("report.json").read_text(encoding="utf-8"))
    assert opt("out.mlir", "-o", "again.mlir", "--report", "report.json").code == 0
    second = json.loads(Path("report.json").read_text(encoding="utf-8"))
    for data in (first, second):
        assert data["version"] == 1
        assert data["target"] == "linalg"
        assert set(SUMMARY) <= set(data["summary"])
        assert all(isinstance(data["summary"][key], int) for key in SUMMARY)
        check_entries(data["applied"], dict.fromkeys(("fusion", "op", "location", "function", "exactness"), str))
        check_entries(data["missed"], dict.fromkeys(("op", "location", "function", "reason", "hint"), str))
        check_entries(data["already_integer"], dict.fromkeys(("op", "location", "function"), str))
        assert data["problems"] == []
    assert (len(first["applied"]), len(first["missed"]), len(first["already_integer"])) == (2, 1, 0)
    assert (len(second["applied"]), len(second["missed"]), len(second["already_integer"])) == (0, 1, 1)
    assert first["summary"] == {
        "quantized_compute_ops": 1,
        "integer_ops": 1,
        "float_ops_left": 1,
        "quantized_macs": 64,
        "integer_macs": 64,
    }
    assert first["applied"][0]["location"].startswith("linear.mlir:")


def test_macs_of_dynamic_extents_are_null(opt: Opt, linear: Path) -> None:
    """They are not known."""
    body = (
        "    %c0 = arith.constant 0 : index\n    %n = tensor.dim %qa, %c0 : tensor<?x4xi8>\n"
        + samples.dequantize("a", "qa", "?x4").replace("tensor.empty()", "tensor.empty(%n)")
        + samples.dequantize("b", "qb")
        + samples.matmul("m", "a", "b")
        .replace("tensor<4x4xf32>)\n", "tensor<?x4xf32>)\n")
        .replace("%a, %b : tensor<4x4xf32>", "%a, %b : tensor<?x4xf32>")
        .replace("%m_e = tensor.empty() : tensor<4x4xf32>", "%m_e = tensor.empty(%n) : tensor<?x4xf32>")
        .replace("outs(%m_e : tensor<4x4xf32>) -> tensor<4x4xf32>", "outs(%m_e : tensor<?x4xf32>) -> tensor<?x4xf32>")
        .replace("outs(%m_f : tensor<4x4xf32>) -> tensor<4x4xf32>", "outs(%m_f : tensor<?x4xf32>) -> tensor<?x4xf32>")
    )
    arguments = "%qa: tensor<?x4xi8>, %qb: tensor<4x4xi8>"
    text = samples.module(samples.function(body, arguments, "tensor<?x4xf32>", "m"))
    linear.write_text(text, encoding="utf-8")
    assert opt("linear.mlir", "-o", "out.mlir", "--report", "report.json").err == ""
    summary = json.loads(Path("report.json").read_text(encoding="utf-8"))["summary"]
    assert summary["integer_ops"] == 1
    assert summary["integer_macs"] is None
    assert summary["quantized_macs"] is None


@pytest.mark.usefixtures("linear")
def test_the_report_on_standard_output(opt: Opt) -> None:
    """When the module goes elsewhere."""
    done = opt("linear.mlir", "-o", "out.mlir", "--report", "-")
    assert json.loads(done.out)["summary"]["integer_ops"] == 1
    assert Path("out.mlir").exists()


# -- listings ------------------------------------------------------------------------------------------------------


def test_listing_fusions_and_targets(capsys: pytest.CaptureFixture[str]) -> None:
    """Name, owner, one line of description; the same as JSON."""
    for kind, items in (("fusions", builtin.fusions()), ("targets", builtin.targets())):
        assert cli.main(["list", kind]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert cli.main(["list", kind, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert len(lines) == len(rows) == len(items)
        for line, row in zip(lines, rows, strict=True):
            facts = [row["emitter"]] if kind == "targets" else [",".join(row["matches"]), ",".join(row["exactness"])]
            words = [row["name"], row["owner"], *facts, row["doc"]]
            assert line.split(maxsplit=len(words) - 1) == words
            assert row["owner"] == "qfuse"


@pytest.mark.parametrize("main", [cli.main, cli.opt_main])
def test_help_is_shown(main: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """And exits with 0."""
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("usage: qfuse")
