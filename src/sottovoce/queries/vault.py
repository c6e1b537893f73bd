"""The vault of rows, noise and secrets between answers, which only queries may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

from ..privacy.noise import Noise
from ..solvers.local import Solver
from ..util.typing import Array

S = TypeVar("S", bound="Secret")


@dataclass(frozen=True)
class Secret:
    """Base of the secrets that a kind of query keeps from one answer to the next.

    A secret is a noisy threshold or an exact minimiser, say.  Each kind is a frozen dataclass of
    arrays.  To change a secret, a query keeps a new one.
    """

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

    def keep(self, secret: Secret) -> None:
        """Keep a secret, in place of an earlier one of its kind."""
        self.secrets[type(secret)] = secret

    def recall(self, kind: type[S]) -> S | None:
        """Return the secret of a kind; None if there is none or it was lost."""
        found = self.secrets.get(kind)
        if isinstance(found, kind):
            return found
        return None

    def forget(self, kind: type[Secret]) -> None:
        self.secrets.pop(kind, None)

    def repeat(self, solve: Callable[[], object], start: Array) -> None:
        """Repeat the solve of a stored answer in a simulation, else skip it.

        A site cannot repeat it, as the noise is lost; the next solve then starts from its own
        start.
        """
        if self.noise.simulated:
            solve()
        else:
            self.solver.skip(start)

    def state(self) -> dict[str, Array]:
        """Return all secrets as arrays by name, for the checkpoint of a simulation."""
        return {
            called: getattr(secret, name)
            for secret in self.secrets.values()
            for name, called in type(secret).names().items()
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Keep the secrets of a :meth:`state`.

        Raises
        ------
        ValueError
            If an array belongs to no kind of secret.
        """
        left = dict(state)
        for kind in Secret.__subclasses__():
            names = kind.names()
            if left.keys() >= set(names.values()):
                self.keep(kind(**{name: left.pop(called) for name, called in names.items()}))
        if left:
            raise ValueError("not a secret of any query")
