"""What an emitter can say: planning asks before anything is built."""

from __future__ import annotations

from qfuse.errors import UsageError
from qfuse.fixed_point import ROUNDINGS, Multiplier
from qfuse.graph import AccumForm, Decision, Environment, Refusal
from qfuse.qparams import QuantParams, StorageType

EPILOGUES = ("float", "fixed-point", "power-of-two")


class Vocabulary:
    """The base of emitters: the dialect they write, and what of it planning has to know.

    Attributes:
        dialect: prefix of the operations that are rewritten and written.
        epilogues: values of the option of that name that can be written.
        scalings: values of the option `scaling` that can be written.
        repairs: whether unsigned storage that the dialect takes for signed is written as it was meant.
    """

    dialect: str = "linalg"
    epilogues: tuple[str, ...] = EPILOGUES
    scalings: tuple[str, ...] = ROUNDINGS
    repairs: bool = False

    @classmethod
    def supports(cls, decision: Decision, env: Environment) -> Refusal | None:
        """Why a decision cannot be written, or None; asked for each one before any is built."""
        name = decision.node.op.name
        if name.startswith("tosa."):
            return Refusal(f"{name} is not rewritten in {cls.dialect}", "use the target tosa-int")
        return None

    @classmethod
    def accumulator(cls, lhs: StorageType, rhs: StorageType) -> int | None:
        """The accumulator width that operands of these types have, or None where there is a choice."""
        return None

    @classmethod
    def multiplier_bits(cls, accumulator: int) -> int:
        """Bits of the multiplier that rescales accumulators of this width."""
        return 31

    @classmethod
    def mean_multiplier(cls, form: AccumForm, params: QuantParams) -> Multiplier | None:
        """What a mean of stored integers is multiplied by where one operation takes it and rounds it; else None."""
        return None

    @classmethod
    def tabulated(cls, storage: StorageType, low: int, high: int) -> tuple[StorageType, int] | None:
        """How stored integers are looked up in a table of points that the machine reads between, or None.

        Args:
            storage: their type.
            low: the least of them.
            high: the greatest of them.

        Returns:
            The signed type in which they are looked up, and how much less they are in it.
        """
        return None

    @classmethod
    def check_options(cls, target: str, epilogue: str, scaling: str) -> None:
        """Raises UsageError for option values that cannot be written."""
        for name, value, known in (("epilogue", epilogue, cls.epilogues), ("scaling", scaling, cls.scalings)):
            if value not in known:
                raise UsageError(f"option {name} of target {target} takes one of {', '.join(known)}, got {value!r}")


def vocabulary_of(emitter: object) -> type[Vocabulary]:
    """The vocabulary of an emitter class; the least one for those that do not state theirs."""
    return emitter if isinstance(emitter, type) and issubclass(emitter, Vocabulary) else Vocabulary
