"""Cells that train a model by one of the iterative methods: scores over rounds, or at the end.

Most studies of 000, 001, 002 and 004 use :func:`run`; :mod:`.graded` adds columns for 004.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from sottovoce import Ledger, RunConfig
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.problem.losses import make_loss
from sottovoce.runs.engine import Observer
from sottovoce.runs.prepare import prepare
from sottovoce.runs.pricing import Prepared
from sottovoce.runs.simulate import simulate
from sottovoce.util.typing import Any, Array

from ..tables import Dealt, deal
from . import Row, check, kept, theorems
from .draws import over_draws
from .secrets import simulate_watched

_KNOBS = set(RunConfig.defaults())
_DATA = {"data", "file", "digest", "limit", "partition", "strength", "nodes", "row_draw"}
_CELL = {"every", "alpha", "match", "match_by", "price", "also", "beta", "draws"}


def _config(p: Mapping[str, Any], rows: Rows) -> RunConfig:
    """Build the configuration of the run that a cell's parameters describe.

    Besides fields of RunConfig and parameters of :func:`..tables.deal` they are: `alpha`, the
    papers' noise.  `match`, another run (with noise `alpha`): this run's total is that run's, as
    its paper claims it, or as proved with `match_by` = "proved"; with "claimed, each node" every
    node has its own claim.  `price`: with "002" the noise is set by 002's (32) over all
    rounds, with "004" the total stands for 004's zCDP. `beta`, 004's norm of a gradient of C
    times the mean loss; the field `tolerance` is that over C.
    """
    check(p, _KNOBS | _DATA | _CELL | kept.LABELS)
    knobs = _knobs(p)
    if "beta" in p:
        if "tolerance" in p:
            raise InvalidInput(
                "beta",
                p["beta"],
                "is C times tolerance, and both are given",
                "give one of them",
            )
        knobs["tolerance"] = p["beta"] / p.get("C", 1.0)
    if p.get("phi") == "000":
        knobs["phi"] = _curvature_000(p, rows)
    if p.get("rho") in ("004", "004, Algorithm 1"):
        knobs["rho"] = theorems.regulariser_004(p, rows)
    knobs.setdefault("epsilon", math.inf)
    if p.get("price") == "002":
        knobs["noise"] = tuple(
            theorems.noise_002(RunConfig.from_dict(knobs), rows, _matched(p, rows)).tolist()
        )
    elif p.get("price") == "004":
        knobs["epsilon"] = theorems.total_004(p)
    elif p.get("price") is not None:
        raise InvalidInput("price", p["price"], "must be '002' or '004'", "leave it out")
    elif p.get("match"):
        knobs["epsilon"] = _matched(p, rows)
    elif "alpha" in p:
        knobs |= _knobs({"noise": p["alpha"]})
    return RunConfig.from_dict(knobs)


def _knobs(p: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a RunConfig among a cell's parameters; lists become tuples."""
    knobs = {key: value for key, value in p.items() if key in _KNOBS}
    for key, value in knobs.items():
        if isinstance(value, list):
            knobs[key] = tuple(value)
    return knobs


def _matched(p: Mapping[str, Any], rows: Rows) -> float | tuple[float, ...]:
    """Return the total of the run `match`: by its paper's claim, in all or of each node, or as
    proved.
    """
    other = _knobs({"noise": p["alpha"]} | dict(p["match"]))
    shared = {key: p[key] for key in ("rounds", "C", "rho", "graph", "seed", "delta") if key in p}
    ready = prepare(RunConfig.from_dict({"epsilon": math.inf} | shared | other), rows.n, rows.d)
    book = ready.plan_ledger()
    how = p.get("match_by", "claimed")
    if how == "claimed, each node":
        each = book.claims()
        if each is not None:
            return tuple(np.broadcast_to(np.ravel(each), len(rows.n)).tolist())
    if how == "claimed":
        claim = book.claimed()
        if claim is not None:
            return claim
    # also where no claim is on record, as of corrected forms
    return book.total()


def _curvature_000(p: Mapping[str, Any], rows: Rows) -> float:
    """Compute the Phi of 000, Algorithm 2: ``C c1 / (n (e^(alpha/4) - 1))`` minus the curvature
    ``2 eta`` that the penalty has, or 0.
    """
    alpha = p.get("noise")
    if alpha is None:
        alpha = p["alpha"]
    return max(0.0, p["C"] * 0.25 / (float(rows.n.min()) * math.expm1(alpha / 4)) - 2 * p["eta"])


@dataclass
class _Scores:
    """An observer that computes the quantities that the papers plot, after the wanted rounds.

    It reads private rows without noise, as only a simulation may.
    """

    ready: Prepared
    dealt: Dealt
    optimum: Array
    wanted: frozenset[int]

    def __post_init__(self) -> None:
        self.loss = make_loss(self.ready.config.loss)
        self.rows: dict[int, list[Row]] = {}
        rows = self.dealt.rows
        # one node of many sites: a trusted curator has the rows of all
        if len(self.ready.facts.n) == 1:
            rows = rows.pool_at_one_node()
        self.signed = [rows.signed[i, : int(n)] for i, n in enumerate(rows.n[:, 0])]

    def __call__(self, k: int, state: Any, kept: Array | None = None) -> None:
        if k in self.wanted:
            models = self.ready.algorithm.model(state)
            self.rows[k] = self.score(self._full(models))
            # what a node keeps differs from what it sends with PVP as printed only
            own = self.rows[k]
            if kept is not None:
                own = self.score(self._full(kept))
            for row, other in zip(self.rows[k], own, strict=True):
                row |= {"kept_loss": other["loss"], "kept_risk": other["risk"]}

    def _full(self, models: Array) -> Array:
        return np.broadcast_to(
            models, (self.ready.config.replicates, len(self.signed), models.shape[-1])
        )

    def score(self, models: Array) -> list[Row]:
        """Score models (R, N, d): one row per replicate, with the columns of :func:`scored`."""
        own = np.stack(
            [self.loss.value(a @ models[:, i].T).mean(axis=0) for i, a in enumerate(self.signed)]
        )
        centre = models.mean(axis=1)
        apart = np.sqrt(((models - centre[:, None]) ** 2).sum(axis=-1).mean(axis=-1))
        far = np.linalg.norm(centre - self.optimum, axis=-1) / np.linalg.norm(self.optimum)
        wrong, task = self.dealt.errors(centre), self.dealt.task
        alone = self.dealt.errors(models).mean(axis=-1)
        columns = {
            "loss": own.mean(axis=0),
            "risk": self.ready.config.C * own.mean(axis=0),
            "test_error": wrong,
            task.wording.quality: task.quality(wrong),
            "site_test_error": alone,
            "residual": apart,
            "distance": far,
        }
        return [
            {"replicate": r} | {name: float(values[r]) for name, values in columns.items()}
            for r in range(len(centre))
        ]


def _prices(ready: Prepared, wanted: frozenset[int]) -> dict[int, tuple[float, float]]:
    """Return the claimed and the proved total after each wanted round, from a plan of the run."""
    found: dict[int, tuple[float, float]] = {}

    def note(k: int, book: Ledger) -> None:
        if k in wanted:
            claim = proved = book.total()
            # a corrected form claims what is proved for it
            if ready.config.form != "corrected":
                printed = book.claimed()
                if printed is not None:
                    claim = printed
            found[k] = (claim, proved)

    ready.plan_ledger(after=note)
    return found


def run(p: Mapping[str, Any]) -> list[Row]:
    """Run one configuration on each of `draws` draws of its random graph and rows.

    The columns are those of :func:`on_one_draw`.

    With `draws` there is a column of that name, `draw`: replicates of one draw differ in noise
    only.
    """
    return over_draws(on_one_draw, p)


def on_one_draw(p: Mapping[str, Any]) -> list[Row]:
    """Return the rows of :func:`scored`, from the cache if another cell has made them.

    With `also` = "noiseless_error" they have the columns of :func:`learned` too.
    """
    return learned(kept.once("training.run", p, wanted_rounds(p), partial(scored, p)), p)


def wanted_rounds(p: Mapping[str, Any]) -> frozenset[int]:
    """Return the rounds after which a cell is scored: the last; with `every` also the first, and
    every `every`-th.
    """
    rounds = p.get("rounds", RunConfig.defaults()["rounds"])
    # any other value is refused with the configuration
    if type(rounds) is not int:
        return frozenset()
    if "every" not in p:
        return frozenset([rounds])
    every = int(p["every"])
    return frozenset([1, *range(every, rounds, every), rounds])


def scored(p: Mapping[str, Any], *observers: Observer) -> list[Row]:
    """Run one configuration, and score each replicate after the rounds of :func:`wanted_rounds`.

    Columns: `round`, `loss` (mean loss of sites' own models on their own rows, nats), `risk` (C
    times that), `test_error` and the task's quality of the average model, `site_test_error` (mean
    over sites' models), `residual` (root mean square distance of sites' models from their average),
    `distance` (of the average model to the pooled minimiser of the same objective, over its norm),
    `epsilon_claimed` and `epsilon_proved`, in total up to that round. `kept_loss` and `kept_risk`
    are of the model that a node holds: with PVP as printed its exact minimiser, which it does not
    send.
    """
    if p["method"] == "local":
        return _local(p)
    dealt = deal(p)
    try:
        config = _config(p, dealt.rows)
        ready = prepare(config, dealt.rows.n, dealt.rows.d)
    except InvalidInput as error:
        # A total too small for the curvature of the loss leaves the method out of the figure;
        # anything else is an error of the study.
        if error.field not in ("epsilon", "alpha"):
            raise
        return [{"_note": f"{p['method']} ({p.get('form', 'corrected')}) is left out: {error}."}]
    wanted = wanted_rounds(p)
    l2 = config.rho / (len(dealt.rows.n) * config.C)
    scores = _Scores(ready, dealt, dealt.optimum(config.loss, l2), wanted)
    if config.method == "pvp" and config.form != "corrected":
        privacy = simulate_watched(config, dealt.rows, scores, dealt.caveat)
    else:
        privacy = simulate(
            config, dealt.rows, observers=[scores, *observers], caveat=dealt.caveat
        ).privacy["says"]
    prices = dict.fromkeys(wanted, (math.inf, math.inf))
    if ready.algorithm.noise is not None:
        prices = _prices(ready, wanted)
    if p.get("price") == "002":
        total = theorems.claim_002(config, dealt.rows, ready)
        prices = {k: (total * k / config.rounds, proved) for k, (_, proved) in prices.items()}
    notes = {"_privacy": f"{config.method} ({config.form}): {privacy}"}
    notes["_note"] = " ".join(filter(None, [dealt.note, theorems.broken(ready)]))
    rows = []
    for k in sorted(scores.rows):
        claimed, proved = prices[k]
        price = {"round": k, "epsilon_claimed": claimed, "epsilon_proved": proved}
        rows += [price | row | notes for row in scores.rows[k]]
    return rows


def learned(rows: list[Row], p: Mapping[str, Any]) -> list[Row]:
    """Add the columns of :func:`_learns` to the rows of a cell, if its parameter `also` is set."""
    # rows without a round are the note of a run that was left out
    if not p.get("also") or p["method"] == "local" or "round" not in rows[0]:
        return rows
    dealt = deal(p)
    columns = _learns(dealt, _config(p, dealt.rows))
    return [row | columns for row in rows]


def _learns(dealt: Dealt, config: RunConfig) -> Row:
    """Compute columns that say whether errors are informative in this setting.

    They are `majority_error`, of always predicting the commoner class of the test rows;
    `noiseless_error`, of the same run without noise; and `untestable_error`, a sentence, where the
    second is not below the first by two standard errors.
    """
    common = dealt.commoner
    if common is None:
        return {}
    free = dealt.without_noise(config)
    row: Row = {"majority_error": common, "noiseless_error": free}
    # two standard errors of a share of the test rows
    if free + 2.0 * math.sqrt(free * (1.0 - free) / len(dealt.y_test)) >= common:
        row["untestable_error"] = (
            f"without noise the test error is {free:.4f}, and {common:.4f} of always the commoner "
            "class"
        )
    return row


def _local(p: Mapping[str, Any]) -> list[Row]:
    """Fit every site alone by objective perturbation of its own rows; return the mean test error
    over sites.
    """
    dealt = deal(p)
    wrong, said, spent = [], "", 0.0
    for X, y in dealt.parts:
        rows = Rows.build_from_parts([(X, y)])
        config = _config({**p, "method": "central", "rounds": 1}, rows)
        result = simulate(config, rows, caveat=dealt.caveat)
        wrong.append(dealt.errors(result.consensus))
        spent = max(spent, result.privacy["epsilon"])
        said = f"local, every site alone: {result.privacy['says']}"
    errors, task = np.mean(wrong, axis=0), dealt.task
    return [
        {
            "replicate": r,
            "round": 1,
            "epsilon_claimed": spent,
            "epsilon_proved": spent,
            "test_error": float(e),
            task.wording.quality: task.quality(float(e)),
            "site_test_error": float(e),
            "_privacy": said,
            "_note": dealt.note,
        }
        for r, e in enumerate(errors)
    ]
