"""Running a survey on the tables of one or several sites, and the schema that it proposes.

:func:`price_survey` forecasts a survey from public facts, :func:`survey` runs it; commands are
``sottovoce schema survey`` and, for audits, :func:`replicates`.  Grids, thresholds and proposals
are in :mod:`sottovoce.answers.survey`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data.draft import toml_of
from ..data.frames import read_frame
from ..data.grids import Grid, grids_from_schema
from ..data.loaders import table_digest
from ..data.partition import partition
from ..data.person import first_rows_of_each
from ..data.rows import Rows
from ..data.schema import Schema
from ..data.table import Table
from ..errors import InvalidInput, SchemaError, escape_unprintable
from ..ledger.durable import DurableLedger
from ..privacy.statement import Statement, ceil_text
from ..problem.facts import Among
from ..reports.notebook import format_pairs
from ..runs.config import RunConfig
from ..runs.prepare import prepare
from ..runs.pricing import privacy_statement
from ..runs.simulate import Result, simulate
from ..runs.training import describe_deal
from ..util.pages import render_for_notebook
from ..util.typing import Array, IntArray
from .evaluation import LOSS
from .survey import (
    ERROR,
    RARE,
    Column,
    Noise,
    Survey,
    apply_proposals,
    findings_by_column,
    noise_of_count,
    survey_from_schema,
)


@dataclass(frozen=True)
class Question:
    """Options of a survey: what is counted, and what must not be shown.

    Parameters
    ----------
    columns : sequence of str, optional
        Columns to count; fewer columns have less noise.  None for all that have a grid.
    rare : float
        Number of rows: no level and no run of cells with at most as many rows is shown, but for
        the error rate.
    error : float
        Probability that any of the survey's statements about cells fails.
    """

    columns: Sequence[str] | None = None
    rare: float = RARE
    error: float = ERROR


EVERYTHING = Question()
"""Every column that has a grid, with the usual protection of rare rows."""


@dataclass(frozen=True)
class Expected:
    """Forecast of a survey from public facts: noise, statement, and releases.

    Parameters
    ----------
    noise : Noise
    statement : Statement
    asked : list of dict
        Name and share of the budget of every release.
    columns : tuple of str
        Names of the columns that are counted.
    cells : int
        Number of cells of all grids together.
    """

    noise: Noise
    statement: Statement
    asked: list[dict[str, Any]]
    columns: tuple[str, ...]
    cells: int

    @property
    def says(self) -> str:
        """The forecast in words, on one line."""
        rows, sigma = self.noise.rows, self.noise.sigma
        counted = self.statement.counted
        return (
            f"{len(self.columns)} columns in {self.cells} cells; each count has noise of standard "
            f"deviation {sigma:,.0f}, for {rows:,.0f} {counted} in all: a cell or level is surely "
            f"seen from {self.noise.surely_seen_rows:,.0f} {counted} on, and not shown up to "
            f"{self.noise.rare:,.0f}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast as plain data."""
        return {
            "columns": list(self.columns),
            "cells": self.cells,
            "rows": self.noise.rows,
            "noise": self.noise.sigma,
            "rare": self.noise.rare,
            "threshold": self.noise.threshold(),
            "surely": self.noise.surely_seen_rows,
            "asked": self.asked,
            "privacy": self.statement.to_dict(),
            "says": self.says,
        }


@dataclass(frozen=True)
class Surveyed:
    """Findings of a survey, and the schema that it proposes; all of it may be shown.

    Parameters
    ----------
    expected : Expected
        With the noise and the statement of the survey that was run.
    columns : tuple of Column
        Findings by column.
    declared, proposed : Schema
        The schema that was surveyed, and the new one.
    error : float
        As for :class:`Question`.
    """

    expected: Expected
    columns: tuple[Column, ...]
    declared: Schema
    proposed: Schema
    error: float

    def __repr__(self) -> str:
        return format_pairs(*self._told())

    def _repr_html_(self) -> str:
        """Return the findings as HTML for a notebook."""
        title, pairs, remark = self._told()
        return render_for_notebook(title=title, pairs=pairs, remark=remark)

    def _told(self) -> tuple[str, list[tuple[str, str]], str]:
        """Return the title, pairs of a column and its findings, and the privacy statement."""
        title = (
            f"Survey of the schema {escape_unprintable(self.declared.name)}; the attribute toml "
            "holds the proposed schema"
        )
        columns = [(escape_unprintable(one.name), _finding_in_words(one)) for one in self.columns]
        return title, columns, self.statement.text

    @property
    def statement(self) -> Statement:
        """Privacy statement of the survey."""
        return self.expected.statement

    @property
    def toml(self) -> str:
        """The proposed schema as a TOML file; comments at its top hold statement and findings."""
        told = [
            f"Proposed by a survey of the schema {self.declared.name!r}.  Its privacy cost:",
            self.statement.text,
            f"With probability {1.0 - self.error:g} or more, no level and no run of cells with at "
            f"most {self.expected.noise.rare:g} {self.statement.counted} is shown, and the shares "
            "beyond the new bounds are at most those stated below.",
            *(f"{one.name}: {_finding_in_words(one)}" for one in self.columns),
        ]
        return toml_of(self.proposed, told)

    def to_dict(self) -> dict[str, Any]:
        """Return the findings and the proposed schema as plain data."""
        return {
            **self.expected.to_dict(),
            "schema": self.proposed.to_dict(),
            "error": self.error,
            "columns": [one.to_dict() for one in self.columns],
        }


def _finding_in_words(column: Column) -> str:
    """Return what was found on a column, on one line."""
    told: list[str] = []
    if column.beyond is not None:
        told.append(f"at most {100 * column.beyond:.2g}% beyond the bounds")
    if column.missing:
        told.append(f"about {100 * column.missing:.2g}% missing")
    if column.unread:
        told.append(f"about {100 * column.unread:.2g}% unreadable or not declared")
    if column.dropped:
        told.append(f"not seen: {', '.join(column.dropped)}")
    if column.says:
        told.append(column.says)
    if not told:
        return "unchanged"
    return "; ".join(told)


def price_survey(
    schema: Schema, sizes: Sequence[float], run: RunConfig, question: Question = EVERYTHING
) -> Expected:
    """Price a survey of sites with these numbers of rows, without any data.

    Parameters
    ----------
    schema : Schema
        Its bounds and levels make the public grids.
    sizes : sequence of float (sites,)
        Rows of every site.
    run : RunConfig
        With ``method="auto"``: budget, trust, relation, seed.
    question : Question
        What to count, and the thresholds; by default all that has a grid.

    Returns
    -------
    Expected
        Noise of the counts, statement, and releases.

    Raises
    ------
    InvalidInput
        If noise leaves nothing to be seen, or an option does not fit.
    """
    grids = grids_from_schema(schema, question.columns)
    if schema.person is not None:
        run = replace(run, rows_per_person=schema.person.rows)
    n = np.asarray(sizes, dtype=float)[:, None]
    recipe = survey_from_schema(schema, grids)
    prepared = prepare(run, n, len(grids), method=recipe, loss=LOSS)
    method, facts = prepared.algorithm, prepared.facts
    assert isinstance(method, Survey)
    n_rows = float(n.sum())
    sigma = (
        method.releases_with_noise.noise_deviation(0, facts, Among.all_sites(facts))
        * n_rows
        * math.sqrt(len(grids))
    )
    noise = Noise.from_error_rate(grids, n_rows, sigma, question.rare, question.error)
    noise.check_visibility()
    simulated = run.seed is not None
    statement = privacy_statement(
        prepared, prepared.plan_ledger().rows, simulated=simulated, caveat=schema.caveat
    )
    return Expected(
        noise=noise,
        statement=statement,
        asked=method.releases_with_noise.to_plain_items(),
        columns=tuple(grid.name for grid in grids),
        cells=sum(grid.width for grid in grids),
    )


def survey(
    schema: Schema,
    tables: Sequence[Any],
    run: RunConfig,
    question: Question = EVERYTHING,
    *,
    ledger: DurableLedger | None = None,
    run_name: str | None = None,
    checkpoint: str | Path | None = None,
) -> Surveyed:
    """Survey the ranges, levels and missing values of columns in one private release of histograms.

    The answer proposes bounds, typical ranges and levels for the schema.

    Parameters
    ----------
    schema : Schema
        Its bounds may be far too wide, and its categories may list too many candidates: they make
        the public grids.
    tables : sequence of Table, or of frames of pandas, polars or pyarrow
        One for each site; or a single one, whose rows the schema's site column assigns to sites if
        it names one.
    run : RunConfig
        With ``method="auto"``: budget, trust, relation, seed.
    question : Question
        What to count; by default all that has a grid.
    ledger : DurableLedger, optional
        Ledger on disk.  It knows the tables by their raw rows, under every schema, as training
        does.
    run_name : str, optional
        Name of the run in that ledger.
    checkpoint : path, optional
        File from which an interrupted run resumes; see
        :func:`sottovoce.runs.simulate.simulate`.

    Returns
    -------
    Surveyed
        The columns, the proposed schema, and the statement.

    Raises
    ------
    InvalidInput
        Before anything is spent; no data value is shown.

    Guarantee
    ---------
    One release of noisy counts, of all grids together, priced by the event of its query; relation,
    unit, epsilon and delta are those of ``statement``.  All else is computed from the noisy counts
    and from public facts.

    Examples
    --------
    A simulated survey of one table; ``toml`` is the proposed schema as a file::

        run = RunConfig(method="auto", epsilon=0.3, delta=1e-5)
        found = survey(schema, [table], run)
        print(found.toml)
    """
    grids, expected, result = _run_survey(
        schema, tables, run, question, ledger, run_name=run_name, checkpoint=checkpoint
    )
    found = findings_by_column(grids, result.outcome, expected.noise, schema)
    changed = apply_proposals(schema, found, _price_in_words(result.statement))
    return Surveyed(expected, tuple(found), schema, changed, question.error)


def _price_in_words(statement: Statement) -> str:
    """Return a survey's privacy loss in words, which later statements on its schema quote."""
    told = ""
    if statement.simulated:
        told += "simulated, "
    if statement.ledger is not None:
        told += f"run {statement.ledger.run}, "
    return (
        f"{told}epsilon = {ceil_text(statement.epsilon)}, delta = {statement.delta:g}, "
        f"{statement.unit} ({statement.relation})"
    )


def replicates(
    schema: Schema, tables: Sequence[Any], run: RunConfig
) -> tuple[Expected, Iterator[list[Column]]]:
    """Run a simulated survey in several replicates, for audits.

    Parameters
    ----------
    schema : Schema
    tables : sequence of Table or of frames
        As for :func:`survey`.
    run : RunConfig
        Its ``replicates`` say how many.

    Returns
    -------
    expected : Expected
        Noise and statement.
    columns : iterator of list of Column
        One list for each replicate.

    Raises
    ------
    InvalidInput
        As :func:`survey`.
    """
    grids, expected, result = _run_survey(schema, tables, run, EVERYTHING)
    return expected, (
        findings_by_column(grids, result.outcome, expected.noise, schema, k)
        for k in range(run.replicates)
    )


def _run_survey(
    schema: Schema,
    tables: Sequence[Any],
    run: RunConfig,
    question: Question,
    ledger: DurableLedger | None = None,
    **kept: Any,
) -> tuple[tuple[Grid, ...], Expected, Result]:
    """Run a survey; return its grids, its noise and statement, and the run with the counts.

    `kept` are further arguments of :func:`sottovoce.runs.simulate.simulate`, such as `run_name`.
    """
    if not run.auto:
        raise InvalidInput(
            "method", run.method, "has no effect: a survey trains no model", "leave method out"
        )
    tables = [read_frame(table, name="table") for table in tables]
    grids = grids_from_schema(schema, question.columns)
    parts, people = _locate_rows(schema, tables, grids)
    # Rows of cells' numbers; a count reads no label, so all labels are 1.
    rows = Rows.build_with_any_norm([(part, np.ones(len(part))) for part in parts])
    if schema.person is not None:
        run = replace(run, rows_per_person=schema.person.rows)
        rows = rows.with_people(people, schema.person.rows)
    # How rows are assigned to sites, as a part of the table's digest.
    how = "a site each"
    if len(tables) == 1:
        how = f"site:{schema.site}"
    expected = price_survey(schema, rows.n[:, 0].tolist(), run, question)
    label = f"survey {' '.join(table.name for table in tables)} {schema.fingerprint}"
    digest = None
    if ledger is not None:
        # By raw rows, as training does: the ledger knows a table under every schema.
        digest = table_digest(tables, describe_deal(how, schema, len(parts), run))
    result = simulate(
        run,
        rows,
        method=survey_from_schema(schema, grids),
        loss=LOSS,
        ledger=ledger,
        label=label,
        caveat=schema.caveat,
        digest=digest,
        **kept,
    )
    noise = expected.noise._replace(
        rows=result.outcome.rows, sigma=noise_of_count(result.outcome, len(grids))
    )
    return grids, replace(expected, noise=noise, statement=result.statement), result


def _check_sources(schema: Schema, table: Table, grids: Sequence[Grid]) -> None:
    """Refuse (SchemaError) a table without the column of persons or one that is to be counted."""
    wanted = [name for grid in grids for name in grid.sources(table.columns)]
    if schema.person is not None:
        wanted.append(schema.person.column)
    lost = [name for name in wanted if name not in table.columns]
    if lost:
        raise SchemaError(
            lost[0], None, f"is not a column of {table.name}", "add it, or survey other columns"
        )


def _locate_rows(
    schema: Schema, tables: Sequence[Table], grids: Sequence[Grid]
) -> tuple[list[Array], list[IntArray]]:
    """Find the cell of every row in every grid, and the person of every row, by site.

    A single table is split by the schema's site column, if it names one.

    Returns
    -------
    cells : list of array (n_i, grids)
        Numbers of cells.
    people : list of int array (n_i,)
        Number of each row's person; without persons in the schema, of the row itself.
    """
    if not tables:
        raise InvalidInput("table", None, "is missing", "give a table for each site")
    na = frozenset(schema.na)
    found: list[Array] = []
    people: list[IntArray] = []
    for table in tables:
        _check_sources(schema, table, grids)
        cells = [grid.cell_of_each_row(table.columns, na) for grid in grids]
        found.append(np.stack(cells, axis=1).astype(float))
        if schema.person is None:
            people.append(np.arange(table.n_rows))
        else:
            people.append(schema.person.number_people(table.columns[schema.person.column], na))
    site = schema.site
    dealt = [np.arange(len(part)) for part in found]
    if len(tables) > 1 or site is None:
        return _rows_that_are_read(schema, found, people, dealt)
    if site not in tables[0].columns:
        raise SchemaError(
            site,
            None,
            f"is not a column of {tables[0].name}",
            "add the column that names the site of a row",
        )
    dealt = partition(f"site:{site}", np.ones(tables[0].n_rows), None, columns=tables[0].columns)
    return _rows_that_are_read(schema, found * len(dealt), people * len(dealt), dealt)


def _rows_that_are_read(
    schema: Schema, found: Sequence[Array], people: Sequence[IntArray], parts: Sequence[IntArray]
) -> tuple[list[Array], list[IntArray]]:
    """Select the rows of each part, keeping of a person no more than the schema allows.

    `found`, `people` and `parts` are by site: cells of rows, their persons, and row numbers.
    """
    if schema.person is not None:
        most = schema.person.rows
        parts = [
            part[first_rows_of_each(own[part], most)]
            for own, part in zip(people, parts, strict=True)
        ]
    pairs = list(zip(found, people, parts, strict=True))
    return [cells[part] for cells, _, part in pairs], [own[part] for _, own, part in pairs]
