"""Forecast whether a run can learn anything, from public facts and synthetic data.

It distinguishes runs whose noise hides any signal from runs that can learn.  It does not forecast
the accuracy on the real rows, because how hard these are to classify is not public.

Nothing here reads a private row, so the forecast may be shown to anybody.  Estimators and `plan`
warn by it; :mod:`sottovoce.runs.auto_trials` runs the *rehearsals*, the runs on synthetic data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ..algorithms import REGISTRY, trusts_of
from ..data.synthetic_tables import Expected
from ..errors import InvalidInput, SottovoceError
from ..problem.losses import make_loss
from ..util.typing import Array
from .auto_candidates import PROXIMAL
from .auto_trials import WIDEST, Ground, averages_messages
from .config import RunConfig
from .prepare import check_run_size, prepare

LEAST = 0.25
"""A run is near guessing if it gains less than this share of what a perfect model gains.

Gains are in accuracy over always predicting the most frequent class.
"""
# Model entries of all synthetic worlds together: wider models are rehearsed in fewer worlds.
_ENTRIES = 512
MORE = (10.0, 100.0)
"""Factors for epsilon and for the number of rows; the first that helps is suggested."""


@dataclass(frozen=True)
class Forecast:
    """Errors on synthetic data: of the run, of the most frequent class, and of a perfect model.

    They are to be compared with each other.  Real rows may be harder or easier than synthetic ones,
    so `error` does not predict the error on them.

    Attributes
    ----------
    error, guess, best : float
        Misclassification rates on synthetic data: of the run, of always predicting the most
        frequent class, and of a model that knows the class probabilities of every row.
    helps : tuple of (str, float)
        Changes that would help, in words, and the error on synthetic data after each.
    """

    error: float
    guess: float
    best: float
    helps: tuple[tuple[str, float], ...] = ()

    @property
    def share_of_gain(self) -> float:
        """Share of the way from guessing to a perfect model that the run is expected to go."""
        return (self.guess - self.error) / max(self.guess - self.best, 1e-12)

    @property
    def is_near_guessing(self) -> bool:
        """True if the run is expected to be near guessing."""
        return self.share_of_gain < LEAST

    @property
    def says(self) -> str:
        """A warning in one sentence; empty if there is none."""
        if not self.is_near_guessing:
            return ""
        text = (
            f"expected to be near guessing: accuracy on synthetic rows is {1.0 - self.error:.0%}, "
            f"and always predicting the most frequent class has {1.0 - self.guess:.0%}"
        )
        would = ", ".join(f"{1.0 - error:.0%} with {what}" for what, error in self.helps)
        if would:
            text = f"{text}; the run would have {would}"
        return f"{text} (the numbers will differ on your rows)"


def forecast_run(
    config: RunConfig,
    n: Sequence[int] | Array,
    d: int,
    *,
    heterogeneity: str = "iid",
    expected: Expected | None = None,
) -> Forecast | None:
    """Forecast a run by rehearsing it on synthetic data.

    Parameters
    ----------
    config : RunConfig
        Of a named method.
    n : sequence of int
        Rows of every site.
    d : int
        Entries of a classifier.
    heterogeneity, expected
        As for :func:`sottovoce.runs.auto_search.choose_method`.

    Returns
    -------
    Forecast or None
        None where a run cannot be rehearsed: numbers to predict, no budget or given noise, a
        printed form, or too many sites or entries.

    Raises
    ------
    InvalidInput
        For sizes too large to compute with.
    """
    sizes = tuple(int(rows) for rows in np.asarray(n, dtype=float).ravel())
    if config.method in PROXIMAL and heterogeneity == "iid" and not config.trusted.answers_of_all:
        # The second proximal method is as accurate where sites are alike, and faster to rehearse.
        config = config.but(method=PROXIMAL[-1])
    if not _can_be_rehearsed(config, len(sizes), d, heterogeneity):
        return None
    check_run_size(config, np.array(sizes, dtype=float)[:, None], d)
    asked = replace(config, seed=0, replicates=1, auto=False, backend="numpy")
    return _forecast_with_help(asked, sizes, d, heterogeneity, expected)


def _can_be_rehearsed(config: RunConfig, sites: int, d: int, heterogeneity: str) -> bool:
    """Return True for a budgeted run of a private method on classes, of a size that is quick."""
    method, loss = REGISTRY[config.method], make_loss(config.loss)
    if config.noise is not None or not config.budgeted:
        return False
    if config.form != "corrected" or loss.offset_bound:
        return False
    # Runs with one answer for all sites, and alike sites whose messages are averaged, are
    # rehearsed as one site with all rows.
    held = sites
    if config.trusted.answers_of_all or (heterogeneity == "iid" and averages_messages(method)):
        held = 1
    return method.private and not Ground.is_too_large(held, d // loss.outputs, loss.outputs)


@lru_cache(maxsize=256)
def _forecast_with_help(
    config: RunConfig, n: tuple[int, ...], d: int, heterogeneity: str, expected: Expected | None
) -> Forecast | None:
    """Rehearse a run; if it is near guessing, also rehearse changes that might help."""
    found = _rehearse_run(config, n, d, heterogeneity, expected)
    if found is None or not found.is_near_guessing:
        return found
    helps = []
    for change in (_with_more_epsilon, _with_more_rows, _with_trust_in_sums):
        for factor in MORE:
            changed = change(config, n, factor)
            if changed is None:
                break
            what, changed_config, changed_n = changed
            other = _rehearse_run(changed_config, changed_n, d, heterogeneity, expected)
            if other is not None and not other.is_near_guessing and other.error < found.error:
                helps.append((what, other.error))
                break
    return replace(found, helps=tuple(helps))


def _rehearse_run(
    config: RunConfig, n: tuple[int, ...], d: int, heterogeneity: str, expected: Expected | None
) -> Forecast | None:
    """Compare a run on synthetic data with guessing and with a perfect model."""
    outputs = make_loss(config.loss).outputs
    pooled = config.trusted.answers_of_all
    tilt = 1.0
    if heterogeneity == "iid" or pooled:
        tilt = 0.0
    ground = Ground(n, d // outputs, outputs, tilt, expected, pooled)
    entries = outputs * min(d // outputs, WIDEST)
    many = int(np.clip(_ENTRIES // entries, 2, len(ground.search_worlds.worlds)))
    rehearsal = replace(ground.search_worlds, worlds=ground.search_worlds.worlds[:many])
    try:
        prepared = prepare(config, ground.site_sizes, ground.model_entries)
        (outcome,) = rehearsal.rehearse_candidates([prepared])
    except SottovoceError:
        # The run itself will say what is wrong.
        return None
    error = float(outcome.errors.mean())
    worlds = rehearsal.worlds
    # `chances` are the class probabilities of a world's rows, (rows, K), which the perfect model
    # knows.
    guess = float(np.mean([1.0 - world.chances.mean(axis=0).max() for world in worlds]))
    best = float(np.mean([1.0 - world.chances.max(axis=1).mean() for world in worlds]))
    return Forecast(error, guess, best)


_Changed = tuple[str, RunConfig, tuple[int, ...]] | None
"""A change in words, the changed configuration, and its rows per site; None if it cannot be."""


def _with_more_epsilon(config: RunConfig, n: tuple[int, ...], factor: float) -> _Changed:
    """Multiply epsilon by a factor, if all nodes have one."""
    if isinstance(config.epsilon, tuple):
        return None
    epsilon = factor * config.epsilon
    return f"epsilon={epsilon:g}", replace(config, epsilon=epsilon), n


def _with_more_rows(config: RunConfig, n: tuple[int, ...], factor: float) -> _Changed:
    """Multiply the rows of every site by a factor."""
    return f"{factor:.0f} times the rows", config, tuple(int(factor * rows) for rows in n)


def _with_trust_in_sums(config: RunConfig, n: tuple[int, ...], factor: float) -> _Changed:
    """Use trust in sums in place of nobody; it is tried with the first `factor` only."""
    # A sum needs three sites at least, and its Gaussian noise a delta.
    if config.trusted.answers_of_all or len(n) < 3 or config.delta is None or factor > MORE[0]:
        return None
    name, rounds = REGISTRY[config.method].name, config.rounds
    if "sum" not in trusts_of(name):
        name, rounds = "momentum", max(config.rounds, 100)
    try:
        return 'trust="sum"', config.but(method=name, trust="sum", rounds=rounds, eta=None), n
    except InvalidInput:
        return None


__all__ = ["Forecast", "forecast_run"]
