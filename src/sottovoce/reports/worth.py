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
"""An interval that is at least this many times as wide as without noise has a sentence."""
EXAGGERATED = 1.1
"""An estimate that is expected at this multiple of the true coefficient or more has a sentence."""
CLEAR = 0.05
"""P-values below it are called significant; readers pick these coefficients out."""


def width_ratio_by_noise(noise_share: float | None) -> float | None:
    """Compute the width of an interval over its width without privacy noise.

    A width is proportional to the root of the variance, of which ``1 - noise_share`` is sampling
    variance: so it is ``1 / sqrt(1 - noise_share)``, and infinity if all of the variance is noise.
    None for a line that is refused.
    """
    if noise_share is None:
        return None
    sampling = 1.0 - noise_share
    if sampling > 0.0:
        return 1.0 / math.sqrt(sampling)
    return math.inf


def exaggeration(estimate: float, standard_error: float) -> float:
    """Compute by which factor an estimate with p < .05 is too large on average.

    The true coefficient is taken to be `estimate`.  The factor is ``E[|Z| given |Z| > c] / z`` for
    a normal Z with mean ``z = |estimate| / standard_error`` and deviation 1, where c = 1.96 is the
    critical value: the "type M error" of Gelman and Carlin (2014).  It goes to 1 as the error goes
    to 0.
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
    widest, name = max(wider)
    which, one = "the interval", "It"
    if len(wider) > 1:
        count = sum(width >= WIDE for width, _ in wider)
        which = f"{count} of {len(wider)} intervals"
        one = f"The widest, of {name},"
    said = f"Privacy noise makes {which} at least {WIDE:g} times as wide."
    if math.isinf(widest):
        return f"{said} All of the variance of {name} is noise."
    # A width goes down with the root of the number of rows.
    return (
        f"{said} {one} is {widest:.1f} times as wide: the width that 1 in {widest**2:,.0f} of the "
        "rows would give without noise."
    )


def exaggeration_in_words(lines: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Return a sentence on significant estimates that are too large on average because of noise.

    It names the one with the largest expected exaggeration, of those whose variance is at least
    half noise.  Empty if there are none.  `names` are those of the lines.
    """
    found = []
    for line, name in zip(lines, names, strict=True):
        # A ratio of widths of root 2 is one of variances of 2.
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
