"""Limits on the size of a plan and its messages, checked whenever a plan is made or read.

So no run that has begun fails because a message is too large.  An *inbox* is what a site receives
in one exchange: a message of each site that it hears.  The table is in ``docs/deploy/index.md``,
"Limits".
"""

from __future__ import annotations

import sqlite3

from ..errors import InvalidInput

SITES = 1_000
"""The most sites of a plan: NVFlare's limit of clients; a relay has two threads for each."""
ROUNDS = 10_000
"""The most rounds of a plan, because of the time to compute their privacy loss."""
COPIES = 1_000
"""The most runs that share one budget, ``copies`` of :class:`sottovoce.runs.config.RunConfig`."""
LARGEST = 2**28
"""The most bytes of a site's inbox of one exchange; a hub holds the inboxes of all sites at once,
in about three copies.
"""
PROOFS = 2
"""The most proofs, in an inbox of a run of sums, that a site signed two messages for one exchange.
A proof holds both messages, so it counts for the size of the inbox.
"""
_SLOWEST = 2**18
"""Bytes per second of the slowest line for which a site waits."""
_GRPC = 2**31 - 1
"""Bytes of the longest gRPC message: its option is a signed number of 32 bits."""
_NVFLARE = 2**31 - 3 * 2**20 - 16
"""NVFlare's ``MAX_PAYLOAD_SIZE``."""


def longest_message_bytes(d: int) -> int:
    """Return the most bytes of a signed message with `d` numbers.

    A double has 8 bytes, which are 10.7 characters in base64; 2,048 bytes are for the other keys.
    """
    return 2048 + 12 * d


def longest_inbox_bytes(d: int, degree: int) -> int:
    """Return the most bytes of an inbox in JSON: `degree` messages of `d` numbers each.

    Names and escaped quotes are included.
    """
    return 4096 + degree * (longest_message_bytes(d) + 256)


def transfer_seconds(size: int) -> float:
    """Return the seconds that a message of `size` bytes takes on the slowest line."""
    return size / _SLOWEST


def limits_of_carriers() -> dict[str, int]:
    """Return the most bytes that each transport and store accepts, by name.

    The limit of SQLite is that of this machine's library, which may be compiled with a smaller one.
    """
    database = sqlite3.connect(":memory:")
    try:
        record = database.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
    finally:
        database.close()
    return {
        "a plan": LARGEST,
        "the relay (gRPC)": _GRPC,
        "NVFlare": _NVFLARE,
        "a record of hub.log (SQLite)": record,
        "a record of a ledger (SQLite)": record,
    }


def check_inbox_size(d: object, degree: int, proofs: int = 0) -> None:
    """Check that the messages and inboxes of a plan fit every transport and store.

    Parameters
    ----------
    d : int
        Numbers in a message.
    degree : int
        The most neighbours of a site, whose messages make one inbox.
    proofs : int
        Proofs of double messages that an inbox may hold in addition.

    Raises
    ------
    InvalidInput
        If `d` is no whole number, at least 1, or an inbox would be too large.
    """
    if type(d) is not int or d < 1:
        raise InvalidInput(
            "d", d, "must be a whole number, at least 1", "use the schema's number of features"
        )
    largest = longest_inbox_bytes(d, max(degree, 1) + proofs)
    for name, most in limits_of_carriers().items():
        if largest > most:
            said = f"{degree} neighbours"
            if degree == 1:
                said = "1 neighbour"
            rule = (
                f"a site with {said} receives up to {largest:,} bytes a round, but {name} "
                f"takes at most {most:,}"
            )
            remedy = "use fewer features, or a graph with fewer neighbours a site, such as 'ring'"
            raise InvalidInput("d", d, rule, remedy)


def check_whole_number(field: str, value: object, most: int, remedy: str = "use fewer") -> None:
    """Check that a value is a whole number within a limit.

    Parameters
    ----------
    field : str
        Name of the value in the error.
    value : object
    most : int
        The largest value allowed; the smallest is 1.
    remedy : str
        What the error tells the reader to do.

    Raises
    ------
    InvalidInput
        For any other value; one that is neither a number nor text is not shown.
    """
    if type(value) is not int or not 1 <= value <= most:
        # a plan may come from elsewhere: a list or an object of any length is not shown
        shown = value if isinstance(value, int | float | str) else None
        raise InvalidInput(field, shown, f"must be a whole number from 1 to {most:,}", remedy)
