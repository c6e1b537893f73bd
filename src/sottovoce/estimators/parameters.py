"""Estimators' parameters: everyday ones in the signature, the others in ``knobs``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from textwrap import fill, indent
from typing import TypeVar

from ..algorithms import KNOBS
from ..algorithms.knobs import knob_paragraphs
from ..errors import InvalidInput
from ..ledger.durable import DurableLedger
from ..ledger.memory import Ledger
from ..privacy.accountants import make_accountant
from ..problem.losses import loss_texts
from ..runs import defaults
from ..runs.config import RunConfig
from ..util.compatibility import check_file_format
from ..util.typing import Any

E = TypeVar("E")
PICKLED_BY = "_sottovoce_format"
_PICKLED_BEFORE = "open it with version 0.2, or fit again: a ledger keeps what was spent"
OFFERED = {name: knob for name, knob in KNOBS.items() if knob.offered}


def resolve_knobs(estimator: Any) -> dict[str, Any]:
    """Return the values of all knobs.

    Unknown names are refused (InvalidInput), and so are attributes that have no effect.
    """
    kind = type(estimator)
    known: dict[str, Any] = kind.own_knobs
    if not isinstance(estimator.knobs, Mapping | None):
        rule = "must be a dict of names and values, or None"
        raise InvalidInput("knobs", estimator.knobs, rule, "use {'rho': 0.01}")
    given = dict(estimator.knobs or {})
    unknown = [name for name in given if name not in known]
    if unknown:
        rule = f"{kind.__name__} has no such knob; it has {', '.join(sorted(known, key=str.lower))}"
        raise InvalidInput("knobs", unknown[0], rule, "use one of these")
    # Whoever sets `model.rho = 1` means the knob, and would not learn that it has no effect.
    knobs_set = vars(estimator).keys() & {*known, "accountant"}
    stray = knobs_set.difference(kind._get_param_names())
    if stray:
        name = min(stray)
        rule = f"was set as an attribute of {kind.__name__}, where it has no effect"
        remedy = f"use knobs={{{name!r}: ...}} and `del model.{name}`"
        if name == "accountant":
            remedy = "use accounting='best' or ledger=..., and `del model.accountant`"
        raise InvalidInput(name, None, rule, remedy)
    return known | given


def collect_run_fields(estimator: Any) -> dict[str, Any]:
    """Return the fields of :class:`RunConfig` that parameters and knobs set."""
    given = estimator.get_params(deep=False) | resolve_knobs(estimator)
    rule = given.get("accounting")
    ledger = given.get("ledger")
    try:
        if rule is not None:
            make_accountant(rule)
    except (AttributeError, InvalidInput) as error:
        said = getattr(error, "rule", "must be the name of a rule, or None")
        raise InvalidInput(
            "accounting", rule, said, "use accounting='best', or ledger= for a ledger"
        ) from None
    # A run's `centre` is a digest, and an estimator's a choice.
    known = RunConfig.defaults().keys() - {"centre"}
    fields = {name: given[name] for name in known if name in given} | {"accountant": rule}
    # What is no ledger is refused elsewhere.
    counted = rule
    if isinstance(ledger, Ledger | DurableLedger):
        counted = ledger
    if defaults.counts_pure_epsilon(counted):
        fields["delta"] = None
    return fields


def check_pickle_format(state: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the state of a pickled estimator without its format; InvalidInput for another one."""
    state = dict(state)
    refused = check_file_format(state.pop(PICKLED_BY, None), _PICKLED_BEFORE)
    if refused is not None:
        raise InvalidInput("pickle", kind, refused.rule, refused.remedy)
    return state


def declare_knobs(*names: str, **own: Any) -> Callable[[type[E]], type[E]]:
    """Declare an estimator's knobs: fields of :class:`RunConfig` by name, others with defaults."""

    def over(kind: Any) -> Any:
        defaults_of_runs = RunConfig.defaults()
        kind.own_knobs = {name: defaults_of_runs[name] for name in names} | own
        losses = ", ".join(f'``"{text}"`` ({about})' for text, about in loss_texts().items())
        written = (kind.__doc__ or "").replace("    <knobs>\n", knob_paragraphs(OFFERED.values()))
        about_losses = indent(fill(losses, 110), 8 * " ") + "\n"
        kind.__doc__ = written.replace("        <losses>\n", about_losses)
        return kind

    return over
