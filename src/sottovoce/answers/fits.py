"""Fits of models with named coefficients, for all doors: the command line, estimators, and runs
between sites.

A door (caller) knows rows and sites.  Everything that follows is decided here: which sites have a
constant (intercept) of their own, the encoding and the names of its columns, the recipe (list of
releases) and its loss, the table of coefficients, and the model that is saved.  A *layout* is an
encoding with the sizes of the sites; a *fit* is a statistical model for rows in a layout.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ..algorithms.recipe import Recipe
from ..data.labels import numbers_to_predict
from ..data.rows import Rows
from ..data.schema import Schema
from ..data.values import canonical_text, value_as_text
from ..errors import InvalidInput
from ..problem.losses import HuberResidual, Logistic, Loss
from ..problem.task import BoundedNumber, EventRate
from ..problem.weighted_loss import Weighted
from ..util import files
from ..util.typing import Any, Array
from .coefficients import Coefficients, build_coefficient_table
from .inference import Estimates, models_for_predictions, newton_from_naming
from .least_squares import slopes_from_naming, table_in_target_units
from .rates import WEIGHED_ROWS, naming_of_rates, rows_of_people, steps_from_naming
from .regression import LeastSquares
from .saved import SavedModel
from .terms import CONSTANT, Naming, naming_from_any


def sites_with_constants(
    names: Sequence[Any], *, at_random: bool, asked: bool | None = None
) -> tuple[str, ...]:
    """Return the names of the sites that get a constant of their own; none if all rows share one.

    Parameters
    ----------
    names : sequence
        Names of all sites.
    at_random : bool
        Whether rows were partitioned at random: such sites differ by chance alone.
    asked : bool, optional
        The user's choice; None for a constant at every site unless rows were partitioned at random.

    Returns
    -------
    tuple of str
        Canonical names; empty for a single site.
    """
    wanted = asked
    if wanted is None:
        wanted = not at_random
    if not wanted or len(names) <= 1:
        return ()
    return tuple(canonical_text(value_as_text(name)) for name in names)


def check_product_memory(sites: int, columns: int) -> None:
    """Check that the products of columns of all sites fit into half of the memory.

    Every site is asked for the products of d columns, d (d + 1) / 2 numbers, and each of `sites`
    constants is one of these columns, in addition to `columns` encoded ones.

    Raises
    ------
    InvalidInput
        If they do not.
    """
    d = columns + sites
    size = 8.0 * sites * d * (d + 1) / 2.0  # bytes
    if size > 0.5 * files.machine_memory_bytes():
        rule = (
            f"gives each of {sites:,} sites a column of its own, and the products of {d:,} columns "
            "at every site need more than half of the memory"
        )
        raise InvalidInput("site_constants", True, rule, "use site_constants=no, or fewer sites")


@dataclass(frozen=True)
class Layout:
    """Rows at sites in an encoding whose coefficients have names.

    Parameters
    ----------
    naming : Naming
    sizes : array (sites,)
        Rows of every site.
    site : str, optional
        Name of the raw column that says a row's site; None if no column does.
    """

    naming: Naming
    sizes: Array
    site: str | None = None

    @classmethod
    def from_schema(
        cls,
        schema: Schema | None,
        columns: Sequence[str],
        data_norm: float,
        sizes: Sequence[int],
        constants: Sequence[str],
        site: str | None = None,
    ) -> Layout:
        """Derive the encoding of a schema, or of numbers without one, for rows at these sites.

        Parameters
        ----------
        schema : Schema or None
        columns : sequence of str
            Names of the numbers' columns; used without a schema only.
        data_norm : float
            Norm that most rows of numbers do not exceed; used without a schema only.
        sizes : sequence of int (sites,)
            Rows of every site.
        constants : sequence of str
            Names of the sites with constants of their own; empty for one constant.
        site : str, optional
            The column that says a row's site.

        Returns
        -------
        Layout
        """
        naming = naming_from_any(schema, columns, data_norm, constants)
        return cls(naming, np.array(sizes, dtype=float), site)

    def to_saved_model(
        self, model: Array, schema: Schema | None, record: dict[str, Any] | None = None
    ) -> SavedModel:
        """Return a model in this encoding, ready to be saved.

        A row of an unknown site gets the average of the sites' constants, weighted by their rows.

        Parameters
        ----------
        model : array (d,)
            Coefficients of the encoded columns.
        schema : Schema or None
            Schema of the saved model, with the label that it predicts.
        record : dict, optional
            The run's report as plain data.

        Returns
        -------
        SavedModel
        """
        shares = np.ones(1)
        site: str | None = None
        if self.naming.sites:
            shares = self.sizes / self.sizes.sum()
            site = self.site
        return SavedModel(self.naming, model, shares, record or {}, schema, site=site)


class Found(NamedTuple):
    """Model and coefficients of a recipe's first replicate, as all doors show and save them."""

    model: Array  # for predictions, in encoded columns
    table: Coefficients | None  # with intervals, if the recipe has them
    plain: dict[str, Any]  # the coefficients, as records and files hold them


@dataclass(frozen=True)
class Fit(ABC):
    """A statistical model for rows in a layout: recipe, loss, and reading of the outcome."""

    layout: Layout

    @property
    @abstractmethod
    def recipe(self) -> Recipe:
        """The recipe that is run: the list of its releases."""

    @property
    @abstractmethod
    def unweighted_loss(self) -> Loss:
        """The loss for rows of norm at most 1."""

    @property
    def loss(self) -> Loss:
        """The loss for these rows: weighted down for rows longer than 1, if there may be such."""
        if self.layout.naming.long:
            return Weighted(self.unweighted_loss)
        return self.unweighted_loss

    @abstractmethod
    def read_outcome(self, outcome: Any, delta: float | None) -> Found:
        """Read the first replicate's model and coefficients from the recipe's outcome.

        With a `delta`, refusals name the epsilon that would suffice.
        """


@dataclass(frozen=True)
class LogOdds(Fit):
    """Log-odds of two classes with intervals (:mod:`sottovoce.answers.inference`)."""

    @property
    def recipe(self) -> Recipe:
        return newton_from_naming(self.layout.naming)

    @property
    def unweighted_loss(self) -> Loss:
        return Logistic()

    def encode_rows(self, tables: Sequence[Any], labels: Sequence[Array]) -> Rows:
        """Encode the rows of all sites, from each site's raw columns and its labels (n_i,).

        Labels are -1, 1, or 0 for none.
        """
        return self.layout.naming.rows_of_sites(list(zip(tables, labels, strict=True)))

    def read_outcome(self, outcome: Estimates, delta: float | None) -> Found:
        """Return the model and the table of log-odds; see :meth:`Fit.read_outcome`."""
        lines = build_coefficient_table(outcome, self.layout.naming, delta=delta)
        return Found(models_for_predictions(outcome)[0], lines, lines.to_plain_data())


@dataclass(frozen=True)
class LogRates(Fit):
    """Log hazards or log rates of counts, with intervals (:mod:`sottovoce.answers.rates`).

    Parameters
    ----------
    task : EventRate
    noisy : bool
        Whether releases have noise: without it steps cost nothing, and there are more.
    """

    task: EventRate = field(kw_only=True)
    noisy: bool = field(kw_only=True)

    @property
    def naming(self) -> Naming:
        """The encoding with a constant for every interval of time."""
        return naming_of_rates(self.layout.naming, self.task.edges)

    @property
    def recipe(self) -> Recipe:
        task = self.task
        return steps_from_naming(
            self.naming, task.edges, task.most, dated=task.dated, noisy=self.noisy
        )

    @property
    def unweighted_loss(self) -> Loss:
        return Logistic()

    @property
    def loss(self) -> Loss:
        # Rows hold times and events beside their columns, and may so be longer than 1; the recipe's
        # sums have bounds and weights of their own.
        return Weighted(self.unweighted_loss)

    def encode_rows(self, tables: Sequence[Any], labels: Sequence[Array]) -> Rows:
        """Encode the people of all sites, from each site's raw columns and encoded labels (n_i,).

        A person without a known label is a row of zeros.
        """
        intervals = len(self.task.edges) - 1
        parts = []
        for table, y in zip(tables, labels, strict=True):
            events, time = self.task.events_and_time(y)
            encoded = self.layout.naming.encode_with_one_constant(table)
            rows = rows_of_people(encoded, time, events / self.task.most, intervals)
            parts.append((rows, self.task.has_known_label(y).astype(float)))
        return Rows.build_with_any_norm(parts)

    def read_outcome(self, outcome: Estimates, delta: float | None) -> Found:
        """Return the model and the table of log ratios; see :meth:`Fit.read_outcome`.

        The model predicts the logarithm of the mean rate until the last edge.
        """
        ratio = "hazard_ratio" if self.task.dated else "rate_ratio"
        lines = replace(
            build_coefficient_table(outcome, self.naming, delta=delta),
            ratio=ratio,
            weighed=WEIGHED_ROWS if self.noisy else "",
        )
        model = models_for_predictions(outcome)[0]
        columns = self.layout.naming.d - 1
        value = self.layout.naming.value
        widths = np.diff(self.task.edges) / self.task.edges[-1]
        mean = np.logaddexp.reduce(model[columns:] * value + np.log(widths)) / value
        return Found(np.append(model[:columns], mean), lines, lines.to_plain_data())


@dataclass(frozen=True)
class Numbers(Fit):
    """Least squares of a bounded number.

    With `intervals` it is that of :mod:`sottovoce.answers.least_squares`; without, that of
    :mod:`sottovoce.answers.regression`, which predicts better where there is much noise.  Without
    an `intercept` the constants stay 0.
    """

    task: BoundedNumber = field(kw_only=True)
    intervals: bool = field(kw_only=True)
    intercept: bool = True

    @property
    def recipe(self) -> Recipe:
        """Least squares with intervals, or with shrinkage for predictions alone."""
        naming = self.layout.naming
        if self.intervals:
            return slopes_from_naming(naming)
        free = np.ones(naming.d)
        if not self.intercept:
            free = 1.0 - naming.constant
        return LeastSquares(constant=naming.constant, free=free)

    @property
    def unweighted_loss(self) -> Loss:
        # At 0 the residual of a target in [-1, 1] is within 1, so its gradient is that of least
        # squares (docs/privacy/answers.md, "Least squares").
        return HuberResidual(1.0)

    def encode_rows(
        self,
        tables: Sequence[Any],
        targets: Sequence[Array],
        weights: Sequence[Array] | None = None,
    ) -> Rows:
        """Encode the rows of all sites.

        Parameters
        ----------
        tables : sequence
            Raw columns of each site, or arrays (n_i, columns) without a schema.
        targets : sequence of arrays (n_i,)
            In [-1, 1], NaN for rows without a target: they count as zero rows.
        weights : sequence of arrays (n_i,), optional
            Row weights; None for equal ones.

        Returns
        -------
        Rows
        """
        # The label of a row says whether it has a target; the target itself is its offset.
        known = [self.task.has_known_label(y).astype(float) for y in targets]
        rows = self.layout.naming.rows_of_sites(list(zip(tables, known, strict=True)))
        if weights is not None:
            rows = rows.with_weight(list(weights))
        return rows.with_offset(numbers_to_predict(list(zip(known, targets, strict=True))))

    def read_outcome(self, outcome: Any, delta: float | None) -> Found:
        """Return the model and its coefficients in the target's unit; see :meth:`Fit.read_outcome`.

        Without intervals there is no table.
        """
        naming = self.layout.naming
        if self.intervals:
            lines = table_in_target_units(outcome, naming, self.task, delta)
            return Found(models_for_predictions(outcome)[0], lines, lines.to_plain_data())
        model = np.asarray(outcome[0])
        coefficients = self.lines_without_intervals(model)
        plain = dict[str, Any](coefficients=coefficients, needs=None, weighed=naming.weighed)
        return Found(model, None, plain)

    def lines_without_intervals(self, model: Array) -> list[dict[str, Any]]:
        """Return coefficients without intervals, in the units of the columns and of the target.

        A constant is the predicted target of a row of zeros.
        """
        naming = self.layout.naming
        half_width = 0.5 * (self.task.high - self.task.low)
        middle = self.task.low + half_width
        found = []
        for term, value in zip(naming.terms, naming.into_units @ model, strict=True):
            shift = 0.0
            if term.name == CONSTANT:
                shift = middle
            found.append(
                {
                    "name": term.unit or term.name,
                    "level": term.level,
                    "reference": term.reference,
                    "estimate": half_width * float(value) + shift,
                }
            )
        return found
