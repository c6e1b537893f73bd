"""The epsilon that the papers claim for the releases of a run, which need not be proved."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..privacy.events import Event
from ..util.typing import Array


def papers_claimed_epsilon(rows: Iterable[Event], delta: float) -> Array | None:
    """Return the paper's claim for the releases of one run, per node; None where it claims nothing.

    Parameters
    ----------
    rows : iterable of Event
        All releases of the run, of the same rows at the same nodes.
    delta : float
        0 for pure epsilon.

    Returns
    -------
    array (N,) or None
        Epsilon.
    """
    events = tuple(rows)
    # 004, Theorem 3.3: the claimed rho of zCDP, as epsilon = rho + 2 sqrt(rho ln(1 / delta)).
    if delta > 0:
        rho = _sum_if_all(getattr(event, "claimed_rho", None) for event in events)
        if rho is not None:
            return np.asarray(rho + 2.0 * np.sqrt(rho * np.log(1.0 / delta)))
    return _sum_if_all(getattr(event, "claimed", None) for event in events)


def _sum_if_all(values: Iterable[Array | None]) -> Array | None:
    """Return the sum of these, or None if there are none or one is missing."""
    found = list(values)
    known = [value for value in found if value is not None]
    if not known or len(known) < len(found):
        return None
    return np.asarray(np.sum(known, axis=0))
