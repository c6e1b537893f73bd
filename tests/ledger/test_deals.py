"""A ledger in memory that is shared: by clones and threads, by runs that deal rows anew, by
people at several sites.
"""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from joblib import Parallel, delayed, parallel_config
from problems import make_rows
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

import sottovoce
from sottovoce import ConsensusClassifier, Ledger, RunConfig
from sottovoce.errors import BudgetExceeded, InvalidInput, LedgerError, LedgerMismatch
from sottovoce.ledger.joint import Joint
from sottovoce.privacy.accountants import Accountant, RDPAccountant, ZCDPAccountant, make_accountant
from sottovoce.privacy.events import GaussianMechanism, LaplaceMechanism
from sottovoce.runs.simulate import simulate


def laplace(*epsilons: float) -> LaplaceMechanism:
    return LaplaceMechanism("test", "replace-one", 1.0 / np.array(epsilons), np.ones(len(epsilons)))


def gauss(*mus: float, relation: str = "replace-one") -> GaussianMechanism:
    return GaussianMechanism("test", relation, 2.0 / np.array(mus), np.full(len(mus), 2.0), 5)


# Deals


def test_repartitioned_rows_are_charged_at_the_worst_node_each_time() -> None:
    ledger = Ledger(epsilon=2.5)
    ledger.record_event(laplace(1.0, 0.2), deal=b"first")
    with pytest.raises(BudgetExceeded, match=r"2 partitions.* 2.7;"):
        ledger.record_event(laplace(0.2, 1.7), deal=b"second")
    ledger.record_event(laplace(0.2, 1.0), deal=b"second")
    assert (
        ledger.total() == 2.0
        and ledger.per_node().tolist() == [2.0]
        and ledger.report() == {"pure": 2.0}
    )
    ledger.record_event(laplace(0.2, 0.3), deal=b"first")  # node by node within a deal: 1.2 and 0.5
    assert ledger.total() == pytest.approx(2.2)
    assert (
        ledger.account.against([0]) == pytest.approx(0.5 + 1.0)
        and ledger.account.against([0, 1]) == 0.0
    )
    with pytest.raises(BudgetExceeded, match=r"^epsilon=2.5: .*3 partitions") as no:
        ledger.record_event(laplace(0.1, 0.35), deal=b"third")
    assert "to 2.55" in str(no.value) and "\n" not in str(no.value)
    assert (
        len(ledger.rows) == 3 and ledger.total() == pytest.approx(2.2) and ledger.claimed() is None
    )
    assert Ledger().trial().total() == 0.0 and ledger.trial().total() == ledger.total()


def test_charges_without_a_partition_share_one_partition() -> None:
    ledger = Ledger()
    ledger.record_event(laplace(1.0, 0.2))
    ledger.record_event(laplace(0.2, 1.0))
    assert ledger.total() == 1.2
    ledger.record_event(laplace(0.1, 0.4), deal=b"dealt")
    assert ledger.total() == pytest.approx(1.6)


@pytest.mark.parametrize("name", ["pure", "zcdp", "rdp"])
@pytest.mark.parametrize("sites_per_row", [1, 2])
def test_total_over_partitions_is_that_of_the_worst_row(name: str, sites_per_row: int) -> None:
    """Every way in which a person's rows can have been dealt, priced as the releases of one
    node.
    """
    rng, delta = np.random.default_rng(3), 0.0 if name == "pure" else 1e-5
    ledger = Ledger(name, np.inf, delta, sites_per_row)
    deals: list[list[np.ndarray]] = [
        [rng.uniform(0.05, 0.3, 3) for _ in range(2)] for _ in range(3)
    ]
    event = laplace if name == "pure" else gauss
    for number, releases in enumerate(deals):
        for values in releases:
            ledger.record_event(event(*values), deal=bytes([number]))
    places = list(itertools.combinations(range(3), sites_per_row))
    worst = max(
        float(
            ledger.accountant.epsilon_of_events(
                [event(v[i]) for at, d in zip(way, deals, strict=True) for v in d for i in at],
                delta,
            )[0]
        )
        for way in itertools.product(places, repeat=len(deals))
    )
    assert (
        ledger.total() == pytest.approx(worst, rel=1e-12) == ledger.report()[ledger.accountant.name]
    )


def test_directions_of_zero_out_add_up_separately_over_partitions() -> None:
    ledger = Ledger("rdp", np.inf, 1e-5)
    for deal, mus in ((b"1", (0.1, 0.3)), (b"2", (0.4, 0.2))):
        ledger.record_event(gauss(*mus, relation="zero-out"), deal=deal)
    # .3^2 + .4^2
    assert ledger.total() == pytest.approx(
        float(ledger.accountant.epsilon_of_events([gauss(0.5)], 1e-5)[0])
    )


def test_partitions_over_other_numbers_of_nodes_share_the_smallest_budget() -> None:
    ledger = Ledger(epsilon=[2.0, 1.0])
    ledger.record_event(laplace(0.9, 0.1), deal=b"two nodes")
    ledger.record_event(laplace(0.05), deal=b"one node")
    with pytest.raises(BudgetExceeded, match=r"^epsilon=1: "):
        ledger.record_event(laplace(0.06), deal=b"one node")
    assert ledger.total() == pytest.approx(0.95)
    wide = Ledger()
    wide.record_event(laplace(0.1, 0.1, 0.1))
    with pytest.raises(InvalidInput, match=r"^nodes=2: .*3"):
        wide.record_event(laplace(0.1, 0.1))
    with pytest.raises(InvalidInput, match=r"^epsilon: .*2 budgets"):
        ledger.record_event(laplace(0.1, 0.1, 0.1), deal=b"three")


@pytest.mark.parametrize("name", ["pld", "best"])
def test_accountants_without_sums_accept_one_partition_only(name: str) -> None:
    ledger = Ledger(make_accountant(name), np.inf, 1e-5)
    ledger.record_event(gauss(0.1, 0.2), deal=b"1")
    with pytest.raises(
        InvalidInput, match=rf"^accountant='{name}': this accountant cannot combine"
    ):
        ledger.record_event(gauss(0.1, 0.2), deal=b"2")
    assert len(ledger.rows) == 1 and ledger.total() > 0


def test_runs_add_node_by_node_under_one_partition_only() -> None:
    rows, other = make_rows([60, 45], 4), make_rows([45, 60], 4)
    config = RunConfig(method="dvp", rho=0.02, eta=0.05, rounds=2, epsilon=(1.0, 0.2))
    for changes, spent in (({}, 1.2), ({"deal": b"dealt anew"}, 2.0)):
        ledger = Ledger()
        simulate(config, rows, ledger=ledger)
        turned = config.but(epsilon=(0.2, 1.0), seed=1)
        result = simulate(turned, rows, ledger=ledger, **changes)  # type: ignore[arg-type]
        assert ledger.total() == pytest.approx(spent, rel=1e-5) == result.privacy["ledger"]["spent"]
    simulate(config, other, ledger=ledger)
    assert ledger.total() == pytest.approx(3.0, rel=1e-5)


def test_people_at_several_sites_need_a_ledger_that_counts_them(tmp_path: Any) -> None:
    rows = make_rows([60, 45, 50], 4)
    config = RunConfig(method="dvp", rho=0.02, eta=0.05, rounds=2, epsilon=1.0, sites_per_row=2)
    with pytest.raises(InvalidInput, match=r"^sites_per_row=2: .*sites_per_row=1,"):
        simulate(config, rows, ledger=(small := Ledger()))
    assert small.rows == ()
    simulate(config, rows, ledger=(large := Ledger(sites_per_row=3)))
    assert large.total() > simulate(config, rows).privacy["epsilon"] == pytest.approx(1.0, rel=1e-5)
    with sottovoce.DurableLedger.create(tmp_path / "a", epsilon=3.0, n_nodes=3) as durable:
        with pytest.raises(InvalidInput, match=r"^sites_per_row=2: .*on disk"):
            simulate(config, rows, ledger=durable)
        assert not durable.runs
    pooled = RunConfig(method="central", epsilon=1.0, rounds=1)
    with pytest.raises(
        InvalidInput,
        match=r"^method='central': .*sites_per_row=3,",
    ):
        simulate(pooled, rows, ledger=large)
    for wrong in (0, 1.5, "2"):
        with pytest.raises(InvalidInput, match=r"^sites_per_row="):
            Ledger(sites_per_row=wrong)  # type: ignore[arg-type]


# Names


def test_an_accountants_name_selects_a_lifetime_accountant() -> None:
    assert (
        Ledger("rdp", 2.0, 1e-5).accountant.is_filter
        and Ledger("zcdp:5", 2.0, 1e-5).accountant.label == "zcdp:5.0"
    )
    assert Ledger(accountant="pure").accountant.name == "pure"
    # The repr is the call that makes the same ledger.
    made = Ledger("rdp:20", 2.0, 1e-5)
    again = eval(repr(made), {"Ledger": Ledger})
    assert repr(again) == repr(made) and again.accountant.label == made.accountant.label
    assert (again.epsilon, again.delta, again.sites_per_row) == (2.0, 1e-5, 1)
    for wrong, delta in (("best", 1e-5), ("rdp", 0.0), ("zcdp:5", 0.0), ("none", 0.0)):
        with pytest.raises(InvalidInput):
            Ledger(wrong, 1.0, delta)


@pytest.mark.parametrize("free", [ZCDPAccountant(), RDPAccountant()], ids=lambda a: a.name)
def test_sharing_a_ledger_fixes_its_order(free: Accountant[Any]) -> None:
    ledger = Ledger(free, 3.0, 1e-5)
    run = RunConfig(method="prox_admm", rho=0.02, rounds=2, epsilon=1.0, delta=1e-5)
    result = simulate(run, make_rows([60, 45], 4), ledger=ledger)
    assert ledger.accountant.is_filter and ledger.accountant.label.startswith(f"{free.name}:")
    assert result.privacy["ledger"]["spent"] == ledger.total() > result.privacy["epsilon"]


# One ledger, whoever holds it


def consensus(ledger: Ledger, **knobs: Any) -> ConsensusClassifier:
    settings = {
        "n_sites": 2,
        "epsilon": 0.5,
        "rounds": 2,
        "method": "dvp",
        "knobs": {"rho": 0.02},
        "random_state": 0,
        "delta": None,
    }
    return ConsensusClassifier(ledger=ledger, **(settings | knobs))


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    return X, (X[:, 0] > 0).astype(int)


def test_a_ledger_is_never_copied() -> None:
    ledger = Ledger(epsilon=3.0)
    assert copy.copy(ledger) is copy.deepcopy(ledger) is clone(consensus(ledger)).ledger is ledger


def test_ledger_pickled_to_another_process_refuses_everything() -> None:
    """A file can be saved with a ledger in it, and its loaded twin is charged to nothing."""
    loaded = pickle.loads(pickle.dumps(Ledger(epsilon=3.0)))
    away = copy.deepcopy(clone(loaded, safe=False))
    assert isinstance(away, Ledger) and repr(away) == "Ledger(of another process)"
    assert pickle.loads(pickle.dumps(away)).__class__ is away.__class__ is not Ledger
    uses = [
        lambda: away.record_event(laplace(1.0)),
        away.total,
        away.trial,
        away.settle,
        away.per_node,
        away.report,
    ]
    uses += [
        lambda: away.rows,
        lambda: away.account.against([]),
        away.claimed,
        away.to_list,
        lambda: away.restore([]),
    ]
    uses += [
        lambda: away.charge_once(laplace(1.0), lambda: b""),
        lambda: Joint(Ledger(), away, [laplace(1.0)]),
    ]
    for use in uses:
        with pytest.raises(LedgerError, match=r"^ledger: .*another process") as refusal:
            use()
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("threads", [1, 4])
def test_every_fit_of_a_cross_validation_and_of_a_search_is_charged(threads: int) -> None:
    X, y = problem()
    ledger = Ledger(epsilon=9.0)
    with parallel_config("threading", n_jobs=threads):
        cross_val_score(consensus(ledger), X, y, cv=4)
        assert len(ledger.rows) == 8 and ledger.total() == pytest.approx(2.0, rel=1e-5)
        GridSearchCV(consensus(ledger), {"knobs__rho": [0.01, 0.02]}, cv=3).fit(X, y)
    assert len(ledger.rows) == 8 + 14 and ledger.total() == pytest.approx(2.0 + 3.5, rel=1e-5)


def test_a_process_pool_is_refused() -> None:
    ledger, rows = Ledger(epsilon=9.0), make_rows([60, 45], 4)
    run = RunConfig(method="dvp", rho=0.02, eta=0.05, rounds=2, epsilon=1.0)
    with pytest.raises(LedgerError, match=r"n_jobs=1.*DurableLedger"):
        Parallel(n_jobs=2)(delayed(simulate)(run, rows, ledger=ledger) for _ in range(2))
    assert ledger.rows == ()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_cannot_charge_what_it_copied() -> None:
    code = (
        "import os, numpy as np; from sottovoce import Ledger; from sottovoce.privacy.events "
        "import Unprotected\n"
        "ledger = Ledger(); pid = os.fork()\n"
        "try: ledger.record_event(Unprotected('test', np.ones(1)))\n"
        "except Exception as error: print(type(error).__name__, flush=True); os._exit(0)\n"
        "os.waitpid(pid, 0); print(len(ledger.rows))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["LedgerError", "1"]


def test_threads_cannot_race_for_a_budget() -> None:
    for _ in range(20):
        ledger, gate, refused = Ledger(epsilon=20.5), threading.Barrier(8), []

        def spend(
            ledger: Ledger = ledger, gate: threading.Barrier = gate, refused: list[Any] = refused
        ) -> None:
            gate.wait()
            for _ in range(5):
                try:
                    ledger.record_event(laplace(1.0, 0.5))
                except BudgetExceeded as error:
                    refused.append(error)

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(spend) for _ in range(8)]:
                done.result()
        assert (len(ledger.rows), len(refused), ledger.total()) == (20, 20, 20.0)


def test_an_open_run_reserves_its_whole_cost() -> None:
    shared, event = Ledger(epsilon=5.5), laplace(1.0)
    with Joint(Ledger(), shared, [event] * 3, b"a") as run:
        run.record_event(event)
        with pytest.raises(BudgetExceeded, match=r"^epsilon=5.5: .*in progress"):
            Joint(Ledger(), shared, [event] * 3, b"a")
        with pytest.raises(BudgetExceeded, match=r"1 spent,.*progress"):
            shared.record_event(laplace(2.6), deal=b"b")
        with pytest.raises(LedgerMismatch, match="not the next"):
            run.record_event(laplace(0.9))
        assert shared.total() == 1.0 and len(shared.rows) == len(run.rows) == 1
        shared.record_event(laplace(2.5), deal=b"b")
    assert shared.total() == 3.5
    shared.record_event(laplace(2.0), deal=b"a")  # what was not drawn is free again
    with pytest.raises(LedgerMismatch), Joint(Ledger(), Ledger(), []) as empty:
        empty.record_event(event)


def test_a_run_that_fails_keeps_what_it_drew_and_gives_back_the_rest() -> None:
    ledger, config = (
        Ledger(epsilon=1.0),
        RunConfig(method="dvp", rho=0.02, eta=0.05, rounds=4, epsilon=1.0),
    )

    def stop(k: int, _: Any) -> None:
        if k == 2:
            raise KeyboardInterrupt

    rows: Any = make_rows([60, 45], 4)
    with pytest.raises(KeyboardInterrupt):
        simulate(config, rows, observers=[stop], ledger=ledger)
    assert len(ledger.rows) == 2 and ledger.total() == pytest.approx(0.5, rel=1e-5)
    simulate(config.but(epsilon=0.49), rows, ledger=ledger)


def test_no_release_is_drawn_on_a_trial() -> None:
    """A fit on ``ledger.trial()`` was one that the ledger never heard of."""
    book = Ledger("pure", epsilon=1.0)
    drawn: list[int] = []
    with pytest.raises(LedgerError, match="nothing was drawn"):
        book.trial().charge_once(laplace(0.5), lambda: drawn.append(1) or b"")
    with pytest.raises(LedgerError, match="nothing was drawn"):
        simulate(
            RunConfig(epsilon=0.5, rounds=2, seed=0), make_rows([20, 20], 3), ledger=book.trial()
        )
    book.trial().record_event(laplace(0.5))  # to see whether it fits
    assert not drawn and book.total() == 0.0
