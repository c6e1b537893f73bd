"""Train linear models across sites that may not share their rows, with a proved privacy guarantee.

These are the public names of the library; each is imported when it is first used.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .answers.describing import describe
    from .answers.survival_curves import survival_curves
    from .data.schema import Schema
    from .errors import SottovoceError
    from .estimators.classifiers import ConsensusClassifier, PrivateClassifier
    from .estimators.components import ConsensusPCA
    from .estimators.regressors import ConsensusRegressor, PrivateRegressor
    from .estimators.survival import ConsensusSurvival
    from .estimators.transformer import SchemaTransformer
    from .ledger.durable import DurableLedger
    from .ledger.memory import Ledger
    from .runs.config import RunConfig
    from .runs.registering import register
    from .runs.simulate import Result
    from .runs.training import Report, TrainConfig, train

    __version__: str

__all__ = [
    "ConsensusClassifier",
    "ConsensusPCA",
    "ConsensusRegressor",
    "ConsensusSurvival",
    "DurableLedger",
    "Ledger",
    "PrivateClassifier",
    "PrivateRegressor",
    "Report",
    "Result",
    "RunConfig",
    "Schema",
    "SchemaTransformer",
    "SottovoceError",
    "TrainConfig",
    "__version__",
    "describe",
    "register",
    "survival_curves",
    "train",
]

# The module of each name, from which it is imported on first use, so that a command of the command
# line loads no more than it needs.
_HOMES = {
    "ConsensusClassifier": "estimators.classifiers",
    "ConsensusPCA": "estimators.components",
    "ConsensusRegressor": "estimators.regressors",
    "ConsensusSurvival": "estimators.survival",
    "DurableLedger": "ledger.durable",
    "Ledger": "ledger.memory",
    "PrivateClassifier": "estimators.classifiers",
    "PrivateRegressor": "estimators.regressors",
    "Report": "runs.training",
    "Result": "runs.simulate",
    "RunConfig": "runs.config",
    "Schema": "data.schema",
    "SchemaTransformer": "estimators.transformer",
    "SottovoceError": "errors",
    "TrainConfig": "runs.training",
    "describe": "answers.describing",
    "register": "runs.registering",
    "survival_curves": "answers.survival_curves",
    "train": "runs.training",
}

# For a type checker every name would exist.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name on its first use."""
        if name == "__version__":
            found = _import_module(".util.installed", __name__).installed_version(__name__)
        elif name in _HOMES:
            found = getattr(_import_module(f".{_HOMES[name]}", __name__), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """Return all public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
