"""Estimators with a ledger: clones share it, and it is left behind where a copy would lose what is charged to it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Self

from ..errors import InvalidInput
from ..ledger.durable import DurableLedger
from ..ledger.memory import Ledger
from ..util.typing import Any


@dataclass(frozen=True)
class _LeftBehind:
    """Stands for the ledger in a pickled estimator."""

    kind: str


class Ledgered:
    """Mixin of estimators with `ledger` and `accounting`."""

    ledger: Any
    accounting: str | None
    _cloned: bool  # of :class:`sottovoce.estimators.notices.Notifying`

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = copy.copy(self)
        twin.__dict__ = copy.deepcopy(self.__dict__, memo)
        return twin

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__ = dict(self.__dict__)
        return twin

    def __getstate__(self) -> Any:
        """The state without the ledger: what a copy elsewhere is charged would be lost."""
        state: Any = super().__getstate__()
        kind = type(state.get("ledger"))
        return state | {"ledger": _LeftBehind(kind.__name__)} if issubclass(kind, Ledger | DurableLedger) else state

    def _check_ledger(self) -> None:
        """Refuse a ledger left in another process, and one on disk that might meet a part of its table."""
        if self.ledger is None:
            return
        if isinstance(self.ledger, _LeftBehind):
            rule = "a ledger stays in its process, and this estimator came to another one or from a file"
            remedy = "use n_jobs=1 or threads, and set_params(ledger=...) after loading"
            raise InvalidInput("ledger", self.ledger.kind, rule, remedy)
        if not isinstance(self.ledger, Ledger | DurableLedger):
            remedy = "use Ledger(...) or DurableLedger.open(path), or accounting= for a rule's name"
            raise InvalidInput("ledger", type(self.ledger).__name__, "must be a Ledger or a DurableLedger", remedy)
        if self.accounting is not None:
            rule = "a ledger has a rule of its own"
            raise InvalidInput("accounting", self.accounting, rule, "leave it out, or leave the ledger out")
        if self._cloned and isinstance(self.ledger, DurableLedger) and not self.ledger.identity.bound:
            rule = "a DurableLedger belongs to one whole table, and cannot be used in cross-validation"
            remedy = "fit the estimator on the whole table first, or give a Ledger in memory, which counts every fit"
            raise InvalidInput("ledger", "DurableLedger", rule, remedy)


__all__ = ["Ledgered", "_LeftBehind"]
