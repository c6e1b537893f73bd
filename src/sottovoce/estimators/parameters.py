"""Parameters of the estimators: everyday ones in the signature, rarely used ones in ``knobs``.

The decorator :func:`declare_knobs` gives a class its knobs, with their defaults, and writes their
description into its docstring.  :func:`resolve_knobs` and :func:`collect_run_fields`, called at the
first step of a fit (:mod:`sottovoce.estimators.terms`), turn parameters and knobs into fields of
:class:`sottovoce.RunConfig`.
"""

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
# Key in the state of a pickled estimator: the version of the format, as in saved files.
PICKLED_BY = "_sottovoce_format"
_PICKLED_BEFORE = "open it with version 0.2, or fit again: a ledger keeps what was spent"
# Knobs of single methods that estimators offer.
OFFERED = {name: knob for name, knob in KNOBS.items() if knob.offered}


def resolve_knobs(estimator: Any) -> dict[str, Any]:
    """Return the values of all knobs of an estimator by name, given ones and defaults.

    Raises
    ------
    InvalidInput
        For an unknown name, and for a knob that was set as an attribute, where it has no effect.
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
    # `model.rho = 1` is meant as the knob, but would silently have no effect.
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
    """Return the fields of :class:`RunConfig`, by name, that parameters and knobs set.

    Raises
    ------
    InvalidInput
        For an unknown knob or accounting rule.
    """
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
    # The field `centre` of a run is a digest of the released mean; an estimator's knob of that name
    # says whether to release one.
    known = RunConfig.defaults().keys() - {"centre"}
    fields = {name: given[name] for name in known if name in given} | {"accountant": rule}
    # A ledger has its own accounting; what is no ledger is refused by `ledger_errors`.
    counted = rule
    if isinstance(ledger, Ledger | DurableLedger):
        counted = ledger
    if defaults.counts_pure_epsilon(counted):
        fields["delta"] = None
    return fields


def check_pickle_format(state: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a pickled estimator's state without its format key; `kind` is its class's name.

    Raises
    ------
    InvalidInput
        If another version wrote the pickle.
    """
    state = dict(state)
    refused = check_file_format(state.pop(PICKLED_BY, None), _PICKLED_BEFORE)
    if refused is not None:
        raise InvalidInput("pickle", kind, refused.rule, refused.remedy)
    return state


def declare_knobs(*names: str, **own: Any) -> Callable[[type[E]], type[E]]:
    """Return a class decorator that declares an estimator's knobs.

    It also fills the placeholders ``<knobs>`` and ``<losses>`` in the class's docstring.

    Parameters
    ----------
    *names : str
        Fields of :class:`RunConfig` that are knobs, with the defaults that they have there.
    **own
        Further knobs, or fields with another default.

    Returns
    -------
    callable
        The decorator.
    """

    def over(kind: Any) -> Any:
        defaults_of_runs = RunConfig.defaults()
        kind.own_knobs = {name: defaults_of_runs[name] for name in names} | own
        losses = ", ".join(f'``"{text}"`` ({about})' for text, about in loss_texts().items())
        written = (kind.__doc__ or "").replace("    <knobs>\n", knob_paragraphs(OFFERED.values()))
        about_losses = indent(fill(losses, 110), 8 * " ") + "\n"
        kind.__doc__ = written.replace("        <losses>\n", about_losses)
        return kind

    return over
