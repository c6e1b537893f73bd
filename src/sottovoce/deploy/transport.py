"""The interface between a site and whatever carries its messages to the hub.

Exchanges are numbered: 0 is the greeting, in which the plan is agreed on, 1 .. T are the
algorithm's rounds, and the one after the last carries the final model.  Transports do not look into
the bytes; signatures and the identity that the transport has established decide who may send what.
Implementations are :class:`sottovoce.deploy.hub.LocalTransport` (one process),
:class:`sottovoce.deploy.relay.RelayTransport` (gRPC) and
:class:`sottovoce.deploy.nvflare.tasks.TaskTransport`.

A call may be repeated after a crash of either side.  It takes effect once: a site sends the same
bytes again, from its journal, and the hub keeps the first
(:class:`sottovoce.deploy.hublog.HubLog`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Transport(Protocol):
    """A site's connection to the hub of one run."""

    answers: Callable[[str, bytes], bytes] | None
    """Callable ``(asker, question)`` that returns this site's signed answer to the question of a
    restarted site.  The session of a run of sums sets it, and the transport calls it while this
    site waits.
    """

    earlier: tuple[bytes, ...]
    """Texts that this site signed in runs of the hub, set by :meth:`highest_stored_round`; empty if
    the transport does not bring them.
    """

    def highest_stored_round(self, plan: str) -> int:
        """Return the highest round of which the hub holds a message of this site; 0 for none.

        Parameters
        ----------
        plan : str
            Digest of this site's plan.

        Returns
        -------
        int

        Raises
        ------
        Refused
            If the hub has another plan.
        """

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        """Send this site's message, wait for the others, and return this site's inbox.

        A message is stored once; the same bytes again are accepted.

        Parameters
        ----------
        round : int
            Number of the exchange; 0 is the greeting.
        message : bytes
            The signed message.

        Returns
        -------
        dict of bytes
            By site: its message, or a text that says why there is none.

        Raises
        ------
        Refused
            If the hub holds another message of this round, or the round is not the next.
        TransportClosed
            If the hub ended the run; with the name of this site, if the others go on without it.
        Unreachable
            If the hub cannot be reached for longer than the transport waits.
        """

    def ask_other_sites(self, question: bytes, enough: int) -> dict[str, bytes]:
        """Pass this site's question to the other sites of a run of sums.

        Parameters
        ----------
        question : bytes
            The signed question.
        enough : int
            Number of other sites that must answer.

        Returns
        -------
        dict of bytes
            At least `enough` signed answers, by site.

        Raises
        ------
        Refused, TransportClosed, Unreachable
            As :meth:`exchange`.
        """

    def send_farewell(self, farewell: bytes) -> None:
        """Tell the hub that no more messages of this site will come; `farewell` is signed.

        Raises
        ------
        Refused
            If it is not this site's farewell for this point of this run.
        """


def to_printable_text(text: str, longest: int = 400) -> str:
    """Return another party's text in a form that is safe for a terminal and a log.

    It is cut off after `longest` characters, and control characters become question marks.
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text[:longest])
