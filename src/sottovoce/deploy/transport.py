"""The interface between a site and whatever carries its messages.

Rounds of a run are numbered: 0 is the greeting in which the plan is agreed on, 1 .. T are the algorithm's, and the one
after the last carries the final model.  Transports do not look into the bytes; signatures, and the identity that the
transport itself has established, decide who may send what.

A call may be repeated after a crash of either side.  It still takes effect exactly once: a site sends the same bytes
again (from its journal), and the other side keeps the first (:class:`sottovoce.deploy.hublog.HubLog`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Transport(Protocol):
    """What a site needs to take part in one run.

    Runs of sums need two things more than others: :attr:`answers`, which a session sets, and :meth:`inquire`.
    """

    answers: Callable[[str, bytes], bytes] | None
    """What this site says to another site's question, signed.  While this site waits, the hub may ask at any time."""

    def highest(self, plan: str) -> int:
        """The highest round of this run of which the hub holds a message from this site; 0 for none.

        Parameters
        ----------
        plan : str
            The digest of this site's plan.

        Raises
        ------
        Refused
            If it is not the hub's.
        """

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        """Post this site's message, wait for those of all neighbours, and return them by site.

        A message is stored once; the same bytes again are accepted.

        Raises
        ------
        Refused
            If the hub holds another message of this round, or the round is not the next.
        TransportClosed
            If the hub ended the run, or a neighbour left before it sent its message of this round; with the statement
            that it signed, which the caller must verify.  In a run of sums with this site itself, if the others went
            on without it.
        Unreachable
            If the hub cannot be reached for longer than the transport waits.
        """

    def inquire(self, question: bytes, enough: int) -> dict[str, bytes]:
        """Pass this site's question to the other sites of a run of sums, and return at least `enough` answers by site.

        Raises
        ------
        Refused, TransportClosed, Unreachable
            As :meth:`exchange`.
        """

    def leave(self, farewell: bytes) -> None:
        """Tell the hub, signed, that no more messages of this site will come.

        Raises
        ------
        Refused
            If it is not this site's statement for this point of this run.
        """


def printable(text: str, longest: int = 400) -> str:
    """Another party's text, made safe for a terminal and a log: no control characters, and of limited length."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:longest])
