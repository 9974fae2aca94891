"""Convolutions of the target iree-cpu: over patches, or with the channels last; run against sums in numpy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from torch_mlir import passmanager

import qfuse
from qfuse._mlir import Bindings
from qfuse.emit import iree_tiles, patches
from qfuse.integrations.iree import DEFAULT_FLAGS, Program, compile_module, host_has_vnni

pytest.importorskip("iree.compiler")
pytest.importorskip("iree.runtime")

Array = np.ndarray[Any, Any]

OPERANDS = ["i8", "i16", pytest.param("vnni", marks=pytest.mark.skipif(not host_has_vnni(), reason="no AVX-512 VNNI"))]


class Case(NamedTuple):
    """A named convolution: dimensions of image, filter and result by letters, and their extents.

    Letters: n images, g groups, f channels of the result, c channels summed up, x y z places, i j k places in a window.
    """

    name: str
    image: str
    filter: str
    out: str
    extents: dict[str, int]
    stride: int = 1
    dilation: int = 1
    image_zero: int = -7
    filter_zero: int = 0
    is_constant: bool = True

    @property
    def windows(self) -> dict[str, str]:
        """The letter of a place and that of its window."""
        return {p: w for p, w in zip("xyz", "ijk", strict=True) if w in self.filter}

    @property
    def image_shape(self) -> list[int]:
        """Extents of the image: as far as the windows reach."""
        reach = {
            p: (self.extents[p] - 1) * self.stride + (self.extents[w] - 1) * self.dilation + 1
            for p, w in self.windows.items()
        }
        return [reach.get(d, self.extents[d]) for d in self.image]

    def shape(self, letters: str) -> list[int]:
        """Extents of filter or result."""
        return [self.extents[d] for d in letters]

    def sums(self, image: Array, weight: Array) -> Array:
        """The convolution of integers."""
        parts = []
        for at in itertools.product(*(range(self.extents[w]) for w in self.windows.values())):
            place = dict(zip(self.windows, at, strict=True))
            cut = tuple(
                slice(o := place[d] * self.dilation, o + (self.extents[d] - 1) * self.stride + 1, self.stride)
                if d in place
                else slice(None)
                for d in self.image
            )
            tap = tuple(at[list(self.windows.values()).index(d)] if d in "ijk" else slice(None) for d in self.filter)
            rest = "".join(d for d in self.filter if d not in "ijk")
            parts.append(np.einsum(f"{self.image},{rest}->{self.out}", image[cut], weight[tap]))
        return np.sum(parts, axis=0)


def tensor(shape: Sequence[int], element: str) -> str:
    """A tensor type."""
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


def dequantized(name: str, shape: Sequence[int], zero: int, scale: float) -> str:
    """%name, the float value of %qname."""
    own = ", ".join(f"d{i}" for i in range(len(shape)))
    same = f"affine_map<({own}) -> ({own})>"
    return f"""
      %{name}_e = tensor.empty() : {tensor(shape, "f32")}
      %{name} = linalg.generic {{indexing_maps = [{same}, {same}],
        iterator_types = [{", ".join('"parallel"' for _ in shape)}]}}
        ins(%q{name} : {tensor(shape, "i8")}) outs(%{name}_e : {tensor(shape, "f32")}) {{
      ^bb0(%in: i8, %o: f32):
        %w = arith.extsi %in : i8 to i32
        %z = arith.constant {zero} : i32
        %d = arith.subi %w, %z : i32
        %f = arith.sitofp %d : i32 to f32
        %s = arith.constant {scale} : f32
        %r = arith.mulf %f, %s : f32
        linalg.yield %r : f32
      }} -> {tensor(shape, "f32")}"""


def text_of(case: Case, weight: Array) -> str:
    """A module with the float convolution of two dequantized operands; scales 0.5 and 0.25."""
    image, kernel, out = case.image_shape, case.shape(case.filter), case.shape(case.out)
    arguments = f"%qa: {tensor(image, 'i8')}"
    body = ""
    if case.is_constant:
        body += f"\n      %qb = arith.constant dense<{weight.tolist()}> : {tensor(kernel, 'i8')}"
    else:
        arguments += f", %qb: {tensor(kernel, 'i8')}"
    body += dequantized("a", image, case.image_zero, 0.5) + dequantized("b", kernel, case.filter_zero, 0.25)
    y, count = tensor(out, "f32"), len(case.windows)
    return f"""module {{ func.func @main({arguments}) -> {y} {{{body}
      %zero = arith.constant 0.0 : f32
      %y_e = tensor.empty() : {y}
      %y_f = linalg.fill ins(%zero : f32) outs(%y_e : {y}) -> {y}
      %y = linalg.{case.name} {{strides = dense<{case.stride}> : vector<{count}xi64>,
        dilations = dense<{case.dilation}> : vector<{count}xi64>}}
        ins(%a, %b : {tensor(image, "f32")}, {tensor(kernel, "f32")}) outs(%y_f : {y}) -> {y}
      return %y : {y} }} }}"""


def fused_and_run(case: Case, *, generalize: bool = False, **options: str) -> str:
    """Fuses, runs, compares with the sums of the integers; returns the fused module as text."""
    rng = np.random.default_rng(0)
    image, weight = (rng.integers(-128, 128, shape) for shape in (case.image_shape, case.shape(case.filter)))
    image.flat[:9], weight.flat[:9] = -128, -128
    module = Bindings("torch_mlir").parse_source(text_of(case, weight), "test.mlir")
    if generalize:
        with module.context:
            passes = "builtin.module(func.func(linalg-generalize-named-ops))"
            passmanager.PassManager.parse(passes).run(module.operation)
    report = qfuse.fuse(module, target="iree-cpu", **options)
    assert report.summary["integer_ops"] == 1, report.text()
    module.operation.verify()
    inputs = [image] if case.is_constant else [image, weight]
    program = Program(compile_module(module, flags=DEFAULT_FLAGS))
    (found,) = program(*(value.astype(np.int8) for value in inputs))
    exact = case.sums(image - case.image_zero, weight - case.filter_zero) * 0.125
    np.testing.assert_allclose(found, exact, rtol=2**-22)
    once = str(module)
    assert qfuse.fuse(module, target="iree-cpu", **options).applied == []
    assert str(module) == once
    return once


NCHW = Case("conv_2d_nchw_fchw", "ncxy", "fcij", "nfxy", {"n": 1, "c": 12, "f": 24, "x": 9, "y": 7, "i": 3, "j": 3})
NHWC = Case("conv_2d_nhwc_hwcf", "nxyc", "ijcf", "nxyf", NCHW.extents)

CASES = {
    "NCHW": NCHW,
    "NHWC": NHWC,
    "NHWC, filters first": NHWC._replace(name="conv_2d_nhwc_fhwc", filter="fijc"),
    "batch": NCHW._replace(extents={**NCHW.extents, "n": 3}),
    "batch NHWC": NHWC._replace(extents={**NCHW.extents, "n": 3}),
    "strided": NCHW._replace(stride=2),
    "dilated": NHWC._replace(dilation=2),
    "strided and dilated": NCHW._replace(stride=2, dilation=3),
    "pointwise": NCHW._replace(extents={**NCHW.extents, "i": 1, "j": 1}),
    "pointwise NHWC": NHWC._replace(extents={**NCHW.extents, "i": 1, "j": 1}),
    "pointwise strided": NCHW._replace(extents={**NCHW.extents, "i": 1, "j": 1}, stride=2),
    "one place": NCHW._replace(extents={**NCHW.extents, "x": 1, "y": 1}),
    "one channel": NCHW._replace(extents={**NCHW.extents, "c": 1}),
    "rectangular window": NCHW._replace(extents={**NCHW.extents, "i": 1, "j": 5}),
    "grouped": NCHW._replace(
        name="conv_2d_ngchw_gfchw", image="ngcxy", filter="gfcij", out="ngfxy", extents={**NCHW.extents, "g": 3}
    ),
    "one dimension": Case(
        "conv_1d_ncw_fcw", "ncx", "fci", "nfx", {"n": 2, "c": 10, "f": 16, "x": 21, "i": 5}, stride=2
    ),
    "three dimensions": Case(
        "conv_3d_ncdhw_fcdhw",
        "ncxyz",
        "fcijk",
        "nfxyz",
        {"n": 1, "c": 4, "f": 16, "x": 4, "y": 5, "z": 3, "i": 2, "j": 3, "k": 2},
    ),
    "asymmetric filter": NCHW._replace(filter_zero=5),
    "symmetric image": NCHW._replace(image_zero=0),
    "run-time filter": NCHW._replace(is_constant=False, filter_zero=3),
    "run-time filter NHWC": NHWC._replace(is_constant=False, image_zero=0),
}


@pytest.mark.parametrize("operands", OPERANDS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_convolution_is_a_contraction_over_patches(
    case: Case, operands: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every layout, exact; no convolution is left. Tiles are taken also where they win nothing."""
    for name, value in (("LEAST_DEPTH", 1), ("LEAST_DEPTH_ACROSS", 1), ("MOST_WASTE", 2)):
        monkeypatch.setattr(iree_tiles, name, value)
    text = fused_and_run(case, operands=operands)
    assert "linalg.conv" not in text
    assert ("inner_tiled" in text) == (operands == "vnni")


def test_the_images_of_a_batch_are_one_dimension_with_their_places() -> None:
    """A product over a batch that the filter does not have has no fast kernel."""
    text = fused_and_run(CASES["batch"])
    contraction = next(line for line in reversed(text.splitlines()) if '"reduction"' in line)
    assert contraction.count('"parallel"') == 2


@pytest.mark.parametrize("case", [CASES["pointwise"], CASES["pointwise NHWC"]], ids=["NCHW", "NHWC"])
def test_a_pointwise_convolution_copies_nothing(case: Case) -> None:
    """What it reads are the elements of the image in their order."""
    assert fused_and_run(case).count("linalg.generic") + 1 == fused_and_run(case._replace(stride=2)).count(
        "linalg.generic"
    )


@pytest.mark.parametrize("name", ["strided and dilated", "NHWC", "grouped"])
def test_a_convolution_without_a_name(name: str) -> None:
    """What counts is what is read."""
    text = fused_and_run(CASES[name], generalize=True)
    contraction = next(line for line in reversed(text.splitlines()) if '"reduction"' in line)
    assert "+" not in contraction


DEPTHWISE = Case("depthwise_conv_2d_nchw_chw", "ncxy", "cij", "ncxy", {"n": 1, "c": 20, "x": 7, "y": 5, "i": 3, "j": 3})
DEPTHWISE_CASES = {
    "plain": DEPTHWISE,
    "batch": DEPTHWISE._replace(extents={**DEPTHWISE.extents, "n": 3}),
    "strided and dilated": DEPTHWISE._replace(stride=2, dilation=2),
    "asymmetric filter": DEPTHWISE._replace(filter_zero=-4),
    "run-time filter": DEPTHWISE._replace(is_constant=False),
    "one dimension": Case("depthwise_conv_1d_ncw_cw", "ncx", "ci", "ncx", {"n": 2, "c": 9, "x": 12, "i": 4}, stride=3),
    "three dimensions": Case(
        "depthwise_conv_3d_ncdhw_cdhw",
        "ncxyz",
        "cijk",
        "ncxyz",
        {"n": 1, "c": 6, "x": 3, "y": 4, "z": 5, "i": 2, "j": 1, "k": 3},
    ),
}


@pytest.mark.parametrize("operands", ["i8", "i16"])
@pytest.mark.parametrize("case", DEPTHWISE_CASES.values(), ids=DEPTHWISE_CASES)
def test_a_depthwise_convolution_has_its_channels_last(case: Case, operands: str) -> None:
    """It is transposed, and named as such."""
    text = fused_and_run(case, operands=operands)
    assert f"linalg.{case.name}" not in text
    assert "linalg.depthwise_conv" in text


def test_a_convolution_with_few_channels_stays() -> None:
    """There is nothing to win where few of them share a patch."""
    case = NCHW._replace(extents={**NCHW.extents, "f": patches.FEWEST_CHANNELS - 1})
    assert f"linalg.{case.name}" in fused_and_run(case)


@pytest.mark.parametrize("case", [NCHW, DEPTHWISE], ids=["convolution", "depthwise"])
def test_named_convolutions_stay_where_names_are_wanted(case: Case) -> None:
    """`spelling=named`."""
    assert f"linalg.{case.name}" in fused_and_run(case, spelling="named")


def test_patches_have_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution whose patches would fill the memory stays one."""
    size = np.prod(NCHW.shape("ncxyij"))
    monkeypatch.setattr(patches, "MOST_ELEMENTS", int(size) - 1)
    assert "linalg.conv_2d_nchw_fchw" in fused_and_run(NCHW)
    monkeypatch.setattr(patches, "MOST_ELEMENTS", int(size))
    assert "linalg.conv" not in fused_and_run(NCHW)


def test_other_targets_keep_convolutions() -> None:
    """Patches are how IREE's CPU backend is fast."""
    weight = np.random.default_rng(0).integers(-128, 128, NCHW.shape(NCHW.filter))
    module = Bindings("torch_mlir").parse_source(text_of(NCHW, weight), "test.mlir")
    qfuse.fuse(module, target="linalg")
    assert "linalg.conv_2d_nchw_fchw" in str(module)
