"""Conditions of prices: an event that does not meet the conditions of its proof costs more.

The price of a round of correlated noise, for instance, presumes that the rounds before it were
released, too.  An event class says what its price presumes
(:data:`sottovoce.privacy.events.NEEDS`).  Every ledger and accountant asks here, at a charge and at
a reservation, which event *prices* a release: the event itself, or one whose price holds without
the condition.  The ledger records the release's own event in either case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..util.typing import Array
from .events import (
    CarriedGaussianMechanism,
    Event,
    GatedRelease,
    MinimiserGateRelease,
    RedrawnGateRelease,
)

_LAST_BITS = 1.0 + 2.0**-48
"""Factor by which terms of two rounds may differ and count as equal: they are computed anew in
every round, so that their last bits may differ."""


class Conditions:
    """Finds the event that prices each release of a sequence, given those charged before it.

    The sequence is one run, or all releases that were charged outside runs, in order.  Rounds of
    several methods may alternate in it, each on its own terms.  On equal terms rounds cost the
    same, so which of two sequences of rounds a round belongs to does not matter.

    Parameters
    ----------
    sites_per_row : int
        At how many sites a person may have a row.
    """

    def __init__(self, sites_per_row: int = 1) -> None:
        self._sites_per_row = sites_per_row
        # By class and index: the rounds that no later round has followed yet.
        self._last: dict[tuple[type[Event], int], list[Event]] = {}
        # The event that was asked about last, and the answer of `_find_preceding_round` for it.
        self._asked: tuple[Event, tuple[list[Event], int] | None] | None = None

    def pricing_event(self, event: Event) -> Event:
        """Return the event that prices `event` if it is charged now."""
        if event.needs == "people":
            return event.event_for_people(self._sites_per_row)
        if event.needs == "nothing" or _index(event) == 1 or self._preceding_round(event):
            return event
        return event.alone()

    def charge_event(self, event: Event) -> Event:
        """Charge `event`, and return the event that prices it, as :meth:`pricing_event`."""
        priced = self.pricing_event(event)
        if event.needs == "rounds" and priced is event:
            if found := self._preceding_round(event):
                rounds, at = found
                del rounds[at]
            self._last.setdefault((type(event), _index(event)), []).append(event)
            self._asked = None
        return priced

    def charge_repeatedly(self, events: Sequence[Event], times: int) -> list[Event]:
        """Charge events, in order and `times` in a row, and return the event that prices each.

        The result is that of :meth:`charge_event` for one after the other.  If no round was charged
        before, and each round of the first time follows another of that time, later times are not
        searched.  Rounds are looked for from the latest one back, so a round of a later time
        follows a round of its own time, as in the first.

        Parameters
        ----------
        events : sequence of Event
        times : int
            At least 1.

        Returns
        -------
        list of Event
            ``times * len(events)`` events.
        """
        rounds_before = any(self._last.values())
        first = [self.charge_event(event) for event in events]
        prices_of_rounds = [
            (event, price)
            for event, price in zip(events, first, strict=True)
            if event.needs == "rounds"
        ]
        if not prices_of_rounds:
            return first * times
        if not rounds_before and all(price is event for event, price in prices_of_rounds):
            # Every time leaves the same rounds to be followed.
            self._last = {key: rounds * times for key, rounds in self._last.items()}
            return first * times
        return first + [self.charge_event(event) for _ in range(times - 1) for event in events]

    def copy(self) -> Conditions:
        """Return an independent copy."""
        twin = Conditions(self._sites_per_row)
        twin._last = {key: list(rounds) for key, rounds in self._last.items()}
        return twin

    def _preceding_round(self, event: Event) -> tuple[list[Event], int] | None:
        """Return the latest round that `event` follows, as its place in a list (cached)."""
        if self._asked is None or self._asked[0] is not event:
            self._asked = event, self._find_preceding_round(event)
        return self._asked[1]

    def _find_preceding_round(self, event: Event) -> tuple[list[Event], int] | None:
        """Return the latest round that `event` follows: the list that it is in, and its place."""
        rounds = self._last.get((type(event), _index(event) - 1), [])
        for i in reversed(range(len(rounds))):
            if _follows_round(event, rounds[i]):
                return rounds, i
        return None


def pricing_events(events: Iterable[Event]) -> Iterable[Event]:
    """Yield the events that price these events of one run, in order."""
    return map(Conditions().charge_event, events)


def _index(event: Event) -> int:
    """Return the number of an event's round, from 1."""
    index: int = getattr(event, "index")  # noqa: B009 - every class that needs rounds has one
    return index


# A file may hold events of no noise, whose price says that nothing is proved.
@np.errstate(all="ignore")
def _follows_round(event: Event, before: Event) -> bool:
    """Return whether `before` is the round before `event`, on terms that prove its price."""
    match event, before:
        case (CarriedGaussianMechanism(), CarriedGaussianMechanism()):
            # Of one run: sigma falls as the theorem has it (docs/privacy/correlated_noise.md).
            T, t = float(event.rounds), float(event.index)
            falls = np.sqrt((T + t) * max(T + t - 2.0, 0.0)) / (T + t - 1.0)
            same = (
                _alike(event, before, "rounds", "dimension", "sensitivity")
                and event.index <= event.rounds
            )
            return same and _about(event.sigma, falls * before.sigma)
        case (GatedRelease(), GatedRelease()):
            # Rounds that cost a release pay for later ones, so all cost the same.
            same = _alike(
                event, before, "positives", "dimension", "epsilon_threshold", "epsilon_queries"
            )
            return same and _about(
                event.sensitivity / event.sigma, before.sensitivity / before.sigma
            )
        case (RedrawnGateRelease(), RedrawnGateRelease()) | (
            MinimiserGateRelease(),
            MinimiserGateRelease(),
        ):
            same = _alike(event, before, "positives", "dimension", "curvature_bound", "error")
            return same and _alike(event, before, "sigma", "K", "sigma_release")
        case _:
            return False


def _alike(one: Event, other: Event, *names: str) -> bool:
    """Return whether source, relation and these fields of two events are equal."""
    for name in ("source", "relation", *names):
        own, others = getattr(one, name), getattr(other, name)
        if isinstance(own, np.ndarray):
            if not np.array_equal(own, others):
                return False
        elif own != others:
            return False
    return True


def _about(one: Array, other: Array) -> bool:
    """Return whether two arrays are equal but for their last bits (`_LAST_BITS`)."""
    return one.shape == other.shape and bool(
        np.all((one <= other * _LAST_BITS) & (other <= one * _LAST_BITS))
    )
