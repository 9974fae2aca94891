"""Layout operations: the index of the source element, and the way back, are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from qfuse.indexing import compose, gather, is_identity, to_affine
from qfuse.matchers.layout import Layout
from qfuse.matchers.nodes import LayoutNode, Node, Opaque
from tests.conftest import Recognize
from tests.matchers.ir import function, generic

SOURCE = np.arange(2 * 3 * 4).reshape(2, 3, 4)
X = "tensor<2x3x4xf32>"


def only_layout(nodes: list[Node]) -> Layout:
    """The layout of the one layout node."""
    found = [n for n in nodes if isinstance(n, LayoutNode)]
    assert len(found) == 1, [type(n).__name__ for n in nodes]
    return found[0].layout


CASES = [
    (
        "transpose",
        ("%e = tensor.empty() : tensor<4x2x3xf32>\n%r = linalg.transpose ins(%x : tensor<2x3x4xf32>)"
        " outs(%e : tensor<4x2x3xf32>) permutation = [2, 0, 1]"),
        SOURCE.transpose(2, 0, 1),
    ),
    ("reshape", f"%r = tensor.collapse_shape %x [[0, 1], [2]] : {X} into tensor<6x4xf32>",
     SOURCE.reshape(6, 4)),
    ("reshape", f"%r = tensor.collapse_shape %x [[0, 1, 2]] : {X} into tensor<24xf32>",
     SOURCE.reshape(24)),
    (
        "reshape",
        ("%r = tensor.expand_shape %x [[0], [1], [2, 3, 4]] output_shape [2, 3, 2, 1, 2]"
        " : tensor<2x3x4xf32> into tensor<2x3x2x1x2xf32>"),
        SOURCE.reshape(2, 3, 2, 1, 2),
    ),
    ("slice", f"%r = tensor.extract_slice %x[0, 1, 1] [2, 2, 2] [1, 1, 2] : {X} to tensor<2x2x2xf32>",
     SOURCE[:, 1:3, 1:4:2]),
    ("slice", f"%r = tensor.extract_slice %x[1, 0, 2] [1, 3, 2] [1, 1, 1] : {X} to tensor<3x2xf32>",
     SOURCE[1, :, 2:4]),
    ("slice", f"%r = tensor.extract_slice %x[1, 2, 0] [1, 1, 4] [1, 1, 1] : {X} to tensor<1x4xf32>",
     SOURCE[1:2, 2, :]),
    ("slice", f"%r = tensor.extract_slice %x[1, 2, 3] [1, 1, 1] [1, 1, 1] : {X} to tensor<f32>",
     SOURCE[1, 2, 3]),
    (
        "broadcast",
        ("%e = tensor.empty() : tensor<2x5x3x4xf32>\n%r = linalg.broadcast ins(%x : tensor<2x3x4xf32>)"
        " outs(%e : tensor<2x5x3x4xf32>) dimensions = [1]"),
        np.broadcast_to(SOURCE[:, None], (2, 5, 3, 4)),
    ),
    ("broadcast", generic("%r", [f"%x: {X}"], "tensor<4x3x2xf32>", "yield %in", ["d2, d1, d0"]), SOURCE.T),
    ("broadcast", generic("%r", [f"%x: {X}"], "tensor<3x2x4xf32>", "yield %in", ["d0, d1, d2", "d1, d0, d2"], loops=3),
     SOURCE.transpose(1, 0, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "operation", "expected"), CASES)
def test_index_of_the_source(
    recognize: Recognize, kind: str, operation: str, expected: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> None:
    """Reading the source at the index gives what numpy gives; the inverse, where there is one, undoes it."""
    layout = only_layout(recognize(function(f"%x: {X}", operation)))
    assert layout.kind == kind
    assert layout.index is not None
    found = np.broadcast_to(gather(SOURCE, layout.index, expected.shape), expected.shape)
    np.testing.assert_array_equal(found, expected)
    if kind in ("transpose", "reshape"):
        assert layout.inverse is not None
        assert is_identity(compose(layout.index, layout.inverse, SOURCE.shape), SOURCE.shape)
        assert is_identity(compose(layout.inverse, layout.index, expected.shape), expected.shape)


def test_pad(recognize: Recognize) -> None:
    """A pad knows what it yields and which dimensions it extends."""
    text = """
        %p = arith.constant 0.0 : f32
        %r = tensor.pad %x low[0, 1, 0] high[0, 0, 2] {
        ^bb0(%i: index, %j: index, %k: index):
          tensor.yield %p : f32
        } : tensor<2x3x4xf32> to tensor<2x4x6xf32>
    """
    layout = only_layout(recognize(function(f"%x: {X}", text)))
    assert layout.kind == "pad"
    assert layout.padded == (1, 2)
    assert [to_affine(e) for e in layout.index or ()] == ["d0", "-1 + d1", "d2"]
    assert layout.pad_value is not None


def test_concat(recognize: Recognize) -> None:
    """A concat has several sources and an axis."""
    text = f"%r = tensor.concat dim(1) %x, %y : ({X}, tensor<2x1x4xf32>) -> tensor<2x4x4xf32>"
    layout = only_layout(recognize(function(f"%x: {X}, %y: tensor<2x1x4xf32>", text)))
    assert (layout.kind, layout.axis, len(layout.sources)) == ("concat", 1, 2)


def test_dynamic_reshapes(recognize: Recognize) -> None:
    """A leading dynamic dimension can be followed, an inner one cannot."""
    outer = "%r = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x3x4xf32> into tensor<?x4xf32>"
    layout = only_layout(recognize(function("%x: tensor<?x3x4xf32>", outer)))
    assert [to_affine(e) for e in layout.index or ()] == ["((d0) floordiv 3)", "((d0) mod 3)", "d1"]
    inner = "%r = tensor.collapse_shape %x [[0, 1], [2]] : tensor<2x?x4xf32> into tensor<?x4xf32>"
    assert only_layout(recognize(function("%x: tensor<2x?x4xf32>", inner))).index is None


def test_casts_of_shape(recognize: Recognize) -> None:
    """A cast of known extents moves nothing; one from an unranked tensor is unknown."""
    text = "%r = tensor.cast %x : tensor<2x?xf32> to tensor<2x3xf32>"
    layout = only_layout(recognize(function("%x: tensor<2x?xf32>", text)))
    assert layout.kind == "cast"
    assert is_identity(layout.index or (), (2, 3))
    unranked = "%r = tensor.cast %x : tensor<*xf32> to tensor<2x3xf32>"
    (node,) = recognize(function("%x: tensor<*xf32>", unranked))
    assert isinstance(node, Opaque)
