"""Every public object survives pickle, joblib, copy, deepcopy and clone, and answers as before, in
other processes too.

Objects are found from the public names: a new one without a line in ``MAKERS`` fails a test.
"""

from __future__ import annotations

import copy
import inspect
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import warm
from sklearn.base import BaseEstimator, clone

import sottovoce
from sottovoce import (
    ConsensusClassifier,
    ConsensusPCA,
    ConsensusRegressor,
    ConsensusSurvival,
    DurableLedger,
    Ledger,
    PrivateClassifier,
    PrivateRegressor,
    RunConfig,
    Schema,
    SchemaTransformer,
    TrainConfig,
    errors,
    train,
)
from sottovoce.algorithms import REGISTRY
from sottovoce.answers.evaluation import Held
from sottovoce.answers.training import evaluate_report, infer
from sottovoce.errors import InvalidInput, LedgerError, SottovoceError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
RNG = np.random.default_rng(0)
N = 150
FRAME = pd.DataFrame(
    {
        "age": RNG.uniform(20, 90, N),
        "ward": RNG.choice(["icu", "er"], N),
        "who": RNG.integers(0, 100, N).astype(str),
    }
)
X, Y = RNG.normal(size=(N, 2)), RNG.integers(0, 2, N)
FRAME["outcome"] = np.where(FRAME["age"] > 55, "yes", "no")
DECLARED: dict[str, Any] = {
    "ignore": ["*"],
    "label": {"column": "outcome", "positive": "yes", "negative": "no"},
    "columns": {
        "age": {"kind": "number", "lo": 0, "hi": 120},
        "ward": {"kind": "category", "values": ["icu", "er"]},
    },
}
PEOPLE = DECLARED | {"person": {"column": "who", "rows": 3}}
TRUSTS = ("nobody", "sum", "curator")
QUICK: dict[str, Any] = {"random_state": 0, "n_sites": 3}
NAMED: dict[str, Any] = QUICK | {"method": "momentum", "rounds": 2}
BOUNDED: dict[str, Any] = QUICK | {"data_norm": 3.0}
STEPS: dict[str, Any] = NAMED | {"data_norm": 3.0}


def classifiers() -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {}
    for trust in TRUSTS:
        for inference in (False, True):
            terms = (BOUNDED if inference else STEPS) | {"trust": trust, "inference": inference}
            found[f"{trust} {inference}"] = lambda terms=terms: ConsensusClassifier(**terms).fit(
                X, Y
            )
        named = NAMED | {"trust": trust}
        for what, schema in (("schema", DECLARED), ("people", PEOPLE)):
            found[f"{trust} {what}"] = lambda named=named, schema=schema: ConsensusClassifier(
                schema=schema, **named
            ).fit(FRAME)
    found["inference under a schema"] = lambda: ConsensusClassifier(
        schema=DECLARED, inference=True, **QUICK
    ).fit(FRAME)
    found["three classes"] = lambda: ConsensusClassifier("prox_admm", rounds=2, **BOUNDED).fit(
        X, np.arange(N) % 3
    )
    found["one against the rest"] = lambda: ConsensusClassifier(loss="logistic", **STEPS).fit(
        X, np.arange(N) % 3
    )
    found["a release"] = lambda: ConsensusClassifier(data_norm=3.0, classes=[0, 1], n_sites=3).fit(
        X, Y
    )
    found["a ledger"] = lambda: ConsensusClassifier(ledger=Ledger("zcdp", delta=1e-5), **STEPS).fit(
        X, Y
    )
    for name in REGISTRY:
        terms = BOUNDED | {"method": name}
        terms |= {} if name == "ipp_admm" else {"epsilon": math.inf}
        found[name] = lambda terms=terms: ConsensusClassifier(rounds=2, **terms).fit(X, Y)
    return found


def regressors() -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {}
    for trust in TRUSTS:
        for more in ({}, {"inference": True}, {"loss": "log-cosh:1", "rounds": 3}):
            terms: dict[str, Any] = BOUNDED | {"trust": trust} | more
            found[f"{trust} {more}"] = lambda terms=terms: ConsensusRegressor((0, 1), **terms).fit(
                X, Y
            )
    number = DECLARED | {"label": {"column": "age", "lo": 0, "hi": 120}}
    number["columns"] = {"ward": DECLARED["columns"]["ward"]}
    found["schema"] = lambda: ConsensusRegressor(schema=number, **QUICK).fit(
        FRAME.drop(columns="outcome")
    )
    return found


def by_trust(make: Callable[[str], Any]) -> dict[str, Callable[[], Any]]:
    return {trust: lambda trust=trust: make(trust) for trust in TRUSTS}


def survived(trust: str) -> ConsensusSurvival:
    terms = BOUNDED | {"trust": trust, "rounds": 2}
    return ConsensusSurvival([0, 1, 2], **terms).fit(X, np.arange(N) % 3 + 0.1, Y.astype(bool))


def trained(**more: Any) -> TrainConfig:
    run = RunConfig.from_dict({"method": "momentum", "seed": 0, "rounds": 2, "delta": 1e-5} | more)
    return TrainConfig(run, data="synthetic:n=300,d=3", nodes=3)


def evaluated() -> Any:
    return evaluate_report(train(trained()), Held(1.0))


MAKERS: dict[str, dict[str, Callable[[], Any]]] = {
    "ConsensusClassifier": classifiers(),
    "ConsensusRegressor": regressors(),
    "ConsensusPCA": by_trust(lambda trust: ConsensusPCA(2, trust=trust, **BOUNDED).fit(X))
    | {"schema": lambda: ConsensusPCA(2, schema=DECLARED, **QUICK).fit(FRAME)},
    "ConsensusSurvival": by_trust(survived),
    "PrivateClassifier": {
        "one site": lambda: PrivateClassifier("objective", data_norm=3.0, random_state=0).fit(X, Y),
        "people": lambda: PrivateClassifier("output", schema=PEOPLE, random_state=0).fit(FRAME),
    },
    "PrivateRegressor": {
        "one site": lambda: PrivateRegressor((0, 1), data_norm=3.0, random_state=0).fit(X, Y)
    },
    "Report": by_trust(lambda trust: train(trained(trust=trust)))
    | {"inference": lambda: infer(trained(method="auto", trust="sum")), "evaluation": evaluated},
    "Result": by_trust(lambda trust: train(trained(trust=trust)).result)
    | {"a shared ledger": lambda: train(trained()).result},
    "RunConfig": by_trust(lambda trust: RunConfig("momentum", trust=trust, delta=1e-5)),
    "Schema": {
        "declared": lambda: Schema.from_dict(DECLARED),
        "people": lambda: Schema.from_dict(PEOPLE),
    },
    "SchemaTransformer": {"fitted": lambda: SchemaTransformer(DECLARED).fit(FRAME)},
    "TrainConfig": {"synthetic": lambda: trained()},
}
"""Fitted objects of every public class, by what is particular to them."""
APART = {
    "describe",
    "survival_curves",
    "DurableLedger",
    "Ledger",
    "SottovoceError",
    "__version__",
    "register",
    "train",
}
"""Public names with tests of their own below, and those of no class."""
CASES = [(name, kind) for name, kinds in MAKERS.items() for kind in kinds]


def answers(one: Any) -> Any:
    """What an object answers, as text: all digits, and no address in memory."""
    if isinstance(one, BaseEstimator):
        given = FRAME if getattr(one, "schema_", None) is not None else X
        names = ("predict", "predict_proba", "decision_function", "transform", "predict_survival")
        told: dict[str, Any] = {
            name: getattr(one, name)(given).tolist() for name in names if hasattr(one, name)
        }
        told |= {
            name: getattr(one, name, None)
            for name in ("coef_", "intercept_", "privacy_spent_", "coefficients_")
        }
        return plain(told)
    return plain(one)


def plain(one: Any) -> Any:
    if isinstance(one, np.ndarray):
        return one.tolist()
    if isinstance(one, dict):
        return {str(key): plain(value) for key, value in one.items()}
    if isinstance(one, list | tuple):
        return [plain(value) for value in one]
    if isinstance(one, Ledger) or type(one).__name__ == "_Elsewhere":
        return "a ledger"
    if hasattr(one, "to_dict"):
        return plain(one.to_dict())
    if hasattr(one, "__dict__") and not isinstance(one, type) and not callable(one):
        return {name: plain(value) for name, value in vars(one).items()}
    return repr(one)


def trips(one: Any, folder: Path) -> dict[str, Any]:
    joblib.dump(one, folder / "one.joblib")
    found = {
        "pickle": pickle.loads(pickle.dumps(one)),
        "joblib": joblib.load(folder / "one.joblib"),
        "copy": copy.copy(one),
        "deepcopy": copy.deepcopy(one),
    }
    others = [k for k in (2, 3, 4, 5) if k != pickle.DEFAULT_PROTOCOL]
    return found | {f"pickle {k}": pickle.loads(pickle.dumps(one, k)) for k in others}


def test_all_public_classes_are_covered() -> None:
    assert set(MAKERS) | APART == set(sottovoce.__all__)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_copies_and_pickles_behave_like_the_original(name: str, kind: str, tmp_path: Path) -> None:
    one = MAKERS[name][kind]()
    before = answers(one)
    for trip, twin in trips(one, tmp_path).items():
        assert type(twin) is type(one), trip
        assert answers(twin) == before, trip
    if isinstance(one, BaseEstimator):
        parameters = one.get_params(deep=False)
        for source in (one, pickle.loads(pickle.dumps(one))):
            twin = clone(source)
            told = twin.get_params(deep=False)
            assert {**told, "ledger": 0} == {**parameters, "ledger": 0} and not hasattr(
                twin, "privacy_spent_"
            )
        assert repr(twin).count("\n") <= 10


def test_a_fresh_process_reads_what_was_pickled(tmp_path: Path) -> None:
    """All trusts in one process: classes that this one made must be found there by name."""
    made = [
        MAKERS["ConsensusClassifier"][kind]()
        for kind in (*(f"{trust} False" for trust in TRUSTS), "people")
        if kind in MAKERS["ConsensusClassifier"]
    ]
    made += [
        MAKERS["ConsensusRegressor"]["sum {'inference': True}"](),
        survived("sum"),
        MAKERS["Result"]["sum"](),
    ]
    (tmp_path / "made.pickle").write_bytes(pickle.dumps(made))
    (tmp_path / "X.npy").write_bytes(pickle.dumps(X))
    script = """
import pickle, sys
from pathlib import Path
folder = Path(sys.argv[1])
X = pickle.loads((folder / "X.npy").read_bytes())
made = pickle.loads((folder / "made.pickle").read_bytes())
def told(one):
    return one.predict(X) if hasattr(one, "predict") else getattr(one, "coef_", getattr(one, "models", None))
found = list(map(told, made))
(folder / "found.pickle").write_bytes(pickle.dumps(found))
"""
    done = warm.run(["-c", script, tmp_path], timeout=120)
    assert done.returncode == 0, done.stderr
    found = pickle.loads((tmp_path / "found.pickle").read_bytes())
    for one, told in zip(made, found, strict=True):
        own = (
            one.predict(X)
            if hasattr(one, "predict")
            else one.coef_
            if hasattr(one, "coef_")
            else one.models
        )
        assert np.array_equal(own, told)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_classes_of_methods_are_found_by_name(name: str) -> None:
    kind = REGISTRY[name]
    assert pickle.loads(pickle.dumps(kind)) is kind and len(
        {one.__qualname__ for one in REGISTRY.values()}
    ) == len(REGISTRY)


def test_copied_ledger_gives_no_second_budget(tmp_path: Path) -> None:
    """What one half of a copied budget spends, the other must not have as well."""
    memory, disk = (
        Ledger("zcdp", 3.0, 1e-5),
        DurableLedger.create(tmp_path / "rows.ledger", epsilon=3.0),
    )
    for ledger in (memory, disk):
        assert copy.copy(ledger) is ledger and copy.deepcopy([ledger])[0] is ledger
    stranded = pickle.loads(pickle.dumps(memory))
    with pytest.raises(LedgerError):
        stranded.total()
    again = pickle.loads(pickle.dumps(disk))
    # the same file
    assert (again.total(), again.epsilon.tolist()) == (
        disk.total(),
        disk.epsilon.tolist(),
    )
    model = ConsensusClassifier(ledger=memory, **STEPS).fit(X, Y)
    with pytest.raises(InvalidInput, match="ledger"):
        pickle.loads(pickle.dumps(model)).fit(X, Y)
    assert clone(model).ledger is memory


def exceptions() -> list[type[SottovoceError]]:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    return [kind for kind in kinds if issubclass(kind, SottovoceError)]


@pytest.mark.parametrize("kind", exceptions())
def test_errors_survive_pickling_and_copying(kind: type[SottovoceError]) -> None:
    error = (
        kind("field", 3, "rule", "remedy")
        if issubclass(kind, InvalidInput)
        else kind("what is wrong")
    )
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is kind and str(twin) == str(error) and vars(twin) == vars(error)


@pytest.mark.parametrize("kind", [kind for kind in exceptions() if issubclass(kind, InvalidInput)])
def test_error_copies_keep_other_errors_and_nodes(kind: type[InvalidInput]) -> None:
    error = kind("field", 3, "rule", "remedy")
    error.others, error.nodes = (kind("other", 4, "its rule", "its remedy"),), [True, False]
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        both_errors = "field=3: rule; remedy. Also: other=4: its rule; its remedy"
        assert str(twin) == str(error) == both_errors
        assert [vars(one) for one in twin.others] == [vars(one) for one in error.others]
        assert twin.nodes == error.nodes
