"""Knobs: the parameters of one method that users may set, declared as fields of its options.

::

    @dataclass(frozen=True)
    class MRADMMOptions(MethodOptions):
        gamma: float = knob(0.1, "Weight of the proximal term.", Interval(low=0, closed="low"))

A method has its options in the field `options`.  The command line, the estimators, studies and the
docs read knobs from there; :meth:`sottovoce.RunConfig.from_dict` takes them by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import lru_cache
from types import MappingProxyType

from ..errors import InvalidInput
from ..util.constraints import (
    Constraint,
    Interval,
    OneOf,
    constraint_metadata,
    validate_fields_and_rules,
)
from ..util.plain import as_python_numbers
from ..util.typing import Any
from .reserved_names import RESERVED_NAMES

_KEY = "knob"  # under which a field's metadata holds what `knob` declared
WRITTEN = ("gamma", "phi", "law", "batches", "positives", "threshold")
"""Knobs that records write even at their defaults, as digests of runs depend on that text."""


@dataclass(frozen=True)
class MethodOptions:
    """Base class of a method's options: a frozen dataclass whose fields are knobs."""

    def __post_init__(self) -> None:
        for one in fields(self):
            object.__setattr__(self, one.name, as_python_numbers(getattr(self, one.name)))
        validate_fields_and_rules(self)


@dataclass(frozen=True)
class Knob:
    """The declaration of one knob."""

    name: str
    kind: str  # type of the field as text: "float", "int" or "str"
    default: Any
    about: str  # help of its option, one line
    constraint: Constraint
    form: str
    """The only form of the method that reads the knob; empty for all."""
    strict: str = ""
    """Why methods without the knob refuse a value other than the default; empty if they ignore it.

    The text follows "the corrected dvp has none; " in the error."""

    @property
    def offered(self) -> bool:
        """Whether command line and estimators offer it; knobs of printed forms are for studies."""
        return self.form != "printed"


def knob(default: Any, about: str, constraint: Constraint, form: str = "", strict: str = "") -> Any:
    """Declare a field of a method's options that users may set.

    Parameters
    ----------
    default : object
        The default value.
    about : str
        Help of the option, one line.
    constraint : Constraint
        Which values are allowed.
    form : {"", "corrected", "printed"}
        The only form of the method that reads the knob; empty for all.
    strict : str
        Why methods and forms without the knob refuse values other than the default; empty if they
        ignore them.

    Returns
    -------
    dataclasses.Field
        To be assigned in the body of a :class:`MethodOptions`; :class:`Knob` describes it.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class DampedOptions(MethodOptions):
    ...     damping: float = knob(1.0, "Share of a step taken.", Interval(0, 1, closed="high"))
    >>> knobs_of(DampedOptions())["damping"].default
    1.0
    """
    own = {_KEY: (about, constraint, form, strict)}
    return field(default=default, metadata=own | constraint_metadata(constraint))


@lru_cache(maxsize=256)
def knobs_of(options: MethodOptions) -> MappingProxyType[str, Knob]:
    """Return the knobs of options, by name."""
    declared = fields(options)
    kinds = {}
    for f in declared:
        # With `from __future__ import annotations` types are text; elsewhere they are classes.
        if isinstance(f.type, str):
            kinds[f.name] = f.type
        else:
            kinds[f.name] = f.type.__name__
    return MappingProxyType(
        {f.name: Knob(f.name, kinds[f.name], f.default, *f.metadata[_KEY]) for f in declared}
    )


def undeclared_fields(options: MethodOptions) -> list[str]:
    """Return the fields of options that are no knobs, or have a type that no option can read."""
    kinds = {
        f.name: f.type if isinstance(f.type, str) else getattr(f.type, "__name__", "")
        for f in fields(options)
    }
    return [
        f.name
        for f in fields(options)
        if _KEY not in f.metadata or kinds[f.name] not in ("float", "int", "str")
    ]


def values_of(options: MethodOptions) -> dict[str, Any]:
    """Return the values of options, by name."""
    return dict(vars(options))


def knob_paragraphs(knobs: Iterable[Knob]) -> str:
    """Return knobs as entries of a docstring's Parameters section, indented by four."""
    return "".join(
        f"    {one.name} : {one.kind}, default={one.default!r}\n        {one.about}\n"
        for one in knobs
    )


def gather_knobs(methods: Iterable[Any]) -> dict[str, Knob]:
    """Collect the knobs of all methods, by name.

    Raises
    ------
    InvalidInput
        If two methods declare one name in different ways, or a knob has a reserved name
        (:mod:`sottovoce.algorithms.reserved_names`).
    """
    found: dict[str, Knob] = {}
    for method in methods:
        taken = RESERVED_NAMES | {one.name for one in fields(method)}
        for name, one in knobs_of(method.options).items():
            if name in taken:
                rule = (
                    f"declares an option {name!r}, but every run, method, command or estimator "
                    "already has a parameter of this name"
                )
                raise InvalidInput("method", method.name, rule, "give the option another name")
            if one != found.setdefault(name, one):
                rule = (
                    f"declares the option {name!r} with another default, constraint or text than "
                    "another method: an option must mean the same everywhere"
                )
                raise InvalidInput("method", method.name, rule, "give the option another name")
    return found


def law() -> Any:
    """Declare the knob that chooses the distribution of noise inside the objective."""
    return knob(
        "spherical",
        "Distribution of the noise inside the objective: spherical or gaussian.",
        OneOf("spherical", "gaussian"),
        form="corrected",
    )


def zeta() -> Any:
    """Declare the knob of the printed forms of 000 and 001 for their noise rate zeta.

    Their listings have ``zeta = alpha_hat``, and their proofs ``alpha_hat / 2``.
    """
    return knob(
        "listing",
        "Rate of 000's and 001's printed noise: listing, alpha-hat, or proof, half of it, as "
        "their proofs need.",
        OneOf("listing", "proof"),
        form="printed",
    )


def gradient_cap() -> Any:
    """Declare the knob of gradient clipping (:mod:`sottovoce.problem.clipped`).

    For methods whose sensitivity is the norm of a row's gradient.
    """
    return knob(
        math.inf,
        "Gradient clipping: largest norm of a row's gradient, so that less noise is needed but the "
        "loss gets linear tails; inf for none.",
        Interval(low=1e-6),
        form="corrected",
        strict="gradient clipping needs a method that adds noise to gradients or answers, such as "
        "prox_admm",
    )


@dataclass(frozen=True)
class CappedOptions(MethodOptions):
    """Options of methods whose sensitivity is the norm of a row's gradient."""

    max_grad_norm: float = gradient_cap()
