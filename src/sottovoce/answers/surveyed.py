"""Asking a :class:`sottovoce.answers.survey.Survey` of one table, or of several sites; the schema that it proposes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.draft import toml_of
from ..data.grids import Grid, grids_of
from ..data.partition import partition
from ..data.rows import Rows
from ..data.schema import Schema
from ..data.table import Table
from ..errors import InvalidInput, SchemaError
from ..ledger.durable import DurableLedger
from ..privacy.statement import Statement, ceil_text
from ..problem.facts import Among
from ..runs.config import RunConfig
from ..runs.prepare import prepare, privacy_statement
from ..runs.simulate import simulate
from ..util.typing import Array
from .evaluation import LOSS
from .survey import ERROR, RARE, Column, Noise, Survey, columns_of, proposed, spread_of, survey_of


@dataclass(frozen=True)
class Expected:
    """What a survey will be able to see, from public facts.

    Parameters
    ----------
    noise : Noise
    statement : Statement
    asked : list of dict
        Name and share of the budget of every release.
    columns : tuple of str
        What is counted.
    cells : int
        Of all grids together.
    """

    noise: Noise
    statement: Statement
    asked: list[dict[str, Any]]
    columns: tuple[str, ...]
    cells: int

    @property
    def says(self) -> str:
        """In one sentence."""
        rows, sigma = self.noise.rows, self.noise.sigma
        return (
            f"{len(self.columns)} columns in {self.cells} cells; noise of standard deviation {sigma:,.0f} on every "
            f"count, of {rows:,.0f} rows: a cell or level is surely seen from {self.noise.surely:,.0f} rows on, and "
            f"not shown up to {self.noise.rare:,.0f}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "columns": list(self.columns), "cells": self.cells, "rows": self.noise.rows, "noise": self.noise.sigma,
            "rare": self.noise.rare, "threshold": self.noise.threshold(), "surely": self.noise.surely,
            "asked": self.asked, "privacy": self.statement.to_dict(), "says": self.says,
        }  # fmt: skip


@dataclass(frozen=True)
class Surveyed:
    """A survey's released answer, and what is proposed because of it; all of it may be shown."""

    expected: Expected
    columns: tuple[Column, ...]
    declared: Schema
    proposed: Schema
    error: float

    @property
    def statement(self) -> Statement:
        """What the survey cost."""
        return self.expected.statement

    @property
    def toml(self) -> str:
        """The proposed schema as a file, under the statement."""
        told = [
            f"Proposed by a survey of the schema {self.declared.name!r}; below is what that cost.",
            self.statement.text,
            f"But for an error rate of {self.error:g} in all, no level and no run of cells with at most "
            f"{self.expected.noise.rare:g} rows is shown, and no more rows lie beyond new bounds than it says.",
            *(f"{one.name}: {_words(one)}" for one in self.columns),
        ]
        return toml_of(self.proposed, told)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            **self.expected.to_dict(), "schema": self.proposed.to_dict(), "error": self.error,
            "columns": [one.to_dict() for one in self.columns],
        }  # fmt: skip


def _words(column: Column) -> str:
    told = [f"at most {100 * column.beyond:.2g}% beyond"] if column.beyond is not None else []
    told += [f"about {100 * share:.2g}% {what}" for what, share in
             (("missing", column.missing), ("cannot be read or not declared", column.unread)) if share]  # fmt: skip
    told += [f"not seen: {', '.join(column.dropped)}"] if column.dropped else []
    return "; ".join([*told, *filter(None, [column.says])]) or "as declared"


def ahead(
    schema: Schema, sizes: Sequence[float], run: RunConfig, *, columns: Sequence[str] | None = None,
    rare: float = RARE, error: float = ERROR,
) -> Expected:  # fmt: skip
    """Price a survey of sites with these numbers of rows, without any data; parameters as for :func:`survey`."""
    grids = grids_of(schema, columns)
    n = np.asarray(sizes, dtype=float)[:, None]
    recipe = survey_of(schema, grids)
    prepared = prepare(run, n, len(grids), method=recipe, loss=LOSS)
    method, facts = prepared.algorithm, prepared.facts
    assert isinstance(method, Survey)
    sigma = method.spread(0, facts, Among.all(facts)) * float(n.sum()) * math.sqrt(len(grids))
    noise = Noise.of(grids, float(n.sum()), sigma, rare, error)
    noise.check()
    simulated = run.seed is not None
    statement = privacy_statement(prepared, prepared.plan().rows, simulated=simulated, caveat=schema.caveat)
    return Expected(noise, statement, method.asked, _names(grids), sum(grid.width for grid in grids))


def survey(
    schema: Schema, tables: Sequence[Table], run: RunConfig, *, columns: Sequence[str] | None = None,
    rare: float = RARE, error: float = ERROR, ledger: DurableLedger | None = None, run_name: str | None = None,
    checkpoint: str | Path | None = None, digest: bytes | None = None,
) -> Surveyed:  # fmt: skip
    """Count coarsely in one release, and propose bounds, typical ranges and levels.

    Parameters
    ----------
    schema : Schema
        Its bounds may be far too wide, and its categories list too many candidates: they make the public grids.
    tables : sequence of Table
        One for each site; or one, whose rows the schema's site column deals to sites if it names one.
    run : RunConfig
        With ``method="auto"``: budget, trust, relation, seed.
    columns : sequence of str, optional
        What to count; fewer columns have less noise.  None for all that have a grid.
    rare : float
        No level and no run of cells with at most so many rows is shown, but for the error rate.
    error : float
        Rate of all errors together.
    ledger, run_name, checkpoint, digest : optional
        See :func:`sottovoce.runs.simulate.simulate`.

    Raises
    ------
    InvalidInput
        Before anything is spent; no data value is shown.
    """
    if not run.auto:
        raise InvalidInput("method", run.method, "a survey counts, and trains nothing", "leave method out")
    grids = grids_of(schema, columns)
    parts = _located(schema, tables, grids)
    expected = ahead(schema, [len(part) for part in parts], run, columns=columns, rare=rare, error=error)
    rows = Rows.of_any_norm([(part, np.ones(len(part))) for part in parts])
    label = f"survey {' '.join(table.name for table in tables)} {schema.fingerprint}"
    result = simulate(
        run, rows, method=survey_of(schema, grids), loss=LOSS, ledger=ledger, run_name=run_name, label=label,
        caveat=schema.caveat, checkpoint=checkpoint, digest=digest,
    )  # fmt: skip
    answer, said = result.outcome, result.statement
    noise = expected.noise._replace(rows=answer.rows, sigma=spread_of(answer, len(grids)))
    found = columns_of(grids, answer, noise, schema)
    told = "simulated, " if said.simulated else ""
    told += "" if said.ledger is None else f"run {said.ledger.run}, "
    price = f"{told}epsilon = {ceil_text(said.epsilon)}, delta = {said.delta:g}, {said.unit} ({said.relation})"
    known = Expected(noise, said, expected.asked, expected.columns, expected.cells)
    return Surveyed(known, tuple(found), schema, proposed(schema, found, price), error)


def _names(grids: Sequence[Grid]) -> tuple[str, ...]:
    return tuple(grid.name for grid in grids)


def _located(schema: Schema, tables: Sequence[Table], grids: Sequence[Grid]) -> list[Array]:
    """The cells of every site's rows in every grid, (n_i, columns)."""
    if not tables:
        raise InvalidInput("table", None, "there is none", "give one table a site")
    na, found = frozenset(schema.na), list[Array]()
    for table in tables:
        lost = [name for grid in grids for name in grid.sources(table.columns) if name not in table.columns]
        if lost:
            raise SchemaError(lost[0], None, f"is no column of {table.name}", "add it, or survey other columns")
        found.append(np.stack([grid.locate(table.columns, na) for grid in grids], axis=1).astype(float))
    site = schema.site
    if len(tables) > 1 or site is None:
        return found
    if site not in tables[0].columns:
        raise SchemaError(site, None, f"says who holds a row, and is no column of {tables[0].name}", "add it")
    dealt = partition(f"site:{site}", np.ones(tables[0].n_rows), None, columns=tables[0].columns)
    return [found[0][part] for part in dealt]
