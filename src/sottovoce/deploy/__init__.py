"""The same algorithms at separate sites."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .local import run_sites

__all__ = ["run_sites"]

# For a type checker every name would exist.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name != "run_sites":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # It loads the whole protocol, and most who import a module of this package need one part.
        from .local import run_sites

        return run_sites
