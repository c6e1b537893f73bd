"""Bars and lines on long work: nothing unless asked or on a terminal, and never after the work."""

from __future__ import annotations

import io
import threading
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from sottovoce import ConsensusClassifier
from sottovoce.util import progress
from sottovoce.util.progress import open_progress_teller, show_bar_on_console


def test_nothing_is_said_off_a_terminal_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    for verbose in (None, False, 0):
        with open_progress_teller(verbose) as teller:
            teller.begin_phase("work", 10)
            teller(10)
    assert capsys.readouterr() == ("", "")
    with open_progress_teller(True) as teller:
        teller.begin_phase("work", 20)
        for k in range(1, 21):
            teller(k)
    said = capsys.readouterr().err.splitlines()
    phase, _, last_round = said[-1].partition(": ")
    assert said[0] == phase == "work" and last_round == "20 of 20" and len(said) == 11


def test_a_fit_says_what_it_does_if_asked(capsys: pytest.CaptureFixture[str]) -> None:
    X = np.random.default_rng(0).normal(size=(100, 2))
    terms: dict[str, Any] = {"rounds": 10, "epsilon": 8.0, "data_norm": 2.0, "random_state": 0}
    ConsensusClassifier("momentum", **terms).fit(X, X[:, 0] > 0)
    assert capsys.readouterr().err == ""
    ConsensusClassifier("momentum", verbose=True, **terms).fit(X, X[:, 0] > 0)
    lines = capsys.readouterr().err.splitlines()
    rounds_of_first_class = [line for line in lines if "class 1 of" in line and ": " in line]
    assert rounds_of_first_class[-1].startswith("momentum, ")
    assert rounds_of_first_class[-1].endswith(": 10 of 10")


class Spied(Console):
    """A terminal that keeps what is written."""

    def __init__(self) -> None:
        self.written = io.StringIO()
        super().__init__(file=self.written, force_terminal=True, force_interactive=True, width=100)


def test_a_bar_is_drawn_late_or_not_at_all() -> None:
    console = Spied()
    with show_bar_on_console(console, "work", 10, after=60.0) as update:
        update(completed=10)
    assert console.written.getvalue() == ""
    with show_bar_on_console(console, "work", 10) as update:
        update(completed=3)
    assert "work" in console.written.getvalue()
    before = threading.active_count()
    with pytest.raises(RuntimeError), show_bar_on_console(console, "work", 10, after=60.0):
        raise RuntimeError
    assert threading.active_count() <= before  # no timer is left to draw after the work


def test_another_thread_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(progress, "show_bar_on_console", lambda *_, **__: drawn.append(1))

    def work() -> None:
        with open_progress_teller(None) as teller:
            teller.begin_phase("work", 1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not drawn
