"""The studies of the package: every file loads and its first quick cell runs; a user's census and Covertype."""

from __future__ import annotations

import csv
import math
from dataclasses import replace

import numpy as np
import pytest

from sottovoce import data
from sottovoce.errors import InvalidInput
from sottovoce.runs.simulate import RunConfig, simulate
from sottovoce.studies import kinds, spec, tables
from sottovoce.studies.figures import _key
from sottovoce.studies.kinds import classes, theorems, training
from sottovoce.studies.run import run

CODES = {
    "AGE": (0, 99), "SEX": (1, 2), "MARST": (1, 4), "EDATTAIN": (1, 4), "DISABLED": (1, 2), "NATIVITY": (1, 2),
    "HRSWORK1": (0, 90), "OWNERSHIP": (1, 2), "FAMSIZE": (1, 9), "NCHILD": (0, 6), "AUTOS": (0, 4),
}  # fmt: skip


def extract(path, n=800, top=60_000):
    """A made file of the shape of an IPUMS extract: codes, and columns that nobody asked for."""
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["SAMPLE", "SERIAL", *CODES, "INCTOT"])
        for k in range(n):
            codes = [int(rng.integers(low, high + 1)) for low, high in CODES.values()]
            income = 9_999_999 if k % 10 == 0 else int(top * codes[3] / 4 * rng.random() * (codes[0] > 18))
            writer.writerow([840_201_001, k, *codes, income])
    return path


@pytest.fixture
def quick_data(monkeypatch):
    """Data that load in no time, of the same shape."""
    real = data.load
    monkeypatch.setattr(tables, "covertype", lambda few=False: (None, "no network"))
    monkeypatch.setattr(tables, "STAND_IN_ROWS", 400)
    monkeypatch.setattr(
        tables.data, "load", lambda name: real("synthetic:n=15000,d=4" if name.startswith("adult") else name)
    )
    tables._deal.cache_clear()
    tables._load.cache_clear()
    yield
    tables._deal.cache_clear()
    tables._load.cache_clear()


OURS = [name for name in spec.names() if not name.startswith("003")]


@pytest.mark.parametrize("name", OURS)
def test_every_file_loads_and_its_first_quick_cell_has_the_columns(name, quick_data, tmp_path):
    """Filters, series, facets and claims speak of the grid, of labels, or of columns that the kind gives."""
    study = spec.load(name)
    assert study.figures and study.claims and study.about
    assert study.differs or not study.paper
    assert not study.paper or study.paper[:3].isdigit()
    quick = study.quickly()
    assert len(quick.points()) <= len(study.points())
    first = {key: values[:1] for key, values in quick.grid.items()}
    small = {"rounds": 2, "games": 200, "alphas": [0.1, 0.5, 1.0], "at": [2]}
    fixed = dict(quick.fixed) | {key: value for key, value in small.items() if key in quick.fixed}
    file = extract(tmp_path / "extract.csv") if study.file else None
    done = run(replace(quick, grid=first, cells=quick.cells[:1], fixed=fixed), tmp_path, file=file)
    assert done.rows and {"replicate"} <= set(done.columns)
    assert study.strangers({*done.columns, *study.varied()}) == []
    for figure in study.figures:
        assert figure.xlabel and (figure.ylabel or figure.kind == "hist"), figure.name


def test_a_series_is_named_by_what_it_has():
    figure = spec.Figure("f", "F", "line", "x", "y", series=("label", "gamma"), names={"none": "no privacy"})
    assert _key({"label": "none"}, figure) == "no privacy" and _key({"gamma": 0.5}, figure) == "gamma 0.5"


# --- what cells compute


def base(**more):
    return {"data": "synthetic:n=600,d=5", "nodes": 3, "rounds": 6, "replicates": 2, "seed": 0, **more}


def test_matched_runs_cost_what_the_other_claims():
    other = {"method": "r_admm", "form": "printed", "eta": 1.0}
    asked = base(method="r_admm", form="printed", eta=1.0, alpha=5.0)
    (first, *_) = training.run(asked)
    for form, column in (("printed", "epsilon_claimed"), ("corrected", "epsilon_proved")):
        (row, *_) = training.run(base(method="dvp", form=form, eta=1.0, alpha=5.0, match=other))
        assert row[column] == pytest.approx(first["epsilon_claimed"], rel=1e-6)
    (row, *_) = training.run(base(method="dvp", eta=1.0, alpha=5.0, match=other, match_by="proved"))
    assert row["epsilon_proved"] == pytest.approx(first["epsilon_proved"], rel=1e-6)
    assert first["epsilon_proved"] < first["epsilon_claimed"]


def test_without_noise_the_optimum_is_reached():
    (row,) = training.run(base(method="admm", rounds=300, eta=0.02, rho=0.5, replicates=1))
    assert row["distance"] < 1e-3 and row["residual"] < 1e-3
    assert row["epsilon_proved"] == np.inf


def test_every_site_alone_spends_the_total():
    rows = training.run(base(method="local", epsilon=2.0))
    assert [row["replicate"] for row in rows] == [0, 1]
    assert all(row["epsilon_proved"] == pytest.approx(2.0, rel=1e-6) for row in rows)
    assert "every site alone" in rows[0]["_privacy"]


def test_a_total_that_cannot_be_met_is_told_and_left_out():
    (row,) = training.run(base(method="dvp", epsilon=1e-4, eta=1e-6, rho=1e-6))
    assert set(row) == {"_note"} and "left out" in row["_note"]


def test_listings_rules_for_curvature_and_regulariser():
    rows = tables.deal(base()).rows
    p = {"delta": 1e-4, "epsilon": 1.0, "rounds": 30}
    rho = 1.0 / (4 * np.log(1e4)) / 30
    e1 = rho + 2 * np.sqrt(rho * np.log(1e4))
    own, other = p | {"rho": "004", "method": "pp_admm"}, p | {"rho": "004", "method": "ipp_admm", "positives": 15}
    assert theorems.regulariser_004(own, rows) == pytest.approx(2.8 * 3 * 0.25 / (0.01 * e1 * 200))
    whole = 1.0 / (4 * np.log(1e4)) / 15 / 1.25  # a fifth pays for the tests
    e1 = whole + 2 * np.sqrt(whole * np.log(1e4))
    assert theorems.regulariser_004(other, rows) == pytest.approx(2.8 * 3 * 0.25 / (0.01 * e1 * 200))
    first = theorems.regulariser_004(other | {"rho": "004, Algorithm 1"}, rows)
    assert first == theorems.regulariser_004(own, rows)
    small = {"alpha": 0.01, "C": 10.0, "eta": 0.1}
    assert training._curvature_000(small, rows) == pytest.approx(10 * 0.25 / (200 * np.expm1(0.0025)) - 0.2)
    assert training._curvature_000(small | {"alpha": 5.0}, rows) == 0.0


def test_a_graded_cell_has_the_error_on_the_training_rows():
    """Rows of training.run, and the average model's error on what it was trained on, which 004 plots."""
    p = base(method="dvp", epsilon=5.0)
    plain, more = kinds.find("training.run")(p), kinds.find("graded.run")(p)
    assert [{k: v for k, v in row.items() if k != "train_error"} for row in more] == plain
    dealt = tables.deal(p)
    found = simulate(RunConfig(method="dvp", epsilon=5.0, rounds=6, replicates=2, seed=0), dealt.rows)
    for row, w in zip(more, found.models.mean(axis=1), strict=True):
        wrong = np.mean([(y * (X @ w) <= 0).mean() for X, y in dealt.parts])
        assert row["train_error"] == pytest.approx(wrong)


def test_admm_priced_by_002_claims_the_total_of_r_admm():
    other = {"method": "r_admm", "form": "printed", "eta": 1.0}
    asked = base(method="r_admm", form="printed", eta=1.0, alpha=5.0)
    (first, *_) = training.run(asked)
    (row, *_) = training.run(base(method="dvp", form="printed", eta=1.0, alpha=5.0, price="002", match=other))
    assert row["epsilon_claimed"] == pytest.approx(first["epsilon_claimed"], rel=1e-9)
    assert row["epsilon_proved"] < row["epsilon_claimed"]
    rows = tables.deal(base()).rows  # its noise: 000's listing draws the rate of 002's (18), alpha C / n, in sum scale
    config = RunConfig(method="dvp", form="printed", eta=1.0, rounds=6, epsilon=math.inf, seed=0)
    noise = np.array(theorems.noise_002(config, rows, 3.0))
    K = rows.n[:, 0] * (1e-3 / 3 + 4.0)  # a ring of three
    rate = noise - 2 * np.log1p(0.25 / K)
    assert np.ptp(rate * rows.n[:, 0]) < 1e-12
    priced = 6 * np.max(2 / rows.n[:, 0] * (1.4 * 0.25 / (1e-3 / 3 + 4.0) + rate * rows.n[:, 0]))
    assert priced == pytest.approx(3.0)
    with pytest.raises(InvalidInput, match="price"):
        training.run(base(method="dvp", alpha=1.0, price="001"))


def test_what_a_run_breaks_is_said():
    (row, *_) = training.run(base(method="r_admm", nodes=4, graph="ring"))
    assert "bipartite" in row["_note"]
    (row, *_) = training.run(base(method="r_admm", gamma=0.5))
    assert "asks for" in row["_note"]
    (row, *_) = training.run(base(method="r_admm", gamma=1e4))
    assert not row["_note"]
    printed = base(method="pp_admm", form="printed", epsilon=1.0, delta=1e-4)
    assert "004's theorems" in training.run(printed)[0]["_note"]
    assert "004's" not in training.run(printed | {"rho": "004"})[0]["_note"]


def test_a_study_sees_what_pvp_keeps_and_the_same_run_as_others():
    p = base(method="pvp", form="printed", noise=3.0, rho=0.5, eta=0.1, every=2)
    rows = training.run(p)
    dealt = tables.deal(p)
    result = simulate(
        RunConfig(
            method="pvp", form="printed", epsilon=math.inf, noise=3.0, rho=0.5, eta=0.1, rounds=6, replicates=2, seed=0
        ),
        dealt.rows,
    )
    last = [row for row in rows if row["round"] == 6]
    assert [row["test_error"] for row in last] == dealt.errors(result.models.mean(axis=1)).tolist()
    assert all(row["kept_loss"] == row["loss"] for row in last)  # what the last step gives is sent
    early = [row for row in rows if row["round"] == 4]
    assert all(row["kept_loss"] != row["loss"] and row["risk"] == row["loss"] for row in early)


def test_several_classes_are_learnt_and_priced():
    p = {"classes": 3, "features": 4, "rows": 300, "nodes": 3, "rounds": 10, "eta": 0.01, "seed": 0, "replicates": 2}
    exact = classes.several(p | {"method": "admm"})
    rows = classes.several(p | {"method": "r_admm", "perturbation": "output", "epsilon": 50.0, "delta": 1e-5})
    assert exact[0]["test_error"] < 0.4 and exact[0]["loss"] < np.log(3)
    assert rows[0]["epsilon_proved"] <= 50.0 and rows[0]["loss"] != rows[1]["loss"]
    with pytest.raises(InvalidInput, match="alpha"):
        classes.several(p | {"method": "admm", "alpha": 1.0})


def test_printed_knobs_reach_the_method_and_no_other():
    shared = {"epsilon": 1.0, "delta": 1e-4, "eta": 0.5, "rho": 1.0}
    errors = [
        training.run(base(method="pp_admm", form="printed", split=0.01, tolerance=tol, **shared))[0]["loss"]
        for tol in (1e-6, 0.9)
    ]
    assert errors[0] != errors[1]
    with pytest.raises(InvalidInput, match="split"):
        RunConfig(method="dvp", split=0.1)
    with pytest.raises(InvalidInput, match="tolerance"):
        RunConfig(method="pp_admm", delta=1e-5, tolerance=0.0)
    plain = RunConfig().to_dict()
    assert not {"split", "tolerance", "clip", "auto"} & set(plain)
    kept = RunConfig(method="ipp_admm", form="printed", delta=1e-5, clip=2.0)
    assert kept.to_dict()["clip"] == 2.0 and RunConfig.from_dict(kept.to_dict()) == kept


def test_the_tradeoff_fits_what_falls_and_says_when_it_cannot():
    alphas = np.array([0.01, 0.05, 0.1, 0.3, 1.0])
    rows = training._fitted(alphas, 0.4 + 2 * np.exp(-9 * alphas), 5, {"method": "dvp", "form": "printed"})
    assert {row["what"] for row in rows} == {"L_acc", "U_priv", "J", "optimum"}
    best = rows[-1]
    curve = [(row["value"], row["alpha"]) for row in rows if row["what"] == "J" and row["alpha"] >= 0.02]
    assert best["value"] <= min(curve)[0] + 1e-9 and "L_acc = 2 exp(-9 alpha) + 0.4" in best["_note"]
    (none,) = training._fitted(alphas, np.full(5, 0.4), 5, {"method": "dvp", "form": "printed"})
    assert none["what"] == "none" and "No fit" in none["_note"]


def test_an_attack_refutes_what_is_false_and_nothing_else():
    game = kinds.find("attacks.game")
    shared = {"epsilon": 1.0, "games": 4000, "seed": 0, "replicates": 1}
    (true,), (false,) = (game(shared | {"method": "dvp", "form": form}) for form in ("corrected", "printed"))
    assert (true["refuted"], false["refuted"]) == (0, 1)
    assert true["audited"] <= true["claimed"] < false["audited"] <= false["proved"]


# --- tables


@pytest.mark.parametrize(("name", "positive"), [("census-us", 25_000), ("census-brazil", 300)])
def test_a_census_extract_is_read_by_its_public_schema(name, positive, tmp_path):
    path = extract(tmp_path / "extract.csv")
    table = tables.census(path, name)
    assert table.n_rows == 720  # a tenth is not in universe
    income = np.array([float(x) for x in table.columns["INCTOT"]])
    assert np.array_equal(table.columns["income"] == "above", income > positive)
    rows = data.builtin_schema(name).encode(table)
    assert rows.X.shape == (720, data.builtin_schema(name).n_features) and not rows.clipped.get("AGE")
    assert np.linalg.norm(rows.X, axis=1).max() <= 1.0
    assert not data.builtin_schema(name).data_dependent
    held = tables.deal({"data": name, "file": str(path), "digest": tables.digest(path), "nodes": 4, "limit": 400})
    assert held.rows.n.sum() == 400 and len(held.y_test) == 144 and "extract.csv" in held.note


def test_a_census_without_income_or_file_is_refused(tmp_path):
    path = tmp_path / "bad.csv"
    for text, field in (("AGE\n1\n", "INCTOT"), ("INCTOT\nhigh\n", "INCTOT"), ("INCTOT\n9999999\n", "INCTOT")):
        path.write_text(text)
        with pytest.raises(InvalidInput) as caught:
            tables.census(path, "census-us")
        assert caught.value.field == field and "high" not in str(caught.value)
    with pytest.raises(InvalidInput, match="cannot be read"):
        tables.digest(tmp_path / "none.csv")
    with pytest.raises(InvalidInput, match=r"international\.ipums\.org"):
        run(spec.load("004-fig7-us").quickly(), tmp_path)
    with pytest.raises(InvalidInput, match="its own data"):
        run(spec.load("002-fig2").quickly(), tmp_path, file=path)


class Fetched:
    def __init__(self, n=60):
        rng = np.random.default_rng(0)
        names = [block.name for block in data.builtin_schema("covertype").blocks[:10]]
        names += [f"Wilderness_Area_{k}" for k in range(4)] + [f"Soil_Type_{k}" for k in range(40)]
        self.feature_names = names
        numbers = rng.uniform(0, 250, (n, 10)) + np.array([2500] + 9 * [0])
        one_hot = [np.eye(width)[rng.integers(0, width, n)] for width in (4, 40)]
        self.data, self.target = np.hstack([numbers, *one_hot]), rng.integers(1, 8, n)


def test_covertype_fetched_or_stood_in(monkeypatch):
    import sklearn.datasets

    monkeypatch.setattr(sklearn.datasets, "fetch_covtype", lambda **how: Fetched())
    table, note = tables.covertype()
    rows = data.builtin_schema("covertype").encode(table)
    assert rows.X.shape == (60, 55) and np.linalg.norm(rows.X, axis=1).max() <= 1.0 and "scikit-learn" in note
    assert np.array_equal(rows.y > 0, Fetched().target == 2)

    def offline(**how):
        raise OSError("no network")

    monkeypatch.setattr(sklearn.datasets, "fetch_covtype", offline)
    table, note = tables.covertype()
    assert table is None and "synthetic rows" in note
    assert "d=54" in tables.STAND_IN and tables.STAND_IN_ROWS == 464_809  # 581,012 rows, a fifth of them test rows
