"""Separate sites centre their rows: one mean, asked once, the same everywhere; and what is
planted is found.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from centred_in_tests import MEAN, NAMES, SIZES, SUMS, centred, tables_of
from sites_in_tests import Consortium, Stop, rewrite
from sums_in_tests import Background, Lost, hub_of, run
from transports_in_tests import DOORS

from sottovoce.data import move as move_module
from sottovoce.data.move import Move
from sottovoce.deploy import session as session_module
from sottovoce.deploy.answering import results_to_dict
from sottovoce.deploy.asks import Asks
from sottovoce.deploy.hub import LocalTransport
from sottovoce.deploy.local import answer_as_sites, train_as_sites
from sottovoce.deploy.messages import check_payload, read_message
from sottovoce.deploy.plan_file import read_plan_file, write_plan_file
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.deploy.report import make_saved_result, render_hub_report, render_site_report
from sottovoce.deploy.session import Finished
from sottovoce.deploy.sums.roster import LATE
from sottovoce.deploy.waits import Waits
from sottovoce.errors import CheckpointError, InvalidInput, LedgerMismatch, Refused
from sottovoce.ledger.memory import Ledger
from sottovoce.ledger.run import Run
from sottovoce.privacy.events import GaussianMechanism
from sottovoce.runs.centre import DISCLOSED
from sottovoce.runs.engine import FEW, FINISHED
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import Result, simulate

pytest.importorskip("cryptography")

GRAPH: dict[str, Any] = {}
BOTH = pytest.mark.parametrize("knobs", [GRAPH, SUMS], ids=["graph", "sums"])


def mean_of(sites: Consortium) -> np.ndarray:
    """The rows' own mean, without noise."""
    every = np.concatenate([sites.rows.signed[i][: SIZES[i]] for i in range(len(SIZES))])
    return (every * np.sign(every[:, -1:])).mean(axis=0)[:-1]


class TestOneMean:
    @pytest.mark.parametrize(
        "knobs",
        [
            GRAPH,
            {"method": "momentum", "graph": "ring"},
            {"method": "mr_admm"},
            {"epsilon": (2.0, 3.0, 2.5, 4.0)},
            SUMS,
            SUMS | {"method": "prox_average"},
        ],
        ids=str,
    )
    def test_sites_compute_same_model_as_one_process(
        self, tmp_path: Path, knobs: dict[str, Any]
    ) -> None:
        """Bit by bit as threads of one process, and as the batched simulation but for its
        rounding.
        """
        sites = centred(tmp_path / "sites", **knobs)
        plan = sites.plan
        assert plan.centre is not None
        with hub_of(sites, tmp_path / "hub.log") as hub:
            ends = run(sites, hub)
            models, move = hub.results.models(), hub.results.move()
        config = replace(plan.config, centre=None, epsilon=plan.config.epsilon)
        whole = simulate(config, sites.rows, centre=plan.centre)
        assert (
            whole.move is not None
            and isinstance(move, Move)
            and move == whole.move.for_replicate(0)
        )
        for i, (name, (model, own)) in enumerate(
            zip(NAMES, train_as_sites(plan, sites.rows), strict=True)
        ):
            assert ends[name].move == own == move
            np.testing.assert_array_equal(ends[name].model, model)
            np.testing.assert_array_equal(models[0 if plan.uses_secure_sums else i], model)
            np.testing.assert_allclose(model, whole.models[0, i], atol=1e-8)
            assert ends[name].outcome.rounds == 3
        exact = mean_of(sites)
        assert (
            np.linalg.norm(move.mean[:-1] - exact) < 0.4 * np.linalg.norm(exact)
            and np.linalg.norm(MEAN) > 0.7
        )

    @BOTH
    def test_mean_is_reserved_charged_and_stated_at_every_site(
        self, tmp_path: Path, knobs: dict[str, Any]
    ) -> None:
        sites = centred(tmp_path / "sites", **knobs)
        plan = sites.plan
        with hub_of(sites, tmp_path / "hub.log") as hub:
            ends = run(sites, hub)
        for i, name in enumerate(NAMES):
            with sites.ledger(name) as ledger:
                ledger.file.verify()
                rows = ledger.to_list()
            assert (
                rows == [event.to_dict() for event in plan.planned_privacy.events(name)]
                and len(rows) == 1 + plan.config.rounds
            )
            assert "mean of rows" in str(rows[0]) and "mean of rows" not in str(rows[1:])
            if not plan.uses_secure_sums:  # its own number of rows, and not the mean number
                event = plan.planned_privacy.events(name)[0]
                assert isinstance(event, GaussianMechanism)
                assert float(np.max(event.sensitivity)) == pytest.approx(2.0 / SIZES[i], rel=1e-5)
            said = ends[name].statement_as_dict
            assert said["discloses"] == DISCLOSED and said["epsilon"] <= 2.0
            assert f"Released too: {DISCLOSED}" in " ".join(
                "".join(pair) for pair in ends[name].statement.words
            )
            assert "subtracted" in render_site_report(plan, name, ends[name])
        assert (
            plan.planned_privacy.statement.discloses == DISCLOSED
            and "subtracted from all rows"
            in render_hub_report(
                plan,
                {"sites": []},
                np.zeros((1 if plan.uses_secure_sums else 4, plan.d)),
                plan.planned_privacy.statement,
            )
        )
        plain = make_calibrated_plan(
            Proposal("trial", replace(plan.config, centre=None, noise=None), plan.sites, plan.d)
        )
        assert (
            plain.planned_privacy.statement.discloses is None
            and len(plain.planned_privacy.events("north")) == plan.config.rounds
        )

    def test_on_a_graph_every_site_hears_every_mean(self, tmp_path: Path) -> None:
        """A path, where the ends are no neighbours: all hear all in two exchanges, and
        neighbours alone later.
        """
        plan = centred(tmp_path).plan
        assert plan.exchange_table.widths == (5, 5, 5, 5, 5) and plan.stages[0].first == 2
        for k in (1, 2):
            assert plan.exchange_table.names_heard_by("north", k) == ("east", "south", "west")
        assert (
            plan.exchange_table.names_heard_by("north", 3)
            == ("east",)
            == plan.exchange_table.names_heard_by("north", 0)
        )
        assert centred(tmp_path, **SUMS).plan.exchange_table.widths == (5, 5, 5, 5)

    @pytest.mark.parametrize("after", [False, True])
    def test_lost_sum_leaves_rows_uncentred(self, tmp_path: Path, after: bool) -> None:
        """The mean's attempt stays charged, all go on with the mean 0, and the models are those
        of one process.
        """
        sites = centred(tmp_path / "sites", **SUMS)
        with hub_of(sites, tmp_path / "hub.log", 1.0) as hub:
            ends = run(
                sites, hub, lambda name: Lost(hub, name, 2, after) if name == "south" else None
            )
            attempts, move = hub.rounds.attempts, hub.results.move()
            models = hub.results.models()
        assert [one.opened for one in attempts] == ([True, False] if after else [False]) + [
            True
        ] * (2 if after else 3)
        told = [([NAMES.index(name) for name in one.members], one.opened) for one in attempts]
        alone = train_as_sites(sites.plan, sites.rows, told)
        for i, name in enumerate(NAMES):
            if name != "south":
                np.testing.assert_array_equal(ends[name].model, alone[i][0])
                np.testing.assert_array_equal(models[0], alone[i][0])
                assert ends[name].outcome.rounds == 3 and ends[name].move == alone[i][1] == move
                with sites.ledger(name) as ledger:
                    assert len(ledger.rows) == 4
        assert (np.linalg.norm(move.mean) > 0.3) == after


@pytest.mark.parametrize("way", ["relay", "tasks"])
@BOTH
def test_every_transport_carries_mean(tmp_path: Path, way: str, knobs: dict[str, Any]) -> None:
    sites = centred(tmp_path / "sites", **knobs)
    with (
        hub_of(sites, tmp_path / "hub.log") as hub,
        DOORS[way](sites, hub, tmp_path / "way") as door,
    ):
        ends, move = sites.run(door), hub.results.move()
    for name, (model, own) in zip(NAMES, train_as_sites(sites.plan, sites.rows), strict=True):
        np.testing.assert_array_equal(ends[name].model, model)
        assert ends[name].move == own == move is not None


def test_held_out_rows_are_clipped_like_training_rows(tmp_path: Path) -> None:
    """An evaluation after a centred training is that of one process, at sites and at the hub."""
    sites, tables = centred(tmp_path / "sites", asks=Asks(evaluation=5.0, holdout=0.3)), tables_of()
    with hub_of(sites, tmp_path / "hub.log") as hub:
        with ThreadPoolExecutor(len(NAMES)) as pool:
            ends = list(
                pool.map(
                    lambda i: sites.run_site(
                        NAMES[i], LocalTransport(hub, NAMES[i], 30.0), table=tables[i]
                    ),
                    range(4),
                )
            )
        found = hub.results.found()
    alone = answer_as_sites(sites.plan, tables)
    said = [
        results_to_dict(sites.plan, one)
        for one in (*(end.found for end in ends), found, *(one for _, one in alone))
    ]
    assert all(one == said[0] for one in said) and all(
        np.array_equal(end.model, one) for end, (one, _) in zip(ends, alone, strict=True)
    )


@pytest.mark.parametrize("last", [1, 2])
def test_over_a_graph_no_mean_is_made_without_a_site(tmp_path: Path, last: int) -> None:
    """Lost with the means, a site ends the run; once all have heard them, the others go on and
    keep the map.
    """
    sites = centred(tmp_path / "sites", graph="complete")
    sites.plan = replace(sites.plan, waits=Waits(deadline=1.0, patience=2.0))
    with hub_of(sites, tmp_path / "hub.log", patience=1.0) as hub:
        ends = run(sites, hub, lambda name: Lost(hub, name, last) if name == "south" else None)
        move = hub.results.move()
    for name in ("north", "east", "west"):
        assert ends[name].outcome.stopped == (FEW if last == 1 else FINISHED)
        assert ends[name].outcome.rounds == (0 if last == 1 else 3) and set(ends[name].lost) == {
            "south"
        }
        assert ends[name].move == move and (move is None) == (last == 1)


class TestResuming:
    @BOTH
    @pytest.mark.parametrize(
        ("last", "after", "seed"),
        [(1, False, None), (1, True, 3), (2, False, 3), (2, True, 3), (3, True, None)],
    )
    def test_site_killed_around_mean_resumes_with_it(
        self, tmp_path: Path, knobs: dict[str, Any], last: int, after: bool, seed: int | None
    ) -> None:
        sites = centred(tmp_path / "sites", **knobs, seed=seed)
        with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
            others = Background(sites, hub, ("north", "south", "west"))
            with pytest.raises(Stop):
                sites.run_site("east", Lost(hub, "east", last, after))
            east = sites.run_site("east", LocalTransport(hub, "east", 30.0))
            ends, move = others.join() | {"east": east}, hub.results.move()
        with sites.ledger("east") as ledger:
            ledger.file.verify()
            assert ["mean of rows" in str(row) for row in ledger.to_list()] == [
                True,
                False,
                False,
                False,
            ]
        assert move is not None and all(ends[name].move == move for name in NAMES)
        if seed is not None:
            for name, (model, _) in zip(NAMES, train_as_sites(sites.plan, sites.rows), strict=True):
                np.testing.assert_array_equal(ends[name].model, model)

    @BOTH
    def test_second_draw_of_resumed_site_is_detected(
        self, tmp_path: Path, knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Planted: a book that draws for the mean again.  The message that was written down
        stands, and no other.
        """
        sites = centred(tmp_path / "sites", **knobs, seed=None)
        number = 2 if sites.plan.uses_secure_sums else 1
        with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
            others = Background(sites, hub, ("north", "south", "west"))
            with pytest.raises(Stop):
                sites.run_site("east", Lost(hub, "east", number))
            once = Run.charge_once

            def again(self: Run, event: Any, draw: Any) -> bytes:
                stored = once(self, event, draw)
                return (
                    draw()
                    if self.release == 1 and "east" in str(self.records._file.path)
                    else stored
                )

            with monkeypatch.context() as patch:
                patch.setattr(Run, "charge_once", again)
                with pytest.raises(
                    LedgerMismatch, match=f"different message .*sent in round {number}"
                ):
                    sites.run_site("east", LocalTransport(hub, "east", 30.0))
            sites.run_site("east", LocalTransport(hub, "east", 30.0))
            assert all(not isinstance(end, BaseException) for end in others.join().values())


def guards(monkeypatch: pytest.MonkeyPatch, rows: int, made: type[RowGuard]) -> None:
    """The site with that many rows has another kind of row guard."""
    monkeypatch.setattr(
        session_module,
        "RowGuard",
        lambda own, *rest, **more: (made if own.n[0, 0] == rows else RowGuard)(own, *rest, **more),
    )


class TestPlanted:
    @BOTH
    def test_site_with_different_mean_is_detected(
        self, tmp_path: Path, knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No round of training follows at a site that knows of it; in sums the others go on
        without that site.
        """

        class Own(RowGuard):
            def move_rows_by_mean(self, mean: np.ndarray) -> Move:
                return super().move_rows_by_mean(mean * (1.0 - 1e-15))

        guards(monkeypatch, SIZES[2], Own)
        sites = centred(tmp_path / "sites", **knobs)
        with hub_of(sites, tmp_path / "hub.log", 1.0) as hub:
            ends = run(sites, hub)
        assert isinstance(ends["south"], Refused)
        if sites.plan.uses_secure_sums:
            assert "by different means" in str(ends["south"])
            others = [ends[name] for name in NAMES if name != "south"]
            assert all(isinstance(end, Finished) and end.lost == {"south": LATE} for end in others)
            return
        assert "by another mean" in str(ends["south"])
        for name in ("north", "east", "west"):
            assert isinstance(ends[name], Refused) and "site 'south' moves" in str(ends[name])
            with sites.ledger(name) as ledger:
                assert len(ledger.rows) == 1

    def test_different_means_from_hub_are_detected(self, tmp_path: Path) -> None:
        """South and the hub plot: the ends of the path are told of different releases, each well
        signed.
        """
        sites = centred(tmp_path / "sites")
        with hub_of(sites, tmp_path / "hub.log") as hub:

            class Plotting(LocalTransport):
                def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
                    inbox = super().exchange(round, message)
                    if round == 1 and "south" in inbox:
                        said = read_message(sites.plan, inbox["south"], "south", 1).payload
                        inbox["south"] = sites.sealed("south", 1, said * 1.01)
                    return inbox

            ends = run(
                sites, hub, lambda name: Plotting(hub, name, 30.0) if name == "north" else None
            )
        assert all(isinstance(end, Refused) for end in ends.values())
        assert "site 'north' moves" in str(ends["west"])

    def test_a_site_cannot_send_more_than_rows_and_noise_can_make(self, tmp_path: Path) -> None:
        plan = centred(tmp_path).plan
        firsts = [plan.planned_privacy.events(name)[0] for name in NAMES]
        spread = max(
            float(np.max(event.noise_standard_deviation())) * n
            for n, event in zip(SIZES, firsts, strict=True)
        )
        caps = [row.norm_cap for row in plan.exchange_table.rows]
        assert 1.0 < caps[0] == caps[1] < 1.01 + 45.0 * spread / sum(SIZES) < 10.0 < caps[2]
        check_payload(plan, "release", np.full(5, caps[0] / 3.0), 1)
        with pytest.raises(Refused, match=r"^payload: its norm"):
            check_payload(plan, "release", np.full(5, caps[0]), 1)

    @BOTH
    def test_uncharged_mean_is_detected(
        self, tmp_path: Path, knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Planted: a row guard with a book of its own for the mean.  The next release is not the
        reserved one.
        """

        class Free(RowGuard):
            def _charge_and_draw(self, query: Any, draw: Callable[[], bytes]) -> bytes:
                book = self.ledger
                if self.move is None:
                    self.ledger = Ledger("rdp", delta=1e-5)
                try:
                    return super()._charge_and_draw(query, draw)
                finally:
                    self.ledger = book

        guards(monkeypatch, SIZES[0], Free)
        sites = centred(tmp_path / "sites", **knobs)
        with hub_of(sites, tmp_path / "hub.log", 1.0) as hub:
            ends = run(sites, hub, lambda name: LocalTransport(hub, name, 3.0))
        assert isinstance(ends["north"], LedgerMismatch) and "was reserved" in str(ends["north"])
        with sites.ledger("north") as ledger:
            assert ledger.rows == ()

    @BOTH
    def test_a_saved_model_without_its_map_is_refused(
        self, tmp_path: Path, knobs: dict[str, Any]
    ) -> None:
        sites = centred(tmp_path / "sites", **knobs)
        with hub_of(sites, tmp_path / "hub.log") as hub:
            end = run(sites, hub)["north"]
            status, models = hub.status_as_dict(), hub.results.models()
        plan, how, path = sites.plan, end.outcome, tmp_path / "north.npz"
        make_saved_result(
            plan, end.model[None], end.statement, how.stopped, how.rounds, end.move
        ).save(path)
        kept = Result.load(path)
        assert (
            kept.move is not None
            and kept.move.for_replicate(0) == end.move
            and kept.centring == plan.centre
        )
        for models_, statement, move in (
            (end.model[None], end.statement, None),
            (models, plan.planned_privacy.statement, None),
        ):
            make_saved_result(plan, models_, statement, how.stopped, how.rounds, move).save(path)
            with pytest.raises(CheckpointError, match="not a saved"):
                Result.load(path)
        assert status["finished"]

    @BOTH
    def test_rows_not_clipped_after_centring_are_detected(
        self, tmp_path: Path, knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Planted: at one site moved rows stay as long as they come out, and derivatives pass
        the bound of proofs.
        """
        longest: list[float] = []

        class Measured(RowGuard):
            def move_rows_by_mean(self, mean: np.ndarray) -> Move:
                moved = super().move_rows_by_mean(mean)
                block, d = (
                    replace(self.rows, move=moved).design_of_nodes(np.array([0])),
                    self.rows.d,
                )
                entries = [
                    np.asarray(block.to_numpy_array(block.margins_at(unit[None, None]))).ravel()
                    for unit in np.eye(d)
                ]
                longest.append(float(np.linalg.norm(np.stack(entries), axis=0).max()))
                return moved

        class Long(Measured):
            def move_rows_by_mean(self, mean: np.ndarray) -> Move:
                whole = move_module._factors_and_lengths
                with monkeypatch.context() as patch:
                    patch.setattr(
                        move_module,
                        "_factors_and_lengths",
                        lambda rows, move, short: whole(rows, move, short=False),
                    )
                    return super().move_rows_by_mean(mean)

        for made in (Measured, Long):
            guards(monkeypatch, SIZES[0], made)
            sites = centred(tmp_path / made.__name__, **knobs)
            with hub_of(sites, tmp_path / f"{made.__name__}.log") as hub:
                run(sites, hub)
        assert longest[0] <= 1.0 < 1.05 < longest[1]


class TestPlans:
    def test_centring_roundtrips_and_edited_plan_is_refused(self, tmp_path: Path) -> None:
        plan, path = centred(tmp_path).plan, tmp_path / "plan.json"
        write_plan_file(plan, path)
        assert read_plan_file(path) == plan and read_plan_file(path).digest == plan.digest
        plain = plan.to_dict()
        assert plain["version"] == 3 and plain["centre"] == plan.centre.to_dict()
        for change in (
            {"centre": plain["centre"] | {"gain": 1.5}},
            {"centre": plain["centre"] | {"constants": [9]}},
            {"centre": plain["centre"] | {"alpha": -1.0}},
            {"centre": [1]},
            {"version": 1},
            {"config": plain["config"] | {"centre": "0" * 32}},
        ):
            rewrite(path, plain | change)
            with pytest.raises(InvalidInput):
                read_plan_file(path)
        rewrite(path, {key: value for key, value in plain.items() if key != "centre"})
        with pytest.raises(InvalidInput, match="no Centring was given"):
            read_plan_file(path)
