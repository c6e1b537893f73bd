"""Reliability of printed coefficients under privacy noise.

How much wider noise makes their intervals, and by how much the significant ones exaggerate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..util import normal
from ..util.typing import Any
from .plain import number

WIDE = 2.0
"""A table tells of the width of an interval from this multiple of its width without noise on."""
EXAGGERATED = 1.1
"""A table tells of exaggeration from this multiple of the true coefficient on."""
CLEAR = 0.05
"""A p-value below it is one that readers pick out."""


def width_ratio_by_noise(noise_share: float | None) -> float | None:
    """Compute the width of an interval over its width without privacy noise.

    It is 1 over the root of the share of the variance that is sampling: ``1 - noise_share``.  None
    for a line that is refused, and infinity if nothing of its variance is sampling.
    """
    if noise_share is None:
        return None
    sampling = 1.0 - noise_share
    if sampling > 0.0:
        return 1.0 / math.sqrt(sampling)
    return math.inf


def exaggeration(estimate: float, standard_error: float) -> float:
    """Compute the expected exaggeration of an estimate with p < .05, if the truth is this estimate.

    ``E[|Z| given |Z| > c] / z`` for a normal Z with mean ``z = |estimate| / standard_error`` and
    deviation 1: the "type M error" of Gelman and Carlin (2014).  1 for an estimate of next to no
    error.
    """
    if not standard_error > 0.0 or estimate == 0.0:
        return 1.0
    z = abs(estimate) / standard_error
    c = -normal.normal_quantile(CLEAR / 2.0)
    # Probabilities of an estimate beyond c on the side of the truth, and on the other.
    above, below = math.exp(normal.normal_log_cdf(z - c)), math.exp(normal.normal_log_cdf(-z - c))
    # The density of Z at c and at -c.
    densities = math.exp(-0.5 * (c - z) ** 2) + math.exp(-0.5 * (c + z) ** 2)
    density = densities / math.sqrt(2.0 * math.pi)
    # E[|Z|; |Z| > c], from the partial expectations of a normal law in its two tails.
    mean = z * (above - below) + density
    return mean / ((above + below) * z)


def width_in_words(lines: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Return a sentence on how much wider noise makes intervals.

    Parameters
    ----------
    lines : sequence of dict
        Printed lines.
    names : sequence of str
        Of these lines.

    Returns
    -------
    str
        Empty if no interval is `WIDE` times as wide as without noise.
    """
    wider = [(_width_ratio_of_line(line), name) for line, name in zip(lines, names, strict=True)]
    if not wider or max(wider)[0] < WIDE:
        return ""
    most, name = max(wider)
    which = "the interval"
    if len(wider) > 1:
        count = sum(width >= WIDE for width, _ in wider)
        which = f"{count} of {len(wider)} intervals"
    # A width goes down with the root of the number of rows.
    rows = "none" if math.isinf(most) else f"1 in {most**2:,.0f}"
    return (
        f"Privacy noise makes {which} at least {WIDE:g} times as wide; that of {name} "
        f"{_times_in_words(most)}, as wide as without noise from {rows} of the rows."
    )


def exaggeration_in_words(lines: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Return a sentence on lines with p < .05 that are likely too large because of noise.

    Empty if there are none.
    """
    found = []
    for line, name in zip(lines, names, strict=True):
        half_is_noise = _width_ratio_of_line(line) >= math.sqrt(2.0)
        if half_is_noise and number(line["p"]) < CLEAR:
            factor = exaggeration(number(line["estimate"]), number(line["standard_error"]))
            if factor >= EXAGGERATED:
                found.append((factor, name))
    if not found:
        return ""
    most, name = max(found)
    others = ""
    if len(found) > 1:
        others = f" (and {len(found) - 1} more lines likewise)"
    return (
        f"Significant estimates (p < {CLEAR:g}) with this much noise are too large on average: by "
        f"{100.0 * (most - 1.0):.0f}% for {name} if its true value is the printed one{others}, and "
        "by more if it is smaller."
    )


def _width_ratio_of_line(line: dict[str, Any]) -> float:
    """Return :func:`width_ratio_by_noise` of a printed line."""
    return width_ratio_by_noise(number(line.get("noise_share") or 0.0)) or 1.0


def _times_in_words(x: float) -> str:
    return "infinitely many times" if math.isinf(x) else f"{x:.1f} times"
