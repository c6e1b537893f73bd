"""Planned runs: configured and priced from public facts, before any row is read.

:func:`plan_run` makes one, and :func:`sottovoce.runs.simulate.run_planned` runs it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..algorithms import Recipe
from ..data.rows import Rows
from ..errors import InvalidInput
from ..problem.losses import Loss, make_loss
from ..util.typing import Array
from .centre import Centring, with_centring_digest
from .config import RunConfig
from .prepare import config_of_asked_run, prepare
from .pricing import Prepared
from .start import Start, with_start_digest


@dataclass(frozen=True)
class PlannedRun:
    """A priced run, its public start, and the public sizes that it was priced for.

    It is run once: the ledger of :attr:`prepared` is the one that the run charges.

    Parameters
    ----------
    config : RunConfig
        With the digests of its start and of how its rows are centred.
    prepared : Prepared
    n : array (N, 1)
        Rows of every site, or people where these are bounded together.
    d : int
        Entries of a model.
    loss : Loss
        Of a row, before gradients are clipped.
    start : Start, optional
    """

    config: RunConfig
    prepared: Prepared
    n: Array
    d: int
    loss: Loss
    start: Start | None = None

    def check_planned_rows(self, rows: Rows) -> None:
        """Refuse (InvalidInput) rows of other sizes, loss or unit than those that were priced."""
        check_rows_fit_loss(rows, self.config, self.loss)
        if rows.d != self.d or not np.array_equal(rows.n, self.n):
            rule = (
                f"do not have the sizes that the run was planned for ({len(self.n)} sites, models "
                f"of {self.d} entries)"
            )
            raise InvalidInput("rows", None, rule, "plan a run for these rows")


def check_rows_fit_loss(rows: Rows, config: RunConfig, loss: Loss) -> None:
    """Refuse rows that are not of the loss's kind, or not bounded in the run's privacy unit.

    Parameters
    ----------
    rows : Rows
    config : RunConfig
        Its privacy unit: a row, or a person of some rows.
    loss : Loss
        Of a row, before gradients are clipped.

    Raises
    ------
    InvalidInput
        If they do not fit.
    """
    rows.check_loss_fits(loss)
    rows.check_privacy_unit(config.rows_per_person)


def plan_run(
    config: RunConfig,
    n: Array,
    d: int,
    *,
    method: Recipe | None = None,
    loss: Loss | None = None,
    start: Start | None = None,
    centre: Centring | None = None,
) -> PlannedRun:
    """Decide and price a run from public facts.

    Parameters
    ----------
    config : RunConfig
    n : array (N, 1)
        Rows of every site, or people where these are bounded together.
    d : int
        Entries of a model.
    method : Recipe, optional
        Asked in place of the configuration's method, under its budget, trust and seed.
    loss : Loss, optional
        None for the configuration's.
    start : Start, optional
        The public point from which the run starts; None for zero.
    centre : Centring, optional
        Ask the rows' mean first, within the budget, and run the method on moved rows.

    Returns
    -------
    PlannedRun
        Its ledger is empty: nothing has been spent.

    Raises
    ------
    InvalidInput
        As :func:`sottovoce.runs.prepare.prepare`, and for a start that does not fit.
    """
    config = config_of_asked_run(config, method)
    config = with_start_digest(config, start, d)
    config = with_centring_digest(config, centre)
    prepared = prepare(config, n, d, method=method, loss=loss, centre=centre)
    if loss is None:
        loss = make_loss(config.loss)
    return PlannedRun(config, prepared, n, d, loss, start)


__all__ = ["PlannedRun", "check_rows_fit_loss", "plan_run"]
