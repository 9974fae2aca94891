"""What a target allows and what an operation costs; numbers only, no IR is built here."""

from qfuse.cost.target import Options, Target

__all__ = ["Options", "Target"]
