"""Targets from files: what they say, and what is wrong with them, with line, key and the nearest known key."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import qfuse
from qfuse import Limits, OperandLimits
from qfuse.cost.schema import KINDS, TARGET_KEYS, kind_keys
from tests.pipeline import samples

FULL = """\
name = "acme-npu"
doc = "everything"
emitter = "linalg"
fusions = ["qfuse.contraction", "qfuse.requantize"]
forbidden = ["qfuse.lookup"]
storage = ["s8", "u8"]
asymmetric = ["lhs"]
accumulators = [32, 48]
split_reduction = false
spelling = "named"
rounding = "magic"
operands = ["i16", "i8"]
epilogue = "fixed-point"
scaling = "double"
integer_only = true
memory_bandwidth = 12_800_000_000
call_overhead = 0

[granularities]
lhs = ["per-tensor"]

[throughput]
s8xs8 = 1e12
f32 = 8e9

[contraction]
accumulators = [32]
epilogues = ["fixed-point"]
scalings = ["double", "half-even"]
clamp = "relu"
multiple_of = { K = 16, N = 8 }
max_size.K = 4096

[contraction.rhs]
storage = ["s8"]
signed = true
granularities = ["per-tensor", "per-axis"]
zero_point = false
block_sizes = [32]
constant = true
layouts = ["NK"]

[depthwise]
supported = false

[lookup]
operations = ["tanh"]
table_sizes = [256]
"""


def write(path: Path, text: str) -> Path:
    """A target file."""
    file = path / "acme.toml"
    file.write_text(text, encoding="utf-8")
    return file


def error(path: Path, text: str) -> str:
    """What is wrong with a text; without the folder."""
    file = write(path, text)
    with pytest.raises(qfuse.UsageError) as caught:
        qfuse.Target.load(file)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{path}/", "")


def test_every_key_of_a_file_arrives(tmp_path: Path) -> None:
    """The same as the target in Python."""
    expected = qfuse.Target(
        "acme-npu",
        "everything",
        fusions={"qfuse.contraction", "qfuse.requantize"},
        forbidden={"qfuse.lookup"},
        storage={"s8", "u8"},
        asymmetric={"lhs"},
        accumulators=(32, 48),
        split_reduction=False,
        spelling="named",
        rounding="magic",
        operands=("i16", "i8"),
        epilogue="fixed-point",
        scaling="double",
        integer_only=True,
        memory_bandwidth=12.8e9,
        call_overhead=0.0,
        granularities={"lhs": {"per-tensor"}},
        throughput={"s8xs8": 1e12, "f32": 8e9},
        limits={
            "contraction": Limits(
                accumulators=(32,),
                epilogues={"fixed-point"},
                scalings={"double", "half-even"},
                clamp="relu",
                multiple_of={"K": 16, "N": 8},
                max_size={"K": 4096},
                operands={
                    "rhs": OperandLimits(
                        storage={"s8"},
                        signed=True,
                        granularities={"per-tensor", "per-axis"},
                        zero_point=False,
                        block_sizes={32},
                        constant=True,
                        layouts={"NK"},
                    )
                },
            ),
            "depthwise": Limits(supported=False),
            "lookup": Limits(operations={"tanh"}, table_sizes={256}),
        },
    )
    assert qfuse.Target.load(write(tmp_path, FULL)) == expected
    assert set(FULL.split()) >= set(TARGET_KEYS) - {"granularities", "throughput"}


def test_an_empty_file_is_a_target_without_limits(tmp_path: Path) -> None:
    """With the file's name."""
    assert qfuse.Target.load(write(tmp_path, "")) == qfuse.Target("acme")


def test_a_target_in_python_keeps_frozen_collections() -> None:
    """Whatever was given, and not what is changed later."""
    storage = ["s8"]
    target = qfuse.Target("toy", storage=storage, accumulators=[32], throughput={"s8xs8": 4})
    storage.append("u8")
    assert target.storage == frozenset({"s8"})
    assert target.accumulators == (32,)
    assert target.throughput == {"s8xs8": 4.0}


ERRORS = {
    "unknown key": (
        'name = "x"\nstorrage = ["s8"]\n',
        "acme.toml:2: storrage: unknown key 'storrage': did you mean 'storage'? known are name, doc,",
    ),
    "unknown table": ("\n[contractoin]\nclamp = 'relu'\n", "acme.toml:2: contractoin: unknown key 'contractoin': did"),
    "unknown key of a kind": (
        "[contraction]\nclamp = 'relu'\nepilogue = ['float']\n",
        "acme.toml:3: contraction.epilogue: unknown key 'epilogue': did you mean 'epilogues'?",
    ),
    "key of another kind": (
        "[contraction]\ntable_sizes = [256]\n", "acme.toml:2: contraction.table_sizes: unknown key 'table_sizes'",
    ),
    "unknown role": (
        "[convolution.wieght]\nstorage = ['s8']\n",
        "acme.toml:1: convolution.wieght: unknown key 'wieght': did you mean 'weight'?",
    ),
    "unknown key of an operand": (
        "[contraction.rhs]\nstorage = ['s8']\nzero_pont = false\n",
        "acme.toml:3: contraction.rhs.zero_pont: unknown key 'zero_pont': did you mean 'zero_point'?",
    ),
    "layouts of what has none": (
        "[lookup.input]\nlayouts = ['NHWC']\n", "acme.toml:2: lookup.input.layouts: unknown key 'layouts'",
    ),
    "constant result": (
        "[rescale.result]\nconstant = true\n", "acme.toml:2: rescale.result.constant: unknown key 'constant'",
    ),
    "unknown size": (
        "[convolution]\nmultiple_of = { channels = 16 }\n",
        "acme.toml:2: convolution.multiple_of.channels: unknown size 'channels': did you mean 'in_channels'?",
    ),
    "unknown granularity": (
        "[granularities]\nlhs = [\n  'per-tensor',\n  'per-group',\n  'pertensor',\n]\n",
        "acme.toml:5: granularities.lhs: unknown granularity 'pertensor': did you mean 'per-tensor'?",
    ),
    "unknown side": ("asymmetric = ['left']\n", "acme.toml:1: asymmetric: unknown operand 'left': known are lhs, rhs"),
    "unknown epilogue": (
        "epilogue = 'fixedpoint'\n",
        "acme.toml:1: epilogue: unknown epilogue 'fixedpoint': did you mean 'fixed-point'?",
    ),
    "unknown clamp": ("[sum]\nclamp = 'reluu'\n", "acme.toml:2: sum.clamp: unknown clamp 'reluu': did you mean 'relu'"),
    "storage type": ("storage = ['i8']\n", "acme.toml:1: storage: takes storage types such as s8 or u4, got 'i8'"),
    "storage width": ("storage = ['s65']\n", "acme.toml:1: storage: takes storage types such as s8 or u4, got 's65'"),
    "no list": ("storage = 's8'\n", "acme.toml:1: storage: takes a list, got 's8'"),
    "no boolean": ("split_reduction = 1\n", "acme.toml:1: split_reduction: takes true or false, got 1"),
    "no table": ("granularities = ['per-tensor']\n", "acme.toml:1: granularities: takes a table, got ['per-tensor']"),
    "kind is no table": ("contraction = false\n", "acme.toml:1: contraction: takes a table, got False"),
    "empty widths": ("accumulators = []\n", "acme.toml:1: accumulators: takes at least one value"),
    "width": ("accumulators = [4]\n", "acme.toml:1: accumulators: takes widths from 8 to 64 bits, got 4"),
    "size": (
        "[contraction]\nmax_size.K = 0\n", "acme.toml:2: contraction.max_size.K: takes a positive integer, got 0",
    ),
    "truth as a size": ("[lookup]\ntable_sizes = [true]\n", "acme.toml:2: lookup.table_sizes: takes a positive"),
    "layout": (
        "[convolution.input]\nlayouts = ['nhwc']\n",
        "acme.toml:2: convolution.input.layouts: takes layouts such as NHWC, of the letters N, G, C, D, H, W, got 'nh",
    ),
    "layout of another operand": (
        "[contraction.rhs]\nlayouts = ['NK', 'MK']\n",
        "acme.toml:2: contraction.rhs.layouts: takes layouts such as NK, of the letters B, N, K, got 'MK'",
    ),
    "a fusion chosen and forbidden": (
        "fusions = ['qfuse.sum', 'qfuse.lookup']\nforbidden = ['qfuse.lookup']\n",
        "acme.toml:2: forbidden: qfuse.lookup is among the fusions that may be used, too",
    ),
    "sizes that exclude each other": (
        "[contraction]\nmultiple_of = { K = 16 }\nmax_size.K = 8\n",
        "acme.toml:3: contraction.max_size.K: 8 at most, and multiples of 16: no size is both",
    ),
    "signs that exclude each other": (
        "[sum.input]\nsigned = false\nstorage = ['s8', 's16']\n",
        "acme.toml:2: sum.input.signed: unsigned only, and none of s16, s8 is",
    ),
    "cost functions": ("\n[costs]\nsum = 1\n", "acme.toml:2: costs: cost functions are Python: dataclasses.replace("),
    "an option": ("policy = 'never'\n", "acme.toml:1: policy: is an option of a run, not a key of a target: "),
    "another name": ("[matmul]\nsupported = false\n", "acme.toml:1: matmul: matrix products are called contraction"),
    "bandwidth": ("memory_bandwidth = 0\n", "acme.toml:1: memory_bandwidth: takes a positive number, got 0"),
    "infinite": ("memory_bandwidth = inf\n", "acme.toml:1: memory_bandwidth: takes a positive number, got inf"),
    "overhead": ("call_overhead = -1\n", "acme.toml:1: call_overhead: takes a number of seconds, got -1"),
    "throughput of": ("[throughput]\nint8 = 1\n", "acme.toml:2: throughput.int8: takes types such as s8xs8 or f32"),
    "throughput": ("[throughput]\ns8 = 'fast'\n", "acme.toml:2: throughput.s8: takes a positive number, got 'fast'"),
    "name": ("name = ''\n", "acme.toml:1: name: takes a name, got ''"),
    "doc": ('doc = """\na\nb"""\n', "acme.toml:1: doc: takes one line of text, got 'a\\nb'"),
    "syntax": ("name = \n", "acme.toml: not a TOML file: Invalid value (at line 1, column 8)"),
    "twice": ("name = 'a'\nname = 'b'\n", "acme.toml: not a TOML file: Cannot overwrite a value (at line 2,"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(ERRORS))
def test_an_error_names_file_line_and_key(name: str, tmp_path: Path) -> None:
    """And what would have been right."""
    text, message = ERRORS[name]
    assert error(tmp_path, text).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"storage": {"int8"}}, "target toy: storage: takes storage types such as s8 or u4, got 'int8'"),
        ({"accumulators": 32}, "target toy: accumulators: takes a list, got 32"),
        ({"throughput": {"s8xs8": 0}}, "target toy: throughput.s8xs8: takes a positive number, got 0"),
        ({"limits": {"matmul": Limits()}}, "target toy: matmul: unknown kind of operation 'matmul'"),
        ({"limits": {"lookup": {}}}, "target toy: lookup: takes Limits, got {}"),
        ({"limits": {"lookup": Limits(clamp="relu")}}, "target toy: lookup.clamp: unknown key 'clamp'"),
        ({"limits": {"sum": Limits(max_size={"K": 3})}}, "target toy: sum.max_size.K: unknown size 'K'"),
        (
            {"limits": {"sum": Limits(operands={"lhs": OperandLimits()})}},
            "target toy: sum.lhs: unknown key 'lhs'",
        ),
        (
            {"limits": {"sum": Limits(operands={"input": OperandLimits(granularities={"per-row"})})}},
            "target toy: sum.input.granularities: unknown granularity 'per-row'",
        ),
        (
            {"limits": {"sum": Limits(operands={"input": 8})}},
            "target toy: sum.input: takes OperandLimits, got 8",
        ),
    ],
    ids=range(10),
)  # fmt: skip
def test_an_error_in_python_names_the_field(arguments: dict[str, Any], message: str) -> None:
    """As a file would name the key."""
    with pytest.raises(qfuse.UsageError) as caught:
        qfuse.Target("toy", **arguments)
    assert str(caught.value).startswith(message)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """One line each."""
    with pytest.raises(qfuse.UsageError, match=r"target file .*gone\.toml: No such file or directory"):
        qfuse.Target.load(tmp_path / "gone.toml")
    with pytest.raises(qfuse.UsageError, match=r"target file .*: Is a directory"):
        qfuse.Target.load(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"doc = '\xe4'")
    with pytest.raises(qfuse.UsageError, match=r"target file .*latin\.toml: not UTF-8: .* at byte 7"):
        qfuse.Target.load(tmp_path / "latin.toml")


def test_every_field_is_a_key() -> None:
    """But what a file has otherwise; a field that is forgotten in the schema would not be validated."""
    own = {f.name for f in dataclasses.fields(qfuse.Target)}
    assert set(TARGET_KEYS) <= own
    assert {f.name for f in dataclasses.fields(Limits)} - {"operands"} <= {k for kind in KINDS for k in kind_keys(kind)}
    assert not set(KINDS) & set(TARGET_KEYS)


def test_the_ways_to_name_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parse: Any) -> None:
    """A path, a name that ends in .toml, a Target that was loaded; in each function."""
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, "[contraction]\nsupported = false\n")
    for target in (file, "acme.toml", "./acme.toml", qfuse.Target.load("acme.toml")):
        for report in (qfuse.plan(parse(samples.LINEAR), target).report, qfuse.fuse(parse(samples.LINEAR), target)):
            assert report.target == "acme"
            assert "acme.toml:2: supported = false" in report.missed[0]["reason"]
        run = qfuse.as_pass(target)
        run(parse(samples.LINEAR).operation)
        assert run.reports[0].target == "acme"  # type: ignore[attr-defined]


def test_a_changed_target_keeps_its_lines(tmp_path: Path) -> None:
    """`dataclasses.replace`: what was not changed is quoted as before."""
    target = qfuse.Target.load(write(tmp_path, "storage = ['u8']\n"))
    assert dataclasses.replace(target, name="other").quoted(("storage",)) == f"{tmp_path}/acme.toml:1: storage = ['u8']"
