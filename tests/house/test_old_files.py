"""Files of versions before 0.3: ledgers open at their price for ever, all else is refused with one
line.

The files in ``old/`` were written by 0.1.0 and 0.2.0 from ``table.csv`` and ``schema.toml`` there,
which is made-up data, and from `ROWS`: a saved run, checkpoints in the second of four rounds, plans
for sites, and ledgers. ``book.ledger`` has three runs that ended, ``evaluated.ledger`` two
evaluations, ``answers.ledger`` an inference without a name and one called ``sums``, and
``trusts.ledger`` two runs of methods by rounds, which all broke off.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import make_rows

from sottovoce.answers.saved import SavedModel
from sottovoce.answers.terms import naming_from_columns
from sottovoce.answers.training import infer
from sottovoce.cli import main
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.plan_file import read_plan_file
from sottovoce.errors import CheckpointError, InvalidInput, LedgerMismatch
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.file import ChainFile
from sottovoce.ledger.history import History
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import Result, simulate
from sottovoce.runs.training import TrainConfig, train
from sottovoce.util import files
from sottovoce.util.compatibility import FORMAT, FORMER, check_file_format

OLD = Path(__file__).parent / "old"
RUN = RunConfig(method="prox_admm", epsilon=2.0, delta=1e-5, rounds=3)
ROWS = make_rows([12, 9, 15], 3, seed=3)
LEDGERS = {  # releases, what is spent and what is spent or held, at the node where that is most
    "book": (8, 7.218276464986361, 7.218276464986361),
    "evaluated": (4, 4.551979103116566, 4.551979103116566),
    "answers": (5, 3.7614624897109317, 4.551979103116565),
    "trusts": (4, 3.6791993401989025, 4.096204510155496),
}
UNNAMED = "06a5a8438b6a582d380b062dd8eed1f5"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are told apart by what was typed, and these were made in this folder."""
    monkeypatch.chdir(OLD)


@pytest.fixture
def book(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a ledger."""

    def copied(name: str) -> Path:
        return Path(shutil.copyfile(OLD / f"{name}.ledger", tmp_path / f"{name}.ledger"))

    return copied


def asked(run: RunConfig) -> TrainConfig:
    return TrainConfig(run, data="table.csv", schema="schema.toml", partition="site:site")


def inferred(trust: str) -> TrainConfig:
    return asked(RunConfig(method="auto", epsilon=2.0, delta=1e-5, trust=trust))


def under_way(method: str) -> RunConfig:
    return RunConfig(method=method, epsilon=2.0, delta=1e-5, rounds=4, accountant="zcdp")


@pytest.mark.parametrize("name", LEDGERS)
def test_a_ledger_opens_at_its_price(book: Callable[[str], Path], name: str) -> None:
    releases, spent, held = LEDGERS[name]
    with DurableLedger.open(book(name)) as ledger:
        ledger.file.verify()
        assert len(ledger.rows) == releases
        assert ledger.total() == pytest.approx(spent, rel=1e-12)
        assert np.max(ledger.account.committed_epsilon()) == pytest.approx(held, rel=1e-12)


def test_a_price_only_went_up_since_version_0_1(book: Callable[[str], Path]) -> None:
    """Which took the order that was best at that moment."""
    with DurableLedger.open(book("book")) as ledger:
        assert 7.067163311672127 <= ledger.total() <= 9.0


def trained_again(ledger: DurableLedger, run: str) -> None:
    train(
        asked(RunConfig(method=run, epsilon=2.0, delta=1e-5, rounds=3)), ledger=ledger, run_name=run
    )


def inferred_again(ledger: DurableLedger, run: str) -> None:
    infer(inferred("sum"), ledger=ledger, run_name=run)


def simulated_again(ledger: DurableLedger, run: str) -> None:
    simulate(under_way(run), ROWS, ledger=ledger, run_name=run)


@pytest.mark.parametrize(
    ("name", "run", "begin"),
    [
        ("book", "mr_admm", trained_again),
        ("answers", "sums", inferred_again),
        ("answers", UNNAMED, inferred_again),
        ("trusts", "sum_prox", simulated_again),
    ],
)
def test_a_run_does_not_go_on_and_costs_nothing_more(
    book: Callable[[str], Path], name: str, run: str, begin: Callable[[DurableLedger, str], None]
) -> None:
    releases, spent, held = LEDGERS[name]
    with DurableLedger.open(book(name)) as ledger:
        runs = tuple(ledger.runs)
        with pytest.raises(LedgerMismatch) as refused:
            begin(ledger, run)
        assert FORMER in str(refused.value) and repr(f"{run}-2") in str(refused.value)
        assert tuple(ledger.runs) == runs and len(ledger.rows) == releases
        assert ledger.total() == pytest.approx(spent, rel=1e-12)
        assert np.max(ledger.account.committed_epsilon()) == pytest.approx(held, rel=1e-12)


@pytest.mark.parametrize("name", ["answers", "trusts"])
def test_the_version_that_began_a_run_can_end_it_until_this_one_spends(
    book: Callable[[str], Path], name: str
) -> None:
    path = book(name)
    before = schema_of(path)
    begin, run = {"answers": (inferred_again, "sums"), "trusts": (simulated_again, "sum_prox")}[
        name
    ]
    with DurableLedger.open(path) as ledger, pytest.raises(LedgerMismatch):
        begin(ledger, run)
    assert schema_of(path) == before == 4


def schema_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as file:
        return int(file.execute("PRAGMA user_version").fetchone()[0])


def stop(k: int, _: Any) -> None:
    if k == 2:
        raise KeyboardInterrupt


def as_of_before(
    self: ChainFile[History], record: dict[str, Any], payload: bytes | None = None
) -> None:
    """Append a record as versions before 0.3 did: a run did not say of which format it is."""
    APPEND(self, {key: value for key, value in record.items() if key != "version"}, payload)


APPEND = ChainFile.append_record


def test_a_run_without_a_name_does_not_begin_beside_one_that_it_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be paid a second time, in silence.  Under a name, or once the old one is closed,
    it begins.
    """
    same, other = under_way("sum_prox"), under_way("sum_momentum")
    with DurableLedger.create(
        tmp_path / "a.ledger", epsilon=9.0, delta=1e-5, accountant="zcdp", n_nodes=3
    ) as ledger:
        with monkeypatch.context() as before:
            before.setattr(ChainFile, "append_record", as_of_before)
            with pytest.raises(KeyboardInterrupt):
                simulate(same, ROWS, ledger=ledger, observers=[stop])
        (begun,) = ledger.runs.open_former_runs
        for config in (same, other):
            with pytest.raises(LedgerMismatch, match=begun):
                simulate(config, ROWS, ledger=ledger)
        assert tuple(ledger.runs) == (begun,)
        simulate(other, ROWS, ledger=ledger, run_name="another")
        ledger.close_run(begun, reclaim=True)
        assert ledger.runs.open_former_runs == ()
        simulate(other, ROWS, ledger=ledger)
        assert len(ledger.runs) == 3


def test_closing_a_run_of_an_earlier_version_gives_back_what_it_holds(
    book: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = book("trusts")
    main(["ledger", "show", str(path)])
    assert capsys.readouterr().out.count(FORMER) == 2
    for run in ("sum_momentum", "sum_prox"):
        main(["ledger", "close", str(path), run])
    capsys.readouterr()
    main(["ledger", "show", str(path), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert shown["committed"] == shown["spent"] and not any(run["goes_on"] for run in shown["runs"])
    with DurableLedger.open(path) as ledger:
        simulate(under_way("sum_prox"), ROWS, ledger=ledger, run_name="sum_prox-2")
        assert ledger.show()["runs"][-1]["released"] == 4


def test_a_run_of_this_version_goes_on(tmp_path: Path) -> None:
    with DurableLedger.create(
        tmp_path / "a.ledger", epsilon=9.0, delta=1e-5, accountant="zcdp", n_nodes=3
    ) as ledger:
        with pytest.raises(KeyboardInterrupt):
            simulate(under_way("sum_prox"), ROWS, ledger=ledger, observers=[stop])
        assert ledger.show()["runs"][0]["goes_on"] and ledger.runs.open_former_runs == ()
        simulate(under_way("sum_prox"), ROWS, ledger=ledger)
        assert len(ledger.runs) == 1 and len(ledger.rows) == 4


def test_a_saved_run_is_refused_by_every_command_before_anything_is_spent(
    book: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CheckpointError, match=FORMER):
        Result.load(OLD / "run.npz")
    path = book("evaluated")
    for words in (
        ["predict", "run.npz", "table.csv"],
        ["report", "run.npz", "--out", str(tmp_path / "a.html")],
        ["export", "run.npz", "--onnx", str(tmp_path / "a.onnx")],
        ["evaluate", "run.npz", "table.csv", "--epsilon", "2", "--ledger", str(path)],
    ):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        said = capsys.readouterr().err
        assert stopped.value.code == 2 and FORMER in said and "Traceback" not in said
    with DurableLedger.open(path) as ledger:
        assert len(ledger.rows) == LEDGERS["evaluated"][0]


def test_numbers_of_a_saved_run_are_read_without_this_library_and_are_those_of_today() -> None:
    with np.load(OLD / "run.npz") as file:
        assert np.allclose(train(asked(RUN)).result.models, file["models"], rtol=1e-5)


@pytest.mark.parametrize("command", [["predict", "{}", "table.csv"], ["report", "{}"]])
def test_a_saved_model_with_names_is_refused(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    plain = SavedModel(
        naming_from_columns(["age"], 1.0), np.array([1.0, 0.5]), np.ones(1)
    ).to_dict()
    path.write_text(json.dumps(plain | {"version": 1}))
    with pytest.raises(CheckpointError, match=FORMER):
        SavedModel.load(path)
    with pytest.raises(SystemExit) as stopped:
        main([word.format(path) for word in command])
    assert stopped.value.code == 2 and FORMER in capsys.readouterr().err


@pytest.mark.parametrize("name", ["plan", "inferred", "evaluated"])
def test_a_plan_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_plan_file(OLD / f"{name}.json")
    assert refused.value.field == "plan" and refused.value.rule == FORMER


@pytest.mark.parametrize(
    "method", ["sum_momentum", "sum_prox", "momentum", "prox_average", "central_momentum"]
)
def test_a_checkpoint_is_refused_and_stays_as_it_is(tmp_path: Path, method: str) -> None:
    path = tmp_path / "checkpoint.npz"
    shutil.copyfile(OLD / f"{method}.npz", path)
    with pytest.raises(CheckpointError, match=FORMER):
        simulate(under_way(method), ROWS, checkpoint=path)
    assert path.read_bytes() == (OLD / f"{method}.npz").read_bytes()


def test_a_hubs_log_of_version_0_1_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hub.log"
    HubLog(path).close()
    with sqlite3.connect(path) as log:
        changes = (
            "DROP TABLE farewell",
            "DROP TABLE ended",
            "PRAGMA user_version = 0",
            "PRAGMA application_id = 0",
        )
        for statement in changes:
            log.execute(statement)
    log.close()
    for read_only in (False, True):
        with pytest.raises(InvalidInput) as refused:
            HubLog(path, read_only=read_only)
        assert refused.value.rule == FORMER


def test_files_of_later_versions_are_refused_as_such(tmp_path: Path) -> None:
    path, later = tmp_path / "run.npz", FORMAT + 1
    train(asked(RUN)).result.save(path)
    found = files.read_packed_arrays(path)
    meta = json.loads(str(found["meta"])) | {"version": later}
    path.write_bytes(files.pack_arrays(**found | {"meta": np.array(json.dumps(meta))}))
    with pytest.raises(CheckpointError, match=f"of a later version: its format is {later}"):
        Result.load(path)


@pytest.mark.parametrize("found", [0, -1, True, "3", 3.0, [3]])
def test_a_format_that_no_version_wrote_is_refused(found: object) -> None:
    with pytest.raises(ValueError, match="no format"):
        check_file_format(found, "")


def test_the_present_format_is_read() -> None:
    assert check_file_format(FORMAT, "") is None
    assert [check_file_format(found, "do this") for found in (None, 1, 2)] == [
        (FORMER, "do this")
    ] * 3
