"""Nothing that was paid for is lost: no encoding, pipe, width, signal or full disk undoes a run
after its charge.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Call, Clinic
from rich.console import Console as RichConsole

from sottovoce.answers.saved import SavedModel
from sottovoce.cli import CLOSED, main, results
from sottovoce.cli.screen import NARROWEST, Console, Listing, make_listing

TRAIN = (
    "train",
    "--data",
    "rows.csv",
    "--schema",
    "clinic.toml",
    "--nodes",
    3,
    "--partition",
    "iid",
    "--epsilon",
    1,
    "--system-noise",
    "--ledger",
    "rows.ledger",
)
ROUNDS = (*TRAIN, "--method", "momentum", "--rounds", 4)
PAID = {
    "train": ROUNDS,
    "inference": (*TRAIN, "--inference", "--trust", "sum"),
    "evaluate": ("evaluate", "run.npz", "rows.csv", "--system-noise", "--ledger", "one.ledger"),
    "survey": (
        "schema",
        "survey",
        "clinic.toml",
        "rows.csv",
        "--epsilon",
        2,
        "--system-noise",
        "--ledger",
        "sites.ledger",
    ),
    "describe": (
        "describe",
        "--data",
        "rows.csv",
        "--schema",
        "clinic.toml",
        "--epsilon",
        2,
        "--system-noise",
        "--ledger",
        "sites.ledger",
    ),
    "survival": (
        "survival",
        "--data",
        "rows.csv",
        "--schema",
        "clinic.toml",
        "--time",
        "age",
        "--event",
        "outcome",
        "--event-code",
        "sick",
        "--grid",
        "40,80",
        "--epsilon",
        2,
        "--system-noise",
        "--ledger",
        "sites.ledger",
    ),
}
"""Commands that spend."""


@pytest.fixture
def paid(clinic: Clinic, run: Call) -> Path:
    """A folder with a table, its ledgers and a saved model."""
    for name, nodes in (
        ("rows", 3),
        ("one", 1),
        ("sites", len({hospital for *_, hospital, _ in clinic.table})),
    ):
        assert (
            run(
                "ledger",
                "init",
                f"{name}.ledger",
                "--epsilon",
                3,
                "--delta",
                1e-4,
                "--nodes",
                nodes,
            ).code
            == 0
        )
    made = (
        "--data",
        "rows.csv",
        "--schema",
        "clinic.toml",
        "--method",
        "dgd",
        "--rounds",
        2,
        "--save",
        "run.npz",
    )
    assert run("train", *made).code == 0
    return Path.cwd()


def ledger_of(words: tuple[Any, ...]) -> Path:
    return Path(str(words[words.index("--ledger") + 1]))


def spent(run: Call, words: tuple[Any, ...]) -> list[float]:
    return list(run("ledger", "show", ledger_of(words), "--json").json["spent"])


def stored(words: tuple[Any, ...]) -> Path:
    """The one file of results beside the ledger, which can be read."""
    found = list(results.results_folder(ledger_of(words)).iterdir())
    assert len(found) == 1
    if found[0].suffix == ".npz":
        assert SavedModel.load(found[0]).model.size
    else:
        assert json.loads(found[0].read_text())
    return found[0]


def shell(
    words: tuple[Any, ...], tail: str = "", code: str = "", **more: Any
) -> subprocess.CompletedProcess[str]:
    """The command line in a shell, with `code` run before it."""
    script = (
        f"import sys; {code}\nfrom sottovoce.cli import "
        f"main\nmain({[str(word) for word in words]!r})"
    )
    line = f'"$PYTHON" -c "$SCRIPT" {tail}'
    env = {**os.environ, "PYTHON": sys.executable, "SCRIPT": script, "COLUMNS": "80"}
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=env, check=False, **more
    )


# Encodings


def encoded(
    words: tuple[Any, ...], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str]:
    raw = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, write_through=True))
        code = 0
        try:
            main([str(word) for word in words])
        except SystemExit as stop:
            code = int(stop.code or 0)
        sys.stdout.flush()
        return code, raw.getvalue().decode("utf-8" if encoding == "ascii" else encoding)


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        *((name, encoding) for name in PAID for encoding in ("cp1252", "ascii")),
        ("train", "latin-1"),
        ("train", "cp437"),
        ("train", "utf-8"),
    ],
)
def test_every_encoding_shows_the_result(
    name: str, encoding: str, paid: Path, run: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = encoded(PAID[name], encoding, monkeypatch)
    assert code == 0
    assert "epsilon" in text and str(stored(PAID[name])) in text.replace("\n", "")


def test_names_that_an_encoding_lacks_are_numbers(
    paid: Path, run: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path("clinic.toml").read_text(encoding="utf-8")
    Path("other.toml").write_text(
        text.replace('name = "clinic"', 'name = "Klinik Łódź █"'), encoding="utf-8"
    )
    for encoding, said in (("latin-1", r"Klinik \u0141\xf3d\u017a #"), ("utf-8", "Klinik Łódź █")):
        code, shown = encoded(("schema", "check", "other.toml"), encoding, monkeypatch)
        assert code == 0 and said.replace(r"\xf3", "ó") in shown


def test_predictions_are_never_written_with_other_names(
    clinic: Clinic, run: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs read them, so a name that an encoding lacks is refused, and a file takes
    it.
    """
    Path("clinic.toml").write_text(
        Path("clinic.toml").read_text().replace('"sick"', '"Łódź"'), encoding="utf-8"
    )
    Path("rows.csv").write_text(
        Path("rows.csv").read_text().replace("sick", "Łódź"), encoding="utf-8"
    )
    made = (
        "--data",
        "rows.csv",
        "--schema",
        "clinic.toml",
        "--method",
        "dgd",
        "--rounds",
        2,
        "--epsilon",
        50,
    )
    assert run("train", *made, "--save", "run.npz").code == 0
    words = ("predict", "run.npz", "rows.csv")
    assert encoded(words, "cp1252", monkeypatch) == (2, "")
    for encoding in ("utf-8", "cp1250", "ascii"):
        code, text = encoded(words, encoding, monkeypatch)
        assert code == 0 and "Łódź" in text
    assert encoded((*words, "--out", "out.csv"), "cp1252", monkeypatch)[0] == 0
    assert "Łódź" in Path("out.csv").read_text(encoding="utf-8")


# Pipes and closed files


@pytest.mark.parametrize("name", ["train", "evaluate"])
def test_a_reader_that_leaves_loses_nothing(name: str, paid: Path, run: Call) -> None:
    words = PAID[name]
    done = shell(words, "| (exec 0<&-; sleep 0); exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stdout) == (CLOSED, "")
    assert "Traceback" not in done.stderr and str(stored(words)) in done.stderr
    before = spent(run, words)
    assert before[0] > 0.0
    again = run(*words)
    assert again.code == 0 and again.out and spent(run, words) == before


@pytest.mark.parametrize(
    ("tail", "code"), [(">&- 2>&-", 0), (">/dev/full", 1), (">/dev/full 2>/dev/full", 1)]
)
def test_a_closed_or_full_output_loses_nothing(tail: str, code: int, paid: Path) -> None:
    done = shell(ROUNDS, tail)
    assert done.returncode == code and "Traceback" not in done.stderr
    assert (str(stored(ROUNDS)) in done.stderr) == (tail == ">/dev/full")


# Signals


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        *((name, signal.SIGKILL) for name in PAID),
        ("train", signal.SIGTERM),
        ("evaluate", signal.SIGINT),
    ],
)
def test_a_signal_after_the_charge_costs_nothing_more(
    name: str, sent: signal.Signals, paid: Path, run: Call
) -> None:
    """Before the result is stored, the ledger has all of it; afterwards it is in its file."""
    words = PAID[name]
    stop = (
        "import os; from sottovoce.cli import results; results.store_before_showing = lambda *a, **k: "
        f"os.kill(os.getpid(), {sent})"
    )
    done = shell(words, code=stop)
    assert done.returncode != 0 and not results.results_folder(ledger_of(words)).exists()
    before = spent(run, words)
    assert before[0] > 0.0
    again = run(*words)
    assert again.code == 0 and stored(words).exists() and spent(run, words) == before


def test_a_signal_after_the_result_was_stored_leaves_it(paid: Path, run: Call) -> None:
    stop = (
        "import os, sottovoce.cli.screen as s; s.Console.print = lambda *a, **k: "
        "os.kill(os.getpid(), 9)"
    )
    done = shell(ROUNDS, code=stop)
    assert done.returncode != 0 and done.stdout == ""
    assert stored(ROUNDS).exists()
    assert (
        str(stored(ROUNDS))
        in run("ledger", "show", "rows.ledger", "--json").json["runs"][0]["results"]
    )


def test_a_run_that_is_killed_between_rounds_goes_on_from_its_ledger(paid: Path, run: Call) -> None:
    stop = (
        "import os; from sottovoce.runs.row_guard import RowGuard; ask, n = RowGuard._charge_and_draw, []\n"
        "def killed(self, *query):\n"
        "    n.append(1)\n"
        "    if len(n) == 3: os.kill(os.getpid(), 9)\n"
        "    return ask(self, *query)\n"
        "RowGuard._charge_and_draw = killed"
    )
    assert shell(ROUNDS, code=stop).returncode != 0
    assert spent(run, ROUNDS)[0] > 0.0
    assert run(*ROUNDS).code == 0
    first = stored(ROUNDS).read_bytes()
    total = spent(run, ROUNDS)
    assert (
        run(*ROUNDS).code == 0
        and spent(run, ROUNDS) == total
        and stored(ROUNDS).read_bytes() == first
    )


# Files that cannot be written


def test_what_cannot_be_stored_is_refused_before_the_charge(
    paid: Path, refused: Callable[..., str], run: Call
) -> None:
    assert "save" in refused(*ROUNDS, "--save", "nowhere/run.npz")
    assert "report" in refused(*ROUNDS, "--report", "nowhere/page.html")
    results.results_folder(Path("rows.ledger")).write_text("in the way")
    assert "ledger" in refused(*ROUNDS)
    assert spent(run, ROUNDS) == [0.0, 0.0, 0.0]
    assert run(*ROUNDS, "--save", "run2.npz").code == 0


@pytest.mark.parametrize("name", ["train", "inference", "evaluate"])
def test_a_file_that_fails_after_the_charge_does_not_hide_the_result(
    name: str, paid: Path, run: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sottovoce.errors import NotWritten
    from sottovoce.util import files

    write = files.write_atomically

    def full(field: str, path: Any, *more: Any, **options: Any) -> None:
        if field in ("report", "result"):
            raise NotWritten(
                f"{field}={str(path)!r}: cannot be written: No space left on device; free some "
                "space"
            )
        write(field, path, *more, **options)

    monkeypatch.setattr(files, "write_atomically", full)
    ran = run(*PAID[name], "--report", "page.html")
    # and not: nothing was spent
    assert ran.code == 1 and "No space left" in ran.err and ran.err.count("\n") == 1
    assert "epsilon" in ran.out
    kept = re.search(r"kept in (\S+)", ran.err)
    assert kept is not None and Path(kept[1]).exists()


@pytest.mark.parametrize("words", [(), ("--save", "mine.npz")])
@pytest.mark.parametrize("fault", ["MemoryError", "KeyboardInterrupt", "ValueError"])
def test_a_run_is_stored_before_it_is_scored(
    fault: str, words: tuple[str, ...], paid: Path, run: Call
) -> None:
    """Scores read rows again and fit further models: they may fail, or take longer than anybody
    waits.
    """
    stop = (
        "from sottovoce.runs import training\ndef fails(*given):\n    raise "
        f"{fault}\ntraining.least_nonprivate_error = fails"
    )
    done = shell((*ROUNDS, *words), code=stop)
    assert done.returncode not in (0, 2)
    path = Path(words[1]) if words else stored(ROUNDS)
    assert SavedModel.load(path).model.size and spent(run, ROUNDS)[0] > 0.0
    if fault != "ValueError":  # which nobody foresees, so it has a traceback
        assert str(path) in done.stderr and "Traceback" not in done.stderr


def test_a_result_that_another_ledger_paid_for_stays(paid: Path, run: Call) -> None:
    words = (*ROUNDS, "--run", "first")
    assert run(*words).code == 0
    first = stored(words).read_bytes()
    Path("rows.ledger").rename("old.ledger")
    assert (
        run("ledger", "init", "rows.ledger", "--epsilon", 3, "--delta", 1e-4, "--nodes", 3).code
        == 0
    )
    assert run(*words).code == 0
    found = {
        path.name: path.read_bytes()
        for path in results.results_folder(Path("rows.ledger")).iterdir()
    }
    assert len(found) == 2 and found.pop("first.npz") != first
    assert list(found.values()) == [first]
    assert (
        run(*words).code == 0
        and len(list(results.results_folder(Path("rows.ledger")).iterdir())) == 2
    )


@pytest.mark.parametrize("kind", ["folder", "link to nothing", "pipe"])
def test_what_stands_in_the_place_of_a_result_loses_nothing(
    kind: str, paid: Path, run: Call
) -> None:
    words = (*ROUNDS, "--run", "first")
    folder = results.results_folder(Path("rows.ledger"))
    folder.mkdir()
    place = folder / "first.npz"
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("elsewhere.npz")
    ran = run(*words)
    if kind == "folder":
        kept = re.search(r"kept in (\S+)", ran.err)
        assert ran.code == 1 and kept is not None
        place = Path(kept[1])
    else:
        assert ran.code == 0
    assert SavedModel.load(place).model.size


def test_a_checkpoint_that_fails_after_a_round_does_not_say_that_nothing_was_spent(
    paid: Path, run: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sottovoce.errors import NotWritten
    from sottovoce.util import files

    write = files.write_atomically

    def full(field: str, path: Any, *more: Any, **options: Any) -> None:
        if field == "checkpoint":
            raise NotWritten(
                "checkpoint: cannot be written: No space left on device; free some space"
            )
        write(field, path, *more, **options)

    monkeypatch.setattr(files, "write_atomically", full)
    assert run(*ROUNDS, "--checkpoint", "run.checkpoint").code == 1
    assert spent(run, ROUNDS)[0] > 0.0


def test_a_surveyed_schema_that_cannot_be_written_is_shown(
    paid: Path, run: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sottovoce.errors import NotWritten
    from sottovoce.util import files

    write = files.write_atomically

    def full(field: str, path: Any, *more: Any, **options: Any) -> None:
        if field == "out":
            raise NotWritten("out: cannot be written: No space left on device; free some space")
        write(field, path, *more, **options)

    monkeypatch.setattr(files, "write_atomically", full)
    ran = run(
        "schema",
        "survey",
        "clinic.toml",
        "rows.csv",
        "--epsilon",
        2,
        "--system-noise",
        "--out",
        "new.toml",
    )
    assert ran.code == 1 and "[columns.dose]" in ran.out and "wrote" not in ran.out
    told = run(*PAID["survey"], "--out", "new.toml", "--json")
    assert told.code == 1 and told.json["out"] is None and "[columns.dose]" in told.json["toml"]
    (stored,) = results.results_folder(Path("sites.ledger")).glob("*.json")
    assert json.loads(stored.read_text())["out"] is None


def test_with_save_the_result_is_there_and_nowhere_else(paid: Path, run: Call) -> None:
    ran = run(*ROUNDS, "--save", "mine.npz")
    assert (
        ran.code == 0
        and Path("mine.npz").exists()
        and not results.results_folder(Path("rows.ledger")).exists()
    )


@pytest.mark.parametrize("name", ["plain-1", "../out", "a b", ".hidden", "ü", "x" * 200, "a/b"])
def test_a_result_stays_in_its_folder_whatever_the_run_is_called(name: str, tmp_path: Path) -> None:
    ledger = tmp_path / "l"
    path = results.result_path(ledger, name, "json")
    assert path.resolve().parent == results.results_folder(ledger).resolve()
    assert (path.stem == name) == (name == "plain-1")
    assert results.result_path(ledger, name + "2", "json") != path


# Widths


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+\.\d+", text))


@pytest.mark.parametrize("columns", [1, 40, 60])
@pytest.mark.parametrize(
    "words",
    [
        ("train", "--inference", "--epsilon", 50),
        ("train", "--method", "dgd", "--rounds", 2, "--replicates", 2),
        ("train", "--method", "dgd", "--rounds", 2, "--evaluation", 5, "--set", "by=colour"),
    ],
)
def test_no_number_is_cut_on_a_narrow_screen(
    words: tuple[Any, ...], columns: int, clinic: Clinic, run: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("--data", "rows.csv", "--schema", "clinic.toml")
    monkeypatch.setenv("COLUMNS", "400")
    whole = run(*words[:1], *where, *words[1:])
    monkeypatch.setenv("COLUMNS", str(columns))
    told = run(*words[:1], *where, *words[1:])
    assert told.code == whole.code == 0
    assert not re.search(r"[\d.]…", told.out)
    timed = set(re.findall(r"([\d.]+) s of", whole.out))
    assert not numbers(whole.out) - numbers(told.out) - timed


class TestListing:
    ROWS = (("a rather long name of a column", "12,345", "-0.1234 to 17.5"), ("b", "6", "1.0"))

    def shown(self, width: int, table: Any) -> str:
        file = io.StringIO()
        Console(file=file, width=max(width, NARROWEST)).print(table)
        return file.getvalue()

    def table(self) -> Listing:
        made = make_listing("<column", ">rows", ">95% interval\nof it")
        for row in self.ROWS:
            made.add_row(*row)
        return made

    def test_a_wide_screen_shows_a_row_a_line(self) -> None:
        lines = self.shown(100, self.table()).splitlines()
        assert len(lines) == 4 and lines[2].split("  ")[0] == self.ROWS[0][0]

    @pytest.mark.parametrize("width", [24, 30, 36, 40, 50])
    def test_no_entry_is_cut_on_a_narrow_screen(self, width: int) -> None:
        text = self.shown(width, self.table())
        for row in self.ROWS:
            assert all(number in " ".join(text.split()) for number in row[1:])
        assert max(map(len, text.splitlines())) <= width

    def test_a_narrow_screen_shows_each_entry_after_its_head(self) -> None:
        heads = ("column", "rows", "95% interval of it")
        expected = [
            f"{head}: {entry}" for row in self.ROWS for head, entry in zip(heads, row, strict=True)
        ]
        assert self.shown(20, self.table()).split() == " ".join(expected).split()

    def test_a_listing_without_rows_prints_at_most_its_heads(self) -> None:
        assert self.shown(20, make_listing("<a", ">b")).strip() in ("", "a  b")
        assert self.shown(80, make_listing()) in ("", "\n")

    def test_marks_and_wide_characters_count_as_they_are_shown(self) -> None:
        made = make_listing("<column", ">value")
        made.add_row("名前" * 10, "[dim]0.1234[/]")
        text = self.shown(24, made)
        assert "0.1234" in text and "[dim]" not in text

    def test_a_plain_console_of_rich_prints_a_listing(self) -> None:
        file = io.StringIO()
        RichConsole(file=file, width=20).print(self.table())
        assert "-0.1234 to 17.5" in file.getvalue()


# Many sites


def test_thousands_of_sites_are_summed_up(clinic: Clinic, run: Call) -> None:
    lines = Path("rows.csv").read_text().splitlines()
    sites = [f"{line},s{k}" for k, line in enumerate(lines[1:])]
    Path("many.csv").write_text("\n".join([f"{lines[0]},place", *sites]) + "\n")
    text = Path("clinic.toml").read_text()
    Path("many.toml").write_text(
        text.replace('site = "hospital"', 'site = "place"\nignore = ["hospital"]')
    )
    where = ("--data", "many.csv", "--schema", "many.toml")
    ran = run("train", *where, "--method", "momentum", "--rounds", 2)
    assert ran.code == 0 and ran.out.count("\n") < 60
    (note,) = re.findall(r"one class only: ([^.]*) in all", " ".join(ran.out.split()))
    first, *others = note.split(", ", 2)
    assert first == "0" and others[0] == "1" and re.search(r" more, [\d,]+$", note)


def test_sums_over_all_sites_need_no_edges(run: Call) -> None:
    from sottovoce.errors import GraphError
    from sottovoce.network.graphs import Everybody, make_graph

    assert (
        run(
            "train",
            "--data",
            "synthetic:n=4000,d=3",
            "--nodes",
            2000,
            "--trust",
            "sum",
            "--method",
            "momentum",
            "--rounds",
            2,
        ).code
        == 0
    )
    assert (
        run(
            "train",
            "--data",
            "synthetic:n=4000,d=3",
            "--nodes",
            2000,
            "--graph",
            "complete",
            "--method",
            "dgd",
            "--rounds",
            2,
        ).code
        == 2
    )
    few, many = make_graph("complete", 5, listed=False), make_graph("complete", 2000, listed=False)
    assert len(few.edges) == 10 and isinstance(many, Everybody) and (many.degree == 1999).all()
    with pytest.raises(GraphError):
        _ = many.edges


@pytest.mark.parametrize(
    ("given", "ignored"),
    [
        (("a,b",), ["a", "b"]),
        (("a", "b"), ["a", "b"]),
        (("a, b ,c",), ["a", "b", "c"]),
        (("x,y",), ["x,y"]),
        (("a, x,y,b",), ["a", "x,y", "b"]),
        ((), []),
    ],
)
def test_columns_are_ignored_one_by_one_or_together(
    given: tuple[str, ...], ignored: list[str], run: Call, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text('a,b,c,"x,y",z\n1,2,3,4,5\n')
    ran = run("schema", "init", "t.csv", *(word for name in given for word in ("--ignore", name)))
    assert ran.code == 0
    assert f"ignore = {json.dumps(ignored)}" in ran.out


@pytest.mark.parametrize("given", ["a,nope", "nope", ",", "a;b"])
def test_ignored_columns_that_do_not_exist_are_named(given: str, run: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,c\n1,2,3\n")
    ran = run("schema", "init", "t.csv", "--ignore", given)
    assert ran.code == 2 and "ignore" in ran.err
