"""Studies: what their files may say, cells that survive a kill, tables, claims under test,
figures and pages.
"""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import fields, replace

import numpy as np
import pytest
from click.testing import CliRunner

from sottovoce.errors import InvalidInput
from sottovoce_papers.commands.study import study as command
from sottovoce_papers.studies import figures, kinds, page, spec
from sottovoce_papers.studies.run import changed, digest, run
from sottovoce_papers.studies.spec import Figure, PaperPoints, Reading, Sentence, Study, parse
from sottovoce_papers.studies.verdicts import UNSEEN, judged

CLAIMED = "A larger total gives a lower loss."
SMALL = """
title = "Noise & loss"
about = "A <small> study."
paper = "002, Figure 9"
kind = "training.run"
replicates = 2
differs = ["It is small."]

[fixed]
data = "synthetic:n=300,d=4"
nodes = 3
rounds = 3
every = 1

[grid]
epsilon = [1.0, 50.0]

[[cells]]
method = "dvp"

[[cells]]
method = "prox_admm"

[[cells]]
method = "admm"
without = ["epsilon"]

[quick]
replicates = 1
fixed = { rounds = 2 }
grid = { epsilon = [50.0] }

[[figures]]
name = "loss"
title = "Loss"
kind = "line"
x = "round"
y = "loss"
series = "method"
facet = "epsilon"
xlabel = "round"
ylabel = "loss (nats)"
references = [{ y = 0.6931, label = "no model" }]

[[figures]]
name = "error"
title = "Error"
kind = "bar"
x = "epsilon"
y = "test_error"
series = "method"
filter = { round = "last", method = ["dvp", "prox_admm"] }
xlabel = "epsilon (nats)"
ylabel = "share misclassified"

[[claims]]
says = "A larger total gives a lower loss."
test = "falls"
value = "loss"
x = "epsilon"
by = ["method"]
filter = { round = "last" }
proved = {}
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return run(parse(SMALL, "small"), tmp_path_factory.mktemp("studies"))


def test_a_study_is_cells_of_a_product():
    small = parse(SMALL, "small")
    assert [(p["method"], p.get("epsilon")) for p in small.points()] == [
        ("dvp", 1.0),
        ("dvp", 50.0),
        ("prox_admm", 1.0),
        ("prox_admm", 50.0),
        ("admm", None),
    ]
    quick = small.quickly()
    assert (
        quick.replicates,
        quick.fixed["rounds"],
        quick.fixed["nodes"],
        quick.grid["epsilon"],
    ) == (1, 2, 3, [50.0])
    assert len(quick.points()) == 3
    again = changed(small, 7, 3)
    assert (again.replicates, again.seed, again.quickly().replicates) == (7, 3, 7)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('kind = "training.run"', 'kind = "training.run"\ncolour = "red"', "study.colour"),
        ('title = "Noise & loss"', "", "study.title"),
        ("replicates = 2", "replicates = 0", "replicates"),
        ("epsilon = [1.0, 50.0]", "epsilon = 1.0", "grid.epsilon"),
        ('x = "round"', 'x = "round"\nxs = 1', "figures.xs"),
        ('kind = "line"', 'kind = "pie"', "figures.loss.kind"),
        ('name = "error"', 'name = "loss"', "figures"),
        ('test = "falls"', 'test = "hopes"', "claims.test"),
        ('x = "epsilon"\nby', "by", "claims.x"),
        ("proved = {}", "", "claims"),
        ("[quick]", "[quick]\nseed = 3", "quick.seed"),
        ("references = [{ y = 0.6931", "references = [{ z = 0.6931", "figures.loss.references"),
        ("[grid]", "[grid", "study"),
    ],
)
def test_unknown_keys_and_values_are_refused_in_one_line(old, new, field):
    assert old in SMALL
    with pytest.raises(InvalidInput) as caught:
        parse(SMALL.replace(old, new, 1), "small")
    assert caught.value.field == field and "\n" not in str(caught.value)


def test_unknown_kinds_parameters_and_studies_are_refused(tmp_path):
    for kind in ("training", "training._local", "nowhere.run", "training.absent", "os.system"):
        with pytest.raises(InvalidInput, match="kind"):
            kinds.find(kind)
    with pytest.raises(InvalidInput, match="study"):
        spec.load("no-such-study")
    with pytest.raises(InvalidInput, match="colour"):
        run(parse(SMALL.replace("nodes = 3", "nodes = 3\ncolour = 1"), "small"), tmp_path)
    with pytest.raises(InvalidInput, match=r"^kind='training\.deal': .*list\[Row\]"):
        kinds.find("training.deal")


@pytest.mark.parametrize("value", ["2.5", "0", "-3", "true", "'many'"])
@pytest.mark.parametrize("name", ["nodes", "limit"])
def test_a_number_of_sites_or_rows_is_whole(name, value, tmp_path):
    text = SMALL.replace("nodes = 3", f"{name} = {value}")
    with pytest.raises(InvalidInput, match=f"^{name}=.*whole number"):
        run(parse(text, "small"), tmp_path)


def test_a_parameter_that_a_kind_misses_is_named(tmp_path):
    text = SMALL.replace('kind = "training.run"', 'kind = "attacks.game"').replace(
        "method = [", "form = ["
    )
    with pytest.raises(InvalidInput) as caught:
        run(
            replace(parse(text, "small"), fixed={}, cells=({},), grid={"form": ["corrected"]}),
            tmp_path,
        )
    assert caught.value.field == "cells.method"
    assert "required" in str(caught.value)


def test_the_page_of_keys_has_every_key():
    """docs/howto/studies.md leads to the docstring."""
    for cls in (Study, Figure, Sentence, Reading, PaperPoints):
        for key in {f.name for f in fields(cls)} - (
            {"name"} if cls is Study else set()
        ):  # a study's is its file's
            assert re.search(rf"^    ({key} = |\[+{key}\]+( |$))", spec.__doc__, re.MULTILINE), key
    lines = spec.__doc__.splitlines()
    text = "\n".join(lines[lines.index("::") + 1 :])
    assert parse(textwrap.dedent(text), "every-key").figures[0].bins == 30


def test_a_kind_is_its_file_and_those_that_it_imports():
    assert (
        kinds.files("training.run")
        == {"training.py", "theorems.py", "secrets.py", "draws.py", "kept.py"}
        and kinds.files("nowhere.run") == set()
    )
    parts = {
        f"thesis{part}.py" for part in ("", "_components", "_data", "_models", "_more", "_solvers")
    }
    assert kinds.files("thesis.parties") == parts


def test_the_table_is_tidy_and_complete(done):
    with (done.folder / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * 3 * 2 == len(done.rows)
    assert {(r["method"], r["epsilon"], r["round"], r["replicate"]) for r in rows} == {
        (m, e, k, r)
        for m, e in [
            ("dvp", "1.0"),
            ("dvp", "50.0"),
            ("prox_admm", "1.0"),
            ("prox_admm", "50.0"),
            ("admm", ""),
        ]
        for k in "123"
        for r in "01"
    }
    assert "seconds" not in done.columns and not any(name.startswith("_") for name in done.columns)
    last = [r for r in rows if r["round"] == "3" and r["epsilon"]]
    assert all(
        float(r["epsilon_proved"]) == pytest.approx(float(r["epsilon"]), rel=1e-6) for r in last
    )
    assert all(r["epsilon_proved"] == "inf" for r in rows if r["method"] == "admm")
    first = [float(r["epsilon_proved"]) for r in rows if r["round"] == "1" and r["epsilon"]]
    assert all(0 < x < 50 for x in first)
    parquet = pytest.importorskip("pyarrow.parquet").read_table(done.folder / "table.parquet")
    assert parquet.column("loss").to_pylist() == [row["loss"] for row in done.rows]


def test_scores_are_those_of_a_training_run(done):
    """The last round's error is what `train` reports for the same run."""
    from sottovoce.runs.simulate import RunConfig
    from sottovoce.runs.training import TrainConfig, train

    config = RunConfig(method="dvp", epsilon=50.0, rounds=3, replicates=2, seed=0)
    report = train(TrainConfig(config, data="synthetic:n=300,d=4", nodes=3))
    mine = [r for r in done.rows if (r["method"], r.get("epsilon"), r["round"]) == ("dvp", 50.0, 3)]
    assert [r["test_error"] for r in mine] == pytest.approx(report.test_errors.tolist())
    assert any(report.result.privacy["says"] in text for text in done.privacy)


def test_same_file_and_seed_same_numbers_and_nothing_runs_twice(done, tmp_path):
    again = run(parse(SMALL, "small"), tmp_path)
    assert (again.folder / "table.csv").read_bytes() == (done.folder / "table.csv").read_bytes()
    kept = run(parse(SMALL, "small"), tmp_path)
    assert (again.reused, kept.reused, kept.cells) == (0, 5, 5)
    assert kept.cost == again.cost  # of the kept cells
    other = run(changed(parse(SMALL, "small"), None, 1), tmp_path)
    assert other.reused == 0
    assert (other.folder / "table.csv").read_bytes() != (done.folder / "table.csv").read_bytes()


def test_parallel_run_gives_the_same_table(done, tmp_path):
    told = []
    both = run(parse(SMALL, "small"), tmp_path, jobs=2, progress=lambda k, of: told.append((k, of)))
    assert (both.folder / "table.csv").read_bytes() == (done.folder / "table.csv").read_bytes()
    assert told[0] == (0, 5) and (5, 5) in told


def test_a_digest_knows_parameters_kind_and_code(monkeypatch):
    p = {"method": "dvp", "seed": 0}
    ids = {
        digest("training.run", p),
        digest("training.run", p | {"seed": 1}),
        digest("attacks.game", p),
    }
    assert len(ids) == 3
    assert digest("training.run", p | {"file": "a.csv"}) == digest(
        "training.run", p | {"file": "b.csv"}
    )
    monkeypatch.setattr("sottovoce_papers.studies.run.code", lambda kind: "another version")
    assert digest("training.run", p) not in ids


def test_interrupted_study_continues_with_the_missing_cells(tmp_path):
    """SIGKILL after some cells: they are not run again, and the table is that of an undisturbed
    run.
    """
    text = SMALL.replace("[1.0, 50.0]", str([1.0 + k for k in range(12)])).replace(
        "n=300", "n=1500"
    )
    text = text.replace("rounds = 3", "rounds = 12").replace(
        '\n[[cells]]\nmethod = "admm"\nwithout = ["epsilon"]', ""
    )
    # a figure for each of twelve totals takes longer than all cells
    text = text[: text.index("[[figures]]")]
    (tmp_path / "mine.toml").write_text(text)
    out, undisturbed = tmp_path / "out", tmp_path / "undisturbed"
    words = [
        sys.executable,
        "-m",
        "sottovoce",
        "study",
        str(tmp_path / "mine.toml"),
        "--jobs",
        "1",
        "--json",
        "--out",
    ]
    cells = out / "mine" / "cells"
    process = subprocess.Popen(
        [*words, str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while len(list(cells.glob("*.json.gz"))) < 3:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = {
        path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in cells.glob("*.json.gz")
    }
    assert 3 <= len(before) < 24 and not (out / "mine" / "table.csv").exists()
    told = CliRunner().invoke(command, [*words[4:], str(out)], catch_exceptions=False)
    (answer,) = json.loads(told.stdout)["studies"]
    assert (answer["cells"], answer["reused"]) == (24, len(before))
    after = {
        path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in cells.glob("*.json.gz")
    }
    assert len(after) == 24 and {name: after[name] for name in before} == before
    CliRunner().invoke(command, [*words[4:], str(undisturbed)], catch_exceptions=False)
    assert (out / "mine" / "table.csv").read_bytes() == (
        undisturbed / "mine" / "table.csv"
    ).read_bytes()


# --- figures and pages


@pytest.mark.parametrize("kind", spec.FIGURES)
def test_figures_of_every_kind_and_the_same_bytes_twice(kind, done):
    y = "" if kind == "hist" else "test_error"
    figure = Figure(
        "f", "F", kind, "loss" if kind in ("hist", "scatter") else "round", y, series="method"
    )
    one, two = figures.draw(figure, done.rows), figures.draw(figure, done.rows)
    assert [panel.name for panel in one] == ["f"]
    assert one[0].svg == two[0].svg and b"<svg" in one[0].svg
    assert one[0].png.startswith(b"\x89PNG") and len(one[0].png) > 5_000


def test_facets_are_panels_and_levels_are_in_all(done):
    figure = done.study.figures[0]
    panels = figures.draw(figure, done.rows)
    assert [panel.title for panel in panels] == ["epsilon 1", "epsilon 50"]
    without = figures.draw(figure, [row for row in done.rows if row["method"] != "admm"])
    assert panels[0].svg != without[0].svg
    assert figures.draw(figure, []) == []


def test_every_series_has_a_look_of_its_own():
    plain = Figure("f", "F", "line", "round", "loss", series="gamma")
    for figure, rows in (
        (plain, {str(k): {"gamma": k} for k in range(20)}),
        (
            METHODS,
            {
                f"{m}, {k}": {"method": m, "label": k}
                for m in ("admm", "dvp", "pvp")
                for k in range(3)
            },
        ),
    ):
        looks = figures._looks(figure, rows, list(rows.values())).values()
        assert len({(look["color"], str(look["ls"]), look["marker"]) for look in looks}) == len(
            rows
        )
    assert figures.COLOURS[0] == "#0072B2" and len(set(figures.COLOURS)) == 8


METHODS = Figure("f", "F", "line", "round", "loss", series=("method", "label"))


def test_a_method_has_one_colour_in_all_figures_of_a_page():
    rows = [
        {"method": m, "label": k}
        for m in ("admm", "dvp", "average", "average, as printed")
        for k in (0, 1)
    ]
    colours = {}
    for some in (rows, rows[2:], rows[::-1], rows[4:]):
        for name, look in figures._looks(
            METHODS, {f"{r['method']}: {r['label']}": r for r in some}, rows
        ).items():
            method = figures.plain(name.partition(":")[0])
            assert colours.setdefault(method, look["color"]) == look["color"]
    assert colours["admm"] == figures.BLACK and len(set(colours.values())) == 3


def test_spread_is_what_the_caption_says():
    values = np.array([1.0, 2.0, 3.0, 6.0])
    assert figures.summary(values, "range") == (3.0, 2.0, 3.0)
    assert figures.summary(values, "sd")[1] == pytest.approx(values.std(ddof=1))
    assert figures.summary(values, "ci")[1] == pytest.approx(
        values.std(ddof=1) / 2 * 3.182446, rel=1e-5
    )
    assert figures.summary(values[:1], "ci") == (1.0, 0.0, 0.0)


def test_a_page_is_complete_in_itself(done):
    drawn = [(figure, figures.draw(figure, done.rows)) for figure in done.study.figures]
    text = page.page(done, drawn, judged(done.study, done.rows), "sottovoce study small --seed 0")
    for part in (
        "Noise &amp; loss",
        "A &lt;small&gt; study.",
        "002, Figure 9",
        "It is small.",
        "sottovoce study small --seed 0",
        "numpy ",
        "matplotlib ",
        "replace-one",
        CLAIMED,
        "At the proved epsilon",
        "95% interval",
        "loss (nats)",
        "table.csv",
    ):
        assert part in text, part
    assert text.count("<img ") == 3 and text.count("data:image/svg+xml;base64,") == 3
    assert "http" not in text.replace("http://www.w3.org", "") and 'name="viewport"' in text
    assert "As printed" not in text  # this claim has no printed side


# --- the command


def invoke(*words):
    return CliRunner().invoke(command, list(words), catch_exceptions=False)


def test_the_command_writes_everything_and_sums_up(tmp_path):
    (tmp_path / "own.toml").write_text(SMALL)
    answer = invoke(
        str(tmp_path / "own.toml"),
        "--quick",
        "--json",
        "--replicates",
        "2",
        "--out",
        str(tmp_path / "o"),
    )
    assert answer.exit_code == 0 and answer.stderr == "", answer.output
    (one,) = json.loads(answer.stdout)["studies"]
    assert (one["name"], one["cells"], one["reused"], one["rows"]) == ("own", 3, 0, 3 * 2 * 2)
    assert one["claims"] == [] and "no verdict on the paper" in one["quick"]
    folder = tmp_path / "o" / "own"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "cells",
        "figures",
        "index.html",
        "privacy.txt",
        "table.csv",
        "table.parquet",
        "verdicts.json",
    }
    verdicts = json.loads((folder / "verdicts.json").read_text())
    assert (verdicts["study"], verdicts["replicates"]) == ("own", 2)
    assert verdicts["claims"] == [] and verdicts["quick"]
    assert {path.name for path in (folder / "figures").iterdir()} == {
        "loss.svg",
        "loss.png",
        "error.svg",
        "error.png",
        "panels.json",
    }
    typed = ["own.toml", "--quick", "--out", "o", "--replicates", "2", "--json"]
    assert " ".join(["sottovoce", "study", *typed]) in (folder / "index.html").read_text()
    said = invoke(
        str(tmp_path / "own.toml"), "--quick", "--replicates", "2", "--out", str(tmp_path / "o")
    )
    assert "3 reused" in said.stdout and said.stderr == ""
    assert "quick run: " in said.stdout and "left out" in said.stdout and CLAIMED not in said.stdout


def test_a_value_that_no_row_has_and_a_claim_without_a_verdict_are_told_after_a_full_run(tmp_path):
    last = 'by = ["method"]\nfilter = { round = "last" }'
    asked = SMALL.replace(last, last.replace("}", ", epsilon = 7.0 }"))
    together = SMALL.replace(last, last.replace("}", ', method = "admm", epsilon = 50.0 }'))
    for text, told in (
        (asked, "no row has epsilon = 7.0; there are 1.0, 50.0"),
        (together, UNSEEN),
        (SMALL, ""),
    ):
        (tmp_path / "own.toml").write_text(text)
        full = invoke(str(tmp_path / "own.toml"), "--out", str(tmp_path / "o"))
        page = (tmp_path / "o" / "own" / "index.html").read_text()
        if told:
            assert told in full.stderr and told in page
        else:
            assert "note" not in full.stderr
        quick = invoke(str(tmp_path / "own.toml"), "--quick", "--out", str(tmp_path / "o"))
        assert quick.stderr == ""  # which leaves settings out


def test_the_table_has_the_fixed_value_of_what_other_cells_vary(tmp_path):
    text = SMALL.replace('method = "prox_admm"', 'method = "prox_admm"\nrounds = 2')
    study = spec.parse(text, "own")
    assert [(one["method"], one["rounds"]) for one in study.labels()] == [
        ("dvp", 3),
        ("dvp", 3),
        ("prox_admm", 2),
        ("prox_admm", 2),
        ("admm", 3),
    ]
    done = run(study, tmp_path)
    assert {(row["method"], row["rounds"]) for row in done.rows} == {
        ("dvp", 3),
        ("prox_admm", 2),
        ("admm", 3),
    }
    assert "nodes" not in done.columns  # nothing varies it


def test_misspelt_column_gets_a_note(tmp_path):
    text = SMALL.replace('y = "test_error"', 'y = "test_eror"').replace(
        'by = ["method"]', 'by = ["methods"]'
    )
    (tmp_path / "own.toml").write_text(text)
    answer = invoke(str(tmp_path / "own.toml"), "--quick", "--out", str(tmp_path / "o"))
    assert answer.exit_code == 0
    assert "figure 'error'" in answer.stderr and "no column test_eror" in answer.stderr
    assert "no column methods" in answer.stderr and answer.stderr.count("no column") == 2
    assert "no column test_eror" in (tmp_path / "o" / "own" / "index.html").read_text()


def test_list_names_every_study():
    listed = json.loads(invoke("--list", "--json").stdout)
    assert [one["name"] for one in listed] == spec.names()
    shown = invoke("--list").stdout
    assert all(name in shown for name in spec.names())


def test_all_skips_what_needs_a_file_and_ends_in_an_index(tmp_path, monkeypatch):
    from sottovoce_papers.studies import spec as specs

    census = SMALL + '\n[file]\nloader = "census-us"\nhow = "ask IPUMS"\n'
    texts = {"a": SMALL, "b": SMALL.replace("nodes = 3", "nodes = 3\ncolour = 1"), "c": census}
    monkeypatch.setattr(specs, "names", lambda: sorted(texts))
    monkeypatch.setattr(specs, "load", lambda name: parse(texts[name], name))
    answer = invoke("all", "--quick", "--json", "--out", str(tmp_path))
    told = json.loads(answer.stdout)
    assert answer.exit_code == 1  # b failed, and was no reason to stop
    assert [one["name"] for one in told["studies"]] == ["a"]
    (skipped,) = told["skipped"]
    assert skipped.startswith("c: ") and skipped.endswith("ask IPUMS")
    assert told["failed"][0].startswith("b: colour=1")
    index = (tmp_path / "index.html").read_text()
    assert 'href="a/index.html"' in index and "ask IPUMS" in index and index.count("<img ") == 1
    with pytest.raises(InvalidInput, match="ask IPUMS"):
        invoke("c", "--quick", "--out", str(tmp_path))


def test_study_is_refused_without_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InvalidInput, match=r"sottovoce\[studies\]"):
        invoke("002-fig2", "--out", str(tmp_path / "o"))
    assert not (tmp_path / "o").exists()
