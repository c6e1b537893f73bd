"""Bad input and bad tables: one line, exit code 2, nothing spent, nothing written, no data
value.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import HEADER, PRIVATE, ROWS, SCHEMA, SMALL, Call, Clinic, write_csv

# Bad input: nothing is spent, nothing is written

BAD: dict[str, tuple[tuple[object, ...], tuple[str, ...]]] = {
    # arguments after a good run's, words of the message
    "epsilon-0": (("--epsilon", 0), ("epsilon=0.0", "must be > 0")),
    "epsilon-negative": (("--epsilon", -1), ("epsilon=-1.0", "must be > 0")),
    "epsilon-nan": (("--epsilon", "nan"), ("epsilon=nan", "must be > 0")),
    "delta-0": (("--delta", 0), ("delta=0.0", "(0, 1)", "--pure for none")),
    "delta-and-pure": (("--delta", 1e-6, "--pure"), ("pure=1e-06", "--delta", "one of the two")),
    "delta-1": (("--delta", 1), ("delta=1.0", "(0, 1)")),
    "delta-2": (("--delta", 2), ("delta=2.0", "(0, 1)")),
    "delta-nan": (("--delta", "nan"), ("delta=nan", "(0, 1)")),
    "method": (("--method", "sgd"), ("method='sgd'", "mr_admm", "sottovoce methods")),
    "form": (("--form", "loose"), ("form='loose'", "corrected", "printed")),
    "form-of-admm": (
        ("--method", "admm", "--epsilon", "inf", "--form", "printed"),
        ("form='printed'", "corrected"),
    ),
    "graph": (("--graph", "torus"), ("graph='torus'", "ring")),
    "graph-parameter": (("--graph", "erdos-renyi:p=2"), ("graph=", "p")),
    "graph-size": (("--graph", "grid:2x2"), ("graph='grid:2x2'", "4 nodes", "5")),
    "partition": (("--partition", "random"), ("partition='random'", "dirichlet:ALPHA")),
    "partition-argument": (("--partition", "dirichlet:x"), ("partition='dirichlet:x'", "ALPHA")),
    "partition-strength": (("--partition", "label", "--set", "strength=-1"), ("strength=-1.0",)),
    "loss": (("--set", "loss=hinge"), ("loss='hinge'", "logistic")),
    "loss-parameter": (("--set", "loss=huber:0"), ("h=0.0", "> 0")),
    "data": (("--data", "unheard"), ("data='unheard'", "adult")),
    "data-file": (("--data", "unheard.csv"), ("unheard.csv", "cannot be read")),
    "data-parameter": (("--data", "synthetic:n=10,q=3"), ("q=3", "margin")),
    "data-rows": (("--data", "synthetic:n=0,d=2"), ("n=0", "at least 1")),
    "schema-for-synthetic": (("--schema", "x.toml"), ("schema", "leave schema out")),
    "relation": (("--set", "relation=add-one"), ("relation='add-one'", "replace-one", "zero-out")),
    "nodes-0": (("--nodes", 0), ("nodes=0", "at least 1")),
    "nodes-many": (("--nodes", 601), ("nodes=601", "number of rows", "fewer nodes")),
    "site-column": (("--partition", "site:clinic"), ("column", "iid")),
    "sizes-count": (("--set", "sizes=1,2", "--nodes", 3), ("sizes", "3 positive numbers")),
    "sizes-zero": (("--set", "sizes=1,0"), ("sizes", "> 0")),
    "sizes-partition": (("--set", "sizes=1,2", "--partition", "label"), ("sizes", "iid")),
    "test-share": (("--set", "test_share=1"), ("test_share=1.0", "< 1")),
    "rounds": (("--rounds", 0), ("rounds=0", "at least 1")),
    "replicates": (("--replicates", 0), ("replicates=0", "at least 1")),
    "tol": (("--set", "tol=0"), ("tol=0.0", "> 0")),
    "rho": (("--rho", 0), ("rho=0.0", "> 0")),
    "C": (("--set", "C=nan"), ("C=nan", "> 0")),
    "eta": (("--eta", 0), ("> 0",)),
    "eta-count": (("--eta", "0.1,0.2,0.3"), ("eta", "5")),
    "eta-growth-count": (("--set", "eta_growth=1.1,1.2"), ("eta", "5")),
    "noise-count": (("--set", "noise=1,2"), ("noise", "5")),
    "gamma": (("--set", "gamma=-1"), ("gamma=-1.0", ">= 0")),
    "phi-negative": (("--method", "dvp", "--set", "phi=-0.01"), ("phi=-0.01", ">= 0")),
    "phi-negative-noise": (
        ("--method", "dvp", "--set", "phi=-1", "--set", "noise=0.3"),
        ("phi=-1.0", ">= 0"),
    ),
    "phi-nan": (("--method", "dvp", "--set", "phi=nan"), ("phi=nan",)),
    "phi-inf": (("--method", "dvp", "--set", "phi=inf"), ("phi=inf",)),
    "seed": (("--seed", -1), ("seed=-1", "at least 0")),
    "epsilon-of-admm": (
        ("--method", "admm", "--epsilon", 1),
        ("epsilon=1.0", "admm", "epsilon=inf"),
    ),
    "mr_admm-shrinks": (("--set", "eta_growth=0.9"), ("eta", "growth", "not decrease")),
    "r_admm-grows": (
        ("--method", "r_admm", "--set", "eta_growth=1.1"),
        ("eta", "growth", "mr_admm"),
    ),
    "r_admm-nodes": (("--method", "r_admm", "--eta", "0.1,0.2,0.1,0.1,0.1"), ("eta", "mr_admm")),
    "save-folder": (("--save", "nowhere/run.npz"), ("save='nowhere/run.npz'", "folder must exist")),
    "checkpoint-folder": (
        ("--checkpoint", "nowhere/c.npz"),
        ("checkpoint='nowhere/c.npz'", "folder must exist"),
    ),
    "checkpoint-system-noise": (("--system-noise",), ("seed", "repeat")),
    "deal-by-label": (
        ("--system-noise", "--partition", "label"),
        ("partition='label'", "move", "iid"),
    ),
    "deal-by-classes": (
        ("--system-noise", "--partition", "dirichlet:1"),
        ("partition='dirichlet:1'", "move", "iid"),
    ),
    "deal-by-column": (
        ("--system-noise", "--partition", "column:site"),
        ("partition='column:site'", "move", "iid"),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_argument_is_refused_by_its_name_and_value(
    refused: Callable[..., str], case: str
) -> None:
    arguments, words = BAD[case]
    good = (
        "train",
        *ROWS,
        "--method",
        "mr_admm",
        "--epsilon",
        5,
        "--save",
        "run.npz",
        "--checkpoint",
        "half.npz",
    )
    message = refused(*good, *arguments)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    "arguments", [("--epsilon", "much"), ("--eta", "1,x"), ("--rounds", "2.5"), ("--frobnicate",)]
)
def test_unknown_options_and_values_of_the_wrong_type_are_usage_errors(
    run: Call, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    ran = run("train", *SMALL, "--save", "run.npz", *arguments)
    assert (ran.code, ran.out) == (2, "") and list(tmp_path.iterdir()) == []
    assert "Error: " in ran.err.splitlines()[-1] and arguments[0] in ran.err.splitlines()[-1]
    assert "Traceback" not in ran.err


def test_the_base_of_all_bad_arguments_is_good(ok: Call, tmp_path: Path) -> None:
    ok("train", *SMALL, "--epsilon", 5, "--save", "run.npz", "--checkpoint", "half.npz")
    assert {path.name for path in tmp_path.iterdir()} == {"run.npz", "half.npz"}


def test_a_disconnected_graph_is_refused_with_its_components(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "net.txt").write_text("0 1\n2 3\n")
    for nodes in ((), ("--nodes", 5)):
        message = refused(
            "train", *SMALL, "--epsilon", 5, "--graph", "edges:net.txt", *nodes, "--save", "run.npz"
        )
        assert "graph='edges:net.txt'" in message and "connected" in message
        assert re.findall(r"\{([\d, ]+)\}", message) == ["0, 1", "2, 3", "4"]


def test_noise_too_small_for_one_round_says_what_it_costs(
    refused: Callable[..., str], ok: Call
) -> None:
    small = ("train", *SMALL, "--method", "dvp")
    message = refused(*small, "--set", "noise=7", "--epsilon", 2, "--save", "run.npz")
    assert "epsilon=2.0" in message and "noise" in message
    found = re.search(r"one round costs (\S+);", message)
    assert found is not None
    cost = float(found[1])  # alpha is the price of a release of the corrected form
    assert cost == pytest.approx(7, rel=1e-3)
    report = ok(*small, "--set", "noise=7", "--epsilon", cost * 1.001, "--json").json
    assert (report["rounds"], report["stopped"]) == (1, "budget spent")


@pytest.mark.parametrize("method", PRIVATE)
def test_an_epsilon_below_the_curvature_says_the_least(
    refused: Callable[..., str], ok: Call, method: str
) -> None:
    arguments = (
        "train",
        *SMALL,
        "--method",
        method,
        "--rho",
        0.001,
        "--eta",
        0.001,
        "--save",
        "run.npz",
    )
    message = refused(*arguments, "--epsilon", 0.5)
    assert "epsilon=0.5" in message and "larger epsilon" in message
    found = re.search(r"at least (\S+)", message)
    assert found is not None
    least = float(found[1])
    # K = n (rho/N + 2 eta V): a release costs ln(1 + 1/(4K)) by its curvature alone, and 1% for the
    # solver's answer.
    K, releases = 120 * (0.001 / 5 + 2 * 0.001 * 2), 6 if method == "dvp" else 3
    assert least == pytest.approx(1.01 * releases * math.log1p(1 / (4 * K)), rel=1e-3)
    assert (
        ok(*arguments, "--epsilon", 1.2 * least, "--json").json["privacy"]["epsilon"] <= 1.2 * least
    )


@pytest.mark.parametrize("method", PRIVATE)
def test_hardly_any_curvature_cannot_be_private(refused: Callable[..., str], method: str) -> None:
    knobs = ("--rho", 1e-9, "--eta", 1e-9, "--epsilon", 1e-3)
    message = refused("train", *SMALL, "--method", method, *knobs, "--save", "run.npz")
    found = re.search(r"at least (\S+)", message)
    assert "epsilon=0.001" in message and found is not None
    K, releases = 120 * (1e-9 / 5 + 2 * 1e-9 * 2), 6 if method == "dvp" else 3
    assert float(found[1]) == pytest.approx(1.01 * releases * math.log1p(1 / (4 * K)), rel=1e-3)


def test_the_defaults_on_a_small_table_train_or_are_refused(run: Call) -> None:
    for method in PRIVATE:
        ran = run("train", "--data", "synthetic:n=600,d=5,seed=1", "--method", method, "--json")
        assert ran.code in (0, 2), ran.err


def test_json_is_strict_whatever_the_unused_knobs(run: Call) -> None:
    for arguments in (
        ("dvp", "--set", "gamma=inf"),
        ("dvp", "--set", "gamma=nan"),
        ("mr_admm", "--set", "phi=nan"),
    ):
        ran = run("train", *SMALL, "--epsilon", 5, "--json", "--method", *arguments)
        assert ran.code == 2 or ran.json["method"] == arguments[0]  # refusing them is as good


# Bad tables


def test_entries_that_are_no_finite_numbers_are_refused_without_their_values(
    refused: Callable[..., str], clinic: Clinic
) -> None:
    for word in ("nan", "NaN", "inf", "-Infinity", "1e999", "seventy-odd"):
        for column, name in ((0, "age"), (1, "dose")):
            table = [list(row) for row in clinic.table]
            table[17][column] = word
            write_csv(clinic.csv, table)
            message = refused(*clinic.train, "--save", "run.npz", "--checkpoint", "half.npz")
            assert f"error: {name}: " in message and "finite number" in message
            assert word not in message
            clinic.says_nothing_private(message)


def test_missing_entries_are_refused_by_column_without_values(
    refused: Callable[..., str], clinic: Clinic
) -> None:
    write_csv(clinic.csv, [["", *row[1:]] if k == 5 else row for k, row in enumerate(clinic.table)])
    message = refused(*clinic.train, "--save", "run.npz")
    assert "age" in message and "missing = VALUE" in message
    clinic.says_nothing_private(message)


def test_a_table_that_lacks_columns_of_the_schema_is_refused(
    refused: Callable[..., str], clinic: Clinic
) -> None:
    whole = clinic.csv.read_bytes()
    write_csv(
        clinic.csv,
        [[*row[:1], *row[2:]] for row in clinic.table],
        ["age", "colour", "hospital", "outcome"],
    )
    message = refused(*clinic.train, "--save", "run.npz")
    assert "dose" in message and "not have it" in message
    clinic.says_nothing_private(message)

    clinic.csv.write_bytes(whole)
    clinic.schema.write_text(
        SCHEMA.replace('[columns.dose]\nkind = "number"\nlo = 0\nhi = 10\n', "")
    )
    message = refused(*clinic.train, "--save", "run.npz")
    assert "dose" in message and "does not declare" in message and 'ignore = ["dose"]' in message
    clinic.says_nothing_private(message)


def test_a_table_without_a_header_shows_none_of_its_first_row(
    refused: Callable[..., str], clinic: Clinic
) -> None:
    with clinic.csv.open("w", newline="") as file:
        csv.writer(file).writerows(clinic.table)
    message = refused(*clinic.train, "--save", "run.npz")
    assert "header row" in message
    clinic.says_nothing_private(message)


def test_a_table_with_rows_of_other_lengths_is_refused(
    refused: Callable[..., str], clinic: Clinic
) -> None:
    write_csv(clinic.csv, [row[:-1] if k == 5 else row for k, row in enumerate(clinic.table)])
    message = refused(*clinic.train, "--save", "run.npz")
    assert "rows.csv" in message and "line 7" in message
    clinic.says_nothing_private(message)


def test_a_table_needs_a_schema(refused: Callable[..., str], clinic: Clinic) -> None:
    message = refused("train", "--data", clinic.csv, "--save", "run.npz")
    assert "error: schema: " in message and "my.toml" in message
    clinic.says_nothing_private(message)


def test_a_schema_that_cannot_be_read_is_refused(
    refused: Callable[..., str], clinic: Clinic, tmp_path: Path
) -> None:
    message = refused(*clinic.train, "--schema", "unwritten.toml", "--save", "run.npz")
    assert "schema='unwritten.toml'" in message and "No such file" in message
    (tmp_path / "bad.toml").write_text("name = clinic\n[columns\n")
    message = refused(*clinic.train, "--schema", "bad.toml", "--save", "run.npz")
    assert "schema='bad.toml'" in message and "must be TOML" in message and "line 1" in message
    # the arguments swapped
    message = refused(*clinic.train, "--schema", clinic.csv, "--save", "run.npz")
    clinic.says_nothing_private(message)
    for text, words in (
        (SCHEMA.replace('kind = "number"', 'kind = "numeral"'), ("dose.kind", "number")),
        (SCHEMA.replace("hi = 10\n", ""), ("dose", "lo and hi")),
        (SCHEMA.replace("[18, 30, 45, 60, 80]", "[18, 30, 30]"), ("age.edges", "increasing")),
        (SCHEMA.replace("intercept", "intersept"), ("intersept", "unknown")),
        (
            SCHEMA.replace(
                'label = { column = "outcome", positive = "sick", negative = "well" }', ""
            ),
            ("outcome",),
        ),
    ):
        clinic.schema.write_text(text)
        message = refused(*clinic.train, "--save", "run.npz")
        assert all(word in message for word in words), message
        clinic.says_nothing_private(message)


def test_a_site_column_that_the_table_lacks_is_refused(
    refused: Callable[..., str], clinic: Clinic
) -> None:
    for how in ("site", "column"):
        message = refused(*clinic.train, "--partition", f"{how}:ward", "--save", "run.npz")
        assert "column='ward'" in message and ", ".join(sorted(HEADER)) in message
        clinic.says_nothing_private(message)
    # --nodes 3
    message = refused(*clinic.train, "--partition", "site:hospital", "--save", "run.npz")
    assert "nodes=3" in message and "4 sites" in message
    clinic.says_nothing_private(message)
