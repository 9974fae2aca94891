"""Constants of every spelling are read: dense, splat, resource, hexadecimal, narrow types, through layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qfuse._elements import nearest_bf16
from qfuse._mlir import Bindings
from qfuse.matchers.constants import ConstantReader
from qfuse.matchers.functions import apply
from tests.conftest import Parse
from tests.matchers.ir import blob, function


def read(parse: Parse, bindings: Bindings, *operations: str, resources: str = "", arguments: str = "") -> Any:
    """The values of the last operation's result, or None."""
    module = parse(function(arguments, *operations, resources=resources), bindings)
    last = list(module.body.operations[0].regions[0].blocks[0].operations)[-2]
    return ConstantReader(bindings).read(last.operation.results[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dense<[1, -2, 3]> : tensor<3xi8>", np.array([1, -2, 3], np.int8)),
        ("dense<[1, -2, 3]> : tensor<3xi64>", np.array([1, -2, 3], np.int64)),
        ("dense<7> : tensor<2x2xi32>", np.full((2, 2), 7, np.int32)),
        ("dense<-1> : tensor<2x2xi4>", np.full((2, 2), -1, np.int8)),
        ("dense<[[1, -8], [7, 0]]> : tensor<2x2xi4>", np.array([[1, -8], [7, 0]], np.int8)),
        ("dense<[1, -4]> : tensor<2xi3>", np.array([1, -4], np.int8)),
        ("dense<[1, -1]> : tensor<2xindex>", np.array([1, -1], np.int64)),
        ("dense<[true, false]> : tensor<2xi1>", np.array([True, False])),
        ("dense<0.5> : tensor<f32>", np.array(0.5, np.float32)),
        ("dense<[0.5, 0x7F800000]> : tensor<2xf32>", np.array([0.5, np.inf], np.float32)),
        ("dense<0.1> : tensor<3xf16>", np.full(3, 0.1, np.float16)),
        ("dense<0.1> : tensor<3xf64>", np.full(3, 0.1, np.float64)),
        ("dense<[0.1, -3.0]> : tensor<2xbf16>", np.array([0.10009765625, -3.0], np.float32)),
        ("dense<0.1> : tensor<2xbf16>", np.full(2, 0.10009765625, np.float32)),
        ("dense<[0x7F80, 0x3F81]> : tensor<2xbf16>", np.array([np.inf, 1.0078125], np.float32)),
        ("dense<> : tensor<0x3xf32>", np.zeros((0, 3), np.float32)),
        ("dense<> : tensor<0xi4>", np.zeros(0, np.int8)),
        ('dense<"0x0000003F0000803E"> : tensor<2xf32>', np.array([0.5, 0.25], np.float32)),
        ('dense<"0x01FF"> : tensor<2xi8>', np.array([1, -1], np.int8)),
    ],
)
def test_dense(parse: Parse, each_bindings: Bindings, text: str, expected: np.ndarray[Any, Any]) -> None:
    """Every element type and spelling of a dense attribute."""
    found = read(parse, each_bindings, f"%c = arith.constant {text}")
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("element", "dtype"), [("i4", np.int8), ("bf16", np.float32)])
def test_many_elements_print_as_hexadecimal(parse: Parse, torch_bindings: Bindings, element: str, dtype: Any) -> None:
    """Above a hundred elements MLIR prints bytes, also of the types that are read from text."""
    numbers = np.arange(256) % 16 - 8
    values = ", ".join(str(n) if element == "i4" else f"{n}.5" for n in numbers)
    expected = numbers.astype(dtype) if element == "i4" else np.array([float(f"{n}.5") for n in numbers], dtype)
    found = read(parse, torch_bindings, f"%c = arith.constant dense<[{values}]> : tensor<256x{element}>")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "text",
    [
        "dense<(1.0, 2.0)> : tensor<2xcomplex<f32>>",
        "sparse<[[0]], [1.0]> : tensor<3xf32>",
        "dense<1.0> : tensor<2xf8E4M3FN>",
        "dense<[3, -3]> : tensor<2xi128>",
    ],
)
def test_other_kinds_are_not_read(parse: Parse, each_bindings: Bindings, text: str) -> None:
    """What qfuse has no use for is unknown, not an error."""
    assert read(parse, each_bindings, f"%c = arith.constant {text}") is None


BF16 = np.array([0x3DCD, 0x3F80], np.uint16)


@pytest.mark.parametrize(
    ("type_", "hexadecimal", "expected"),
    [
        ("tensor<2xf32>", blob(np.array([0.1, -2.0], np.float32)), np.array([0.1, -2.0], np.float32)),
        ("tensor<2x1xi8>", blob(np.array([1, -1], np.int8), 1), np.array([[1], [-1]], np.int8)),
        ("tensor<2xi64>", blob(np.array([1, -1]), 8), np.array([1, -1], np.int64)),
        ("tensor<2xf64>", blob(np.array([0.1, 1.0]), 8), np.array([0.1, 1.0], np.float64)),
        ("tensor<2xf16>", blob(np.array([0.1, 1.0], np.float16), 2), np.array([0.1, 1.0], np.float16)),
        ("tensor<2xbf16>", blob(BF16, 2), np.array([0.10009765625, 1.0], np.float32)),
        ("tensor<4xi4>", blob(np.array([1, 2, 15, 8], np.uint8), 1), np.array([1, 2, -1, -8], np.int8)),
        ("tensor<f32>", blob(np.array([0.5], np.float32)), np.array(0.5, np.float32)),
        ("tensor<3xf32>", blob(np.array([0.5], np.float32)), np.full(3, 0.5, np.float32)),
    ],
)
def test_resources(
    parse: Parse, each_bindings: Bindings, type_: str, hexadecimal: str, expected: np.ndarray[Any, Any]
) -> None:
    """Blobs at the end of the file, by the module's own names; one value for all is a splat."""
    text = f"%c = arith.constant dense_resource<torch_tensor_2_torch.float32> : {type_}"
    found = read(parse, each_bindings, text, resources=f'torch_tensor_2_torch.float32: "{hexadecimal}"')
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("key", ["__elided__", "missing"])
def test_elided_resources(parse: Parse, each_bindings: Bindings, key: str) -> None:
    """A resource whose values were left out is a constant of unknown values."""
    assert read(parse, each_bindings, f"%c = arith.constant dense_resource<{key}> : tensor<4xi8>") is None


def test_resource_of_the_wrong_size(parse: Parse, torch_bindings: Bindings) -> None:
    """A blob that does not fill its type is not read."""
    text = "%c = arith.constant dense_resource<small> : tensor<5xf32>"
    assert read(parse, torch_bindings, text, resources=f'small: "{blob(np.zeros(3, np.float32))}"') is None


def test_two_resources_do_not_mix(parse: Parse, torch_bindings: Bindings) -> None:
    """Each constant gets its own blob, read together or one by one."""
    first, second = np.arange(4, dtype=np.float32), np.arange(4, 8, dtype=np.float32)
    module = parse(
        function(
            "",
            "%a = arith.constant dense_resource<a> : tensor<4xf32>",
            "%b = arith.constant dense_resource<b> : tensor<4xf32>",
            resources=f'a: "{blob(first)}", b: "{blob(second)}"',
        )
    )
    operations = [op.operation for op in list(module.body.operations[0].regions[0].blocks[0].operations)[:2]]
    for prefetched in (False, True):
        reader = ConstantReader(torch_bindings)
        if prefetched:
            reader.prefetch(operations)
        for op, expected in zip(operations, (first, second), strict=True):
            np.testing.assert_array_equal(reader.read(op.results[0]), expected)


DENSE = "%c = arith.constant dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi8>"
VALUES = np.array([[1, 2, 3], [4, 5, 6]], np.int8)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (
            (
                "%e = tensor.empty() : tensor<3x2xi8>\n"
                "%t = linalg.transpose ins(%c : tensor<2x3xi8>) outs(%e : tensor<3x2xi8>) permutation = [1, 0]"
            ),
            VALUES.T,
        ),
        ("%t = tensor.collapse_shape %c [[0, 1]] : tensor<2x3xi8> into tensor<6xi8>", VALUES.reshape(6)),
        (
            "%t = tensor.expand_shape %c [[0], [1, 2]] output_shape [2, 3, 1] : tensor<2x3xi8> into tensor<2x3x1xi8>",
            VALUES.reshape(2, 3, 1),
        ),
        (
            (
                "%m = tensor.collapse_shape %c [[0, 1]] : tensor<2x3xi8> into tensor<6xi8>\n"
                "%t = tensor.expand_shape %m [[0, 1]] output_shape [3, 2] : tensor<6xi8> into tensor<3x2xi8>"
            ),
            VALUES.reshape(3, 2),
        ),
    ],
)
def test_layouts_of_constants(
    parse: Parse, each_bindings: Bindings, operation: str, expected: np.ndarray[Any, Any]
) -> None:
    """A transpose or reshape of a constant is a constant."""
    np.testing.assert_array_equal(read(parse, each_bindings, DENSE, operation), expected)


def test_arguments_and_dynamic_shapes_are_not_constant(parse: Parse, torch_bindings: Bindings) -> None:
    """An argument has no values, nor has what is made of one."""
    cast = "%t = tensor.cast %x : tensor<?xi8> to tensor<4xi8>"
    assert read(parse, torch_bindings, cast, arguments="%x: tensor<?xi8>") is None
    dynamic = "%c = arith.constant dense<[1, 2]> : tensor<2xi8>\n%t = tensor.cast %c : tensor<2xi8> to tensor<?xi8>"
    assert read(parse, torch_bindings, dynamic) is None


def test_splats_are_views(parse: Parse, torch_bindings: Bindings) -> None:
    """A large uniform constant costs one element."""
    found = read(parse, torch_bindings, "%c = arith.constant dense<3> : tensor<4096x4096xi8>")
    assert found.strides == (0, 0)


def test_nearest_bf16() -> None:
    """Ties go to even; infinities and NaN stay."""
    one, step = 1.0, 2.0**-7
    values = [one + step / 2, one + 1.5 * step, -one, np.inf, np.nan]
    np.testing.assert_array_equal(nearest_bf16(np.array(values)), [one, one + 2 * step, -one, np.inf, np.nan])


def test_integer_division_rounds_towards_zero_and_is_not_done_where_it_is_undefined() -> None:
    a, b = np.array([7, -7, 7, -7, 6, 0]), np.array([2, 2, -2, -2, 3, 5])
    found = apply("divsi", None, [a, b])
    assert found is not None
    assert found.tolist() == [3, -3, -3, 3, 2, 0]
    assert apply("divsi", None, [a, np.zeros(6, np.int64)]) is None
    assert apply("divsi", None, [np.array([-128], np.int8), np.array([-1], np.int8)]) is None


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [(0, [0, 1, 0]), (1, [1, 0, 1]), (2, [1, 0, 0]), (3, [1, 1, 0]), (4, [0, 0, 1]), (5, [0, 1, 1])],
)
def test_signed_comparisons(predicate: int, expected: list[int]) -> None:
    found = apply("cmpi", predicate, [np.array([-1, 2, 3]), np.array([0, 2, 1])])
    assert found is not None
    assert found.astype(int).tolist() == expected
    assert apply("cmpi", 6, [np.array([1]), np.array([2])]) is None  # unsigned
