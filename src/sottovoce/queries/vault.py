"""The vault: the rows, the noise, and the secrets kept between answers, for queries only.

A *secret* is what a query must remember and nobody may see, such as a sparse vector's noisy
threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

from ..privacy.noise import Noise
from ..solvers.local import Solver
from ..util.typing import Array

S = TypeVar("S", bound="Secret")
_KINDS: dict[str, type[Secret]] = {}
"""Kinds of secrets by the names that checkpoints have for them."""


@dataclass(frozen=True)
class Secret:
    """Base of the secrets that a kind of query keeps from one answer to the next.

    A secret is a noisy threshold or an exact minimiser, say.  Each kind is a frozen dataclass of
    arrays.  To change a secret, a query keeps a new one.  Checkpoints know a kind by the name of
    its class, so another class of that name is refused when it is defined.
    """

    def __init_subclass__(cls) -> None:
        known = _KINDS.get(cls.__name__)
        # A cell of a notebook that runs again, and a module that is loaded again, define the same
        # kind once more.
        same_place = known is not None and (known.__module__, known.__qualname__) == (
            cls.__module__,
            cls.__qualname__,
        )
        if known is not None and not same_place:
            what = f"{known.__module__} keeps secrets of this name in checkpoints; use another name"
            raise TypeError(f"{cls.__module__}.{cls.__name__}: {what}")
        _KINDS[cls.__name__] = cls

    @classmethod
    def names(cls) -> dict[str, str]:
        """Return each field's name in a checkpoint."""
        return {f.name: f"{cls.__name__}.{f.name}" for f in fields(cls)}


@dataclass(frozen=True)
class Vault:
    """The rows (inside their solver), the source of noise, and the queries' secrets.

    Parameters
    ----------
    solver : Solver
        Holds the rows.
    noise : Noise
        Source of noise.
    secrets : dict
        At most one secret of each kind.
    """

    solver: Solver
    noise: Noise
    secrets: dict[type[Secret], Secret] = field(default_factory=dict)

    def keep_secret(self, secret: Secret) -> None:
        """Keep a secret, in place of an earlier one of its kind."""
        self.secrets[type(secret)] = secret

    def recall_secret(self, kind: type[S]) -> S | None:
        """Return the secret of a kind; None if there is none or it was lost."""
        found = self.secrets.get(kind)
        if isinstance(found, kind):
            return found
        return None

    def forget_secret(self, kind: type[Secret]) -> None:
        """Drop the secret of a kind, if there is one."""
        self.secrets.pop(kind, None)

    def repeat_solve(self, solve: Callable[[], object], start: Array) -> None:
        """Repeat the solve of a stored answer in a simulation, else skip it.

        A site cannot repeat it, as the noise is lost; the next solve then starts from its own
        start.
        """
        if self.noise.simulated:
            solve()
        else:
            self.solver.skip_solve(start)

    def state_arrays(self) -> dict[str, Array]:
        """Return all secrets as arrays by name, for the checkpoint of a simulation."""
        return {
            called: getattr(secret, name)
            for secret in self.secrets.values()
            for name, called in type(secret).names().items()
        }

    def restore_state(self, state: Mapping[str, Array]) -> None:
        """Keep the secrets of a :meth:`state_arrays`.

        Raises
        ------
        ValueError
            If an array belongs to no kind of secret.
        """
        left = dict(state)
        for kind in _KINDS.values():
            names = kind.names()
            if left.keys() >= set(names.values()):
                self.keep_secret(kind(**{name: left.pop(called) for name, called in names.items()}))
        if left:
            raise ValueError("not a secret of any query")
