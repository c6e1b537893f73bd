"""Notices of an estimator: warnings of Python, one of a kind a fit, and one of a kind for all fits
of a search.

A search or a cross-validation fits clones.  scikit-learn makes them by ``__sklearn_clone__``, where
the clones of one estimator are given one :class:`Told` to share.  An estimator that is fitted by
its user tells everything at every fit.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from ..util.typing import Any


class Told:
    """The kinds of notes that the clones of one estimator have told, and how many fits they began.

    In another process of a pool, where clones come one by one, those of the whole process share
    one.
    """

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.fits = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Copies of a clone share what was told.
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _told_in_this_process, ()


_HERE = Told()


def _told_in_this_process() -> Told:
    return _HERE


@dataclass(frozen=True)
class Note:
    """A note of a step of a fit; of each kind, all fits of a search tell one."""

    kind: str
    text: str
    category: type[Warning]


class Step(Protocol):
    """The result of a step of a fit: frozen values, and notes."""

    @property
    def notes(self) -> Sequence[Note]: ...


S = TypeVar("S", bound=Step)


class Notifying:
    """An estimator that warns its user of a fit, and whose clones give each warning once."""

    # Whether scikit-learn may be fitting it on part of a table.
    _cloned = False
    # What the other clones of the same estimator have told.
    _told: Told | None = None

    def __sklearn_clone__(self) -> Self:
        twin: Self = super().__sklearn_clone__()  # type: ignore[misc]
        twin._cloned = True
        twin._told = vars(self).setdefault("_told_by_clones", Told())
        return twin

    def _follows_another_clone(self) -> bool:
        """Return true if another clone of the estimator began a fit before; called once a fit."""
        if self._told is None:
            return False
        self._told.fits += 1
        return self._told.fits > 1

    def _warn_of_step(self, step: S, stacklevel: int = 2) -> S:
        """Warn of the notes of a step of `fit`, where that was called, and hand the step on."""
        for note in step.notes:
            self._warn_once(note, stacklevel=stacklevel + 1)
        return step

    def _warn_once(self, note: Note, stacklevel: int) -> None:
        """Warn, unless another clone of the same estimator has told a notice of this kind."""
        if self._told is not None:
            if note.kind in self._told.kinds:
                return
            self._told.kinds.add(note.kind)
        warnings.warn(note.text, note.category, stacklevel=stacklevel + 1)


__all__ = ["Note", "Notifying", "Told"]
