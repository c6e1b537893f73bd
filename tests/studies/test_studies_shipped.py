"""The studies of the package: every file loads and its first quick cell runs; a user's census
and Covertype.
"""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from sottovoce import data
from sottovoce.errors import InvalidInput
from sottovoce.runs.simulate import RunConfig, simulate
from sottovoce_papers.studies import kinds, spec, tables, verdicts
from sottovoce_papers.studies.figures import series_of
from sottovoce_papers.studies.kinds import classes, graded, theorems, tradeoff, training
from sottovoce_papers.studies.run import digest, run
from sottovoce_papers.tradeoff import PRINTED

CODES = {
    "AGE": (0, 99),
    "SEX": (1, 2),
    "MARST": (1, 4),
    "EDATTAIN": (1, 4),
    "DISABLED": (1, 2),
    "NATIVITY": (1, 2),
    "HRSWORK1": (0, 90),
    "OWNERSHIP": (1, 2),
    "FAMSIZE": (1, 9),
    "NCHILD": (0, 6),
    "AUTOS": (0, 4),
}


def extract(path, n=800, top=60_000):
    """A made file of the shape of an IPUMS extract: codes, and columns that nobody asked for."""
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["SAMPLE", "SERIAL", *CODES, "INCTOT"])
        for k in range(n):
            codes = [int(rng.integers(low, high + 1)) for low, high in CODES.values()]
            income = (
                9_999_999
                if k % 10 == 0
                else int(top * codes[3] / 4 * rng.random() * (codes[0] > 18))
            )
            writer.writerow([840_201_001, k, *codes, income])
    return path


@pytest.fixture
def quick_data(monkeypatch):
    """Data that load in no time, of the same shape."""
    real = data.load
    monkeypatch.setattr(tables, "cached", lambda: False)
    monkeypatch.setattr(tables, "STAND_IN_ROWS", 400)
    monkeypatch.setattr(
        tables.data,
        "load",
        lambda name: real("synthetic:n=15000,d=4" if name.startswith("adult") else name),
    )
    kept = (tables._deal_first, tables._deal_again, tables._load)
    for one in kept:
        one.cache_clear()
    yield
    for one in kept:
        one.cache_clear()


OURS = [name for name in spec.names() if not name.startswith("003")]


@pytest.mark.parametrize("name", OURS)
def test_every_file_loads_and_its_first_quick_cell_has_the_columns(name, quick_data, tmp_path):
    """Filters, series, facets and claims speak of the grid, of labels, or of columns that the
    kind gives.
    """
    study = spec.load(name)
    assert study.figures and study.claims and study.about
    assert study.differs or not study.paper
    assert not study.paper or study.paper[:3].isdigit()
    quick = study.quickly()
    assert len(quick.points()) <= len(study.points())
    first = {key: values[:1] for key, values in quick.grid.items()}
    small = {"rounds": 2, "positives": 1, "games": 200, "alphas": [0.1, 0.5, 1.0], "at": [2]}
    fixed = dict(quick.fixed) | {key: value for key, value in small.items() if key in quick.fixed}
    file = extract(tmp_path / "extract.csv") if study.file and not study.file.optional else None
    own = tuple(one for one in quick.readings if one.name == quick.cells[0].get("reading"))
    done = run(
        replace(quick, grid=first, cells=quick.cells[:1], readings=own, fixed=fixed),
        tmp_path,
        file=file,
    )
    assert done.rows and {"replicate"} <= set(done.columns)
    assert study.unknown_columns({*done.columns, *study.varied()}) == []
    for figure in study.figures:
        assert figure.xlabel and (figure.ylabel or figure.kind == "hist"), figure.name


def test_a_series_is_named_by_what_it_has():
    figure = spec.Figure(
        "f", "F", "line", "x", "y", series=("label", "gamma"), names={"none": "no privacy"}
    )
    assert (
        series_of({"label": "none"}, figure) == "no privacy"
        and series_of({"gamma": 0.5}, figure) == "gamma 0.5"
    )


# --- what cells compute


def base(**more):
    return {
        "data": "synthetic:n=600,d=5",
        "nodes": 3,
        "rounds": 6,
        "replicates": 2,
        "seed": 0,
        **more,
    }


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


def test_matched_nodes_spend_what_each_claims_with_a_noise_of_its_own():
    other = {"method": "r_admm", "form": "printed", "eta": 1.0}
    given = {"alpha": [5.0, 3.0, 4.0], "eta": 1.0, "match": other, "match_by": "claimed, each node"}
    rows = tables.deal(base()).rows
    n, K = rows.n[:, 0], 1e-3 / 3 + 4.0
    # (32), C = 1, three odd rounds of six
    each = 3 * 2 / n * (1.4 * 0.25 / K + np.array([5.0, 3.0, 4.0]))
    assert training._matched(base(**given), rows) == pytest.approx(tuple(each))
    (row, *_) = training.run(base(method="mr_admm", **given | {"eta": [1.0, 1.1, 1.2]}))
    assert row["epsilon_proved"] == pytest.approx(max(each), rel=1e-6)
    (row, *_) = training.run(base(method="dvp", form="printed", price="002", **given))
    assert row["epsilon_claimed"] == pytest.approx(max(each), rel=1e-9)
    config = RunConfig(method="dvp", form="printed", eta=1.0, rounds=6, epsilon=math.inf, seed=0)
    rate = np.array(theorems.noise_002(config, rows, tuple(each))) - 2 * np.log1p(0.25 / (n * K))
    np.testing.assert_allclose(6 * 2 / n * (1.4 * 0.25 / K + rate * n), each)
    (row, *_) = training.run(base(method="r_admm", form="printed", eta=1.0, alpha=[5.0, 3.0, 4.0]))
    assert row["epsilon_claimed"] == pytest.approx(max(each))


def test_without_noise_the_optimum_is_reached():
    (row,) = training.run(base(method="admm", rounds=300, eta=0.02, rho=0.5, replicates=1))
    assert row["distance"] < 1e-3 and row["residual"] < 1e-3
    assert row["epsilon_proved"] == np.inf


def test_every_site_alone_spends_the_total():
    rows = training.run(base(method="local", epsilon=2.0))
    assert [row["replicate"] for row in rows] == [0, 1]
    assert all(row["epsilon_proved"] == pytest.approx(2.0, rel=1e-6) for row in rows)
    assert "every site alone" in rows[0]["_privacy"]


def test_method_is_left_out_with_a_note_where_the_total_is_too_small():
    (row,) = training.run(base(method="dvp", epsilon=1e-4, eta=1e-6, rho=1e-6))
    assert set(row) == {"_note"} and "left out" in row["_note"]


def test_listings_rules_for_curvature_and_regulariser():
    rows = tables.deal(base()).rows
    p = {"delta": 1e-4, "epsilon": 1.0, "rounds": 30}
    rho = 1.0 / (4 * np.log(1e4)) / 30 * 0.999  # the share that is not for noise on the answer
    e1 = rho + 2 * np.sqrt(rho * np.log(1e4))
    own, other = (
        p | {"rho": "004", "method": "pp_admm"},
        p | {"rho": "004", "method": "ipp_admm", "positives": 15},
    )
    assert theorems.regulariser_004(own, rows) == pytest.approx(2.8 * 3 * 0.25 / (0.01 * e1 * 200))
    whole = 1.0 / (4 * np.log(1e4)) / 15 / 1.25 * 0.999  # a fifth pays for the tests
    e1 = whole + 2 * np.sqrt(whole * np.log(1e4))
    assert theorems.regulariser_004(other, rows) == pytest.approx(
        2.8 * 3 * 0.25 / (0.01 * e1 * 200)
    )
    first = theorems.regulariser_004(other | {"rho": "004, Algorithm 1"}, rows)
    assert first == theorems.regulariser_004(own, rows)
    small = {"alpha": 0.01, "C": 10.0, "eta": 0.1}
    assert training._curvature_000(small, rows) == pytest.approx(
        10 * 0.25 / (200 * np.expm1(0.0025)) - 0.2
    )
    assert training._curvature_000(small | {"alpha": 5.0}, rows) == 0.0


def test_a_graded_cell_has_the_error_on_the_training_rows():
    """Rows of training.run, and the average model's error on what it was trained on, which 004
    plots.
    """
    p = base(method="dvp", epsilon=5.0)
    plain, more = kinds.find("training.run")(p), kinds.find("graded.run")(p)
    assert [
        {k: v for k, v in row.items() if k not in ("train_error", "broadcasts")} for row in more
    ] == plain
    assert all(row["broadcasts"] == 6.0 for row in more)
    dealt = tables.deal(p)
    found = simulate(
        RunConfig(method="dvp", epsilon=5.0, rounds=6, replicates=2, seed=0), dealt.rows
    )
    for row, models in zip(more, found.models, strict=True):
        own = [
            np.log1p(np.exp(-y * (X @ w))).mean()
            for (X, y), w in zip(dealt.parts, models, strict=True)
        ]
        assert row["loss"] == pytest.approx(np.mean(own))  # L(t) of 002, section VIII
        w = models.mean(axis=0)
        wrong = np.mean([(y * (X @ w) <= 0).mean() for X, y in dealt.parts])
        assert row["train_error"] == pytest.approx(wrong)


def test_gated_run_counts_sent_vectors():
    printed = {
        "form": "printed",
        "delta": 1e-4,
        "positives": 2,
        "epsilon": 1.0,
        "accountant": "best",
        "rho": 9.0,
    }
    rows = graded.run(base(method="ipp_admm", every=1, **printed))
    sent = {(row["round"], row["replicate"]): row["broadcasts"] for row in rows}
    assert all(0.0 <= many <= min(k, 2) for (k, _), many in sent.items())
    assert (
        all(sent[k, r] <= sent[k + 1, r] for k in range(1, 6) for r in range(2)) and sent[6, 0] > 0
    )


def test_the_cost_of_an_error_is_read_between_the_totals():
    """By hand, in the logarithm of the total; beyond the ends it is the end; errors that rise do
    not count.
    """
    errors, at = (
        np.array([[0.3, 0.3], [0.2, 0.2], [0.25, 0.25], [0.1, 0.1]]),
        np.log([1.0, 2.0, 4.0, 8.0]),
    )
    assert graded.jackknifed(errors, at, 0.25) == pytest.approx([2**0.5] * 2)
    # the running least is 0.2 at 4
    assert graded.jackknifed(errors, at, 0.15) == pytest.approx([32**0.5] * 2)
    assert graded.jackknifed(errors, at, 0.05) == pytest.approx([8.0] * 2)
    assert graded.jackknifed(errors, at, 0.4) == pytest.approx([1.0] * 2)
    rng, line, spread = np.random.default_rng(0), np.array([[0.4], [0.2]]), 0.02
    found = np.array(
        graded.jackknifed(line + spread * rng.normal(size=(2, 400)), np.log([1.0, 4.0]), 0.3)
    )
    # d cost / d error = 2 ln(4) / 0.2, from both ends by halves
    assert found.mean() == pytest.approx(2.0, abs=0.05)
    assert found.std() == pytest.approx(2.0 * np.log(4.0) / 0.2 * spread / 2**0.5, rel=0.1)


def test_a_cell_of_costs_has_the_rows_of_its_totals_and_the_costs():
    p = base(method="dvp", epsilons=[1.0, 50.0], errors=[0.9, 0.0])
    rows = graded.cost(p)
    measured = [
        {k: v for k, v in row.items() if k != "epsilon"}
        for row in rows
        if row.get("epsilon") == 50.0
    ]
    assert measured == graded.run(base(method="dvp", epsilon=50.0))
    costs = {(row["target_error"], row["replicate"]): row["cost"] for row in rows if "cost" in row}
    assert len(costs) == 4 and costs[0.9, 0] == 1.0 and costs[0.0, 1] == pytest.approx(50.0)
    quiet = graded.cost(base(method="admm", epsilons=[1.0], errors=[0.5]))
    assert all("cost" not in row and "epsilon" not in row for row in quiet)


def test_admm_priced_by_002_claims_the_total_of_r_admm():
    other = {"method": "r_admm", "form": "printed", "eta": 1.0}
    asked = base(method="r_admm", form="printed", eta=1.0, alpha=5.0)
    (first, *_) = training.run(asked)
    (row, *_) = training.run(
        base(method="dvp", form="printed", eta=1.0, alpha=5.0, price="002", match=other)
    )
    assert row["epsilon_claimed"] == pytest.approx(first["epsilon_claimed"], rel=1e-9)
    assert row["epsilon_proved"] < row["epsilon_claimed"]
    # its noise: 000's listing draws the rate of 002's (18), alpha C / n, in sum scale
    rows = tables.deal(base()).rows
    config = RunConfig(method="dvp", form="printed", eta=1.0, rounds=6, epsilon=math.inf, seed=0)
    noise = np.array(theorems.noise_002(config, rows, 3.0))
    K = rows.n[:, 0] * (1e-3 / 3 + 4.0)  # a ring of three
    rate = noise - 2 * np.log1p(0.25 / K)
    assert np.ptp(rate * rows.n[:, 0]) < 1e-12
    priced = 6 * np.max(2 / rows.n[:, 0] * (1.4 * 0.25 / (1e-3 / 3 + 4.0) + rate * rows.n[:, 0]))
    assert priced == pytest.approx(3.0)
    with pytest.raises(InvalidInput, match="price"):
        training.run(base(method="dvp", alpha=1.0, price="001"))


def test_violated_conditions_of_a_theorem_are_noted():
    (row, *_) = training.run(base(method="r_admm", nodes=4, graph="ring"))
    assert "bipartite" in row["_note"]
    (row, *_) = training.run(base(method="r_admm", gamma=0.5))
    assert "asks for" in row["_note"]
    (row, *_) = training.run(base(method="r_admm", gamma=1e4))
    assert not row["_note"]
    printed = base(method="pp_admm", form="printed", epsilon=1.0, delta=1e-4)
    with pytest.raises(
        InvalidInput, match=r"^rho.*line 3"
    ):  # outside a theorem on privacy there is no claim to show
        training.run(printed)
    assert not training.run(printed | {"rho": "004"})[0]["_note"]
    # line 3 in units of C
    assert not training.run(printed | {"rho": "004", "C": 3.0, "eta": 3.0})[0]["_note"]


def test_a_study_sees_what_pvp_keeps_and_the_same_run_as_others():
    p = base(method="pvp", form="printed", noise=3.0, rho=0.5, eta=0.1, every=2)
    rows = training.run(p)
    dealt = tables.deal(p)
    result = simulate(
        RunConfig(
            method="pvp",
            form="printed",
            epsilon=math.inf,
            noise=3.0,
            rho=0.5,
            eta=0.1,
            rounds=6,
            replicates=2,
            seed=0,
        ),
        dealt.rows,
    )
    last = [row for row in rows if row["round"] == 6]
    assert [row["test_error"] for row in last] == dealt.errors(result.models.mean(axis=1)).tolist()
    assert all(row["kept_loss"] == row["loss"] for row in last)  # what the last step gives is sent
    early = [row for row in rows if row["round"] == 4]
    assert all(row["kept_loss"] != row["loss"] and row["risk"] == row["loss"] for row in early)


def test_several_classes_are_learnt_and_priced():
    p = {
        "classes": 3,
        "features": 4,
        "rows": 300,
        "nodes": 3,
        "rounds": 10,
        "eta": 0.01,
        "seed": 0,
        "replicates": 2,
    }
    exact = classes.several(p | {"method": "admm"})
    rows = classes.several(
        p | {"method": "r_admm", "perturbation": "output", "epsilon": 50.0, "delta": 1e-5}
    )
    assert exact[0]["test_error"] < 0.4 and exact[0]["loss"] < np.log(3)
    assert rows[0]["epsilon_proved"] <= 50.0 and rows[0]["loss"] != rows[1]["loss"]
    with pytest.raises(InvalidInput, match="alpha"):
        classes.several(p | {"method": "admm", "alpha": 1.0})


def test_printed_knobs_reach_the_method_and_no_other():
    shared = {"epsilon": 1.0, "delta": 1e-4, "eta": 0.5, "rho": 9.0}
    errors = [
        training.run(base(method="pp_admm", form="printed", split=0.01, tolerance=tol, **shared))[
            0
        ]["loss"]
        for tol in (1e-6, 0.9)
    ]
    assert errors[0] != errors[1]
    with pytest.raises(InvalidInput, match="split"):
        RunConfig.from_dict({"method": "dvp", "split": 0.1})
    with pytest.raises(InvalidInput, match="tolerance"):
        RunConfig.from_dict({"method": "pp_admm", "delta": 1e-5, "tolerance": 0.0})
    plain = RunConfig().to_dict()
    assert not {"split", "tolerance", "clip", "auto"} & set(plain)
    kept = RunConfig.from_dict(
        {"method": "ipp_admm", "form": "printed", "delta": 1e-5, "clip": 2.0}
    )
    assert kept.to_dict()["clip"] == 2.0 and RunConfig.from_dict(kept.to_dict()) == kept


def test_the_tradeoff_fits_what_falls_and_says_when_it_cannot():
    alphas = np.array([0.01, 0.05, 0.1, 0.3, 1.0])
    rows = tradeoff._fitted(
        alphas, 0.4 + 2 * np.exp(-9 * alphas), 5, {"method": "dvp", "form": "printed"}
    )
    assert {row["what"] for row in rows} == {"L_acc", "U_priv", "J", "optimum"}
    best = rows[-1]
    curve = [
        (row["value"], row["alpha"]) for row in rows if row["what"] == "J" and row["alpha"] >= 0.02
    ]
    assert best["value"] <= min(curve)[0] + 1e-9 and "2 exp(-9 alpha)" in best["_note"]
    (none,) = tradeoff._fitted(alphas, np.full(5, 0.4), 5, {"method": "dvp", "form": "printed"})
    assert none["what"] == "none" and "No fit" in none["_note"]


def test_the_tradeoff_measures_every_budget_and_draws_the_printed_constants_in_both_units():
    alphas, C = [1.0, 0.05, 0.3], 10.0
    p = base(method="dvp", form="printed", C=C, alphas=alphas, at=[2, 5], replicates=2)
    rows = tradeoff.run(
        {key: value for key, value in p.items() if key not in ("rounds", "alpha", "noise")}
    )
    measured = [row for row in rows if row["what"] == "measured"]
    assert {(row["round"], row["alpha"]) for row in measured} == {
        (k, a) for k in (2, 5) for a in alphas
    }
    spans = [
        np.mean([row["share"] for row in measured if (row["round"], row["alpha"]) == (5, a)])
        for a in alphas
    ]
    assert np.ptp(spans) == pytest.approx(1.0)
    drawn = {
        (row["constants"], row["unit"]): row["value"] / C
        for row in rows
        if row["what"] == "printed" and (row["round"], row["alpha"]) == (5, 0.05)
    }
    for (c4, c5), name in zip(PRINTED, ("c4 = 0.2, c5 = 25", "c4 = 20, c5 = 20"), strict=True):
        gap = drawn[name, tradeoff.LOSS] - drawn[name, tradeoff.RISK]
        assert gap == pytest.approx(c4 * np.exp(-c5 * 0.05) * (1 - 1 / C))


def test_an_attack_refutes_what_is_false_and_nothing_else():
    game = kinds.find("attacks.game")
    shared = {"epsilon": 1.0, "games": 4000, "seed": 0, "replicates": 1}
    (true,), (false,) = (
        game(shared | {"method": "dvp", "form": form}) for form in ("corrected", "printed")
    )
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
    assert rows.X.shape == (720, data.builtin_schema(name).n_features) and not rows.clipped.get(
        "AGE"
    )
    assert np.linalg.norm(rows.X, axis=1).max() <= 1.0
    assert not data.builtin_schema(name).data_dependent
    held = tables.deal(
        {"data": name, "file": str(path), "digest": tables.digest(path), "nodes": 4, "limit": 400}
    )
    assert held.rows.n.sum() == 400 and len(held.y_test) == 144 and "extract.csv" in held.note


def test_a_census_without_income_or_file_is_refused(tmp_path):
    path = tmp_path / "bad.csv"
    for text, field in (
        ("AGE\n1\n", "INCTOT"),
        ("INCTOT\nhigh\n", "INCTOT"),
        ("INCTOT\n9999999\n", "INCTOT"),
    ):
        path.write_text(text)
        with pytest.raises(InvalidInput) as caught:
            tables.census(path, "census-us")
        assert caught.value.field == field and "high" not in str(caught.value)
    with pytest.raises(InvalidInput, match="cannot be read"):
        tables.digest(tmp_path / "none.csv")
    with pytest.raises(InvalidInput, match=r"international\.ipums\.org"):
        run(spec.load("004-fig7-us").quickly(), tmp_path)
    with pytest.raises(InvalidInput, match=r"^data"):
        run(spec.load("002-fig2").quickly(), tmp_path, file=path)


def types(n=60):
    """(columns, types) of Covertype's shape."""
    rng = np.random.default_rng(0)
    numbers = rng.uniform(0, 250, (n, 10)) + np.array([2500] + 9 * [0])
    one_hot = [np.eye(width)[rng.integers(0, width, n)] for width in (4, 40)]
    return np.hstack([numbers, *one_hot]), rng.integers(1, 8, n)


def test_covertype_of_a_file_of_the_cache_or_stood_in(monkeypatch, tmp_path):
    """The source is part of a cell's parameters, so that finished cells of stand-ins are not
    taken for real ones.
    """
    values, kinds = types()
    path = tmp_path / "covtype.data.gz"
    np.savetxt(path, np.hstack([values, kinds[:, None]]), delimiter=",", fmt="%.12g")
    monkeypatch.setattr(tables, "_cached", lambda: (values, kinds))
    for source in ("scikit-learn", str(path)):
        table = tables.covertype(source)
        rows = data.builtin_schema("covertype").encode(table)
        assert rows.X.shape == (60, 55) and np.linalg.norm(rows.X, axis=1).max() <= 1.0
        assert np.array_equal(rows.y > 0, kinds == 2)
        assert tables.covertype(source, few=True).n_rows == (kinds <= 2).sum()
    p = {"data": "covertype-12", "nodes": 2}
    monkeypatch.setattr(tables, "cached", lambda: True)
    assert tables.sourced(p)["data"] == "covertype-12:scikit-learn"
    own = tables.sourced(p, path)
    assert own["data"] == f"covertype-12:{path}" and not tables.stands_in(own)
    assert len(tables.deal(own).rows.n) == 2 and "covtype.data.gz" in tables.deal(own).note
    before = digest("training.run", own)
    moved = path.rename(tmp_path / "moved.gz")
    assert digest("training.run", tables.sourced(p, moved)) == before  # by its content
    monkeypatch.setattr(tables, "cached", lambda: False)
    assert tables.sourced(p) == p and "synthetic rows" in tables.stands_in(p)
    assert digest("training.run", p) != before
    assert tables.sourced({"data": "adult"}, moved) == {"data": "adult"} and not tables.stands_in(
        {"data": "adult"}
    )
    # 581,012 rows, a fifth of them test rows
    assert "d=54" in tables.STAND_IN and tables.STAND_IN_ROWS == 464_809
    np.savetxt(path, values, delimiter=",")
    with pytest.raises(InvalidInput, match="55 columns"):
        tables.covertype(str(path))


def test_covertype_is_read_from_the_cache_and_never_downloaded(monkeypatch):
    import sklearn.datasets

    asked = []

    def offline(**how):
        asked.append(how)
        raise OSError("not there")

    monkeypatch.setattr(sklearn.datasets, "fetch_covtype", offline)
    tables.cached.cache_clear()
    assert not tables.cached() and asked == [{"download_if_missing": False}]
    tables.cached.cache_clear()


TEXT = """
title = "Forests"
kind = "training.run"
replicates = 2
file = { loader = "covertype", how = "UCI", optional = true }
fixed = { nodes = 2, rounds = 2, method = "dvp", delta = 1e-5, limit = 40 }
grid = { data = ["covertype", "adult-like"], epsilon = [0.1, 100.0] }

[[claims]]
says = "It falls."
test = "falls"
value = "test_error"
x = "epsilon"
by = ["data"]
noise = 0.0
proved = {}
"""


def test_claims_on_stand_ins_are_not_run_and_a_file_gives_verdicts(
    quick_data, monkeypatch, tmp_path
):
    values, kinds = types(400)
    path = tmp_path / "covtype.data"
    np.savetxt(path, np.hstack([values, kinds[:, None]]), delimiter=",", fmt="%.12g")
    study = spec.parse(TEXT.replace("adult-like", "synthetic:n=300,d=4"), "forests")
    without = run(study, tmp_path)
    (found,) = verdicts.judged(study, without.rows)
    words = {one["at"]["data"]: one["word"] for one in found.proved.settings}
    assert words.pop("covertype") == verdicts.NOT_RUN and not set(words.values()) & set(
        verdicts.BARRED
    )
    assert all(("stands_in" in row) == (row["data"] == "covertype") for row in without.rows)
    having = run(study, tmp_path, file=path)
    # those of the other data
    assert not any("stands_in" in row for row in having.rows) and having.reused == 2
    assert {row["data"] for row in having.rows} == {row["data"] for row in without.rows}
    errors = {
        row["epsilon"]: (row["majority_error"], row["noiseless_error"]) for row in having.rows
    }
    assert len(set(errors.values())) <= 2 and all(
        0 < common <= 0.5 for common, _ in errors.values()
    )
    with pytest.raises(InvalidInput, match="cannot be read"):
        run(study, tmp_path, file=tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="Covertype only"):
        spec.parse(TEXT.replace('"covertype", how', '"census-us", how'), "forests")


def test_where_even_no_noise_learns_nothing_errors_are_untestable(quick_data, tmp_path):
    def learns(free, common=0.24, rows=10_000):
        dealt = SimpleNamespace(
            commoner=common, without_noise=lambda config: free, y_test=np.ones(rows)
        )
        return "untestable_error" in training._learns(dealt, RunConfig(method="dvp"))

    assert learns(0.2401) and learns(0.235) and not learns(0.23)  # two standard errors are 0.0085
    assert learns(0.23, rows=1000)
    dealt = SimpleNamespace(commoner=None)
    assert training._learns(dealt, RunConfig(method="dvp")) == {}  # the label is a number
    text = TEXT.replace('"covertype", "adult-like"', '"synthetic:n=3000,d=4"').replace(
        "limit = 40", "eta = 0.01"
    )
    found = run(spec.parse(text, "forests"), tmp_path).rows
    assert not any("untestable_error" in row for row in found)
    assert all(row["noiseless_error"] < row["majority_error"] for row in found)
    loss = spec.parse(text.replace('value = "test_error"', 'value = "loss"'), "forests")
    assert not any("noiseless_error" in row for row in run(loss, tmp_path).rows)  # nobody asked


@pytest.mark.parametrize("name", ["004-fig1", "004-fig6", "002-fig5", "frontier"])
def test_every_method_has_a_run_without_noise(name, quick_data):
    """Of printed forms and of every accountant too; a method's errors are judged against its
    own.
    """
    study = spec.load(name).quickly()
    cells = [
        {**study.fixed, **point, "seed": 0, "replicates": 1, "rounds": 2}
        for point in study.points()
    ]
    for p in {p["method"]: p for p in cells if p["method"] != "local"}.values():
        dealt = tables.deal(p)
        config = training._config(p, dealt.rows)
        assert 0.0 <= dealt.without_noise(config) <= 1.0
