"""Notices of an estimator: warnings of Python, one of a kind a fit, and one of a kind for all fits of a search.

A search or a cross-validation fits clones.  scikit-learn makes them by ``__sklearn_clone__``, where the clones of one
estimator are given one :class:`Told` to share.  An estimator that is fitted by its user tells everything at every fit.
"""

from __future__ import annotations

import warnings
from typing import Self

from ..util.typing import Any


class Told:
    """What the clones of one estimator have told already, and how many fits they began.

    In another process of a pool, where clones come one by one, those of the whole process share one.
    """

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.fits = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_this_process, ()


_HERE = Told()


def _of_this_process() -> Told:
    return _HERE


class Notifying:
    """Mixin of estimators that tell the user what to know of a fit."""

    _cloned = False  # whether scikit-learn may be fitting it on part of a table
    _told: Told | None = None  # what the other clones of the same estimator have told

    def __sklearn_clone__(self) -> Self:
        twin: Self = super().__sklearn_clone__()  # type: ignore[misc]
        twin._cloned = True
        twin._told = vars(self).setdefault("_told_by_clones", Told())
        return twin

    def _is_another_clone(self) -> bool:
        """Whether another clone of the same estimator began a fit before; called once a fit."""
        if self._told is None:
            return False
        self._told.fits += 1
        return self._told.fits > 1

    def _notify(self, kind: str, text: str, category: type[Warning], stacklevel: int) -> None:
        """Warn, unless another clone of the same estimator has told a notice of this kind."""
        if self._told is not None:
            if kind in self._told.kinds:
                return
            self._told.kinds.add(kind)
        warnings.warn(text, category, stacklevel=stacklevel + 1)


__all__ = ["Notifying", "Told"]
