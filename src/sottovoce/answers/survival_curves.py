"""Kaplan-Meier curves by group under differential privacy, from one release of counts.

Everybody is counted once: by group, and by the cell of a public grid of times in which they leave
follow-up, with the event or without.  :func:`survival_curves` asks for these counts, and
:mod:`sottovoce.answers.kaplan_meier` estimates curves, medians, restricted means and the log-rank
test from them.  The command is ``sottovoce survival``.
"""

from __future__ import annotations

import math
import time as clock
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..algorithms.items import Answer, Item
from ..algorithms.once import Once
from ..data.columns import Bins, Category
from ..data.file_formats import read_table
from ..data.follow_up import find_leaving_intervals, read_event_marks
from ..data.frames import read_frame
from ..data.labels import EventLabel, parse_number_labels
from ..data.loaders import table_digest
from ..data.partition import partition as deal
from ..data.person import first_rows_of_each, partition_people
from ..data.rows import Rows
from ..data.schema import Schema
from ..data.table import Table
from ..data.validation import run_without_data_in_errors
from ..errors import InvalidInput, escape_unprintable
from ..ledger.durable import DurableLedger
from ..privacy.statement import Statement
from ..problem.facts import Among
from ..queries import Exits
from ..reports.plots import kaplan_meier_plot
from ..runs.config import RunConfig
from ..runs.prepare import prepare
from ..runs.relations import with_other_relation
from ..runs.simulate import Result, simulate
from ..runs.training import describe_deal
from ..util import pages
from ..util.enumerations import first_names
from ..util.later import Later
from ..util.plain import digest_public_values, infinities_to_text, merge_held_back_figures
from ..util.typing import Array, IntArray
from .evaluation import LOSS
from .hazards import number_of_cells
from .kaplan_meier import CurveTable, Interval, Z, log_rank
from .training import ONE_EACH, with_one_row_each

pandas = Later("pandas")

CELLS = 12
"""Cells of the usual grid: intervals between cuts are divided evenly until there are about as many.
More of them cost noise, fewer of them detail.
"""
MOST_CELLS, MOST_COUNTS = 2_000, 60_000
"""Largest numbers of cells, and of counts of all groups."""
WIDEST = 0.5
"""Half of a band's width by noise alone from which on a run is refused before it is charged."""
EVERYBODY = "all"
"""Name of the one group without a grouping column."""
_LONGEST = 1e12

BANDS = (
    "bands hold with 95% at each time by itself, and hold sampling and noise; medians have the "
    "times at which bands cross one half"
)
COARSE = (
    "events count as evenly spread within a cell of the grid, and people censored inside one as "
    "at risk for half of it"
)
ROUNDED = (
    "without noise times are rounded up to the grid: events come at the end of a cell, and people "
    "censored in it are at risk for all of it; a finer grid costs nothing then"
)
RISK = (
    "numbers at risk are noisy: those at time 0 are within {half:,.0f} of the truth with 95%, "
    "later ones within less"
)
UNGROUPED = (
    "people whose {by} is missing or not declared, or without a known event or a time above 0, "
    "are in no curve"
)
UNKNOWN = "people without a known event or a time above 0 are in no curve"
WEIGHED = "every row counts once: sample weights of the schema are not used"
ENDS = "the curve of {group} ends at {time:g}: {why}"
HIDDEN = "noise hides how many are at risk later"
NOBODY = "nobody is at risk later"
NOT_REACHED = "not reached"


@dataclass(frozen=True)
class ExitCounts(Once):
    """How many people leave follow-up, by group, cell of time, and with the event or without.

    Rows hold the number of their cell, from 1, over the number of cells; 0 is in none.

    Parameters
    ----------
    cells : int
        Number of counts of all groups.
    question : bytes
        Digest of grid, groups and columns: the identity of the question.

    Guarantee
    ---------
    Rows enter through `items` alone: one Gaussian mechanism on counts of which a person is in one,
    so that a replaced person changes two of them by 1 (sensitivity sqrt 2) and a zeroed one changes
    one.  It is priced by :meth:`sottovoce.queries.NoisyBounded.event` under the relation and the
    unit of the run.  All that is shown is computed from the counts and from public facts.
    """

    cells: int = field(kw_only=True)
    question: bytes = field(kw_only=True)

    name: ClassVar[str] = "exits"
    summary: ClassVar[str] = "events and censorings by group and time, for Kaplan-Meier curves"

    @property
    def items(self) -> tuple[Item, ...]:
        """The one release."""
        return (Item("events and censorings by group and time", self._exits_query, 1.0),)

    def _exits_query(self, at: Array) -> Exits:
        return Exits(at, self.cells)

    def point_of_release(self, d: int) -> Array:
        """Return zeros (d,): counts depend on no model."""
        return np.zeros(d)


@dataclass(frozen=True)
class FollowUp:
    """What curves are asked for: columns, groups, and the public grid of times.

    Parameters
    ----------
    schema : Schema
    time, event : str
        Columns of the time, and of whether the event came then.
    event_code : str, optional
        The value that means the event; None for 1 and for truth values.
    edges : tuple of float
        Ends of the cells, increasing from 0.
    by : str, optional
        Column by whose levels people are grouped; None for one group.
    partition : str, optional
        How rows lie at sites; None for the schema's site column, else at random.
    nodes : int, optional
        Number of sites of a random partition; None for 1.
    """

    schema: Schema
    time: str
    event: str
    event_code: str | None
    edges: tuple[float, ...]
    by: str | None = None
    partition: str | None = None
    nodes: int | None = None

    @classmethod
    def from_options(cls, schema: Schema, options: dict[str, Any]) -> FollowUp:
        """Derive the question from the schema's label of events, and from options.

        Parameters
        ----------
        schema : Schema
        options : dict
            ``time``, ``event``, ``event_code`` and ``grid``, each None for what the schema says;
            and further fields.

        Returns
        -------
        FollowUp

        Raises
        ------
        InvalidInput
            If neither says what the columns are, or the grid is no grid.
        """
        label = schema.label
        named = {key: options.pop(key) for key in ("time", "event", "event_code", "grid")}
        cuts: Sequence[float] | None = None
        if isinstance(label, EventLabel):
            if named["event"] in (None, label.event) and named["event_code"] is None:
                named["event_code"] = label.event_code
            named["event"] = named["event"] or label.event
            named["time"] = named["time"] or label.time
            cuts = label.cuts
        for key in ("time", "event"):
            if not named[key]:
                remedy = 'declare label = {event = "died", time = "days", cuts = [30, 90, 365]}'
                raise InvalidInput(key, None, "must name a column", f"name it, or {remedy}")
        edges = _usual_grid(cuts) if named["grid"] is None else _read_grid(named["grid"])
        found = cls(schema, named["time"], named["event"], named["event_code"], edges, **options)
        entries = found.counts_of_group * len(found.groups)
        if entries > MOST_COUNTS:
            rule = f"makes {entries:,} counts of all groups; at most {MOST_COUNTS:,} are supported"
            raise InvalidInput("grid", None, rule, "use fewer times or groups")
        return found

    @property
    def how(self) -> str:
        """The partition."""
        if self.partition is not None:
            return self.partition
        if self.schema.site is not None:
            return f"site:{self.schema.site}"
        return "iid"

    @property
    def counts_of_group(self) -> int:
        """Number of counts of a group."""
        return number_of_cells(len(self.edges) - 1, 1)

    @cached_property
    def block(self) -> Bins | Category | None:
        """The grouping column with a feature for each level; InvalidInput if it has no levels."""
        if self.by is None:
            return None
        found = [b for b in self.schema.blocks if isinstance(b, Bins | Category)]
        for block in found:
            if block.name == self.by:
                return replace(block, base=None)
        known = [block.name for block in found]
        remedy = f"use one of {first_names(known, 8)}" if known else "leave it out"
        rule = "must be a column for which the schema declares levels"
        raise InvalidInput("by", self.by, rule, remedy)

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups, from the declaration."""
        if self.block is None:
            return (EVERYBODY,)
        name = self.block.name
        return tuple(one.removeprefix(name).removeprefix("=") for one in self.block.feature_names)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        read = [self.time, self.event]
        if self.block is not None:
            read.append(self.block.source_column)
        if self.schema.person is not None:
            read.append(self.schema.person.column)
        kind, _, name = self.how.partition(":")
        if kind in ("site", "column"):
            read.append(name)
        return tuple(dict.fromkeys(read))

    def read_cells(self, table: Table) -> tuple[IntArray, tuple[str, ...]]:
        """Read in which count each row is, from 1, and 0 for none: each row by itself.

        Returns
        -------
        cells : array (n,)
        unread : tuple of str
            Sentences on rows that are in no curve, for their holder.
        """
        columns, na = table.columns, self.schema.na
        time = parse_number_labels(columns[self.time], na)
        event = read_event_marks(columns[self.event], self.event_code)
        known = ~np.isnan(event)
        leaves = find_leaving_intervals(time, event == 1.0, known, np.array(self.edges), 1)
        group = np.zeros(table.n_rows, dtype=np.int64)
        outside = np.zeros(table.n_rows, dtype=bool)
        if self.block is not None:
            features, _ = _with_level_for_missing(self.block).encode(columns, frozenset(na))
            group = features.argmax(axis=1)
            outside = ~features.any(axis=1) | (group >= len(self.groups))
        cells = group * self.counts_of_group + leaves.cell + 1
        lost = (leaves.last < 0) | outside
        told = [
            (int((~known).sum()), "no event value that is known"),
            (int((~(time > self.edges[0])).sum()), "no time above 0"),
            (int(outside.sum()), f"no declared value of {self.by}"),
        ]
        unread = tuple(
            f"{many} of {table.n_rows} people have {what}: they are in no curve (for the data's "
            "holder only)"
            for many, what in told
            if many
        )
        return np.where(lost, 0, cells), unread


def _with_level_for_missing(block: Bins | Category) -> Bins | Category:
    """Return a block whose last level is that of missing values, where they need one."""
    if isinstance(block, Bins) and block.missing is None:
        return replace(block, indicator=True)
    return block


def _usual_grid(cuts: Sequence[float] | None) -> tuple[float, ...]:
    """Return the grid of public cuts: intervals divided evenly into about `CELLS` cells."""
    if cuts is None:
        remedy = "give increasing times such as 30,60,90, or cuts in the schema's label"
        raise InvalidInput("grid", None, "must be given: the schema has no cuts of time", remedy)
    parts = max(CELLS // len(cuts), 1)
    inner = [np.linspace(a, b, parts + 1)[1:] for a, b in pairwise((0.0, *cuts))]
    return (0.0, *np.concatenate(inner).tolist())


def _read_grid(given: Any) -> tuple[float, ...]:
    """Return the grid of given times, with 0 in front; InvalidInput unless they increase."""
    read = run_without_data_in_errors("grid", lambda: np.asarray(given, dtype=np.float64))
    times = np.atleast_1d(read)
    rule = f"must be 1 to {MOST_CELLS:,} increasing times above 0"
    remedy = "give public times such as 30,60,90"
    if times.ndim != 1 or not len(times):
        raise InvalidInput("grid", None, rule, remedy)
    if times[0] == 0.0:
        times = times[1:]
    edges = (0.0, *times.tolist())
    ordered = all(low < high < _LONGEST for low, high in pairwise(edges))
    if not (2 <= len(edges) <= MOST_CELLS + 1 and ordered):
        raise InvalidInput("grid", None, rule, remedy)
    return edges


def plan_curves(
    asked: FollowUp, sizes: Sequence[float], run: RunConfig
) -> tuple[ExitCounts, float]:
    """Plan the release from public facts.

    Parameters
    ----------
    asked : FollowUp
    sizes : sequence of float (sites,)
        Rows of every site.
    run : RunConfig
        With ``method="auto"``: budget, trust, relation.

    Returns
    -------
    recipe : ExitCounts
        Without noise yet.
    sigma : float
        Standard deviation of the noise on a count of all sites.

    Raises
    ------
    InvalidInput
        If an option does not fit, or noise would hide every curve.
    """
    columns = [asked.time, asked.event, asked.event_code, asked.by]
    identity = digest_public_values(asked.schema.fingerprint, columns, asked.edges)
    recipe = ExitCounts(cells=asked.counts_of_group * len(asked.groups), question=identity)
    if math.isinf(float(np.max(run.epsilon))):
        return recipe, 0.0
    n = np.asarray(sizes, dtype=float)[:, None]
    trial = prepare(run, n, 1, method=recipe, loss=LOSS)
    method = trial.algorithm
    assert isinstance(method, ExitCounts)
    rows = float(n.sum())
    deviation = method.releases_with_noise.noise_deviation(
        0, trial.facts, Among.all_sites(trial.facts)
    )
    sigma = rows * deviation
    # The end of a curve of a group of average size in which everybody is seen throughout.
    half = Z * sigma * math.sqrt(len(asked.edges) - 1.0) * len(asked.groups) / rows
    if half > WIDEST:
        rule = f"is too small: noise alone would widen a group's band by {half:.2g} to both sides"
        remedy = "raise it, use fewer groups or times, or join more sites"
        raise InvalidInput("epsilon", float(np.max(run.epsilon)), rule, remedy)
    return recipe, sigma


@dataclass(frozen=True)
class SurvivalCurves:
    """Kaplan-Meier curves by group with their privacy statement.

    Parameters
    ----------
    curves : tuple of dict
        ``group``, ``time``, ``survival``, ``low``, ``high`` and ``at_risk``: a line for each group
        and end of a cell, from time 0.  Survival is None where a curve has ended.  ``at_risk`` is
        the number of people seen without the event until then, noisy.
    logrank : dict, optional
        ``statistic``, ``df``, ``p``, ``noise_share`` (of the variance) and ``says``; None for one
        group.
    medians, restricted_means : tuple of dict
        For each group ``median`` or ``mean`` with ``low``, ``high`` and ``says``; restricted means
        are up to ``until``, the last time of the grid.
    statement : Statement
    groups : tuple of str
    asked : list of dict
        Name and share of the budget of the release.
    notes, holder_notes : tuple of str
        What a reader should know; the second are for the holder of the rows only.
    config : RunConfig
    seconds : float
        Duration, for the rows' holder only.
    """

    curves: tuple[dict[str, Any], ...]
    logrank: dict[str, Any] | None
    medians: tuple[dict[str, Any], ...]
    restricted_means: tuple[dict[str, Any], ...]
    statement: Statement
    groups: tuple[str, ...]
    asked: list[dict[str, Any]]
    notes: tuple[str, ...]
    holder_notes: tuple[str, ...]
    config: RunConfig
    seconds: float = field(default=0.0, compare=False)

    def released(self) -> dict[str, Any]:
        """Return what may be shown to everybody, as plain data."""
        return {
            "curves": list(self.curves),
            "logrank": self.logrank,
            "medians": list(self.medians),
            "restricted_means": list(self.restricted_means),
            "groups": list(self.groups),
            "asked": self.asked,
            "notes": list(self.notes),
            "privacy": infinities_to_text(self.statement.to_dict()),
            "config": infinities_to_text(self.config.to_dict()),
        }

    def held_back(self) -> dict[str, Any]:
        """Return what is for the holder of the rows only, as plain data."""
        return {"notes": [*self.notes, *self.holder_notes], "seconds": self.seconds}

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, with the privacy statement, as plain data: for the rows' holder."""
        return merge_held_back_figures(self.released(), self.held_back())

    def to_frame(self) -> Any:
        """Return the curves as a data frame of pandas, a line for each group and time."""
        heads = ["group", "time", "survival", "low", "high", "at_risk"]
        return pandas.DataFrame(list(self.curves), columns=heads)

    def plot(self, ax: Any = None) -> Any:
        """Draw the curves as steps with bands, and a table of numbers at risk below them.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw the curves, without the table; None for a new figure with it.

        Returns
        -------
        matplotlib Axes
            InvalidInput if matplotlib is not installed.
        """
        said = "".join(self.statement.words[0])
        if self.statement.simulated:
            said += " A simulation, not a release."
        return kaplan_meier_plot(self.curves, self.groups, said, ax)

    def rows_of_cells(self) -> list[tuple[str, list[str]]]:
        """Return the curves as they are printed: for each time a cell for each group."""
        lines: dict[float, list[str]] = {}
        for one in self.curves:
            lines.setdefault(one["time"], []).append(_curve_cell_text(one))
        return [(f"{time:g}", cells) for time, cells in lines.items()]

    def summary_pairs(self) -> list[tuple[str, str]]:
        """Return names and texts of medians, restricted means and the log-rank test."""
        pairs = []
        for one in self.medians:
            pairs.append((f"median, {escape_unprintable(one['group'])}", _estimate_text(one)))
        for one in self.restricted_means:
            name = f"mean up to {one['until']:g}, {escape_unprintable(one['group'])}"
            pairs.append((name, _estimate_text(one)))
        if self.logrank is not None:
            pairs.append(("log-rank test", _test_text(self.logrank)))
        return pairs

    def __repr__(self) -> str:
        pairs = "\n".join(f"  {name}: {text}" for name, text in self.summary_pairs())
        return f"Kaplan-Meier curves, with 95% intervals\n{pairs}\n{self.statement.text}"

    def _repr_html_(self) -> str:
        heads = [pages.Column("time", "n")]
        heads += [pages.Column(escape_unprintable(name), "n") for name in self.groups]
        rows = [(time, *cells) for time, cells in self.rows_of_cells()]
        return pages.render_for_notebook(
            title="Kaplan-Meier curves, with 95% intervals, and numbers at risk",
            pairs=self.summary_pairs(),
            table=pages.Table(heads, rows),
            remark=self.statement.text,
        )


def _curve_cell_text(one: dict[str, Any]) -> str:
    """Return a point of a curve with its band and the number at risk."""
    if one["survival"] is None:
        return "hidden"
    band = f"{one['survival']:.3f} ({one['low']:.3f} to {one['high']:.3f})"
    return f"{band}, {one['at_risk']:,.0f}"


def _estimate_text(one: dict[str, Any]) -> str:
    """Return a median or a restricted mean with its interval."""
    value = one["median"] if "median" in one else one["mean"]
    ends = [NOT_REACHED if x is None else f"{x:.4g}" for x in (one["low"], one["high"])]
    if value is None and one["low"] is None and one["high"] is None:
        return str(one["says"])
    shown = str(one["says"]) if value is None else f"{value:.4g}"
    return f"{shown} ({ends[0]} to {ends[1]})"


def _test_text(one: dict[str, Any]) -> str:
    """Return the log-rank test as text."""
    if one["p"] is None:
        return str(one["says"])
    p = "p < .0001" if one["p"] < 1e-4 else f"p = {one['p']:.4f}"
    freedom = "1 degree" if one["df"] == 1 else f"{one['df']} degrees"
    found = f"chi-square {one['statistic']:.3f} with {freedom} of freedom, {p}"
    return ", ".join(filter(None, (found, one["says"])))


def survival_curves(
    data: Any,
    *,
    schema: Schema | str | Path,
    by: str | None = None,
    epsilon: float = 1.0,
    time: str | None = None,
    event: str | None = None,
    event_code: str | None = None,
    grid: Any = None,
    **options: Any,
) -> SurvivalCurves:
    """Estimate Kaplan-Meier curves by group under differential privacy, from one release.

    With 95% bands, noisy numbers at risk, medians, restricted means and the log-rank test.

    Parameters
    ----------
    data : frame, mapping, Table, or path
        Raw rows, one for each person: a frame of pandas, polars or pyarrow, or a file.
    schema : Schema, or path
        With the levels of `by`, and a label of events, as ``{event = "died", time = "days", cuts =
        [30, 90, 365]}``.
    by : str, optional
        A column with declared levels, whose levels are the groups.
    epsilon : float
        Of each person.
    time, event, event_code
        The columns, and the value that means the event, in place of the schema's label.
    grid : sequence of float, optional
        Public times at which curves are estimated; by default the schema's cuts, and times evenly
        between them: about 12 in all.
    **options
        `partition`, `nodes`, `ledger`, `run_name` and `checkpoint` as for
        :func:`sottovoce.describe`, and fields of :class:`sottovoce.RunConfig`: delta, trust,
        colluders, relation, seed.

    Returns
    -------
    SurvivalCurves

    Raises
    ------
    InvalidInput
        Before anything is spent; no data value is shown.

    Guarantee
    ---------
    Rows enter through one Gaussian release of counts, priced by the event of its query.  Relation,
    unit, epsilon and delta are those of ``statement``; of every person at most one row is read.
    Numbers of rows of sites are public.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import Schema, survival_curves
    >>> schema = Schema.from_dict({
    ...     "label": {"event": "died", "time": "days", "cuts": [10, 20, 40]},
    ...     "columns": {"arm": {"kind": "category", "values": ["a", "b"]}}})
    >>> rows = {"days": np.arange(1, 61), "died": np.ones(60), "arm": np.array(["a", "b"] * 30)}
    >>> found = survival_curves(rows, schema=schema, by="arm", epsilon=np.inf)
    >>> round(found.curves[4]["survival"], 6)
    0.833333
    """
    started = clock.perf_counter()
    if not isinstance(schema, Schema):
        schema = Schema.from_toml(schema)
    table = read_table(data) if isinstance(data, str | Path) else read_frame(data, name="data")
    kept = {key: options.pop(key, None) for key in ("ledger", "run_name", "checkpoint")}
    asked = FollowUp.from_options(
        schema,
        {
            "time": time,
            "event": event,
            "event_code": event_code,
            "grid": grid,
            "by": by,
            "partition": options.pop("partition", None),
            "nodes": options.pop("nodes", None),
        },
    )
    unknown = sorted(options.keys() - {one.name for one in fields(RunConfig)})
    if unknown:
        rule = "is no option of survival_curves"
        raise InvalidInput(unknown[0], None, rule, "see help(sottovoce.survival_curves)")
    settings: dict[str, Any] = {"method": "auto", "delta": 1e-5, "epsilon": float(epsilon)}
    run = with_one_row_each(RunConfig.from_dict(settings | options), schema)
    if not run.auto:
        rule = "has no effect: curves train no model"
        raise InvalidInput("method", run.method, rule, "leave method out")
    given = _read_rows(asked, table, run)
    result = _run_release(given, table, **kept)
    return replace(read_curves(given, result)[0], seconds=clock.perf_counter() - started)


@dataclass(frozen=True)
class Given:
    """Rows of a table at sites, each with its cell, and what is asked of them.

    Parameters
    ----------
    asked : FollowUp
    run : RunConfig
    rows : Rows
    recipe : ExitCounts
    unread : tuple of str
        Sentences on rows that are in no curve, for their holder.
    """

    asked: FollowUp
    run: RunConfig
    rows: Rows
    recipe: ExitCounts
    unread: tuple[str, ...]


def _read_rows(asked: FollowUp, table: Table, run: RunConfig) -> Given:
    """Read the cells of a table's rows, at their sites, and plan the release."""
    for name in asked.columns:
        if name not in table.columns:
            raise InvalidInput(name, None, "is not a column of the table", "correct the name")
        if table.columns[name].ndim != 1:
            raise InvalidInput(name, None, "must hold one value a row", "give a 1-D column")
    if table.n_rows == 0:
        raise InvalidInput("data", None, "has no rows", "give a table with rows")
    parts = _deal_rows(asked, table, run.seed or 0)
    cells, unread = asked.read_cells(table)
    sizes = [float(len(part)) for part in parts]
    recipe, _ = plan_curves(asked, sizes, run)
    # A count reads no label, so all labels are 1.
    column = cells[:, None] / recipe.cells
    rows = Rows.build_from_parts([(column[part], np.ones(len(part))) for part in parts])
    return Given(asked, run, rows, recipe, unread)


def _deal_rows(asked: FollowUp, table: Table, seed: int) -> list[IntArray]:
    """Return the row numbers of every site; of a person only the first row at a site."""
    how, nodes, person = asked.how, asked.nodes, asked.schema.person
    placeholder = np.ones(table.n_rows)
    kind = how.partition(":")[0]
    if kind in ("label", "dirichlet") or (person is not None and kind == "column"):
        rule = "assigns each row by its values, which curves do not support"
        raise InvalidInput("partition", how, rule, "use iid or site:NAME")
    if kind != "site":
        nodes = nodes or 1
    if person is None:
        return deal(how, placeholder, nodes, seed, columns=table.columns)
    people = person.number_people_of_table(table.columns, frozenset(asked.schema.na))
    if how == "iid":
        parts = partition_people(people, nodes, seed)
    else:
        parts = deal(how, placeholder, nodes, seed, columns=table.columns)
    return [part[first_rows_of_each(people[part], 1)] for part in parts]


def _run_release(given: Given, table: Table, **kept: Any) -> Result:
    """Run the recipe; `kept` are further arguments of :func:`sottovoce.runs.simulate.simulate`."""
    asked, run = given.asked, given.run
    ledger: DurableLedger | None = kept["ledger"]
    digest = None
    sites = len(given.rows.n)
    # Where nothing but the table decides which site a row is at, as for `train`.
    stays = sites == 1 or run.trusted.pools_rows or asked.how.startswith("site:")
    if ledger is not None and stays:
        how = describe_deal(asked.how, asked.schema, sites, run)
        digest = table_digest([table], how)
    label = f"survival {table.name} {asked.schema.fingerprint} {asked.how} {asked.by}"
    result = simulate(
        run,
        given.rows,
        method=given.recipe,
        loss=LOSS,
        label=label,
        caveat=asked.schema.caveat,
        digest=digest,
        **kept,
    )
    return with_other_relation(result)


def read_curves(given: Given, result: Result) -> list[SurvivalCurves]:
    """Read the curves of all replicates from the released counts.

    Parameters
    ----------
    given : Given
    result : Result

    Returns
    -------
    list of SurvivalCurves
        One for each replicate.
    """
    asked, answer = given.asked, result.outcome
    assert isinstance(answer, Answer)
    shape = (-1, len(asked.groups), asked.counts_of_group)
    counts = answer.value.reshape(shape) * answer.rows
    sigma = answer.spread * answer.rows
    edges = np.array(asked.edges)
    found = []
    for own in counts:
        table = CurveTable(own, sigma, edges)
        told = table.survival()
        found.append(
            SurvivalCurves(
                curves=tuple(_lines_of_curves(asked, table, told)),
                logrank=_test_of_groups(asked, table),
                medians=tuple(_medians(asked, table, told)),
                restricted_means=tuple(_restricted_means(asked, table)),
                statement=result.statement,
                groups=asked.groups,
                asked=result.algorithm["asked"],
                notes=_notes(asked, table),
                holder_notes=given.unread,
                config=given.run,
            )
        )
    return found


def _or_none(x: Any) -> float | None:
    """Return a number, or None for NaN."""
    return None if math.isnan(x) else float(x)


def _lines_of_curves(asked: FollowUp, table: CurveTable, told: Interval) -> list[dict[str, Any]]:
    """Return a line for each group and end of a cell, from time 0."""
    seen = table.seen
    lines = []
    for g, group in enumerate(asked.groups):
        # A curve that is hidden from the first cell on has no number at risk either.
        first = 1.0 if table.visible[g, 0] else math.nan
        value, low, high = (np.concatenate([[first], x[g]]) for x in told)
        for k, time in enumerate(asked.edges):
            hidden = math.isnan(value[k])
            lines.append(
                {
                    "group": group,
                    "time": float(time),
                    "survival": _or_none(value[k]),
                    "low": _or_none(low[k]),
                    "high": _or_none(high[k]),
                    "at_risk": None if hidden and table.sigma > 0.0 else float(seen[g, k]),
                }
            )
    return lines


def _why_hidden(table: CurveTable) -> str:
    """Return why a curve ends."""
    return HIDDEN if table.sigma > 0.0 else NOBODY


def _medians(asked: FollowUp, table: CurveTable, told: Interval) -> list[dict[str, Any]]:
    """Return each group's median time with its interval."""
    found = []
    times = table.medians(told)
    for g, group in enumerate(asked.groups):
        median, low, high = (_or_none(x[g]) for x in times)
        says = ""
        if median is None:
            says = NOT_REACHED
        elif high is None:
            says = "the upper band does not come down to one half"
        if not table.visible[g, 0]:
            says = _why_hidden(table)
        found.append({"group": group, "median": median, "low": low, "high": high, "says": says})
    return found


def _restricted_means(asked: FollowUp, table: CurveTable) -> list[dict[str, Any]]:
    """Return each group's mean time without the event up to the last time, with its interval."""
    found = []
    means = table.restricted_means()
    for g, group in enumerate(asked.groups):
        mean, low, high = (_or_none(x[g]) for x in means)
        says = "the curve ends before" if mean is None else ""
        line = {"group": group, "mean": mean, "low": low, "high": high}
        found.append(line | {"until": float(asked.edges[-1]), "says": says})
    return found


def _test_of_groups(asked: FollowUp, table: CurveTable) -> dict[str, Any] | None:
    """Return the log-rank test of all groups; None for one group."""
    if len(asked.groups) < 2:
        return None
    # A group without anybody at risk, or that noise hides, is in no test.
    seen = table.visible[:, 0]
    left_out = [group for group, one in zip(asked.groups, seen, strict=True) if not one]
    if len(asked.groups) - len(left_out) < 2:
        says = f"fewer than two groups have people at risk: {_why_hidden(table)}"
        return {"statistic": None, "df": None, "p": None, "noise_share": None, "says": says}
    test = log_rank(CurveTable(table.counts[seen], table.sigma, table.edges))
    says = ""
    if left_out:
        says = f"without {first_names([escape_unprintable(group) for group in left_out], 8)}"
    if test.hidden:
        says = "noise hides all events" if table.sigma > 0.0 else "nobody has the event"
    return {
        "statistic": _or_none(test.statistic),
        "df": test.df,
        "p": _or_none(test.p),
        "noise_share": float(test.noise_share),
        "says": says,
    }


def _notes(asked: FollowUp, table: CurveTable) -> tuple[str, ...]:
    """Return what a reader should know, from public facts and from the release."""
    notes = [BANDS]
    if table.sigma > 0.0:
        half = Z * table.sigma * math.sqrt(asked.counts_of_group - 1.0)
        notes += [COARSE, RISK.format(half=half)]
    else:
        notes.append(ROUNDED)
    notes.append(UNKNOWN if asked.by is None else UNGROUPED.format(by=asked.by))
    for group, visible in zip(asked.groups, table.visible, strict=True):
        if not visible.all():
            last = asked.edges[int(visible.sum())]
            named = escape_unprintable(group)
            notes.append(ENDS.format(group=named, time=last, why=_why_hidden(table)))
    if asked.schema.person is not None:
        notes.append(ONE_EACH)
    if asked.schema.weighs:
        notes.append(WEIGHED)
    return tuple(notes)


__all__ = ["ExitCounts", "FollowUp", "SurvivalCurves", "plan_curves", "survival_curves"]
