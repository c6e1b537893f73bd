"""Limits on the size of a plan and its messages, checked with the plan.

No run fails on the size of a message.
"""

from __future__ import annotations

import sqlite3

from ..errors import InvalidInput

SITES = 1_000
"""The most sites of a plan: NVFlare's limit of clients; a relay has two threads for each."""
ROUNDS = 10_000
COPIES = 1_000
LARGEST = 2**28
"""The most bytes of a site's inbox of one round; a hub holds the inboxes of all sites at once,
about three times.
"""
PROOFS = 2
"""The most proofs of a double message in an inbox of a run of sums."""
_SLOWEST = 2**18
"""Bytes a second of the slowest line for which a site waits."""
_GRPC = 2**31 - 1
_NVFLARE = 2**31 - 3 * 2**20 - 16
"""NVFlare's ``MAX_PAYLOAD_SIZE``."""


def longest_message_bytes(d: int) -> int:
    """Return the most bytes of a signed message with `d` numbers.

    A double is 10.7 characters in base64.
    """
    return 2048 + 12 * d


def longest_inbox_bytes(d: int, degree: int) -> int:
    """Return the most bytes of `degree` messages in one JSON text.

    Names and escaped quotes are included.
    """
    return 4096 + degree * (longest_message_bytes(d) + 256)


def transfer_seconds(size: int) -> float:
    """Return the seconds that a message of `size` bytes may take."""
    return size / _SLOWEST


def limits_of_carriers() -> dict[str, int]:
    """Return the most bytes that each transport and store accepts, by name.

    Of SQLite, the limit of this machine's library, which may be compiled with a smaller one.
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
        What errors call it.
    value : object
    most : int
        The largest value allowed; the least is 1.
    remedy : str
        What the message tells to do.

    Raises
    ------
    InvalidInput
        If it is not; a value of another type is not shown.
    """
    if type(value) is not int or not 1 <= value <= most:
        # a plan may come from elsewhere: a list or an object of any length is not shown
        shown = value if isinstance(value, int | float | str) else None
        raise InvalidInput(field, shown, f"must be a whole number from 1 to {most:,}", remedy)
