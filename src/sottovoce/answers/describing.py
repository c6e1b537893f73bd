"""A descriptive table (Table 1) of a table of rows, by group, overall and by site: one release.

:func:`describe` runs the recipe of :mod:`sottovoce.answers.description` on the rows, and reads the
table by :mod:`sottovoce.answers.description_estimates`.  The command is ``sottovoce describe``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data.file_formats import read_table
from ..data.frames import read_frame
from ..data.loaders import table_digest
from ..data.partition import partition as deal
from ..data.person import first_rows_of_each, partition_people
from ..data.rows import Rows
from ..data.schema import Schema, describe_unfit_rows, errors_of_columns
from ..data.table import Table
from ..errors import InvalidInput, escape_unprintable
from ..ledger.durable import DurableLedger
from ..privacy.statement import Statement
from ..problem.facts import Among, Facts
from ..reports.notebook import format_pairs
from ..runs.config import RunConfig
from ..runs.prepare import prepare
from ..runs.relations import with_other_relation
from ..runs.simulate import Result, simulate
from ..runs.training import describe_deal
from ..util import pages
from ..util.later import Later
from ..util.plain import digest_public_values, infinities_to_text, merge_held_back_figures
from ..util.typing import Array, IntArray
from .description import (
    EXACT_CELLS,
    OVERALL,
    SITE,
    Contents,
    Description,
    Levels,
    blocks_of_table,
    enough_cells,
)
from .description_estimates import GroupSums, GroupTable, Line, Z, differences
from .evaluation import LOSS
from .training import ONE_EACH, names_of_sites, with_one_row_each

pandas = Later("pandas")

INTERVALS = (
    "95% intervals of means, standard deviations, quartiles, shares and differences hold noise and "
    "sampling; those of n, counts and missing values hold noise alone, as these count the rows of "
    "this table"
)
EVEN = (
    "a quartile takes the rows in a cell of the public grid as evenly spread; its interval has "
    "whole cells, so it needs no such thing"
)
UNGROUPED = (
    "rows whose {by} is missing or not declared are in no group, and in no number of this table"
)
GAPS = "missing counts empty cells, and values of a category that the schema does not declare"
WEIGHED = "every row counts once: sample weights of the schema are not used"
LEFT_OUT = "vectors and curved features have no place in the table: {names}"


@dataclass(frozen=True, repr=False)
class Described:
    """A descriptive table with its privacy statement.

    Parameters
    ----------
    table : tuple of Line
        All statistics: variable, level, group, estimate, interval and standard errors.
    statement : Statement
    groups : tuple of str
        Names of the groups, in order; without a grouping column none.
    differences : tuple of str
        Names of the differences between groups, as they stand in `table`.
    sites : tuple of str
        Names of the sites that have lines of their own.
    asked : list of dict
        Name and share of the budget of every release.
    notes, holder_notes : tuple of str
        What a reader should know; the second are for the holder of the rows only.
    config : RunConfig
    seconds : float
        Duration, for the rows' holder only.
    """

    table: tuple[Line, ...]
    statement: Statement
    groups: tuple[str, ...]
    differences: tuple[str, ...]
    sites: tuple[str, ...]
    asked: list[dict[str, Any]]
    notes: tuple[str, ...]
    holder_notes: tuple[str, ...]
    config: RunConfig
    seconds: float = field(default=0.0, compare=False)

    def line(self, name: str, statistic: str, group: str = OVERALL, level: str = "") -> Line:
        """Return one line of the table; InvalidInput if there is none.

        Parameters
        ----------
        name : str
            The variable, or empty for n.
        statistic : str
        group : str
        level : str
            Empty for a number.

        Returns
        -------
        Line
        """
        for one in self.table:
            if (one.name, one.statistic, one.group, one.level) == (name, statistic, group, level):
                return one
        raise InvalidInput(
            "line",
            (name, level, statistic, group),
            "is not in the table",
            "see the names in `table`",
        )

    def released(self) -> dict[str, Any]:
        """Return what may be shown to everybody, as plain data."""
        return {
            "table": [infinities_to_text(one.to_dict()) for one in self.table],
            "groups": list(self.groups),
            "sites": list(self.sites),
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
        """Return the table as a data frame of pandas, a line each."""
        return pandas.DataFrame([one.to_dict() for one in self.table], columns=list(Line._fields))

    @property
    def columns(self) -> tuple[str, ...]:
        """Groups and differences in the order in which they are shown."""
        sites = tuple(f"site: {name}" for name in self.sites)
        return (OVERALL, *self.groups, *self.differences, *sites)

    def rows_of_cells(self) -> list[tuple[str, list[str]]]:
        """Return the table as it is printed: for each statistic its name, and a cell for each of
        :attr:`columns`.
        """
        by_row: dict[tuple[str, str, str], dict[str, Line]] = {}
        for one in self.table:
            by_row.setdefault((one.name, one.level, one.statistic), {})[one.group] = one
        found = []
        for (name, level, statistic), lines in by_row.items():
            title = ", ".join(filter(None, (name, level, statistic)))
            cells = [_cell_text(lines[group]) if group in lines else "" for group in self.columns]
            found.append((title, cells))
        return found

    def to_markdown(self) -> str:
        """Return the table and its privacy statement as Markdown."""
        heads = ["", *self.columns]
        lines = [heads, ["---"] * len(heads)]
        lines += [[title, *cells] for title, cells in self.rows_of_cells()]
        text = ["| " + " | ".join(map(_escape_cell, cells)) + " |" for cells in lines]
        notes = [f"- {note}" for note in self.notes]
        return "\n".join([*text, "", *notes, "", self.statement.text, ""])

    def __repr__(self) -> str:
        pairs = [
            (escape_unprintable(title), cells[0])
            for title, cells in self.rows_of_cells()
            if cells[0]
        ]
        return format_pairs(f"{self._title}; overall:", pairs, self.statement.text)

    def _repr_html_(self) -> str:
        return pages.render_for_notebook(
            title=self._title, table=self._shown_table, remark=self.statement.text
        )

    def to_html(self) -> str:
        """Return one HTML page that needs nothing else."""
        return pages.render_template(
            "described.html",
            title=self._title,
            table=self._shown_table,
            notes=self.notes,
            words=self.statement.words,
            simulated=self.statement.simulated,
        )

    @property
    def _title(self) -> str:
        return "Descriptive table, with 95% intervals"

    @property
    def _shown_table(self) -> pages.Table:
        heads = [pages.Column("")]
        heads += [pages.Column(escape_unprintable(name), "n") for name in self.columns]
        rows = [(escape_unprintable(title), *cells) for title, cells in self.rows_of_cells()]
        return pages.Table(heads, rows)


def _cell_text(one: Line) -> str:
    """Return an estimate with its interval as text, or why it is refused."""
    if one.value is None:
        return one.says
    if one.statistic in ("n", "count", "missing"):
        numbers = [f"{x:,.0f}" for x in (one.value, one.low, one.high) if x is not None]
    elif one.statistic in ("share", "missing share"):
        numbers = [f"{100 * x:.1f}%" for x in (one.value, one.low, one.high) if x is not None]
    else:
        numbers = [f"{x:.4g}" for x in (one.value, one.low, one.high) if x is not None]
    if one.low == one.high:
        return numbers[0]
    return f"{numbers[0]} ({numbers[1]} to {numbers[2]})"


def _escape_cell(text: str) -> str:
    """Return text for a cell of a table in Markdown."""
    return escape_unprintable(text).replace("|", "\\|")


@dataclass(frozen=True)
class Question:
    """What a table describes, and how its rows lie at sites.

    Parameters
    ----------
    schema : Schema
    by : str, optional
        The column by whose levels rows are grouped; None for one group of all.
    partition : str, optional
        How rows lie at sites, as for ``train``; None for the schema's site column, else at random.
    nodes : int, optional
        Number of sites of a random partition; None for 1.
    by_site : bool
        Whether sites that are summed or pooled have lines of their own, for half of the budget.
        Sites that answer for themselves have them at no cost.
    """

    schema: Schema
    by: str | None = None
    partition: str | None = None
    nodes: int | None = None
    by_site: bool = False

    @property
    def how(self) -> str:
        """The partition."""
        if self.partition is not None:
            return self.partition
        if self.schema.site is not None:
            return f"site:{self.schema.site}"
        return "iid"

    @property
    def contents(self) -> Contents:
        """Variables and groups; InvalidInput if a table cannot have them."""
        return Contents.from_schema(self.schema, self.by)


def plan_description(
    question: Question, sizes: Sequence[float], run: RunConfig
) -> tuple[Description, float]:
    """Plan the release from public facts, with grids as fine as the noise allows.

    Parameters
    ----------
    question : Question
    sizes : sequence of float (sites,)
        Rows of every site.
    run : RunConfig
        With ``method="auto"``: budget, trust, relation.

    Returns
    -------
    recipe : Description
        Without noise yet.
    sigma : float
        Standard deviation of the noise on a sum to which a row adds 1.

    Raises
    ------
    InvalidInput
        If an option does not fit, or noise would hide every group.
    """
    contents = question.contents
    identity = digest_public_values(question.schema.fingerprint, question.by)
    # Where each site answers for itself, its part of the table is known at no cost.
    apart = question.by_site and len(sizes) > 1 and run.trusted.answers_of_all
    known = contents.by is None

    def recipe(cells: Sequence[int], exact: bool = False) -> Description:
        return Description(
            groups=len(contents.groups),
            blocks=blocks_of_table(contents, cells, known_rows=known, exact=exact),
            contents=identity,
            sites=len(sizes) if apart else 0,
        )

    many = len(contents.variables)
    if math.isinf(float(np.max(run.epsilon))):
        return recipe([EXACT_CELLS] * many, exact=True), 0.0
    n = np.asarray(sizes, dtype=float)[:, None]
    trial = prepare(run, n, 3 + many, method=recipe([16] * many), loss=LOSS)
    method, facts = trial.algorithm, trial.facts
    assert isinstance(method, Description)
    rows = float(n.sum())
    sigma = rows * method.releases_with_noise.noise_deviation(0, facts, Among.all_sites(facts))
    _check_visible(method, contents, sigma, rows)
    return recipe(enough_cells(contents, sigma, rows / len(contents.groups))), sigma


def _check_visible(method: Description, contents: Contents, sigma: float, rows: float) -> None:
    """Refuse, from public facts, a budget whose noise would hide the rows of every group."""
    best = max(block.scale / math.sqrt(_cells(block)) for block in method.blocks)
    half = Z * sigma / best
    if contents.by is not None and half >= rows:
        rule = (
            f"is too small: a group's number of rows would have an interval of {half:,.0f} rows to "
            f"both sides, and there are {rows:,.0f} in all"
        )
        raise InvalidInput(
            "epsilon", None, rule, "raise it, describe fewer columns, or join more sites"
        )


def _cells(block: Any) -> int:
    """Return the number of cells of a block."""
    return int(block.cells)


def describe(
    data: Any,
    *,
    schema: Schema | str | Path,
    by: str | None = None,
    epsilon: float = 1.0,
    partition: str | None = None,
    nodes: int | None = None,
    by_site: bool = False,
    ledger: DurableLedger | None = None,
    run_name: str | None = None,
    checkpoint: str | Path | None = None,
    **options: Any,
) -> Described:
    """Describe a table by group under differential privacy: the Table 1 of a paper.

    One release has n, means, standard deviations, quartiles, counts, shares and missing values of
    all columns, by group, overall and by site, and standardised mean differences between groups.

    Parameters
    ----------
    data : frame, mapping, Table, or path
        Raw rows: a frame of pandas, polars or pyarrow, or a file.
    schema : Schema, or path
        Declares bounds and levels of the columns.
    by : str, optional
        A column with declared levels, whose levels are the groups.
    epsilon : float
        Of each row, or of each person if the schema names a person column.
    partition : str, optional
        How rows lie at sites: ``iid``, ``site:COLUMN`` and others.  By default by the schema's site
        column, else at one site.
    nodes : int, optional
        Number of sites of a random partition.
    by_site : bool
        Also describe each site where sites are summed or pooled, for half of the budget.  Where
        nobody is trusted every site answers for itself, and is described at no cost.
    ledger : DurableLedger, optional
        Ledger on disk of these rows.
    run_name : str, optional
        Name of the run in that ledger.
    checkpoint : path, optional
        File from which an interrupted run resumes.
    **options
        Further fields of :class:`sottovoce.RunConfig`: delta, trust, colluders, relation, seed.

    Returns
    -------
    Described

    Raises
    ------
    InvalidInput
        Before anything is spent; no data value is shown.

    Guarantee
    ---------
    Rows enter the table through the Gaussian releases that ``asked`` lists alone, each priced by
    the event of its query.  Relation, unit, epsilon and delta are those of ``statement``; of every
    person at most one row is read.  Numbers of rows of sites are public.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import describe, Schema
    >>> schema = Schema.from_dict({"columns": {
    ...     "age": {"kind": "number", "lo": 0, "hi": 120},
    ...     "arm": {"kind": "category", "values": ["a", "b"]}}})
    >>> rows = {"age": np.arange(20, 80), "arm": np.array(["a", "b"] * 30)}
    >>> found = describe(rows, schema=schema, by="arm", epsilon=np.inf)
    >>> round(found.line("age", "mean", "b").value, 6)
    50.0
    """
    started = time.perf_counter()
    if not isinstance(schema, Schema):
        schema = Schema.from_toml(schema)
    table = read_table(data) if isinstance(data, str | Path) else read_frame(data, name="data")
    unknown = sorted(options.keys() - {one.name for one in fields(RunConfig)})
    if unknown:
        raise InvalidInput(unknown[0], None, "is no option of describe", "see help(describe)")
    settings: dict[str, Any] = {"method": "auto", "delta": 1e-5, "epsilon": float(epsilon)}
    run = RunConfig.from_dict(settings | options)
    question = Question(schema, by, partition, nodes, by_site)
    given = _read_rows(question, table, run)
    result = _run_description(given, table, ledger, run_name=run_name, checkpoint=checkpoint)
    found = read_tables(given, result)[0]
    return replace(found, seconds=time.perf_counter() - started)


@dataclass(frozen=True)
class Given:
    """Rows of a table at sites, as codes, with what is asked of them.

    Parameters
    ----------
    question : Question
    run : RunConfig
    rows : Rows
    recipe : Description
    sites : tuple of str
        Names of all sites.
    unfit : tuple of str
        Sentences on rows that do not fit the schema, for their holder.
    """

    question: Question
    run: RunConfig
    rows: Rows
    recipe: Description
    sites: tuple[str, ...]
    unfit: tuple[str, ...]


def _read_rows(question: Question, table: Table, run: RunConfig) -> Given:
    """Read the codes of a table's rows, at their sites, and plan the release."""
    if not run.auto:
        raise InvalidInput(
            "method", run.method, "has no effect: a table trains no model", "leave method out"
        )
    schema = question.schema
    contents = question.contents
    errors = errors_of_columns(schema, table.columns)
    if errors:
        raise errors[0]
    if table.n_rows == 0:
        raise InvalidInput("data", None, "has no rows", "give a table with rows")
    codes, unfit = contents.read_rows(table.columns, schema.na)
    parts = _deal_rows(question, table, run.seed or 0)
    run = with_one_row_each(run, schema)
    for site, part in enumerate(parts):
        codes[part, SITE] = np.where(codes[part, 0] > 0, site + 1.0, 0.0)
    # A sum reads no label, so all labels are 1.
    rows = Rows.build_with_any_norm([(codes[part], np.ones(len(part))) for part in parts])
    recipe, _ = plan_description(question, rows.n[:, 0].tolist(), run)
    names = names_of_sites(question.how, table.columns, parts)
    sentences = tuple(describe_unfit_rows(unfit, shortened=False))
    return Given(question, run, rows, recipe, names, sentences)


def _deal_rows(question: Question, table: Table, seed: int) -> list[IntArray]:
    """Return the row numbers of every site; of a person only the first row at a site."""
    how, nodes, schema = question.how, question.nodes, question.schema
    placeholder = np.ones(table.n_rows)
    if how.startswith("site:"):
        parts = deal(how, placeholder, nodes, seed, columns=table.columns)
    elif how.partition(":")[0] in ("label", "dirichlet"):
        rule = "deals rows by their labels, which a table does not single out"
        raise InvalidInput("partition", how, rule, "use iid, column:NAME or site:NAME")
    elif schema.person is None:
        parts = deal(how, placeholder, nodes or 1, seed, columns=table.columns)
    elif how == "iid":
        parts = partition_people(_people(schema, table), nodes or 1, seed)
    else:
        rule = "assigns each row by its values, but the rows of a person must stay together"
        raise InvalidInput("partition", how, rule, "use iid or site:NAME")
    if schema.person is None:
        return parts
    people = _people(schema, table)
    return [part[first_rows_of_each(people[part], 1)] for part in parts]


def _people(schema: Schema, table: Table) -> IntArray:
    """Return the number of each row's person."""
    assert schema.person is not None
    return schema.person.number_people_of_table(table.columns, frozenset(schema.na))


def _run_description(
    given: Given, table: Table, ledger: DurableLedger | None, **kept: Any
) -> Result:
    """Run the recipe; `kept` are further arguments of :func:`sottovoce.runs.simulate.simulate`."""
    question, run = given.question, given.run
    digest = None
    # Where nothing but the table decides which site a row is at, as for `train`.
    stays = len(given.sites) == 1 or run.trusted.pools_rows or question.how.startswith("site:")
    if ledger is not None and stays:
        how = describe_deal(question.how, question.schema, len(given.sites), run)
        digest = table_digest([table], how)
    label = f"describe {table.name} {question.schema.fingerprint} {question.how} {question.by}"
    result = simulate(
        run,
        given.rows,
        method=given.recipe,
        loss=LOSS,
        ledger=ledger,
        label=label,
        caveat=question.schema.caveat,
        digest=digest,
        **kept,
    )
    return with_other_relation(result)


def read_tables(given: Given, result: Result) -> list[Described]:
    """Read the tables of all replicates from the outcome of the recipe.

    Parameters
    ----------
    given : Given
    result : Result

    Returns
    -------
    list of Described
        One for each replicate.
    """
    contents = given.question.contents
    own = contents.groups if contents.by is not None else ()
    notes, holder = _notes(given, contents)
    described = []
    for replicate in range(given.run.replicates):
        lines, differ, sites = _lines_of_replicate(given, result, contents, replicate)
        described.append(
            Described(
                table=tuple(lines),
                statement=result.statement,
                groups=own,
                differences=tuple(differ),
                sites=tuple(sites),
                asked=result.algorithm["asked"],
                notes=notes,
                holder_notes=holder,
                config=given.run,
            )
        )
    return described


def _notes(given: Given, contents: Contents) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what a reader should know, and what is for the holder of the rows only."""
    schema = given.question.schema
    notes = [INTERVALS, GAPS]
    if any(not isinstance(one, Levels) for one in contents.variables):
        notes.append(EVEN)
    if contents.by is not None:
        notes.append(UNGROUPED.format(by=contents.by.name))
    if schema.person is not None:
        notes.append(ONE_EACH)
    if schema.weighs:
        notes.append(WEIGHED)
    if contents.left_out:
        notes.append(LEFT_OUT.format(names=", ".join(contents.left_out[:8])))
    return tuple(notes), given.unfit


def _lines_of_replicate(
    given: Given, result: Result, contents: Contents, replicate: int
) -> tuple[list[Line], list[str], list[str]]:
    """Return the lines of one replicate, with the names of differences and of described sites."""
    facts: Facts = result.facts
    answers = result.outcome
    by_group = answers[0]
    y, sigma = by_group.value[replicate] * by_group.rows, by_group.spread * by_group.rows
    groups = len(contents.groups)
    found = [_overall(OVERALL, y, sigma, groups, by_group.rows, contents)]
    named = []
    if contents.by is not None:
        for name, own in zip(contents.groups, y.reshape(groups, -1), strict=True):
            named.append(GroupSums(name, own, sigma))
    sites = _sums_of_sites(given, facts, answers, contents, replicate)
    blocks = given.recipe.blocks
    lines: list[Line] = []
    tables = [GroupTable(one, contents, blocks) for one in (*found, *named, *sites)]
    for one in tables:
        lines += one.lines
    compared = tables[1 : 1 + len(named)]
    differ = []
    for other in compared[1:]:
        differ.append(f"{other.name} - {compared[0].name}")
        lines += differences(other, compared[0])
    return lines, differ, [one.name.removeprefix("site: ") for one in sites]


def _overall(
    name: str, y: Array, sigma: float, groups: int, rows: float, contents: Contents
) -> GroupSums:
    """Return the sums of all groups together; without groups their number of rows is public."""
    total = y.reshape(groups, -1).sum(axis=0)
    return GroupSums(name, total, sigma * math.sqrt(groups), rows if contents.by is None else None)


def _sums_of_sites(
    given: Given, facts: Facts, answers: Sequence[Any], contents: Contents, replicate: int
) -> list[GroupSums]:
    """Return the sums of every site: its own answer, or its part of the second release."""
    names = [f"site: {name}" for name in given.sites]
    by_group = answers[0]
    if len(answers) > 1:
        of_sites = answers[1]
        y = of_sites.value[replicate] * of_sites.rows
        sigma = of_sites.spread * of_sites.rows
        return [
            GroupSums(name, own, sigma)
            for name, own in zip(names, y.reshape(len(names), -1), strict=True)
        ]
    if by_group.sites is None:
        return []
    rows = facts.rows_per_node[:, 0]
    return [
        _overall(name, values * n, spread * n, len(contents.groups), n, contents)
        for name, values, spread, n in zip(
            names, by_group.sites.values[replicate], by_group.sites.spreads, rows, strict=True
        )
    ]


__all__ = ["Described", "Question", "describe", "plan_description"]
