"""A site's records of its earlier runs, by which it notices an older ledger or a changed key.

The *head* of a ledger is the count and hash of its last record.  The results of every run hold the
head at its end (``NAME.json``), and so does ``NAME.known``, with the public signing keys of the
other sites of complete runs.  A ledger that lacks a run or record named there is an older copy,
with which the site would spend its budget twice.  Another key under a known site's name may be an
impostor's.  :class:`sottovoce.deploy.settings.SiteSettings` checks both before a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import NamedTuple, Self

from ..errors import InvalidInput, LedgerCorrupt, SottovoceError
from ..ledger.durable import DurableLedger
from ..ledger.journal import Journal
from ..util import files
from ..util.codec import record_from_plain, record_to_plain
from ..util.typing import Any
from .messages import read_own_message
from .names import check_run_name, check_site_name
from .plan import Plan
from .plan_file import LARGEST
from .strict import NotStrict, parse_json, reason_of_refusal
from .sums.messages import DOMAIN as SUMS

_LARGEST = 2**20
"""The most bytes of the file."""
ENDING = "known"
"""Ending of the file of these records, ``NAME.known``."""
_OLDER_LEDGER = "it is an older copy or another ledger"
_NEWEST_LEDGER = "put the newest one back, or if it is lost, count its budget as spent"


class SharedRun(NamedTuple):
    """An earlier run of this site: the digest of its plan, and the names of the other sites."""

    plan: str
    sites: list[str]


@dataclass(frozen=True)
class Known:
    """The content of ``NAME.known``.

    Parameters
    ----------
    run, head : str, optional
        Name of the last run, and the ledger's head at its end; None before the first run.
    keys : dict of str
        Public signing keys of other sites in base64, by name.  Names that differ only in capital
        letters are one site, as in a plan.
    shared : dict of SharedRun
        All earlier runs, by name.
    """

    run: str | None = None
    head: str | None = None
    keys: dict[str, str] = field(default_factory=dict)
    shared: dict[str, SharedRun] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file; an absent one gives empty records.

        Raises :class:`InvalidInput` for a file that :meth:`write` did not write.
        """
        if not path.exists():
            return cls()
        data = files.read_bounded_file("known", path, _LARGEST)
        try:
            found = record_from_plain(cls, parse_json(data, _LARGEST))
            if found.run is None or found.head is None:
                raise NotStrict("names no last run")
            for name in found.keys:
                check_site_name("name", name)
            for run in (found.run, *found.shared):
                check_run_name("run", run)
        except (SottovoceError, ValueError) as error:
            rule = f"is not a record of `site run`{reason_of_refusal(error)}"
            remedy = "restore the file of the last run"
            raise InvalidInput("known", path, rule, remedy) from None
        return found

    def write(self, path: Path) -> None:
        """Write the file in one step, in place of an earlier one."""
        files.write_atomically("known", path, json.dumps(record_to_plain(self), indent=1) + "\n")

    def after(self, plan: Plan, name: str, head: str, complete: bool) -> Self:
        """Return the records after a run.

        Parameters
        ----------
        plan : Plan
        name : str
            This site.
        head : str
            The ledger's head at the end of the run.
        complete : bool
            Whether the run was complete; only then are the keys of the plan's other sites added.

        Returns
        -------
        Known
        """
        # keys of the plan replace keys of the same names
        others: dict[str, str] = {}
        if complete:
            others = {site.name: site.key for site in plan.sites if site.name != name}
        called = {other.lower() for other in others}
        kept = {other: key for other, key in self.keys.items() if other.lower() not in called}
        keys = dict(sorted((kept | others).items()))
        companions = [other for other in plan.names if other != name]
        shared = self.shared | {plan.run: SharedRun(plan.digest, companions)}
        return type(self)(plan.run, head, keys, shared)

    def unknown_sites(self, plan: Plan, name: str) -> list[str]:
        """Return the other sites of a plan that were in no earlier run; none before the first run.

        `name` is this site.
        """
        known = {other.lower() for other in self.keys}
        if not known:
            return []
        return [site for site in plan.names if site != name and site.lower() not in known]

    def check_keys_unchanged(self, plan: Plan, name: str) -> None:
        """Raise :class:`InvalidInput` if a plan has another signing key for a known site.

        `name` is this site, whose own key is not compared.
        """
        known = {other.lower(): key for other, key in self.keys.items()}
        others = [site for site in plan.sites if site.name != name]
        # an unknown name counts as unchanged: a new site is told by `unknown_sites`
        changed = [
            site.name for site in others if known.get(site.name.lower(), site.key) != site.key
        ]
        if changed:
            who = ", ".join(changed)
            rule = f"the plan has another signing key of {who} than earlier runs"
            remedy = (
                f"ask {who} by telephone whether it made a new key, and only then give --new-keys"
            )
            raise InvalidInput("keys", None, rule, remedy)


def check_ledger_against_results(ledger: DurableLedger, stem: Path) -> None:
    """Check that a ledger is no older than the files of earlier runs beside it.

    `stem` is the path of these files without ending, such as ``north/north``.  Raises
    :class:`LedgerCorrupt` if the ledger lacks a run, or a record, that one of them names.
    """
    runs = set(ledger.runs)
    for path, run, head in _heads_of_earlier_runs(stem):
        if run not in runs:
            missing = f"lacks the run {run!r}"
        elif head is not None and not ledger.file.contains_head(head):
            missing = f"lacks records up to the end of the run {run!r}"
        else:
            continue
        raise LedgerCorrupt(
            f"ledger={ledger.path.name!r}: {missing}, although {path.name!r} of that run exists: "
            f"{_OLDER_LEDGER}; nothing was sent or drawn; {_NEWEST_LEDGER}"
        )


def check_ledger_against_hub(
    ledger: DurableLedger, name: str, key: str, earlier: Iterable[bytes]
) -> None:
    """Check that a ledger is no older than the messages of this site that the hub holds.

    Parameters
    ----------
    ledger : DurableLedger
    name : str
        This site.
    key : str
        Its present public key, in base64.
    earlier : iterable of bytes
        Greetings and farewells of this site that the hub gave back, of all runs.  A text that is
        not signed with `key` is ignored, so a hub cannot make one up.

    Raises
    ------
    LedgerCorrupt
        If the ledger lacks one of those runs, its greeting, or the record whose hash a farewell
        holds.
    """
    runs = set(ledger.runs)
    for words in earlier:
        body = read_own_message(words, name, key, SUMS)
        if body is None:
            continue
        # a farewell holds the hash of the ledger's last record at that moment
        run, mark = body["run"], body.get("ledger")
        if run not in runs:
            missing = f"lacks the run {run!r}"
        elif Journal(ledger, run).highest_round < 0:
            missing = f"lacks the greeting of the run {run!r}"
        elif isinstance(mark, str) and not ledger.file.contains_hash(mark):
            missing = f"lacks records up to the end of the run {run!r}"
        else:
            continue
        raise LedgerCorrupt(
            f"ledger={ledger.path.name!r}: {missing}, of which the hub holds a message "
            f"signed by this site: {_OLDER_LEDGER}; nothing was drawn; {_NEWEST_LEDGER}"
        )


def _heads_of_earlier_runs(stem: Path) -> Iterator[tuple[Path, str, str | None]]:
    """Yield, of each file of an earlier run: its path, the run's name, and the ledger's head.

    The head is that at the end of the run, or None if the file does not hold it.
    """
    path = stem.with_name(f"{stem.name}.{ENDING}")
    known = Known.read(path)
    if known.run is not None:
        yield path, known.run, known.head
    # the results of the last run, and those of earlier ones, which were put aside
    last = stem.with_name(f"{stem.name}.json")
    earlier = sorted(stem.parent.glob(f"{escape(stem.name)}.*.json"))
    for path in (last, *earlier):
        found = _read_result_file(path)
        if found.get("site") == stem.name and isinstance(found.get("run"), str):
            head = None
            if "head" in found:
                head = str(found["head"])
            yield path, found["run"], head


def _read_result_file(path: Path) -> dict[str, Any]:
    """Return a file of results as plain data; empty for an absent or broken file."""
    try:
        return dict(parse_json(files.read_bounded_file("results", path, LARGEST), LARGEST))
    except (SottovoceError, ValueError, TypeError):
        return {}
