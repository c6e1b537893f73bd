"""Methods that are the same at their defaults: every declared pair is one, and no other pair of
methods is.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from problems import make_rows

from sottovoce.algorithms import REGISTRY, equal_methods
from sottovoce.privacy.calibration import tolerance_for
from sottovoce.runs.prepare import prepare
from sottovoce.runs.simulate import Result, RunConfig, simulate

ROWS = make_rows([60, 45, 60], 4)
NOTIONS = {
    "pure": {"epsilon": 9.0},
    "delta": {"epsilon": 5.0, "delta": 1e-5, "accountant": "rdp"},
    "zero-out": {"epsilon": 5.0, "relation": "zero-out"},
}
DECLARED = {frozenset((name, other)) for name in REGISTRY for other in equal_methods(name)}


def runs(notion: str) -> dict[str, Result]:
    """All methods at their defaults that can meet this budget."""
    found = {}
    for name, cls in REGISTRY.items():
        knobs = NOTIONS[notion] if cls.private else {"epsilon": math.inf}
        if "delta" in knobs or not cls.needs_delta:
            graph = "complete" if cls.trust.kind == "sum" else "path"
            found[name] = simulate(
                RunConfig.from_dict({"method": name, "graph": graph, **knobs}), ROWS
            )
    return found


def without_source(result: Result) -> list[dict[str, object]]:
    return [
        {key: value for key, value in event.items() if key != "source"} for event in result.ledger
    ]


@pytest.mark.parametrize("notion", NOTIONS)
def test_the_declared_pairs_and_no_others_are_the_same(notion: str) -> None:
    """Both give the same models, but for what the search for the noise may leave unspent."""
    found = runs(notion)
    without = sum(cls.needs_delta for cls in REGISTRY.values())
    assert len(found) >= len(REGISTRY) - max(2, without)
    same = set()
    for one, other in combinations(found, 2):
        a, b = found[one], found[other]
        close = tolerance_for(prepare(a.config, ROWS.n, ROWS.d).ledger.accountant)
        if a.models.shape == b.models.shape and np.max(
            np.abs(a.models - b.models)
        ) <= close * np.max(np.abs(a.models)):
            same.add(frozenset((one, other)))
            assert a.privacy["epsilon"] == pytest.approx(b.privacy["epsilon"], rel=close)
            assert a.privacy["releases"] == b.privacy["releases"]
    assert same == DECLARED


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize(("one", "other"), [("r_admm", "mr_admm"), ("objective", "generalised")])
def test_with_the_same_unit_of_noise_they_are_the_same_bits(
    one: str, other: str, notion: str
) -> None:
    assert frozenset((one, other)) in DECLARED
    a, b = (
        simulate(RunConfig.from_dict({"method": name, **NOTIONS[notion]}), ROWS)
        for name in (one, other)
    )
    assert a.algorithm["noise"] == b.algorithm["noise"]
    assert np.array_equal(a.models, b.models)
    assert without_source(a) == without_source(b)


def test_a_pair_is_declared_once_and_known_from_both_sides() -> None:
    for name, cls in REGISTRY.items():
        assert cls.equals == "" or (cls.equals in REGISTRY and cls.equals != name)
        assert all(name in equal_methods(other) for other in equal_methods(name))
    assert {
        frozenset(pair)
        for pair in (("dvp", "m_admm"), ("r_admm", "mr_admm"), ("objective", "generalised"))
    } == DECLARED


def test_other_settings_tell_the_pairs_apart() -> None:
    """They are two methods each: a growing penalty, or the printed form, makes them differ."""
    for one, other, knobs in (
        ("dvp", "m_admm", {"eta_growth": 1.1}),
        ("objective", "generalised", {"form": "printed"}),
    ):
        a, b = (
            simulate(RunConfig.from_dict({"method": name, "epsilon": 9.0, **knobs}), ROWS)
            for name in (one, other)
        )
        assert np.max(np.abs(a.models - b.models)) > 1e-3 * np.max(np.abs(a.models))
