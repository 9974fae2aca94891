"""The built-in fusions, one family a file; a vendor's are written the same way (see `qfuse.fusions.base`)."""

from qfuse.fusions.base import Fusion

__all__ = ["Fusion"]
