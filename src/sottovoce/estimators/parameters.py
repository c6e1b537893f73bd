"""Estimators' parameters: everyday ones in the signature, the others in ``knobs``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from textwrap import fill, indent
from typing import TypeVar

from ..algorithms import KNOBS
from ..algorithms.knobs import paragraphs
from ..errors import InvalidInput
from ..ledger.durable import DurableLedger
from ..ledger.memory import Ledger
from ..privacy.accountants import make_accountant
from ..problem.losses import loss_texts
from ..runs import defaults
from ..runs.config import RunConfig
from ..util.compatibility import refusal_of_format
from ..util.typing import Any

E = TypeVar("E")
PICKLED_BY = "_sottovoce_format"
_PICKLED_BEFORE = "open it with version 0.2, or fit again: a ledger keeps what was spent"
OFFERED = {name: knob for name, knob in KNOBS.items() if knob.offered}


def knobs_of(estimator: Any) -> dict[str, Any]:
    """The values of all knobs; unknown names are refused, and attributes that have no effect."""
    kind = type(estimator)
    known: dict[str, Any] = kind.own_knobs
    if not isinstance(estimator.knobs, Mapping | None):
        raise InvalidInput(
            "knobs",
            estimator.knobs,
            "must be a dict of values by name, or None",
            "use {'rho': 0.01}",
        )
    given = dict(estimator.knobs or {})
    if unknown := [name for name in given if name not in known]:
        rule = f"{kind.__name__} has no such knob; it has {', '.join(sorted(known, key=str.lower))}"
        raise InvalidInput("knobs", unknown[0], rule, "use one of these")
    if stray := (vars(estimator).keys() & {*known, "accountant"}).difference(
        kind._get_param_names()
    ):
        rule = f"is no attribute of {kind.__name__} and has no effect"
        raise InvalidInput(
            min(stray), None, rule, "delete it and use accounting=, ledger= or knobs={...}"
        )
    return known | given


def run_fields_of(estimator: Any) -> dict[str, Any]:
    """The fields of :class:`RunConfig` that parameters and knobs set."""
    given = estimator.get_params(deep=False) | knobs_of(estimator)
    rule, ledger = given.get("accounting"), given.get("ledger")
    try:
        _ = rule is None or make_accountant(rule)
    except (AttributeError, InvalidInput) as error:
        said = getattr(error, "rule", "must be the name of a rule, or None")
        raise InvalidInput(
            "accounting", rule, said, "use accounting='best', or ledger= for a ledger"
        ) from None
    known = RunConfig.defaults().keys() - {"centre"}  # a run's is a digest
    fields = {name: given[name] for name in known if name in given} | {"accountant": rule}
    # what is no ledger is refused elsewhere
    counted = ledger if isinstance(ledger, Ledger | DurableLedger) else rule
    if defaults.pure_total(counted):
        fields["delta"] = None
    return fields


def unpickled(state: dict[str, Any], kind: str) -> dict[str, Any]:
    """The state of a pickled estimator without what it says of its format; InvalidInput for
    another format.
    """
    state = dict(state)
    refused = refusal_of_format(state.pop(PICKLED_BY, None), _PICKLED_BEFORE)
    if refused is not None:
        raise InvalidInput("pickle", kind, refused.rule, refused.remedy)
    return state


def with_knobs(*names: str, **own: Any) -> Callable[[type[E]], type[E]]:
    """Declare an estimator's knobs: fields of :class:`RunConfig` by name, others with their
    defaults.
    """

    def over(kind: Any) -> Any:
        defaults_of_runs = RunConfig.defaults()
        kind.own_knobs = {name: defaults_of_runs[name] for name in names} | own
        losses = ", ".join(f'``"{text}"`` ({about})' for text, about in loss_texts().items())
        written = (kind.__doc__ or "").replace("    <knobs>\n", paragraphs(OFFERED.values()))
        kind.__doc__ = written.replace(
            "        <losses>\n", indent(fill(losses, 110), 8 * " ") + "\n"
        )
        return kind

    return over
