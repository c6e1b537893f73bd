"""Where a run starts: the settings `start`, `public` and `public_share`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Call, Clinic, make_table, numbers, write_csv

from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.plan_file import read_plan_file
from sottovoce.runs.simulate import Result

QUICK = (
    "train",
    "--data",
    "synthetic:n=600,d=5,seed=1",
    "--method",
    "prox_admm",
    "--delta",
    "1e-5",
    "--rounds",
    "4",
)


def test_a_run_starts_from_public_rows_of_a_file(run: Call, clinic: Clinic) -> None:
    write_csv(Path("public.csv"), make_table(90, seed=5))
    ran = run(*clinic.train, "--set", "public=public.csv", "--save", "run.npz", "--json")
    assert ran.code == 0
    assert ran.json["public"]["rows"] == 90 and ran.json["start"]["kind"] == "public"
    assert sum(ran.json["n_train"]) == 320  # no row of the data became public
    assert ran.json["config"]["start"] == ran.json["start"]["digest"]
    assert ran.json["privacy"]["caveat"].startswith("the public rows")
    shown = run(*clinic.train, "--set", "public=public.csv")
    assert "90 rows" in " ".join(shown.out.split()) and "the public rows" in shown.out
    start = Result.load("run.npz").start
    assert start is not None and start.kind == "public"
    assert run("predict", "run.npz", clinic.csv).code == 0


def test_a_run_from_an_earlier_one_repeats_with_its_seed(run: Call) -> None:
    run(*QUICK, "--epsilon", 1, "--seed", 3, "--save", "first.npz")
    ran = run(
        *QUICK, "--epsilon", "0.2", "--set", "start=first.npz", "--save", "second.npz", "--json"
    )
    again = run(*QUICK, "--epsilon", "0.2", "--set", "start=first.npz", "--json")
    assert ran.code == 0 and numbers(ran.json) == numbers(again.json)
    assert (
        ran.json["privacy"]["epsilon"] <= 0.2 and "can be removed" in ran.json["privacy"]["caveat"]
    )
    first, second = Result.load("first.npz"), Result.load("second.npz")
    assert second.start is not None and np.array_equal(second.start.vector, first.consensus[0])
    said = " ".join(run(*QUICK, "--epsilon", "0.2", "--set", "start=first.npz").out.split())
    assert "of both totals" in said and "never release" in said


def test_a_checkpoint_of_another_starting_point_is_refused(run: Call) -> None:
    run(*QUICK, "--seed", 3, "--save", "first.npz")
    assert run(*QUICK, "--checkpoint", "half.npz", "--set", "start=first.npz").code == 0
    ran = run(*QUICK, "--checkpoint", "half.npz")
    assert ran.code == 2 and "another configuration" in ran.err
    assert run(*QUICK, "--checkpoint", "half.npz", "--set", "public_share=0.1").code == 2
    assert run(*QUICK, "--checkpoint", "half.npz", "--set", "start=first.npz").code == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--set", "start=absent.npz"), ("absent.npz", "not a saved run")),
        (
            ("--set", "start=a.npz", "--set", "public_share=0.1"),
            ("one starting point", "give one of them"),
        ),
        (("--set", "public_share=0"), ("public_share=0.0", "> 0 and < 1")),
        (("--set", "public_share=nan"), ("public_share=nan", "> 0 and < 1")),
        (("--set", "public_share=0.1", "--system-noise"), ("only a simulation may do",)),
        (("--set", "public=rows.csv"), ("synthetic rows have no schema",)),
        (
            ("--set", "public_share=0.1", "--form", "printed", "--method", "dvp"),
            ("a printed form starts at zero",),
        ),
    ],
)
def test_a_start_or_public_share_that_does_not_fit_is_refused(
    run: Call, more: tuple[object, ...], words: tuple[str, ...]
) -> None:
    ran = run(*QUICK, *more)
    assert ran.code == 2 and ran.err.count("\n") == 1
    assert all(word in ran.err for word in words), ran.err


def test_a_release_never_starts_from_a_simulation_and_the_data_are_not_public(
    run: Call, clinic: Clinic
) -> None:
    run(*clinic.train, "--save", "sim.npz")
    ran = run(*clinic.train, "--set", "start=sim.npz", "--system-noise")
    assert ran.code == 2 and "protects nothing" in ran.err
    ran = run(*clinic.train, "--set", f"public={clinic.csv}")
    assert ran.code == 2 and "data itself" in ran.err
    clinic.says_nothing_private(ran.err)
    ran = run(*QUICK, "--set", "start=sim.npz")
    assert ran.code == 2 and "another schema" in ran.err


def test_the_plan_of_separate_sites_holds_the_start(run: Call, clinic: Clinic) -> None:
    pytest.importorskip("cryptography")
    publics: list[object] = []
    for name in ("north", "east", "south"):
        path = Path(f"{name}.public.json")
        path.write_text(json.dumps({"name": name, "rows": 200, "key": SigningKey.make().public}))
        publics += ["--site", path]
    knobs = ("--method", "prox_admm", "--rounds", 4, "--epsilon", 1, "--delta", "1e-5")
    write = (
        "plan",
        "--write",
        "plan.json",
        "--run",
        "r",
        "--schema",
        clinic.schema,
        *publics,
        *knobs,
    )
    write_csv(Path("public.csv"), make_table(90, seed=5))
    ran = run(*write, "--set", "public=public.csv")
    assert ran.code == 0 and "the public rows" in ran.out
    plan = read_plan_file("plan.json")
    assert (
        plan.start is not None
        and plan.config.start == plan.start.digest
        and plan.start.kind == "public"
    )

    pure = clinic.train.index("--pure")
    train = (
        *clinic.train[:pure],
        *clinic.train[pure + 1 :],
        "--method",
        "prox_admm",
        "--delta",
        "1e-5",
    )
    ran = run(*train, "--save", "sim.npz")
    assert ran.code == 0, ran.err
    ran = run(*write, "--set", "start=sim.npz")
    assert ran.code == 2 and "protects nothing" in ran.err
    assert run(*train, "--system-noise", "--rounds", 1, "--save", "real.npz").code == 0
    assert run(*write, "--set", "start=real.npz").code == 0
    plan = read_plan_file("plan.json")
    assert plan.start is not None and plan.start.kind == "run" and plan.start.epsilon is not None
    both = run(*write, "--set", "start=real.npz", "--set", "public=public.csv")
    assert both.code == 2 and both.err.startswith("error: start:")
    assert "with --write" in run("plan", "--set", "start=real.npz").err
