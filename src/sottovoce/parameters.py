"""The methods' knobs as parameters of the estimators."""

from __future__ import annotations

import inspect
from textwrap import fill, indent
from typing import TypeVar

from sklearn.base import BaseEstimator

from .algorithms import KNOBS
from .algorithms.knobs import paragraphs
from .losses import loss_texts
from .typing import Any

E = TypeVar("E")
OFFERED = {name: knob for name, knob in KNOBS.items() if knob.offered}
"""Knobs that estimators take."""


def set_knobs(estimator: BaseEstimator, given: dict[str, Any]) -> None:
    """The methods' knobs as attributes, as scikit-learn keeps parameters."""
    if unknown := given.keys() - OFFERED.keys():
        raise TypeError(f"{type(estimator).__name__} has no parameter {min(unknown)!r}")
    for name, knob in OFFERED.items():
        setattr(estimator, name, given.get(name, knob.default))


def with_knobs(cls: type[E]) -> type[E]:
    """Name the methods' knobs in the signature, from which scikit-learn takes the parameters, and in the docstring."""
    own = inspect.signature(cls.__init__)
    fixed = [one for one in own.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=knob.default, annotation=knob.kind)
        for name, knob in OFFERED.items()
    ]
    cls.__init__.__signature__ = own.replace(parameters=[*fixed, *more])  # type: ignore[attr-defined]
    losses = ", ".join(f'``"{text}"`` ({about})' for text, about in loss_texts().items())
    written = (cls.__doc__ or "").replace("    <knobs>\n", paragraphs(OFFERED.values()))
    cls.__doc__ = written.replace("        <losses>\n", indent(fill(losses, 110), 8 * " ") + "\n")
    return cls
