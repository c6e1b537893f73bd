"""Steps three and four of every `fit`: pricing the runs (plan), and running them.

Each step of a fit is a function of frozen values; its result carries the notes to warn of:

1. ``validate``: what is declared, checked; no row is read.
2. ``encode``: rows at sites in the unit ball, which stay in this process, and their public sizes.
3. ``plan``: methods chosen and priced from public facts; nothing is spent.
4. :func:`run_planned_fit`: the ledger is charged, noise is drawn, vectors are released.
5. ``decode``: coefficients in the units of the columns, from what was released.

Steps 1, 2 and 5 are in ``classifier_steps``, ``regressor_steps``, ``survival_steps`` and
``components``.  A *recipe* is a method that asks for a fixed list of sums, as opposed to one that
runs for rounds (:class:`sottovoce.algorithms.Recipe`).
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
    """Public facts of encoded rows: all that a plan may use of them.

    Parameters
    ----------
    n : array (N, 1)
        Number of rows at every site; of people where a person's rows are protected together.
    d : int
        Entries of an encoded row.
    sites : array (N,)
        Identifiers of the sites.
    apart : bool
        Whether the sites were given, by `groups` or the schema; False for rows dealt at random.
    """

    n: Array
    d: int
    sites: Any
    apart: bool


@dataclass(frozen=True)
class SharedLedger:
    """The ledger that several fits share, if there is one, and how it recognises the rows.

    Parameters
    ----------
    ledger : Ledger, DurableLedger or None
    deal : bytes or None
        Digest of the rows and of their assignment to sites, for a ledger in memory.
    table : Table or None
        The frame that was fitted, for a ledger on disk; None if labels or sites were given
        separately.
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
        """Return the digest by which a ledger on disk recognises the table; None without one.

        It is of the raw rows, so the bounds that a schema declares do not change it.
        """
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
        """The ledger that several fits share, if any."""

    def rows_of_run(self, k: int) -> Rows:
        """Return the rows of run k of a fit, in the unit ball."""


@dataclass(frozen=True)
class AskedRows:
    """Rows of a fit that has a single run; `made` has them at their sites, in the unit ball."""

    made: Rows
    caveat: Caveat
    shared: SharedLedger = NOT_SHARED

    def rows_of_run(self, k: int) -> Rows:
        """Return the rows of the only run."""
        return self.made


@dataclass(frozen=True)
class Planned:
    """The runs of a fit, priced, with all that was resolved on the way; nothing has been spent.

    Parameters
    ----------
    runs : tuple of PlannedRun
        In their order; the runs of several classes share one budget.
    labels : tuple of str
        Name of each run in the keys of a ledger.
    says : tuple of str
        Text of the progress bar for each run; empty for no bar.
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
    """Price a fit whose only run is a recipe.

    Parameters
    ----------
    config : RunConfig
        Budget, trust and seed.
    recipe : Recipe
    loss : Loss
    public : Public
    says : str
        Text of the progress bar; empty for none.

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
    """Run what is planned; each release is charged to the ledger before its noise is drawn.

    Parameters
    ----------
    planned : Planned
    encoded : EncodedRows
    verbose : bool or None
        Whether to report progress; None for a bar on a terminal once a fit is long.

    Returns
    -------
    tuple of Result
        One for each run.  The last one's statement is that of the whole fit; it also has epsilon
        under the other neighbouring relation (replace-one or zero-out).
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
    """Run one plan, the k-th of a fit; `label` is its name in the keys of a ledger.

    LedgerMismatch if a ledger on disk belongs to other rows, with advice for cross-validation.
    """
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
    """Add assumptions that the estimator cannot check, `rests`, to a privacy statement."""
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
