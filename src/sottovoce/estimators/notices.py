"""Warnings of an estimator: in a search or a cross-validation, each kind is given once.

Each step of a fit returns its notes (:class:`Note`), and the estimator turns them into Python
warnings.  A search fits many clones, which would repeat the same warning; scikit-learn makes them
by ``__sklearn_clone__``, where all clones of one estimator get one :class:`Told`, which remembers
the kinds that were given.  An estimator that its user fits warns of everything at every fit.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from ..util.typing import Any


class Told:
    """The kinds of notes that the clones of one estimator have given, and their number of fits.

    A clone that is unpickled in a worker process shares the one of that process, because there
    clones arrive one by one.
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
    """Return the record that all unpickled clones of this process share."""
    return _HERE


@dataclass(frozen=True)
class Note:
    """A warning to give after a step of a fit.

    Parameters
    ----------
    kind : str
        The fits of a search give one note of each kind.
    text : str
        The warning's message.
    category : type
        Python's class of the warning: for the data owner only, or public.
    """

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
        """Count this fit; return true if another clone of the same estimator began one before.

        Then several fits read the same rows, as in a search over parameters: they add up.
        """
        if self._told is None:
            return False
        self._told.fits += 1
        return self._told.fits > 1

    def _warn_of_step(self, step: S, stacklevel: int = 2) -> S:
        """Give the warnings of a step of `fit`, at the line of the user's call; return the step."""
        for note in step.notes:
            self._warn_once(note, stacklevel=stacklevel + 1)
        return step

    def _warn_once(self, note: Note, stacklevel: int) -> None:
        """Give a warning, unless another clone of the same estimator gave one of this kind."""
        if self._told is not None:
            if note.kind in self._told.kinds:
                return
            self._told.kinds.add(note.kind)
        warnings.warn(note.text, note.category, stacklevel=stacklevel + 1)


__all__ = ["Note", "Notifying", "Told"]
