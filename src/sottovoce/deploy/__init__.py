"""Runs between separate sites: the algorithms of a simulation, with messages over a network.

Sites never talk to each other directly: each sends its signed messages to a *hub*, which stores
them and passes them on.  Where to begin reading:

- :mod:`~sottovoce.deploy.plan`: the public file on which all sites agree before a run;
- :mod:`~sottovoce.deploy.session`: one site's part in a run, with :mod:`~sottovoce.deploy.settings`
  for its files;
- :mod:`~sottovoce.deploy.hub`: the hub's part;
- :mod:`~sottovoce.deploy.sums`: secure aggregation;
- :mod:`~sottovoce.deploy.relay` and :mod:`~sottovoce.deploy.nvflare`: the two network transports.
"""

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
