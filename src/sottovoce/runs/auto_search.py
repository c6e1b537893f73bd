"""The choice behind ``method="auto"``: methods and knobs are compared on synthetic rows.

A *candidate* is a configuration, and a *trial* its errors in synthetic *worlds* of the sites' sizes
(:mod:`sottovoce.runs.auto_trials`).  The search has stages: a grid for every method, more rounds
and finer knobs for the best two, then a last comparison of a few *finalists* in new worlds.  The
candidate with the lowest error is chosen; among candidates whose errors tie, the one whose
probabilities have the lowest log loss.  How hard the real rows are is not known, so the search
compares methods and does not forecast their accuracy.

Everything that :func:`choose_method` sees is public: sizes, graph, budget, what the schema implies
about rows, and how the sites are declared to differ.  No argument could carry a private row to it,
so a choice costs no privacy and may be told to anybody.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from ..algorithms import REGISTRY
from ..data.synthetic_tables import Expected
from ..errors import InvalidInput, SottovoceError
from ..problem.losses import make_loss
from ..problem.schedules import Schedule
from ..util.typing import Any, Array
from .auto_candidates import PROXIMAL, Candidates, Plans, value_of_knob
from .auto_trials import Ground
from .centre import Centring
from .config import RunConfig
from .defaults import KNOBS, with_method_of_numbers
from .prepare import check_run_size
from .pricing import Prepared

FINER = ((0.6, 1.6), (0.75, 1.35))
"""Multiples of the best cap and penalty in the two "finer" stages of the search."""
AHEAD = 1.1
"""Factor on errors of methods with local solves or a single step, in comparisons.

On synthetic rows, whose labels count with their probabilities, a solve on few rows looks too good;
this was seen on other tables.
"""
USUAL = {"penalty": (0.7, 0.01), "cap": (0.08, 0.01)}
"""For gradient steps: the usual value of a knob, and the handicap of other values.

Many settings of gradient steps have about the same error, and the lowest is chance.  So an error is
enlarged by the share 0.01 times the square of log2(knob / usual value).  Usual values are those of
least mean error over other tables: a penalty of 0.7 times the default, a cap of 0.08.
"""
FINALISTS = 6
SAFE = 2
"""Number of candidates of least error that enter the last comparison whatever their log loss."""
TIE = 0.005
"""Errors on synthetic rows that differ by no more than this are taken as equal.

The log loss then decides: many settings have nearly the same error, but few of them have
well-calibrated probabilities.
"""


NO_FORECAST = "This compares methods on synthetic rows: it does not predict the accuracy on yours."
"""The last sentence of every description of a choice."""
STATES_PROBABILITIES = ("logistic", "softmax")
"""Losses whose models predict probabilities."""


@dataclass(frozen=True)
class Choice:
    """A chosen configuration, and the reasons for it.

    Attributes
    ----------
    config : RunConfig
        It names a concrete method, so running it does not choose again.
    table : tuple of dict
        One row a trial: ``stage`` of the search ("method" for the grid, "rounds", "finer",
        "sibling", and "check" in new worlds), knobs, ``noise`` (standard deviation of a coordinate
        of the first release at the worst site), ``error`` and ``spread`` (mean and standard
        deviation over worlds and noise), ``log_loss`` (its mean, if models state probabilities),
        ``seconds``.
    says : str
        The choice in words: how methods compare on synthetic data, which is no forecast for real
        data.
    """

    config: RunConfig
    table: tuple[dict[str, Any], ...] = ()
    says: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "chosen": _knobs_as_plain_data(self.config),
            "says": self.says,
            "table": [dict(row) for row in self.table],
        }


def knobs_at_defaults(config: RunConfig) -> tuple[str, ...]:
    """Return the names among `KNOBS` whose values are the defaults: the caller left them open."""
    return tuple(
        knob for knob in KNOBS if value_of_knob(config, knob) == RunConfig.defaults()[knob]
    )


def heterogeneity_of_partition(partition: str, strength: float = 1.0) -> str:
    """Return "iid" for a partition of rows at random, else "label": sites may differ."""
    if partition == "iid" or (partition == "label" and strength == 0):
        return "iid"
    return "label"


def choose_method(
    config: RunConfig,
    n: Sequence[int] | Array,
    d: int,
    *,
    heterogeneity: str = "iid",
    free: Sequence[str] | None = None,
    expected: Expected | None = None,
    centre: Centring | None = None,
) -> Choice:
    """Pick a method and its knobs from public facts; reproducible on the same machine and versions.

    Parameters
    ----------
    config : RunConfig
        What the caller gave; its method is the first guess.
    n : sequence of int
        Rows of every site.
    d : int
        Entries of a classifier, as in :class:`sottovoce.problem.facts.Facts`.
    heterogeneity : {"iid", "label"}
        Whether sites are alike or their labels differ.
    free : sequence of str, optional
        Knobs of `KNOBS` that the caller left open; None for those that have their default values.
    expected : Expected, optional
        What is publicly known of rows: a schema, or public rows.  None for rows of a few kinds.
    centre : Centring, optional
        Asked before the method; methods are tried with the epsilon that it leaves.

    Returns
    -------
    Choice
        Of a concrete method, with the caller's epsilon, seed and replicates.

    Raises
    ------
    InvalidInput
        If the first guess and everything else break a rule.

    Guarantee
    ---------
    No private row is read, so the choice costs no privacy.
    """
    if free is None:
        free = knobs_at_defaults(config)
    _check_choice_arguments(heterogeneity, free)
    counts = np.asarray(n, dtype=float).ravel()
    check_run_size(config, counts[:, None], d)
    sizes = tuple(int(rows) for rows in counts)
    left = config
    if centre is not None:
        left = centre.config_for_method(config)
    # Seed and replicates do not change a choice; with fixed ones, equal choices are found in the
    # cache.
    asked = replace(left, seed=config.seed or 0, replicates=1)
    found = _search_or_first_guess(asked, sizes, d, heterogeneity, tuple(sorted(free)), expected)
    given = {name: getattr(config, name) for name in ("epsilon", "seed", "replicates")}
    chosen = replace(found.config, auto=False, **given)
    return replace(found, config=chosen)


def _check_choice_arguments(heterogeneity: str, free: Sequence[str]) -> None:
    """Refuse (InvalidInput) an unknown heterogeneity, and knobs that no choice sets."""
    if heterogeneity not in ("iid", "label"):
        rule = "must be 'iid' or 'label'"
        raise InvalidInput("heterogeneity", heterogeneity, rule, "use 'label' if sites differ")
    unknown = [knob for knob in free if knob not in KNOBS]
    if unknown:
        rule = f"must be among {', '.join(KNOBS)}"
        raise InvalidInput("free", unknown, rule, "leave the others out")


@lru_cache(maxsize=64)
def _search_or_first_guess(
    config: RunConfig,
    n: tuple[int, ...],
    d: int,
    heterogeneity: str,
    free: tuple[str, ...],
    expected: Expected | None,
) -> Choice:
    """Search among candidates, or keep the first guess where none can be tried.

    Arguments as of :func:`choose_method`, hashable so that equal choices are found in the cache.
    """
    why = _why_not_rehearsed(config, n, d)
    if why:
        if make_loss(config.loss).offset_bound:
            config = with_method_of_numbers(config, free)
        return Choice(config, says=f"{_knobs_in_words(config)}: the default choice, since {why}.")
    outputs = make_loss(config.loss).outputs
    # An answer over all sites' rows does not depend on how the sites differ.
    pooled = config.trusted.answers_of_all
    tilt = 1.0
    if heterogeneity == "iid" or pooled:
        tilt = 0.0
    ground = Ground(n, d // outputs, outputs, tilt, expected, pooled)
    search = _Search(Candidates(config, Plans(ground), free, heterogeneity == "iid"))
    search.explore_methods()
    if not search.tried:
        assert search.refused is not None
        raise search.refused
    return search.compare_finalists()


def _why_not_rehearsed(config: RunConfig, n: tuple[int, ...], d: int) -> str:
    """Return the reason why no run can be tried on synthetic rows; empty if there is none.

    Parameters
    ----------
    config : RunConfig
    n : tuple of int
        Rows of every site.
    d : int
        Weights of a model, of all its margins together.

    Returns
    -------
    str
        The end of a sentence.
    """
    if config.noise is not None:
        return "the noise is given, in a unit that differs between methods"
    if not config.budgeted:
        return "without a finite epsilon there is no noise to compare methods under"
    if config.form != "corrected":
        return "only corrected forms are compared"
    loss = make_loss(config.loss)
    # Only losses of numbers have offsets.
    if loss.offset_bound:
        return "methods are compared on synthetic classes, and the labels here are numbers"
    tried_sites = len(n)
    # Runs with sums or a curator are tried as one site with all rows.
    if config.trusted.answers_of_all:
        tried_sites = 1
    if Ground.is_too_large(tried_sites, d // loss.outputs, loss.outputs):
        return f"{len(n)} sites and {d} model weights are too many to compare methods in seconds"
    return ""


@dataclass(eq=False)
class _Trial:
    """A candidate with its expected errors and log losses, (worlds, replicates) each.

    In comparisons both are multiplied by a handicap: ``1 + pull`` for several gradient steps (see
    `USUAL`), `AHEAD` for all others.
    """

    config: RunConfig
    errors: Array
    losses: Array
    pull: float = 0.0

    @property
    def mean_error(self) -> float:
        return float(self.errors.mean())

    @property
    def log_loss(self) -> float:
        return float(self.losses.mean())

    @property
    def _handicap(self) -> float:
        """The factor by which errors and losses are multiplied in comparisons."""
        if REGISTRY[self.config.method].gradient_steps and self.config.rounds > 1:
            return 1.0 + self.pull
        return AHEAD

    @property
    def handicapped_error(self) -> float:
        return self.mean_error * self._handicap

    @property
    def handicapped_loss(self) -> float:
        return self.log_loss * self._handicap

    def standard_error_to(self, other: _Trial) -> float:
        """Return the standard error of the difference in error to another candidate.

        It is the larger of two estimates: from the worlds' means, and from all replicates.
        """
        gain = other.errors - self.errors
        worlds = len(gain)
        between, within = 0.0, 0.0
        if worlds > 1:
            between = float(gain.mean(axis=1).std(ddof=1)) / math.sqrt(worlds)
        if gain.size > 1:
            within = float(gain.std(ddof=1)) / math.sqrt(gain.size)
        return max(between, within)


def sort_trials(trials: Sequence[_Trial], *, by_log_loss: bool) -> list[_Trial]:
    """Sort candidates, the best first.

    By errors alone; or, with `by_log_loss`, first those whose error is within `TIE` of the least,
    by their log loss.
    """
    by_error = sorted(trials, key=lambda one: one.handicapped_error)
    if not (by_log_loss and by_error):
        return by_error
    most = by_error[0].handicapped_error + TIE
    tied = [one for one in by_error if one.handicapped_error <= most]
    return sorted(tied, key=lambda one: one.handicapped_loss) + by_error[len(tied) :]


@dataclass
class _Search:
    """A search among candidates.

    `tried` are the trials of the search stages, `table` is the record of all trials, and `refused`
    the last error of a candidate that could not run.
    """

    candidates: Candidates
    table: list[dict[str, Any]] = field(default_factory=list)
    tried: list[_Trial] = field(default_factory=list)
    refused: SottovoceError | None = None

    @property
    def config(self) -> RunConfig:
        """The first guess."""
        return self.candidates.config

    def run_candidates(
        self, configs: Sequence[RunConfig], stage: str, *, check: bool = False
    ) -> list[_Trial]:
        """Run candidates in every world, those of one method and number of rounds together.

        Candidates that break a rule of their method, or whose solves fail, are left out; `refused`
        is the last such error.

        Parameters
        ----------
        configs : sequence of RunConfig
        stage : str
            Of the search, for the record.
        check : bool
            Whether this is the last comparison: it is in other worlds, and not added to `tried`.

        Returns
        -------
        list of _Trial
            Of those that ran.
        """
        done = []
        for batch in self._group_candidates(configs, check):
            started = time.perf_counter()
            try:
                ground = self.candidates.ground
                # Worlds are drawn when they are first needed, and kept.
                if check:
                    rehearsal = ground.comparison_worlds
                else:
                    rehearsal = ground.search_worlds
                outcomes = rehearsal.rehearse_candidates([prepared for _, prepared in batch])
            except SottovoceError as error:
                self.refused = error
                continue
            seconds = (time.perf_counter() - started) / len(batch)
            for (config, prepared), found in zip(batch, outcomes, strict=True):
                one = _Trial(config, found.errors, found.losses, self._pull_to_usual_knobs(config))
                done.append(one)
                record = self._record_of_trial(one, prepared, seconds)
                self.table.append({"stage": stage} | _knobs_as_plain_data(config) | record)
        if not check:
            self.tried += done
        return done

    def _group_candidates(
        self, configs: Sequence[RunConfig], check: bool
    ) -> list[list[tuple[RunConfig, Prepared]]]:
        """Price new candidates, and group those that can run together.

        Candidates that break a rule of their method are left out.
        """
        ready: dict[Any, list[tuple[RunConfig, Prepared]]] = {}
        seen: list[RunConfig] = []
        if not check:
            seen = [one.config for one in self.tried]
        for config in configs:
            if config in seen:
                continue
            seen.append(config)
            try:
                prepared = self.candidates.plans.prepare_candidate(config)
            except SottovoceError as error:
                self.refused = error
                continue
            # Candidates with noise inside the objective each run by themselves.
            alone = None
            if REGISTRY[config.method].objective_noise:
                alone = config
            batch = ready.setdefault((config.method, config.rounds, alone), [])
            batch.append((config, prepared))
        return list(ready.values())

    def _record_of_trial(self, one: _Trial, prepared: Prepared, seconds: float) -> dict[str, Any]:
        """Return the record of a candidate, apart from its configuration."""
        told: dict[str, Any] = {
            "noise": float(np.max(prepared.plan_ledger(1).rows[0].noise_standard_deviation())),
            "error": one.mean_error,
            "spread": 0.0,
        }
        if one.errors.size > 1:
            told["spread"] = float(one.errors.std(ddof=1))
        if self.ranks_by_log_loss:
            told["log_loss"] = one.log_loss
        return told | {"seconds": seconds}

    @property
    def ranks_by_log_loss(self) -> bool:
        """True if models predict probabilities: log losses then decide where errors tie."""
        return make_loss(self.config.loss).name in STATES_PROBABILITIES

    def rank_trials(self, trials: Sequence[_Trial]) -> list[_Trial]:
        """Sort trials, the best first, by :func:`sort_trials` with or without log losses."""
        return sort_trials(trials, by_log_loss=self.ranks_by_log_loss)

    def best_trial(self, method: str | None = None) -> _Trial:
        """Return the best candidate so far, of one method or of all."""
        of_method = [one for one in self.tried if method in (None, one.config.method)]
        return self.rank_trials(of_method)[0]

    def explore_methods(self) -> None:
        """Try all methods on a grid of caps and penalties; then vary knobs of likely winners."""
        first = [self.config]
        for method in self.candidates.candidate_methods():
            first += self.candidates.grid_of_method(method)
        self.run_candidates(first, "method")
        if not self.tried:
            return
        methods = sorted({one.config.method for one in self.tried})
        leaders = self.rank_trials([self.best_trial(method) for method in methods])
        # Of the two best methods, the second is refined less.
        for leader, finer in zip(leaders, (FINER, FINER[:1]), strict=False):
            method = leader.config.method
            if (
                self.rank_trials([self.best_trial(method), self.best_trial()])[0].config.method
                == method
            ):
                self.refine_method(method, finer)
        self.run_candidates(self.sibling_candidates(), "sibling")

    def refine_method(self, method: str, finer: Sequence[Sequence[float]]) -> None:
        """Try more rounds around a method's best; then finer caps, penalties, regularisers."""
        self.run_candidates(
            self.candidates.other_round_numbers(self.best_trial(method).config), "rounds"
        )
        for k, factors in enumerate(finer):
            best = self.best_trial(method).config
            self.run_candidates(self.candidates.refine_knobs(best, factors, first=k == 0), "finer")

    def sibling_candidates(self) -> list[RunConfig]:
        """Return, for each proximal method that was searched, the other one at its best knobs."""
        if self.config.trusted.answers_of_all or len(self.candidates.ground.n) == 1:
            return []
        found: list[RunConfig] = []
        for method in PROXIMAL:
            if sum(one.config.method == method for one in self.tried) >= 2:
                found += self.candidates.other_proximal_method(self.best_trial(method).config)
        return found

    def _pull_to_usual_knobs(self, config: RunConfig) -> float:
        """Return the handicap of a candidate with gradient steps, for unusual knobs: see `USUAL`.

        It is 0 where log losses decide between similar errors, which makes it unnecessary.
        """
        if self.ranks_by_log_loss or not REGISTRY[config.method].gradient_steps:
            return 0.0
        # The knobs' values: the penalty over its default, and the cap.
        far: dict[str, float] = {}
        if "eta" in self.candidates.free:
            far["penalty"] = 1.0
            if isinstance(config.eta, float):
                open_penalty = replace(config, eta=None)
                far["penalty"] = config.eta / self.candidates.plans.usual_penalty(open_penalty)
        if "max_grad_norm" in self.candidates.free:
            far["cap"] = min(1.0, config.gradient_cap)
        pull = 0.0
        for name, value in far.items():
            usual, weight = USUAL[name]
            pull += weight * math.log2(value / usual) ** 2
        return pull

    def _join_with_search(self, check: _Trial) -> _Trial:
        """Join a candidate's errors and losses in the search and in the last comparison."""
        before = next(one for one in self.tried if one.config == check.config)
        # A single finalist is not compared again.
        if check is before:
            return check
        # If the numbers of replicates differ, the smaller number of each counts.
        few = min(before.errors.shape[1], check.errors.shape[1])
        return replace(
            check,
            errors=np.vstack([before.errors[:, :few], check.errors[:, :few]]),
            losses=np.vstack([before.losses[:, :few], check.losses[:, :few]]),
        )

    def choose_finalists(self) -> list[_Trial]:
        """Return the candidates of the last comparison, the best first.

        They include the first guess and, where log losses decide ties, the `SAFE` of least error.
        """
        found = self.rank_trials(self.tried)[:FINALISTS]
        if self.ranks_by_log_loss:
            safest = sort_trials(self.tried, by_log_loss=False)[:SAFE]
            found += [one for one in safest if one not in found]
        first = self._trial_of_first_guess()
        if first is not None and first not in found:
            found = [*found, first]
        return found

    def _trial_of_first_guess(self) -> _Trial | None:
        """Return the first guess as it was tried; None if it breaks a rule."""
        return next((one for one in self.tried if one.config == self.config), None)

    def compare_finalists(self) -> Choice:
        """Compare the finalists in other worlds, and choose."""
        candidate_count = len(self.table)
        first = self._trial_of_first_guess()
        last = self.choose_finalists()
        checked = last
        if len(last) > 1:
            checked = self.run_candidates([one.config for one in last], "check", check=True)
        # Where no finalist ran again, the search alone decides.
        checked = [self._join_with_search(one) for one in checked or last]
        best = self.rank_trials(checked)[0]
        says = _describe_choice(self, best, checked, first, candidate_count)
        return Choice(best.config, tuple(self.table), says)


def _describe_choice(
    search: _Search,
    best: _Trial,
    checked: Sequence[_Trial],
    first: _Trial | None,
    candidate_count: int,
) -> str:
    """Describe the choice in words.

    Only differences between methods are told: an error itself would look like a forecast.
    """
    others = [trial for trial in checked if trial is not best]
    says = f"{_knobs_in_words(best.config)}: chosen by a comparison {search.candidates.ground.says}"
    if first is None:
        says += f".  The default choice, {search.config.method}, cannot run here"
    else:
        # If the first guess was chosen it is not among the others: there is nothing to compare.
        guess = next((trial for trial in others if trial.config == first.config), None)
        if guess is not None:
            says += _against_first_guess(search, best, guess)
    if search.ranks_by_log_loss:
        says += (
            f".  Candidates whose errors differ by at most {100 * TIE:g} points are ranked by log "
            "loss, for well-calibrated probabilities"
        )
    close = {
        trial.config.method
        for trial in others
        if trial.mean_error - best.mean_error <= best.standard_error_to(trial)
    }
    rivals = sorted(close - {best.config.method})
    if rivals:
        says += f".  The choice is uncertain: {', '.join(rivals)} came within one standard error"
    least_errors: dict[str, float] = {}
    for trial in search.tried:
        method = trial.config.method
        # No error, a misclassified share, is above 1.
        least_errors[method] = min(trial.mean_error, least_errors.get(method, 1.0))
    (leader, lowest), *behind = sorted(least_errors.items(), key=lambda item: item[1])
    says += f".  In the search, {leader} had the lowest error"
    if behind:
        differences = [f"{name} {_error_difference_text(error - lowest)}" for name, error in behind]
        says += ", then " + ", ".join(differences)
    says += f".  {candidate_count} candidates were tried; no private row was read.  {NO_FORECAST}"
    return says


def _against_first_guess(search: _Search, best: _Trial, guess: _Trial) -> str:
    """Compare the choice with the first guess, the method that "auto" starts from, in words."""
    says = (
        f".  Its error there is {_error_difference_text(best.mean_error - guess.mean_error)} than "
        f"that of the default choice ({_knobs_in_words(guess.config)}), "
    )
    says += f"with a standard error of {100 * best.standard_error_to(guess):.1f}"
    if search.ranks_by_log_loss:
        says += f", and its log loss is {_loss_difference_text(best.log_loss - guess.log_loss)}"
    return says


def _knobs_as_plain_data(config: RunConfig) -> dict[str, Any]:
    """Return method and knobs as plain data; no gradient clipping is None."""
    plain: dict[str, Any] = {"method": config.method}
    for knob in KNOBS:
        plain[knob] = value_of_knob(config, knob)
    if isinstance(config.eta, Schedule):
        plain["eta"] = config.eta.to_dict()
    # JSON has no infinity.
    if config.gradient_cap == math.inf:
        plain["max_grad_norm"] = None
    return plain


def _knobs_in_words(config: RunConfig) -> str:
    """Return the method, its rounds and rho, and penalty and cap where they are set, in words."""
    rounds = f"{config.rounds} rounds"
    if config.rounds == 1:
        rounds = "1 round"
    words = f"{config.method}, {rounds}, rho {config.rho:g}"
    if isinstance(config.eta, float):
        words += f", eta {config.eta:g}"
    if config.gradient_cap != math.inf:
        words += f", max_grad_norm {config.gradient_cap:g}"
    return words


def _error_difference_text(difference: float) -> str:
    """Return a difference of misclassification rates in words, in percentage points."""
    return _less_or_more(f"{100 * abs(difference):.1f} points", difference)


def _loss_difference_text(difference: float) -> str:
    """Return a difference of log losses in words."""
    return _less_or_more(f"{abs(difference):.3f}", difference)


def _less_or_more(size: str, difference: float) -> str:
    if difference < 0:
        return f"{size} lower"
    return f"{size} higher"
