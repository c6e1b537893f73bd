"""Expected norms of rows, from the schema alone: synthetic rows, their norms, and what to change.

Noise is sized for rows of norm 1, so it is wasted on shorter rows.  Expected rows follow from the
declarations: a number is uniform in its typical range, or in its bounds where none is declared,
after its transform; bins and categories of a block are equally likely; entries of a vector are
uniform in their bounds; blocks are independent; nothing is missing. Private rows are never read, so
the answers are public, and so is a schema that follows them.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..errors import InvalidInput
from ..util.enumerations import first_names
from ..util.typing import Array
from .columns import Bins, Category, Number, row_norms
from .schema import Schema, assemble_weighted_features, divide_into_unit_ball
from .synthetic_tables import Sketches, sketches_from_source
from .table import check_memory_fits

FULL = 0.9
"""Rows fill the ball if their typical norm before the division is at least this share of the
divisor.
"""
CROWDED = 1.25
"""The divisor is too small if nine rows in ten are longer by at least this factor."""
SHORTENED = 0.75
"""The divisor is also too small if at least this share of rows is clipped; with the proposed one
it is half of them.
"""
CONSTANT = 0.25
"""Largest share of a typical row's squared norm that the constant should take."""
SMALL_CONSTANT = 0.5
"""The intercept that is proposed where a larger one takes more than that share."""
MANY = 0.1
"""Share of synthetic rows longer than the divisor from which on a note is written."""
MOSTLY = 0.75
"""Rows are mostly a common offset if their mean has at least this share of a typical row's norm,
without the constant: more than half of the squared norm.  Where all columns have two levels it
is .71."""
# Entries of synthetic rows in memory while their norms are computed.
_ENTRIES = 2_000_000
# About how many entries the synthetic rows have from which `fill` takes its shares.
_DRAWN = 20_000_000
# A norm that exceeds the divisor by no more than this factor counts as equal to it.
_ROUNDED = 1.0 + 1e-9
_NAMED = 6  # columns in one sentence


def sketch(schema: Schema, n: int, rng: np.random.Generator) -> Array:
    """Draw n synthetic rows (n, d) of norm at most 1 that follow from the schema alone.

    Parameters
    ----------
    schema : Schema
        Rows are encoded as it encodes rows of a table: divided, and clipped to norm 1.
    n : int
        Number of rows, 0 or more.
    rng : numpy.random.Generator
        Its state determines the rows.

    Returns
    -------
    ndarray of shape (n, d)

    Raises
    ------
    InvalidInput
        If n is negative, or memory does not hold the rows.

    Examples
    --------
    >>> from sottovoce.data import builtin_schema
    >>> schema = builtin_schema("adult")
    >>> sketch(schema, 10, np.random.default_rng(0)).shape == (10, schema.n_features)
    True
    """
    if n < 0:
        raise InvalidInput("n", n, "must be >= 0", "give a number of rows")
    check_memory_fits("synthetic rows", 8.0 * n * schema.n_features)
    return divide_into_unit_ball(schema, draw_weighted_rows(schema, n, rng))[0]


def expected_rows(schema: Schema) -> Sketches:
    """Return the source of synthetic tables that ``method="auto"`` compares methods on."""
    return sketches_from_source(
        schema.fingerprint,
        "synthetic rows drawn from the schema",
        partial(sketch, schema),
        schema.n_features,
    )


def typical_undivided_norms(schema: Schema, n: int = 4000, seed: int = 0) -> Array:
    """Compute the norms of n synthetic rows before they are divided; deterministic.

    Parameters
    ----------
    schema : Schema
    n : int
        Number of rows; they are drawn in steps that fit in memory.
    seed : int
        Of the rows.

    Returns
    -------
    ndarray of shape (n,)
        Norms up to :attr:`Schema.bound`.
    """
    rng = np.random.default_rng(seed)
    step = _rows_at_once(schema)
    parts = []
    for start in range(0, n, step):
        rows = draw_weighted_rows(schema, min(step, n - start), rng)
        parts.append(row_norms(rows))
    # NumPy concatenates no empty list.
    return np.concatenate(parts or [np.empty(0)])


def _rows_at_once(schema: Schema) -> int:
    """Return how many synthetic rows are held in memory at a time."""
    return max(1, _ENTRIES // schema.n_features)


def typical_norms(schema: Schema, n: int = 4000, seed: int = 0) -> Array:
    """Compute the norms of n synthetic rows as :meth:`Schema.encode` returns them; deterministic.

    Parameters
    ----------
    schema : Schema
    n : int
        Number of rows.
    seed : int
        Of the rows.

    Returns
    -------
    ndarray of shape (n,)
        Norms in [0, 1].  Noise is sized for rows of norm 1.

    Examples
    --------
    >>> schema = Schema.from_dict({"columns": {"age": {"kind": "number", "lo": 0, "hi": 120}}})
    >>> typical_norms(schema, n=3).round(2)
    array([0.27, 0.46, 0.92])
    """
    return _norms_after_division(schema, typical_undivided_norms(schema, n, seed))


def draw_weighted_rows(schema: Schema, n: int, rng: np.random.Generator) -> Array:
    """Draw n synthetic rows before they are divided: weighted blocks, and the constant.

    Parameters
    ----------
    schema : Schema
    n : int
        Number of rows.
    rng : numpy.random.Generator
        Its state determines the rows.

    Returns
    -------
    ndarray of shape (n, d)
    """
    return assemble_weighted_features(schema, n, lambda block: block.draw_features(n, rng))


def common_offset_shares(schema: Schema, seed: int = 0) -> tuple[float, dict[str, float]]:
    """Compute how much of typical rows is a common offset, and from which blocks it comes.

    Returns the norm of the mean of synthetic rows over their root mean square norm, without the
    constant; and the share of every block in the mean's squared norm.  Rows are those of
    :func:`sketch`.
    """
    rng = np.random.default_rng(seed)
    n = _number_of_drawn_rows(schema)
    step = _rows_at_once(schema)
    total = np.zeros(schema.n_features)
    square = 0.0
    for start in range(0, n, step):
        X = sketch(schema, min(step, n - start), rng)
        kept = X[:, :-1] if schema.intercept else X
        square += float(np.sum(kept * kept))
        total += X.sum(axis=0)
    mean = total / n
    parts = dict[str, float]()
    first = 0
    for block in schema.blocks:
        last = first + len(block.feature_names)
        parts[block.name] = float(np.sum(mean[first:last] ** 2))
        first = last
    whole = sum(parts.values())
    # All rows may be zeros, and so may their mean be.
    shares = {name: part / whole if whole else 0.0 for name, part in parts.items()}
    offset = math.sqrt(whole / (square / n)) if square else 0.0
    return offset, shares


def share_of_long_rows(schema: Schema) -> float:
    """Estimate the share of rows that are longer than the divisor, from the schema alone."""
    return _share_beyond_divisor(
        schema, typical_undivided_norms(schema, _number_of_drawn_rows(schema))
    )


def note_on_long_rows(schema: Schema) -> list[str]:
    """Return a note if a training without row weights will clip many rows; otherwise nothing."""
    share = share_of_long_rows(schema)
    if share < MANY:
        return []
    what = (
        "are longer than the schema's scale and are clipped to norm 1, "
        "so coefficients describe the clipped rows"
    )
    return [f"about {share:.0%} of rows {what} (from the schema alone)"]


def _share_beyond_divisor(schema: Schema, sizes: Array) -> float:
    """Compute the share of rows longer than the schema's divisor; 0 with unit rows.

    `sizes` are the norms (n,) before the division.
    """
    if schema.unit:
        return 0.0
    return _share_longer_than(sizes, schema.divisor)


def _share_longer_than(sizes: Array, divisor: float) -> float:
    """Compute the share of norms (n,) before the division that exceed a divisor."""
    return float(np.mean(sizes > divisor * _ROUNDED))


def _round_typical_size(typical: float, sizes: Array) -> float:
    """Round the norm of a typical row to three digits: up where rounding down would clip nearly
    all rows, as where all rows have one norm.

    `sizes` are the norms (n,) of synthetic rows before the division.
    """
    nearest = float(f"{typical:.3g}")
    if _share_longer_than(sizes, nearest) < SHORTENED:
        return nearest
    step = 10.0 ** (math.floor(math.log10(typical)) - 2)
    return float(f"{nearest + step:.3g}")


def _shortest_exact_text(number: float) -> str:
    """Format a number in six digits if they are exact, else in all: a scale rounded up may exceed
    the bound and be refused.
    """
    short = f"{number:g}"
    if float(short) == number:
        return short
    return repr(number)


def _number_of_drawn_rows(schema: Schema) -> int:
    """Return how many synthetic rows to estimate shares from: fewer of more features."""
    return int(np.clip(_DRAWN // schema.n_features, 200, 4000))


def _norms_after_division(schema: Schema, sizes: Array) -> Array:
    """Compute the norms (n,) of rows after the division, from those before."""
    # A unit row has norm 1, and a row of zeros stays one.
    if schema.unit:
        return np.sign(sizes)
    return np.minimum(sizes / schema.divisor, 1.0)


@dataclass(frozen=True)
class Fill:
    """An estimate of how well rows of a schema will fill the unit ball.

    Attributes
    ----------
    low, median, high : float
        The 10%, 50% and 90% quantiles of a row's norm.
    shortened : float
        Share of rows that are longer than the divisor, and so clipped to norm 1; 0 with unit rows.
    intercept, scale : float or None
        Better values for the schema; None to leave what is there.
    guessed : tuple of str
        Numbers without a typical range, taken to fill their bounds, which real values seldom do.
    mended : float
        The median norm if `intercept` and `scale` were changed as proposed.
    offset : float
        Norm of the mean row over that of a typical row, the constant aside: what all rows have in
        common.
    common : tuple of str
        Blocks that make up most of the mean row, where rows are mostly a common offset.
    """

    schema: Schema
    low: float
    median: float
    high: float
    shortened: float
    intercept: float | None
    scale: float | None
    guessed: tuple[str, ...]
    mended: float
    offset: float
    common: tuple[str, ...]

    @property
    def wasted(self) -> float:
        """Share of the noise that rows of the median norm do not need."""
        return 1.0 - self.median

    @property
    def fine(self) -> bool:
        """Whether the schema needs no change."""
        return self.intercept is None and self.scale is None and not self.guessed

    @property
    def changes(self) -> list[str]:
        """The proposed changes to the schema, one sentence each."""
        changes = []
        if self.guessed:
            changes.append(
                "typical = [LO, HI], the range of most values, "
                f"for {first_names(self.guessed, _NAMED)}: without it, "
                "values are assumed to fill their bounds, which real values seldom do, "
                "so rows will be shorter than estimated here"
            )
        if self.intercept is not None:
            changes.append(
                f"intercept = {self.intercept:g}: the constant is the same in all rows and takes "
                "much of their norm"
            )
        if self.scale is not None:
            then = f"then a typical row has norm {self.mended:.2f}"
            if math.isclose(self.scale, self._schema_without_scale.divisor, rel_tol=_ROUNDED - 1.0):
                changes.append(f"leave scale out: {then}, and no row is clipped")
            else:
                changes.append(
                    f"scale = {_shortest_exact_text(self.scale)}: {then}; "
                    "longer rows are clipped to norm 1"
                )
        return changes

    @property
    def _schema_without_scale(self) -> Schema:
        """The schema with the constant as proposed, and without a scale."""
        constant = self.schema.intercept if self.intercept is None else self.intercept
        return dataclasses.replace(self.schema, intercept=constant, scale=None)

    @property
    def note_on_common_offset(self) -> str:
        """A note if typical rows are mostly a common offset, with the remedy; else empty."""
        if not self.common:
            return ""
        says = (
            "typical rows are mostly a common offset: "
            f"their mean has {self.offset:.0%} of the norm of a row, "
            f"mostly from {first_names(self.common, _NAMED)}. The offset does not distinguish "
            "rows, but noise and gradient clipping are sized for it, "
            "unless a run centres the rows"
        )
        blocks = [block for block in self.schema.blocks if block.name in self.common]
        can = []
        if any(isinstance(block, Number) and block.to == "[0,1]" for block in blocks):
            can.append('to = "[-1,1]" for a number whose values lie around the middle of its range')
        if any(isinstance(block, Bins | Category) and block.base is None for block in blocks):
            can.append("base, where one level is known to be common")
        if not can:
            return says
        return f"{says}. What may help: {'; '.join(can)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain data of JSON types."""
        return {
            "schema": self.schema.name,
            "features": self.schema.n_features,
            "bound": self.schema.bound,
            "divisor": None if self.schema.unit else self.schema.divisor,
            "unit": self.schema.unit,
            "norm": {"low": self.low, "median": self.median, "high": self.high},
            "shortened": self.shortened,
            "wasted": self.wasted,
            "fine": self.fine,
            "change": {
                "intercept": self.intercept,
                "scale": self.scale,
                "typical": list(self.guessed),
            },
            "median_after": self.mended,
            "says": self.changes,
            "caveat": self.schema.caveat,
            "offset": {
                "share": self.offset,
                "mostly": bool(self.common),
                "from": list(self.common),
                "says": self.note_on_common_offset,
            },
        }


def fill(schema: Schema, seed: int = 0) -> Fill:
    """Estimate how long rows of `schema` will be, and propose what to change; deterministic.

    Rows are synthetic, drawn from `seed`.  A constant that takes more than a quarter of a typical
    row's squared norm should be smaller.  Then the divisor should be the norm of a typical row
    before the division: its median, or the root mean square where at least half of the rows are
    zero.

    Examples
    --------
    >>> schema = Schema.from_dict({"columns": {"age": {"kind": "number", "lo": 0, "hi": 120}}})
    >>> fill(schema).guessed  # without a typical range
    ('age',)
    """
    sizes = typical_undivided_norms(schema, _number_of_drawn_rows(schema), seed)
    low, median, high = (
        float(q) for q in np.quantile(_norms_after_division(schema, sizes), (0.1, 0.5, 0.9))
    )
    shortened = _share_beyond_divisor(schema, sizes)
    better, intercept, scale = schema, None, None
    if (
        schema.intercept > SMALL_CONSTANT
        and schema.intercept**2 > CONSTANT * _typical_row_size(sizes) ** 2
    ):
        intercept = SMALL_CONSTANT
        # The sizes that the same rows have with the smaller constant.
        sizes = np.sqrt(np.maximum(sizes**2 - schema.intercept**2, 0.0) + intercept**2)
        better = dataclasses.replace(schema, intercept=intercept, scale=None)
    if not schema.unit:
        scale = _propose_scale(sizes, divisor=schema.scale or better.divisor, bound=better.bound)
        better = dataclasses.replace(better, scale=scale or schema.scale)
    offset, shares = common_offset_shares(schema, seed)
    numbers = [block for block in schema.blocks if isinstance(block, Number)]
    return Fill(
        schema,
        low=low,
        median=median,
        high=high,
        shortened=shortened,
        intercept=intercept,
        scale=scale,
        guessed=tuple(block.name for block in numbers if block.typical is None),
        mended=float(np.median(_norms_after_division(better, sizes))),
        offset=offset,
        common=_blocks_of_common_offset(shares) if offset >= MOSTLY else (),
    )


def _propose_scale(sizes: Array, *, divisor: float, bound: float) -> float | None:
    """Return a better divisor, the norm of a typical row, or None if this one is good enough.

    `sizes` are the norms (n,) of synthetic rows before the division, `bound` the largest possible
    one.
    """
    typical = _typical_row_size(sizes)
    far_too_long = float(np.quantile(sizes, 0.1)) > CROWDED * divisor
    crowded = far_too_long or _share_longer_than(sizes, divisor) >= SHORTENED
    if typical < FULL * divisor or crowded or divisor > bound:
        return min(_round_typical_size(typical, sizes), bound)
    return None


def _blocks_of_common_offset(shares: dict[str, float]) -> tuple[str, ...]:
    """Return the blocks with at least half of an equal share in the mean row's squared norm."""
    large = 0.5 / len(shares)
    return tuple(name for name, share in shares.items() if share >= large)


def _typical_row_size(sizes: Array) -> float:
    """Return the norm of a typical row: the median, or the root mean square where that is zero."""
    return float(np.median(sizes)) or math.sqrt(float(np.mean(sizes**2)))
