"""What a release's outputs hold: what was released, and public facts; nothing else that depends on
a row.

Two tables differ in one row, or in one person's rows, and every answer of the second run is
replaced by that of the first.  Then all that a release prints as JSON, saves and writes as a page
must be equal, byte for byte: whatever is not is a function of the rows that no epsilon covers.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Call
from numpy.typing import NDArray

from sottovoce import RunConfig, TrainConfig, train
from sottovoce.answers.evaluation import Held
from sottovoce.answers.training import infer
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import Result
from sottovoce.util import files
from sottovoce.util.plain import HOLDER_ONLY, merge_held_back_figures, select_shown_figures

LABELS = {
    "two": '{ column = "y", positive = "a", negative = "b" }',
    "three": '{ column = "y", values = ["a", "b", "c"] }',
    "number": '{ column = "y", lo = 0, hi = 10 }',
}
HELD_BACK = {
    "test_error",
    "test_error_sd",
    "site_test_error",
    "nonprivate_test_error",
    "majority_test_error",
    "mean_test_error",
    "middle_test_error",
    "test_details",
    "seconds",
    "exact",
}
"""Keys of numbers without noise."""
KNOWN = {
    # what was asked for, and public facts of the table
    "method",
    "data",
    "nodes",
    "graph",
    "partition",
    "rounds",
    "rounds_asked",
    "stopped",
    "replicates",
    "seed",
    "n_train",
    "n_test",
    "features",
    "sites",
    "label",
    "versions",
    "notes",
    "config",
    "algorithm",
    "choice",
    "centre",
    "command",
    "threshold",
    # what was released, what follows from it, and its price
    "privacy",
    "asked",
    "coefficients",
    "covariance",
    "strain",
    "needs",
    "weighed",
    "clusters",
    "undivided",
    "determined",
    "few_outcomes",
    "at_bounds",
    "forecast",
    "auc",
    "brier",
    "evaluation",
    "record",
}
"""Keys at the top of what a release prints and saves."""


def write_table(
    folder: Path, label: str, change: str = "", people: bool = False, which: int = 7
) -> None:
    """400 rows; `change` says how one row, or one person, is another."""
    rng = np.random.default_rng(3)
    values = {"two": ["a", "b"], "three": ["a", "b", "c"], "number": ["2.5", "7", "4.25"]}[label]
    lines = []
    for k in range(400):
        age, dose = rng.uniform(20, 80), rng.uniform(0, 5)
        line = [
            f"p{k}",
            f"h{k % 3}",
            f"{age:.2f}",
            f"{dose:.3f}",
            ["north", "south"][k % 2],
            values[k % len(values)],
        ]
        repeats = 1
        if change == "spelling" and k < 6:
            line[1] = ["{} ", "\t{}", " {}"][k % 3].format(line[1])
        elif k == which and change != "spelling":
            line[2:] = {
                "": line[2:],
                "far": ["9999", "-50", "mars", line[5]],
                "gap": ["", "", "", line[5]],
                "unlabelled": [*line[2:5], ""],
                "strange label": [*line[2:5], "zebra" if label != "number" else "1e9"],
                "other label": [*line[2:5], values[(k + 1) % len(values)]],
                "more rows": line[2:],
            }[change]
            repeats = 61 if change == "more rows" else 1
        lines += [line] * repeats
    with (folder / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["who", "site", "age", "dose", "ward", "y"], *lines])
    unit = 'person = "who"\n' if people else 'ignore = ["who"]\n'
    (folder / "s.toml").write_text(
        f"site = 'site'\n{unit}label = {LABELS[label]}\nintercept = true\n"
        '[columns.age]\nkind = "number"\nlo = 20\nhi = 80\nmissing = 50\n'
        '[columns.dose]\nkind = "number"\nlo = 0\nhi = 5\nmissing = 2.5\nindicator = true\n'
        '[columns.ward]\nkind = "category"\nvalues = ["north", "south"]\nother = true\nindicator '
        "= true\n"
    )


def everything(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """All keys and values of plain data, with their paths."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from everything(one, f"{at}/{key}")
    elif isinstance(value, list):
        yield f"{at}/#", len(value)
        for k, one in enumerate(value):
            yield from everything(one, f"{at}/{k}")
    else:
        yield at, value


def saved(path: Path) -> dict[str, Any]:
    """All that a saved run holds, as plain data."""
    if path.read_bytes()[:1] == b"{":
        return dict(json.loads(path.read_text()))
    arrays = files.read_packed_arrays(path)
    return {
        name: json.loads(str(x)) if x.dtype.kind == "U" else x.tolist()
        for name, x in arrays.items()
    }


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Every run gives the first run's answers, in order; the returned function begins another
    run.
    """
    known: list[NDArray[np.float64]] = []
    at = [0]

    def remembering(ask: Callable[..., Any]) -> Callable[..., Any]:
        def again(self: RowGuard, *query: Any) -> Any:
            found = ask(self, *query)
            if at[0] == len(known):
                known.append(np.array(found))
            assert known[at[0]].shape == np.shape(found)
            at[0] += 1
            return known[at[0] - 1].copy()

        return again

    for name in ("charge_and_answer", "charge_and_open_sum"):
        monkeypatch.setattr(RowGuard, name, remembering(getattr(RowGuard, name)))

    def anew(forget: bool = False) -> None:
        at[0] = 0
        if forget:
            known.clear()

    return anew


RUNS = {
    "rounds": ("two", ("--method", "momentum", "--rounds", 4)),
    "rounds, centred and judged": (
        "two",
        ("--method", "dgd", "--rounds", 3, "--evaluation", 4, "--set", "by=ward"),
    ),
    "auto": ("two", ("--set", "cut=0.3")),
    "classes": ("three", ("--method", "momentum", "--rounds", 3, "--evaluation", 4)),
    "inference": ("two", ("--inference", "--trust", "sum")),
    "inference, held out": ("two", ("--inference", "--set", "test_share=0.4")),
    "inference, judged": ("two", ("--inference", "--trust", "curator", "--evaluation", 4)),
    "least squares": ("number", ("--evaluation", 4)),
    "least squares, intervals": ("number", ("--inference",)),
}
CHANGES = ("far", "gap", "unlabelled", "strange label", "other label", "spelling")
"""Of one row; "spelling" is of the sites' names in the rows in which they first appear."""


def release(run: Call, *words: Any) -> tuple[dict[str, Any], dict[str, Any], str]:
    """What a release prints as JSON, what it saves, and its page."""
    ran = run(
        "train",
        "--data",
        "rows.csv",
        "--schema",
        "s.toml",
        "--epsilon",
        3,
        "--system-noise",
        "--json",
        "--save",
        "run.out",
        "--report",
        "page.html",
        *words,
    )
    assert ran.code == 0, ran
    printed = ran.json
    for tried in (printed.get("choice") or {}).get("table", ()):
        del tried["seconds"]  # of a trial on synthetic rows
    return printed, saved(Path("run.out")), Path("page.html").read_text()


@pytest.mark.parametrize("name", RUNS)
def test_with_equal_answers_a_release_is_equal(
    name: str, run: Call, answers: Callable[..., None], tmp_path: Path
) -> None:
    label, words = RUNS[name]
    write_table(tmp_path, label)
    first = release(run, *words)
    assert not [key for key in HELD_BACK & first[0].keys() if first[0][key] is not None]
    assert first[0].keys() <= KNOWN | HELD_BACK
    for path, value in [*everything(first[0]), *everything(first[1])]:
        assert value is None or not HELD_BACK & set(path.split("/"))
    for change in CHANGES:
        write_table(tmp_path, label, change)
        answers()
        assert release(run, *words) == first


@pytest.mark.parametrize(
    "name", ["rounds", "auto", "inference, judged", "inference, held out", "least squares"]
)
def test_one_persons_number_of_rows_shows_nowhere(
    name: str, run: Call, answers: Callable[..., None], tmp_path: Path
) -> None:
    label, words = RUNS[name]
    write_table(tmp_path, label, people=True)
    first = release(run, *words)
    write_table(tmp_path, label, "more rows", people=True)
    answers()
    assert release(run, *words) == first


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("label", LABELS)
def test_a_released_evaluation_is_equal(
    change: str, label: str, run: Call, answers: Callable[..., None], tmp_path: Path
) -> None:
    write_table(tmp_path, label)
    where = ("--data", "rows.csv", "--schema", "s.toml", "--save", "run.out", "--json")
    assert (
        run(
            "train", *where, *(() if label == "number" else ("--method", "dgd", "--rounds", 2))
        ).code
        == 0
    )
    told: list[Any] = []
    for how in ("", change):
        write_table(tmp_path, label, how)
        answers(forget=not told)
        ran = run(
            "evaluate",
            "run.out",
            "rows.csv",
            "--epsilon",
            5,
            "--system-noise",
            "--json",
            "--report",
            "page.html",
        )
        assert ran.code == 0, ran
        told.append((ran.json, Path("page.html").read_text()))
    assert told[0] == told[1]
    assert told[0][0]["exact"] is None


def test_holder_adds_the_numbers_without_noise_marked(run: Call, tmp_path: Path) -> None:
    write_table(tmp_path, "two", "far")
    where = ("train", "--data", "rows.csv", "--schema", "s.toml", "--system-noise", "--json")
    rounds = run(*where, "--method", "dgd", "--rounds", 2, "--evaluation", 3, "--holder").json
    held = rounds.pop(HOLDER_ONLY)
    assert rounds["test_error"] is None and 0.0 <= held["test_error"] <= 1.0
    assert (
        "exact" not in rounds["evaluation"]
        and 0.0 <= held["evaluation"]["exact"]["accuracy"] <= 1.0
    )
    counted = [note for note in held["notes"] if "holder" in note]
    assert counted and not set(counted) & set(rounds["notes"])
    answered = run(*where, "--inference", "--set", "test_share=0.3", "--holder").json
    held = answered.pop(HOLDER_ONLY)
    assert answered["auc"] is None and held["auc"] == held["exact"]["auc"]
    assert HOLDER_ONLY not in run(*where, "--inference").json


def test_a_page_shows_the_rest_only_if_asked(run: Call, tmp_path: Path) -> None:
    write_table(tmp_path, "two")
    where = (
        "train",
        "--data",
        "rows.csv",
        "--schema",
        "s.toml",
        "--system-noise",
        "--json",
        "--holder",
    )
    plain = run(*where, "--inference", "--evaluation", 5).json
    Path("told.json").write_text(json.dumps(plain))
    exact = f"{plain[HOLDER_ONLY]['evaluation']['exact']['brier']:.4f}"
    assert run("report", "told.json", "--out", "a.html").code == 0
    assert run("report", "told.json", "--out", "b.html", "--holder").code == 0
    assert exact not in Path("a.html").read_text() and exact in Path("b.html").read_text()


def test_a_simulation_has_the_numbers_without_noise(run: Call, tmp_path: Path) -> None:
    write_table(tmp_path, "two")
    plain = run(
        "train",
        "--data",
        "rows.csv",
        "--schema",
        "s.toml",
        "--method",
        "dgd",
        "--rounds",
        2,
        "--json",
    ).json
    assert HOLDER_ONLY not in plain and None not in (
        plain["test_error"],
        plain["nonprivate_test_error"],
    )


def test_held_back_figures_are_merged_into_the_record_where_they_belong() -> None:
    released, held = {"a": 1, "e": {"b": 2}}, {"e": {"exact": 3}, "c": 4}
    assert merge_held_back_figures(released, held) == {"a": 1, "e": {"b": 2, "exact": 3}, "c": 4}
    assert select_shown_figures(released, held, release=True, holder=False) == {
        "a": 1,
        "e": {"b": 2},
        "c": None,
    }
    assert select_shown_figures(released, held, release=True, holder=True)[HOLDER_ONLY] == held
    assert select_shown_figures(
        released, held, release=False, holder=False
    ) == merge_held_back_figures(released, held)
    assert released == {"a": 1, "e": {"b": 2}}


# Sizes in simulations, which tell the holder everything else


def sizes(value: Any) -> list[tuple[str, Any]]:
    """Whole numbers and lengths, and what texts say of numbers."""
    found = []
    for path, one in everything(value):
        if isinstance(one, int) and not isinstance(one, bool):
            found.append((path, one))
        if isinstance(one, str):
            found.append((path, re.findall(r"\d[\d,]*(?![\d.])", one)))
    return found


@pytest.mark.parametrize("person", np.random.default_rng(0).permutation(400)[[0, -1]].tolist())
def test_sixty_rows_more_of_one_person_change_no_size(person: int, tmp_path: Path) -> None:
    """The first is held out, the last is not."""
    told = []
    for change in ("", "more rows"):
        write_table(tmp_path, "two", change, people=True, which=person)
        run = RunConfig("dgd", 4.0, 1e-5, rounds=2, seed=0)
        config = TrainConfig(
            run, str(tmp_path / "rows.csv"), str(tmp_path / "s.toml"), test_share=0.5
        )
        report = train(config)
        report.result.save(tmp_path / "run.npz")
        asked = TrainConfig(
            RunConfig("auto", 4.0, 1e-5, seed=0), config.data, config.schema, test_share=0.5
        )
        answered = infer(asked, held=Held(30.0))
        told.append(
            [
                sizes(report.released()),
                sizes(saved(tmp_path / "run.npz")),
                sizes(answered.released()),
                sizes(json.loads(answered.answered.to_json())),
                report.released()["n_test"],
                Result.load(tmp_path / "run.npz").facts.to_dict(),
            ]
        )
    assert told[0] == told[1]
    assert told[0][4] == 200
