"""What a target allows and what an operation costs; numbers only, no IR is built here."""

from qfuse.cost.options import Options
from qfuse.cost.target import Target

__all__ = ["Options", "Target"]
