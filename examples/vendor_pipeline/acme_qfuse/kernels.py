"""The two kernels of kernels/acme.h, described: this page is all that qfuse needs to call them."""

from __future__ import annotations

from qfuse import KernelCall, KernelFusion, KernelValue

CLAMP = (KernelValue("result_zero_point"), KernelValue("result_min"), KernelValue("result_max"))


def per_channel(letter: str) -> tuple[KernelValue, ...]:
    """What both kernels take for each column or output channel."""
    return (
        KernelValue("folded_bias", letter, "i32"),
        KernelValue("multiplier", letter, "i32"),
        KernelValue("shift", letter, "i8"),
    )


QMATMUL = KernelFusion(
    id="acme.qmatmul",
    doc="quantized matmul, bias, activation and requantize -> acme_qmatmul_s8",
    call=KernelCall(
        "acme_qmatmul_s8",
        operands=(KernelValue("lhs", "mk"), KernelValue("rhs", "nk"), *per_channel("n"), *CLAMP),
        result="mn",
    ),
    multiples={"k": 16},
    constants=frozenset({"rhs"}),
)

QCONV = KernelFusion(
    id="acme.qconv",
    doc="quantized convolution, bias, activation and requantize -> acme_qconv_s8",
    computes="convolution",
    call=KernelCall(
        "acme_qconv_s8",
        operands=(
            KernelValue("lhs", "nhwc"),
            KernelValue("rhs", "ohwc"),
            *per_channel("o"),
            KernelValue("lhs_zero_point"),
            *CLAMP,
            KernelValue("strides"),
            KernelValue("dilations"),
            KernelValue("padding"),
        ),
        result="nhwo",
    ),
    multiples={"c": 16},
    constants=frozenset({"rhs"}),
)
