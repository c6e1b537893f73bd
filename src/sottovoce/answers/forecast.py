"""Forecast of a table of coefficients before any row is read: how many rows it needs, and which
standard errors to expect (for ``sottovoce plan --inference``).

The recipe itself is run on synthetic tables drawn from the schema, with the noise that the planned
number of rows would have (:mod:`sottovoce.answers.rehearsal`), and the rule that prints or refuses
the lines of real tables is applied to the outcome.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..algorithms.recipe import Recipe
from ..data.rows import Rows
from ..data.schema import Schema
from ..errors import InvalidInput
from ..problem.losses import Loss
from ..problem.task import BoundedNumber, TwoClasses
from ..reports.causes import Cause
from ..runs.config import RunConfig
from ..runs.prepare import prepare, public_sizes
from ..runs.pricing import Prepared, cost_report
from ..util.typing import Any, Array
from . import fits
from .assumed import Assumed, parse_expected_shares
from .coefficients import Coefficients, build_coefficient_table, round_up_two_digits
from .inference import check_run_is_inference
from .least_squares import table_in_target_units
from .rehearsal import (
    DECLARED,
    EVEN,
    REAL,
    Habits,
    draw_linear_scores,
    draw_synthetic_rows,
    facts_of_one_curator,
    positive_probabilities,
    run_on_synthetic_rows,
    with_curators_noise,
)
from .terms import Naming, Term, naming_from_any

EXPLAINED = 0.25
"""Part of a synthetic number's variance that its columns explain."""
ROWS = 1500
"""Rows of a synthetic table."""
REAL_WORLDS = 15
"""Number of synthetic tables with the habits of real ones."""
EVEN_WORLDS = 5
"""Number of synthetic tables with even and unrelated columns, which differ in next to nothing."""
DECLARED_WORLDS = 15
"""Number of synthetic tables for standard errors, as the schema declares them."""
FOUR_IN_FIVE = (0.1, 0.9)
"""Quantiles between which four of five synthetic tables lie."""
SELDOM = 0.1
"""Least share of draws that print a line, for a forecast of its standard error."""
MORE_DRAWS = 2
"""Draws of the noise for each synthetic table, for standard errors."""
FEWEST, MOST = 50.0, 1e6
"""Bracket of the search for the number of rows that are needed."""
CLOSE = 0.1
"""Largest final width of that bracket, in the logarithm of the number."""
MERGES = frozenset({Cause.MERGED.value, Cause.SMALL_SITE.value})
"""Causes of refusals of levels and sites that are too rare for the noise."""
NEVER = MERGES | {Cause.SEPARATION.value, Cause.UNFINISHED.value}
"""Causes of refusals that do not depend on the precision of the other coefficients."""


class Made(NamedTuple):
    """A synthetic table."""

    rows: Rows
    # standard errors of the lines without privacy, times the root of the number of rows  (lines,)
    errors: Array


@dataclass(frozen=True)
class Asked(ABC):
    """A statistical model whose tables of coefficients are forecast on synthetic rows.

    Parameters
    ----------
    naming : Naming
        The encoding of its rows, with the names of the table's lines.
    """

    naming: Naming

    @property
    @abstractmethod
    def fit(self) -> fits.Fit:
        """The fit whose tables are forecast."""

    @property
    def layout(self) -> fits.Layout:
        """The layout of synthetic rows, at sites of equal size."""
        sites = max(1, len(self.naming.sites))
        return fits.Layout(self.naming, np.full(sites, ROWS / sites))

    @property
    def recipe(self) -> Recipe:
        """The recipe, without noise."""
        return self.fit.recipe

    @property
    def loss(self) -> Loss:
        """The loss of the rows, with weights where they may be longer than 1."""
        return self.fit.loss

    @property
    @abstractmethod
    def label_assumption(self) -> str:
        """The assumption about labels, as a clause for the user."""

    @abstractmethod
    def draw_synthetic_table(self, rng: np.random.Generator, habits: Habits) -> Made:
        """Draw a synthetic table of `ROWS` rows, whose columns are distributed as `habits` say."""

    @abstractmethod
    def simulate_tables(
        self, made: Made, n: float, mu: float, relation: str, draws: int, seed: int
    ) -> list[Coefficients]:
        """Simulate tables of coefficients for n rows like those of a synthetic table.

        Parameters
        ----------
        made : Made
            Synthetic rows.
        n : float
            Number of rows to simulate.
        mu : float
            Sensitivity over sigma of the whole plan (mu of Gaussian differential privacy).
        relation : {"replace-one", "zero-out"}
            Neighbouring relation.
        draws : int
            Number of draws of the noise.
        seed : int
            Seed of the noise.

        Returns
        -------
        list of Coefficients
            One for each draw.
        """

    def _simulate_outcome(
        self, made: Made, n: float, mu: float, relation: str, draws: int, seed: int
    ) -> Any:
        """Run the recipe on synthetic rows, with the noise that n rows would have.

        Parameters are those of :meth:`simulate_tables`; the recipe's outcome is returned.
        """
        facts = facts_of_one_curator(self.loss, self.naming.d, n, relation)
        recipe = with_curators_noise(self.recipe, mu)
        return run_on_synthetic_rows(recipe, made.rows, facts, draws, np.random.default_rng(seed))

    def _errors_without_privacy(self, X: Array, bends: Array, squares: Array) -> Array:
        """Compute standard errors without privacy, times the root of the number of rows, (lines,).

        They are those of the sandwich covariance of rows X, (n, d).  `bends`, (n,), are second
        derivatives of the rows' losses in the score, and `squares`, (n,), mean squares of the first
        derivatives.
        """
        # rows longer than 1 count for less (docs/privacy/answers.md, "Long rows")
        weight = 1.0 / np.maximum(1.0, np.sum(X**2, axis=1))
        H = (X.T * (weight * bends)) @ X / len(X)
        J = (X.T * (weight**2 * squares)) @ X / len(X)
        # H is singular if no synthetic row has a level, so its pseudo-inverse is taken.
        turned = self.naming.into_units @ np.linalg.pinv(H, hermitian=True)
        return np.asarray(np.sqrt(np.einsum("ij,jk,ik->i", turned, J, turned)))

    def _build_rows(self, X: Array, y: Array) -> Rows:
        """Construct the rows of one site, of any norm where the encoding does not bound them."""
        if self.naming.long:
            return Rows.build_with_any_norm([(X, y)])
        return Rows.build_from_parts([(X, y)])


@dataclass(frozen=True)
class LogOdds(Asked):
    """Log-odds of a label with two classes; `positives` is the share of positive rows."""

    positives: float = Assumed().positives

    def __post_init__(self) -> None:
        if not 0.0 < self.positives < 1.0:
            rule = "must be inside (0, 1)"
            raise InvalidInput("positives", self.positives, rule, "use the share that you expect")

    @property
    def fit(self) -> fits.Fit:
        return fits.LogOdds(self.layout)

    @property
    def label_assumption(self) -> str:
        return f"{self.positives:.3g} of the rows are positive"

    def draw_synthetic_table(self, rng: np.random.Generator, habits: Habits) -> Made:
        """Draw rows, and labels by a logistic model of random coefficients."""
        X = draw_synthetic_rows(self.naming, ROWS, rng, habits)
        effect = habits.effect * math.exp(habits.effect_varied * rng.normal())
        chance = positive_probabilities(
            effect * draw_linear_scores(X, self.naming.marks, rng), self.positives
        )
        y = np.where(rng.random(len(X)) < chance, 1.0, -1.0)
        # If the model holds, the mean squared derivative of the loss is its curvature p (1 - p).
        bends = chance * (1.0 - chance)
        return Made(self._build_rows(X, y), self._errors_without_privacy(X, bends, bends))

    def simulate_tables(
        self, made: Made, n: float, mu: float, relation: str, draws: int, seed: int
    ) -> list[Coefficients]:
        """Simulate tables of log-odds: all draws of the noise in one run of the recipe.

        Parameters
        ----------
        made, n, mu, relation, draws, seed
            As for :meth:`Asked.simulate_tables`.

        Returns
        -------
        list of Coefficients
        """
        found = self._simulate_outcome(made, n, mu, relation, draws, seed)
        return [
            build_coefficient_table(found, self.naming, replicate) for replicate in range(draws)
        ]


@dataclass(frozen=True)
class Means(Asked):
    """Least squares of a bounded number.

    `residuals` is the standard deviation of residuals over the width of the bounds, in (0, 0.5].
    """

    task: BoundedNumber
    residuals: float = Assumed().residuals

    def __post_init__(self) -> None:
        if not 0.0 < self.residuals <= 0.5:
            rule = "must be above 0 and at most .5, as a share of the width of the label's bounds"
            raise InvalidInput(
                "residuals", self.residuals, rule, "use what you expect, such as .15"
            )

    @property
    def fit(self) -> fits.Fit:
        return fits.Numbers(self.layout, task=self.task, intervals=True)

    @property
    def label_assumption(self) -> str:
        deviation = self.residuals * (self.task.high - self.task.low)
        return f"residuals have a standard deviation of {deviation:.3g}"

    def draw_synthetic_table(self, rng: np.random.Generator, habits: Habits) -> Made:
        """Draw rows, and targets by a linear model of random coefficients with normal residuals."""
        X = draw_synthetic_rows(self.naming, ROWS, rng, habits)
        deviation = 2.0 * self.residuals  # targets are in [-1, 1]
        explained_deviation = deviation * math.sqrt(EXPLAINED / (1.0 - EXPLAINED))
        explained = explained_deviation * draw_linear_scores(X, self.naming.marks, rng)
        target = np.clip(explained + deviation * rng.normal(size=len(X)), -1.0, 1.0)
        ones = np.ones(len(X))
        rows = self._build_rows(X, ones).with_offset([target])
        # The second derivative of the squared loss is 1, and the first one is the residual.
        errors = self._errors_without_privacy(X, ones, deviation**2 * ones)
        half_width = 0.5 * (self.task.high - self.task.low)
        return Made(rows, half_width * errors)

    def simulate_tables(
        self, made: Made, n: float, mu: float, relation: str, draws: int, seed: int
    ) -> list[Coefficients]:
        """Simulate tables of least squares, in the target's unit.

        Parameters
        ----------
        made, n, mu, relation, draws, seed
            As for :meth:`Asked.simulate_tables`.

        Returns
        -------
        list of Coefficients
        """
        # Replicates of this recipe share a histogram, so each draw is a run of its own.
        outcomes = [
            self._simulate_outcome(made, n, mu, relation, 1, seed + draw) for draw in range(draws)
        ]
        return [table_in_target_units(outcome, self.naming, self.task) for outcome in outcomes]


def is_complete(found: Coefficients) -> bool:
    """Return whether every coefficient is printed that a larger table could print.

    Levels that were merged count as missing, as with more rows they have coefficients.
    """
    return all(line.refused is None or line.cause in NEVER - MERGES for line in found.lines)


def is_half_complete(found: Coefficients) -> bool:
    """Return whether at least half of the coefficients are printed, without causes in `NEVER`."""
    shown = list[bool]()
    for line in found.lines:
        if line.refused is None or line.cause not in NEVER:
            shown.append(line.refused is None)
    return bool(shown) and float(np.mean(shown)) >= 0.5


class RowsNeeded(NamedTuple):
    """Least numbers of rows for a table of coefficients; medians over synthetic tables."""

    half: float  # for half of the coefficients
    complete: float  # for all of them
    half_range: tuple[float, float]  # range of `half` for four of five tables


class LineAhead(NamedTuple):
    """Forecast of one line of a table of coefficients."""

    term: Term
    # median over the draws that print the line; None if hardly any draw does
    standard_error: float | None
    without_privacy: float  # standard error without noise
    printed: float  # share of draws that print the line

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "name": self.term.name,
            "level": self.term.level,
            "reference": self.term.reference,
            "unit": self.term.unit,
            "standard_error": self.standard_error,
            "without_privacy": self.without_privacy,
            "printed": self.printed,
        }


@dataclass(frozen=True)
class Study:
    """A forecast's statistical model and its noise.

    Parameters
    ----------
    asked : Asked
    mu : float
        Sensitivity over sigma of the whole plan, for the noise of one curator who has all rows.
    relation : {"replace-one", "zero-out"}
    """

    asked: Asked
    mu: float
    relation: str = "replace-one"

    @classmethod
    def from_sites(
        cls,
        asked: Asked,
        mu: float,
        *,
        sites: int = 1,
        summed: bool = True,
        colluders: int = 1,
        relation: str = "replace-one",
    ) -> Study:
        """Construct a study of several sites, as one curator with the noise of them all.

        The variance of the noise of local answers adds up over sites; that of secure sums is
        ``sites / (sites - colluders)`` times that of a single curator.

        Parameters
        ----------
        asked : Asked
        mu : float
            Sensitivity over sigma of the whole plan, of a row at its site.
        sites : int
            Number of sites.
        summed : bool
            Whether only sums over sites are opened.
        colluders : int
            Number of sites that may collude.
        relation : {"replace-one", "zero-out"}
            Neighbouring relation.

        Returns
        -------
        Study
        """
        # The noise variance, over that of a single curator (docs/privacy/answers.md, "Two ways to
        # ask").
        noisier = float(sites)
        if summed and sites > colluders:
            noisier = sites / (sites - colluders)
        return cls(asked, mu / math.sqrt(noisier), relation)

    def draw_synthetic_tables(self, habits: Habits, count: int) -> list[Made]:
        """Draw `count` synthetic tables with fixed seeds: the same for equal encodings."""
        generators = [np.random.default_rng([number, 41]) for number in range(count)]
        return [self.asked.draw_synthetic_table(rng, habits) for rng in generators]

    def simulate_tables(
        self, synthetic_tables: Sequence[Made], n: float, draws: int
    ) -> list[list[Coefficients]]:
        """Simulate tables of coefficients for n rows like those of each synthetic table.

        Parameters
        ----------
        synthetic_tables : sequence of Made
            Tables of rows, to which recipes are applied.
        n : float
            Number of rows.
        draws : int
            Draws of the noise for each synthetic table.

        Returns
        -------
        list of list of Coefficients
            For each synthetic table, one table of coefficients for each draw.
        """
        # A table's draws may have seeds of their own, from this one on: `draws` seeds each, so that
        # no two tables have noise in common.
        return [
            self.asked.simulate_tables(
                table, n, self.mu, self.relation, draws=draws, seed=number * draws
            )
            for number, table in enumerate(synthetic_tables)
        ]

    def estimate_rows_needed(self, habits: Habits, count: int) -> RowsNeeded:
        """Estimate the least numbers of rows for half of a table's lines, and for all of them.

        They are medians over `count` synthetic tables, whose columns are distributed as `habits`.
        """
        synthetic_tables = self.draw_synthetic_tables(habits, count)
        log_rows = np.array(
            [self._search_log_rows(table, number) for number, table in enumerate(synthetic_tables)]
        )
        quantiles = (FOUR_IN_FIVE[0], 0.5, FOUR_IN_FIVE[1])
        low, middle, high = np.exp(np.quantile(log_rows, quantiles, axis=0))
        return RowsNeeded(
            half=float(middle[0]),
            complete=float(middle[1]),
            half_range=(float(low[0]), float(high[0])),
        )

    def _search_log_rows(self, made: Made, seed: int) -> tuple[float, float]:
        """Find the least numbers of rows for half of one synthetic table's lines, and for all.

        By bisection, with noise of this seed; their logarithms are returned.
        """
        # Both searches begin at the same numbers of rows, so tables are kept.
        drawn = dict[float, Coefficients]()

        def bisect_log_rows(enough: Callable[[Coefficients], bool]) -> float:
            """Return the logarithm of the least number of rows whose table is `enough`."""
            few, many = math.log(FEWEST), math.log(MOST)
            while many - few > CLOSE:
                middle = (few + many) / 2.0
                if middle not in drawn:
                    n = math.exp(middle)
                    (drawn[middle],) = self.asked.simulate_tables(
                        made, n, self.mu, self.relation, draws=1, seed=seed
                    )
                if enough(drawn[middle]):
                    many = middle
                else:
                    few = middle
            return (few + many) / 2.0

        return bisect_log_rows(is_half_complete), bisect_log_rows(is_complete)

    def forecast_lines(self, n: float, habits: Habits) -> list[LineAhead]:
        """Forecast every line of a table of n rows whose columns are distributed as `habits`."""
        synthetic_tables = self.draw_synthetic_tables(habits, DECLARED_WORLDS)
        by_table = self.simulate_tables(synthetic_tables, n, MORE_DRAWS)
        drawn = [coefficients for of_table in by_table for coefficients in of_table]
        errors_at_one_row = np.median([table.errors for table in synthetic_tables], axis=0)
        without_privacy = errors_at_one_row / math.sqrt(n)
        lines_ahead = list[LineAhead]()
        for k, term in enumerate(self.asked.naming.terms):
            lines = [coefficients.lines[k] for coefficients in drawn]
            errors = [line.standard_error for line in lines if line.refused is None]
            printed = len(errors) / len(drawn)
            standard_error = None
            if printed >= SELDOM:
                standard_error = float(np.median(np.array(errors, dtype=float)))
            lines_ahead.append(LineAhead(term, standard_error, float(without_privacy[k]), printed))
        return lines_ahead


def forecast_coefficients(study: Study, n: float, assumed: Assumed) -> dict[str, Any]:
    """Forecast which coefficients a table of n rows will print, and how precisely.

    Parameters
    ----------
    study : Study
        The statistical model and its noise.
    n : float
        Number of rows of all sites.
    assumed : Assumed
        Its correlation between numbers is used for standard errors, and its shares of levels for
        all forecasts.

    Returns
    -------
    dict
        Plain data:

        - ``rows_half``, ``rows_needed``: least numbers of rows for half of the coefficients, and
          for all of them; medians over synthetic tables that resemble real ones;
        - ``rows_half_range``: the range of the first for four of five synthetic tables;
        - ``rows_even``: least number of rows for all coefficients if columns fill their declared
          ranges and are uncorrelated;
        - ``standard_errors``: of every line (:class:`LineAhead`), if declared ranges are right;
        - ``rows``: n;
        - ``expects``: the assumptions, in words for the user.

    Raises
    ------
    InvalidInput
        If the correlation is not inside (-1, 1).
    """
    correlation = assumed.correlation
    if not -1.0 < correlation < 1.0:
        raise InvalidInput(
            "correlation", correlation, "must be inside (-1, 1)", "use what you expect, such as .3"
        )
    schema = study.asked.naming.schema
    shares = dict[str, dict[str, float]]()
    if schema is not None:
        shares = parse_expected_shares(schema, assumed.shares)
    real = study.estimate_rows_needed(replace(REAL, shares=shares), REAL_WORLDS)
    even = study.estimate_rows_needed(replace(EVEN, shares=shares), EVEN_WORLDS)
    ahead = study.forecast_lines(n, replace(DECLARED, together=correlation, shares=shares))
    levels = "levels are"
    if shares:
        levels = "levels have the given shares, other levels are"
    expects = (
        f"{levels} about equally frequent, {study.asked.label_assumption}, and each number has a "
        f"correlation of {correlation:g} with the next"
    )
    return {
        "rows_half": round_up_two_digits(real.half),
        "rows_half_range": [round_up_two_digits(rows) for rows in real.half_range],
        "rows_needed": round_up_two_digits(real.complete),
        "rows_even": round_up_two_digits(even.complete),
        "rows": n,
        "expects": expects,
        "standard_errors": [line.to_dict() for line in ahead],
    }


def forecast_prepared_plan(asked: Asked, prepared: Prepared, assumed: Assumed) -> dict[str, Any]:
    """Forecast the table of a recipe whose plan is priced.

    Parameters
    ----------
    asked : Asked
    prepared : Prepared
        The priced plan, with the number of sites and the trust.
    assumed : Assumed

    Returns
    -------
    dict
        As :func:`forecast_coefficients`; empty without noise.
    """
    recipe, facts = prepared.algorithm, prepared.facts
    if not isinstance(recipe, Recipe) or recipe.noise is None:
        return {}
    study = Study.from_sites(
        asked,
        recipe.releases_with_noise.total_mu,
        sites=facts.n_nodes,
        summed=facts.participants > 0,
        colluders=facts.colluders,
        relation=facts.relation,
    )
    return forecast_coefficients(study, float(facts.n.sum()), assumed)


def forecast_from_schema(
    schema: Schema,
    config: RunConfig,
    sizes: Array,
    site_constants: bool,
    assumed: Assumed,
    life: float | None,
) -> dict[str, Any]:
    """Price an inference and forecast its table from a schema and numbers of rows alone.

    Parameters
    ----------
    schema : Schema
        Of two classes, or of a number with bounds.
    config : RunConfig
        With the budget and the trust.
    sizes : array (sites,)
        Rows of every site.
    site_constants : bool
        Whether every site has a constant of its own.
    assumed : Assumed
        What is assumed of the rows.
    life : float or None
        The lifetime budget of a ledger, as epsilon.

    Returns
    -------
    dict
        Sizes, cost and forecast as plain data.

    Raises
    ------
    InvalidInput
        For labels of several classes, and options that inference does not have.
    """
    names = list[str]()
    if site_constants and len(sizes) > 1:
        names = [str(k) for k in range(len(sizes))]
    naming = naming_from_any(schema, [], 1.0, names)
    task = schema.task
    asked: Asked
    if isinstance(task, BoundedNumber):
        asked = Means(naming, task, assumed.residuals)
    elif isinstance(task, TwoClasses):
        check_run_is_inference(config)
        asked = LogOdds(naming, assumed.positives)
    else:
        raise InvalidInput(
            "label",
            None,
            "coefficients with intervals need a label with two classes or a bounded number",
            "declare one of them in the schema",
        )
    column = np.asarray(sizes, dtype=float)[:, None]
    own = config.for_recipe(asked.recipe)
    prepared = prepare(own, column, naming.d, method=asked.recipe, loss=asked.loss)
    cost = cost_report(prepared, caveat=schema.caveat, life=life)
    answers = {
        "method": "inference",
        "held": [0] * len(sizes),
        "forecast": forecast_prepared_plan(asked, prepared, assumed),
    }
    return public_sizes(own, column, naming.d) | cost | answers
