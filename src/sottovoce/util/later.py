"""Libraries that are loaded when something of them is first used, and not by whoever might use it.

SciPy's special functions alone take longer to load than this package, and a run without a delta needs none of them.  So
modules name such a library by :class:`Later` at their top, where imports stand, and use it as if it were imported.

Nothing that stands between a charge and its release may be the first to load a library, for if that failed, an epsilon
would be spent for nothing.  A price is computed before it is charged, so prices are no such thing; a source of noise
calls :meth:`Later.load` when it is made.
"""

from __future__ import annotations

from importlib import import_module

from .typing import Any


class Later:
    """A module of another package, imported when an attribute of it is first asked for.

    Parameters
    ----------
    name : str
        Its whole name, such as ``"scipy.special"``.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # asked by whoever looks through modules, a collector of tests for one
            raise AttributeError(attribute)
        found = getattr(self.load(), attribute)
        setattr(self, attribute, found)  # from now on as quick as a module's own
        return found

    def load(self) -> Any:
        """Import it now.

        Raises
        ------
        ImportError
        """
        return import_module(self._name)
