"""The path to the TOSA tools: what is valid, what is run, and how failures are told."""

from __future__ import annotations

import numpy as np
import pytest
from torch_mlir import ir

from qfuse.errors import InputError
from qfuse.integrations import tosa
from tests.tosa.ir import rescale

FLOAT = """
module {
  func.func @main(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xi1>) {
    %s = tosa.add %a, %b : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %g = tosa.greater %a, %b : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
    return %s, %g : tensor<2x3xf32>, tensor<2x3xi1>
  }
}
"""
#: A sum of bytes, which TOSA does not have.
BYTES = """
module {
  func.func @main(%a: tensor<2x3xi8>) -> tensor<1x3xi8> {
    %s = tosa.reduce_sum %a {axis = 0 : i32} : (tensor<2x3xi8>) -> tensor<1x3xi8>
    return %s : tensor<1x3xi8>
  }
}
"""
SHIFT = rescale([1 << 30] * 4, [31] * 4)


def test_what_a_module_needs_is_found_from_its_types() -> None:
    def needs(text: str) -> tuple[tuple[str, ...], tuple[str, ...], str]:
        found = tosa.Requirements.of(text)
        return found.profiles, found.extensions, found.version

    assert needs(SHIFT) == (("pro_int",), (), "1.0")
    assert needs(FLOAT) == (("pro_int", "pro_fp"), (), "1.0")
    assert needs(FLOAT.replace("f32", "bf16")) == (("pro_int", "pro_fp"), ("bf16",), "1.0")
    assert needs(rescale([1], [2], element="i16", scale32=False)) == (("pro_int",), ("int16",), "1.0")
    assert needs(SHIFT.replace("SINGLE", "DOUBLE")) == (("pro_int",), ("doubleround",), "1.0")
    assert needs(SHIFT.replace("SINGLE", "INEXACT")) == (("pro_int",), ("inexactround",), "1.0")
    assert needs(FLOAT.replace("2x3xf32", "?x3xf32")) == (("pro_int", "pro_fp"), ("dynamic",), "1.1.draft")


@pytest.mark.parametrize("text", [SHIFT, FLOAT, SHIFT.replace("SINGLE", "DOUBLE")])
def test_valid_modules_are_valid(text: str) -> None:
    module = ir.Module.parse(text, ir.Context())
    assert tosa.validate(module) == tosa.validate(text) == tosa.Requirements.of(text)


def test_violations_are_told_by_their_first_message() -> None:
    with pytest.raises(tosa.ValidationError, match=r"reduce_sum.* illegal"):
        tosa.validate(BYTES)
    with pytest.raises(tosa.ValidationError, match="doubleround"):
        tosa.validate(SHIFT.replace("SINGLE", "DOUBLE"), tosa.Requirements())
    with pytest.raises(tosa.ValidationError, match=r"illegal|pro_fp"):
        tosa.validate(FLOAT, tosa.Requirements())
    with pytest.raises(InputError):
        tosa.validate("module { broken }")


def test_modules_are_run() -> None:
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 2.5, np.float32)
    total, greater = tosa.run(FLOAT, [a, b])
    assert np.array_equal(total, a + b)
    assert np.array_equal(greater, a > b)
    assert greater.dtype == np.bool_
    (halved,) = tosa.run(tosa.serialize(SHIFT), [np.array([5, -5, 4, -3], np.int32)])
    assert halved.tolist() == [3, -2, 2, -1]
    assert halved.dtype == np.int32


def test_runs_that_fail_end_in_an_error_and_not_in_the_death_of_this_process() -> None:
    with pytest.raises(tosa.RunError, match="the reference model failed"):
        tosa.run(BYTES, [np.zeros((2, 3), np.int8)])
    with pytest.raises(tosa.RunError, match="Invalid inputs"):
        tosa.run(SHIFT, [])


def test_lowering_to_linalg_and_what_has_none() -> None:
    text = tosa.to_linalg(SHIFT)
    assert "linalg.generic" in text
    assert "tosa." not in text
    with pytest.raises(tosa.ValidationError, match="no lowering to linalg"):
        tosa.to_linalg(SHIFT.replace("SINGLE", "INEXACT"))


def test_tools_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> None:
        raise tosa.importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(tosa.importlib.metadata, "distribution", nothing)
    monkeypatch.setattr(tosa.shutil, "which", lambda _: None)
    with pytest.raises(tosa.NotInstalledError, match=r"pip install 'qfuse\[tosa\]'"):
        tosa.validate(SHIFT)
