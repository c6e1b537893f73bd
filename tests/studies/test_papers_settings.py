"""The papers' settings, written down once by hand, against the specs: what differs stands in
`differs`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from sottovoce.privacy.prices import zcdp_rho
from sottovoce.runs.prepare import prepare
from sottovoce_papers.studies import spec
from sottovoce_papers.studies.kinds import training
from sottovoce_papers.studies.tables import deal


class Printed(NamedTuple):
    """A setting that a paper prints: where, and what it is here."""

    study: str
    place: str
    key: str
    values: tuple[Any, ...]
    """As the paper prints them; those of all cells that match `cells`, in any order."""
    cells: dict[str, Any] = {}  # noqa: RUF012
    factor: float = 1.0
    """From the paper's unit to ours: 001's rho is per node, ours is N times that."""
    differs: str = ""
    """Words of the sentence that says what differs, where the values are not the paper's."""


load = lru_cache(None)(spec.load)
TENTHS = tuple(k / 10 for k in range(1, 11))
QUINTILES = tuple(round(0.025 * k, 3) for k in range(1, 16))
ETA_HAT, Q2 = (1.0, 1.03, 1.02, 0.8, 1.01), (0.01, 0.005, 0.003, 0.015, 0.01)


def growing(k: int) -> tuple[float, ...]:
    """002, Figure 1(b): q_1(i) of curve k."""
    return tuple(1.0 + k * q for q in Q2)


PRINTED = [
    # 001, captions of Figures 3 to 5, Tables II and III
    *(
        Printed(s, "Table II", "rho", (10**-2.5,), {"method": "dvp"}, 5.0)
        for s in ("000-fig3", "000-fig4", "000-fig5")
    ),
    *(
        Printed(s, "Table II", "rho", (10**-1,), {"method": "pvp"}, 5.0)
        for s in ("000-fig3", "000-fig4", "000-fig5")
    ),
    *(
        Printed(s, "Table II", "rho", (1e-10,), {"method": "admm"}, 5.0)
        for s in ("000-fig3", "000-fig5")
    ),
    *(
        Printed(s, "Table III", "C", (1750.0,), {"method": "dvp"})
        for s in ("000-fig3", "000-fig4", "000-fig5")
    ),
    *(
        Printed(s, "Table III", "C", (1750.0,), {"method": "admm"})
        for s in ("000-fig3", "000-fig5")
    ),
    *(
        Printed(s, place, "C", (C,), {"method": "pvp", "reading": f"C = {C:g}"})
        for s in ("000-fig3", "000-fig4", "000-fig5")
        for place, C in (("Figure 3", 146.0), ("Table III", 1750.0))
    ),
    Printed("000-fig3", "Figure 3", "alpha", (0.01, 0.1, 0.5, 1.0), {"method": "dvp"}),
    Printed("000-fig3", "Figure 3, before the stop time", "rounds", (101,), differs="is round 101"),
    Printed("000-fig4", "Figure 4", "at", ([2, 100],)),
    # 002, section VIII
    *(
        Printed(s, "section VIII-B", "rho", (0.22,), {"method": "mr_admm"})
        for s in ("002-fig1", "002-fig3", "002-fig4", "002-fig5")
    ),
    *(Printed(f"002-fig{k}", "Figure 2, caption", "C", (1750.0,)) for k in (1, 2, 3, 4, 5)),
    Printed(
        "002-fig1", "VIII-A", "nodes", (5, 20), {"panel": "R-ADMM, gamma and size of the network"}
    ),
    Printed(
        "002-fig1", "Figure 1(a)", "eta", (0.5,), {"panel": "R-ADMM, gamma and size of the network"}
    ),
    *(
        Printed(
            "002-fig1",
            "Figure 1(b)",
            "eta",
            ([a * b for a, b in zip(ETA_HAT, growing(k), strict=True)],),
            {"panel": "MR-ADMM, each node its own penalties", "label": f"k = {k}"},
        )
        for k in range(1, 6)
    ),
    *(
        Printed(
            "002-fig1",
            "Figure 1(b)",
            "eta_growth",
            (list(growing(k)),),
            {"panel": "MR-ADMM, each node its own penalties", "label": f"k = {k}"},
        )
        for k in range(1, 6)
    ),
    Printed(
        "002-fig1",
        "Figure 1(c)",
        "eta_growth",
        (1.01, 1.02, 1.03, 1.04, 1.05),
        {"panel": "MR-ADMM, one penalty for all", "method": "mr_admm"},
    ),
    Printed("002-fig2", "VIII-B", "rounds", (50,)),
    Printed("002-fig3", "Figure 3", "eta", (1.01,), {"method": "mr_admm"}),
    Printed("002-fig3", "Figure 3", "eta_growth", (1.01,), {"method": "mr_admm"}),
    Printed("002-fig3", "Figure 3", "alpha", (1.0, 2.0), {"method": "mr_admm"}),
    Printed("002-fig4", "Figure 4", "gamma", (0.5,)),
    Printed("002-fig4", "Figure 4", "eta", (1.01, 1.02, 1.03, 1.04, 1.05), {"method": "mr_admm"}),
    Printed(
        "002-fig4", "Figure 4", "eta_growth", (1.01, 1.02, 1.03, 1.04, 1.05), {"method": "mr_admm"}
    ),
    Printed("002-fig4", "Figure 4", "alpha", (1.0, 2.0), {"method": "mr_admm"}),
    *(
        Printed("002-nodes", "Figure 1(b)", key, (values,), {"label": f"MR-ADMM, k = {k}"})
        for k in (1, 4)
        for key, values in (
            ("eta", [a * b for a, b in zip(ETA_HAT, growing(k), strict=True)]),
            ("eta_growth", list(growing(k))),
        )
    ),
    Printed("002-nodes", "section VIII-B", "rho", (0.22,)),
    Printed("002-nodes", "Figure 2, caption", "C", (1750.0,)),
    Printed("002-fig5", "Figure 5", "eta", (1.0,), {"method": "r_admm"}),
    Printed("002-fig5", "Figure 5", "eta", (1.0,), {"method": "dvp"}),
    Printed("002-fig5", "Figure 5", "eta_growth", (1.04,), {"method": "mr_admm"}),
    Printed(
        "002-fig5",
        "Figure 5, the same alpha",
        "match",
        ({},),
        {"method": "mr_admm", "basis": "printed"},
    ),
    Printed(
        "002-fig5",
        "Figure 5, 002's own bound",
        "price",
        ("002",),
        {"method": "dvp", "basis": "printed"},
    ),
    # 003, captions
    Printed("003-fig3.1", "Figure 3.1", "rows", (8678,)),
    Printed("003-fig3.1", "Figure 3.1", "Lambda", (0.01,)),
    Printed("003-fig3.1", "Figure 3.1", "epsilon", QUINTILES),
    Printed("003-fig3.1", "Figures 3.1 and 3.2", "loss", ("logistic", "huber:0.5")),
    Printed("003-fig3.6", "Figure 3.6", "rows", (8678,)),
    Printed("003-fig3.6", "Figure 3.6", "Lambda", (0.01,)),
    Printed("003-fig3.6", "Figure 3.6", "epsilon", QUINTILES),
    Printed("003-2.5", "Figures 5.6 and 5.16", "rows", (789,), {"varies": "epsilon"}),
    Printed("003-2.5", "Figure 5.14", "rows", (170,), {"varies": "sites"}),
    Printed("003-alg2", "Figure 5.16", "rows", (789,), {"varies": "epsilon"}),
    Printed("003-fig3.4", "Figure 3.4", "rows", (1735, 3470, 5205, 6940, 8677), {"varies": "rows"}),
    Printed(
        "003-fig3.4",
        "Figure 3.5",
        "Lambda",
        tuple(10.0**-k for k in range(-2, 14)),
        {"varies": "Lambda"},
    ),
    Printed("003-fig3.4", "Figure 3.4", "epsilon", (0.1,)),
    Printed("003-fig5.2", "Figures 5.2 and 5.3", "rows", (789,), {"varies": ["5.2", "5.3"]}),
    Printed("003-fig5.2", "Figures 5.4 and 5.5", "rows", (413,), {"varies": ["5.4", "5.5"]}),
    Printed("003-fig5.2", "Figure 5.2", "epsilon", (math.inf,), {"varies": "5.2"}),
    Printed("003-fig5.2", "Figures 5.3 and 5.5", "epsilon", (2.0,), {"varies": ["5.3", "5.5"]}),
    Printed("003-fig5.6", "Figures 5.6 and 5.7", "rows", (789,), {"data": "mnist37"}),
    Printed("003-fig5.6", "Figures 5.8 and 5.9", "rows", (2411,), {"data": "covertype-12"}),
    Printed("003-fig5.6", "Figures 5.8 and 5.9", "Lambda", (1e-5,), {"data": "covertype-12"}),
    Printed("003-fig5.10", "captions", "loss", ("huber:0.5",)),
    Printed("003-fig5.10", "captions", "Lambda", (0.01,), {"data": "mnist37"}),
    Printed(
        "003-fig5.11",
        "5.11 to 5.29",
        "Lambda",
        (1e-5, 1e-6, 1e-7),
        {"data": "covertype-12"},
        differs="is 1e-6",
    ),
    Printed("003-fig5.10", "5.14", "rows", (170,), {"data": "mnist37", "varies": "sites"}),
    Printed("003-fig5.11", "5.11", "aggregator_rows", (2411,), {"varies": "5.11"}),
    Printed("003-fig5.11", "5.11", "Lambda", (1e-5,), {"varies": "5.11"}),
    Printed("003-fig5.11", "5.15", "rows", (6796,), {"varies": "5.15"}),
    Printed("003-fig5.11", "5.17", "rows", (42762,), {"varies": "5.17"}),
    Printed("003-fig5.11", "5.25", "rows", (31509,), {"varies": "5.25"}),
    Printed("003-fig5.11", "5.25", "aggregator_rows", (31509,), {"varies": "5.25"}),
    Printed("003-fig5.11", "5.23", "rows", (9223,), {"varies": "5.23"}),
    Printed("003-fig5.11", "5.23", "Lambda", (1e-7,), {"varies": "5.23"}),
    Printed("003-fig5.31", "Figures 5.31 to 5.40", "epsilon", TENTHS, {"setting": "private"}),
    Printed(
        "003-fig5.10",
        "Figure 5.16",
        "epsilon",
        tuple(0.025 * k for k in range(1, 11)),
        {"setting": "public-private", "varies": "epsilon"},
    ),
    # 004, section 5
    *(
        Printed(f"004-fig{k}", "Parameter settings", key, values)
        for k in (1, 2, 3, 4)
        for key, values in (
            ("nodes", (5,)),
            ("rounds", (30,)),
            ("delta", (1e-4,)),
            ("limit", (35_000,)),
            ("price", ("004",)),
            ("rho", ("004",)),
        )
    ),
    *(
        Printed(f"004-fig{k}", "no total printed", "epsilon", (), differs="totals of 1 and 10")
        for k in (1, 2, 3, 4)
    ),
    *(
        Printed(f"004-fig{k}", "Parameter settings", "eta", (0.5,), differs="eta = 0.05 too")
        for k in (1, 2, 3, 4)
    ),
    *(Printed(f"004-fig{k}", "section 5", "delta1", (1e-4,)) for k in (1, 2, 3, 4)),
    Printed("004-fig1", "Figure 1", "beta", (1e-6,)),
    *(
        Printed(f"004-fig{k}", "no weight", "C", (), differs="No weight of the loss is printed")
        for k in range(1, 7)
    ),
    Printed("004-fig2", "Figure 2", "split", (0.001,)),
    *(Printed(f"004-fig{k}", "Parameter settings", "positives", (15,)) for k in (3, 4)),
    Printed("004-fig3", "Figure 4", "threshold", (1e-3,)),
    Printed("004-fig4", "Figure 4", "clip", (2.0,)),
    *(
        Printed(s, "section 5", key, values, {"method": m, "basis": "printed"})
        for s in ("004-fig5", "004-fig6", "004-fig7-us", "004-fig7-brazil")
        for m in ("pp_admm", "ipp_admm")
        for key, values in (
            ("split", (0.001,)),
            ("delta1", (1e-4,)),
            ("rounds", (30,)),
            ("rho", ("004",)),
            ("price", ("004",)),
            ("limit", (35_000,)),
            ("tolerance" if "fig7" in s else "beta", (1e-6, 10**-3.5)),
        )
    ),
    *(
        Printed(
            s, "section 5, the same totals", "price", ("004",), {"method": m, "basis": "printed"}
        )
        for s in ("004-fig5", "004-fig6", "004-fig7-us", "004-fig7-brazil")
        for m in ("dvp", "m_admm", "r_admm")
    ),
    *(
        Printed(
            s,
            "line 3 of the listings",
            "rho",
            ("004, Algorithm 1",),
            {"method": m, "basis": "printed"},
        )
        for s in ("004-fig5", "004-fig6")
        for m in ("dvp", "m_admm", "r_admm")
    ),
    *(
        Printed(s, "section 5", key, values, {"method": "ipp_admm", "basis": "printed"})
        for s in ("004-fig5", "004-fig6")
        for key, values in (("clip", (2.0,)), ("threshold", (1e-3,)), ("positives", (15,)))
    ),
    Printed(
        "004-fig5",
        "Parameter settings",
        "epsilons",
        ([0.5, 1.0, 1.5, 2.0, 10.0],),
        {"method": "dvp"},
    ),
    Printed(
        "004-fig5", "Parameter settings", "eta", (0.5,), {"method": "dvp"}, differs="eta = 0.05 too"
    ),
    Printed("004-fig6", "Figure 6", "epsilon", (1.0, 2.0, 10.0), {"method": "dvp"}),
]


ROWS_004, NODES_004, ROUNDS_004, DELTA_004 = 7_000, 5, 30, 1e-4  # 004, section 5
RHO_004 = 1.0 / (4.0 * math.log(1.0 / DELTA_004))  # of a total of 1


@pytest.mark.parametrize("split", [0.001, 0.1, 0.6])
def test_line_3_of_004_is_that_of_each_split(split: float) -> None:
    """Section 5: rho_1 = rho_total / T (1 - splits), epsilon_i1 of it, epsilon_i3 = 0.99
    epsilon_i1; line 3.
    """
    points = [{**load("004-fig1").fixed, **point} for point in load("004-fig1").points()]
    own = [p for p in points if (p["eta"], p["epsilon"], p["split"]) == (0.5, 1.0, split)]
    assert [p["C"] for p in own] == [1.0, 1750.0]
    rows = deal(own[0]).rows
    assert rows.n.ravel().tolist() == [ROWS_004] * NODES_004
    rho_1 = RHO_004 / ROUNDS_004 * (1.0 - split)
    epsilon_1 = rho_1 + 2.0 * math.sqrt(rho_1 * math.log(1.0 / DELTA_004))
    line_3 = 2.8 * NODES_004 * 0.25 / ((1.0 - 0.99) * epsilon_1 * ROWS_004)
    for p in own:  # c_1 bounds the curvature of the loss that is trained, C times the logistic one
        config = training._config(p, rows)
        assert config.rho == pytest.approx(p["C"] * line_3, rel=1e-9)
        assert config.options.tolerance * p["C"] == pytest.approx(1e-6, rel=1e-12)


@pytest.mark.parametrize("method", ["pp_admm", "ipp_admm", "dvp", "m_admm", "r_admm"])
def test_methods_of_004_have_the_zcdp_of_its_totals(method: str) -> None:
    """Section 5: rho_total = epsilon^2 / (4 ln(1/delta)), of the baselines by what zCDP charges
    them.
    """
    points = [{**load("004-fig6").fixed, **point} for point in load("004-fig6").points()]
    mine = [
        p for p in points if p["method"] == method and p["basis"] == "printed" and p["eta"] == 0.5
    ]
    for p in mine:
        rows = deal(p).rows
        ready = prepare(
            training._config({k: v for k, v in p.items() if k != "reading"}, rows), rows.n, rows.d
        )
        events = ready.plan_ledger().rows
        if method in ("pp_admm", "ipp_admm"):
            spent = np.sum([event.claimed_rho for event in events], axis=0)
        else:
            spent = np.sum([zcdp_rho(event) for event in events], axis=0)
        assert np.max(spent) == pytest.approx(RHO_004 * p["epsilon"] ** 2, rel=1e-3)
    assert {p["epsilon"] for p in mine} == {1.0, 2.0, 10.0}


def found(row: Printed) -> list[Any]:
    """The values of this setting in the study's cells, each once."""
    study, kept = load(row.study), []
    for point in study.points():
        p = {**study.fixed, **point}
        if (
            spec.matches(p, row.cells)
            and row.key in p
            and not any(same(p[row.key], one) for one in kept)
        ):
            kept.append(p[row.key])
    return kept


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=2e-5)
    return bool(a == b)


def agrees(row: Printed) -> bool:
    wanted = [value * row.factor if isinstance(value, float) else value for value in row.values]
    here = found(row)
    return len(here) == len(wanted) and all(any(same(a, b) for b in here) for a in wanted)


@pytest.mark.parametrize("row", PRINTED, ids=lambda row: f"{row.study}-{row.key}-{row.place}")
def test_a_setting_is_the_papers_or_differs_says_so(row: Printed) -> None:
    assert found(row), "no cell has this setting"
    if row.differs:
        assert any(row.differs in text for text in load(row.study).differs)
    else:
        assert agrees(row), found(row)


def test_the_check_notices_a_wrong_value() -> None:
    assert not agrees(Printed("000-fig3", "", "rho", (10**-2.5,), {"method": "dvp"}))
    assert not agrees(Printed("000-fig3", "", "alpha", (0.01, 0.1, 0.5), {"method": "dvp"}))
    assert agrees(Printed("000-fig3", "", "rho", (10**-2.5,), {"method": "dvp"}, 5.0))


AFTER = [name for name in spec.names() if load(name).paper]


@pytest.mark.parametrize("name", AFTER)
def test_every_study_says_what_it_does_otherwise(name: str) -> None:
    """Starts at zero, random graphs that are not printed, encodings, theorems that do not cover
    a run.
    """
    study = load(name)
    said, points = " ".join(study.differs), [{**study.fixed, **point} for point in study.points()]
    if not name.startswith("003"):
        assert "f(0) = 0" in said
    if any("erdos-renyi" in str(p.get("graph", "")) for p in points):
        assert "Erdős-Rényi" in said or "bipartite" in said
    if any(p.get("data") == "adult-002" for p in points):
        assert "no guarantee covers" in said
    if any(p.get("method") in ("r_admm", "mr_admm") for p in points):
        assert "Theorem 1" in said
    if any(p.get("method") == "m_admm" for p in points):
        assert "Khalili and Liu" in said
    if any("huber" in str(p.get("loss", "")) for p in points) and name not in (
        "003-fig5.6",
        "003-5.2.1",
        "003-pca",
    ):
        assert "continuous second derivative" in said or "outside Theorem 3.3" in said
    if study.kind.startswith("thesis"):
        assert "components" in said.lower()
