"""The interface between a site and the carrier of its messages.

Exchanges are numbered: 0 is the greeting, in which the plan is agreed on, 1 .. T are the
algorithm's rounds, and the one after the last carries the final model.  Transports do not look into
the bytes; signatures and the identity that the transport has established decide who may send what.

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
    """Set by the session: this site's signed answer to another site's question, while this site
    waits.
    """

    earlier: tuple[bytes, ...]
    """What this site signed in other runs of the hub, once :meth:`highest_stored_round` was called;
    a carrier may know none.
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
            If it is not the hub's.
        """

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        """Post this site's message, and return those of all who are heard.

        A message is stored once; the same bytes again are accepted.

        Parameters
        ----------
        round : int
            Number of the exchange; 0 is the greeting.
        message : bytes
            Signed.

        Returns
        -------
        dict of bytes
            By site: its message, or what says why there is none.

        Raises
        ------
        Refused
            If the hub holds another message of this round, or the round is not the next.
        TransportClosed
            If the hub ended the run, or with this site itself, if the others went on without it.
        Unreachable
            If the hub cannot be reached for longer than the transport waits.
        """

    def ask_other_sites(self, question: bytes, enough: int) -> dict[str, bytes]:
        """Pass this site's question to the other sites of a run of sums.

        Parameters
        ----------
        question : bytes
            Signed.
        enough : int
            How many other sites must answer.

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
        """Tell the hub, signed, that no more messages of this site will come.

        Raises
        ------
        Refused
            If it is not this site's farewell for this point of this run.
        """


def to_printable_text(text: str, longest: int = 400) -> str:
    """Return another party's text, safe for a terminal and a log.

    It has no control characters, and at most `longest` letters.
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text[:longest])
