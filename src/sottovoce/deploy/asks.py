"""Inference and evaluation that a plan asks for, after its training or instead of it.

An *inference* estimates coefficients with intervals; an *evaluation* measures quality (AUC, Brier
score) on held-out rows.  :class:`Asks` is that part of a plan, and :class:`SiteTable` the rows of a
site as both read them.

Which rows are held out depends only on their positions, so it is public, and a replaced row stays
on its side.  What is asked is priced in :mod:`sottovoce.deploy.recipes`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ..data.rows import Rows
from ..data.schema import Schema
from ..data.table import Table
from ..errors import InvalidInput
from ..util.codec import Unreadable, record_from_plain, record_to_plain
from ..util.constraints import (
    Flag,
    Interval,
    Text,
    constrained_field,
    optional_constraint,
    validate_fields_and_rules,
)
from ..util.typing import Any, Array, IntArray

_SCALE = optional_constraint(Interval(low=0.0, closed="neither"))
"""Constraint of a noise scale: None or a positive number."""
_MIXED = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""The constants of SplitMix64: its increment, and two multipliers."""


def held_out_positions(rows: int, many: int) -> IntArray:
    """Return the positions of the held-out rows among all rows of a site.

    The same share of the same table holds out the same rows in every plan; a larger share holds out
    these and others.

    Parameters
    ----------
    rows : int
        Rows of the site.
    many : int
        How many are held out: those whose positions have the smallest SplitMix64 hashes.

    Returns
    -------
    array of int, (many,)
        Increasing.
    """
    # The outputs of SplitMix64 (Steele, Lea and Flood, 2014) from seed 0, one a position: public,
    # and not to be chosen in view of the rows.
    z = (np.arange(rows, dtype=np.uint64) + np.uint64(1)) * np.uint64(_MIXED[0])
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIXED[1])
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIXED[2])
    return np.sort(np.argsort(z ^ (z >> np.uint64(31)), kind="stable")[:many])


@dataclass(frozen=True)
class SiteTable:
    """A site's table.

    Parameters
    ----------
    X : array (n, features)
        Encoded by the plan's schema.
    y : array (n,)
        -1, 1, or 0 for a row without a known label.
    columns : dict, optional
        Raw columns, for the encoding with reference levels; None without a schema.
    """

    X: Array
    y: Array
    columns: dict[str, Any] | None = None

    def rows(self) -> Rows:
        """Return all rows, as the training reads them."""
        return Rows.build_from_parts([(self.X, self.y)])

    @property
    def raw(self) -> Any:
        """What an inference encodes: the raw columns, or without a schema the encoded rows."""
        if self.columns is None:
            return self.X
        return self.columns

    def at(self, positions: IntArray) -> Self:
        """Return the rows at these positions."""
        columns = None
        if self.columns is not None:
            columns = {name: values[positions] for name, values in self.columns.items()}
        return replace(self, X=self.X[positions], y=self.y[positions], columns=columns)


@dataclass(frozen=True)
class Asks:
    """Inference and evaluation that a plan asks for; part of the plan, and public.

    Parameters
    ----------
    inference : bool
        Coefficients with intervals instead of training: the whole budget goes to Newton steps on
        sums.
    site_constants : bool
        Inference with an intercept for each site.
    evaluation : float, optional
        Epsilon of each held-out row, which only the evaluation reads.
    holdout : float
        Share of every site's rows that is held out.
    threshold : float
        Probability from which the evaluation counts a row as positive.
    by : str, optional
        Column of the schema for whose levels there are evaluations of their own.
    scale, evaluation_scale : float, optional
        Sensitivity over sigma of all releases together, of the inference and of the evaluation;
        None before the noise is calibrated, and without noise.
    """

    inference: bool = constrained_field(False, Flag())
    site_constants: bool = constrained_field(False, Flag())
    evaluation: float | None = constrained_field(
        None, optional_constraint(Interval(low=0.0, closed="high")), remedy="use 0.5"
    )
    holdout: float = constrained_field(0.0, Interval(), remedy="use 0.2")
    threshold: float = constrained_field(
        0.5, Interval(0.0, 1.0, closed="neither"), remedy="use 0.5"
    )
    by: str | None = constrained_field(None, optional_constraint(Text()), remedy="leave it out")
    scale: float | None = constrained_field(None, _SCALE, remedy="leave it out")
    evaluation_scale: float | None = constrained_field(None, _SCALE, remedy="leave it out")

    def __post_init__(self) -> None:
        validate_fields_and_rules(self)
        if not self.inference and self.evaluation is None:
            raise InvalidInput(
                "asks", None, "must ask for something", "ask for inference, an evaluation or both"
            )
        if self.site_constants and not self.inference:
            raise InvalidInput("site_constants", True, "is only for inference", "leave it out")
        if self.evaluation is None:
            idle = {
                "holdout": self.holdout != 0.0,
                "threshold": self.threshold != 0.5,
                "by": self.by is not None,
            }
            for name, given in idle.items():
                if given:
                    remedy = "give its epsilon, or leave it out"
                    raise InvalidInput(
                        name, getattr(self, name), "is only for an evaluation", remedy
                    )
            return
        if not 0.0 < self.holdout < 1.0:
            rule = "must be a share of every site's rows above 0 and below 1"
            raise InvalidInput("holdout", self.holdout, rule, "use 0.2")

    def held(self, rows: int) -> int:
        """Return the number of held-out rows of a site with `rows` rows."""
        return math.floor(self.holdout * rows)

    def split(self, rows: int) -> tuple[IntArray, IntArray]:
        """Return the positions of the training rows and of the held-out rows of a site."""
        held = held_out_positions(rows, self.held(rows))
        return np.setdiff1d(np.arange(rows), held), held

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; infinity is the text ``inf``."""
        plain = dict(record_to_plain(self))
        # JSON has no infinity
        if self.evaluation == math.inf:
            plain["evaluation"] = "inf"
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Return the object of the plain data that :meth:`to_dict` gives.

        Raises :class:`InvalidInput` for anything else.
        """
        try:
            if isinstance(plain, dict) and plain.get("evaluation") == "inf":
                plain = plain | {"evaluation": math.inf}
            return record_from_plain(cls, plain)
        except Unreadable as error:
            raise InvalidInput(
                "asks", None, f"is not valid: {error}", "write the plan again"
            ) from None


def make_site_table(
    schema: Schema | None, X: Array, y: Array, columns: dict[str, Any] | Table | None
) -> SiteTable:
    """Return a site's table from a loaded data set.

    Parameters
    ----------
    schema : Schema, optional
        Without it the table holds encoded rows alone.
    X : array (n, d)
        Encoded rows.
    y : array (n,)
        Labels.
    columns : dict or Table, optional
        Raw columns of the same rows.

    Returns
    -------
    SiteTable
    """
    raw = columns.columns if isinstance(columns, Table) else columns
    if schema is None or raw is None:
        return SiteTable(X, y)
    return SiteTable(X, y, dict(raw))
