"""Bugs that are planted, one at a time, for the auditor to find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any


def _plant_mask() -> None:
    """A mask key that forgets what an attempt is bound to."""
    from sottovoce.deploy.sums import masks

    key = masks.derive_mask_key
    masks.derive_mask_key = lambda own, names, keys, other, bound: key(  # type: ignore[assignment]
        own, names, keys, other, replace(bound, attempt=1, query=b"", roster=b"", parent=b"")
    )


def _plant_row() -> None:
    """A row that is written only with the bytes of its draw."""
    from sottovoce.ledger.run import Run

    def once(self: Any, event: Any, draw: Callable[[], bytes]) -> bytes:
        known = self.records.history
        drawn = None if known.charged > self.release else draw()
        self.record_event(event, kept=True)
        found = self.payload()
        if found is not None:
            return bytes(found)
        return bytes(
            self.records.store_or_get_payload(self.release, draw() if drawn is None else drawn)
        )

    Run.charge_once = once  # type: ignore[method-assign]


def _plant_double() -> None:
    """A release that is drawn again although its bytes are kept."""
    from sottovoce.ledger.run import Run

    def once(self: Any, event: Any, draw: Callable[[], bytes]) -> bytes:
        self.record_event(event, kept=True)
        drawn, found = draw(), self.payload()
        return bytes(
            self.records.store_or_get_payload(self.release, drawn) if found is None else drawn
        )

    Run.charge_once = once  # type: ignore[method-assign]


def _plant_deadline() -> None:
    """A hub that waits for ever."""
    from sottovoce.deploy.rounds import RoundSequence

    RoundSequence.closing_time = property(lambda self: float("inf"))  # type: ignore[method-assign,assignment]


def _plant_older() -> None:
    """A hub that does not tell a site what it has of it: a ledger that was put back goes
    unnoticed.
    """
    from sottovoce.deploy.hub import Hub

    Hub.highest_round_of = lambda self, site: 0  # type: ignore[method-assign]
    Hub.earlier = lambda self, site: []  # type: ignore[method-assign]


PLANTS = {
    "mask": _plant_mask,
    "row": _plant_row,
    "double": _plant_double,
    "deadline": _plant_deadline,
    "older": _plant_older,
}
"""Bugs that the auditor must find."""
