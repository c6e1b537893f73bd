"""Coefficients with names, by one path for all doors: the command line, estimators, and runs between sites.

A door knows rows and sites.  What follows from them is decided here once: which sites have a constant of their own, the
encoding and its names, the recipe and its loss, the table, and the model that is saved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..algorithms.recipe import Recipe
from ..data.labels import targets_of
from ..data.rows import Rows
from ..data.schema import Schema
from ..data.values import identity, text_of
from ..errors import InvalidInput
from ..problem.losses import HuberResidual, Logistic, Loss
from ..problem.task import BoundedNumber
from ..problem.weighted_loss import Weighted
from ..util import files
from ..util.typing import Any, Array
from .coefficients import Coefficients, table
from .inference import Estimates, model_of, newton_of
from .least_squares import slopes_of, table_of
from .regression import LeastSquares
from .saved import SavedModel
from .terms import CONSTANT, Naming, naming_of


def site_constants(names: Sequence[Any], *, at_random: bool, asked: bool | None = None) -> tuple[str, ...]:
    """Names of the sites that get a constant of their own; none if all rows share one.

    Parameters
    ----------
    names : sequence
        What the sites are called.
    at_random : bool
        Whether rows were dealt at random: such sites differ by nothing but chance.
    asked : bool, optional
        What the user wants; None for a constant at every site unless rows were dealt at random.
    """
    wanted = not at_random if asked is None else asked
    return tuple(identity(text_of(name)) for name in names) if wanted and len(names) > 1 else ()


def check_products(sites: int, columns: int) -> None:
    """Refuse, by InvalidInput, constants of so many sites that one process cannot hold the products of all of them.

    The products of d columns, d (d + 1) / 2 numbers, are asked of every site; a constant is a column.
    """
    d = columns + sites
    size = 8.0 * sites * d * (d + 1) / 2.0
    if size > 0.5 * files.memory():
        rule = f"gives each of {sites:,} sites a column: products of {d:,} columns at every site take more than memory"
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
        The column by which rows lie at sites; None if no column says it.
    """

    naming: Naming
    sizes: Array
    site: str | None = None

    @classmethod
    def of(
        cls, schema: Schema | None, columns: Sequence[str], data_norm: float, sizes: Sequence[int],
        constants: Sequence[str], site: str | None = None,
    ) -> Layout:  # fmt: skip
        """The encoding of a schema, or of numbers by the names of their `columns`; `constants` name sites with one."""
        naming = naming_of(schema, columns, data_norm, constants)
        return cls(naming, np.array(sizes, dtype=float), site)

    def saved(self, model: Array, schema: Schema | None, record: dict[str, Any] | None = None) -> SavedModel:
        """A model in this encoding; a row of no known site gets the constants' average by the sites' shares of rows.

        `schema` is that of the saved model: with the label that its answers have.
        """
        own = bool(self.naming.sites)
        shares = self.sizes / self.sizes.sum() if own else np.ones(1)
        return SavedModel(self.naming, model, shares, record or {}, schema, site=self.site if own else None)


class Found(NamedTuple):
    """What a recipe found, from its first replicate: everything that is shown of it comes from here."""

    model: Array  # for predictions, in encoded columns
    table: Coefficients | None  # with intervals, if the recipe has them
    plain: dict[str, Any]  # the coefficients, as records and files hold them


@dataclass(frozen=True)
class Fit(ABC):
    """What is asked of rows in a layout, and how its outcome is read."""

    layout: Layout

    @property
    @abstractmethod
    def recipe(self) -> Recipe:
        """The releases."""

    @property
    @abstractmethod
    def plain_loss(self) -> Loss:
        """The loss of rows of norm 1 at most."""

    @property
    def loss(self) -> Loss:
        """The loss of the rows, which weighs long ones down."""
        return Weighted(self.plain_loss) if self.layout.naming.long else self.plain_loss

    @abstractmethod
    def read(self, outcome: Any, delta: float | None) -> Found:
        """The first replicate's coefficients and model; with a `delta` refusals name the epsilon that would do."""


@dataclass(frozen=True)
class LogOdds(Fit):
    """Log-odds of two classes with intervals (:mod:`sottovoce.answers.inference`)."""

    @property
    def recipe(self) -> Recipe:
        return newton_of(self.layout.naming)

    @property
    def plain_loss(self) -> Loss:
        return Logistic()

    def rows(self, tables: Sequence[Any], labels: Sequence[Array]) -> Rows:
        """Rows of the sites from their tables and labels -1, 1, or 0 for none."""
        return self.layout.naming.rows(list(zip(tables, labels, strict=True)))

    def read(self, outcome: Estimates, delta: float | None) -> Found:
        lines = table(outcome, self.layout.naming, delta=delta)
        return Found(model_of(outcome)[0], lines, lines.plain())


@dataclass(frozen=True)
class Numbers(Fit):
    """Least squares of a bounded number: with `intervals` by :mod:`sottovoce.answers.least_squares`.

    Without, by :mod:`sottovoce.answers.regression`, which predicts better where there is much noise.  Without an
    `intercept` the constants stay 0.
    """

    task: BoundedNumber = field(kw_only=True)
    intervals: bool = field(kw_only=True)
    intercept: bool = True

    @property
    def recipe(self) -> Recipe:
        naming = self.layout.naming
        if self.intervals:
            return slopes_of(naming)
        free = np.ones(naming.d) if self.intercept else 1.0 - naming.constant
        return LeastSquares(constant=naming.constant, free=free)

    @property
    def plain_loss(self) -> Loss:
        return HuberResidual(1.0)

    def rows(self, tables: Sequence[Any], targets: Sequence[Array], weights: Sequence[Array] | None = None) -> Rows:
        """Rows of the sites from their tables and targets in [-1, 1], NaN for none."""
        known = [self.task.known(y).astype(float) for y in targets]
        rows = self.layout.naming.rows(list(zip(tables, known, strict=True)))
        if weights is not None:
            rows = rows.with_weight(list(weights))
        return rows.with_offset(targets_of(list(zip(known, targets, strict=True))))

    def read(self, outcome: Any, delta: float | None) -> Found:
        naming = self.layout.naming
        if self.intervals:
            lines = table_of(outcome, naming, self.task, delta)
            return Found(model_of(outcome)[0], lines, lines.plain())
        model = np.asarray(outcome[0])
        return Found(model, None, {"coefficients": self.lines(model), "needs": None, "weighed": naming.weighed})

    def lines(self, model: Array) -> list[dict[str, Any]]:
        """Coefficients without intervals, in the units of the columns and of the target.

        A constant is the target of a row of zeros.
        """
        naming = self.layout.naming
        half = 0.5 * (self.task.high - self.task.low)
        found = []
        for term, value in zip(naming.terms, naming.into_units @ model, strict=True):
            number = half * float(value) + (self.task.low + half if term.name == CONSTANT else 0.0)
            names = {"name": term.unit or term.name, "level": term.level, "reference": term.reference}
            found.append(names | {"estimate": number})
        return found
