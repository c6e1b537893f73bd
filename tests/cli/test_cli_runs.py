"""Interruptions, and what people read."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from command_line import METHODS, SMALL, Call, Clinic, Ran, numbers, write_csv

from sottovoce.algorithms import REGISTRY
from sottovoce.runs.simulate import Result, RunConfig
from sottovoce.runs.training import TrainConfig
from sottovoce.runs.training import train as train_on

# Interruptions


def training(method: str, seed: int = 0) -> TrainConfig:
    epsilon = 5.0 if REGISTRY[method].private else math.inf
    delta = 1e-5 if REGISTRY[method].needs_delta else None
    run = RunConfig(
        method=method,
        epsilon=epsilon,
        delta=delta,
        rounds=6,
        rho=0.02,
        eta=0.05,
        replicates=2,
        seed=seed,
    )
    return TrainConfig(run, "synthetic:n=300,d=4,seed=1", nodes=4)


@lru_cache
def undisturbed(method: str) -> Result:
    return train_on(training(method)).result


# Before anything is written, in one of the rounds between, by turns, and in the last.
ROUNDS = [(method, at) for k, method in enumerate(METHODS) for at in (1, 2 + k % 4, 6)]


@pytest.mark.parametrize(("method", "at"), ROUNDS)
def test_an_interrupted_run_goes_on_bit_by_bit(method: str, at: int, tmp_path: Path) -> None:
    seen: list[int] = []

    def interrupt(k: int, state: Any) -> None:
        seen.append(k)
        if k == at and len(seen) == at:
            raise KeyboardInterrupt

    path = tmp_path / "half.npz"
    whole = undisturbed(method)
    with pytest.raises(KeyboardInterrupt):
        train_on(training(method), observers=[interrupt], checkpoint=path)
    assert path.exists() == (at > 1)  # a round is written after its observers
    resumed = train_on(training(method), observers=[interrupt], checkpoint=path).result
    # the interrupted round is repeated, none before it
    assert seen == [
        *range(1, at + 1),
        *range(at, 7),
    ]
    assert resumed.models.tobytes() == whole.models.tobytes()
    assert resumed.ledger == whole.ledger and resumed.privacy == whole.privacy
    assert (resumed.rounds, resumed.stopped) == (6, "finished")
    assert [file.name for file in tmp_path.iterdir()] == ["half.npz"]
    # Once done, it is done: nothing is released again.
    again = train_on(training(method), observers=[interrupt], checkpoint=path).result
    assert (
        len(seen) == 7
        and again.models.tobytes() == whole.models.tobytes()
        and again.ledger == whole.ledger
    )


def test_a_checkpoint_of_another_run_is_refused(refused: Callable[..., str], ok: Call) -> None:
    arguments = (
        "train",
        *SMALL,
        "--epsilon",
        5,
        "--checkpoint",
        "half.npz",
        "--save",
        "run.npz",
        "--json",
    )
    first = ok(*arguments).json
    for change in (
        ("--rounds", 4),
        ("--rounds", 8),
        ("--epsilon", 6),
        ("--seed", 1),
        ("--method", "r_admm"),
        ("--set", "gamma=0.2"),
        ("--graph", "star"),
        ("--set", "sizes=1,1,1,1,2"),
        ("--partition", "label"),
        ("--replicates", 2),
        ("--data", "synthetic:n=600,d=5,seed=2"),
    ):
        message = refused(*arguments, *change)
        assert "checkpoint='half.npz'" in message and "another configuration" in message
    assert numbers(ok(*arguments).json) == numbers(first)


def test_an_interruption_is_told_apart_and_can_be_gone_on_from(
    run: Call, ok: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(k: int, state: Any) -> None:
        if k == 4:
            raise KeyboardInterrupt

    def interrupted(config: TrainConfig, *, observers: list[Any], **more: Any) -> Any:
        return train_on(config, observers=[*observers, interrupt], **more)

    arguments = (
        "train",
        *SMALL,
        "--epsilon",
        5,
        "--json",
        "--save",
        "run.npz",
        "--checkpoint",
        "half.npz",
    )
    with monkeypatch.context() as patch:
        patch.setattr(import_module("sottovoce.cli.train"), "train_on", interrupted)
        ran = run(*arguments)
    assert (ran.code, ran.out) == (130, "") and ran.err.strip() == "interrupted"
    assert [path.name for path in tmp_path.iterdir()] == ["half.npz"]
    resumed = ok(*arguments).json
    assert numbers(resumed) == numbers(ok(*arguments[:-2]).json)


# Training, for people

BAR = "█"


def squeeze(text: str) -> str:
    """Words without the panel's frame and line breaks."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("epsilon", [1.2341, 2.9996, 4.0])
def test_the_printed_text_of_a_private_run_has_the_numbers_of_its_json(
    ok: Call, epsilon: float
) -> None:
    small = ("train", *SMALL, "--epsilon", epsilon, "--replicates", 2)
    shown, report = ok(*small).out, ok(*small, "--json").json
    words = squeeze(shown)
    spent = report["privacy"]["epsilon"]
    stated = re.search(
        r"epsilon = (\d+\.\d{3}), delta = 0 \(pure\), proved .*Accountant: sum of pure ", words
    )
    assert stated is not None
    assert spent <= float(stated[1]) < spent + 0.001 + 1e-9
    assert f"{report['privacy']['releases']} releases a site" in words
    for phrase in (
        "Protects one row of one site",
        "replace-one",
        "sees every message of every round",
        "not a release",
    ):
        assert phrase in words
    header = re.match(r"(\S+) \((\w+)\) on (\S+): (\d+) sites of (\S+) rows", words)
    assert header is not None
    assert header.groups() == ("mr_admm", "corrected", "synthetic:n=600,d=5,seed=1", "5", "120")
    length = re.search(r"(\d+) of (\d+) rounds, (\d+) replicates", words)
    assert length is not None and length.groups() == ("6", "6", "2")
    lines = {line.split("  ")[0]: line for line in shown.splitlines() if BAR in line}
    assert set(lines) == {"this run", "without privacy", "majority"}
    for name, key in (("this run", "test_error"), ("without privacy", "nonprivate_test_error")):
        assert f"{100 * (1 - report[key]):.2f}" in lines[name]
    assert (
        f"{100 * (1 - report['test_error']):.2f} ± {100 * report['test_error_sd']:.2f}"
        in lines["this run"]
    )
    sites = [line.split() for line in shown.splitlines() if re.match(r"\s+\d\s", line)]
    assert [line[0] for line in sites] == list("01234")
    for line, node, error in zip(
        sites, report["privacy"]["per_node"], report["site_test_error"], strict=True
    ):
        assert line[1] == "120"
        assert node <= float(line[3]) < node + 0.001 + 1e-9
        assert line[4] == f"{100 * (1 - error):.2f}"
    assert "150 test rows" in words and "taken as public" in words


@pytest.mark.parametrize("epsilon", [0.5, 2, 5, 12, 60, 500])
def test_the_factor_in_words_is_not_smaller_than_what_is_proved(ok: Call, epsilon: float) -> None:
    words = squeeze(ok("train", *SMALL, "--epsilon", epsilon).out)
    found = re.search(r"is at most (\S+) times its probability with another in its place", words)
    assert found is not None
    said = found[1].replace("10^", "1e").replace(",", "")
    assert math.log(float(said)) >= 0.999999999 * epsilon


@pytest.mark.parametrize("method", METHODS)
def test_a_run_without_noise_says_so_first(ok: Call, method: str) -> None:
    words = squeeze(ok("train", *SMALL, "--method", method, "--epsilon", "inf").out)
    statement = words.partition(" Privacy ")[2]
    assert statement.startswith("No privacy guarantee:") and "(epsilon = inf)" in statement
    assert "proved" not in words and "Protects" not in words


def test_a_method_without_noise_needs_no_epsilon(ok: Call) -> None:
    assert ok("train", *SMALL, "--method", "admm", "--json").json["privacy"]["epsilon"] == "inf"


def test_the_printed_form_says_whether_the_paper_s_claim_holds(ok: Call) -> None:
    small = ("train", *SMALL, "--epsilon", 5, "--form", "printed")
    for method, expected in (("dvp", "is not proved"), ("mr_admm", "holds")):
        words = squeeze(ok(*small, "--method", method).out)
        claim = re.search(r"the paper claims (\S+), which (is not proved|holds)\b", words)
        assert claim is not None and claim.groups() == ("5.000", expected)
        assert "Assumes exact minimisation" in words[claim.end() :]


def test_the_statement_of_zero_out_compares_a_row_with_an_empty_one(ok: Call) -> None:
    words = squeeze(ok("train", *SMALL, "--epsilon", 5, "--set", "relation=zero-out").out)
    assert "(zero-out)" in words and "an empty one" in words and "with another" not in words


def test_no_control_characters_without_a_terminal(run: Call) -> None:
    ran = run("train", *SMALL, "--epsilon", 5)
    assert ran.err == "" and not re.search(r"[\x1b\r━╸]", ran.out)


def test_the_table_of_sites_shows_ten_and_counts_the_others(ok: Call) -> None:
    shown = ok("train", *SMALL, "--epsilon", 50, "--nodes", 13).out
    sites = [line.split()[0] for line in shown.splitlines() if re.match(r"\s+\d+\s", line)]
    assert sites == [str(i) for i in range(10)] and "and 3 more" in shown


@pytest.mark.parametrize("name", ["rows[red].csv", "rows[bold]x.csv"])
def test_names_with_brackets_are_shown_as_they_are(
    ok: Call, clinic: Clinic, tmp_path: Path, name: str
) -> None:
    write_csv(tmp_path / name, clinic.table)
    shown = ok(*clinic.train, "--data", name, "--save", "run[dim].npz").out
    assert name in shown and "saved to run[dim].npz" in shown


def test_a_screen_of_sixty_columns_shows_the_same_words(
    ok: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ("train", *SMALL, "--epsilon", 5, "--replicates", 2)
    wide = ok(*small).out
    monkeypatch.setenv("COLUMNS", "60")
    narrow = ok(*small).out
    assert max(map(len, narrow.splitlines())) <= 60 < max(map(len, wide.splitlines()))

    def essence(text: str) -> list[str]:  # all words, but for the bars and the seconds
        kept = re.sub(rf"[{BAR}…]|\d\.\d s of", "", text)
        return sorted(squeeze(kept).split())

    assert essence(narrow) == essence(wide)


def test_bars_at_sixty_columns_are_whole(ok: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    small = (
        "train",
        "--data",
        "synthetic:n=600,d=5,seed=1,margin=60",
        "--method",
        "admm",
        "--replicates",
        2,
    )
    shown, report = ok(*small).out, ok(*small, "--json").json
    assert report["nonprivate_test_error"] < 0.1 < report["majority_test_error"]
    assert "…" not in shown
    bars = {line.split("  ")[0]: line.count(BAR) for line in shown.splitlines() if BAR in line}
    share = (1 - report["majority_test_error"]) / (1 - report["nonprivate_test_error"])
    assert bars["majority"] / bars["without privacy"] == pytest.approx(share, abs=0.05)


# As a program of its own


def program(*arguments: object, columns: int = 80) -> subprocess.CompletedProcess[str]:
    coloured = ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "LINES")
    environment = {name: value for name, value in os.environ.items() if name not in coloured}
    return subprocess.run(
        [sys.executable, "-m", "sottovoce", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env=environment | {"COLUMNS": str(columns), "PYTHONIOENCODING": "utf-8"},
        timeout=120,
        check=False,
    )


def test_a_process_shows_the_caveat_of_a_data_dependent_encoding() -> None:
    ran = program(
        "train", "--data", "adult-002", "--method", "mr_admm", "--pure", "--rounds", 2, columns=60
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    words = squeeze(ran.stdout)
    caveat = words.partition("Not covered: ")[2]
    assert caveat.startswith("the encoding was") and "epsilon does not" in caveat
    stated = re.search(r"epsilon = (\S+), delta = (\S+) \((\w+)\), (\w+)", words)
    assert stated is not None and stated.groups() == ("1.000", "0", "pure", "proved")
    assert "105 features, " in words and " 2 of 2 " in words and "sites of 8,000" in words
    assert max(map(len, ran.stdout.splitlines())) <= 60
    assert not re.search(r"[\x1b\r━╸]", ran.stdout)


def test_a_process_answers_and_refuses_like_the_function(ok: Call) -> None:
    arguments = ("train", *SMALL, "--epsilon", 5, "--json")
    ran = program(*arguments)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert numbers(Ran(0, ran.stdout, "").json) == numbers(ok(*arguments).json)
    ran = program(*arguments, "--epsilon", 0)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: epsilon=0.0: ") and ran.stderr.count("\n") == 1
