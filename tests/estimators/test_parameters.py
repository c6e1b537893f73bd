"""Parameters of estimators: few in the signature, all others in ``knobs``."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sottovoce import (
    ConsensusClassifier,
    ConsensusPCA,
    ConsensusRegressor,
    ConsensusSurvival,
    Ledger,
    PrivateClassifier,
    PrivateRegressor,
)
from sottovoce.errors import InvalidInput
from sottovoce.util.compatibility import FORMER

OF_METHODS = [
    "phi",
    "law",
    "max_grad_norm",
    "gamma",
    "perturbation",
    "positives",
    "threshold",
    "momentum",
    "correlation",
    "batches",
]
KNOBS: dict[Any, list[str]] = {  # of every estimator, beside the everyday parameters
    ConsensusClassifier: [
        *[
            "C",
            "rho",
            "eta",
            "eta_growth",
            "noise_growth",
            "form",
            "relation",
            "sites_per_row",
            "tol",
            "colluders",
            "graph",
            "max_weight",
        ],
        *OF_METHODS,
    ],
    PrivateClassifier: [*["C", "rho", "eta", "form", "relation", "tol", "max_weight"], *OF_METHODS],
    ConsensusRegressor: ["colluders", "rho", "relation", "sites_per_row", "max_weight"],
    PrivateRegressor: ["rho", "relation", "max_weight"],
    ConsensusSurvival: ["colluders", "rho", "max_grad_norm", "relation"],
    ConsensusPCA: ["colluders", "relation"],
}
PAIRS = [(kind, name) for kind, names in KNOBS.items() for name in names]
ACCOUNTED = [kind for kind in KNOBS if kind is not ConsensusPCA]
WITHOUT_NOISE: dict[str, Any] = {
    "method": "admm",
    "epsilon": math.inf,
    "n_sites": 2,
    "rounds": 20,
    "random_state": 0,
}


def made(kind: Any, **given: Any) -> Any:
    return kind(**({"edges": [0, 1, 2]} if kind is ConsensusSurvival else {}), **given)


def problem(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0, "yes", "no")


@pytest.mark.parametrize("kind", KNOBS)
def test_a_signature_is_short_and_names_are_the_same_everywhere(kind: Any) -> None:
    names = set(inspect.signature(kind).parameters)
    assert names == made(kind).get_params(deep=False).keys() == made(kind).get_params().keys()
    assert len(names) <= 20 and "knobs" in names
    assert names - inspect.signature(ConsensusClassifier).parameters.keys() <= {
        "y_bounds",
        "edges",
        "event_code",
        "n_components",
    }


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_parameters_outside_the_signature_are_knobs(kind: Any, name: str) -> None:
    """By its name and by scikit-learn's nested name; as a parameter of its own it is refused."""
    value = object()
    model = made(kind, knobs={name: value})
    assert model._resolve_knobs()[name] is value and made(kind).set_params(
        **{f"knobs__{name}": value}
    ).knobs == {name: value}
    with pytest.raises(TypeError, match=name):
        made(kind, **{name: value})
    with pytest.raises(ValueError, match=name):
        made(kind).set_params(**{name: value})


@pytest.mark.filterwarnings("ignore:the model gives")
def test_a_search_over_a_knob_sets_it_and_leaves_the_others() -> None:
    X, y = problem()
    model = ConsensusClassifier(knobs={"eta": 0.01}, data_norm=4.0, **WITHOUT_NOISE)
    search = GridSearchCV(model, {"knobs__rho": [1e-4, 10.0]}, cv=2).fit(X, y)
    assert (
        search.best_params_ == {"knobs__rho": 1e-4}
        and np.ptp(search.cv_results_["mean_test_score"]) > 0.01
    )
    assert search.best_estimator_.knobs == {"eta": 0.01, "rho": 1e-4} and model.knobs == {
        "eta": 0.01
    }
    again = ConsensusClassifier(
        knobs={"eta": 0.01, "rho": 1e-4}, data_norm=4.0, **WITHOUT_NOISE
    ).fit(X, y)
    assert np.array_equal(again.coef_, search.best_estimator_.coef_)
    whole = {"consensusclassifier__knobs": [{"rho": 1e-4}, None]}
    found = GridSearchCV(make_pipeline(FunctionTransformer(), model), whole, cv=2).fit(X, y)
    assert not np.isnan(found.cv_results_["mean_test_score"]).any()


@pytest.mark.parametrize("kind", KNOBS)
def test_clones_copies_and_pickles_keep_knobs(kind: Any) -> None:
    knobs = {"relation": "zero-out"}
    model = made(kind, knobs=knobs)
    assert model.knobs is knobs
    for twin in (
        clone(model),
        copy.copy(model),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
    ):
        assert twin.get_params() == model.get_params()
    assert "relation" in repr(model)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        (
            {"gama": 1},
            "^knobs='gama': ConsensusClassifier has no such knob; it has batches, C, centre, "
            "colluders, ",
        ),
        ({"epsilon": 2.0}, "^knobs='epsilon': ConsensusClassifier has no such knob"),
        ({"seed": 0}, "^knobs='seed'"),
        ({"noise": 0.0}, "^knobs='noise'"),
        ({"trust": "curator"}, "^knobs='trust'"),
        ({"participants": 2}, "^knobs='participants'"),
        ({3: 4}, "^knobs=3: "),
        (5, "^knobs=5: must be a dict"),
        ({"rho": -1.0}, "^rho=-1.0: must be finite and > 0"),
        ({"gamma": -1.0}, "^gamma=-1.0: "),
        ({"sites_per_row": 0}, "^sites_per_row=0: "),
        ({"colluders": 2}, "^colluders=2: .*opens no sums"),
        ({"relation": "x"}, "^relation='x': "),
        ({"max_weight": 0.0}, "^max_weight=0.0: "),
    ],
)
def test_a_wrong_knob_is_refused_by_its_name_in_one_line(knobs: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        ConsensusClassifier("prox_admm", classes=["no", "yes"], knobs=knobs).fit(*problem())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["sites_per_row", "accountant"])
def test_knob_set_as_attribute_is_refused(name: str) -> None:
    model = ConsensusClassifier(random_state=0)
    setattr(model, name, 2)
    with pytest.raises(InvalidInput, match=f"^{name}: .* no effect"):
        model.fit(*problem())


def test_knobs_reach_the_run() -> None:
    X, y = problem()
    says = (
        ConsensusClassifier(
            "momentum",
            trust="sum",
            rounds=2,
            random_state=0,
            n_sites=5,
            knobs={"colluders": 2, "sites_per_row": 2, "relation": "zero-out"},
        )
        .fit(X, y)
        .privacy_spent_["says"]
    )
    unit = "one row at each of 2 sites (zero-out)"
    assert unit in says and "any 2 of" in says


# accounting= and ledger=


@pytest.mark.parametrize("kind", ACCOUNTED)
def test_invalid_accounting_rule_is_refused(kind: Any) -> None:
    for wrong in ("nope", 5, Ledger()):
        model = made(kind, accounting=wrong)
        with pytest.raises(InvalidInput, match=r"^accounting=.*; .*accounting='best'.*ledger="):
            model._collect_run_fields()


@pytest.mark.parametrize("kind", [ConsensusClassifier, PrivateClassifier])
def test_a_ledger_is_charged(kind: Any) -> None:
    X, y = problem()
    terms: dict[str, Any] = {
        "method": "output",
        "delta": None,
        "classes": ["no", "yes"],
        "epsilon": 0.5,
    }
    ledger = Ledger()
    model = kind(ledger=ledger, **terms)
    assert clone(model).ledger is ledger
    model.fit(X, y)
    assert ledger.total() > 0.49


def test_invalid_ledger_is_refused() -> None:
    X, y = problem()
    for given, message in (
        (
            {"ledger": "rows.ledger"},
            r"^ledger='str': must be a Ledger or a DurableLedger; use Ledger\(\.\.\.\)",
        ),
        (
            {"ledger": Ledger(), "accounting": "pure"},
            "^accounting='pure': .* ledger",
        ),
        ({"ledger": Ledger(), "inference": True}, "^ledger: .*inference=True"),
    ):
        with pytest.raises(InvalidInput, match=message):
            ConsensusClassifier(random_state=0, **given).fit(X, y)


@pytest.mark.parametrize("kind", KNOBS)
@pytest.mark.parametrize("stated", [None, 1, 2])
def test_pickle_of_another_format_is_refused(kind: Any, stated: int | None) -> None:
    state = made(kind).__getstate__()
    state.pop("_sottovoce_format")
    opened = kind.__new__(kind)
    with pytest.raises(InvalidInput) as refused:
        opened.__setstate__(state if stated is None else state | {"_sottovoce_format": stated})
    assert (refused.value.field, refused.value.value, refused.value.rule) == (
        "pickle",
        kind.__name__,
        FORMER,
    )


@pytest.mark.parametrize("kind", KNOBS)
def test_unpickled_estimator_has_no_format_attribute(kind: Any) -> None:
    opened = pickle.loads(pickle.dumps(made(kind)))
    assert "_sottovoce_format" not in vars(opened)
