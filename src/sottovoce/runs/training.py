"""Training from files: load data, partition rows over sites, train, and score on held-out rows.

This is behind `sottovoce train` and :func:`sottovoce.train`.  Scores read rows without noise: test
rows are taken as public, and baselines read training rows.  So scores are for a holder of all data,
as in a simulation; separate sites cannot ask for them.  To *deal* rows is to partition them over
sites.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import data
from ..algorithms import REGISTRY
from ..data import person
from ..data.expected import expected_rows, note_on_long_rows
from ..data.labels import build_rows_for_task
from ..data.rows import Rows
from ..data.schema import Schema, describe_unfit_rows
from ..errors import InvalidInput
from ..network.graphs import make_graph
from ..problem.losses import make_loss
from ..problem.task import Detail, Task
from ..util.constraints import (
    Count,
    Each,
    Flag,
    Interval,
    Text,
    constrained_field,
    optional_constraint,
    validate_fields_and_rules,
)
from ..util.plain import infinities_to_text, merge_held_back_figures
from ..util.typing import Any, Array, IntArray
from .centre import Centring, Decision, decide_centring, frame_of_schema
from .defaults import with_loss_of_task
from .engine import Observer
from .public import Public, set_aside_public_rows, start_from_result
from .simulate import Result, RunConfig, simulate
from .start import Start, with_start_digest
from .yardstick import least_nonprivate_error

if TYPE_CHECKING:
    from ..ledger.durable import DurableLedger  # SQLite, which few runs need
    from .auto_search import Choice

ONE_SITE = "one site"
"""The partition of a table at one site, in words, for :func:`sottovoce.data.table_digest`."""
POSITIVE = Interval(low=0, closed="neither")
# Largest number of sites that a note names.
_NAMED = 10


@dataclass(frozen=True)
class TrainConfig:
    """A run and its data.

    Parameters
    ----------
    run : RunConfig
    data : str
        A built-in data set or a path, see :func:`sottovoce.data.load`.
    schema : str, optional
        Path of the TOML file that declares the public facts of a user's table.
    nodes : int, optional
        Number of sites; None for 5, or as many as a ``site:NAME`` partition finds.
    partition : str, optional
        How rows are partitioned over sites, see :func:`sottovoce.data.partition`; None for the
        sites of the schema's `site` column, or at random if it names none.
    strength : float
        How much sites differ under partitions by label or column, in [0, 10).
    sizes : tuple of float, optional
        Relative sizes of the sites, > 0.
    test_share : float, optional
        Share of a user's table that is held out for tests, in (0, 1); None for no test rows.
    start, public : str, optional
        File of an earlier run from whose model this run starts, or table of public rows, from whose
        minimiser.
    public_share : float, optional
        Share of the training rows that a simulation takes as public instead.
    centre : bool
        Whether to release the rows' mean first and subtract it, where
        :func:`sottovoce.runs.centre.decide_centring` expects a gain.
    dropout : float
        Probability of each site to be lost in a round: see
        :func:`sottovoce.runs.simulate.simulate`.

    Examples
    --------
    >>> from sottovoce import RunConfig, TrainConfig
    >>> TrainConfig(RunConfig(seed=0), data="adult", nodes=5, partition="label").partition
    'label'
    >>> TrainConfig(RunConfig(seed=None), public_share=0.1)
    Traceback (most recent call last):
    ...
    sottovoce.errors.InvalidInput: public_share=0.1: would make rows of the data public, which only
    a simulation may...
    """

    run: RunConfig = field(default_factory=RunConfig)
    data: str = constrained_field("adult", Text())
    schema: str | None = constrained_field(None, optional_constraint(Text()))
    nodes: int | None = constrained_field(None, optional_constraint(Count()))
    partition: str | None = constrained_field(None, optional_constraint(Text()))
    strength: float = constrained_field(1.0, Interval(0, 10, closed="low"))
    sizes: tuple[float, ...] | None = constrained_field(None, optional_constraint(Each(POSITIVE)))
    test_share: float | None = constrained_field(
        0.2,
        optional_constraint(Interval(0, 1, closed="neither")),
        remedy="use None for no test rows",
    )
    start: str | None = constrained_field(None, optional_constraint(Text()))
    public: str | None = constrained_field(None, optional_constraint(Text()))
    public_share: float | None = constrained_field(
        None, optional_constraint(Interval(0, 1, closed="neither"))
    )
    centre: bool = constrained_field(True, Flag())
    dropout: float = constrained_field(0.0, Interval(0, 1, closed="low"), remedy="use e.g. 0.01")

    def __post_init__(self) -> None:
        validate_fields_and_rules(self, (one_starting_point, public_rows_of_a_simulation))


def one_starting_point(config: TrainConfig) -> Iterator[InvalidInput]:
    """A run starts from one point."""
    given = [
        name for name in ("start", "public", "public_share") if getattr(config, name) is not None
    ]
    if len(given) > 1:
        rule = f"a run has one starting point, but {' and '.join(given)} each define one"
        yield InvalidInput(given[1], None, rule, "give one of them")


def public_rows_of_a_simulation(config: TrainConfig) -> Iterator[InvalidInput]:
    """Only a simulation may declare rows of the data public."""
    if config.public_share is not None and config.run.seed is None:
        rule = "would make rows of the data public, which only a simulation may do"
        yield InvalidInput(
            "public_share", config.public_share, rule, "give a table of public rows, or a seed"
        )


@dataclass(frozen=True)
class Report:
    """A result with its scores on held-out rows.

    Attributes
    ----------
    test_errors, site_test_errors : array (R,), array (R, N)
        Errors per replicate of the average model and of every node's own
        (:meth:`sottovoce.problem.task.Task.error`); empty without test rows.
    nonprivate_test_error : float or None
        Error of the best linear model without privacy on the same columns: see
        :mod:`sottovoce.runs.yardstick`.
    baseline_test_errors : dict of str to float or None
        Errors of models that use no columns
        (:meth:`sottovoce.problem.task.Task.baseline_margins`), and of the model from which the run
        started, ``start``, if it had one.
    site_labels : array (N,)
        :meth:`sottovoce.problem.task.Task.label_summary` of every node's training labels, for the
        data's holder only.
    choice, public : Choice or None, Public or None
        What ``method="auto"`` picked, and the public rows from which the run started.
    decision : Decision or None
        Whether rows were centred; None if that was not asked.
    details : dict of str to Detail
        More of the first replicate's average model: see
        :meth:`sottovoce.problem.task.Task.further_qualities`.
    notes, holder_notes : tuple of str
        All notes, and those among them that depend on rows, which are for the data's holder only.

    Examples
    --------
    >>> from sottovoce import RunConfig, TrainConfig, train
    >>> run = RunConfig("prox_average", epsilon=2.0, delta=1e-5, seed=0)
    >>> report = train(TrainConfig(run, data="synthetic:n=2000,d=4"))
    >>> bool(report.test_errors[0] < report.baseline_test_errors["majority"])
    True
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
    public: Public | None = None
    decision: Decision | None = None
    details: dict[str, Detail] = field(default_factory=dict)
    holder_notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        # and nothing of the rows and of what is for their holder only
        return f"Report({self.result!r})"

    def _repr_html_(self) -> str:
        return self.result._repr_html_()

    @property
    def task(self) -> Task:
        return self.dataset.task

    def to_dict(self) -> dict[str, Any]:
        """Return one JSON object with all there is; an infinite epsilon is the text ``inf``."""
        return merge_held_back_figures(self.released(), self.held_back())

    def held_back(self) -> dict[str, Any]:
        """Return errors, times and notes computed from rows without noise, as plain data.

        They are for the data's holder only: no epsilon covers them.
        """
        errors = self.test_errors
        found: dict[str, Any] = {
            "test_error": None,
            "test_error_sd": None,
            "site_test_error": None,
            "nonprivate_test_error": self.nonprivate_test_error,
            **{f"{name}_test_error": error for name, error in self.baseline_test_errors.items()},
            "seconds": self.result.seconds,
            "notes": list(self.notes),
        }
        if errors.size:
            found["test_error"] = float(errors.mean())
            found["test_error_sd"] = 0.0
            found["site_test_error"] = self.site_test_errors.mean(axis=0).tolist()
        if errors.size > 1:
            found["test_error_sd"] = float(errors.std(ddof=1))
        if self.details:
            found["test_details"] = {name: detail.value for name, detail in self.details.items()}
        return {key: infinities_to_text(value) for key, value in found.items()}

    def released(self) -> dict[str, Any]:
        """Return public facts and what was released, as plain data."""
        run, result = self.config.run, self.result
        report = {
            "method": run.method,
            "data": self.config.data,
            "nodes": result.facts.n_nodes,
            "graph": run.graph,
            "partition": self.config.partition,
            "rounds": result.rounds,
            "rounds_asked": run.rounds,
            "stopped": result.stopped,
            "replicates": run.replicates,
            "seed": run.seed,
            "n_train": result.facts.n[:, 0].astype(int).tolist(),
            "n_test": self.dataset.n_units_held_out,
            "features": result.facts.d,
            "privacy": result.privacy,
            "notes": [note for note in self.notes if note not in self.holder_notes],
            "config": run.to_dict(),
            "algorithm": result.algorithm,
        }
        if "dropout" in result.extra:
            report["dropout"] = result.extra["dropout"]
        if self.decision is not None:
            report["centre"] = self.decision.to_dict()
        if result.start is not None:
            report["start"] = result.start.record | {"digest": result.start.digest}
        if self.public is not None:
            report["public"] = self.public.summary()
        if self.choice is not None:
            report["choice"] = self.choice.to_dict()
        return {key: infinities_to_text(value) for key, value in report.items()}


def with_partition(config: TrainConfig, dataset: data.Dataset) -> TrainConfig:
    """Return the configuration with its partition filled in: the schema's sites, or at random."""
    if config.partition is not None:
        return config
    if dataset.schema is None or dataset.schema.site is None:
        return replace(config, partition="iid")
    return replace(config, partition=f"site:{dataset.schema.site}")


def deal_rows_to_nodes(config: TrainConfig, dataset: data.Dataset) -> list[IntArray]:
    """Partition the training rows over nodes.

    Parameters
    ----------
    config : TrainConfig
        Its partition, number and sizes of sites, and seed.
    dataset : Dataset
        Under a schema that declares people, a person's rows stay together, and no more are kept
        than it says.

    Returns
    -------
    list of array of int
        The numbers of the training rows of each node.

    Raises
    ------
    InvalidInput
        If rows have no site, or a partition by labels or columns would part a person's rows.
    """
    config = with_partition(config, dataset)
    nodes = config.nodes
    partition = config.partition or ""
    # A column of sites says how many there are.
    if nodes is None and not partition.startswith("site:"):
        nodes = 5
        if config.sizes is not None:
            nodes = len(config.sizes)
    seed = config.run.seed or 0
    _check_site_column(partition, dataset)
    if dataset.people is None or dataset.schema is None or dataset.schema.person is None:
        return data.partition(
            partition,
            dataset.y_train,
            nodes,
            seed,
            dataset.train_columns,
            strength=config.strength,
            sizes=config.sizes,
            task=dataset.task,
        )
    if partition.startswith("site:"):
        parts = data.partition(
            partition, dataset.y_train, nodes, seed, dataset.train_columns, sizes=config.sizes
        )
    elif partition == "iid":
        parts = person.partition_people(dataset.people, nodes, seed, config.sizes)
    else:
        rule = "assigns each row by its values, but the rows of a person must stay together"
        raise InvalidInput("partition", partition, rule, "use iid or site:NAME")
    return [
        part[person.first_rows_of_each(dataset.people[part], dataset.schema.person.rows)]
        for part in parts
    ]


def _check_site_column(how: str, dataset: data.Dataset) -> None:
    """Refuse rows without a site in the schema's column of sites, held-out rows included.

    So whether a table is refused does not depend on the random split into training and test rows.
    """
    if dataset.schema is None or dataset.schema.site is None or dataset.sites is None:
        return
    site = dataset.schema.site
    if how == f"site:{site}":
        # The labels are placeholders: only the column of sites is looked at.
        data.partition(how, np.zeros(len(dataset.sites)), None, columns={site: dataset.sites})


def config_for_dataset(config: TrainConfig, dataset: data.Dataset) -> TrainConfig:
    """Return the configuration with what the data determine: loss, privacy unit and partition."""
    run = with_privacy_unit(with_loss_of_task(config.run, dataset.task), dataset)
    return with_partition(replace(config, run=run), dataset)


def with_privacy_unit(run: RunConfig, dataset: data.Dataset) -> RunConfig:
    """Return the configuration with the schema's privacy unit: a row, or a person of some rows."""
    if dataset.schema is None or dataset.schema.person is None:
        return run
    return replace(run, rows_per_person=dataset.schema.person.rows)


def rows_of_sites(config: TrainConfig, dataset: data.Dataset, parts: Sequence[IntArray]) -> Rows:
    """Collect the training rows of every site, and check them against the loss.

    Parameters
    ----------
    config : TrainConfig
        Its loss, and the number of rows a person where people are the privacy unit.
    dataset : Dataset
    parts : sequence of array of int
        The numbers of the training rows of every site, as :func:`deal_rows_to_nodes` returns them.

    Returns
    -------
    Rows
        With the weights of the data set, and a person's rows bounded together where that is the
        unit.

    Raises
    ------
    InvalidInput
        If the rows are not for the loss.
    """
    tables = [(dataset.X_train[part], dataset.y_train[part]) for part in parts]
    rows = build_rows_for_task(dataset.task, tables, dataset.weights_of_parts(parts))
    if dataset.people is not None and config.run.rows_per_person is not None:
        rows = rows.with_people(
            [dataset.people[part] for part in parts], config.run.rows_per_person
        )
    rows.check_loss_fits(make_loss(config.run.loss))
    return rows


def digest_of_raw_table(
    config: TrainConfig, schema: Schema | None, sites: int, ledger: DurableLedger | None
) -> bytes | None:
    """Compute the digest by which a ledger on disk identifies a table, whatever its schema.

    Parameters
    ----------
    config : TrainConfig
        Its file of data and its partition.
    schema : Schema or None
    sites : int
        The number of sites.
    ledger : DurableLedger or None

    Returns
    -------
    bytes or None
        None without a ledger, and if the partition depends on the schema or the test rows: with
        several sites, unless a column names them.
    """
    how = config.partition or "iid"
    run = config.run
    # At one site, and where a column names the sites, nothing else decides where a row lies.
    stays = sites == 1 or run.trusted.pools_rows or how.startswith("site:")
    if ledger is None or not stays:
        return None
    return data.file_digest(config.data, describe_deal(how, schema, sites, run))


def describe_deal(how: str, schema: Schema | None, sites: int, run: RunConfig) -> str:
    """Describe the partition and the privacy unit in words, for a table's digest.

    The unit is part of it, so that budgets of people are kept apart from budgets of rows.

    Parameters
    ----------
    how : str
        The partition, such as "iid" or "site:hospital".
    schema : Schema or None
    sites : int
    run : RunConfig
        Its trust: a central curator is one site.

    Returns
    -------
    str
    """
    deal = how
    if sites == 1 or run.trusted.pools_rows:
        deal = ONE_SITE
    if schema is None or schema.person is None:
        return deal
    return f"{deal}, person {schema.person.column}"


def train(
    config: TrainConfig,
    *,
    observers: Sequence[Observer] = (),
    checkpoint: str | Path | None = None,
    ledger: DurableLedger | None = None,
    run_name: str | None = None,
    free: Sequence[str] | None = None,
    check: Callable[[data.Dataset, RunConfig, int], object] | None = None,
    released: Callable[[Result], object] | None = None,
) -> Report:
    """Load data, partition the rows over sites, train, and score on held-out rows.

    With ``method="auto"``, :func:`sottovoce.runs.auto_search.choose_method` first picks the method.

    Parameters
    ----------
    config : TrainConfig
    observers, checkpoint, ledger, run_name : optional
        See :func:`sottovoce.runs.simulate.simulate`.
    free : sequence of str, optional
        Parameters that "auto" may set; None for those that have their default values.
    check : callable ``(dataset, config, sites)``, optional
        Called before anything is chosen or spent; it may refuse the run by raising.  `sites` is
        their number, 1 with a curator.
    released : callable ``(result)``, optional
        Called before scores are computed, so that the result is stored even if scoring fails.

    Returns
    -------
    Report
        The result of the run, scores on held-out rows, and notes, some for the rows' holder alone.

    Raises
    ------
    InvalidInput
        If anything breaks a rule; nothing has been spent.

    Guarantee
    ---------
    As :func:`sottovoce.runs.simulate.simulate`.  Scores and the notes to the holder read rows
    without noise, and no epsilon covers them (:meth:`Report.held_back`).

    Examples
    --------
    >>> from sottovoce import RunConfig, TrainConfig, train
    >>> run = RunConfig("momentum", epsilon=2.0, delta=1e-5, seed=0)
    >>> report = train(TrainConfig(run, data="synthetic:n=2000,d=4"))
    >>> report.result.statement.epsilon <= 2.0
    True
    """
    _check_without_data(config)
    given = _load_and_deal(config, check)
    config, choice = given.config, None
    if config.run.auto:
        choice = _choose_method(given, free)
        config = replace(config, run=choice.config)
    result = _simulate_training(config, given, observers, checkpoint, ledger, run_name)
    if released is not None:
        released(result)
    return _score_and_report(given, result, choice)


def _simulate_training(
    config: TrainConfig,
    given: _Given,
    observers: Sequence[Observer],
    checkpoint: str | Path | None,
    ledger: DurableLedger | None,
    run_name: str | None,
) -> Result:
    """Run a configuration whose method is chosen, and keep the name of its data and its schema."""
    dataset = given.dataset
    result = simulate(
        config.run,
        given.rows,
        observers=observers,
        checkpoint=checkpoint,
        label=_label_of_data(config),
        ledger=ledger,
        run_name=run_name,
        caveat=dataset.caveat,
        start=given.start,
        centre=given.centring,
        digest=digest_of_raw_table(config, dataset.schema, len(given.rows.n), ledger),
        dropout=config.dropout,
    )
    schema = None
    if dataset.schema is not None:
        schema = dataset.schema.to_dict()
    return replace(result, extra=result.extra | {"data": config.data, "schema": schema})


class _Given(NamedTuple):
    """The inputs of a training, partitioned over sites and checked, before a method is chosen."""

    config: TrainConfig
    dataset: data.Dataset
    # For every site the indices of its training rows.
    parts: list[IntArray]
    rows: Rows
    public: Public | None
    start: Start | None
    decision: Decision | None

    @property
    def centring(self) -> Centring | None:
        """How rows are centred; None if that was not asked for, or no gain is expected."""
        if self.decision is None:
            return None
        return self.decision.centring


def _load_and_deal(
    config: TrainConfig, check: Callable[[data.Dataset, RunConfig, int], object] | None
) -> _Given:
    """Load the data, partition the rows, and check all that can be checked before a choice.

    Parameters
    ----------
    config : TrainConfig
    check : callable or None
        Called with the data, the run and the number of sites (1 for a curator); it raises what it
        refuses.
    """
    dataset = data.load(config.data, schema=config.schema, test_share=config.test_share)
    config = config_for_dataset(config, dataset)
    known, dataset = _split_public_rows(config, dataset)
    parts = deal_rows_to_nodes(config, dataset)
    if check is not None:
        sites = len(parts)
        if config.run.trusted.pools_rows:
            sites = 1
        check(dataset, config.run, sites)
    rows = rows_of_sites(config, dataset, parts)
    public = None
    if known is not None:
        public = Public.from_dataset(known, config.run, len(parts))
    start = _starting_point(config, dataset, public, rows.d)
    # A start that does not fit is refused here, before candidates are tried for seconds.
    with_start_digest(config.run, start, rows.d)
    decision = None
    if config.centre:
        frame = None
        if dataset.schema is not None:
            frame = frame_of_schema(dataset.schema)
        decision = decide_centring(config.run, rows.n, dataset.n_features, frame)
    return _Given(config, dataset, parts, rows, public, start, decision)


def _check_without_data(config: TrainConfig) -> None:
    """Refuse what is wrong for any data, before loading them."""
    kind_of_deal = (config.partition or "").partition(":")[0]
    if config.run.seed is None and kind_of_deal in ("label", "dirichlet", "column"):
        rule = (
            "assigns rows to sites by their values, so that one row can move others to another "
            "site, which no privacy guarantee covers"
        )
        raise InvalidInput(
            "partition", config.partition, rule, "use iid or site:NAME, or a seed for a simulation"
        )
    if config.nodes is not None:
        make_graph(
            config.run.graph,
            config.nodes,
            config.run.seed or 0,
            listed=not config.run.trusted.opens_sums,
        )


def _split_public_rows(
    config: TrainConfig, dataset: data.Dataset
) -> tuple[data.Dataset | None, data.Dataset]:
    """Return rows that are taken as public, None if there are none, and those left to the sites."""
    if config.public_share is not None:
        return set_aside_public_rows(dataset, config.public_share, config.run.seed or 0)
    if config.public is not None:
        return _load_public_table(config, dataset), dataset
    return None, dataset


def _starting_point(
    config: TrainConfig, dataset: data.Dataset, public: Public | None, width: int
) -> Start | None:
    """Return the public point from which the run starts; None for zero.

    Parameters
    ----------
    config : TrainConfig
        Names the file of an earlier run to start from, or public rows, or neither: never both.
    dataset : Dataset
        Whose schema the earlier run must have.
    public : Public or None
        The start that was trained on public rows, if there are any.
    width : int
        Entries of the model.
    """
    if public is not None:
        return public.start
    if config.start is not None:
        return start_from_result(Result.load(config.start), config.run, width, dataset.schema)
    return None


def _choose_method(given: _Given, free: Sequence[str] | None) -> Choice:
    """Choose the method and its open knobs for ``method="auto"``."""
    # Runs of a named method need no search.
    from .auto_search import choose_method, heterogeneity_of_partition

    config, rows, schema = given.config, given.rows, given.dataset.schema
    # Public rows are more like the private rows than rows drawn from a schema, if there are enough.
    likely = None
    if given.public is not None:
        likely = given.public.expected_worlds()
    if likely is None and schema is not None:
        likely = expected_rows(schema)
    return choose_method(
        config.run,
        rows.n[:, 0],
        rows.d,
        heterogeneity=heterogeneity_of_partition(config.partition or "iid", config.strength),
        free=free,
        expected=likely,
        centre=given.centring,
    )


def _label_of_data(config: TrainConfig) -> str:
    """Return the text by which the run's key names the data."""
    label = (
        f"{config.data} {config.schema} {config.partition} {config.strength} {config.sizes} "
        f"{config.test_share}"
    )
    if config.public_share is None:
        return label
    return f"{label} public {config.public_share}"


def _score_and_report(given: _Given, result: Result, choice: Choice | None) -> Report:
    """Score a result on held-out rows, and add the notes."""
    dataset, parts = given.dataset, given.parts
    # A curator is one site with the rows of all.
    if REGISTRY[result.config.method].trust.pools_rows:
        parts = [np.concatenate(parts)]
    holder_notes = [*_one_class_notes(given.rows.one_class), *describe_unfit_rows(dataset.clipped)]
    if dataset.people is not None:
        holder_notes += _notes_on_people(result.config, dataset.people, parts)
    scores = _score_models(result, dataset, given.start)
    return Report(
        replace(given.config, run=result.config),
        dataset,
        result,
        test_errors=scores.test_errors,
        site_test_errors=scores.site_test_errors,
        nonprivate_test_error=scores.nonprivate,
        baseline_test_errors=scores.baselines,
        site_labels=np.array([dataset.task.label_summary(dataset.y_train[part]) for part in parts]),
        notes=(*_notes_for_reader(given, result), *holder_notes),
        holder_notes=tuple(holder_notes),
        choice=choice,
        public=given.public,
        decision=given.decision,
        details=scores.details,
    )


def _notes_for_reader(given: _Given, result: Result) -> list[str]:
    """Collect the notes that any reader should know."""
    schema = given.dataset.schema
    notes = [*given.dataset.notes, *_notes_on_start(result, given.public)]
    if given.centring is not None:
        notes.append(given.centring.says)
    notes += notes_on_dealing(given.config, given.dataset, len(given.parts))
    if schema is not None:
        notes += note_on_long_rows(schema)
    if "dropout" in result.extra:
        lost = [f"{i} from round {k} on" for i, k in result.extra["dropout"]["since"].items()]
        notes.append(
            f"sites lost in this simulation: {', '.join(lost) or 'none'}; epsilon is that of a run "
            "without losses"
        )
    return notes


def notes_on_dealing(config: TrainConfig, dataset: data.Dataset, sites: int) -> list[str]:
    """Say where a table's own schema names other sites than its rows were dealt to, or none.

    Parameters
    ----------
    config : TrainConfig
        With its partition.
    dataset : Dataset
    sites : int
        How many there are.

    Returns
    -------
    list of str
        One note, or none.
    """
    how = config.partition or "iid"
    schema = dataset.schema
    if schema is not None and schema.site and not how.startswith("site:"):
        return [
            f"the schema names {schema.site!r} as the column of sites, but rows were "
            f"partitioned over sites by {how!r}"
        ]
    # Tables in the package are dealt to sites on purpose.
    if config.schema is None or how != "iid" or sites == 1 or config.run.trusted.pools_rows:
        return []
    return [
        f"the schema names no column of sites, so rows were dealt at random to {sites} sites; if "
        "one holder has all rows, trust the curator and have one site (--trust curator --nodes 1)"
    ]


class _Scores(NamedTuple):
    """Errors on held-out rows: fields are those of :class:`Report`, empty or None without such
    rows.
    """

    test_errors: Array
    site_test_errors: Array
    nonprivate: float | None
    baselines: dict[str, float | None]
    details: dict[str, Detail]


def _score_models(result: Result, dataset: data.Dataset, start: Start | None) -> _Scores:
    """Score the models and the baselines on the held-out rows, without noise.

    R replicates have an average model each, and a model of each of N sites.  `start` is the model
    from which the run started, a baseline of its own; None if it started from zero.
    """
    X, y, task = dataset.X_test, dataset.y_test, dataset.task
    constant = task.baseline_margins(dataset.y_train)
    if not len(y):
        names = list(constant)
        if start is not None:
            names.insert(0, "start")
        return _Scores(
            test_errors=np.empty(0),
            site_test_errors=np.empty((0, result.facts.n_nodes)),
            nonprivate=None,
            baselines=dict.fromkeys(names),
            details={},
        )
    baselines: dict[str, float | None] = {}
    if start is not None:
        baselines["start"] = float(task.model_errors(X, y, start.vector))
    baselines |= {name: float(task.error(z, y)) for name, z in constant.items()}
    # The run's models are for rows that are clipped as its own were; the baselines are not.
    clipped = _clip_as_trained(result, task, X)
    first_margins = task.vectors_by_margin(result.consensus[0]) @ clipped[0].T
    return _Scores(
        test_errors=_errors_on_rows(task, clipped, y, result.consensus),
        site_test_errors=_errors_on_rows(task, clipped, y, result.models),
        nonprivate=least_nonprivate_error(dataset),
        baselines=baselines,
        details=task.further_qualities(first_margins, y),
    )


def _clip_as_trained(result: Result, task: Task, X: Array) -> list[Array]:
    """Clip test rows (n, p) as the run clipped its own after centring.

    The list has one array for each of the map's replicates; a single one is for all replicates.
    """
    # A row's length does not change its class, but it changes the number that is predicted.
    if result.move is None or task.names:
        return [X]
    return [one.shorten_rows(X) for one in result.move.split_by_replicate()]


def _errors_on_rows(task: Task, rows: list[Array], y: Array, W: Array) -> Array:
    """Compute errors of models (R, ...) on the rows of :func:`_clip_as_trained`."""
    if len(rows) == 1:
        return task.model_errors(rows[0], y, W)
    return np.stack([task.model_errors(X, y, own) for X, own in zip(rows, W, strict=True)])


def _load_public_table(config: TrainConfig, dataset: data.Dataset) -> data.Dataset:
    """Load the table of public rows under the schema of the data."""
    assert config.public is not None
    if dataset.schema is None:
        rule = "a table of public rows needs data with a schema, and synthetic rows have no schema"
        raise InvalidInput("public", config.public, rule, "use public_share, or data with a schema")
    public, private = Path(config.public), Path(config.data)
    # The data may be the name of a built-in set, and then there is no file.
    if public.exists() and private.exists() and public.samefile(config.data):
        raise InvalidInput(
            "public", config.public, "is the private data itself", "give a table of public rows"
        )
    return data.load(config.public, schema=dataset.schema, test_share=None)


def _one_class_notes(sites: Sequence[int]) -> list[str]:
    """Return a note, for the holder of the rows, that names sites whose rows all have one class."""
    if not sites:
        return []
    named = ", ".join(map(str, sites[:_NAMED]))
    more = ""
    if len(sites) > _NAMED:
        more = f" and {len(sites) - _NAMED:,} more, {len(sites):,} in all"
    return [f"sites with one class only: {named}{more} (for the data's holder only)"]


def _notes_on_people(run: RunConfig, people: IntArray, parts: Sequence[IntArray]) -> list[str]:
    """Return notes, for the rows' holder, on people with rows left out or at several sites."""
    notes: list[str] = []
    mine = "(for the data's holder only)"
    left = len(people) - sum(map(len, parts))
    if left:
        notes.append(
            f"{left} rows were left out, because their people have more rows than person.rows "
            f"allows {mine}"
        )
    most = person.most_parts_of_a_person(people, parts)
    if most > run.sites_per_row:
        where = f"{run.sites_per_row} sites"
        if run.sites_per_row == 1:
            where = "one site"
        what = f"a person has rows at {most} sites, but the guarantee is for their rows at {where}"
        notes.append(f"{what}; use sites_per_row={most} for a guarantee for all of them {mine}")
    return notes


def _notes_on_start(result: Result, public: Public | None) -> list[str]:
    """Return notes on the starting point, and on the norms of public rows.

    A run that used public rows has a start, so without a start there is nothing to note.
    """
    start = result.start
    notes: list[str] = []
    if start is None:
        return notes
    if start.kind == "run":
        notes.append(
            "the run started from the model of an earlier run, whose privacy loss is not in this "
            "epsilon: rows that both runs used have spent the sum of both totals"
        )
        if not start.may_start_release:
            notes.append(
                "the earlier run had no protection (a simulation, or without a budget): never "
                "release the results of this run"
            )
    if public is not None:
        # Quantiles: of half of the rows, and of nine in ten.
        half, most = 0.5, 0.9
        (median_norm,) = public.row_norms((half,))
        median_gradient, most_gradients = public.gradient_norms((half, most))
        notes.append(
            f"{len(public.X):,} rows were taken as public: no site holds them, and nothing "
            f"protects them; the median norm of these rows is {median_norm:.2f}; at the starting "
            f"point the median norm of their gradients is {median_gradient:.2f}, and the 90% "
            f"quantile {most_gradients:.2f}"
        )
    return notes
