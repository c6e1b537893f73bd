"""The epsilon of a finished run under the other neighbouring relation.

A run is priced under "replace-one" (a row is replaced by any other) or "zero-out" (by an empty
one); its statement may name both epsilons.  Noise and solves are those that ran, so only the
sensitivities change.  They are read off a plan of the same run under the other relation, and
combined here with the noise of the run.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..errors import SottovoceError
from ..ledger.memory import Ledger
from ..privacy import events
from ..privacy.events import Event
from ..privacy.statement import with_further_facts
from ..privacy.statement_facts import UnderOtherRelation
from ..problem.trust import RELATIONS
from ..util.plain import canonical_json
from .pricing import Prepared
from .simulate import Result


def other_relation(relation: str) -> str:
    """Return the other neighbouring relation."""
    return next(name for name in RELATIONS if name != relation)


def with_other_relation(result: Result) -> Result:
    """Return the result with a statement that also says epsilon under the other relation.

    It is the result itself where that epsilon is not proved.
    """
    said, prepared = result.statement, result.prepared
    if prepared is None or not math.isfinite(said.epsilon) or said.form != "corrected":
        return result
    try:
        epsilon = epsilon_under_other(prepared, [canonical_json(event) for event in result.ledger])
    except SottovoceError:
        # Nothing is proved of these releases.
        return result
    if epsilon is None:
        return result
    return replace(result, statement=with_further_facts(said, UnderOtherRelation(epsilon)))


def epsilon_under_other(prepared: Prepared, released: list[str]) -> float | None:
    """Compute the epsilon of a run's releases under the other relation; None if it is not proved.

    `released` are the events of the run as canonical JSON texts.
    """
    facts, book, config = prepared.facts, prepared.ledger, prepared.config
    relation = other_relation(facts.relation)
    # Solves were certified for the relation of the run.
    there = replace(facts, relation=relation, solved_for=facts.relation)
    ours = prepared.planned_events()
    theirs = replace(prepared, facts=there).plan_ledger().rows
    known = {
        canonical_json(a.to_dict()): event_under_other(a, b)
        for a, b in zip(ours, theirs, strict=True)
    }
    ledger = Ledger(book.accountant, math.inf, book.delta, book.sites_per_row)
    priced = [known.get(text) for text in released]
    if None in priced:
        return None
    ledger.charge_all([event for event in priced if event is not None], config.copies)
    return ledger.total()


def event_under_other(own: Event, planned: Event) -> Event | None:
    """Return the event that prices a release under the other neighbouring relation.

    Zero-out neighbours are also replace-one neighbours, so parameters that are proved under
    replace-one hold under zero-out; the converse needs the planned event.

    Parameters
    ----------
    own : Event
        As it was charged.
    planned : Event
        The event of a plan of the same release under the other relation.

    Returns
    -------
    Event or None
        None if no price is proved.
    """
    if isinstance(own, events.Unprotected):
        return own
    relation: str = planned.relation  # type: ignore[attr-defined]
    match own:
        case events.SphericalObjectivePerturbation() | events.GaussianObjectivePerturbation():
            return replace(own, relation=relation)
        case events.SecretStartPerturbation():
            return replace(own, relation=relation, shift=planned.shift)  # type: ignore[attr-defined]
        case (
            events.GaussianMechanism()
            | events.CarriedGaussianMechanism()
            | events.ExactSphericalMechanism()
        ):
            return replace(
                own, relation=relation, sensitivity=_sensitivity_under(own, planned, relation)
            )
        case events.SummedGaussianMechanism():
            return replace(
                own, relation=relation, alpha=_shift_of_sum_under(own, planned, relation)
            )
        case _:
            # Zero-out neighbours are replace-one neighbours, but not the other way round.
            if relation == "zero-out":
                return replace(own, relation=relation)  # type: ignore[call-arg]
            return None


def _sensitivity_under(own: Event, planned: Event, relation: str) -> np.ndarray:
    """Return how far a row moves the answer under the other relation."""
    there = planned.sensitivity  # type: ignore[attr-defined]
    # Zero-out neighbours are replace-one neighbours, so what holds for these holds for them.
    if relation == "zero-out":
        return np.minimum(there, own.sensitivity)  # type: ignore[attr-defined]
    return there


def _shift_of_sum_under(
    own: events.SummedGaussianMechanism, planned: Event, relation: str
) -> np.ndarray:
    """Bound the mu of a sum over sites whose noise was calibrated for the relation of the run.

    Notes
    -----
    Sums are of integers: statistics in steps of a grid, of which a row moves x, rounded in d
    coordinates.  With h honest shares the noise is calibrated to ``sqrt((x + root d)^2 / h + d h /
    4)`` (docs/privacy/sums.md, Claim 3).  If a row moves r x under the other relation, mu grows by
    a factor of at most ``r + root d (1 + h / 2) / x``, and ``x >= alpha root h 2^bits``.

    r is ``(D' + e) / (D + e)``, with D and D' the changes of an exact mean under the two relations
    and e the same error of computation.  Both D grow if fewer sites take part.  So if ``D' < D``, r
    is largest with all sites, which is the case in the events; if ``D' > D``, r is below ``D' /
    D``, which is at most 2 for every statistic.
    """
    ratio = _sensitivity_under(own, planned, relation) / own.sensitivity
    if relation == "replace-one":
        ratio = np.where(ratio > 1.0, RELATIONS["replace-one"] / RELATIONS["zero-out"], 1.0)
    # (1 + h / 2) / root h falls up to h = 2 and grows from there, so it is largest at an end.
    fewest = max(1, own.participants - own.colluders)
    most = max(1, own.sites - own.colluders)
    honest = np.array([fewest, most], dtype=float)
    rounding = float(np.max((1.0 + honest / 2.0) / np.sqrt(honest)))
    grid = math.sqrt(own.dimension) * rounding * 2.0**-own.bits
    alpha = own.alpha * ratio + grid
    if relation == "zero-out":
        return np.minimum(alpha, own.alpha)
    return alpha


__all__ = ["epsilon_under_other", "other_relation", "with_other_relation"]
