"""All nodes and all replicates in one process: from a configuration and rows to a :class:`Result`."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

import numpy as np

from . import engine
from .algorithms import REGISTRY, Algorithm
from .curator import Curator
from .data.rows import Rows
from .engine import UNREADABLE, Observer, Outcome, Place
from .errors import BudgetExceeded, CheckpointError, InvalidInput
from .facts import Facts
from .graphs import Graph
from .graphs import make as make_graph
from .losses import make as make_loss
from .net import DenseNet
from .planner import calibrate, plan
from .privacy import accountants
from .privacy.durable import DurableLedger, Run, rows_digest
from .privacy.ledger import Ledger, validate_target
from .privacy.noise import KeyedNoise, Noise, SystemNoise
from .schedules import Schedule
from .solvers import Solver
from .typing import Any, Array


@dataclass(frozen=True)
class RunConfig:
    """Everything that a run depends on, beside the rows.  All of it is public.

    Parameters
    ----------
    method : str
        A name of ``sottovoce methods``.
    epsilon : float
        Total for the whole run, per row of one site; ``inf`` runs without noise.
    delta : float, optional
        None for pure epsilon.
    rounds : int
        Exchanges with the neighbours.
    graph : str
        A specification of :func:`sottovoce.graphs.make`.
    form : {"corrected", "printed"}
    loss : str
    C, rho : float
        See :mod:`sottovoce.facts`.
    eta : float, tuple of N floats or Schedule, optional
        Penalty of the first round, or a whole schedule; None for :func:`default_penalty`.
    eta_growth : float or tuple of N floats
        Its factor from one release to the next.
    gamma : float
        Proximal weight of the even rounds of (M)R-ADMM.
    phi : float
        Extra curvature of DVP.
    noise : float, tuple of N floats or Schedule, optional
        The method's own noise parameter alpha.  None calibrates it so that the run costs `epsilon`; given, `epsilon`
        is a budget at which the run stops.
    noise_growth : float
        Factor of alpha from one release to the next.
    relation : {"replace-one", "zero-out"}
    accountant : str
    tol : float
        Certificate of the local solves.
    seed : int, optional
        Keys the noise: a simulation, repeatable by whoever knows it.  None draws from the operating system.
    replicates : int
        Independent repetitions of the noise.
    """

    method: str = "mr_admm"
    epsilon: float = 1.0
    delta: float | None = None
    rounds: int = 10
    graph: str = "ring"
    form: str = "corrected"
    loss: str = "logistic"
    C: float = 1.0
    rho: float = 0.001
    eta: float | tuple[float, ...] | Schedule | None = None
    eta_growth: float | tuple[float, ...] = 1.0
    gamma: float = 0.1
    phi: float = 0.0
    noise: float | tuple[float, ...] | Schedule | None = None
    noise_growth: float = 1.0
    relation: str = "replace-one"
    accountant: str = "pure"
    tol: float = 1e-8
    seed: int | None = 0
    replicates: int = 1

    def __post_init__(self) -> None:
        validate_target(self.epsilon, self.delta)
        if self.method not in REGISTRY:
            raise InvalidInput("method", self.method, f"must be one of {sorted(REGISTRY)}", "see `sottovoce methods`")
        cls = REGISTRY[self.method]
        if self.form not in cls.forms:
            raise InvalidInput("form", self.form, f"{self.method} has {', '.join(cls.forms)}", f"use {cls.forms[0]!r}")
        for name in ("eta", "eta_growth", "gamma", "phi", "noise", "noise_growth"):  # Facts checks the others
            value = getattr(self, name)
            if not isinstance(value, Schedule | None) and not np.all(np.isfinite(np.asarray(value, dtype=float))):
                raise InvalidInput(name, value, "must be finite", f"use the default, {getattr(type(self), name)}")
        if self.seed is not None and self.seed < 0:
            raise InvalidInput("seed", self.seed, "must be >= 0", "use seed=0")
        if self.noise is not None and not cls.private:
            raise InvalidInput("noise", self.noise, f"{self.method} draws no noise", "leave it out, or use 'dvp'")
        for name in ("rounds", "replicates"):
            if not isinstance(getattr(self, name), int | np.integer) or getattr(self, name) < 1:
                raise InvalidInput(
                    name, getattr(self, name), "must be a whole number, at least 1", f"use {name}=1 or more"
                )
        if self.seed is None and self.replicates > 1:
            rule = "with noise of the operating system every replicate is a release of its own, and they add up"
            raise InvalidInput("replicates", self.replicates, rule, "use one, or a seed for a simulation")
        if self.seed is None and self.form == "printed":
            rule = "is for simulation only: it adds no noise to the solver's answer, so real releases have no proof"
            raise InvalidInput("form", self.form, rule, "use 'corrected', or give a seed")
        if math.isfinite(self.epsilon) and not cls.private:
            raise InvalidInput(
                "epsilon", self.epsilon, f"{self.method} releases exact minimisers, so no finite epsilon can be proved",
                "use epsilon=inf, or a private method such as 'mr_admm'",
            )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Plain data; infinity is the text ``inf``."""
        return asdict(self) | {"epsilon": "inf" if math.isinf(self.epsilon) else self.epsilon}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> RunConfig:
        """Inverse of :meth:`to_dict`."""
        known = {f.name for f in fields(cls)}
        read: dict[type, Any] = {list: tuple, dict: Schedule.from_dict}
        values = {k: read[type(v)](v) if type(v) in read else v for k, v in plain.items() if k in known}
        return cls(**(values | {"epsilon": float(plain["epsilon"])}))

    def algorithm(self, facts: Facts, graph: Graph) -> Algorithm[Any]:
        """The method with these hyperparameters, its noise not yet calibrated."""
        cls = REGISTRY[self.method]
        eta = default_penalty(self, facts, graph) if self.eta is None else self.eta
        penalty = eta if isinstance(eta, Schedule) else Schedule(eta, self.eta_growth)
        noisy = cls.private and (self.noise is not None or math.isfinite(self.epsilon))
        alpha = 1.0 if self.noise is None else self.noise
        schedule = alpha if isinstance(alpha, Schedule) else Schedule(alpha, self.noise_growth)
        noise = schedule if noisy else None
        extra = {k: getattr(self, k) for k in ("gamma", "phi", "form") if k in {f.name for f in fields(cls)}}
        return cls(penalty=penalty, noise=noise, **extra)


def default_penalty(config: RunConfig, facts: Facts, graph: Graph) -> float:
    """A penalty from public facts: as small as the curvature of the loss wants, as large as the budget needs.

    Per release of rate ``beta`` the logistic log-determinant is free if ``beta K >= 1`` (U1), that is, if
    ``K >= 2 T / epsilon`` for T equal releases under replace-one; ``K`` is ``(n/C)(rho/N + 2 eta V)``.
    """
    least = 0.001 * config.C  # the mean loss's curvature along most directions, measured on Adult and MNIST
    if math.isinf(config.epsilon):
        return least
    return max(least, config.C * config.rounds / config.epsilon / float(np.min(facts.n * np.maximum(graph.degree, 1))))


@dataclass(frozen=True)
class Prepared:
    """A run that has been validated and priced; nothing has been spent yet."""

    config: RunConfig
    facts: Facts
    graph: Graph
    algorithm: Algorithm[Any]
    ledger: Ledger


def prepare(config: RunConfig, n: Array, d: int) -> Prepared:
    """Check everything that can be checked without rows, and calibrate the noise.

    Parameters
    ----------
    n : array (N, 1)
        Rows per node.
    d : int
        Features.

    Raises
    ------
    InvalidInput
        On any parameter that breaks a rule, a target that cannot be met, or a budget below the price of one round.
    """
    facts = Facts(
        make_loss(config.loss), n, d, config.C, config.rho, len(n), config.relation, config.tol
    )  # fmt: skip
    graph = make_graph(config.graph, len(n), 0 if config.seed is None else config.seed)
    for name in ("eta", "eta_growth", "noise"):
        value = getattr(config, name)
        if isinstance(value, tuple) and len(value) != len(n):
            raise InvalidInput(name, value, f"must be one number, or one for each of the {len(n)} nodes", "correct it")
    algorithm, accountant = config.algorithm(facts, graph), accountants.make(config.accountant)
    delta, budget = config.delta or 0.0, config.epsilon
    if algorithm.noise is not None and config.noise is None:
        claimed = config.form == "printed"
        algorithm = calibrate(algorithm, facts, graph, config.rounds, budget, accountant, delta, claimed=claimed)
        # A printed form is asked for by its paper's claim; what can be proved for it may be more, and is reported.
        budget = math.inf if claimed else budget
    else:
        first = plan(algorithm, facts, graph, 1, accountant, delta).total()
        if first > budget:
            raise InvalidInput(
                "epsilon", budget, f"one round costs {first:.4g}", "raise epsilon, or lower noise, or leave noise out"
            )
    return Prepared(config, facts, graph, algorithm, Ledger(accountant, budget, delta))


@dataclass(frozen=True)
class Result:
    """Models, spending and configuration of a run: enough to repeat it.

    Attributes
    ----------
    algorithm : dict
        The method with its schedules as they ran, noise calibrated.
    models : array (R, N, d)
        The classifier of every node, per replicate.
    rounds : int
        Rounds completed.
    stopped : str
        Why the run ended.
    ledger : list of dict
        Events, in order.
    privacy : dict
        What has been proved, in numbers and words.
    extra : dict
        Whatever the caller wants kept with the run (schema, data set, scores): JSON-able.
    """

    config: RunConfig
    facts: Facts
    algorithm: dict[str, Any]
    models: Array
    rounds: int
    stopped: str
    ledger: list[dict[str, Any]]
    privacy: dict[str, Any]
    seconds: float
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def consensus(self) -> Array:
        """The average over nodes (002, section VIII), shape (R, d): post-processing of what was released."""
        return self.models.mean(axis=1)

    def save(self, path: str | Path) -> None:
        """Write models and everything else to an ``.npz`` file without pickled objects."""
        meta = {
            "config": self.config.to_dict(), "facts": self.facts.to_dict(), "algorithm": self.algorithm,
            "rounds": self.rounds,
            "stopped": self.stopped, "ledger": self.ledger, "privacy": self.privacy, "seconds": self.seconds,
            "extra": self.extra,
        }  # fmt: skip
        with Path(path).open("wb") as file:
            np.savez(file, models=self.models, meta=np.array(json.dumps(meta)))

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read what :meth:`save` wrote.

        Raises
        ------
        CheckpointError
            If the file is not a saved run.
        """
        try:
            with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                meta, models = json.loads(str(file["meta"])), file["models"]
            config, facts = RunConfig.from_dict(meta.pop("config")), Facts.from_dict(meta.pop("facts"))
            return cls(config=config, facts=facts, models=models, **meta)
        except UNREADABLE as error:
            raise CheckpointError(
                f"run={str(path)!r}: not a saved run; use a file written by `train --save`"
            ) from error


def privacy_statement(prepared: Prepared, ledger: Ledger | Run, noise: Noise) -> dict[str, Any]:
    """The guarantee of a run in numbers and words; every number is the ledger's."""
    facts, total = prepared.facts, ledger.total()
    per_node = np.broadcast_to(ledger.per_node(), (facts.n_nodes,))
    statement: dict[str, Any] = {
        "epsilon": total,
        "delta": ledger.delta if math.isfinite(total) and ledger.accountant.name != "pure" else 0.0,
        "relation": facts.relation,
        "unit": "one row of one site",
        "accountant": ledger.accountant.name,
        "adversary": "sees every message of every round and all of this configuration",
        "public": "row counts, labels' names, schema, graph, schedules, number of rounds",
        "per_node": [float(e) for e in per_node],
        "releases": len(ledger.rows),
        "form": prepared.config.form,
        "release": not noise.simulated,
    }
    claim = ledger.claimed()
    if prepared.config.form == "printed" and claim is not None:
        statement["printed_claim"] = claim
        statement["assumes"] = "exact minimisation: printed forms add no noise to the solver's answer"
    return statement


def simulate(
    config: RunConfig,
    rows: Rows,
    *,
    observers: Sequence[Observer] = (),
    checkpoint: str | Path | None = None,
    label: str = "",
    ledger: DurableLedger | None = None,
    run_name: str | None = None,
) -> Result:
    """Run all nodes and replicates at once.

    Parameters
    ----------
    config : RunConfig
    rows : Rows
        Of N nodes.
    observers : sequence of callables ``(k, state)``
    checkpoint : path, optional
        Written after every round; if it exists and belongs to this configuration, the run goes on from it, bit by
        bit as if it had never stopped.
    label : str
        Names the data in the checkpoint's key.
    ledger : DurableLedger, optional
        The data set's ledger on disk: the run is reserved in it before the first round, every release is stored in it
        before it is used, and the same call resumes or replays the run.
    run_name : str, optional
        Of the run in that ledger; None for a digest of the configuration.

    Returns
    -------
    Result
    """
    started = time.perf_counter()
    prepared = prepare(config, rows.n, rows.d)
    facts, key = prepared.facts, _key(config, prepared.facts, label)
    book: Ledger | Run = prepared.ledger
    if ledger is not None:
        ledger.bind(rows_digest(rows.signed, rows.n))
        book = _reserve(prepared, ledger, run_name or key, key)
    nodes = facts.n_nodes
    lead = (config.replicates, nodes)
    noise: Noise = (
        SystemNoise(lead) if config.seed is None else KeyedNoise(config.seed, range(config.replicates), range(nodes))
    )
    curator = Curator(rows, facts, noise, book)
    place = Place(facts, DenseNet(prepared.graph), curator, lead, rows.d)
    done, state, watchers = 0, None, list(observers)
    if checkpoint is not None:
        if not noise.simulated and ledger is None:
            raise InvalidInput("seed", None, "a checkpoint alone cannot repeat this noise", "give a seed or a ledger")
        path = Path(checkpoint)
        if path.exists():
            done, state = engine.load_checkpoint(path, key, prepared.algorithm.init(place), curator)
        watchers.append(lambda k, s: engine.save_checkpoint(path, key, k, s, curator))
    outcome: Outcome = engine.run(prepared.algorithm, place, config.rounds, observers=watchers, state=state, done=done)
    statement = privacy_statement(prepared, book, noise)
    if isinstance(book, Run) and ledger is not None:
        book.close()
        statement["ledger"] = {"run": book.name, "spent": ledger.total(), "budget": ledger.epsilon.tolist()}
    return Result(
        config=config,
        facts=facts,
        algorithm=prepared.algorithm.to_dict(),
        models=np.array(np.broadcast_to(prepared.algorithm.model(outcome.state), (*lead, rows.d))),
        rounds=outcome.rounds,
        stopped=outcome.stopped,
        ledger=book.to_list(),
        privacy=statement,
        seconds=time.perf_counter() - started,
    )


def _reserve(prepared: Prepared, ledger: DurableLedger, name: str, key: str) -> Run:
    """Reserve the releases that the run's own budget allows, or find the run as it was left."""
    config = prepared.config
    if config.replicates != 1:
        rule = "every replicate is a release of its own, and a durable ledger counts one"
        raise InvalidInput("replicates", config.replicates, rule, "use replicates=1 with a ledger")
    if (ledger.accountant.name, ledger.delta) != (config.accountant, config.delta or 0.0):
        stated = f"{ledger.accountant.name}, delta={ledger.delta:g}"
        raise InvalidInput("accountant", config.accountant, f"the ledger counts by {stated}", "use the ledger's")
    if len(ledger.epsilon) != prepared.facts.n_nodes:
        rule = f"the ledger holds {len(ledger.epsilon)} nodes"
        raise InvalidInput("nodes", prepared.facts.n_nodes, rule, "use the ledger made for this partition")
    whole = plan(
        prepared.algorithm, prepared.facts, prepared.graph, config.rounds, prepared.ledger.accountant, ledger.delta
    )
    allowed = Ledger(prepared.ledger.accountant, prepared.ledger.epsilon, prepared.ledger.delta)
    for event in whole.rows:
        try:
            allowed.charge(event)
        except BudgetExceeded:
            break
    if name in ledger.runs:
        return ledger.resume(name, key)
    return ledger.reserve(name, key, allowed.rows)


def _key(config: RunConfig, facts: Facts, label: str) -> str:
    text = json.dumps([config.to_dict(), facts.to_dict(), label], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def pooled_minimiser(rows: Rows, config: RunConfig, l2: float | None = None) -> Array:
    """The non-private minimiser over all rows of all nodes, shape (d,): a yardstick that reads rows without noise.

    Parameters
    ----------
    l2 : float, optional
        Weight of ``||w||^2 / 2`` beside the mean loss; None for one over the number of rows.
    """
    counts = rows.n[:, 0].astype(int)
    signed = np.concatenate([rows.signed[i, :n] for i, n in enumerate(counts)])[None]
    n = np.array([[float(len(signed[0]))]])
    pooled = replace(rows, signed=signed, n=n)
    q = np.array([[1.0 / n[0, 0] if l2 is None else l2]])
    zero = np.zeros((1, rows.d))
    return Solver(pooled, make_loss(config.loss), 1.0).minimise(zero, q, zero, 1e-9).w[0]
