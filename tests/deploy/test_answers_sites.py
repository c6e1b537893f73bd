"""Answers between separate sites: the bits of one process, exact spending, held-out rows that
stay apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answers_in_tests import (
    BOTH,
    EVERY,
    INFERRED,
    NAMES,
    SIZES,
    TRAINED,
    Answering,
    answering,
    tables,
)
from relay_in_tests import certify, credentials, transport
from sites_in_tests import Stop, rewrite
from sums_in_tests import Lost, hub_of, run
from tasks_in_tests import carried

from sottovoce.answers.coefficients import add_site_effects
from sottovoce.answers.evaluation import LOSS, Held, Histogram, build_scored_rows, qualities
from sottovoce.answers.inference import newton_from_naming
from sottovoce.answers.metrics import Quality
from sottovoce.data.rows import Rows
from sottovoce.deploy import asks as asked
from sottovoce.deploy.answering import LOST, results_document, results_to_dict
from sottovoce.deploy.asks import Asks, SiteTable, held_out_positions
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.local import answer_as_sites
from sottovoce.deploy.plan import Plan
from sottovoce.deploy.plan_file import read_plan_file, write_plan_file
from sottovoce.deploy.relay import start_relay
from sottovoce.deploy.report import render_site_report, write_hub_results
from sottovoce.deploy.session import Finished
from sottovoce.errors import InvalidInput
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.accountants import make_accountant
from sottovoce.privacy.statement import Statement
from sottovoce.problem.facts import Among
from sottovoce.reports import answer
from sottovoce.reports import page as report_page
from sottovoce.runs.engine import FEW
from sottovoce.runs.simulate import simulate

pytest.importorskip("cryptography")


def check_spending(sites: Answering, names: tuple[str, ...] = NAMES) -> None:
    for name in names:
        with sites.ledger(name) as ledger:
            ledger.file.verify()
            assert ledger.to_list() == [
                event.to_dict() for event in sites.plan.planned_privacy.events(name)
            ]


def judged(held: Held, plan: Plan, rows: Rows, model: np.ndarray) -> Quality:
    """The evaluation of a plan in one process."""
    method = Histogram(judged=b"model", weights=model)
    return qualities(
        simulate(
            held.evaluation_config(plan.config, method), rows, method=method, loss=LOSS
        ).outcome
    )[0][""]


@pytest.mark.parametrize("trust", ["sum", "nobody"])
@pytest.mark.parametrize("what", EVERY)
def test_sites_compute_same_answers_as_one_process(tmp_path: Path, what: str, trust: str) -> None:
    sites = answering(tmp_path / "sites", EVERY[what], trust=trust)
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(sites, hub)
        at_hub = hub.results.found()
        assert write_hub_results(tmp_path, hub)
    twins = answer_as_sites(sites.plan, sites.tables)
    known = results_to_dict(sites.plan, twins[0][1])
    for end, (model, twin) in zip((ends[name] for name in NAMES), twins, strict=True):
        assert (
            isinstance(end, Finished)
            and end.outcome.stopped == "finished"
            and end.found is not None
        )
        np.testing.assert_array_equal(end.model, model)
        assert results_to_dict(sites.plan, end.found) == results_to_dict(sites.plan, twin) == known
        assert (
            end.statement.made
            == end.statement.planned_releases
            == len(sites.plan.planned_privacy.events("north"))
        )
    assert at_hub is not None and results_to_dict(sites.plan, at_hub) == known
    assert (tmp_path / "hub.npz").exists() == (not sites.plan.is_inference)
    for page in (
        (tmp_path / "hub.html").read_text(),
        render_site_report(sites.plan, "north", ends["north"]),
    ):
        assert ("Which columns matter" in page) == sites.plan.is_inference
        assert ("their columns explain" in page) == ("between_sites" in add_site_effects(known))
        assert ("Discrimination" in page) == (known["evaluation"] is not None)
    check_spending(sites)
    assert ("weights" in (tmp_path / "hub.html").read_text()) != sites.plan.is_inference
    assert (
        ">x2<" in render_site_report(sites.plan, "north", ends["north"])
    ) == sites.plan.is_inference
    assert report_page(known | {"versions": ""}).startswith("<!doctype html>")


@pytest.mark.parametrize("what", EVERY)
def test_pages_begin_with_the_answer(tmp_path: Path, what: str) -> None:
    sites = answering(tmp_path / "sites", EVERY[what], trust="nobody")
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(sites, hub)
        assert write_hub_results(tmp_path, hub)
    lead = answer(results_to_dict(sites.plan, ends["north"].found))[0]  # type: ignore[arg-type]
    for page in (
        (tmp_path / "hub.html").read_text(),
        render_site_report(sites.plan, "north", ends["north"]),
    ):
        assert page.index(f'<p class="lead">{escape(lead)}</p>') < page.index("<h2>")


@pytest.mark.parametrize("trust", ["sum", "nobody"])
def test_site_answers_equal_simulation(tmp_path: Path, trust: str) -> None:
    """The row guard of a simulation holds all nodes at once; the same noise gives the same
    numbers.
    """
    sites = answering(tmp_path, BOTH, trust=trust)
    plan, lists = sites.plan, sites.plan.recipes
    assert lists is not None and lists.naming is not None and plan.asks is not None
    parts = [[table.at(p) for p in plan.asks.split(len(table.y))] for table in sites.tables]
    rows = lists.naming.rows_of_sites([(own.X, own.y) for own, _ in parts])
    found = simulate(
        plan.config, rows, method=newton_from_naming(lists.naming), loss=plan.facts.loss
    ).outcome
    held = build_scored_rows(
        [(lists.naming.encode_rows(own.X, i), own.y) for i, (_, own) in enumerate(parts)]
    )
    quality = judged(Held(4.0), plan, held, found.estimate[0])
    model, there = answer_as_sites(plan, sites.tables)[0]
    assert there.estimates is not None and there.quality is not None
    np.testing.assert_allclose(model, found.estimate[0], rtol=1e-7)
    np.testing.assert_allclose(there.estimates.covariance, found.covariance, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(there.quality[""].counts, quality.counts, rtol=1e-6, atol=1e-6)
    assert there.quality[""].noise == pytest.approx(quality.noise, rel=1e-12)


@pytest.mark.parametrize("trust", ["sum", "nobody"])
def test_operating_system_noise_works_too(tmp_path: Path, trust: str) -> None:
    sites = answering(tmp_path / "sites", BOTH, trust=trust, seed=None)
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(sites, hub)
        at_hub = hub.results.found()
    assert at_hub is not None and at_hub.estimates is not None
    assert (
        float(np.max(np.abs(at_hub.model[:3] - np.array([4.0, -2.0, 1.0]) * math.sqrt(2.0)))) < 2.0
    )
    for end in ends.values():
        assert (
            isinstance(end, Finished) and end.found is not None and end.statement_as_dict["release"]
        )
        assert results_to_dict(sites.plan, end.found) == results_to_dict(sites.plan, at_hub)


@pytest.mark.parametrize(
    ("carrier", "trust"),
    [("relay", "sum"), ("tasks", "sum"), ("relay", "nobody"), ("tasks", "nobody")],
)
def test_answers_come_over_every_transport(tmp_path: Path, carrier: str, trust: str) -> None:
    sites = answering(tmp_path / "sites", BOTH, trust=trust)
    with hub_of(sites, tmp_path / "hub.log") as hub, ExitStack() as stack:
        if carrier == "relay":
            pytest.importorskip("grpc")
            certify(tmp_path / "tls", NAMES)
            server, port = start_relay(hub, credentials(tmp_path / "tls", "hub"), "127.0.0.1:0")
            stack.callback(lambda: server.stop(0.2).wait())
            address = f"127.0.0.1:{port}"
            doors = {
                n: stack.enter_context(transport(sites, tmp_path / "tls", address, n))
                for n in NAMES
            }
        else:
            door = stack.enter_context(carried(sites, hub))
            doors = {name: door(name) for name in NAMES}
        ends = run(sites, hub, lambda name: doors[name])
    known = results_to_dict(sites.plan, answer_as_sites(sites.plan, sites.tables)[0][1])
    for end in ends.values():
        assert (
            isinstance(end, Finished)
            and end.found is not None
            and results_to_dict(sites.plan, end.found) == known
        )


# Crashes and departures


class Falls(LocalTransport):
    """A way to the hub that breaks down once, before or after the message got there."""

    def __init__(self, hub: Hub, site: str, round: int, after: bool) -> None:
        super().__init__(hub, site, 30.0)
        self._last, self._after = round, after

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        if round == self._last and not self._after:
            raise Stop
        found = super().exchange(round, message)
        if round == self._last:
            raise Stop
        return found


@pytest.mark.parametrize(
    ("what", "trust", "at", "after"),
    [
        ("both", "sum", 9, False),
        ("both", "sum", 12, True),
        ("trained", "sum", 6, False),
        ("trained", "sum", 6, True),
        ("trained", "nobody", 5, True),
        ("trained", "nobody", 7, False),
        ("both", "nobody", 10, True),
    ],
)
def test_killed_site_resumes_without_second_draw(
    tmp_path: Path, what: str, trust: str, at: int, after: bool
) -> None:
    """In the last gradient, in the histogram, in the count of positives, and while models are
    shown; before or after the message got there, by turns: a session does not look which release it
    is, and tests/deploy/test_site_session.py has both in each of three exchanges.
    """
    sites = answering(tmp_path / "sites", EVERY[what], trust=trust)

    def until_done(hub: Hub, name: str) -> Finished:
        if name == "east":
            with pytest.raises(Stop):
                sites.run_site(name, Falls(hub, name, at, after))
        return sites.run_site(name, LocalTransport(hub, name, 30.0))

    with hub_of(sites, tmp_path / "hub.log") as hub, ThreadPoolExecutor(len(NAMES)) as pool:
        ends = list(pool.map(lambda name: until_done(hub, name), NAMES))
        again = sites.run_site("east", LocalTransport(hub, "east", 5.0))
    for end, (model, twin) in zip(ends, answer_as_sites(sites.plan, sites.tables), strict=True):
        np.testing.assert_array_equal(end.model, model)
        assert end.found is not None and results_to_dict(sites.plan, end.found) == results_to_dict(
            sites.plan, twin
        )
    assert again.found is not None and results_to_dict(sites.plan, again.found) == results_to_dict(
        sites.plan, twin
    )
    check_spending(sites)


def test_an_evaluation_goes_on_without_a_site_that_was_lost_in_training(tmp_path: Path) -> None:
    """Without noise: the counts are those of the three sites that are left."""
    asks = replace(TRAINED, evaluation=math.inf)
    sites = answering(tmp_path / "sites", asks, epsilon=math.inf)
    sites.budget = math.inf
    with hub_of(sites, tmp_path / "hub.log", 1.0) as hub:
        ends = run(sites, hub, lambda name: Lost(hub, name, 3) if name == "south" else None)
        at_hub = hub.results.found()
    left = [i for i, name in enumerate(NAMES) if name != "south"]
    parts = [sites.tables[i].at(asks.split(SIZES[i])[1]) for i in left]
    end = ends["north"]
    assert isinstance(end, Finished) and end.found is not None and end.found.quality is not None
    held = build_scored_rows([(part.X, part.y) for part in parts])
    alone = judged(Held(math.inf), sites.plan, held, end.model)
    assert end.found.quality[""].rows == sum(asks.held(SIZES[i]) for i in left)
    np.testing.assert_allclose(end.found.quality[""].counts, alone.counts, atol=1e-6)
    assert at_hub is not None and results_to_dict(sites.plan, at_hub) == results_to_dict(
        sites.plan, end.found
    )


def test_intervals_account_for_noise_of_fewer_sites(tmp_path: Path) -> None:
    """Counts of three sites of four: shares are larger, and so is what an interval takes the
    noise to be.
    """
    sites = answering(tmp_path / "sites", TRAINED)
    with hub_of(sites, tmp_path / "hub.log", 1.0) as hub:
        ends = run(sites, hub, lambda name: Lost(hub, name, 3) if name == "south" else None)
    end, stage = ends["north"], sites.plan.stages[-1]
    assert isinstance(end, Finished) and end.found is not None and end.found.quality is not None
    assert stage.recipe is not None
    noise, n = end.found.quality[""].noise, float(stage.facts.n.sum())
    whole = n * stage.recipe.releases_with_noise.noise_deviation(
        1, stage.facts, Among.all_sites(stage.facts)
    )
    # u / (u - t) shares of noise
    assert noise / whole == pytest.approx(math.sqrt((3 / 2) / (4 / 3)), rel=1e-3)


def test_missing_share_ends_evaluation_but_not_run(tmp_path: Path) -> None:
    sites = answering(tmp_path / "sites", TRAINED)
    with hub_of(sites, tmp_path / "hub.log", 1.0) as hub:
        # the count of positives
        ends = run(sites, hub, lambda name: Lost(hub, name, 6) if name == "south" else None)
        assert write_hub_results(tmp_path, hub)
        at_hub = hub.results.found()
    for end in (ends[name] for name in NAMES if name != "south"):
        assert (
            isinstance(end, Finished)
            and end.outcome.stopped == "finished"
            and end.found is not None
        )
        assert end.found.quality is None and end.found.notes == (LOST,)
    assert at_hub is not None and at_hub.notes == (LOST,)


@pytest.mark.parametrize("asks", [TRAINED, INFERRED], ids=["trained", "inferred"])
def test_hub_reports_sites_that_end_right_after_their_greeting(tmp_path: Path, asks: Asks) -> None:
    """Last models in exchange 1: the log has no release that could be replayed."""
    sites = answering(tmp_path / "sites", asks, trust="nobody")
    plan = sites.plan
    last_model = np.zeros(plan.exchange_table.last_model.width)
    with hub_of(sites, tmp_path / "hub.log") as hub:
        for name in plan.names:
            hub.rounds.post_message(name, 0, sites.sealed(name, 0))
        for name in plan.names:
            hub.rounds.post_message(name, 1, sites.sealed(name, 1, last_model, "refuse"))
        found = hub.results.found()
        assert write_hub_results(tmp_path, hub)
    if asks.inference:
        assert found is None
    else:
        assert found is not None and found.quality is None and found.notes == (LOST,)


def test_hub_has_no_results_without_last_models_in_its_log(tmp_path: Path) -> None:
    """The log is pruned while the hub still knows that the run is over."""
    sites = answering(tmp_path / "sites", TRAINED, trust="nobody")
    with hub_of(sites, tmp_path / "hub.log") as hub:
        run(sites, hub)
        assert hub.results.found() is not None
        hub.log.prune_runs([sites.plan.run])
        assert hub.rounds.is_over
        assert hub.results.models() is None and hub.results.found() is None
        assert not write_hub_results(tmp_path, hub)


def test_missing_share_ends_inference(tmp_path: Path) -> None:
    sites = answering(tmp_path / "sites", INFERRED)
    with hub_of(sites, tmp_path / "hub.log", 1.0) as hub:
        ends = run(sites, hub, lambda name: Lost(hub, name, 4) if name == "south" else None)
        assert hub.results.models() is None and hub.results.found() is None
    for end in (ends[name] for name in NAMES if name != "south"):
        assert isinstance(end, Finished) and end.outcome.stopped == FEW
        assert (
            end.found is not None
            and end.found.estimates is None
            and results_document(sites.plan, end.found)
        )
        assert end.statement.early is not None and end.statement.releases == 21


# Rows that are held out


def other(table: SiteTable, positions: np.ndarray) -> SiteTable:
    """The same table with other rows in some places."""
    X, y = table.X.copy(), table.y.copy()
    X[positions], y[positions] = -X[positions], -y[positions][::-1]
    return replace(table, X=X, y=y)


def trains_alike(folder: Path, what: str, trust: str) -> bool:
    """Whether sites with other held-out rows send the same bits until the evaluation."""
    sites = answering(folder, replace(EVERY[what], evaluation=4.0, holdout=0.3), trust=trust)
    changed = [
        other(table, held_out_positions(n, math.floor(0.3 * n)))
        for table, n in zip(sites.tables, SIZES, strict=True)
    ]
    both = [answer_as_sites(sites.plan, rows) for rows in (sites.tables, changed)]
    return all(np.array_equal(a, b) for (a, _), (b, _) in zip(*both, strict=True))


@pytest.mark.parametrize("trust", ["sum", "nobody"])
@pytest.mark.parametrize("what", ["trained", "both"])
def test_held_out_rows_never_reach_the_training(tmp_path: Path, what: str, trust: str) -> None:
    assert trains_alike(tmp_path, what, trust)


@pytest.mark.parametrize("what", ["trained", "both"])
def test_a_training_on_one_held_out_row_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A planted fault: at every site one held-out row takes the place of another in the
    training.
    """
    right = Asks.split

    def planted(self: Asks, rows: int) -> tuple[np.ndarray, np.ndarray]:
        trained, held = right(self, rows)
        return np.sort(np.append(trained[1:], held[0])), held

    monkeypatch.setattr(asked.Asks, "split", planted)
    assert not trains_alike(tmp_path, what, "sum")


def test_rows_that_are_trained_on_never_reach_the_evaluation(tmp_path: Path) -> None:
    """The evaluation of one and the same model is the same whatever they are."""
    sites = answering(tmp_path, BOTH)
    trained = [BOTH.split(n)[0] for n in SIZES]
    changed = [other(table, own) for table, own in zip(sites.tables, trained, strict=True)]
    model, lists = np.array([2.0, -1.0, 0.5, 0.0, 0.0, 0.0, 0.0]), sites.plan.recipes
    assert lists is not None and lists.naming is not None and lists.evaluation is not None
    found = []
    for rows in (sites.tables, changed):
        parts = [own.at(BOTH.split(n)[1]) for own, n in zip(rows, SIZES, strict=True)]
        held = build_scored_rows(
            [(lists.naming.encode_rows(own.X, i), own.y) for i, own in enumerate(parts)]
        )
        found.append(judged(Held(4.0), sites.plan, held, model).counts)
    np.testing.assert_array_equal(found[0], found[1])


def test_which_rows_are_held_out_depends_on_positions_alone() -> None:
    many = [held_out_positions(1000, k) for k in (100, 200, 1000)]
    assert set(many[0]) < set(many[1]) and np.array_equal(many[2], np.arange(1000))
    assert all(np.array_equal(np.sort(np.unique(one)), one) for one in many)
    # SplitMix64 from 0: e220a839, 6e789e6a, 06c45d18, f88bb8a8, 1b39896a,
    assert held_out_positions(9, 3).tolist() == [
        2,
        4,
        6,
    ]
    # and so in every version: rows that were held out stay so
    assert held_out_positions(9, 3).tolist() == [
        2,
        4,
        6,
    ]
    trained, held = TRAINED.split(421)
    assert len(held) == 126 and np.array_equal(np.sort(np.append(trained, held)), np.arange(421))


# What it costs


@pytest.mark.parametrize("what", ["trained", "both"])
@pytest.mark.parametrize("evaluation", [4.0, 30.0])
def test_row_is_charged_maximum_of_both_lists(tmp_path: Path, what: str, evaluation: float) -> None:
    sites = answering(tmp_path, replace(EVERY[what], evaluation=evaluation, holdout=0.3))
    plan, accountant = sites.plan, make_accountant("best")
    prices, events = [], plan.planned_privacy.planned_events(0)
    for some in (events[:-4], events[-4:], events):
        ledger = Ledger(accountant, math.inf, 1e-5)
        for event in some:
            ledger.record_event(event)
        prices.append(ledger.total())
    for said in (plan.planned_privacy.statement, plan.planned_privacy.statement_at("east", True)):
        assert (
            said.epsilon == pytest.approx(max(prices[:2]), rel=1e-6)
            and said.epsilon < prices[2] * 0.99
        )
        lists = (len(events) - 4, 4)
        # those that were priced
        assert (said.releases, said.others) == (lists if prices[0] > prices[1] else lists[::-1])
        assert re.search(rf"{said.releases} releases\D*{said.others} ", said.text)
        assert "held out" in said.public and Statement.from_dict(said.to_dict()) == said
    assert [part.epsilon for part in plan.planned_privacy.statements_by_rows] == pytest.approx(
        prices[:2], rel=1e-6
    )
    assert plan.planned_privacy.statement.epsilon <= max(20.0, evaluation) * (1 + 1e-9)
    alone = [part.alone for part in plan.planned_privacy.statements_by_rows]
    assert None not in alone and plan.planned_privacy.statement.alone == max(alone)  # type: ignore[type-var]


def test_plan_file_keeps_requested_answers(tmp_path: Path) -> None:
    sites = answering(tmp_path / "sites", BOTH)
    write_plan_file(sites.plan, tmp_path / "plan.json")
    again = read_plan_file(tmp_path / "plan.json")
    assert again == sites.plan and again.digest == sites.plan.digest
    scales = [
        [stage.recipe.releases_with_noise.total_mu for stage in plan.stages if stage.recipe]
        for plan in (again, sites.plan)
    ]
    assert scales[0] == scales[1] and len(scales[0]) == 2
    assert [e.to_dict() for e in again.planned_privacy.planned_events(1)] == [
        e.to_dict() for e in sites.plan.planned_privacy.planned_events(1)
    ]
    another = answering(tmp_path / "others", replace(BOTH, holdout=0.31))
    assert another.plan.digest != sites.plan.digest


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"holdout": True}, "holdout must be a number"),
        ({"threshold": 2.0}, "threshold"),
        ({"evaluation_scale": 10.0}, "costs"),
        ({"scale": None}, "calibrated"),
        ({"more": 1}, "has keys other than"),
        ({"evaluation": "much"}, "evaluation must be a number"),
    ],
    ids=str,
)
def test_plan_file_with_invalid_answers_is_refused(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    plan = answering(tmp_path / "sites", BOTH).plan
    plain = plan.to_dict()
    rewrite(tmp_path / "plan.json", plain | {"asks": plain["asks"] | change})
    with pytest.raises(InvalidInput, match=why):
        read_plan_file(tmp_path / "plan.json")


# Refusals

REFUSED: list[tuple[str, Callable[[Path], object], str]] = [
    ("nothing", lambda at: Asks(), "^asks: "),
    ("share", lambda at: Asks(evaluation=1.0), "holdout=0.0: must be a share"),
    ("idle", lambda at: Asks(inference=True, holdout=0.2), "^holdout=0.2: "),
    ("no number", lambda at: Asks(evaluation=math.nan, holdout=0.2), "^evaluation="),
    ("no share", lambda at: Asks(evaluation=1.0, holdout=math.nan), "^holdout="),
    ("no flag", lambda at: Asks(inference="yes"), "^inference="),  # type: ignore[arg-type]
    ("true", lambda at: Asks(evaluation=True, holdout=0.2), "^evaluation="),
    ("cut", lambda at: Asks(evaluation=1.0, holdout=0.2, threshold=math.nan), "^threshold="),
    ("scale", lambda at: Asks(inference=True, scale=math.nan), "^scale="),
    (
        "negative",
        lambda at: Asks(evaluation=1.0, holdout=0.2, evaluation_scale=-1.0),
        "^evaluation_scale=",
    ),
    ("column", lambda at: Asks(evaluation=1.0, holdout=0.2, by=3), "^by="),  # type: ignore[arg-type]
    (
        "rows",
        lambda at: answering(at, Asks(evaluation=4.0, holdout=0.002)),
        "leaves 0 .* and 420 ",
    ),
    (
        "few",
        lambda at: answering(at, Asks(evaluation=0.05, holdout=0.3)),
        "held-out rows are too few for this noise",
    ),
    ("level", lambda at: answering(at, replace(TRAINED, by="age")), "declares levels"),
    ("person", lambda at: answering(at, TRAINED, sites_per_row=2), "sites_per_row=2"),
    ("copies", lambda at: answering(at, TRAINED, copies=2), "copies=2"),
    ("method", lambda at: answering(at, INFERRED, method="sum_momentum"), "leave method out"),
    ("cap", lambda at: answering(at, INFERRED, max_grad_norm=0.5), "without a cap"),
    ("noise", lambda at: answering(at, INFERRED, noise=0.5), "^noise: "),
    ("pure", lambda at: answering(at, TRAINED, trust="nobody", delta=None), "no pure epsilon"),
    ("numbers", lambda at: answering(at, TRAINED, loss="huber-residual:0.25"), "two classes"),
    (
        "two",
        lambda at: answering(at, TRAINED, names=NAMES[:2]),
        "each of two sites can subtract its own share",
    ),
    ("colluders", lambda at: answering(at, INFERRED, colluders=3), "hide a single site"),
]


@pytest.mark.parametrize(
    ("make", "why"), [one[1:] for one in REFUSED], ids=[one[0] for one in REFUSED]
)
def test_invalid_answers_are_refused_before_planning(
    tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    with pytest.raises(InvalidInput, match=why) as refusal:
        make(tmp_path)
    assert "\n" not in str(refusal.value)


def test_a_site_without_its_table_spends_nothing(tmp_path: Path) -> None:
    sites = answering(tmp_path, TRAINED)
    others = tables(seed=2)[0]
    for changes, why in (
        ({"table": None}, "must be the raw table"),
        ({"table": others}, "^table: "),
    ):
        with sites.ledger("north") as ledger, pytest.raises(InvalidInput, match=why):
            sites.session("north", ledger, **changes).check_before_run(bind=True)
    with sites.ledger("north") as ledger:
        assert not ledger.runs
    assert Rows.build_from_parts([(others.X, others.y)]).n[0, 0] == SIZES[0]
