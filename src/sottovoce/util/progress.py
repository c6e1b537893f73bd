"""Progress of long work: a bar on a terminal, or lines on the standard error."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from .typing import Any

AFTER = 3.0
"""Seconds after which work shows a bar without being asked to (``verbose=None``)."""


@contextmanager
def show_bar_on_console(
    console: Any, text: str, total: int | None = None, *, left: bool = False, after: float = 0.0
) -> Iterator[Callable[..., None]]:
    """Show a progress bar on a console, and yield the function that updates it.

    The bar is taken away at the end.

    Parameters
    ----------
    console : rich.console.Console
    text : str
        Description of the work.
    total : int, optional
        Number of steps; None if it is not known.
    left : bool
        Show the time that is left in place of the time that has passed.
    after : float
        Seconds after which the bar is drawn.

    Yields
    ------
    callable
        ``update`` of :class:`rich.progress.Progress` for this bar.
    """
    # Few programs show a bar.
    from rich import progress as parts

    clock: parts.ProgressColumn = parts.TimeElapsedColumn()
    if left:
        clock = parts.TimeRemainingColumn()
    columns = (
        parts.TextColumn("{task.description}"),
        parts.BarColumn(),
        parts.MofNCompleteColumn(),
        clock,
    )
    drawn = parts.Progress(*columns, console=console, transient=True)
    task = drawn.add_task(text, total=total)
    # Work that is over sooner never draws its bar.
    timer = threading.Timer(after, drawn.start)
    # A program that ends does not wait for a bar.
    timer.daemon = True
    timer.start()
    if not after:
        timer.join()
    try:
        yield partial(drawn.update, task)
    finally:
        # The timer may be drawing the bar at this moment.
        timer.cancel()
        timer.join()
        if drawn.live.is_started:
            drawn.stop()


class Teller:
    """Reports the progress of a fit: ``teller.begin_phase("choosing a method", total)``, then
    ``teller(k)`` after each round k.
    """

    def __init__(self, update: Callable[..., None] | None, lines: bool) -> None:
        self._update = update
        self._lines = lines
        self._text = ""
        self._total = 0

    def begin_phase(self, text: str, total: int | None = None) -> None:
        """Begin another part of the work, of `total` rounds."""
        self._text = text
        self._total = total or 0
        if self._update is not None:
            self._update(description=text, total=total, completed=0)
        elif self._lines:
            print(text, file=sys.stderr)

    def __call__(self, k: int, state: object = None) -> None:
        """Show that round k is done: on the bar, or as a line for each tenth of the work."""
        if self._update is not None:
            self._update(completed=k)
        elif self._lines and k % max(1, self._total // 10) == 0:
            print(f"{self._text}: {k} of {self._total}", file=sys.stderr)


def _in_child_process() -> bool:
    """Return True in a process that :mod:`multiprocessing` started, whose terminal is another's.

    Such a process has that module loaded; others need not load it.
    """
    multiprocessing = sys.modules.get("multiprocessing")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


@contextmanager
def open_progress_teller(verbose: bool | int | None) -> Iterator[Teller]:
    """Yield a :class:`Teller` for progress on the standard error.

    `verbose` None shows a bar on a terminal once work is long, True a bar at once or lines, False
    nothing.
    """
    # Of several fits at once, in threads or processes, no bar is drawn over another.
    here = threading.current_thread() is threading.main_thread() and not _in_child_process()
    asked = bool(verbose)
    unasked = verbose is None
    if not asked and not (unasked and here):
        yield Teller(None, False)
        return
    from rich.console import Console

    console = Console(stderr=True, emoji=False)
    if not (console.is_interactive and here):
        yield Teller(None, asked)
        return
    after = AFTER
    if asked:
        after = 0.0
    with show_bar_on_console(console, "", after=after) as update:
        yield Teller(update, asked)
