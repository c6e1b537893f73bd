"""Resume a reserved run with exactly the noise scale of its reservation, on another processor too.

A ledger on disk reserves the events of a whole run, and then accepts only these.  On another
processor computed privacy losses may differ in their last bits, so that calibration ends at a
slightly different scale of the noise.  Here the reserved scale is found again, to the last bit, by
comparing planned events with the reserved ones; nothing is priced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..privacy.events import Event
from ..problem.schedules import Schedule
from ..util.bisection import bisect_elementwise
from ..util.typing import Any, Array, BoolArray
from .pricing import Prepared

# Largest relative difference of another processor's scale that is searched.
_FARTHEST = 1e-6
# Bisection steps, from that interval down to a few neighbouring floating-point numbers.
_HALVINGS = 48
# Floating-point numbers tried on each side of where the bisection ends.
_NEIGHBOURS = 8


def with_reserved_noise(prepared: Prepared, reserved: Sequence[Event]) -> Prepared:
    """Return the run at the scale of noise with which its releases were reserved.

    Parameters
    ----------
    prepared : Prepared
        The run as it was calibrated here.
    reserved : sequence of Event
        Its releases as they were reserved, in order.

    Returns
    -------
    Prepared
        A run that plans exactly the reserved events; `prepared` itself if it does so already, or if
        no scale near its own does.  The ledger then refuses its releases.
    """
    noise = prepared.algorithm.noise
    wanted = [event.to_dict() for event in reserved]
    different = _first_difference(prepared, wanted)
    if noise is None or different is None:
        return prepared
    own = np.asarray(noise.factor, dtype=float)
    wanted_spread = np.asarray(reserved[different].noise_standard_deviation(), dtype=float).ravel()

    def noisier(factor: Array) -> BoolArray:
        """Return for each factor whether it gives more noise than reserved: a larger factor is a
        larger alpha, which is less noise.
        """
        event = _with_noise_factor(prepared, noise, factor).plan_ledger().rows[different]
        more = np.asarray(event.noise_standard_deviation(), dtype=float).ravel() > wanted_spread
        # One factor for all nodes has one answer.
        if own.ndim == 0:
            return np.asarray(more[0])
        return more

    low, _ = bisect_elementwise(
        noisier, own * (1.0 - _FARTHEST), own * (1.0 + _FARTHEST), _HALVINGS
    )
    # Spreads are rounded, so the halvings end near the scale and not at it: numbers on both sides
    # are tried until the events are equal to the last bit.
    for _ in range(_NEIGHBOURS):
        low = np.nextafter(low, 0.0)
    found = np.full(own.shape, np.nan)
    for _ in range(2 * _NEIGHBOURS):
        low = np.nextafter(low, np.inf)
        matches = _events_match(_with_noise_factor(prepared, noise, low), wanted, own.shape)
        found = np.where(np.isnan(found) & matches, low, found)
    if np.any(np.isnan(found)):
        return prepared
    return _with_noise_factor(prepared, noise, found)


def _first_difference(prepared: Prepared, wanted: Sequence[dict[str, Any]]) -> int | None:
    """Return the number of the first reserved event that differs from the planned one, from 0.

    None if none differs, or if the two are not of the same kind.
    """
    for k, (event, other) in enumerate(zip(prepared.plan_ledger().rows, wanted, strict=False)):
        planned = event.to_dict()
        if planned != other:
            if planned.keys() == other.keys():
                return k
            return None
    return None


def _with_noise_factor(prepared: Prepared, noise: Schedule, factor: Array) -> Prepared:
    """Return the run with this factor of its noise, for all nodes or for each."""
    exact: float | tuple[float, ...]
    if factor.ndim == 0:
        exact = factor.item()
    else:
        exact = tuple(factor.tolist())
    scaled = replace(noise, factor=exact)
    return replace(prepared, algorithm=prepared.algorithm.with_noise(scaled))


def _events_match(
    prepared: Prepared, wanted: Sequence[dict[str, Any]], shape: tuple[int, ...]
) -> BoolArray:
    """Compare planned events with the wanted ones: by node, or all together if `shape` is ()."""
    nodes = prepared.facts.n_nodes
    same = np.ones(nodes, dtype=bool)
    for event, other in zip(prepared.plan_ledger().rows, wanted, strict=False):
        for name, value in event.to_dict().items():
            same &= _equal_by_node(value, other[name], nodes)
    if shape:
        return same
    return np.array(np.all(same))


def _equal_by_node(value: Any, other: Any, nodes: int) -> bool | BoolArray:
    """Compare two fields of an event: node by node where both hold a number for each node."""
    both_lists = isinstance(value, list) and isinstance(other, list)
    if both_lists and len(value) == len(other) == nodes:
        return np.array(value) == np.array(other)
    return bool(value == other)
