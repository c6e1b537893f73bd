"""Training from files: load data, deal rows to nodes, train, and score on held-out rows.

Scores read rows without noise: test rows are taken as public, and the non-private baselines read the training rows.
So scores are only for whoever holds all data in one place, as in a simulation; separate sites cannot ask for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from .. import data
from ..algorithms import REGISTRY
from ..data.expected import expected_rows
from ..data.rows import Rows
from ..data.schema import LABEL
from ..errors import InvalidInput
from ..graphs import make_graph
from ..ledger.durable import DurableLedger
from ..losses import make_loss
from ..plain import jsonable
from ..task import Task
from ..typing import Any, Array, IntArray
from .choosing import Choice, choose, declared
from .config import check_types
from .engine import Observer
from .simulate import Result, RunConfig, pooled_minimiser, simulate


@dataclass(frozen=True)
class TrainConfig:
    """A run and the data that it uses.

    Parameters
    ----------
    run : RunConfig
    data : str
        A built-in data set or a path, see :func:`sottovoce.data.load`.
    schema : str, optional
        Path of the TOML file that declares the public facts of a user's table.
    nodes : int, optional
        Number of sites; None for 5, or as many as a ``site:NAME`` partition finds.
    partition : str
        See :func:`sottovoce.data.partition`.
    strength : float
        How strongly the ``label`` partition makes sites differ.
    sizes : tuple of float, optional
        Relative sizes of the nodes.
    test_share : float, optional
        Share of a user's table that is held out as test rows.
    """

    run: RunConfig = field(default_factory=RunConfig)
    data: str = "adult"
    schema: str | None = None
    nodes: int | None = None
    partition: str = "iid"
    strength: float = 1.0
    sizes: tuple[float, ...] | None = None
    test_share: float | None = 0.2

    def __post_init__(self) -> None:
        check_types(self)


@dataclass(frozen=True)
class Report:
    """A result with its scores on held-out rows.

    Attributes
    ----------
    test_errors : array (R,)
        Error of the average model, per replicate (empty without test rows): see :meth:`sottovoce.task.Task.error`.
    site_test_errors : array (R, N)
        The same for every node's own model.
    nonprivate_test_error : float or None
        Error of the minimiser over all rows without noise.
    baseline_test_errors : dict of str to float or None
        Errors of models that use no columns, by name: see :meth:`sottovoce.task.Task.baselines`.
    site_labels : array (N,)
        What :meth:`sottovoce.task.Task.summary` says of the training labels of every node.  For the holder of the data
        only.
    choice : Choice or None
        What ``method="auto"`` picked; `config` holds the configuration that was run.
    """

    config: TrainConfig
    dataset: data.Dataset
    result: Result
    test_errors: Array
    site_test_errors: Array
    nonprivate_test_error: float | None
    baseline_test_errors: dict[str, float | None]
    site_labels: Array
    notes: tuple[str, ...]
    choice: Choice | None = None

    @property
    def task(self) -> Task:
        """What the label is."""
        return self.dataset.task

    def to_dict(self) -> dict[str, Any]:
        """One JSON object; an infinite epsilon is the text ``inf``."""
        run, result = self.config.run, self.result
        errors = self.test_errors
        spread = float(errors.std(ddof=1)) if errors.size > 1 else 0.0
        report = {
            "method": run.method, "data": self.config.data, "nodes": result.facts.n_nodes, "graph": run.graph,
            "partition": self.config.partition, "rounds": result.rounds, "rounds_asked": run.rounds,
            "stopped": result.stopped, "replicates": run.replicates, "seed": run.seed,
            "test_error": float(errors.mean()) if errors.size else None,
            "test_error_sd": spread if errors.size else None,
            "site_test_error": self.site_test_errors.mean(axis=0).tolist() if errors.size else None,
            "nonprivate_test_error": self.nonprivate_test_error,
            **{f"{name}_test_error": error for name, error in self.baseline_test_errors.items()},
            "n_train": result.facts.n[:, 0].astype(int).tolist(), "n_test": len(self.dataset.y_test),
            "features": result.facts.d, "privacy": result.privacy, "seconds": result.seconds,
            "notes": list(self.notes), "config": run.to_dict(), "algorithm": result.algorithm,
        }  # fmt: skip
        if self.choice is not None:
            report["choice"] = self.choice.to_dict()
        return {key: jsonable(value) for key, value in report.items()}


def deal(config: TrainConfig, dataset: data.Dataset) -> list[IntArray]:
    """Which training rows each node holds."""
    nodes = config.nodes
    if nodes is None and not config.partition.startswith("site:"):
        nodes = len(config.sizes) if config.sizes is not None else 5
    return data.partition(
        config.partition, dataset.y_train, nodes, config.run.seed or 0, dataset.train_columns,
        strength=config.strength, sizes=config.sizes, task=dataset.task,
    )  # fmt: skip


def train(
    config: TrainConfig,
    *,
    observers: Sequence[Observer] = (),
    checkpoint: str | Path | None = None,
    ledger: DurableLedger | None = None,
    run_name: str | None = None,
    free: Sequence[str] | None = None,
) -> Report:
    """Load, deal, train and score.

    With ``method="auto"`` the method and its open knobs are chosen first, from the sizes of the sites and other public
    facts, by :func:`sottovoce.runs.choosing.choose`.

    Parameters
    ----------
    config : TrainConfig
    observers : sequence of callables ``(k, state)``
        Called after every round.
    checkpoint, ledger, run_name : optional
        See :func:`sottovoce.runs.simulate.simulate`.
    free : sequence of str, optional
        Knobs that "auto" may set; None for those that have their default values.

    Returns
    -------
    Report

    Raises
    ------
    InvalidInput
        If anything breaks a rule; nothing has been spent then.
    """
    if config.run.seed is None and config.partition.partition(":")[0] in ("label", "dirichlet", "column"):
        rule = "deals rows by what they hold, so that one row can move others to another site: no release covers that"
        raise InvalidInput("partition", config.partition, rule, "use iid or site:NAME, or a seed for a simulation")
    if config.nodes is not None:  # a bad graph or budget should not have to wait for the data
        make_graph(config.run.graph, config.nodes, config.run.seed or 0)
    dataset = data.load(config.data, schema=config.schema, test_share=config.test_share)
    parts = deal(config, dataset)
    rows = Rows.build([(dataset.X_train[part], dataset.y_train[part]) for part in parts])
    rows.check(make_loss(config.run.loss))
    choice = None
    if config.run.auto:
        heterogeneity = declared(config.partition, config.strength)
        known = None if dataset.schema is None else expected_rows(dataset.schema)
        choice = choose(config.run, rows.n[:, 0], rows.d, heterogeneity=heterogeneity, free=free, expected=known)
        config = replace(config, run=choice.config)
    label = f"{config.data} {config.schema} {config.partition} {config.strength} {config.sizes} {config.test_share}"
    result = simulate(
        config.run, rows, observers=observers, checkpoint=checkpoint, label=label, ledger=ledger, run_name=run_name,
        caveat=dataset.caveat,
    )  # fmt: skip
    if REGISTRY[config.run.method].trust.pools_rows:
        parts = [np.concatenate(parts)]
    schema = None if dataset.schema is None else dataset.schema.to_dict()
    result = replace(result, extra={"data": config.data, "schema": schema})
    notes = list(dataset.notes)
    if dataset.schema is not None and dataset.schema.site and not config.partition.startswith("site:"):
        column = dataset.schema.site
        notes.append(f"the schema names {column!r} as the site, but rows were dealt by {config.partition!r}")
    if rows.one_class:
        notes.append(f"sites with one class only: {', '.join(map(str, rows.one_class))} (for the data's holder only)")
    if strange := dataset.clipped.get(LABEL, 0):
        notes.append(f"{strange} rows have another label than the declared: rows of zeros (for the data's holder only)")
    if clipped := sum(dataset.clipped.values()) - strange:
        notes.append(f"{clipped} values or rows outside the declared bounds were clipped (for the data's holder only)")
    X, y, task = dataset.X_test, dataset.y_test, dataset.task
    scored = len(y) > 0
    baselines = task.baselines(dataset.y_train)
    return Report(
        config=config,
        dataset=dataset,
        result=result,
        test_errors=task.model_errors(X, y, result.consensus) if scored else np.empty(0),
        site_test_errors=task.model_errors(X, y, result.models) if scored else np.empty((0, result.facts.n_nodes)),
        nonprivate_test_error=float(task.model_errors(X, y, pooled_minimiser(rows, config.run))) if scored else None,
        baseline_test_errors={
            name: float(task.error(margins, y)) if scored else None for name, margins in baselines.items()
        },
        site_labels=np.array([task.summary(dataset.y_train[part]) for part in parts]),
        notes=tuple(notes),
        choice=choice,
    )
