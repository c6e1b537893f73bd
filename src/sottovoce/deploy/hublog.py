"""The hub's log: every message of every run, stored once, on the disk before anybody reads it.

The log does not look into messages: a *round* here is the number of an exchange, in which each site
sends one message, and a *farewell* is a site's signed statement that it sends nothing more.  After
a crash a hub needs nothing else: sites repeat what they sent, and find it stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from ..errors import Refused
from .logfile import LogFile

# The texts are part of the format: a file is a log only if it holds these very ones.
_TABLES = {
    "message": (
        "CREATE TABLE message (run TEXT NOT NULL, round INTEGER NOT NULL, site TEXT NOT NULL, "
        "bytes BLOB NOT NULL, PRIMARY KEY (run, round, site)) STRICT, WITHOUT ROWID"
    ),
    "farewell": (
        "CREATE TABLE farewell (run TEXT NOT NULL, site TEXT NOT NULL, bytes BLOB NOT NULL, "
        "PRIMARY KEY (run, site)) STRICT, WITHOUT ROWID"
    ),
    "ended": "CREATE TABLE ended (run TEXT NOT NULL PRIMARY KEY) STRICT, WITHOUT ROWID",
}
# Tables of decisions, each made when it is first needed: rounds that were closed without some
# sites, second messages of a site for one round, sites that the operator took out, and sites that
# declined a plan.
_CLOSED = (
    "CREATE TABLE IF NOT EXISTS closed (run TEXT NOT NULL, round INTEGER NOT NULL, "
    "PRIMARY KEY (run, round)) STRICT, WITHOUT ROWID"
)
_TWICE = (
    "CREATE TABLE IF NOT EXISTS twice (run TEXT NOT NULL, site TEXT NOT NULL, "
    "round INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (run, site)) STRICT, WITHOUT ROWID"
)
_EXPELLED = (
    "CREATE TABLE IF NOT EXISTS expelled (run TEXT NOT NULL, site TEXT NOT NULL, "
    "PRIMARY KEY (run, site)) STRICT, WITHOUT ROWID"
)
_DECLINED = (
    "CREATE TABLE IF NOT EXISTS declined (run TEXT NOT NULL, site TEXT NOT NULL, "
    "why TEXT NOT NULL, PRIMARY KEY (run, site)) STRICT, WITHOUT ROWID"
)


def second_message(site: str, round: int) -> Refused:
    """Return the error for a message that differs from the one that the site sent before."""
    return Refused(f"round={round}: site {site!r} has already sent another message of this round")


def message_out_of_order(site: str, round: int, due: int) -> Refused:
    """Return the error for a message of another round than the one that is due.

    Parameters
    ----------
    site : str
        Who sent it.
    round : int
        Number of the exchange that it is for.
    due : int
        Number of the exchange for which the site's next message must be.

    Returns
    -------
    Refused
    """
    return Refused(
        f"round={round}: out of order; the next message of site {site!r} must be that of "
        f"round {due}"
    )


class HubLog:
    """A write-once log in one SQLite file; a context manager, safe for several threads.

    Parameters
    ----------
    path : path
        Made if absent, in a folder that exists; on a local disk.
    read_only : bool
        Only read the file, which must exist; possible while another process writes it, and without
        the right to write.

    Attributes
    ----------
    decisions : Decisions
        Decisions of the hub and its operator: rounds closed without some sites, sites taken out,
        runs ended.

    Raises
    ------
    InvalidInput
        If the file is not a hub's log, or is damaged; it is not changed then.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.file = LogFile(Path(path), _TABLES, read_only=read_only)
        self.decisions = Decisions(self.file)

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Messages

    def store_message(self, run: str, round: int, site: str, message: bytes) -> None:
        """Store a message; it is on the disk when this returns.

        The same bytes again change nothing.

        Parameters
        ----------
        run : str
        round : int
            Number of the exchange, from 0; the messages of a site have successive numbers.
        site : str
            Sender.
        message : bytes
            Stored as it is.

        Raises
        ------
        Refused
            If another message is stored for the round, the round is not this site's next, or the
            site has left.
        """
        with self.file.locked_connection() as db:
            found = self.message_of(run, round, site)
            if found is not None:
                if found != message:
                    raise second_message(site, round)
                return
            due = self.last(run, site) + 1
            if round != due:
                raise message_out_of_order(site, round, due)
            query = "SELECT 1 FROM farewell WHERE run = ? AND site = ?"
            if self.file.value(query, run, site) is not None:
                raise Refused(f"round={round}: site {site!r} has left this run")
            db.execute("INSERT INTO message VALUES (?, ?, ?, ?)", (run, round, site, message))

    def message_of(self, run: str, round: int, site: str) -> bytes | None:
        """Return the message of one site in one round.

        Parameters
        ----------
        run : str
        round : int
            Number of the exchange, from 0.
        site : str

        Returns
        -------
        bytes or None
            None if there is none.
        """
        query = "SELECT bytes FROM message WHERE run = ? AND round = ? AND site = ?"
        found = self.file.value(query, run, round, site)
        if found is None:
            return None
        return bytes(found)

    def round(self, run: str, round: int) -> dict[str, bytes]:
        """Return the messages of an exchange that have come so far, by site."""
        with self.file.locked_connection() as db:
            rows = db.execute(
                "SELECT site, bytes FROM message WHERE run = ? AND round = ?", (run, round)
            )
            return {site: bytes(message) for site, message in rows}

    def messages(self, run: str) -> dict[tuple[int, str], bytes]:
        """Return all messages of a run, by round and site."""
        with self.file.locked_connection() as db:
            rows = db.execute(
                "SELECT round, site, bytes FROM message WHERE run = ? ORDER BY round, site", (run,)
            )
            return {(round, site): message for round, site, message in rows}

    def stored_messages(self, run: str) -> tuple[int, int]:
        """Return the number of messages of a run, and their bytes."""
        query = "SELECT count(*), coalesce(sum(length(bytes)), 0) FROM message WHERE run = ?"
        with self.file.locked_connection() as db:
            count, size = db.execute(query, (run,)).fetchone()
        return int(count), int(size)

    def last(self, run: str, site: str) -> int:
        """Return the round of a site's last message; -1 for none."""
        query = "SELECT max(round) FROM message WHERE run = ? AND site = ?"
        last = self.file.value(query, run, site)
        if last is None:
            return -1
        return int(last)

    def earlier(self, run: str, site: str) -> list[bytes]:
        """Return what a site signed last or first in every run; that of `run` comes first.

        Of each run its farewell, or if there is none its greeting (round 0).
        """
        query = (
            "SELECT run = ? AS here, bytes FROM farewell WHERE site = ? "
            "UNION ALL SELECT run = ?, bytes FROM message WHERE site = ? AND round = 0 "
            "AND run NOT IN (SELECT run FROM farewell WHERE site = ?) ORDER BY here DESC"
        )
        with self.file.locked_connection() as db:
            return [bytes(words) for _, words in db.execute(query, (run, site, run, site, site))]

    # Farewells

    def record_farewell(self, run: str, site: str, round: int, farewell: bytes) -> None:
        """Record that a site sends nothing from a round on; the first farewell is kept.

        Parameters
        ----------
        run, site : str
        round : int
            Number of the first exchange for which it sends nothing.
        farewell : bytes
            Signed by the site; stored as it is.

        Raises
        ------
        Refused
            If `round` is not its next one.
        """
        with self.file.locked_connection() as db:
            if round != self.last(run, site) + 1:
                raise Refused(
                    f"round={round}: the farewell of site {site!r} must be for its next round"
                )
            db.execute("INSERT OR IGNORE INTO farewell VALUES (?, ?, ?)", (run, site, farewell))

    def gone(self, run: str) -> dict[str, bytes]:
        """Return the farewells of a run, by site."""
        with self.file.locked_connection() as db:
            return dict(
                db.execute("SELECT site, bytes FROM farewell WHERE run = ? ORDER BY site", (run,))
            )

    # Runs

    def runs(self) -> list[str]:
        """Return all runs with a message."""
        with self.file.locked_connection() as db:
            return [run for (run,) in db.execute("SELECT DISTINCT run FROM message ORDER BY run")]

    def prune_runs(self, runs: Iterable[str]) -> int:
        """Remove all messages of these runs except greetings, and give the disk space back.

        Returns the number of removed messages.  Greetings and farewells stay, because
        :meth:`earlier` shows them.  A farewell holds the hash of the site's ledger, whose chain of
        records vouches for every message that the site sent and received.
        """
        removed = 0
        with self.file.locked_connection() as db:
            query = "DELETE FROM message WHERE run = ? AND round > 0"
            for run in runs:
                removed += db.execute(query, (run,)).rowcount
            # SQLite keeps the pages of removed rows, and VACUUM writes through the write-ahead log:
            # only a truncated log gives the space back.
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return removed


class Decisions:
    """The decisions of the hub and its operator, written down before any site is told.

    Each table is made when it is first needed.  No decision is ever taken back.
    """

    def __init__(self, file: LogFile) -> None:
        self._file = file

    def record_end_of_run(self, run: str) -> None:
        """Record that the hub's operator ends the run: no site gets another inbox."""
        with self._file.locked_connection() as db:
            db.execute("INSERT OR IGNORE INTO ended VALUES (?)", (run,))

    def is_run_ended(self, run: str) -> bool:
        """Return True if the run was ended."""
        return self._file.value("SELECT 1 FROM ended WHERE run = ?", run) is not None

    def record_closed_round(self, run: str, round: int) -> None:
        """Record that a round goes on without the sites that are missing."""
        with self._file.locked_connection() as db:
            db.execute(_CLOSED)
            db.execute("INSERT OR IGNORE INTO closed VALUES (?, ?)", (run, round))

    def is_round_closed(self, run: str, round: int) -> bool:
        """Return True if :meth:`record_closed_round` was called for this round."""
        with self._file.locked_connection():
            if not self._file.has_table("closed"):
                return False
            query = "SELECT 1 FROM closed WHERE run = ? AND round = ?"
            return self._file.value(query, run, round) is not None

    def record_second_message(self, run: str, site: str, round: int, message: bytes) -> None:
        """Record a site's second message of one round; only the first such message is kept.

        Parameters
        ----------
        run, site : str
        round : int
            The exchange for which two messages are signed.
        message : bytes
            The second one; the first is in the log.
        """
        with self._file.locked_connection() as db:
            db.execute(_TWICE)
            db.execute(
                "INSERT OR IGNORE INTO twice VALUES (?, ?, ?, ?)", (run, site, round, message)
            )

    def sites_with_two_messages(self, run: str) -> dict[str, tuple[int, bytes]]:
        """Return the sites that sent two different messages for one exchange.

        Of each, the number of that exchange and the second message.
        """
        with self._file.locked_connection() as db:
            if not self._file.has_table("twice"):
                return {}
            rows = db.execute("SELECT site, round, bytes FROM twice WHERE run = ?", (run,))
            return {site: (round, bytes(message)) for site, round, message in rows}

    def record_expulsion(self, run: str, site: str) -> None:
        """Record that the hub's operator takes a site out: no more messages of it are accepted."""
        with self._file.locked_connection() as db:
            db.execute(_EXPELLED)
            db.execute("INSERT OR IGNORE INTO expelled VALUES (?, ?)", (run, site))

    def expelled_sites(self, run: str) -> set[str]:
        """Return the sites that the hub's operator took out of a run."""
        with self._file.locked_connection() as db:
            if not self._file.has_table("expelled"):
                return set()
            rows = db.execute("SELECT site FROM expelled WHERE run = ?", (run,))
            return {site for (site,) in rows}

    def record_declined(self, run: str, site: str, why: str) -> None:
        """Record that a site takes no part in a run that has not begun; its first reason stays.

        Parameters
        ----------
        run, site : str
        why : str
            One of :data:`sottovoce.deploy.messages.DECLINES`.
        """
        with self._file.locked_connection() as db:
            db.execute(_DECLINED)
            db.execute("INSERT OR IGNORE INTO declined VALUES (?, ?, ?)", (run, site, why))

    def declined_sites(self, run: str) -> dict[str, str]:
        """Return the sites that declined a run, and why."""
        with self._file.locked_connection() as db:
            if not self._file.has_table("declined"):
                return {}
            rows = db.execute("SELECT site, why FROM declined WHERE run = ? ORDER BY site", (run,))
            return dict(rows)
