"""Rows or epsilon that would suffice for a table that is refused because noise hides the size of
its effects.

The size of all effects is a common factor on all slopes, and its *room* is its distance, in
standard errors, from where the likelihood has no maximum (:mod:`sottovoce.answers.normal_rows`).  A
table needs a room of :data:`sottovoce.answers.inference.ROOM`.  The variance of the size has two
parts: sampling, which falls as 1 / rows and does not depend on epsilon, and noise, which falls
about as 1 / rows^2 and 1 / epsilon^2.
"""

from __future__ import annotations

import math
from typing import NamedTuple

NOISIER = 1.5
"""Factor on the estimated standard deviation of the noise in the size of all effects.

Of draws at the same epsilon some find the size better known than others.  With this factor the
epsilon that a median refusal states prints all of the table in three draws of four
(docs/privacy/answers.md, "Inference").
"""
KNOWN = 2.0
"""Room below which the factors are only lower bounds, as the room itself is not well known."""
LEAST = 1.0
"""A smaller room counts as this one."""


class SizeNeeds(NamedTuple):
    """Factors by which rows, or sensitivity over sigma (about epsilon), must grow."""

    rows: float
    shift: float  # inf if sampling alone leaves too little room
    more: bool  # whether they are lower bounds


def size_needs(room: float, sampling_room: float, least: float) -> SizeNeeds:
    """Compute the factors by which rows, or sensitivity over sigma, must grow.

    Parameters
    ----------
    room : float
        Distance of the size of all effects from where it is unbounded, in standard errors by
        sampling and noise (:class:`sottovoce.answers.normal_rows.Size`).
    sampling_room : float
        The same in standard errors by sampling alone; 0 if it is not known.
    least : float
        The room that is needed.

    Returns
    -------
    SizeNeeds
        Factors of at least 1; ``more`` if they are lower bounds.
    """
    # Variances over the square of the distance.
    enough = least**-2.0
    total = max(room, LEAST) ** -2.0
    sampling = 0.0
    if room > LEAST and sampling_room > 0.0:
        sampling = min(sampling_room**-2.0, total)
    noise = NOISIER**2 * (total - sampling)
    # sampling / rows + noise / rows^2 = enough is quadratic in the factor of the rows.
    rows = (sampling + math.sqrt(sampling**2 + 4.0 * noise * enough)) / (2.0 * enough)
    # sampling + noise / shift^2 = enough: no epsilon takes sampling away.
    shift = math.inf
    if sampling < enough:
        shift = math.sqrt(noise / (enough - sampling))
    return SizeNeeds(max(1.0, rows), max(1.0, shift), room < KNOWN and noise > 0.0)
