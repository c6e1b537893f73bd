"""Limits on the size of a plan and its messages: known from public facts, and checked before anything is spent.

Every limit is checked when a plan is made or read, so no run fails on a message for which budget was spent.
"""

from __future__ import annotations

import sqlite3

from ..errors import InvalidInput

SITES = 1_000
"""The most sites of a plan: NVFlare's server admits as many clients, and a relay has two threads for each."""
ROUNDS = 10_000
COPIES = 1_000
LARGEST = 2**28
"""The most bytes of a site's inbox of one round.  A hub holds the inboxes of all sites at once, about three times."""
PROOFS = 2
"""Of two messages of one site in place of one, in an inbox of a run of sums at most."""
_SLOWEST = 2**18
"""Bytes a second of the slowest line for which a site waits."""
_GRPC = 2**31 - 1
_NVFLARE = 2**31 - 3 * 2**20 - 16  # its MAX_PAYLOAD_SIZE


def message_bytes(d: int) -> int:
    """The most bytes of a signed message with `d` numbers: a double is 10.7 characters in base64."""
    return 2048 + 12 * d


def inbox_bytes(d: int, degree: int) -> int:
    """The most bytes of the messages of `degree` neighbours in one JSON text, names and escaped quotes included."""
    return 4096 + degree * (message_bytes(d) + 256)


def seconds(size: int) -> float:
    """Seconds that a message of `size` bytes may take."""
    return size / _SLOWEST


def known() -> dict[str, int]:
    """The most bytes that each transport and store accepts, by name; for stores, those of this machine's SQLite."""
    database = sqlite3.connect(":memory:")
    try:
        record = database.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
    finally:
        database.close()
    return {
        "a plan": LARGEST, "the relay (gRPC)": _GRPC, "NVFlare": _NVFLARE, "a record of hub.log (SQLite)": record,
        "a record of a ledger (SQLite)": record,
    }  # fmt: skip


def check_size(d: object, degree: int, proofs: int = 0) -> None:
    """Refuse a plan whose messages, or inboxes, some transport or store would not accept.

    Parameters
    ----------
    d : int
        Numbers in a message.
    degree : int
        Neighbours of a site at most.
    proofs : int
        Messages more than these in an inbox at most.

    Raises
    ------
    InvalidInput
    """
    if type(d) is not int or d < 1:
        raise InvalidInput("d", d, "must be a whole number, at least 1", "use the schema's number of features")
    largest = inbox_bytes(d, max(degree, 1) + proofs)
    for name, most in known().items():
        if largest > most:
            said = f"{degree} neighbour{'s' if degree != 1 else ''}"
            rule = f"a site with {said} gets up to {largest:,} bytes a round, and {name} takes {most:,}"
            remedy = "use fewer features, or a graph with fewer neighbours a site, such as 'ring'"
            raise InvalidInput("d", d, rule, remedy)


def check_number(field: str, value: object, most: int, remedy: str = "use fewer") -> None:
    """Refuse a value that is not a whole number from 1 to `most`.

    Raises
    ------
    InvalidInput
    """
    if type(value) is not int or not 1 <= value <= most:
        shown = value if isinstance(value, int | float | str) else None
        raise InvalidInput(field, shown, f"must be a whole number from 1 to {most:,}", remedy)
