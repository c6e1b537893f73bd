"""Lazily imported third-party modules.

SciPy's special functions alone take longer to load than this package, and a run without a delta
needs none of them. `lazy_loader` and :class:`importlib.util.LazyLoader` do not serve: they load
SciPy to find ``scipy.special``, first use in several threads fails before Python 3.11.9 and 3.12.3,
and whatever walks ``sys.modules`` loads everything.

Nothing between a charge and its release may be the first to load a library: if that failed, an
epsilon would be spent for nothing.  A price is computed before it is charged; a query whose draw
needs a library loads it when it is asked whether it is ready.
"""

from __future__ import annotations

from importlib import import_module

from .typing import Any


class Later:
    """The module `name`, such as ``"scipy.special"``, imported at the first access to an
    attribute.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        # Collectors of tests ask every object of a module for such names.
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        found = getattr(self.import_module_now(), attribute)
        # From now on it is as quick as an attribute of the module itself.
        setattr(self, attribute, found)
        return found

    def import_module_now(self) -> Any:
        """Import it now; an ImportError if it is not installed."""
        return import_module(self._name)
