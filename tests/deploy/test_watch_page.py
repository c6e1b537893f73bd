"""The hub's page of a run that goes on: what it shows, and that nothing that it is told can
script it.
"""

from __future__ import annotations

from typing import Any

from sottovoce.deploy.watch import render_watch_page

EVIL = "<script>alert('1')</script>"
SITE = {
    "site": "aue",
    "rows": 1200,
    "round": 3,
    "last_message": None,
    "last_heard": None,
    "waits_for": [],
    "left": None,
}
STATUS: dict[str, Any] = {
    "run": "trial",
    "plan": "abc",
    "at": "noon",
    "round": 3,
    "rounds": 9,
    "seconds_a_round": 1.25,
    "ended": False,
    "running": True,
    "demonstration": False,
    "alarms": [],
    "sites": [SITE],
}


def test_page_shows_rounds_sites_and_state() -> None:
    text = render_watch_page(STATUS)
    for shown in (
        "Run trial",
        "Round 3 of 9, 1.25 s a round; running.",
        "aue",
        "1,200",
        "round 3",
        "never",
        "nobody",
    ):
        assert shown in text
    assert "demonstration" not in text and "A demonstration" in render_watch_page(
        STATUS | {"demonstration": True}
    )
    assert "not running" in render_watch_page(STATUS | {"running": False})
    assert "ended by" in render_watch_page(STATUS | {"running": False, "ended": True})


def test_every_text_is_escaped() -> None:
    site = SITE | {
        "site": EVIL,
        "last_message": EVIL,
        "last_heard": EVIL,
        "waits_for": [EVIL],
        "left": EVIL,
    }
    alarm = {"alarm": "x", "what": EVIL, "do": EVIL}
    told = {"run": EVIL, "plan": EVIL, "at": EVIL, "alarms": [alarm], "sites": [site]}
    text = render_watch_page(STATUS | told)
    assert "<script" not in text and text.count("&lt;script&gt;") == 11
