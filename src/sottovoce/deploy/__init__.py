"""The same algorithms at separate sites."""

from .local import run_sites

__all__ = ["run_sites"]
