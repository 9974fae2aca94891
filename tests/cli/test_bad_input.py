"""`qfuse-opt` on bad input: one line that says what is wrong, the module as it was, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qfuse import builtin
from tests.cli.conftest import Opt
from tests.pipeline import samples
from tests.pipeline.samples import dequantize, function, matmul, module, per_axis_linear, quantize

TARGETS = ", ".join(sorted(target.name for target in builtin.targets()))
FUSIONS = ", ".join(sorted(fusion.id for fusion in builtin.fusions()))
ARGUMENTS = "%qa: tensor<4x4xi8>, %qb: tensor<4x4xi8>"
NAN, INFINITY = "0x7FC00000", "0x7F800000"


def write(text: str | bytes, name: str = "in.mlir") -> Path:
    """A file in the working directory."""
    path = Path(name)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def linear(**changed: str | int) -> str:
    """dequantize, dequantize, matmul, where the first dequantize has other parameters."""
    body = dequantize("a", "qa", **changed) + dequantize("b", "qb") + matmul("m", "a", "b")  # type: ignore[arg-type]
    return module(function(body, ARGUMENTS, "tensor<4x4xf32>", "m"))


def quantized(**changed: str | int) -> str:
    """One quantize, of other parameters."""
    body = quantize("r", "x", **changed)  # type: ignore[arg-type]
    return module(function(body, "%x: tensor<4x4xf32>", "tensor<4x4xi8>", "r"))


def unchanged(opt: Opt, text: str) -> str:
    """Runs with --remarks; the output must equal what goes through untouched. Returns the remarks."""
    write(text)
    plain = opt("in.mlir", "--fusions", "qfuse.dequantize")
    done = opt("in.mlir", "--remarks")
    assert done.code == 0, done.err
    assert done.out == plain.out
    assert "Traceback" not in done.err
    return done.err


# -- the file ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello world", "in.mlir:1:1: custom op 'hello' is unknown (tried 'builtin.hello' as well)"),
        ("module {\n  func.func @f( {\n}\n", "in.mlir:2:16: expected "),
        (samples.LINEAR.replace("tensor<4x4xi8>) outs(%a_e", "tensor<4x5xi8>) outs(%a_e"), "in.mlir:"),
        (samples.LINEAR.replace("return %r", "return %nothing"), "in.mlir:"),
        (samples.LINEAR[: len(samples.LINEAR) // 2], "in.mlir:"),
        (b"\x00\x01\x02\xff\xfe", "in.mlir"),
        (samples.LINEAR.encode("utf-16"), "in.mlir"),
        (b"ML\xefR", "in.mlir"),
        (b"ML\xefR\x0dgarbage that is no bytecode", "in.mlir"),
        (samples.LINEAR.replace("return %r : tensor<4x4xi8>", ""), "in.mlir:36:10: block with no terminator"),
    ],
    ids=[
        "no MLIR",
        "syntax",
        "types",
        "undefined value",
        "cut off",
        "binary",
        "UTF-16",
        "magic",
        "broken bytecode",
        "no terminator",
    ],
)
def test_what_cannot_be_parsed(text: str | bytes, message: str, opt: Opt) -> None:
    """The parser's first message with its place; nothing is written."""
    write(text)
    done = opt("in.mlir", "-o", "out.mlir")
    assert done.code == 1
    assert done.out == ""
    assert done.error.startswith(f"qfuse-opt: error: {message}")
    assert not Path("out.mlir").exists()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing.mlir", "No such file or directory"),
        (".", "Is a directory"),
        ("a/b/c.mlir", "No such file or directory"),
    ],
)
def test_what_is_no_file(path: str, reason: str, opt: Opt) -> None:
    """Names the path and the reason."""
    done = opt(path)
    assert (done.code, done.error) == (1, f"qfuse-opt: error: {path}: {reason}")


@pytest.mark.parametrize("text", ["", "\n\n", "// nothing but a comment\n", "module {}"], ids=repr)
def test_an_empty_input_is_an_empty_module(text: str, opt: Opt) -> None:
    """As for every MLIR tool; it is said that there was nothing to do."""
    write(text)
    done = opt("in.mlir")
    assert done.code == 0
    assert done.out == "module {\n}\n"
    assert done.error.startswith("qfuse: remark: the module holds no quantize")


@pytest.mark.parametrize(
    ("path", "reason"),
    [("no/such/place.mlir", "No such file or directory"), (".", "Is a directory")],
)
@pytest.mark.parametrize("option", ["-o", "--report"])
def test_where_the_output_cannot_be_written(path: str, reason: str, option: str, opt: Opt) -> None:
    """One line with the path."""
    write(samples.LINEAR)
    done = opt("in.mlir", option, path)
    assert (done.code, done.error) == (1, f"qfuse-opt: error: {path}: {reason}")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["-o", "/dev/full"], []], ids=["file", "standard output"])
def test_when_the_disk_is_full(arguments: list[str], tmp_path: Path) -> None:
    """One line, also for standard output, which is written when the process ends at the latest."""
    source = tmp_path / "in.mlir"
    source.write_text(samples.LINEAR, encoding="utf-8")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "qfuse.cli", str(source), *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


def test_a_failure_leaves_an_existing_output_alone(opt: Opt) -> None:
    """It is opened when there is something to write."""
    write("hello world")
    write("precious", "out.mlir")
    assert opt("in.mlir", "-o", "out.mlir").code == 1
    assert Path("out.mlir").read_text(encoding="utf-8") == "precious"


# -- the command line ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "linlag"], f"unknown target 'linlag': did you mean 'linalg'? known are {TARGETS}"),
        (["--target", "zzz"], f"unknown target 'zzz': known are {TARGETS}"),
        (["--option", "speling=named"], "unknown option 'speling': did you mean 'spelling'? known are "),
        (["--option", "spelling=pretty"], "option spelling takes one of generic, named, got 'pretty'"),
        (["--option", "spelling="], "option spelling takes one of generic, named, got ''"),
        (["--option", "rounding=up"], "option rounding takes one of magic, roundeven, got 'up'"),
        (["--option", "max_reduction=many"], "option max_reduction takes a positive integer, got 'many'"),
        (["--option", "max_reduction=-1"], "option max_reduction takes a positive integer, got '-1'"),
        (["--option", "max_reduction"], "--option takes NAME=VALUE, got 'max_reduction'"),
        (["--option", "rounding=magic", "--option", "rounding=even"], "--option rounding is given twice"),
        (["--fusions", ""], "--fusions takes names of fusions, got ''"),
        (["--disable", " ,"], "--disable takes names of fusions, got ' ,'"),
        (["--fusions", "contraction"], "unknown fusion 'contraction': did you mean 'qfuse.contraction'? known are "),
        (["--fusions", "qfuse.dequantize,zzz"], f"unknown fusion 'zzz': known are {FUSIONS}"),
        (
            ["--disable", "qfuse.cansel"],
            f"unknown fusion 'qfuse.cansel': did you mean 'qfuse.cancel'? known are {FUSIONS}",
        ),
        (["--report", "-"], "the module and the report cannot both go to standard output"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage(arguments: list[str], message: str, opt: Opt) -> None:
    """Exit code 2, one line that lists what is known, and nothing on standard output."""
    write(samples.LINEAR)
    done = opt("in.mlir", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.error.startswith(f"qfuse-opt: error: {message}")


@pytest.mark.parametrize(
    "arguments",
    [[], ["a", "b"], ["--nonsense", "in.mlir"], ["in.mlir", "--binding", "xdsl"], ["in.mlir", "-o"]],
    ids=str,
)
def test_wrong_usage_that_the_argument_parser_sees(arguments: list[str], opt: Opt) -> None:
    """Exit code 2 and the usage."""
    done = opt(*arguments)
    assert done.code == 2
    assert done.err.startswith("usage: qfuse-opt")
    assert "Traceback" not in done.err


def test_a_binding_that_is_not_installed(opt: Opt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Says so."""
    write(samples.LINEAR)
    monkeypatch.setitem(sys.modules, "mlir", None)
    monkeypatch.setitem(sys.modules, "mlir.ir", None)
    done = opt("in.mlir", "--binding", "mlir")
    assert done.code == 2
    assert done.error.startswith("qfuse-opt: error: binding mlir is not installed: ")


# -- unregistered dialects -----------------------------------------------------------------------------------------

UNREGISTERED = module(
    function(
        dequantize("a", "qa")
        + dequantize("b", "qb")
        + matmul("m", "a", "b")
        + '    %x = "acme.act"(%m) {acme.level = 3 : i32} : (tensor<4x4xf32>) -> tensor<4x4xf32>\n',
        ARGUMENTS,
        "tensor<4x4xf32>",
        "x",
    )
)


def test_unregistered_operations_are_kept(opt: Opt) -> None:
    """With their attributes; what is around them is fused."""
    write(UNREGISTERED)
    done = opt("in.mlir")
    assert (done.code, done.err) == (0, "")
    assert '"acme.act"(' in done.out
    assert "acme.level = 3 : i32" in done.out
    assert "linalg.matmul" not in done.out


def test_strict_refuses_unregistered_operations(opt: Opt) -> None:
    """With the operation's place."""
    write(UNREGISTERED)
    done = opt("in.mlir", "--strict")
    line = next(i for i, text in enumerate(UNREGISTERED.splitlines(), 1) if "acme.act" in text)
    assert (done.code, done.out) == (1, "")
    assert done.error.startswith(f"qfuse-opt: error: in.mlir:{line}:")
    assert "unregistered dialect" in done.error


def test_strict_takes_registered_operations(opt: Opt) -> None:
    """Also those of torch-mlir's dialects."""
    write(samples.LINEAR)
    assert opt("in.mlir", "--strict").out == opt("in.mlir").out


# -- contradictory and unusable parameters -------------------------------------------------------------------------


def test_no_quantization_is_said_and_changes_nothing(opt: Opt) -> None:
    """With or without --remarks."""
    line = "qfuse: remark: the module holds no quantize, dequantize or integer contraction; unchanged\n"
    assert unchanged(opt, samples.FLOAT_ONLY) == line
    assert opt("in.mlir").err == line


REFUSED_QUANTIZES = {
    "u8 clamp, signed cast": (
        {"low": 0, "high": 255},
        "the clamp [0, 255] does not fit the signed 8-bit storage that the cast produces",
    ),
    "s8 clamp, unsigned cast": (
        {"cast": "arith.fptoui"},
        "the clamp [-128, 127] does not fit the unsigned 8-bit storage that the cast produces",
    ),
    "empty clamp": ({"low": 5, "high": 3}, "the clamp [5, 3] is empty"),
    "scale 0": ({"scale": "0.0"}, "a scale is zero"),
    "scale -0": ({"scale": "-0.0"}, "a scale is zero"),
    "negative scale": ({"scale": "-0.5"}, "a scale is negative"),
    "scale nan": ({"scale": NAN}, "a scale is not finite"),
    "scale inf": ({"scale": INFINITY}, "a scale is not finite"),
    "zero point 128": ({"zero_point": 128}, "the zero point 128 is outside the storage range [-128, 127]"),
    "zero point -1 of u8": (
        {"zero_point": -1, "low": 0, "high": 255, "cast": "arith.fptoui"},
        "the zero point -1 is outside the storage range [0, 255]",
    ),
}


@pytest.mark.parametrize("what", list(REFUSED_QUANTIZES))
def test_no_fuse_when_a_quantize_contradicts_itself(what: str, opt: Opt) -> None:
    """The remark stands at the quantize; the module is unchanged."""
    changed, reason = REFUSED_QUANTIZES[what]
    (line,) = unchanged(opt, quantized(**changed)).splitlines()
    assert line.startswith(f"in.mlir:4:10: missed: linalg.generic: {reason} (")


REFUSED_DEQUANTIZES = {
    "scale 0": ({"scale": "0.0"}, "a scale is zero"),
    "negative scale": ({"scale": "-0.5"}, "a scale is negative"),
    "scale nan": ({"scale": NAN}, "a scale is not finite"),
    "scale -inf": ({"scale": "0xFF800000"}, "a scale is not finite"),
    "zero point 200": ({"zero_point": 200}, "the zero point 200 is outside the storage range [-128, 127]"),
    "zero point -5 of u8": (
        {"zero_point": -5, "extend": "arith.extui"},
        "the zero point -5 is outside the storage range [0, 255]",
    ),
}


@pytest.mark.parametrize("what", list(REFUSED_DEQUANTIZES))
def test_no_fuse_when_a_dequantize_contradicts_itself(what: str, opt: Opt) -> None:
    """Two remarks: at the dequantize why, and at the contraction that an operand is none, and where to look."""
    changed, reason = REFUSED_DEQUANTIZES[what]
    first, second = unchanged(opt, linear(**changed)).splitlines()
    assert first.startswith(f"in.mlir:4:10: missed: linalg.generic: {reason} (")
    assert second.startswith("in.mlir:34:10: missed: linalg.matmul: operand 0 (lhs) is not dequantized (")
    assert second.endswith("(correct the quantization parameters at in.mlir:4:10)")


def test_no_fuse_when_storage_is_written_unsigned_and_read_signed(opt: Opt) -> None:
    """The two are one tensor."""
    body = (
        quantize("q", "x", low=0, high=255, cast="arith.fptoui")
        + dequantize("a", "q")
        + dequantize("b", "qb")
        + matmul("m", "a", "b")
    )
    text = module(function(body, "%x: tensor<4x4xf32>, %qb: tensor<4x4xi8>", "tensor<4x4xf32>", "m"))
    remarks = unchanged(opt, text)
    assert "missed: linalg.generic: storage is written as u8 [0, 255] and read as s8 (" in remarks


@pytest.mark.parametrize(
    ("constants", "reason"),
    [
        ({"scales": "dense<[0.5, 0.0, 0.1, 0.2]>"}, "a scale is zero"),
        ({"scales": "dense<[0.5, -0.25, 0.1, 0.2]>"}, "a scale is negative"),
        ({"scales": f"dense<[0.5, {NAN}, 0.1, 0.2]>"}, "a scale is not finite"),
        ({"zero_points": "dense<[0, 1, 2, 1000]>"}, "the zero point 1000 is outside the storage range [-128, 127]"),
    ],
    ids=["zero", "negative", "nan", "zero point"],
)
def test_no_fuse_when_one_value_of_an_axis_is_wrong(constants: dict[str, str], reason: str, opt: Opt) -> None:
    """One of four is enough."""
    remarks = unchanged(opt, per_axis_linear(**constants))
    assert f": missed: linalg.generic: {reason} (" in remarks
    assert ": missed: linalg.matmul: operand 1 (rhs) is not dequantized (" in remarks


# -- constants that cannot be read ---------------------------------------------------------------------------------

ELIDED = "dense_resource<__elided__>"
ONE = "0x040000000000803F"


@pytest.mark.parametrize(
    "constants",
    [
        pytest.param({"weight": ELIDED}, id="elided weight"),
        pytest.param({"scales": ELIDED}, id="elided scales"),
        pytest.param({"zero_points": ELIDED}, id="elided zero points"),
        pytest.param({"weight": ELIDED, "scales": ELIDED, "zero_points": ELIDED}, id="all elided"),
        pytest.param({"weight": "dense_resource<nowhere>"}, id="missing weight"),
        pytest.param({"scales": "dense_resource<s>", "resources": 's: "0x04000000"'}, id="empty scales"),
        pytest.param({"scales": "dense_resource<s>", "resources": f's: "{ONE}0000803F"'}, id="short scales"),
        pytest.param({"scales": "dense_resource<s>", "resources": f's: "{ONE}00"'}, id="cut off scales"),
    ],
)
def test_constants_whose_values_are_not_there(constants: dict[str, str], opt: Opt) -> None:
    """What can be done without the values is done: they are read when the module runs. The output is a module."""
    write(per_axis_linear(**constants))
    done = opt("in.mlir", "--remarks", "-o", "out.mlir")
    assert done.code == 0, done.err
    assert ": remark: qfuse.contraction: linalg.matmul: " in done.err
    assert "Traceback" not in done.err
    assert opt("out.mlir").code == 0


def test_values_that_prove_a_narrow_accumulator_are_needed(opt: Opt) -> None:
    """Elided weights get the bound of their type, which is wider."""
    write(per_axis_linear())
    with_values = opt("in.mlir", "--remarks").err
    write(per_axis_linear(weight=ELIDED))
    without_values = opt("in.mlir", "--remarks").err
    assert "accumulator_bound 5240" in with_values
    assert f"accumulator_bound {4 * 131 * 128}" in without_values


# -- operations that are not what they seem ------------------------------------------------------------------------

MAPS = (
    "[affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>, "
    "affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> (d0, d1)>]"
)


def affine(
    maps: str = MAPS,
    zero_point: str = "3 : i64",
    storage: str = "%qa : tensor<4x4xi8>",
    scale: str = "%s0 : f32",
    name: str = "dequantize_affine",
) -> str:
    """dequantize_affine in generic form, which no dialect verifies here, and a matmul on it."""
    zero_type = zero_point.split(" : ")[1]
    (stored, stored_type), (scales, scale_type) = (x.split(" : ") for x in (storage, scale))
    body = (
        "    %a_e = tensor.empty() : tensor<4x4xf32>\n    %s0 = arith.constant 0.5 : f32\n"
        f"    %z0 = arith.constant {zero_point}\n"
        f'    %a = "iree_linalg_ext.{name}"({stored}, {scales}, %z0, %a_e)'
        f" <{{operandSegmentSizes = array<i32: 3, 1>}}> {{indexing_maps = {maps}}}"
        f" : ({stored_type}, {scale_type}, {zero_type}, tensor<4x4xf32>) -> tensor<4x4xf32>\n"
        + dequantize("b", "qb")
        + matmul("m", "a", "b")
    )
    return module(function(body, ARGUMENTS, "tensor<4x4xf32>", "m"))


def test_a_named_dequantize_in_generic_form(opt: Opt) -> None:
    """The well-formed one is fused."""
    write(affine())
    assert ": remark: qfuse.contraction: " in opt("in.mlir", "--remarks").err


@pytest.mark.parametrize(
    "malformed",
    [
        pytest.param({"maps": "7 : i32"}, id="maps are a number"),
        pytest.param({"maps": "[]"}, id="no maps"),
        pytest.param({"maps": "[1, 2, 3, 4]"}, id="maps are numbers"),
        pytest.param({"maps": "[affine_map<(d0, d1) -> (d0, d1)>]"}, id="one map"),
        pytest.param({"maps": MAPS.replace("(d0, d1) -> ()", "(d0, d1)[s0] -> (s0)")}, id="symbols"),
        pytest.param({"storage": "%a_e : tensor<4x4xf32>"}, id="storage is float"),
        pytest.param({"scale": "%qb : tensor<4x4xi8>"}, id="scale is integer and of another rank"),
        pytest.param({"zero_point": "3.5 : f32"}, id="zero point 3.5"),
        pytest.param({"zero_point": "300 : i64"}, id="zero point 300"),
    ],
)
def test_no_fuse_when_a_named_dequantize_is_malformed(malformed: dict[str, str], opt: Opt) -> None:
    """It is no dequantize, or a refused one; the contraction says that its operand is not dequantized."""
    remarks = unchanged(opt, affine(**malformed))
    assert ": missed: linalg.matmul: operand 0 (lhs) is not dequantized (" in remarks


@pytest.mark.parametrize("element", ["f8E4M3FN", "f80", "f128", "tf32"])
def test_no_crash_on_unusual_float_types(element: str, opt: Opt) -> None:
    """Fused or left alone, but the output is a module."""
    for text in (linear(zero_point=3), samples.LINEAR, samples.PER_AXIS):
        write(text.replace("f32", element))
        done = opt("in.mlir", "--remarks", "-o", "out.mlir")
        assert done.code == 0, done.err
        assert "Traceback" not in done.err
        assert opt("out.mlir").code == 0


@pytest.mark.parametrize(
    ("location", "printed"),
    [
        ('loc("model.py":3:7)', "model.py:3:7"),
        ('loc("conv1"("model.py":3:7))', "model.py:3:7"),
        ('loc(fused["model.py":3:7, "b.py":3:4])', "model.py:3:7"),
        ('loc(callsite("f"("model.py":3:7) at "b.py":3:4))', "model.py:3:7"),
        ('loc("with space.py":3:7)', "with space.py:3:7"),
        ('loc("only a name")', '"only a name"'),
        ("loc(unknown)", "unknown"),
    ],
)
def test_a_remark_stands_at_the_first_place_of_its_operation(location: str, printed: str, opt: Opt) -> None:
    """`file:line:column`, whatever the frontend has made of locations."""
    text = samples.WEIGHT_ONLY
    line = next(line for line in text.splitlines() if "linalg.matmul" in line)
    write(text.replace(line, f"{line} {location}"))
    done = opt("in.mlir", "--remarks")
    assert done.err.startswith(f"{printed}: missed: linalg.matmul: ")
