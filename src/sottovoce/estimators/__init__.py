"""scikit-learn estimators, by the names that pickles of version 0.1 have."""

from importlib import import_module

_HOMES = {
    "ConsensusClassifier": "classifiers",
    "ConsensusPCA": "components",
    "ConsensusRegressor": "regressors",
    "ConsensusSurvival": "survival",
    "PrivateClassifier": "classifiers",
    "PrivateRegressor": "regressors",
    "SchemaTransformer": "transformer",
    "learning_steps": "caveats",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
