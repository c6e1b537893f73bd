"""Raw results: means over replicates, checksums that follow from numbers alone, and a second run
that is compared.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from sottovoce_papers.studies import made, page, spec, verdicts
from sottovoce_papers.studies.run import StudyRun, run

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import results  # noqa: E402  # a script, beside the one that it imports

sys.path.remove(str(ROOT / "bench"))

OWN = """
title = "Noise and loss"
paper = "002, Figure 9"
kind = "training.run"
replicates = 3
[fixed]
data = "synthetic:n=200,d=3"
nodes = 2
rounds = 2
every = 1
method = "dvp"
[grid]
epsilon = [1.0, 50.0]
[quick]
replicates = 2
[[claims]]
says = "The loss is positive."
test = "above"
value = "loss"
by = ["epsilon"]
filter = { round = "last" }
proved = {}
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> StudyRun:
    """A small study with a name, in a folder as the command writes it."""
    return written(tmp_path_factory.mktemp("first"))


def written(folder: Path, *, seed: int = 0) -> StudyRun:
    study = replace(spec.parse(OWN, "own"), seed=seed)
    found = run(study, folder, jobs=1)
    claims = verdicts.judged(study, found.rows)
    (found.folder / "verdicts.json").write_text(page.verdicts_json(found, claims), encoding="utf-8")
    return found


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small study is the only one of the package."""
    study = spec.parse(OWN, "own")
    monkeypatch.setattr(spec, "names", lambda: ["own"])
    monkeypatch.setattr(spec, "load", lambda name: study)


def table_of(done: StudyRun) -> str:
    return (done.folder / "table.csv").read_text(encoding="utf-8")


def test_means_have_a_line_a_setting_with_the_spread_over_replicates(done: StudyRun) -> None:
    rows = list(csv.DictReader(io.StringIO(table_of(done))))
    lines = list(csv.DictReader(io.StringIO(results.means(done.study, table_of(done)))))
    assert [(line["epsilon"], line["round"]) for line in lines] == [
        ("1.0", "1"),
        ("1.0", "2"),
        ("50.0", "1"),
        ("50.0", "2"),
    ]
    losses = [float(row["loss"]) for row in rows if (row["epsilon"], row["round"]) == ("1.0", "2")]
    mean = sum(losses) / 3
    spread = (sum((loss - mean) ** 2 for loss in losses) / 2) ** 0.5
    assert lines[1]["replicates"] == "3" and "replicate" not in lines[1]
    assert float(lines[1]["loss"]) == pytest.approx(mean, rel=1e-9)
    assert float(lines[1]["loss_sd"]) == pytest.approx(spread, rel=1e-3)


def test_results_are_those_of_the_tables_and_no_checksum_knows_when_or_where(
    done: StudyRun, alone: None, tmp_path: Path
) -> None:
    """A run in another folder, said to be of another day, machine and speed, has the same files
    but for ``made``.
    """
    assert results.write(done.folder.parent, tmp_path / "one") == []
    again = written(tmp_path / "second")
    said = json.loads((again.folder / "verdicts.json").read_text(encoding="utf-8"))
    said["made"] |= {"date": "1999-12-31", "processor": "an abacus"}
    (again.folder / "verdicts.json").write_text(
        json.dumps(said | {"seconds": 99.0}), encoding="utf-8"
    )
    results.write(again.folder.parent, tmp_path / "two")
    one, two = (
        {str(p.relative_to(f)): p.read_bytes() for p in f.rglob("*.*")}
        for f in (tmp_path / "one", tmp_path / "two")
    )
    assert {name for name in one if one[name] != two[name]} == {"verdicts.json"} and set(
        one
    ) == set(two)
    kept = results.read(tmp_path / "one")
    assert kept == results.read(tmp_path / "two")
    assert b"abacus" in two["verdicts.json"] and str(tmp_path).encode() not in two["verdicts.json"]
    (sum_of_table,) = one["TABLES.sha256"].decode().splitlines()
    assert (
        sum_of_table
        == f"{hashlib.sha256((done.folder / 'table.csv').read_bytes()).hexdigest()}  own/table.csv"
    )
    listed = dict(
        reversed(line.split("  "))
        for line in (tmp_path / "one" / "SHA256SUMS").read_text().splitlines()
    )
    assert listed == {name: hashlib.sha256(whole).hexdigest() for name, whole in one.items()}
    assert [claim["proved"]["settings"][0]["word"] for claim in kept["own"]["claims"]] == ["holds"]


def test_a_study_that_ran_quickly_or_in_part_is_left_out(alone: None, tmp_path: Path) -> None:
    study = spec.parse(OWN, "own")
    found = run(study, tmp_path, jobs=1, quick=True)
    claims = verdicts.judged(found.study, found.rows)
    (found.folder / "verdicts.json").write_text(page.verdicts_json(found, claims), encoding="utf-8")
    assert [line.partition(":")[0] for line in results.write(tmp_path, tmp_path / "out")] == ["own"]
    assert results.read(tmp_path / "out") == {}


def test_a_second_run_is_compared(
    done: StudyRun, alone: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results.write(done.folder.parent, tmp_path)
    assert results.check(["own"], tmp_path, jobs=1) == 0
    assert "bit by bit" in capsys.readouterr().out
    assert results.check(["another"], tmp_path, jobs=1) == 1


def changed(done: StudyRun, factor: float) -> tuple[bool, str]:
    """The comparison with a table whose first loss is another."""
    table = table_of(done)
    rows = list(csv.DictReader(io.StringIO(table)))
    other = [dict(rows[0], loss=repr(float(rows[0]["loss"]) * factor)), *rows[1:]]
    claims = [one.plain() for one in verdicts.judged(done.study, done.rows)]
    kept = results.of_study(done.study, table, claims)
    found: Any = results.as_csv(list(rows[0]), other)
    return results.compare(kept, results.means(done.study, table), done.study, found, claims)


def test_difference_in_the_last_digit_passes_with_a_note(done: StudyRun) -> None:
    same, told = changed(done, 1 + 1e-12)
    assert same and "to 10 digits" in told
    same, told = changed(done, 1 + 1e-8)
    assert same and told.count("loss") and "line 2" in told
    same, told = changed(done, 1.01)
    assert not same and "loss" in told and "in line 2" in told


def test_another_verdict_fails_a_second_run_whose_table_is_the_same(done: StudyRun) -> None:
    claims = [one.plain() for one in verdicts.judged(done.study, done.rows)]
    other = [dict(claims[0], proved=dict(claims[0]["proved"], verdict=verdicts.NOT))]
    table = table_of(done)
    kept = results.of_study(done.study, table, claims)
    same, told = results.compare(kept, results.means(done.study, table), done.study, table, other)
    assert not same and f"{verdicts.REPRODUCED} is kept, {verdicts.NOT} came out" in told


def test_kept_results_are_whole() -> None:
    """Files of the repository are those of SHA256SUMS, and every study's means are those of
    verdicts.json.
    """
    listed = dict(
        reversed(line.split("  "))
        for line in (results_kept() / "SHA256SUMS").read_text().splitlines()
    )
    there = {
        str(p.relative_to(results_kept())): p for p in results_kept().rglob("*") if p.is_file()
    }
    assert set(there) - {"SHA256SUMS"} == set(listed)
    for name, known in listed.items():
        assert hashlib.sha256(there[name].read_bytes()).hexdigest() == known, name
    for name, one in results.read(results_kept()).items():
        means = gzip.decompress(there[f"means/{name}.csv.gz"].read_bytes())
        assert hashlib.sha256(means).hexdigest() == one["means_sha256"]
        assert {claim["claim"] for claim in one["claims"]} <= {
            claim.says for claim in spec.load(name).claims
        }
    assert sum(path.stat().st_size for path in there.values()) < 4 * 2**20


def results_kept() -> Path:
    return ROOT / results.KEPT


def test_a_page_says_first_what_reproduced_means_and_last_with_what_it_was_made(
    done: StudyRun,
) -> None:
    text = page.page(done, [], verdicts.judged(done.study, done.rows), "sottovoce study own.toml")
    body = text.partition("</h1>\n")[2]
    assert body.startswith(f"<p>{escape(verdicts.ORDERED)}</p>")
    assert made.sentence(made.here()) in text
    ours = replace(done, study=replace(done.study, paper=""))
    assert escape('"Reproduced" says') in text
    assert escape('"Reproduced" says') not in page.page(
        ours, [], verdicts.judged(ours.study, ours.rows), "x"
    )


def test_what_a_study_was_made_with_names_kinds_and_versions_only() -> None:
    told = made.here()
    assert set(told) == {
        "sottovoce",
        "commit",
        "date",
        "processor",
        "cores",
        "system",
        "python",
        "libraries",
        "linear_algebra",
    }
    assert told["linear_algebra"] and "/" not in json.dumps(told).replace("</", "")


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_is_that_of_the_clone_and_of_no_other_repository(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        told = subprocess.run(
            ["git", *own, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return told.stdout.strip()

    package, installed = tmp_path / "src" / "pack", tmp_path / "env" / "pack"
    for folder in (package, installed):
        folder.mkdir(parents=True)
        (folder / "a.py").write_text("a = 1\n")
    assert made.commit(package) is None
    git("init", "--quiet")
    git("add", "-A")
    git("commit", "--quiet", "-m", "first")
    assert made.commit(package) == git("rev-parse", "HEAD") and made.commit(installed) is None
    (package / "a.py").write_text("a = 2\n")
    assert made.commit(package) == git("rev-parse", "HEAD") + "+"
