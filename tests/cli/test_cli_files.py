"""Full disks and strange places: nothing is trained that could not be kept, and what is trained
is kept.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import warm
from command_line import SMALL, Call, Clinic, ErrorLine, parse_error_line

from sottovoce.data import builtin_schema
from sottovoce.deploy.keys import SigningKey
from sottovoce.runs.simulate import Result
from sottovoce.runs.training import train
from sottovoce.util import files

TRAIN = ("train", *SMALL, "--epsilon", 5)


def limited(size: int, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line in a process of which no file may be larger than `size` bytes."""
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
        "from sottovoce.cli import main; main()"
    )
    return warm.run(["-c", code, *arguments], cwd=cwd, timeout=120)


def one_line(text: str) -> str:
    assert text.startswith("error: ") and text.count("\n") == 1 and text[:-1].isprintable(), text
    return text


def unwritten(text: str) -> tuple[str, str, str]:
    """The option whose file cannot be written, the file, and the system's reason."""
    error: ErrorLine = parse_error_line(one_line(text))
    rule, _, reason = error.rule.partition(": ")
    assert rule == "cannot be written"
    return error.field, error.value, reason


@pytest.mark.parametrize("option", ["--save", "--checkpoint"])
def test_a_disk_that_is_full_is_found_before_training(tmp_path: Path, option: str) -> None:
    done = limited(1000, *TRAIN, option, "run.npz", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert unwritten(done.stderr) == (option[2:], "'run.npz'", "File too large")
    assert not any(tmp_path.iterdir())


def test_a_model_whose_disk_fills_up_while_it_is_trained_is_kept_and_printed(
    run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of --save vanishes during training, as a disk may; the temporary folder takes
    the run.
    """
    place, other = tmp_path / "gone", tmp_path / "temporary"
    place.mkdir()
    other.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(other))
    trained: dict[str, Any] = {}

    def train_on(*arguments: Any, **named: Any) -> Any:
        place.rmdir()
        trained["report"] = train(*arguments, **named)
        return trained["report"]

    monkeypatch.setattr(import_module("sottovoce.cli.train"), "train_on", train_on)
    ran = run(*TRAIN, "--save", place / "run.npz", "--json")
    # 2 would say that nothing was spent
    assert ran.code == 1 and ran.json["privacy"]["epsilon"] <= 5
    message = one_line(ran.err)
    assert unwritten(message) == ("save", repr(str(place / "run.npz")), os.strerror(errno.ENOENT))
    found = re.search(r"the run is kept in (\S+)\n", message)
    assert found is not None and Path(found[1]).parent.parent == other
    assert (Result.load(found[1]).models == trained["report"].result.models).all()


def test_a_model_that_no_folder_takes_is_printed_all_the_same(
    run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    check = files.check_writable_path

    def fill(*arguments: Any, **named: Any) -> None:
        check(*arguments, **named)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))

    monkeypatch.setattr(files, "check_writable_path", fill)
    try:
        ran = run(*TRAIN, "--save", "run.npz", "--json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ran.code == 1 and ran.json["method"] == "mr_admm"
    assert "File too large" in one_line(ran.err)
    assert "and nowhere else" in ran.err


def test_a_checkpoint_whose_disk_fills_up_ends_the_run_in_one_line(tmp_path: Path) -> None:
    done = limited(
        files.PROBE + 1, *TRAIN, "--replicates", 2000, "--checkpoint", "half.npz", cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert unwritten(done.stderr) == ("checkpoint", "'half.npz'", "File too large")


def test_a_plan_is_not_written_to_a_full_disk(tmp_path: Path) -> None:
    for name in ("north", "east"):
        member = {"name": name, "rows": 500, "key": SigningKey.make().public}
        (tmp_path / f"{name}.public.json").write_text(json.dumps(member))
    (tmp_path / "s.toml").write_text(
        'label = { column = "y", positive = "1" }\ncolumns.a = { kind = "number", lo = 0, hi = 1 '
        "}\n"
    )
    sites = ("--site", "north.public.json", "--site", "east.public.json")
    done = limited(
        1000,
        "plan",
        "--write",
        "plan.json",
        "--run",
        "trial",
        "--schema",
        "s.toml",
        *sites,
        "--epsilon",
        50,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert unwritten(done.stderr) == ("write", "'plan.json'", "File too large")
    assert not (tmp_path / "plan.json").exists()


def test_a_ledger_is_made_and_exported_whole_or_not_at_all(ok: Call, tmp_path: Path) -> None:
    done = limited(1000, "ledger", "init", "a.ledger", "--epsilon", 3, cwd=tmp_path)
    assert done.returncode == 2
    assert unwritten(done.stderr) == ("ledger", "'a.ledger'", "disk I/O error")
    assert not any(tmp_path.iterdir())
    ok("ledger", "init", "a.ledger", "--epsilon", 3)
    done = limited(100, "ledger", "export", "a.ledger", "out.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert unwritten(done.stderr) == ("out", "'out.jsonl'", "File too large")
    assert [file.name for file in tmp_path.iterdir()] == ["a.ledger"]


def test_studies_and_reports_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = limited(
        1000, "study", "003-fig3.1", "--quick", "--jobs", "1", "--out", "o", cwd=tmp_path
    )
    assert done.returncode == 2 and "File too large" in one_line(done.stderr)
    done = limited(1000, "audit", "output", "--quick", "--report", "r.html", cwd=tmp_path)
    assert done.returncode == 2
    assert unwritten(done.stderr) == ("report", "'r.html'", "File too large")
    assert not any(file.is_file() for file in tmp_path.rglob("*"))


def test_predictions_are_written_whole_or_not_at_all(
    ok: Call, clinic: Clinic, tmp_path: Path
) -> None:
    ok(*clinic.train, "--save", "run.npz")
    (tmp_path / "out.csv").write_text("old")
    done = limited(1000, "predict", "run.npz", clinic.csv, "--out", "out.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert unwritten(done.stderr) == ("out", "'out.csv'", "File too large")
    assert (tmp_path / "out.csv").read_text() == "old"


def test_standard_output_that_takes_nothing_is_one_line(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no device that is always full")
    with open("/dev/full", "w") as full:
        ends = [
            subprocess.run(
                [sys.executable, "-m", "sottovoce", "plan", "--method", "dvp"],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                cwd=tmp_path,
                timeout=120,
            )
        ]
    code = (
        'import os; os.dup2(os.open("/dev/full", os.O_WRONLY), 1)\n'
        "from sottovoce.cli import main; main()"
    )
    for arguments in (("data", "--json"), (*TRAIN, "--save", "run.npz")):
        ends.append(warm.run(["-c", code, *arguments], cwd=tmp_path, timeout=120))
    for done in ends:
        assert done.returncode == 1 and "No space left" in one_line(done.stderr)
    assert Result.load(tmp_path / "run.npz").rounds == 6  # it was saved before anything was printed


def test_save_refuses_a_place_that_is_no_regular_file(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for option in ("--save", "--checkpoint"):
        for place, rule in (
            ("/dev/full", "not a regular file"),
            ("pipe", "not a regular file"),
            ("x" * 300, "File name too long"),
        ):
            assert rule in refused(*TRAIN, option, place)


def is_an_input(text: str, field: str) -> bool:
    """True if an error refuses the file of an option because the command reads it."""
    error = parse_error_line(text)
    return error.field == field and "also an input" in error.rule


def test_no_ledger_and_no_input_is_written_over(
    ok: Call, refused: Callable[..., str], clinic: Clinic
) -> None:
    ok("ledger", "init", "a.ledger", "--epsilon", 30, "--nodes", 5)
    Path("name").symlink_to("a.ledger")
    for option in ("--save", "--checkpoint"):
        for place in ("a.ledger", "name"):
            assert "holds a ledger" in refused(*TRAIN, option, place)
            assert is_an_input(refused(*TRAIN, "--ledger", "a.ledger", option, place), option[2:])
        assert is_an_input(refused(*clinic.train, option, clinic.csv), option[2:])
    assert is_an_input(refused("ledger", "export", "a.ledger", "a.ledger"), "out")
    ok("ledger", "init", "b.ledger", "--epsilon", 3)
    assert "holds a ledger" in refused("ledger", "export", "a.ledger", "b.ledger")
    ok(*clinic.train, "--save", "run.npz")
    for place in (clinic.csv, "run.npz"):
        assert is_an_input(refused("predict", "run.npz", clinic.csv, "--out", place), "out")
    ok("ledger", "verify", "a.ledger")


# Names in files do not steer a terminal

STEERS = "\x1b[31mred\x1b]0;taken\x07\u202e"
SCHEMA = """\
name = "{name}"
label = {{ column = "y", positive = "1" }}
note = "{name}"
site = "s"
[columns."{name}"]
kind = "number"
lo = 0
hi = 10
"""


def test_names_in_files_are_shown_and_not_obeyed(run: Call, tmp_path: Path) -> None:
    name = "[red]x[/red] [/] " + STEERS
    toml = name.encode("unicode_escape").decode("ascii").replace("\\x", "\\u00")
    (tmp_path / "s.toml").write_text(SCHEMA.format(name=toml))
    columns = [
        [k % 10 for k in range(200)],
        [k % 2 for k in range(200)],
        [f"a{k % 2}" for k in range(200)],
    ]
    # Of CSV text such a header is refused; Parquet keeps any name.
    pq.write_table(pa.table(columns, names=[name, "y", "s"]), tmp_path / "t.parquet")
    pq.write_table(pa.table(columns, names=[name + name, "y", "s"]), tmp_path / "u.parquet")
    knobs = ("--rho", 0.1, "--eta", 0.1, "--epsilon", 50, "--nodes", 2)
    good = ("train", "--data", "t.parquet", "--schema", "s.toml", *knobs)
    said = [
        run(*good, "--save", "run.npz"),
        run(*good, "--json"),
        run("predict", "run.npz", "t.parquet"),
    ]
    assert [ran.code for ran in said] == [0, 0, 0], said
    said += [
        run("train", "--data", "u.parquet", "--schema", "s.toml"),
        run("predict", "run.npz", "u.parquet"),
        run(*good, "--partition", f"column:{name}{name}"),
        run(*good, "--partition", f"site:{STEERS}"),
        run("train", "--data", f"{STEERS}.csv", "--schema", "s.toml"),
        run("plan", "--graph", STEERS),
        run("study", f"{STEERS}.toml"),
        run("predict", STEERS, "t.parquet"),
        run("ledger", "show", STEERS),
    ]
    assert [ran.code for ran in said[3:]] == [2] * 9
    for ran in said:
        for line in (ran.out + ran.err).splitlines():
            assert line.isprintable(), ran
    assert any("\\x1b" in ran.err and "[red]x[/red] [/]" in ran.err for ran in said)


def test_labels_of_a_strangers_run_are_shown_and_not_obeyed(
    run: Call, ok: Call, clinic: Clinic, tmp_path: Path
) -> None:
    ok(*clinic.train, "--save", "run.npz")
    whole = files.read_packed_arrays("run.npz")
    meta = files.parse_bounded_json(str(whole["meta"]), infinite=True)
    meta["extra"]["schema"]["label"]["positive"] = STEERS
    files.write_atomically(
        "run", "run.npz", files.pack_arrays(models=whole["models"], meta=json.dumps(meta))
    )
    for how in ((), ("--json",)):
        ran = run("predict", "run.npz", clinic.csv, *how)
        assert ran.code == 0 and "red" in ran.out
        assert all(line.isprintable() for line in ran.out.splitlines())


def test_every_command_prints_through_the_one_screen() -> None:
    folder = Path(files.__file__).parents[1] / "cli"
    modules = sorted(folder.glob("*.py"))
    assert len(modules) > 15
    for module in modules:
        if module.name != "screen.py":
            text = module.read_text(encoding="utf-8")
            assert "from rich.console" not in text and "from rich.markup" not in text, module.name


def test_the_shipped_schemas_fit_the_bounds() -> None:
    for name in ("adult", "mnist37", "covertype", "census-us", "census-brazil"):
        assert builtin_schema(name).n_features > 0
