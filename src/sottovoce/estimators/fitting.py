"""The third and the fourth step of every `fit`: what will be asked, at which price, and the asking.

Each step of a fit is a function of frozen values and returns its notes:

1. ``validate``: what is declared, checked; no row is read.
2. ``encode``: rows at sites in the unit ball, which stay here, and their public sizes.
3. ``plan``: methods chosen and priced from public facts; nothing is spent.
4. :func:`run_planned_fit`: the ledger is charged, noise is drawn, vectors are released.
5. ``decode``: coefficients in the units of the columns, from what was released.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..algorithms import Recipe
from ..data.loaders import table_digest
from ..data.rows import Rows
from ..data.schema import Schema
from ..errors import LedgerMismatch
from ..ledger.durable import DurableLedger
from ..ledger.memory import Ledger
from ..privacy.statement import Statement, with_further_facts
from ..privacy.statement_facts import Caveat, RestsOn
from ..problem.losses import Loss
from ..runs.auto_search import Choice
from ..runs.centre import Decision
from ..runs.config import RunConfig
from ..runs.engine import Observer
from ..runs.forecast import Forecast
from ..runs.planned import PlannedRun, plan_run
from ..runs.relations import with_other_relation
from ..runs.simulate import Result, run_planned
from ..runs.training import describe_deal
from ..util.progress import open_progress_teller
from ..util.typing import Any, Array
from .notices import Note


@dataclass(frozen=True)
class Public:
    """Public facts of encoded rows, and all that a plan may use of them.

    Parameters
    ----------
    n : array (N, 1)
        Rows of every site, or people where their rows are bounded together.
    d : int
        Entries of a row.
    sites : array
        Identifiers.
    apart : bool
        Whether sites were given, and not dealt at random.
    """

    n: Array
    d: int
    sites: Any
    apart: bool


@dataclass(frozen=True)
class SharedLedger:
    """The ledger that several fits share, if there is one, and what it knows the rows by.

    Parameters
    ----------
    ledger : Ledger, DurableLedger or None
    deal : bytes or None
        Digest of the rows at their sites, for a ledger in memory.
    table
        The frame that was fitted, for a ledger on disk; None if labels or sites came beside it.
    schema : Schema or None
    part_of_a_table : bool
        Whether scikit-learn may be fitting a part of a table.
    """

    ledger: Ledger | DurableLedger | None = None
    deal: bytes | None = None
    table: Any = None
    schema: Schema | None = None
    part_of_a_table: bool = False

    def table_digest_on_disk(self, config: RunConfig, sites: int) -> bytes | None:
        """Return the digest of a table for a ledger on disk, whatever the bounds of the schema."""
        if self.table is None or self.schema is None or not isinstance(self.ledger, DurableLedger):
            return None
        deal = describe_deal(f"site:{self.schema.site}", self.schema, sites, config)
        return table_digest([self.table], deal)


NOT_SHARED = SharedLedger()
"""A fit with a budget of its own."""


class EncodedRows(Protocol):
    """The part of encoded rows that :func:`run_planned_fit` needs; they stay with their holder."""

    @property
    def caveat(self) -> Caveat:
        """Uses of the rows that epsilon does not cover."""

    @property
    def shared(self) -> SharedLedger:
        """The ledger of several fits."""

    def rows_of_run(self, k: int) -> Rows:
        """Return the rows of run k of a fit, in the unit ball."""


@dataclass(frozen=True)
class AskedRows:
    """Rows that one run is asked of."""

    made: Rows
    caveat: Caveat
    shared: SharedLedger = NOT_SHARED

    def rows_of_run(self, k: int) -> Rows:
        return self.made


@dataclass(frozen=True)
class Planned:
    """The runs of a fit, priced, with all that was resolved on the way; nothing has been spent.

    Parameters
    ----------
    runs : tuple of PlannedRun
        Copies share one budget.
    labels : tuple of str
        What each of them is called in the keys of ledgers, and on the way.
    says : tuple of str
        What a bar says of each; empty for none.
    choice : Choice or None
        What ``method="auto"`` picked.
    decision : Decision or None
        Whether rows are centred.
    forecast : Forecast or None
    notes : tuple of Note
    """

    runs: tuple[PlannedRun, ...]
    labels: tuple[str, ...] = ("",)
    says: tuple[str, ...] = ()
    choice: Choice | None = None
    decision: Decision | None = None
    forecast: Forecast | None = None
    notes: tuple[Note, ...] = ()


def plan_recipe_fit(
    config: RunConfig, recipe: Recipe, loss: Loss, public: Public, says: str = ""
) -> Planned:
    """Price a recipe, the only run of a fit.

    Parameters
    ----------
    config : RunConfig
        Budget, trust and seed.
    recipe : Recipe
    loss : Loss
    public : Public
    says : str
        What a bar says; empty for none.

    Returns
    -------
    Planned
        One run; nothing has been spent.
    """
    asked = plan_run(config, public.n, public.d, method=recipe, loss=loss)
    if not says:
        return Planned((asked,))
    return Planned((asked,), says=(says,))


def run_planned_fit(
    planned: Planned, encoded: EncodedRows, *, verbose: bool | int | None = None
) -> tuple[Result, ...]:
    """Run what is planned: each release is charged before its noise is drawn.

    Parameters
    ----------
    planned : Planned
    encoded : EncodedRows
    verbose : bool or None
        Whether to say how far it is.

    Returns
    -------
    tuple of Result
        One a run.  The statement of the last, which is that of the fit, has the price under the
        other relation too.
    """
    results = []
    with open_progress_teller(verbose) as teller:
        for k, one in enumerate(planned.runs):
            observers: list[Observer] = []
            if planned.says:
                teller.begin_phase(planned.says[k], one.config.rounds)
                observers.append(teller)
            results.append(_run_one_plan(one, encoded, k, planned.labels[k], observers))
    return (*results[:-1], with_other_relation(results[-1]))


def _run_one_plan(
    planned: PlannedRun, encoded: EncodedRows, k: int, label: str, observers: Sequence[Observer]
) -> Result:
    """Run what is planned as run k of a fit."""
    shared = encoded.shared
    try:
        return run_planned(
            planned,
            encoded.rows_of_run(k),
            observers=observers,
            label=label,
            ledger=shared.ledger,
            caveat=encoded.caveat,
            deal=shared.deal,
            digest=shared.table_digest_on_disk(planned.config, len(planned.n)),
        )
    except LedgerMismatch as error:
        if not shared.part_of_a_table:
            raise
        said = f"{error}; for cross-validation, which fits parts of a table, use a Ledger in memory"
    raise LedgerMismatch(said)


def statement_with_assumptions(statement: Statement, rests: Sequence[str]) -> Statement:
    """Return a statement with the assumptions that the estimator cannot check."""
    return with_further_facts(statement, RestsOn(tuple(rests)))


__all__ = [
    "NOT_SHARED",
    "AskedRows",
    "EncodedRows",
    "Planned",
    "Public",
    "SharedLedger",
    "plan_recipe_fit",
    "run_planned_fit",
    "statement_with_assumptions",
]
