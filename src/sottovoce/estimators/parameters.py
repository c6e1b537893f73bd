"""Estimators' parameters: everyday ones in the signature, the others in ``knobs``, and names of version 0.1."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from inspect import signature
from textwrap import fill, indent
from typing import ClassVar, Self, TypeVar

from ..algorithms import KNOBS
from ..algorithms.knobs import paragraphs
from ..errors import InvalidInput
from ..privacy.accountants import make_accountant
from ..problem.losses import loss_texts
from ..runs import defaults
from ..runs.config import RunConfig
from ..util.typing import Any

E = TypeVar("E")
OFFERED = {name: knob for name, knob in KNOBS.items() if knob.offered}


class Knobbed:
    """For estimators with ``knobs={...}``, whose names and defaults :func:`with_knobs` declares."""

    knobs: Mapping[str, Any] | None
    own_knobs: ClassVar[dict[str, Any]]

    def _knobs(self) -> dict[str, Any]:
        """The values of all knobs; unknown names are refused, and attributes that have no effect."""
        kind: Any = type(self)
        known = kind.own_knobs
        if not isinstance(self.knobs, Mapping | None):
            raise InvalidInput("knobs", self.knobs, "must be a dict of values by name, or None", "use {'rho': 0.01}")
        given = dict(self.knobs or {})
        if unknown := [name for name in given if name not in known]:
            rule = f"{kind.__name__} has no such knob; it has {', '.join(sorted(known, key=str.lower))}"
            raise InvalidInput("knobs", unknown[0], rule, "use one of these")
        if stray := (vars(self).keys() & {*known, "accountant"}).difference(kind._get_param_names()):
            rule = f"is no attribute of {kind.__name__} and has no effect"
            raise InvalidInput(min(stray), None, rule, "delete it and use accounting=, ledger= or knobs={...}")
        return known | given

    def _run_fields(self) -> dict[str, Any]:
        """The fields of :class:`RunConfig` that parameters and knobs set."""
        given = self.get_params(deep=False) | self._knobs()  # type: ignore[attr-defined]
        rule, ledger = given.get("accounting"), given.get("ledger")
        try:
            _ = rule is None or make_accountant(rule)
        except (AttributeError, InvalidInput) as error:
            said = getattr(error, "rule", "must be the name of a rule, or None")
            raise InvalidInput("accounting", rule, said, "use accounting='best', or ledger= for a ledger") from None
        known = [f.name for f in fields(RunConfig) if f.name != "centre"]  # a run's is a digest
        found = {name: given[name] for name in known if name in given} | {"accountant": rule}
        return found | ({"delta": None} if defaults.pure_total(rule if ledger is None else ledger) else {})

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``knobs__rho=...`` sets one knob and leaves the others."""
        one = {name.removeprefix("knobs__"): params.pop(name) for name in list(params) if name.startswith("knobs__")}
        if one:
            params["knobs"] = dict(params.get("knobs", self.knobs) or {}) | one
        found: Self = super().set_params(**_renamed(type(self), params, self.knobs))  # type: ignore[misc]
        return found

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "knobs" not in state:  # a pickle of version 0.1
            known = self.own_knobs
            told = {name: value for name, value in state.items() if name not in known or value != known[name]}
            state = {"knobs": None} | _renamed(type(self), told, None, category=None)
        kind: Any = type(self)
        later = {one.name: one.default for one in signature(kind.__init__).parameters.values() if one.name not in state}
        state = {name: later[name] for name in kind._get_param_names() if name in later} | state
        super().__setstate__(state)  # type: ignore[misc]


def _renamed(
    kind: Any, given: dict[str, Any], knobs: Mapping[str, Any] | None, category: type[Warning] | None = FutureWarning
) -> dict[str, Any]:
    """Parameters by the names of today; those that became knobs are added to `knobs`."""
    own, instead = kind._get_param_names(), []
    old = {name: value for name, value in given.items() if name in kind.own_knobs and name not in own}
    beside = given.get("knobs")
    if isinstance(beside, Mapping) and (twice := old.keys() & beside.keys()):
        rule = "is given twice: by itself, as in version 0.1, and in knobs"
        raise InvalidInput(min(twice), old[min(twice)], rule, "give it in knobs alone")
    new = {name: value for name, value in given.items() if name not in old}
    if "accounting" in own and "accountant" in given:  # a rule's name or a ledger
        value = new.pop("accountant")
        name = "accounting" if isinstance(value, str | None) or "ledger" not in own else "ledger"
        new = {each: None for each in ("accounting", "ledger") if each in own} | new | {name: value}
        instead.append(f"{name}=... for accountant")
    if old:
        new["knobs"] = dict(new.get("knobs", knobs) or {}) | old
        instead.append(f"knobs={{{', '.join(f'{name!r}: ...' for name in old)}}}")
    if instead and category is not None:
        said = f"{kind.__name__}: write {' and '.join(instead)}; names of version 0.1 are taken in this release only"
        warnings.warn(said, category, stacklevel=3)
    return new


def with_knobs(*names: str, **own: Any) -> Callable[[type[E]], type[E]]:
    """Declare an estimator's knobs: fields of :class:`RunConfig` by name, others with their defaults."""

    def over(kind: Any) -> Any:
        init = kind.__init__

        @wraps(init)  # and names of version 0.1, which the signature does not show
        def renaming(self: Any, *args: Any, **given: Any) -> None:
            init(self, *args, **_renamed(kind, given, None))

        kind.__init__, kind.own_knobs = renaming, {name: getattr(RunConfig, name) for name in names} | own
        losses = ", ".join(f'``"{text}"`` ({about})' for text, about in loss_texts().items())
        written = (kind.__doc__ or "").replace("    <knobs>\n", paragraphs(OFFERED.values()))
        kind.__doc__ = written.replace("        <losses>\n", indent(fill(losses, 110), 8 * " ") + "\n")
        return kind

    return over
