"""A schema's site column makes the sites; a run cut at a probability is used at that one;
inference reads all rows.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Call, Clinic, make_table, write_csv

from sottovoce.answers.saved import SavedModel
from sottovoce.data import Schema, read_csv

HOSPITALS = 4


def bare(clinic: Clinic) -> tuple[object, ...]:
    """Training without a word on how rows are dealt."""
    knobs = ("--rounds", 3, "--method", "prox_admm", "--epsilon", 30, "--json")
    return ("train", "--data", clinic.csv, "--schema", clinic.schema, *knobs)


class TestSites:
    def test_sites_are_those_of_the_schema_s_site_column(self, ok: Call, clinic: Clinic) -> None:
        found, told = ok(*bare(clinic)).json, ok(*bare(clinic), "--partition", "site:hospital").json
        for report in (found, told):
            del report["seconds"]
        assert found == told
        assert (found["nodes"], found["partition"]) == (HOSPITALS, "site:hospital")
        assert not [note for note in found["notes"] if "names 'hospital'" in note]

    def test_a_typed_partition_wins_over_the_schema_s_site_column(
        self, ok: Call, clinic: Clinic
    ) -> None:
        found = ok(*bare(clinic), "--partition", "iid").json
        assert (found["nodes"], found["partition"]) == (5, "iid")
        assert [note for note in found["notes"] if "names 'hospital'" in note]

    @pytest.mark.parametrize("what", [(), ("--inference",)])
    def test_rows_dealt_to_sites_that_nobody_declared_are_said(
        self, ok: Call, clinic: Clinic, what: tuple[str, ...]
    ) -> None:
        text = clinic.schema.read_text()
        without_sites = clinic.schema.with_name("without_sites.toml")
        without_sites.write_text(text.replace('site = "hospital"', 'ignore = ["hospital"]'))
        words = ("train", "--data", clinic.csv, "--schema", without_sites, "--epsilon", 200, *what)
        dealt = ok(*words, "--json").json["notes"]
        held_by_one = ok(*words, "--trust", "curator", "--nodes", 1, "--json").json["notes"]
        said = [note for note in dealt if "dealt at random to 5 sites" in note]
        assert len(said) == 1 and "--trust curator --nodes 1" in said[0]
        assert not [note for note in held_by_one if "dealt at random" in note]

    def test_inference_names_the_sites_of_the_schema_s_column(
        self, ok: Call, clinic: Clinic
    ) -> None:
        train = (
            "train",
            "--data",
            clinic.csv,
            "--schema",
            clinic.schema,
            "--inference",
            "--epsilon",
            200,
            "--json",
        )
        assert ok(*train).json["sites"] == ["quarzberg", "tannfels", "ulmenau", "weidach"]

    def test_predictions_after_inference_have_intervals(
        self, ok: Call, refused: Any, clinic: Clinic
    ) -> None:
        many = write_csv(clinic.csv.with_name("many.csv"), make_table(4000))
        train = ("train", "--data", many, "--schema", clinic.schema, "--epsilon", 200)
        ok(*train, "--inference", "--save", "run.json")
        lines = ok("predict", "run.json", clinic.csv, "--interval", 0.95, "--json").json
        wide = ok("predict", "run.json", clinic.csv, "--interval", 0.99, "--json").json
        known = [(a, b) for a, b in zip(lines, wide, strict=True) if a["low"] is not None]
        assert len(known) > 0.9 * len(lines)
        assert all(b["low"] < a["low"] < a["probability"] < a["high"] < b["high"] for a, b in known)
        assert "inside (0, 1)" in refused("predict", "run.json", clinic.csv, "--interval", 95)
        ok(*train, "--method", "prox_admm", "--rounds", 3, "--save", "rounds.npz")
        assert "no covariance" in refused("predict", "rounds.npz", clinic.csv, "--interval", 0.95)

    @pytest.mark.parametrize(
        ("more", "rule"), [(("--nodes", 3), "4 sites"), (("--set", "sizes=2,1"), "'iid'")]
    )
    def test_other_numbers_of_sites_are_refused(
        self, refused: Any, clinic: Clinic, more: Any, rule: str
    ) -> None:
        assert rule in refused(*bare(clinic), *more)


class TestCuts:
    CUT = 0.25

    @pytest.mark.parametrize(
        "asked", [("--evaluation", 20, "--set", f"cut={CUT}"), ("--set", f"cut={CUT}")]
    )
    @pytest.mark.parametrize("kind", [("--method", "prox_admm", "--rounds", 3), ("--inference",)])
    def test_predict_uses_the_threshold_of_the_run(
        self, ok: Call, run: Call, clinic: Clinic, asked: tuple[Any, ...], kind: tuple[Any, ...]
    ) -> None:
        train = (
            "train",
            "--data",
            clinic.csv,
            "--schema",
            clinic.schema,
            "--epsilon",
            200,
            "--partition",
            "iid",
        )
        ok(*train, *kind, *asked, "--save", "run.npz")
        said = run("predict", "run.npz", clinic.csv)
        assert said.code == 0
        assert re.search(r"positive from 0\.25", said.err)
        lines = list(csv.DictReader(io.StringIO(said.out)))
        chances = np.array([float(line["probability"]) for line in lines])
        assert [line["prediction"] == "sick" for line in lines] == (chances >= self.CUT).tolist()
        assert np.any((chances >= self.CUT) & (chances < 0.5))  # or the two cuts are the same here
        given = run("predict", "run.npz", clinic.csv, "--threshold", 0.5)
        assert "positive from" not in given.err
        assert [
            line["prediction"] == "sick" for line in csv.DictReader(io.StringIO(given.out))
        ] == (chances >= 0.5).tolist()

    def test_predict_without_probabilities_uses_the_threshold_of_the_evaluation(
        self, ok: Call, run: Call, clinic: Clinic
    ) -> None:
        train = (
            "train",
            "--data",
            clinic.csv,
            "--schema",
            clinic.schema,
            "--epsilon",
            200,
            "--partition",
            "iid",
        )
        settings = ("--set", "loss=huber:0.5", "--set", f"cut={self.CUT}")
        ok(*train, "--method", "prox_admm", "--rounds", 3, *settings, "--save", "r.npz")
        saved = SavedModel.load("r.npz")
        table = read_csv(clinic.csv)
        margins = saved.margins(table, Schema.from_toml(clinic.schema).encode(table).X)
        lines = csv.DictReader(io.StringIO(run("predict", "r.npz", clinic.csv).out))
        assert [line["prediction"] == "sick" for line in lines] == (
            margins >= np.log(self.CUT / 0.75)
        ).tolist()

    def test_evaluate_uses_the_threshold_of_the_run(self, ok: Call, clinic: Clinic) -> None:
        train = (
            "train",
            "--data",
            clinic.csv,
            "--schema",
            clinic.schema,
            "--epsilon",
            30,
            "--partition",
            "iid",
        )
        ok(
            *train,
            "--method",
            "prox_admm",
            "--rounds",
            3,
            "--set",
            f"cut={self.CUT}",
            "--save",
            "r.npz",
        )
        ask = ("evaluate", "r.npz", clinic.csv, "--epsilon", 20, "--json")
        assert ok(*ask).json["threshold"] == self.CUT
        assert ok(*ask, "--threshold", 0.4).json["threshold"] == 0.4

    @pytest.mark.parametrize("cut", [0, 1, "nan"])
    def test_a_cut_is_a_probability(self, refused: Any, clinic: Clinic, cut: object) -> None:
        assert "cut" in refused(*bare(clinic), "--set", f"cut={cut}")


class TestAllRows:
    def test_inference_holds_out_none_unless_asked(
        self, ok: Call, clinic: Clinic, tmp_path: Path
    ) -> None:
        train = (
            "train",
            "--data",
            clinic.csv,
            "--schema",
            clinic.schema,
            "--inference",
            "--epsilon",
            200,
            "--json",
        )
        every = ok(*train).json
        assert (sum(every["n_train"]), every["n_test"]) == (400, 0)
        assert every["auc"] is None and every["exact"] == {}
        for more in (("--set", "test_share=0.2"), ("--evaluation", 20)):
            some = ok(*train, *more).json
            assert (sum(some["n_train"]), some["n_test"]) == (320, 80)

    def test_a_training_holds_out_none_if_asked(self, ok: Call, clinic: Clinic) -> None:
        found = ok(*bare(clinic), "--set", "test_share=0").json
        assert (sum(found["n_train"]), found["n_test"], found["test_error"]) == (400, 0, None)
