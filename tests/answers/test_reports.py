"""Reports as HTML pages: what they show and leave out, and that no document can break or script
them.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from markupsafe import escape
from scipy.special import expit
from scipy.stats import norm

from sottovoce import ConsensusClassifier, ConsensusRegressor
from sottovoce.answers.coefficients import Coefficients
from sottovoce.answers.saved import SavedModel
from sottovoce.cli import cli
from sottovoce.errors import InvalidInput
from sottovoce.privacy.statement import Statement
from sottovoce.reports import data_protection, page, picture, sections, statistical_methods
from sottovoce.reports.causes import Cause
from sottovoce.reports.coefficients import (
    format_text_table,
    make_axis,
    question_mark_text,
    remarks_below_table,
    sufficient_budget_text,
)
from sottovoce.reports.page import answer
from sottovoce.reports.terms import MEANINGS
from sottovoce.reports.worth import exaggeration, width_ratio_by_noise
from sottovoce.util.pages import render_template

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import check_pages

BROWSER = next(filter(None, map(shutil.which, check_pages.BROWSERS)), None)
VOID = {"meta", "br", "img", "link", "input", "hr"}
SCHEMA = """
label = { column = "died", positive = "yes", negative = "no" }
site = "clinic"
[columns.age]
kind = "number"
lo = 20.0
hi = 80.0
typical = [30, 70]
[columns.ward]
kind = "category"
values = ["north", "south", "west"]
"""


class Reader(HTMLParser):
    """Checks that elements are closed in order, and keeps their names, titles and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def command(*words: Any) -> str:
    done = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, a schema, a run with its page, and what the same command prints as JSON."""
    place, rng, n = tmp_path_factory.mktemp("clinics"), np.random.default_rng(0), 12_000
    age, ward, clinic = rng.uniform(20, 80, n), rng.integers(3, size=n), rng.integers(3, size=n)
    p = expit(-2.0 + 0.03 * (age - 50) + np.array([0.0, 0.8, -0.5])[ward] + 0.2 * clinic)
    died = np.where(rng.random(n) < p, "yes", "no")
    wards, clinics = (
        np.array(names) for names in (["north", "south", "west"], ["Aue", "Berg", "Chur"])
    )
    rows = zip(clinics[clinic], age, wards[ward], died, strict=True)
    lines = ["clinic,age,ward,died", *(f"{c},{a:.2f},{w},{d}" for c, a, w, d in rows)]
    (place / "rows.csv").write_text("\n".join(lines) + "\n")
    (place / "schema.toml").write_text(SCHEMA)
    words = (
        "train",
        "--data",
        place / "rows.csv",
        "--schema",
        place / "schema.toml",
        "--partition",
        "site:clinic",
    )
    words += (
        "--inference",
        "--trust",
        "sum",
        "--epsilon",
        3,
        "--evaluation",
        2,
        "--set",
        "by=ward",
    )
    saved = ("--save", place / "run.json", "--report", place / "at_once.html")
    (place / "all.json").write_text(command(*words, *saved, "--json"))
    return place


@pytest.fixture(scope="module")
def record(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "run.json").read_text())["record"])


def refused(line: dict[str, Any], why: str) -> dict[str, Any]:
    numbers = ("estimate", "odds_ratio", "standard_error", "noise_share", "low", "high", "p")
    return line | dict.fromkeys(numbers) | {"refused": why, "cause": Cause.NOISE.value}


class TestPage:
    def test_report_is_one_file_without_external_requests(self, record: dict[str, Any]) -> None:
        text = page(record)
        seen = Reader(text)
        assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in seen.tags}
        assert not [
            a for _, attrs in seen.tags for a in attrs if a in ("src", "href") or a.startswith("on")
        ]
        assert "http" not in text and "url(" not in text and "@import" not in text

    @pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
    def test_report_needs_no_network_and_fits_a_phone(
        self, record: dict[str, Any], tmp_path: Path
    ) -> None:
        assert BROWSER is not None
        (tmp_path / "run.html").write_text(page(record))
        for colours in check_pages.COLOUR_SCHEMES:
            assert check_pages.opened(BROWSER, [tmp_path / "run.html"], colours) == []

    def test_every_plot_has_a_text_alternative(self, record: dict[str, Any]) -> None:
        text = page(record)
        drawings = re.findall(r"<svg[^>]*>(.*?)</svg>", text, flags=re.S)
        plots = [one for one in drawings if "cx=" in one or "<path" in one]
        named = [one for one in plots if "<title>" in one]
        assert len(named) >= 8 and len(re.findall(r"<desc>[^<]+</desc>", text)) == 2
        # the legend, with its text beside
        assert all(len(one) < 200 for one in plots if one not in named)

    def test_report_answers_the_questions_of_a_committee(self, record: dict[str, Any]) -> None:
        said = Reader(page(record, title="Who dies?")).text
        lines = {(line["name"], line["level"]): line for line in record["coefficients"]}
        south, age = lines["ward", "south"], lines["age", None]
        lead, points = answer(record)
        assert said.startswith(" ".join(("Who dies?", "Who dies?", lead, points[0], "")))
        assert lead.count(". ") == 0 and len(lead.split()) < 30
        assert "died = yes" in lead and "(95% CI " in lead
        assert all(len(point.split()) < 35 and point.endswith(".") for point in points)
        rates, cut = record["evaluation"]["rates"], f"{100 * record['evaluation']['threshold']:g}%"
        found = f"{cut} the sensitivity is {100 * rates['sensitivity']['value']:.0f}% ("
        assert found in points[-1]
        assert (
            f"{south['odds_ratio']:.2f} ({south['odds_ratio_low']:.2f} to "
            f"{south['odds_ratio_high']:.2f})" in said
        )
        over = [math.exp(40.0 * age[name]) for name in ("estimate", "low", "high")]
        assert f"{over[0]:.2f} ({over[1]:.2f} to {over[2]:.2f})" in said and "70 against 30" in said
        area = record["evaluation"]["auc"]
        assert f"{area['value']:.3f} ({area['low']:.3f} to {area['high']:.3f})" in said
        for text in (
            "Aue",
            "Berg",
            "Chur",
            "north reference",
            "epsilon = 3.000",
            "epsilon = 2.000",
            "last Hessian",
            "If all other sites collude",
            "replace-one",
            "sottovoce train --data rows.csv",
            "numpy 2",
            "Brier",
            "Calibration slope",
            "called positive",
            "ward=south",
            "A simulation, not a release",
        ):
            assert text in said, text

    def test_files_and_commands_agree(self, folder: Path) -> None:
        command("report", folder / "run.json", "--out", folder / "later.html")
        assert (folder / "later.html").read_text() == (folder / "at_once.html").read_text()
        assert not re.search("/tmp|" + re.escape(str(folder)), (folder / "later.html").read_text())

    def test_spread_between_sites_needs_three_sites(
        self, folder: Path, record: dict[str, Any]
    ) -> None:
        table = SavedModel.load(folder / "run.json").table
        found = table.between_sites()
        constants = [line for line in record["coefficients"] if line["name"] == "(constant)"]
        assert found.sd_ends[0] <= 0.2 <= found.sd_ends[1]  # of 0, .2 and .4
        for (drawn, error), line in zip(found.sites, constants, strict=True):
            assert abs(drawn - found.mean) <= abs(line["estimate"] - found.mean) + 1e-9
            assert error <= line["standard_error"] * 1.05 and line["low"] < drawn < line["high"]
        said = Reader((folder / "at_once.html").read_text()).text
        differ = "differ" if found.p < 0.05 else "do not differ significantly"
        assert f"Sites {differ} beyond" in said
        assert f"deviation of {found.sd:.3g}" in said
        assert f"and {math.exp(found.apart):.3g} times the odds" in said
        plain = copy.deepcopy(record)
        plain["coefficients"] = [
            refused(x, "noise") if x["level"] == "Aue" else x for x in plain["coefficients"]
        ]
        with pytest.raises(InvalidInput, match=r"^sites=2: "):
            Coefficients.from_plain_data(plain).between_sites()
        (folder / "two.json").write_text(json.dumps(plain))
        command("report", folder / "two.json", "--out", folder / "two.html")
        assert "their columns explain" not in (folder / "two.html").read_text()

    def test_exact_numbers_are_shown_to_the_holder_only(self, folder: Path) -> None:
        plain = json.loads((folder / "all.json").read_text())
        kept = [plain["exact"], plain["evaluation"]["exact"]]
        for numbers in kept:
            numbers |= {
                name: 0.12345 + k / 1000 for k, name in enumerate(n for n in numbers if n != "rows")
            }
        plain["test_error"], plain["notes"] = (
            0.98765,
            ["a secret of the rows (for the data's holder only)"],
        )
        public, private = (Reader(page(plain, holder=holder)).text for holder in (False, True))
        for text in ("0.1234", "0.1235", "0.1244", "0.9877", "a secret", "holder"):
            assert text not in public, text
        assert "holder only" in private
        assert "0.9877" in private and "a secret" in private and private.count("0.124") > 1

    def test_saved_runs_contain_no_exact_number(self, folder: Path, record: dict[str, Any]) -> None:
        told = json.loads((folder / "all.json").read_text())
        saved = (folder / "run.json").read_text()
        for numbers in (told["exact"], told["evaluation"]["exact"]):
            assert not [name for name, x in numbers.items() if name != "rows" and repr(x) in saved]
        assert record["n_test"] == 2400 and record["sites"] == ["Aue", "Berg", "Chur"]

    def test_undeclared_label_does_not_change_reported_rows(
        self, folder: Path, tmp_path: Path
    ) -> None:
        """The number of held-out rows is public; how many of them have a known label is not."""
        text = (folder / "rows.csv").read_text().replace(",no\n", ",lost\n")
        (tmp_path / "rows.csv").write_text(text)
        words = (
            "train",
            "--data",
            tmp_path / "rows.csv",
            "--schema",
            folder / "schema.toml",
            "--inference",
        )
        command(
            *words,
            "--trust",
            "sum",
            "--epsilon",
            3,
            "--evaluation",
            2,
            "--save",
            tmp_path / "run.json",
        )
        record = json.loads((tmp_path / "run.json").read_text())["record"]
        assert record["n_test"] == record["evaluation"]["rows"] == 2400

    def test_refusals_name_the_sufficient_budget(self, record: dict[str, Any]) -> None:
        plain = copy.deepcopy(record)
        why = (
            "too much of its variance is noise in the Hessian; epsilon 5.1, or 23,000 rows "
            "would be enough"
        )
        plain["coefficients"] = [
            refused(line, why) if line["level"] == "south" else line
            for line in plain["coefficients"]
        ]
        plain["needs"] = {"epsilon": 5.1, "rows": 23_000.0}
        said = Reader(page(plain)).text
        assert f"ward: south: {why}" in said
        plain["coefficients"] = [refused(line, why) for line in plain["coefficients"]]
        said = Reader(page(plain)).text
        needs = re.search(r"epsilon ([\d.]+) or ([\d,]+) rows", said)
        assert needs is not None and needs.groups() == ("5.1", "23,000")
        # Where the numbers are only lower bounds, they are not said to be enough.
        plain["needs"]["more"] = True
        bound = sufficient_budget_text(plain["needs"])
        assert bound.startswith("more than epsilon") and "5.1 or 23,000" in bound
        assert f"({bound} is needed)" in Reader(page(plain)).text

    @pytest.mark.parametrize("n", [1, 40])
    def test_one_coefficient_and_forty_with_long_names(
        self, record: dict[str, Any], n: int
    ) -> None:
        line = next(line for line in record["coefficients"] if line["level"] == "south")
        names = [f"therapy_within_the_last_{k}_days_" + "x" * 60 for k in range(n)]
        plain = record | {
            "coefficients": [
                line | {"name": name, "estimate": 0.1 * k - 2} for k, name in enumerate(names)
            ]
        }
        said = Reader(page(plain)).text
        assert all(name in said for name in names)
        drawn = picture(plain)
        Reader(drawn)
        assert drawn.count("<circle") == 2 * n

    def test_coefficients_without_odds(self, record: dict[str, Any]) -> None:
        plain = copy.deepcopy(record) | {"evaluation": None, "label": {"column": "days"}}
        for line in plain["coefficients"]:
            line |= {"odds_ratio": None, "odds_ratio_low": None, "odds_ratio_high": None}
        said = Reader(page(plain)).text
        assert "Associations with days" in said and "mean of days" in said
        assert "odds" not in said and "odds ratio" not in format_text_table(plain["coefficients"])

    def test_a_number_that_is_predicted_without_intervals(self, record: dict[str, Any]) -> None:
        names = ("r2", "mean_absolute_error", "root_mean_squared_error", "mean_target")
        errors = {
            name: {"value": 0.5 + k, "low": 0.25 + k, "high": 0.75 + k}
            for k, name in enumerate(names)
        }
        held = errors | {
            "rows": 2400.0,
            "unit": "days",
            "exact": {"r2": 0.1234},
            "privacy": record["privacy"],
        }
        lines = [
            {name: line[name] for name in ("name", "level", "reference", "estimate")}
            for line in record["coefficients"]
        ]
        plain = record | {
            "coefficients": lines,
            "evaluation": held,
            "label": {"column": "stay"},
            "needs": None,
        }
        said = Reader(page(plain)).text
        assert "model of stay" in said
        found = re.search(r"([\d.]+) days on average \(95% CI ([\d.]+) to ([\d.]+)\)", said)
        assert found is not None and found.groups() == ("1.5", "1.25", "1.75")
        assert (
            f"{lines[0]['estimate']:.4g}" in said
            and "interval" in said
            and "p" not in format_text_table(lines).split()
        )
        assert "0.1234" not in said and "0.1234" in Reader(page(plain, holder=True)).text

    def test_plot_positions_match_the_numbers(self, record: dict[str, Any]) -> None:
        lines = [line for line in record["coefficients"] if line["name"] != "(constant)"]
        axis = make_axis(lines)
        ticks = {text: place for place, text in axis.ticks()}
        assert "1" in ticks and ticks["1"] == axis.at(0.0) and 3 <= len(ticks) <= 7
        south = next(line for line in lines if line["level"] == "south")
        share = (south["estimate"] - axis.low) / (axis.high - axis.low)
        assert f'cx="{100 * share:.2f}%"' in page(record)


class TestAnybody:
    EVIL = '<script>alert("1")</script><img src=x onerror=y>&'

    def poisoned(self, plain: Any) -> Any:
        if isinstance(plain, dict):
            return {
                k: self.poisoned(v) if k not in ("privacy", "config") else v
                for k, v in plain.items()
            }
        if isinstance(plain, list):
            return [self.poisoned(x) for x in plain]
        return plain + self.EVIL if isinstance(plain, str) else plain

    def test_every_text_is_escaped(self, record: dict[str, Any]) -> None:
        plain = self.poisoned(copy.deepcopy(record))
        plain["coefficients"][-1]["name"] = self.EVIL
        plain["evaluation"]["by"] = {self.EVIL: next(iter(plain["evaluation"]["by"].values()))}
        plain["notes"] = [self.EVIL]
        whole, part = (
            page(plain, title=self.EVIL, holder=True),
            render_template("sections.html", **sections(plain)),
        )
        for text in (whole, part, picture(plain)):
            assert "<script" not in text and "<img" not in text and "&lt;script" in text
            Reader(text)

    @pytest.mark.parametrize(
        "place", ["coefficients", "evaluation", "privacy", "n_train", "sites", "asked", "label"]
    )
    @pytest.mark.parametrize("wrong", [7, "text", [1], {"a": 1}, [{"name": "x"}], [None]])
    def test_other_documents_are_refused_in_one_line(
        self, record: dict[str, Any], place: str, wrong: Any
    ) -> None:
        """Or shown, where the document is readable without the wrong part."""
        found = ""
        with contextlib.suppress(InvalidInput):
            found = page(record | {place: wrong})
        Reader(found)
        assert not found or place in ("sites", "asked", "label", "evaluation", "coefficients")

    @pytest.mark.parametrize("wrong", ["1", None, "inf", [], True, "<b>"])
    def test_values_of_other_types_are_refused(self, record: dict[str, Any], wrong: Any) -> None:
        lines = copy.deepcopy(record["coefficients"])
        lines[0]["low"] = wrong
        with pytest.raises(InvalidInput, match=r"^run: "):
            page(record | {"coefficients": lines})

    def test_files_without_a_run_are_refused(self, tmp_path: Path) -> None:
        for text in ("{}", '{"record": 3}', '{"record": {}}', "no", "[1]", ""):
            (tmp_path / "x.json").write_text(text)
            done = CliRunner().invoke(cli, ["report", str(tmp_path / "x.json")])
            assert done.exit_code != 0 and not (tmp_path / "x.html").exists(), text
            assert done.exception is not None and "use a" in str(done.exception)


class TestCommands:
    def test_a_run_without_inference(self, folder: Path, tmp_path: Path) -> None:
        run, files = (
            tmp_path / "run.npz",
            ("--data", folder / "rows.csv", "--schema", folder / "schema.toml"),
        )
        words = ("--method", "prox_admm", "--rounds", 5, "--evaluation", 2)
        command("train", *files, *words, "--save", run, "--report", tmp_path / "a.html")
        command("report", run, "--out", tmp_path / "b.html")
        assert (tmp_path / "a.html").read_text() == (tmp_path / "b.html").read_text()
        said = Reader((tmp_path / "a.html").read_text()).text
        assert "died = yes" in said and "higher probability" in said and "Which columns" not in said
        done = CliRunner().invoke(cli, ["report", str(run), "--plot", str(tmp_path / "p.svg")])
        assert isinstance(done.exception, InvalidInput) and done.exception.field == "plot"

    def test_evaluate_writes_the_answers_of_run_and_rows(
        self, folder: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "e.html"
        command(
            "evaluate", folder / "run.json", folder / "rows.csv", "--epsilon", 0.7, "--report", out
        )
        said = Reader(out.read_text()).text
        assert "Which columns matter" in said and "12,000 rows that" in said
        assert "epsilon = 0.700" in said and "evaluate run.json rows.csv" in said

    @pytest.mark.parametrize("name", ["run.json", "run.npz"])
    def test_predict_at_a_threshold(self, folder: Path, tmp_path: Path, name: str) -> None:
        run = folder / name
        if name == "run.npz":
            run, files = (
                tmp_path / name,
                ("--data", folder / "rows.csv", "--schema", folder / "schema.toml"),
            )
            command("train", *files, "--method", "prox_admm", "--rounds", 3, "--save", run)
        for cut in (0.1, 0.3):
            answers = json.loads(
                command("predict", run, folder / "rows.csv", "--threshold", cut, "--json")
            )
            assert all((a["prediction"] == "yes") == (a["probability"] >= cut) for a in answers)
            assert {a["prediction"] for a in answers} == {"yes", "no"} or cut == 0.1
        assert "inside (0, 1)" in str(
            CliRunner().invoke(cli, ["predict", str(run), "x", "--threshold", "1.5"]).exception
        )

    def test_a_loss_without_probabilities_has_no_threshold(
        self, folder: Path, tmp_path: Path
    ) -> None:
        run, files = (
            tmp_path / "run.npz",
            ("--data", folder / "rows.csv", "--schema", folder / "schema.toml"),
        )
        command(
            "train",
            *files,
            "--method",
            "prox_admm",
            "--rounds",
            3,
            "--set",
            "loss=huber:0.5",
            "--save",
            run,
        )
        words = ["predict", str(run), str(folder / "rows.csv"), "--threshold", "0.3"]
        assert "no probability" in str(CliRunner().invoke(cli, words).exception)


class TestEstimators:
    def test_print_shows_statement_and_table(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(12_000, 2))
        y = (rng.random(12_000) < expit(X @ [0.8, -0.5] - 0.5)).astype(int)
        model = ConsensusClassifier(inference=True, epsilon=3.0, data_norm=3.0, random_state=0)
        assert str(model) == repr(model)
        said = str(model.fit(X, y))
        assert (
            said.startswith(repr(model))
            and "epsilon = 3.000" in said
            and str(model.coefficients_) in said
        )
        *table, weighed = str(model.coefficients_).splitlines()
        assert "data_norm" in weighed and weighed in model.page()
        heads = "column estimate std. error noise odds ratio (95% interval) p"
        assert table[0].split() == heads.split()
        first = model.coefficients_.lines[0]
        assert table[1].split()[:2] == ["x0", f"{first.estimate:.3f}"] and table[1].endswith(
            "<.001"
        )
        assert len({len(line) for line in table}) == 1
        assert (
            "<table>" in model._repr_html_()
            and "95% interval" in model._repr_mimebundle_()["text/html"]
        )
        few = ConsensusClassifier(inference=True, epsilon=0.03, data_norm=3.0, random_state=0).fit(
            X[:3000], y[:3000]
        )
        assert (
            "refused" in str(few)
            and "are not printed" in str(few)
            and "are not printed" in few.page()
        )

    def test_regressors_show_their_statement(self) -> None:
        X = np.random.default_rng(0).normal(size=(4000, 2))
        model = ConsensusRegressor((0, 20), data_norm=3.0, trust="sum", random_state=0).fit(
            X, 10 + X[:, 0]
        )
        assert "epsilon = 1.000" in str(model) and "epsilon = 1.000" in model._repr_html_()


LONG = "scale = 1.0\n" + SCHEMA


class TestLongRows:
    """Remarks on whose coefficients these are, where long rows count for less."""

    def trained(self, folder: Path, text: str, *more: object) -> tuple[str, dict[str, Any], str]:
        schema, run, said = (folder / f"long.{ext}" for ext in ("toml", "json", "html"))
        schema.write_text(text)
        words = (
            "train",
            *(more or ("--data", folder / "rows.csv")),
            "--schema",
            schema,
            "--partition",
            "site:clinic",
        )
        screen = command(
            *words, "--inference", "--trust", "sum", "--epsilon", 5, "--save", run, "--report", said
        )
        return " ".join(screen.split()), json.loads(run.read_text())["record"], said.read_text()

    def test_long_rows_are_mentioned_on_screen_in_record_and_on_page(self, folder: Path) -> None:
        screen, kept, shown = self.trained(folder, LONG)
        share = re.search(r"\(about (\d+)% of all, from the schema alone\) count for less", screen)
        assert share is not None and int(share[1]) > 50
        assert kept["weighed"] in screen and escape(kept["weighed"]) in shown

    def test_long_rows_are_not_mentioned_without_need(self, folder: Path) -> None:
        screen, kept, shown = self.trained(folder, SCHEMA.replace("typical = [30, 70]\n", ""))
        assert kept["weighed"] == "" and "count for less" not in screen + shown
        lines = [refused(line, "noise") for line in kept["coefficients"]]
        remark_on_long_rows = "Rows count for less."
        assert "count for less" not in remarks_below_table(lines, None, remark_on_long_rows)

    def test_remark_on_long_rows_follows_from_the_schema_alone(self, folder: Path) -> None:
        """Other rows give the same words: no private row is counted."""
        head, *rows = (folder / "rows.csv").read_text().splitlines()
        few = folder / "few.csv"
        few.write_text(
            "\n".join([head, *(re.sub(r",\d+\.\d+,", ",50.00,", row) for row in rows[:6000])])
            + "\n"
        )
        _, kept, _ = self.trained(folder, LONG)
        _, other, _ = self.trained(folder, LONG, "--data", few)
        assert other["n_train"] != kept["n_train"] and other["weighed"] == kept["weighed"]

    def test_training_that_clips_rows_reports_it(self, folder: Path) -> None:
        words = ("--data", folder / "rows.csv", "--method", "prox_admm", "--rounds", 2, "--json")
        schema = folder / "rounds.toml"
        for text in (SCHEMA, LONG):
            schema.write_text(text)
            notes = json.loads(command("train", *words, "--schema", schema))["notes"]
            assert any("clipped rows" in note for note in notes) is (text == LONG)


class TestWhatALineIsWorth:
    """How much wider noise makes intervals, and by how much clear lines exaggerate."""

    def test_times_wider_is_the_root_of_total_over_sampling(self, record: dict[str, Any]) -> None:
        assert (
            width_ratio_by_noise(0.0) == 1.0
            and width_ratio_by_noise(0.75) == 2.0
            and width_ratio_by_noise(None) is None
        )
        assert (
            width_ratio_by_noise(0.99) == pytest.approx(10.0)
            and width_ratio_by_noise(1.0) == math.inf
        )
        for line in record["coefficients"]:
            assert line["times_wider"] == pytest.approx(1.0 / math.sqrt(1.0 - line["noise_share"]))

    @pytest.mark.parametrize("z", [0.5, 2.0, 3.0, 6.0])
    def test_exaggeration_is_that_of_repeated_draws(self, z: float) -> None:
        drawn = z + np.random.default_rng(0).normal(size=1_000_000)
        picked = np.abs(drawn[np.abs(drawn) > 1.959964])
        assert exaggeration(2.0 * z, 2.0) == pytest.approx(picked.mean() / z, rel=0.01)
        assert exaggeration(-2.0 * z, 2.0) == exaggeration(2.0 * z, 2.0)
        assert exaggeration(1.0, 0.0) == 1.0

    def line(self, name: str, share: float, estimate: float) -> dict[str, Any]:
        p = 2.0 * float(norm.sf(abs(estimate) / 0.1))
        known = {
            "name": name,
            "level": None,
            "reference": None,
            "unit": None,
            "refused": None,
            "unsure": False,
        }
        return known | {"noise_share": share, "estimate": estimate, "standard_error": 0.1, "p": p}

    def test_wide_intervals_are_remarked_once(self) -> None:
        lines = [self.line("a", 0.1, 1.0), self.line("b", 0.9917, 0.05)]
        assert remarks_below_table([lines[0]], None) == ""
        said = remarks_below_table(lines, None)
        assert "1 in 120" in said and "11.0 times" in said and said.count("rows") == 1

    def test_lines_that_are_picked_out_by_chance_and_noise_are_named(self) -> None:
        noisy, plain, clear = (
            self.line("a", 0.6, 0.21),
            self.line("b", 0.2, 0.21),
            self.line("c", 0.6, 0.9),
        )
        assert "too large" in remarks_below_table([noisy], None) and "34%" in remarks_below_table(
            [noisy], None
        )
        assert "too large" not in remarks_below_table([plain], None) + remarks_below_table(
            [clear], None
        )

    def test_marked_line_states_its_reason(self) -> None:
        line = self.line("a", 0.2, 0.05) | {
            "unsure": True,
            "cause": "hidden",
            "low": -0.1,
            "high": 0.2,
            "odds_ratio": 1.05,
            "steps": 1.0,
            "typical": None,
        }
        for cause, label in (
            ("hidden", Cause.HIDDEN.label),
            ("strained", Cause.STRAINED.label),
            ("later", ""),
        ):
            told = line | {"cause": cause}
            assert format_text_table([told]).splitlines()[1].endswith(label)
            assert question_mark_text(told) == (f"? ({label.rstrip('?')})" if label else "?")
        refused = dict.fromkeys(("estimate", "p", "low", "high", "noise_share", "standard_error"))
        told = line | refused | {"refused": "so", "unsure": False, "cause": "lost"}
        assert (
            format_text_table([told]).splitlines()[1].endswith(Cause.LOST.label)
            and question_mark_text(told) == ""
        )


def test_independence_remark_is_in_record_and_page(record: dict[str, Any]) -> None:
    assert record["clusters"] and escape(record["clusters"]) in page(record)
    assert Coefficients.from_plain_data(record).clusters == record["clusters"]


# Paragraphs to paste, and words explained


def test_the_methods_paragraph_counts_rows_sites_and_refused_lines(record: dict[str, Any]) -> None:
    said = statistical_methods(record, "died = yes")
    assert f"{sum(record['n_train']):,.0f} rows at 3 sites" in said
    assert "logistic" in said and " age and ward" in said and "not reported" not in said
    lines = [refused(line, "noise") for line in record["coefficients"][:1]]
    some = record | {"coefficients": lines + record["coefficients"][1:]}
    assert f"Of {len(record['coefficients'])} coefficients 1 " in statistical_methods(some, "died")


def test_the_methods_paragraph_claims_no_intervals_where_none_were_asked_for(
    record: dict[str, Any],
) -> None:
    plain = [
        {name: line[name] for name in ("name", "level", "reference", "unit", "estimate")}
        for line in record["coefficients"]
    ]
    said = statistical_methods(record | {"coefficients": plain}, "died = yes")
    assert "standard errors" not in said.lower() and "p values" not in said


def test_the_data_protection_paragraph_is_the_statement_word_for_word(
    record: dict[str, Any],
) -> None:
    privacy = Statement.from_dict(record["privacy"])
    said = data_protection(privacy, [])
    for head, rest in privacy.words:
        exact = " ".join(f"{head}{rest}".split())
        assert exact in said or "described below" in exact  # that sentence speaks of the page
    assert privacy.public in said


def test_a_run_without_a_guarantee_claims_none_in_its_paragraph(record: dict[str, Any]) -> None:
    plain = record["privacy"] | {"epsilon": math.inf, "form": "printed"}
    said = data_protection(Statement.from_dict(plain), [])
    assert said.startswith("No privacy guarantee") and "Differential privacy with" not in said


def test_a_page_explains_the_words_of_its_statement_as_the_glossary_does(
    record: dict[str, Any],
) -> None:
    glossary = tomllib.loads(
        (Path(__file__).parents[2] / "docs/reference/glossary.toml").read_text(encoding="utf-8")
    )
    told = {word["term"]: word["means"] for word in glossary["word"]}
    assert MEANINGS.items() <= told.items()
    shown = Reader(page(record)).text
    assert MEANINGS["delta"] in shown and "secure sum" in shown


@pytest.mark.skipif(BROWSER is None, reason="needs a browser")
def test_intervals_are_within_the_width_of_a_telephone(
    record: dict[str, Any], tmp_path: Path
) -> None:
    """The texts of intervals stand within 390 pixels; nothing has to be scrolled to see them."""
    assert BROWSER is not None
    place = tmp_path / "page.html"
    script = (
        "<script>document.title = 'right edge ' + Math.max(...[...document.querySelectorAll("
        "'.forest .num')].map(e => e.getBoundingClientRect().right))</script>"
    )
    place.write_text(page(record).replace("</body>", f"{script}</body>"), encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(
        f'<iframe src="{place.name}" width="390" height="800" style="border:0"></iframe>'
        "<script>onload = () => { document.title = frames[0].document.title }</script>",
        encoding="utf-8",
    )
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--allow-file-access-from-files",
            "--virtual-time-budget=3000",
            "--dump-dom",
            frame.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"right edge ([\d.]+)", done.stdout)
    assert found and 0 < float(found[1]) <= 390, done.stdout[:500]
