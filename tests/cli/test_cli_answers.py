"""The command line for scripts: lists, help, training, partitions, prediction."""

from __future__ import annotations

import csv
import gc
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pytest
from command_line import (
    HEADER,
    METHODS,
    PRIVATE,
    REQUIRED,
    ROWS,
    SCHEMA,
    SMALL,
    Call,
    Clinic,
    Table,
    epsilon_for,
    make_table,
    numbers,
    write_csv,
)

from sottovoce import data
from sottovoce.algorithms import NAMES, REGISTRY
from sottovoce.cli import COMMANDS
from sottovoce.cli import cli as commands
from sottovoce.cli.run_command import RunCommand
from sottovoce.problem.clipped import NOT_CALIBRATED
from sottovoce.runs.simulate import Result, RunConfig
from sottovoce.runs.training import TrainConfig

# Lists and help


def command(name: str) -> click.Command:
    found = commands.get_command(click.Context(commands), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_of_each_what_it_says_of_itself(name: str) -> None:
    help_text = command(name).help
    assert help_text is not None
    first_paragraph = help_text.split("\n\n")[0]
    assert COMMANDS[name].split() == first_paragraph.split()
    assert command(name).name == name


def test_methods_lists_every_private_method(ok: Call) -> None:
    private = [entry["name"] for entry in ok("methods", "--json").json]
    assert private == [name for name in NAMES if REGISTRY[name].private] and len(private) <= 17
    listed = ok("methods", "--all", "--json").json
    assert [entry["name"] for entry in listed] == list(NAMES)
    pairs = {pair["name"]: trust for entry in listed for trust, pair in entry["trusts"].items()}
    assert pairs == {name: REGISTRY[name].trust.kind for name in METHODS}
    for entry in listed:
        assert entry["private"] is REGISTRY[entry["name"]].private
        assert all(isinstance(entry[key], str) and entry[key] for key in ("paper", "summary"))
    shown = ok("methods", "--all").out
    for name in NAMES:
        line = next(line for line in shown.splitlines() if line.startswith(f"{name} "))
        assert ("No noise" in line) is not REGISTRY[name].private


def test_data_lists_every_data_set(ok: Call) -> None:
    listed = ok("data", "--json").json
    assert {"adult", "adult-002", "mnist37"} <= {entry["name"] for entry in listed}
    assert all({"name", "rows", "features", "licence", "about"} <= set(entry) for entry in listed)
    assert {entry["name"]: entry["rows"] for entry in listed}["adult"] == 48_842


@pytest.mark.parametrize("columns", [60, 80])
def test_data_sets_are_shown_by_their_whole_names(
    ok: Call, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = ok("data").out
    assert max(map(len, shown.splitlines())) <= columns
    for entry in data.describe():
        assert entry["name"] in shown


def test_graphs_that_are_listed_can_be_used(ok: Call) -> None:
    listed = ok("graphs", "--json").json
    assert {"ring", "star", "complete"} <= {entry["spec"] for entry in listed}
    assert all(set(entry) == {"spec", "about"} and entry["about"] for entry in listed)
    for entry in listed:
        if entry["spec"] == "edges:FILE":
            continue
        spec = entry["spec"].partition("[")[0]
        report = ok(
            "train", *SMALL, "--rounds", 1, "--nodes", 6, "--epsilon", 5, "--graph", spec, "--json"
        ).json
        assert (report["graph"], report["nodes"]) == (spec, 6)
    assert all(entry["spec"] in ok("graphs").out for entry in listed)


def test_an_edge_list_is_a_graph(ok: Call, tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_text("# three sites in a row\n0 1\n1 2\n")
    small = ("train", *SMALL, "--nodes", 3, "--epsilon", 5, "--json")
    listed, named = (ok(*small, "--graph", graph).json for graph in ("edges:net.txt", "path"))
    assert listed["site_test_error"] == named["site_test_error"]
    assert listed["site_test_error"] != ok(*small, "--graph", "complete").json["site_test_error"]


def test_help_has_examples(ok: Call) -> None:
    shown = ok("--help").out
    examples = [
        line.split() for line in shown.splitlines() if line.strip().startswith("sottovoce ")
    ]
    known = set(commands.list_commands(click.Context(commands))) - {
        "data",
        "graphs",
        "hub",
        "methods",
    }
    assert {words[1] for words in examples} == known
    options = {
        o
        for name in ("train", "study", "export", "describe", "survival")
        for p in command(name).params
        for o in p.opts
    }
    options.add("--help")
    for words in examples:  # options that examples use exist
        assert {w for w in words if w.startswith("--")} <= options
    assert ok("-h").out == shown
    for name in (None, *commands.commands):  # a terminal of 80 columns breaks none of them
        for line in ok(*([name] if name else []), "--help").out.splitlines():
            assert len(line) < 80 or "sottovoce" not in line, line
    for name in commands.commands:
        assert name in shown


@pytest.mark.parametrize("name", sorted(commands.commands))
def test_every_command_teaches_by_an_example_with_options_that_it_has(ok: Call, name: str) -> None:
    lines = [line.split() for line in ok(name, "--help").out.splitlines()]
    examples = [words for words in lines if words[:1] == ["sottovoce"]]
    assert any(words[1] == name for words in examples)
    for words in examples:
        asked = command(words[1])
        if isinstance(asked, click.Group):
            asked = asked.commands[words[2]] if words[2:] and words[2] in asked.commands else asked
        known = {o for p in asked.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
        assert {word for word in words if word.startswith("--")} <= known, words


def unwrapped(text: str) -> str:
    """A text without the blanks at which a narrow screen breaks it."""
    return "".join(text.split())


@pytest.mark.parametrize("name", sorted(commands.commands))
def test_help_explains_every_option_and_says_its_default(ok: Call, name: str) -> None:
    asked = command(name)
    shown = unwrapped(ok(name, "--help").out)
    assert asked.help is not None and unwrapped(asked.help.split("\n")[0]) in shown
    if isinstance(asked, RunCommand):  # settings have a list of their own
        shown += unwrapped(ok(name, "--set", "help").out)
    configs = (RunConfig.defaults(), vars(TrainConfig())) if name == "train" else ()
    for option in (p for p in asked.params if isinstance(p, click.Option)):
        assert option.help and unwrapped(option.help) in shown, option.name
        for default in (
            config[str(option.name)] for config in configs if str(option.name) in config
        ):
            # None is "not given" or is said in words, and so are epsilon's, which depends on the
            # method, tol's, and the test share's, which depends on what is asked.
            if default is not None and option.name not in (
                "epsilon",
                "method",
                "tol",
                "trust",
                "test_share",
            ):
                said = f"{option.help} [default: {'yes' if default is True else default}]"
                assert option.default == default and unwrapped(said) in shown, option.name
    if name == "train":
        for said in (
            "auto]",
            "1e-05; none with --pure",
            "1, or inf where a method has no noise]",
            "5, or as many as the site column names]",
            "matched to the noise]",
        ):
            assert unwrapped(f"[default: {said}") in shown


def test_without_a_command_the_help_is_shown(run: Call) -> None:
    ran = run()
    assert ran.code == 2 and "Usage: sottovoce" in ran.out + ran.err


# Training, for machines


@pytest.mark.parametrize("method", METHODS)
def test_train_json(ok: Call, method: str) -> None:
    report = ok("train", *ROWS, *epsilon_for(method), "--json").json
    assert set(report) >= REQUIRED
    cls = REGISTRY[method]
    nodes = 1 if cls.trust.pools_rows else 5
    assert (report["method"], report["nodes"], report["rounds"], report["replicates"]) == (
        method,
        nodes,
        6,
        1,
    )
    privacy = report["privacy"]
    assert set(privacy) >= {"epsilon", "delta", "relation", "accountant", "per_node"}
    assert privacy["relation"] == "replace-one"
    if not cls.needs_delta:
        assert (privacy["accountant"], privacy["delta"]) == ("pure", 0)
    if REGISTRY[method].private:
        assert 5 * 0.999 <= privacy["epsilon"] <= 5
        assert len(privacy["per_node"]) == nodes and max(privacy["per_node"]) == privacy["epsilon"]
    else:
        assert privacy["epsilon"] == "inf" and privacy["per_node"] == ["inf"] * 5
    assert 0 <= report["nonprivate_test_error"] < report["majority_test_error"] < 1
    assert 0 <= report["test_error"] < 1 and report["test_error_sd"] == 0
    assert len(report["site_test_error"]) == nodes
    assert report["seconds"] > 0
    assert RunConfig.from_dict(report["config"]).method == method


@pytest.mark.parametrize("method", METHODS)
def test_the_seed_decides(ok: Call, method: str, tmp_path: Path) -> None:
    first, again, other = (
        ok(
            "train", *ROWS, *epsilon_for(method), "--seed", seed, "--save", f"{k}.npz", "--json"
        ).json
        for k, seed in enumerate((7, 7, 8))
    )
    assert numbers(first) == numbers(again) and first["seed"] != other["seed"]
    models = [Result.load(tmp_path / f"{k}.npz").models for k in range(3)]
    assert np.array_equal(models[0], models[1]) and np.min(np.abs(models[0] - models[2])) > 0


def test_system_noise_is_not_repeated(ok: Call, tmp_path: Path) -> None:
    for name in ("one", "two"):
        report = ok(
            "train", *SMALL, "--epsilon", 5, "--system-noise", "--save", name, "--json"
        ).json
        assert report["seed"] is None and report["privacy"]["release"] is True
        assert report["privacy"]["epsilon"] <= 5
    one, two = (Result.load(tmp_path / name).models for name in ("one", "two"))
    assert np.min(np.abs(one - two)) > 0
    assert ok("train", *SMALL, "--epsilon", 5, "--json").json["privacy"]["release"] is False


def test_replicates_are_counted_in_the_report(ok: Call, tmp_path: Path) -> None:
    report = ok(
        "train", *SMALL, "--epsilon", 5, "--replicates", 4, "--save", "run.npz", "--json"
    ).json
    assert report["replicates"] == 4
    models = Result.load(tmp_path / "run.npz").models
    assert models.shape == (4, 5, 5)
    set_ = data.load("synthetic:n=600,d=5,seed=1")
    errors = [
        np.mean(np.sign(set_.X_test @ models[r].mean(axis=0)) != set_.y_test) for r in range(4)
    ]
    assert report["test_error"] == pytest.approx(np.mean(errors), abs=1e-12)
    assert (
        report["test_error_sd"] == pytest.approx(np.std(errors, ddof=1), abs=1e-12)
        and len(set(errors)) > 1
    )
    # The first repetition is the single run, to its certificate: repetitions do not change each
    # other, nor the cost.
    single = ok("train", *SMALL, "--epsilon", 5, "--save", "single.npz", "--json").json
    assert np.allclose(Result.load(tmp_path / "single.npz").models[0], models[0], atol=1e-5, rtol=0)
    assert single["privacy"] == report["privacy"]


def test_save_leaves_exactly_the_file_asked_for(ok: Call, tmp_path: Path) -> None:
    report = ok("train", *SMALL, "--epsilon", 5, "--save", "kept.run", "--json").json
    assert [path.name for path in tmp_path.iterdir()] == ["kept.run"]
    result = Result.load(tmp_path / "kept.run")
    assert result.config.to_dict() == RunConfig.from_dict(report["config"]).to_dict()
    assert result.privacy["epsilon"] == report["privacy"]["epsilon"]
    assert len(result.ledger) == report["privacy"]["releases"] == 3


@pytest.mark.parametrize("method", PRIVATE)
def test_the_printed_form_is_asked_for_by_its_claim(ok: Call, method: str) -> None:
    privacy = ok(
        "train", *SMALL, "--method", method, "--epsilon", 5, "--form", "printed", "--json"
    ).json["privacy"]
    assert privacy["form"] == "printed"
    assert 5 * 0.999 <= privacy["printed_claim"] <= 5
    assert "exact minimisation" in privacy["assumes"]
    if method == "dvp":
        # the listing's noise is half of what its proof needs
        assert privacy["epsilon"] > 1.5 * privacy["printed_claim"]
    else:
        assert privacy["epsilon"] < privacy["printed_claim"]


def test_a_run_that_stops_at_its_budget_says_so(ok: Call) -> None:
    small = ("train", *SMALL, "--method", "dvp", "--set", "noise=1")
    report = ok(*small, "--epsilon", 2.5, "--json").json
    assert (report["stopped"], report["rounds"], report["rounds_asked"]) == ("budget spent", 2, 6)
    assert 1.9 < report["privacy"]["epsilon"] <= 2.5 and report["privacy"]["releases"] == 2
    shown = " ".join(ok(*small, "--epsilon", 2.5).out.split())
    assert "2 of 6" in shown and "budget spent" in shown


def test_without_test_rows_there_are_no_scores(ok: Call, clinic: Clinic) -> None:
    arguments = (*clinic.train, "--set", "test_share=0.001")
    report = ok(*arguments, "--json").json
    assert report["n_test"] == 0 and sum(report["n_train"]) == len(clinic.table)
    for key in (
        "test_error",
        "test_error_sd",
        "nonprivate_test_error",
        "majority_test_error",
        "site_test_error",
    ):
        assert report[key] is None
    shown = ok(*arguments).out
    assert "accuracy" not in shown and "epsilon spent" in shown


# Who holds which rows


def test_set_sizes_gives_relative_sizes_of_sites(ok: Call) -> None:
    report = ok("train", *SMALL, "--epsilon", 5, "--set", "sizes=1,2,3", "--json").json
    assert report["n_train"] == [100, 200, 300] and report["nodes"] == 3


def test_label_partition_sorts_sites_by_their_share_of_positives(ok: Call) -> None:
    shown = ok("train", *SMALL, "--epsilon", 5, "--partition", "label").out
    shares = [float(line.split()[2]) for line in shown.splitlines() if re.match(r"\s+\d\s", line)]
    assert len(shares) == 5 and shares == sorted(shares) and shares[4] - shares[0] > 50
    even = ok("train", *SMALL, "--epsilon", 5, "--partition", "label", "--set", "strength=0").out
    shares = [float(line.split()[2]) for line in even.splitlines() if re.match(r"\s+\d\s", line)]
    assert len(shares) == 5 and max(shares) - min(shares) < 2


def test_dirichlet_partition(ok: Call) -> None:
    report = ok(
        "train",
        *SMALL,
        "--rho",
        0.5,
        "--eta",
        0.5,
        "--epsilon",
        5,
        "--partition",
        "dirichlet:0.5",
        "--json",
    ).json
    assert sum(report["n_train"]) == 600 and len(report["n_train"]) == 5
    assert max(report["n_train"]) > 1.5 * min(report["n_train"])


def test_column_partition(ok: Call, clinic: Clinic) -> None:
    report = ok(*clinic.train, "--partition", "column:age", "--json").json
    assert sum(report["n_train"]) == 320 and max(report["n_train"]) - min(report["n_train"]) <= 1
    # The old are the sick here, so sites cut by age differ in their share of the sick.
    shown = ok(*clinic.train, "--partition", "column:age").out
    shares = [float(line.split()[2]) for line in shown.splitlines() if re.match(r"\s+\d\s", line)]
    assert len(shares) == 3 and shares[2] - shares[0] > 25


def test_site_partition(ok: Call, clinic: Clinic) -> None:
    arguments = [argument for argument in clinic.train if argument not in ("--nodes", "3")]
    report = ok(*arguments, "--partition", "site:hospital", "--json").json
    held = {id(row) for row in clinic.test_rows}
    kept = [row[3] for row in clinic.table if id(row) not in held]
    assert report["n_train"] == [kept.count(name) for name in sorted(set(kept))]
    assert report["nodes"] == 4


def test_a_site_with_one_class_is_allowed_and_said(ok: Call, clinic: Clinic) -> None:
    table = [[*row[:4], "well" if row[3] == "tannfels" else row[4]] for row in clinic.table]
    write_csv(clinic.csv, table)
    arguments = [argument for argument in clinic.train if argument not in ("--nodes", "3")]
    report = ok(*arguments, "--partition", "site:hospital", "--json").json
    (note,) = (note for note in report["notes"] if "one class" in note)
    _, _, sites_and_audience = note.partition(": ")
    # in sorted order: quarzberg 0, tannfels 1
    assert sites_and_audience.startswith("1 (") and "holder only" in sites_and_audience
    assert "class only: 1" in ok(*arguments, "--partition", "site:hospital").out
    assert not any("one class" in note for note in ok(*clinic.train, "--json").json["notes"])


def test_a_row_with_another_label_is_counted_for_the_holder(ok: Call, clinic: Clinic) -> None:
    """Not refused, and no word of it in what is saved."""
    write_csv(
        clinic.csv, [[*row[:4], "moribund"] if k < 7 else row for k, row in enumerate(clinic.table)]
    )
    report = ok(*clinic.train, "--save", "run.npz", "--json").json
    assert sum(report["n_train"]) == 320  # it still counts as a row
    held = {id(row) for row in clinic.test_rows}
    assert any(id(row) in held for row in clinic.table[:7])
    assert report["n_test"] == 80  # held out, whatever the label
    saved = Result.load("run.npz")
    assert "7 rows" not in json.dumps([saved.extra, saved.privacy, saved.ledger])
    notes = "\n".join(report["notes"])
    assert re.search("^7 rows.*undeclared label.*holder", notes, re.MULTILINE)
    # then all others are negative
    clinic.schema.write_text(SCHEMA.replace(', negative = "well"', ""))
    notes = "\n".join(ok(*clinic.train, "--json").json["notes"])
    assert "undeclared label" not in notes


def test_values_beyond_the_declared_bounds_are_clipped_and_said(
    ok: Call, run: Call, clinic: Clinic
) -> None:
    (dealt,) = ok(*clinic.train, "--json").json["notes"]  # nothing clipped yet
    assert re.findall(r"'(\w+)'", dealt) == ["hospital", "iid"]
    table = [["93.77001", *row[1:]] if k < 7 else row for k, row in enumerate(clinic.table)]
    write_csv(clinic.csv, table)
    (_, note) = ok(*clinic.train, "--json").json["notes"]
    assert "'age' in 7" in note
    saved = clinic.csv.with_name("run.json")
    report = ok(
        "train",
        "--data",
        clinic.csv,
        "--schema",
        clinic.schema,
        "--nodes",
        3,
        "--partition",
        "iid",
        "--inference",
        "--save",
        saved,
        "--json",
    ).json
    assert note in report["notes"]
    assert "7 rows" not in saved.read_text()  # what is saved may be passed on
    ran = run("predict", saved, clinic.csv)
    assert ran.code == 0 and f"Note: {note}" in ran.err


# Prediction


def accuracy(rows: Table, predictions: list[str]) -> float:
    assert len(rows) == len(predictions)
    return float(
        np.mean([row[4] == prediction for row, prediction in zip(rows, predictions, strict=True)])
    )


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_predict_repeats_the_test_error(ok: Call, clinic: Clinic, tmp_path: Path) -> None:
    report = ok(*clinic.train, "--save", "run.npz", "--json").json
    rows = clinic.test_rows
    write_csv(tmp_path / "new.csv", rows)
    answers = read(ok("predict", "run.npz", "new.csv").out)
    assert {answer["prediction"] for answer in answers} == {"sick", "well"}
    right = accuracy(rows, [answer["prediction"] for answer in answers])
    assert right == pytest.approx(1 - report["test_error"], abs=1e-12)
    assert right > 0.6
    for answer in answers:
        assert (float(answer["probability"]) > 0.5) == (answer["prediction"] == "sick")
    for i in range(3):
        own = read(ok("predict", "run.npz", "new.csv", "--site", i).out)
        share = accuracy(rows, [answer["prediction"] for answer in own])
        assert share == pytest.approx(1 - report["site_test_error"][i], abs=1e-12)
        assert own != answers


def test_predict_from_every_replicate(ok: Call, clinic: Clinic, tmp_path: Path) -> None:
    report = ok(*clinic.train, "--save", "run.npz", "--replicates", 3, "--json").json
    rows = clinic.test_rows
    write_csv(tmp_path / "new.csv", rows)
    answers = [read(ok("predict", "run.npz", "new.csv", "--replicate", r).out) for r in range(3)]
    assert answers[0] != answers[1] != answers[2] != answers[0]
    assert answers[0] == read(ok("predict", "run.npz", "new.csv").out)
    shares = [accuracy(rows, [answer["prediction"] for answer in one]) for one in answers]
    assert np.mean(shares) == pytest.approx(1 - report["test_error"], abs=1e-12)
    assert np.std(shares, ddof=1) == pytest.approx(report["test_error_sd"], abs=1e-12)


def test_predict_in_every_form(ok: Call, clinic: Clinic, tmp_path: Path) -> None:
    ok(*clinic.train, "--save", "run.npz")
    rows = make_table(50, seed=9)
    write_csv(tmp_path / "new.csv", rows)
    expected = ok("predict", "run.npz", "new.csv").out
    assert len(read(expected)) == 50
    # Neither the label nor the site is needed, nor read.
    write_csv(tmp_path / "bare.csv", [row[:3] for row in rows], HEADER[:3])
    assert ok("predict", "run.npz", "bare.csv").out == expected
    write_csv(tmp_path / "other.csv", [[*row[:4], "unheard-of"] for row in rows])
    assert ok("predict", "run.npz", "other.csv").out == expected
    # To a file, and as JSON.
    assert ok("predict", "run.npz", "bare.csv", "--out", "answers.csv").out == ""
    assert read((tmp_path / "answers.csv").read_text()) == read(expected)
    listed = ok("predict", "run.npz", "bare.csv", "--json").json
    assert [answer["prediction"] for answer in listed] == [
        answer["prediction"] for answer in read(expected)
    ]
    assert [float(answer["probability"]) for answer in listed] == [
        float(a["probability"]) for a in read(expected)
    ]
    assert ok("predict", "run.npz", "bare.csv", "--json", "--out", "answers.json").out == ""
    assert json.loads((tmp_path / "answers.json").read_text()) == listed


def test_probabilities_of_a_capped_model_come_with_a_note(
    run: Call, ok: Call, clinic: Clinic, tmp_path: Path
) -> None:
    write_csv(tmp_path / "new.csv", make_table(20, seed=9))
    for cap in ((), ("--set", "max_grad_norm=0.2")):
        ok(*clinic.train, "--method", "prox_admm", *cap, "--save", "run.npz")
        plain, listed = (run("predict", "run.npz", "new.csv", *more) for more in ((), ("--json",)))
        assert list(read(plain.out)[0]) == ["prediction", "probability"]
        assert all((one.get("calibrated") is False) == bool(cap) for one in listed.json)
        for told in (plain, listed):
            assert (NOT_CALIBRATED in told.err) == bool(cap) and NOT_CALIBRATED not in told.out


@pytest.mark.parametrize("typed", [True, False], ids=["numbers", "text"])
def test_parquet_is_read_like_csv(ok: Call, clinic: Clinic, tmp_path: Path, typed: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    def write(name: str, rows: Table, header: list[str]) -> None:
        columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
        as_typed = {
            k: [float(x) for x in v] if typed and k in ("age", "dose") else v
            for k, v in columns.items()
        }
        parquet.write_table(pa.table(as_typed), tmp_path / name)

    write("rows.parquet", clinic.table, HEADER)
    from_csv = ok(*clinic.train, "--save", "csv.npz", "--json").json
    from_parquet = ok(
        *clinic.train, "--data", "rows.parquet", "--save", "parquet.npz", "--json"
    ).json
    assert from_parquet["data"] == "rows.parquet"
    assert from_parquet["site_test_error"] == from_csv["site_test_error"]
    one, two = (Result.load(tmp_path / name).models for name in ("csv.npz", "parquet.npz"))
    assert np.array_equal(one, two)
    new = make_table(40, seed=3)
    write_csv(tmp_path / "new.csv", new)
    write("new.parquet", [row[:3] for row in new], HEADER[:3])
    assert ok("predict", "csv.npz", "new.parquet").out == ok("predict", "csv.npz", "new.csv").out


def test_predict_without_a_logistic_loss_gives_no_probability(ok: Call, clinic: Clinic) -> None:
    ok(*clinic.train, "--set", "loss=huber:0.5", "--save", "run.npz")
    assert set(read(ok("predict", "run.npz", "rows.csv").out)[0]) == {"prediction"}


def test_the_other_class_has_a_name_even_if_undeclared(ok: Call, clinic: Clinic) -> None:
    clinic.schema.write_text(SCHEMA.replace(', negative = "well"', ""))
    ok(*clinic.train, "--save", "run.npz")
    answers = {answer["prediction"] for answer in read(ok("predict", "run.npz", "rows.csv").out)}
    assert answers == {"sick", "not sick"}


def test_predict_refuses_what_is_no_run(
    refused: Callable[..., str], ok: Call, clinic: Clinic, tmp_path: Path
) -> None:
    ok(*clinic.train, "--save", "run.npz", "--checkpoint", "half.npz")
    whole = (tmp_path / "run.npz").read_bytes()
    (tmp_path / "text.npz").write_text("not a run")
    (tmp_path / "empty.npz").touch()
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "other.npz", models=np.zeros((1, 1, 3)))
    np.savez(
        tmp_path / "meta.npz",
        models=np.zeros((1, 1, 3)),
        meta=np.array(json.dumps({"config": [], "facts": 1})),
    )
    assert len(whole) > 1000
    for name in (
        "text.npz",
        "empty.npz",
        "array.npy",
        "other.npz",
        "half.npz",
        "missing.npz",
        "rows.csv",
    ):
        message = refused("predict", name, "rows.csv", "--out", "out.csv")
        assert f"run='{name}'" in message and "train --save" in message
        clinic.says_nothing_private(message)


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign"])
@pytest.mark.parametrize("kind", ["run", "checkpoint"])
def test_a_damaged_file_is_refused(
    refused: Callable[..., str], ok: Call, clinic: Clinic, tmp_path: Path, kind: str, damage: str
) -> None:
    ok(*clinic.train, "--save", "run", "--checkpoint", "checkpoint")
    path = tmp_path / kind
    whole = bytearray(path.read_bytes())
    if damage == "cut":
        whole = whole[: len(whole) // 2]
    elif damage == "flipped":
        whole[len(whole) // 2] ^= 0xFF
    path.write_bytes(whole)
    if damage == "foreign":  # right names, wrong contents
        with path.open("wb") as file:
            np.savez(
                file,
                models=np.zeros((1, 1, 3)),
                meta=np.array(json.dumps({"config": [], "facts": {}})),
            )
    arguments = (
        ("predict", "run", "rows.csv")
        if kind == "run"
        else (*clinic.train, "--checkpoint", "checkpoint")
    )
    message = refused(*arguments)
    gc.collect()  # a file that was left open warns now, and warnings are errors
    assert f"{kind}='{kind}'" in message


def test_predict_refuses_wrong_options_rows_and_thresholds(
    refused: Callable[..., str], ok: Call, clinic: Clinic, tmp_path: Path
) -> None:
    ok(*clinic.train, "--save", "run.npz")
    ok("train", *SMALL, "--epsilon", 5, "--save", "raw.npz")
    write_csv(tmp_path / "short.csv", [[row[0], row[2]] for row in clinic.table], ["age", "colour"])
    write_csv(tmp_path / "nan.csv", [["nan", *row[1:]] for row in clinic.table])
    for arguments, words in (
        (("run.npz", "rows.csv", "--site", 3), ("site=3", "0 to 2")),
        (("run.npz", "rows.csv", "--site", -1), ("site=-1", "0 to 2")),
        (("run.npz", "rows.csv", "--replicate", 1), ("replicate=1", "0 to 0")),
        (("run.npz", "none.csv"), ("none.csv", "cannot be read")),
        (("run.npz", "none.parquet"), ("none.parquet", "cannot be read")),
        (("run.npz", "short.csv"), ("dose", "does not have it")),
        (("run.npz", "nan.csv"), ("age", "finite")),
        (("raw.npz", "rows.csv"), ("run='raw.npz'", "without a schema")),
    ):
        message = refused("predict", *arguments, "--out", "answers.csv")
        assert all(word in message for word in words), message
        clinic.says_nothing_private(message)


def test_predict_into_a_folder_that_does_not_exist(
    refused: Callable[..., str], ok: Call, clinic: Clinic
) -> None:
    ok(*clinic.train, "--save", "run.npz")
    assert "out" in refused("predict", "run.npz", "rows.csv", "--out", "nowhere/answers.csv")
