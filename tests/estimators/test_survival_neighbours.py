"""Survival under attack: neighbouring tables made to differ most, through `fit`, against the
events of the ledger.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from sottovoce import ConsensusSurvival
from sottovoce.answers.hazards import number_of_cells
from sottovoce.data.follow_up import find_leaving_intervals
from sottovoce.data.rows import Rows
from sottovoce.errors import HolderNote, InvalidInput, PublicNote, SchemaError
from sottovoce.estimators import fitting
from sottovoce.estimators.encoding import SLACK
from sottovoce.estimators.hazard_rows import COARSE, expand_to_interval_rows
from sottovoce.privacy.events import Event
from sottovoce.problem.clipped import clip_gradients
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import Logistic, Loss
from sottovoce.queries import Bounded, Curvature, Exits, Gradient, NoisyBounded
from sottovoce.runs.planned import PlannedRun
from sottovoce.runs.prepare import rows_on_backend

EDGES = np.array([0.0, 1.0, 2.0, 4.0])
NOISY: dict[str, Any] = {"epsilon": 3.0, "data_norm": 1.5, "random_state": 0}
TRUSTS = ("nobody", "sum", "curator")
SCHEMA: dict[str, Any] = {
    "intercept": True,
    "ignore": ["*"],
    "columns": {
        "age": {"kind": "number", "lo": 0, "hi": 120, "missing": 50},
        "ward": {"kind": "category", "values": ["icu", "er"]},
    },
}


class Asked(NamedTuple):
    """What a fit would ask, of which rows, and the events that it would charge."""

    rows: Rows
    loss: Loss
    facts: Facts
    events: tuple[Event, ...]

    def sums(self, what: Bounded) -> np.ndarray:
        """The exact sums over each node's rows, (nodes, width)."""
        found = []
        for node in range(len(self.rows.n)):
            design = self.rows.design_of_nodes(np.array([node]))
            found.append(
                what.sum_over_block(
                    design, self.loss.for_row_norms(design.row_norm_bounds), what.at[None]
                )[0, 0]
            )
        return np.array(found)

    def without_first(self, rows: int) -> Asked:
        """With nobody in place of the first person, who has so many rows: they are zeros."""
        signed = self.rows.signed.copy()
        signed[0, :rows] = 0.0
        return self._replace(rows=replace(self.rows, signed=signed))

    def charged(self, name: str) -> np.ndarray:
        """The sensitivities of the first event of this name."""
        event: Any = next(one for one in self.events if one.source.startswith(name))
        return np.ravel(event.sensitivity)


class Stopped(Exception):
    """The rows are made, and nothing was asked."""


def asked(monkeypatch: pytest.MonkeyPatch, model: ConsensusSurvival, *data: Any) -> Asked:
    """What `fit` hands to the simulation."""
    found: dict[str, Any] = {}

    def stop(planned: PlannedRun, rows: Rows, **terms: Any) -> None:
        found.update(planned=planned, rows=rows)
        raise Stopped

    with monkeypatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore", HolderNote)
        patched.setattr(fitting, "run_planned", stop)
        with pytest.raises(Stopped):
            model.fit(*data)
    planned, rows = found["planned"], found["rows"]
    prepared = planned.prepared
    return Asked(
        rows_on_backend(planned.config, rows),
        planned.loss,
        prepared.facts,
        prepared.plan_ledger().rows,
    )


def odd_person(rng: np.random.Generator, edges: np.ndarray, d: int) -> tuple[np.ndarray, Any, Any]:
    """Columns of any length; a time at an edge, next to one, inside, or none; an event in any
    spelling, or none.
    """
    x = rng.normal(size=d) * 10.0 ** rng.choice([-300, -3, 0, 3, 300])
    near = np.r_[
        np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf), edges + 1e-9, edges - 1e-9
    ]
    far = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0]
    times = [*edges, *near, *((edges[1:] + edges[:-1]) / 2), *far, "soon", None, 10**400]
    events = [1, 0, "1", "TRUE", "no", None, 2, np.nan, True]
    return x, times[rng.integers(len(times))], events[rng.integers(len(events))]


def farthest(how: str, edges: np.ndarray, d: int) -> tuple[Any, Any]:
    """Two people who stay to the end, with opposite columns or with others, one of them with the
    event.
    """
    one, late = np.eye(d)[0] * 1e6, edges[-1] + 1.0
    if how == "opposite":
        return (one, late, 0), (-one, late, 0)
    return (one, late, 0), (np.eye(d)[-1] * -1e6, edges[-1], 1)


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("knobs", [{}, {"max_grad_norm": 0.4}, {"relation": "zero-out"}])
def test_neighbouring_tables_move_each_answer_by_no_more_than_its_event_says(
    trust: str, knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    most: dict[str, float] = {}
    many = (EDGES, EDGES[:2], np.array([-2.0, 0.0, 5e-324, 1.0, 7.0, 1e300]))
    for edges, d, how in itertools.product(
        many, (1, 3), ("odd", "odd again", "opposite", "across")
    ):
        m = len(edges) - 1
        model = ConsensusSurvival(edges, trust=trust, knobs=knobs, **NOISY)
        people = [odd_person(rng, edges, d) for _ in range(4)]
        others = [odd_person(rng, edges, d), *people[1:]]
        at = rng.normal(size=(1, d + m + 1)) * 10.0 ** rng.uniform(-2, 6)
        if not how.startswith("odd"):
            people[0], others[0] = farthest(how, edges, d)
            at[0, : d + m] = 0.0  # where the Hessian is largest
        tables = []
        for some in (people, others):
            X, time, event = zip(*some, strict=True)
            tables.append(asked(monkeypatch, model, np.array(X), time, event, [0, 0, 1, 2]))
        one, other = tables
        if knobs.get("relation") == "zero-out":
            other = one.without_first(m + 1)
        assert np.array_equal(one.rows.n, other.rows.n)
        assert [event.to_dict() for event in one.events] == [
            event.to_dict() for event in other.events
        ]
        steep = at.copy()
        steep[0, d : d + m] = 200.0  # everybody is expected to have the event
        statistics = {
            "gradient": Gradient(steep),
            "Hessian": Curvature(at),
            "life table": Exits(at, number_of_cells(m, COARSE)),
        }
        for name, what in statistics.items():
            change = np.linalg.norm(one.sums(what) - other.sums(what), axis=1)
            rows = (
                np.ravel(one.facts.n)
                if trust != "sum"
                else np.full(len(change), float(one.facts.rows or 0.0))
            )
            assert np.all(change / rows <= one.charged(name))
            assert not np.any(change[1:])  # nobody at another node
            most[name] = max(most.get(name, 0.0), float(np.max(change / rows / one.charged(name))))
    assert most["life table"] > 0.99 and most["gradient"] > 0.85
    assert most["Hessian"] > 0.99 or "max_grad_norm" in knobs


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("most", [math.inf, 0.9, 0.1])
def test_all_pairs_of_people_of_a_small_domain_are_within_the_bound(m: int, most: float) -> None:
    """Every pair of columns, times, events and gaps, at points on a grid and far out."""
    edges = np.arange(m + 1.0)
    near = (np.nextafter(edges, 9.0), np.nextafter(edges, -9.0))
    times = np.unique(np.r_[edges, edges[:-1] + 0.5, *near, 9.0, -1.0, np.inf, np.nan])
    columns = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [-0.6, -0.8]]) / SLACK
    everybody = list(itertools.product(columns, times, (False, True), (False, True)))
    x, time, event, known = (np.array(one) for one in zip(*everybody, strict=True))
    leaves = find_leaving_intervals(time, event, known, edges, COARSE)
    assert np.all((leaves.exposed >= 0.0) & (leaves.exposed <= 1.0))
    found = expand_to_interval_rows(x, leaves, m, COARSE)
    each = [one.reshape(len(x), m + 1, *one.shape[1:]) for one in found]
    rows = Rows.build_from_parts(list(zip(each[0], each[1], strict=True))).with_weight(
        list(each[2])
    )
    design, width = rows.design_of_nodes(np.arange(len(x))), number_of_cells(m, COARSE)
    loss = clip_gradients(Logistic(), most).for_row_norms(design.row_norm_bounds)
    facts = Facts(clip_gradients(Logistic(), most), np.array([[m + 1.0]]), 2 + m + 1, 1.0, 1.0, 1)
    reached = 0.0
    for constants in itertools.product((-1e3, 0.0, 2.0), repeat=m):
        for slopes in ((0.0, 0.0), (-3.0, 4.0), (1e3, 0.0)):
            at = np.broadcast_to(np.r_[slopes, constants, 1.0], (len(x), 1, m + 3)).copy()
            for what in (Gradient(at), Curvature(at), Exits(at, width)):
                terms = what.sum_over_block(design, loss, at)[:, 0]
                products = terms @ terms.T
                squares = np.diag(products)
                change = np.sqrt(np.maximum(squares[:, None] + squares - 2.0 * products, 0.0)).max()
                assert math.sqrt(squares.max()) <= what.largest_row_norm(facts) * (1.0 + 1e-9)
                assert change <= what.exact_sum_sensitivity(facts) * (1.0 + 1e-9)
                assert products.min() >= -1e-12 or not what.cone
                reached = max(reached, change / what.exact_sum_sensitivity(facts))
    assert reached > 0.999


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_the_price_is_that_of_the_events_of_the_ledger(trust: str, relation: str) -> None:
    """Against the closed form of Gaussian noise, from the ratios that the events hold."""
    rng = np.random.default_rng(0)
    X, time = rng.uniform(-1, 1, (300, 2)), rng.exponential(3.0, 300)
    model = ConsensusSurvival(EDGES, trust=trust, n_sites=3, knobs={"relation": relation}, **NOISY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PublicNote)
        model.fit(X, np.minimum(time, 4.0), time < 4.0)
    ratios = {}
    for event in model._result.ledger:
        assert event["relation"] == relation
        summed = "alpha" in event
        ratio = (
            np.array(event["alpha"])
            if summed
            else np.array(event["sensitivity"]) / np.array(event["sigma"])
        )
        ratios[event["source"]] = float(ratio.max()) ** 2
    mu = math.sqrt(sum(ratios.values()))

    def excess(epsilon: float) -> float:
        below = math.exp(epsilon) * norm.cdf(-mu / 2.0 - epsilon / mu)
        return float(norm.cdf(mu / 2.0 - epsilon / mu) - below) - model.privacy_spent_["delta"]

    want = brentq(excess, 0.0, 10.0, xtol=1e-12)
    assert want * (1.0 - 1e-9) <= model.privacy_spent_["epsilon"] <= want * (1.0 + 1e-6)
    assert len(ratios) == 11 and ratios["life table"] / mu**2 == pytest.approx(0.15)
    assert sum(
        one for name, one in ratios.items() if name.startswith("Hessian")
    ) / mu**2 == pytest.approx(0.35)
    assert ratios["gradient 2"] / ratios["gradient 1"] == pytest.approx(1.6)


@pytest.mark.parametrize("trust", TRUSTS)
def test_price_and_releases_do_not_depend_on_rows(trust: str) -> None:
    """Not where nobody is read, everybody is alike, or columns tell the event."""
    rng = np.random.default_rng(0)
    X, n = rng.uniform(-1, 1, (60, 2)), 60
    tables: list[tuple[Any, ...]] = [
        (X, rng.exponential(3.0, n), np.arange(n) % 2),
        (0.0 * X, np.full(n, np.nan), ["?"] * n),
        (X * 1e300, np.full(n, 0.5), [1] * n),
        (np.sign(X), np.full(n, 9.0), (X[:, 0] > 0).astype(int)),
    ]
    fits = []
    for table in tables:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            fits.append(ConsensusSurvival(EDGES, trust=trust, n_sites=3, **NOISY).fit(*table))
    for one in fits:
        assert (
            one._result.ledger == fits[0]._result.ledger
            and one.privacy_spent_ == fits[0].privacy_spent_
        )
        assert np.all(np.isfinite(one.intercept_)) and np.all(np.isfinite(one.coef_))


@pytest.mark.parametrize("trust", ["nobody", "curator"])
def test_public_results_follow_from_released_answers_alone(
    trust: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Quite other rows, with the answers of the first fit in place of theirs, give the same
    model, notes and file.
    """
    rng = np.random.default_rng(0)
    X, time = rng.uniform(-1, 1, (600, 2)), np.minimum(rng.exponential(3.0, 600), 4.0)
    tables: list[tuple[Any, ...]] = [
        (X, time, time < 4.0),
        (
            np.sign(X) * 1e9,
            np.where(np.arange(600) % 3, np.nan, 9.0),
            ["zz" if k % 5 else 1 for k in range(600)],
        ),
    ]
    first: list[np.ndarray] = []
    fits, notes, files = [], [], []
    own = NoisyBounded.answer
    for fit, table in enumerate(tables):
        asked_so_far = itertools.count()

        def answer(
            self: Any,
            vault: Any,
            facts: Facts,
            release: int,
            fit: int = fit,
            count: Any = asked_so_far,
        ) -> np.ndarray:
            found = own(self, vault, facts, release)
            if fit == 0:
                first.append(found)
            return first[next(count)]

        monkeypatch.setattr(NoisyBounded, "answer", answer)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            fits.append(ConsensusSurvival(EDGES, trust=trust, n_sites=3, **NOISY).fit(*table))
        notes.append([str(one.message) for one in told if not issubclass(one.category, HolderNote)])
        fits[-1].save(tmp_path / "model.npz")
        with np.load(tmp_path / "model.npz", allow_pickle=False) as file:
            files.append(json.loads(str(file["meta"])))
    assert len(first) == 11 and notes[0] == notes[1]
    for name in ("coef_", "intercept_", "correction_", "edges_", "converged_", "sites_"):
        np.testing.assert_array_equal(getattr(fits[0], name), getattr(fits[1], name))
    assert (
        fits[0].privacy_spent_ == fits[1].privacy_spent_
        and fits[0]._result.ledger == fits[1]._result.ledger
    )
    assert files[0] == files[1]


@pytest.mark.parametrize("times", [[0.5, 3.0], [0.5, np.inf], [1e308, 3.0], [-1e308, np.nan]])
@pytest.mark.parametrize(
    "edges", [[-1e308, 1e308], [-1.7e308, 1.7e308, 1.75e308], [-1.75e308, -1.7e308, 1e308]]
)
def test_intervals_of_infinite_length_are_refused_whatever_the_times(
    edges: list[float], times: list[float]
) -> None:
    with pytest.raises(InvalidInput, match=r"^edges: .*finite length"):
        ConsensusSurvival(edges, **NOISY).fit(np.eye(2), times, [1, 0])


@pytest.mark.parametrize(
    "edges", [[0.0, 1e308], [0.0, 5e-324], [-1.7e308, 0.0, 1.7e308], [1.0, np.nextafter(1.0, 2)]]
)
def test_intervals_of_any_finite_length_give_parts_from_0_to_1(edges: list[float]) -> None:
    ends = np.array(edges)
    time = np.r_[
        ends,
        np.nextafter(ends, np.inf),
        np.nextafter(ends, -np.inf),
        0.1,
        1.0,
        1e307,
        np.inf,
        -np.inf,
    ]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        found = find_leaving_intervals(
            time, np.zeros(len(time)) > 0, np.ones(len(time)) > 0, ends, COARSE
        )
    assert np.all((found.exposed >= 0.0) & (found.exposed <= 1.0))
    assert np.all((found.cell >= 0) & (found.cell < number_of_cells(len(ends) - 1, COARSE)))


@pytest.mark.parametrize("trust", TRUSTS)
def test_notes_for_the_data_owner_are_in_no_release(trust: str, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    time, event = rng.exponential(3.0, 300), (np.arange(300) % 2).astype(object)
    time[:7], event[7:20] = np.nan, "zz"
    model = ConsensusSurvival(EDGES, trust=trust, n_sites=3, **NOISY)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(rng.uniform(-1, 1, (300, 2)), time, event)
    counts = [one for one in told if issubclass(one.category, HolderNote)]
    assert len(counts) == 2 and all("holder only" in str(one.message) for one in counts)
    assert not any(
        "7 of" in str(one.message) for one in told if issubclass(one.category, PublicNote)
    )
    model.save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz", allow_pickle=False) as file:
        texts = [str(file[name]) for name in file.files if file[name].dtype.kind == "U"]
        arrays = [file[name] for name in file.files if file[name].dtype.kind != "U"]
    assert texts and not any(np.any(array) for array in arrays)  # answers have no model
    said = " ".join([*texts, json.dumps(model.privacy_spent_), repr(model)])
    for word in ("people have", "add nothing", "zz", "holder"):
        assert word not in said


# --- Under a schema -------------------------------------------------------------------------------


def frame(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    columns = {
        "age": rng.uniform(20, 90, n),
        "ward": rng.choice(["icu", "er"], n),
        "days": rng.uniform(0.0, 3.9, n),
        "died": rng.integers(0, 2, n),
        "who": rng.integers(0, 30, n).astype(str),
        "w": rng.uniform(0.1, 3.0, n),
    }
    return pd.DataFrame(columns)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("days", "soon"),
        ("days", None),
        ("days", pd.Timestamp("2020-01-01")),
        ("days", "2.5 "),
        ("days", np.inf),
        ("days", 10**400),
        ("days", 1 + 2j),
        ("days", [1]),
        ("died", "yes"),
        ("died", None),
        ("died", 2),
        ("died", 10**400),
        ("died", "1"),
        ("died", [1]),
        ("age", None),
        ("age", -5),
        ("age", 1e300),
    ],
)
def test_an_odd_value_changes_the_rows_of_one_person_only(
    column: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms: dict[str, Any] = {"schema": SCHEMA, "trust": "curator", "n_sites": 1, "random_state": 0}
    tables = []
    for changed in (False, True):
        table = frame().astype({column: object}) if changed else frame()
        if changed:
            table.at[7, column] = value
        rows = asked(monkeypatch, ConsensusSurvival(EDGES, **terms), table, "days", "died").rows
        assert rows.weight is not None
        tables.append(
            np.concatenate([rows.signed[0], rows.weight[0][:, None]], axis=1).reshape(60, -1)
        )
        assert np.linalg.norm(rows.signed[0], axis=1).max() <= 1.0
    assert np.sum(np.any(tables[0] != tables[1], axis=1)) <= 1


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"weight": {"column": "w", "max": 3}}, "weight"),
        ({"person": {"column": "who", "rows": 3}}, "person"),
        ({"columns": SCHEMA["columns"] | {"days": {"kind": "number", "lo": 0, "hi": 10}}}, "days"),
        (
            {"columns": SCHEMA["columns"] | {"died": {"kind": "category", "values": ["0", "1"]}}},
            "died",
        ),
    ],
)
def test_a_schema_of_weights_of_several_rows_or_of_the_outcome_is_refused(
    more: dict[str, Any], field: str
) -> None:
    with pytest.raises(SchemaError) as refused:
        ConsensusSurvival(EDGES, schema=SCHEMA | more, random_state=0).fit(frame(), "days", "died")
    assert refused.value.field == field


def test_a_schema_gives_the_hazards_of_its_columns() -> None:
    table = frame(400)
    table["days"] = np.where(table["ward"] == "icu", 0.5, 1.0) * table["days"]
    model = ConsensusSurvival(
        EDGES, schema=SCHEMA, epsilon=np.inf, trust="curator", n_sites=1, random_state=0
    )
    model.fit(table, "days", "died")
    curve = model.predict_survival(table.assign(age=50.0).iloc[:20])
    ill = (table["ward"].iloc[:20] == "icu").to_numpy()
    assert np.all(curve[ill].max(axis=0) < curve[~ill].min(axis=0)) and model.converged_
