"""The hub's console while somebody waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sottovoce.cli import serving as command


class Slow:
    """A watch of a run in which east waits for south; counts what it is asked."""

    def __init__(self) -> None:
        self.looks, self.waits, self.alarms = 0, True, list[dict[str, str]]()

    def note_new_messages(self, *, now: bool = False) -> None:
        self.looks += 1

    def status_with_times(self) -> dict[str, Any]:
        def site(name: str, waits_for: list[str], since: str | None) -> dict[str, Any]:
            return {
                "site": name,
                "waits_for": waits_for,
                "awaited_since": since,
                "last_heard": None,
            }

        since = "2020-01-01T00:00:00+00:00" if self.waits else None
        waits = ["south"] if self.waits else []
        return {
            "sites": [site("east", waits, None), site("south", [], since)],
            "alarms": self.alarms,
            "run": "trial-1",
            "plan": "",
        }


def ignore_alarms(alarms: list[dict[str, str]], run: str, digest: str) -> None:
    """Take alarms for a program or a log, of which there are none here."""


def test_a_hub_says_again_and_again_who_waits_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slow, said = SimpleNamespace(now=0.0), Slow(), list[str]()

    def tell(text: str, **more: object) -> None:
        said.append(text)

    monkeypatch.setattr(command.time, "monotonic", lambda: clock.now)
    news = command.News(slow, tell, ignore_alarms)  # type: ignore[arg-type]
    times = []
    while clock.now < 200.0:
        clock.now += 1.0
        before = len(said)
        news.look_and_tell()
        times += [clock.now] * (len(said) - before)
    assert times == [15.0, 75.0, 135.0, 195.0] and slow.looks == 200
    assert all(line.startswith("east") and "never heard" in line for line in said)
    alarm = {"alarm": "disk", "what": "the disk is full", "do": "free some space"}
    slow.waits, slow.alarms = False, [alarm]
    said.clear()
    while clock.now < 600.0:
        clock.now += 1.0
        news.look_and_tell()
    assert said == [f"{alarm['what']}: {alarm['do']}"]  # once


def test_a_wait_of_less_than_fifteen_seconds_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slow, said = SimpleNamespace(now=0.0), Slow(), list[str]()

    def tell(text: str, **more: object) -> None:
        said.append(text)

    slow.waits = False
    monkeypatch.setattr(command.time, "monotonic", lambda: clock.now)
    news = command.News(slow, tell, ignore_alarms)  # type: ignore[arg-type]
    for _ in range(100):
        clock.now += 1.0
        news.look_and_tell()
    assert said == []
