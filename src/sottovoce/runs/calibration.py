"""Calibrate a method's noise so that the privacy loss of a run meets a target epsilon.

The *scale* of a node multiplies its whole noise schedule alpha; a larger scale is less noise.  The
search itself is :func:`sottovoce.privacy.calibration.calibrate`; here is what it compares: the
total of the ledger that a run at this scale would leave (:func:`plan_ledger`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from ..algorithms import Algorithm
from ..errors import InvalidInput
from ..ledger.claims import papers_claimed_epsilon
from ..ledger.memory import validate_target
from ..privacy.calibration import (
    CLOSED_FORM_TOLERANCE,
    Calibration,
    PriceOfScale,
    calibrate,
    tolerance_for,
)
from ..privacy.events import Event
from ..problem.schedules import Schedule
from ..util.plain import canonical_json
from ..util.typing import Any, Array, ArrayLike
from .gaussian_runs import price_of_gaussian_run, scalar_if_equal
from .pricing import RunSetting, key_of_plan, plan_ledger, planned_events

A = TypeVar("A", bound=Algorithm[Any])

# Largest relative difference of scales that is taken for rounding between equal nodes.
_ROUNDING = 1e-12
_MOST_REMEMBERED = 256
# A cache: scales (N,) of earlier calibrations, by all that they depend on.
_remembered: dict[Any, Array] = {}


def calibrate_method(
    method: A, setting: RunSetting, epsilon: ArrayLike, *, claimed: bool = False
) -> A:
    """Return the method with the least noise at which a run costs each node at most `epsilon`.

    Parameters
    ----------
    method : Algorithm
        Its ``noise`` gives the shape of the noise over rounds, which is kept.
    setting : RunSetting
        With several ``sites_per_row``, and for methods that need all of their rounds, all nodes
        share one scale, and the network's total meets the target.  ``copies`` runs share the
        target, and so does what is asked ``first``.
    epsilon : float or array (N,)
        The target, positive.
    claimed : bool
        Meet the target by the paper's own claim instead of the proved price, for printed forms.

    Returns
    -------
    Algorithm

    Raises
    ------
    InvalidInput
        If the method has no noise, or no scale meets the target; it names the smallest epsilon that
        can be met.

    Guarantee
    ---------
    By the setting's accountant, the total of the ledger that
    :func:`sottovoce.runs.pricing.plan_ledger` returns for the result is at most the target (unless
    `claimed`): :func:`sottovoce.privacy.calibration.calibrate`.
    """
    validate_target(epsilon, setting.delta or None)
    shape = method.noise
    if shape is None:
        raise InvalidInput(
            "noise", None, "the method has no noise to calibrate", "give it a noise schedule"
        )
    target = np.broadcast_to(np.asarray(epsilon, dtype=float), (setting.facts.n_nodes,))
    key = _calibration_key(method, shape, setting, target, claimed)
    if key is not None and key in _remembered:
        return method.with_noise(_scaled_schedule(shape, _remembered[key]))
    scale = _find_scale(method, shape, setting, target, claimed)
    if key is not None:
        if len(_remembered) >= _MOST_REMEMBERED:
            _remembered.clear()
        _remembered[key] = scale
    return method.with_noise(_scaled_schedule(shape, scale))


def _find_scale(
    method: Algorithm[Any], shape: Schedule, setting: RunSetting, target: Array, claimed: bool
) -> Array:
    """Find the scale of every node's noise, (N,), that meets the target."""
    if claimed:
        price = _claim_of_plan(method, shape, setting)
        found = calibrate(price, target, tolerance=CLOSED_FORM_TOLERANCE)
    else:
        price = _price_of_plan(method, shape, setting)
        found = _calibrate_by_totals(method, shape, setting, target)
    if not np.all(found.met):
        raise _unaffordable_error(method, setting, target, price(found.too_large))
    # Returned as found, to the last bit: runs of existing ledgers are replayed at this scale.
    if not setting.facts.has_several_rows:
        return found.scale
    # With several rows a person, equal nodes get one scale: where scales differ by rounding alone,
    # the least of them meets every target.
    least = float(np.min(found.scale))
    if np.all(found.scale <= least * (1.0 + _ROUNDING)):
        return np.full_like(found.scale, least)
    return found.scale


def _calibrate_by_totals(
    method: Algorithm[Any], shape: Schedule, setting: RunSetting, target: Array
) -> Calibration:
    """Calibrate by totals of planned ledgers; for Gaussian runs by a function that is faster."""
    tolerance = tolerance_for(setting.accountant)
    price = _price_of_plan(method, shape, setting)
    gaussian_price = price_of_gaussian_run(method, setting)
    if gaussian_price is not None:
        found = calibrate(gaussian_price, target, tolerance=tolerance)
        # What a run spends is its ledger's total, so the faster function must agree with it.
        if np.all(found.met) and np.array_equal(price(found.scale), found.epsilon):
            return found
    return calibrate(price, target, tolerance=tolerance)


def _price_of_plan(method: Algorithm[Any], shape: Schedule, setting: RunSetting) -> PriceOfScale:
    """Return the function from scales (N,) to the epsilon of each node that a ledger totals."""
    node_by_node = setting.sites_per_row == 1 and not method.complete

    def totals(scaled: Algorithm[Any]) -> Array:
        ledger = plan_ledger(scaled, setting)
        if node_by_node:
            return ledger.per_node()
        return np.array(ledger.total())

    return _price_of_scaled(method, shape, setting, totals)


def _claim_of_plan(method: Algorithm[Any], shape: Schedule, setting: RunSetting) -> PriceOfScale:
    """Return the function from scales (N,) to the epsilon that the paper claims, inf if none."""

    priced = False

    def claims(scaled: Algorithm[Any]) -> Array:
        nonlocal priced
        # A claim follows from the events.  They are priced once, so that events of which the
        # accountant has no proof are refused here.
        events: Sequence[Event]
        if priced:
            events = planned_events(scaled, setting) * setting.copies
        else:
            events = plan_ledger(scaled, setting).rows
        priced = True
        found = papers_claimed_epsilon(events, setting.delta)
        if found is None:
            return np.array(np.inf)
        return found

    return _price_of_scaled(method, shape, setting, claims)


def _price_of_scaled(
    method: Algorithm[Any],
    shape: Schedule,
    setting: RunSetting,
    price_of: Callable[[Algorithm[Any]], Array],
) -> PriceOfScale:
    """Return the function from scales (N,) to `price_of` the method at this scale."""
    nodes = (setting.facts.n_nodes,)

    def price(scale: Array) -> Array:
        scaled = method.with_noise(_scaled_schedule(shape, scale))
        try:
            found = price_of(scaled)
        except InvalidInput as error:
            if error.field != "alpha" or error.nodes is None:
                raise
            # `error.nodes` are those whose noise would have to be infinite at this scale: minus
            # infinity tells the search so.  Nothing is known of the others: NaN.
            infinite = np.broadcast_to(np.asarray(error.nodes), nodes)
            return np.where(infinite, -np.inf, np.nan)
        return np.broadcast_to(found, nodes)

    return price


def _unaffordable_error(
    method: Algorithm[Any], setting: RunSetting, target: Array, least: Array
) -> InvalidInput:
    """Return the error for a target that no noise meets, however large.

    `least` is the epsilon of each node, (N,), at the most noise that was tried.
    """
    known = least[np.isfinite(least)]
    least_text = "more than this"
    if known.size:
        least_text = f"{float(known.max()):.4g}"
    if np.all(target == target[0]):
        shown = float(target[0])
    else:
        shown = target.tolist()
    rule = f"{setting.rounds} rounds cost at least {least_text} however much noise is added"
    remedy = "use a larger epsilon"
    if not method.complete:
        remedy += ", fewer rounds, or larger eta or rho"
    return InvalidInput("epsilon", shown, rule, remedy)


def _scaled_schedule(shape: Schedule, scale: Array) -> Schedule:
    return shape.scaled(scalar_if_equal(scale))


def _calibration_key(
    method: Algorithm[Any], shape: Schedule, setting: RunSetting, target: Array, claimed: bool
) -> Any:
    """Return a key of all that the scale depends on, for the cache; None if it cannot be hashed.

    One-against-rest classifiers, replicates and later calls calibrate the same run again.  A recipe
    may hold arrays, which cannot be hashed; all nodes share its one scale, which its events at
    another scale determine, so these are its key.
    """
    common = (
        target.tobytes(),
        setting.accountant.label,
        setting.delta,
        setting.sites_per_row,
        setting.copies,
        claimed,
    )
    if method.complete:
        events = [event.to_dict() for event in planned_events(method, setting)]
        parts = [method.name, shape.to_dict(), setting.facts.to_dict(), events]
        return (canonical_json(parts), *common)
    key = key_of_plan(method, setting)
    if key is None:
        return None
    return (key, *common)
