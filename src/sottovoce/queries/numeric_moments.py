"""Errors of predicted numbers: the bounded sum from which mean errors and R2 follow."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..data.design import Design
from ..problem.facts import Facts
from ..problem.losses import Loss
from ..problem.trust import RELATIONS
from ..util.typing import Array
from .bounded import Bounded, labels_of

SCALES: Array = np.array([0.25, 1.0, 1.0, 0.5, 1.0, 0.5, 0.25, 0.5, 0.25, 0.5])
"""Factors of the entries of :class:`Misses`."""
_S = (2.0 + math.sqrt(2.0)) / 4.0
_BOTH_KNOWN = 2.0 + (2.0 - _S) ** 2 * (0.25 + _S**2) + 5.0 / 4.0
"""Squared change of the scaled entries between two rows with a number, at most."""


@dataclass(frozen=True)
class Misses(Bounded):
    """Means of scaled powers of errors and targets, for mean errors, R2 and their intervals.

    The entries are ``1, |e|, e^2, t, t^2, e^4, e^2 t, e^2 t^2, t^3, t^4``, each times its entry of
    `SCALES`.  t is a row's number to predict, in [-1, 1], p its score ``a.w`` clipped to [-1, 1],
    and ``e = (p - t) / 2``, so that ``|e| <= 1``.  A row without a known number adds nothing.

    *Sensitivity* (``docs/privacy/answers.md``, "Errors of numbers").  A zeroed row, or one whose
    replacement has no number or had none, moves the sum by at most the norm of `SCALES`.  Of two
    rows with numbers the first entries are equal, and those of t and t^2 cannot both move by as
    much as they can alone.

    `constant` is as for :class:`sottovoce.queries.Positives`: it tells rows from padding and from
    those without number.
    """

    constant: Array | None = None

    def number_of_entries(self, facts: Facts) -> int:
        return len(SCALES)

    def largest_row_norm(self, facts: Facts) -> float:
        return math.sqrt(float(np.sum(SCALES**2)))

    def exact_sum_sensitivity(self, facts: Facts) -> float:
        # Two rows with numbers can differ by more than one row has alone: by 2.13 against 2.05.
        if RELATIONS[facts.relation] > 1:
            return math.sqrt(_BOTH_KNOWN)
        return self.largest_row_norm(facts)

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Compute the sum of the ten scaled powers over a block of rows.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`.

        Returns
        -------
        array of shape (M, R, 10)
        """
        known = labels_of(block, self.constant, at) != 0.0
        # The margin at the point 0 is -t.
        t = -np.asarray(block.to_numpy_array(block.margins_at(np.zeros_like(at))))
        e = 0.5 * (
            np.clip(np.asarray(block.to_numpy_array(block.change_of_margins(at))), -1.0, 1.0) - t
        )
        q = e * e
        powers = (np.ones_like(e), np.abs(e), q, t, t * t, q * q, q * t, q * t * t, t**3, t**4)
        return np.stack(
            [scale * np.sum(known * x, axis=-1) for scale, x in zip(SCALES, powers, strict=True)],
            axis=-1,
        )
