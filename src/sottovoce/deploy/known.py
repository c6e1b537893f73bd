"""A site's records of its earlier runs.

The other sites' signing keys, and the ledger's head at the end of each run.

Every run's results hold the head, and so does ``NAME.known``, with the keys of the sites of
complete runs.  By these a site notices an older copy of its ledger, or another key under a known
name.
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
_OLDER_LEDGER = "it is an older copy or another ledger"
_NEWEST_LEDGER = "put the newest one back, or if it is lost, count its budget as spent"


class SharedRun(NamedTuple):
    """A run of before: its plan's digest, and the other sites."""

    plan: str
    sites: list[str]


@dataclass(frozen=True)
class Known:
    """The content of ``NAME.known``.

    Parameters
    ----------
    run, head : str, optional
        The last run, and the ledger's head at its end; None before the first.
    keys : dict
        Public signing keys of other sites by name; names that differ in capitals only are one, as
        in a plan.
    shared : dict
        Runs by name: the plan's digest, and the other sites.
    """

    run: str | None = None
    head: str | None = None
    keys: dict[str, str] = field(default_factory=dict)
    shared: dict[str, SharedRun] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file, nothing if it is absent.

        Raises :class:`InvalidInput` unless :meth:`write` wrote it.
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
            Whether the run was complete; only then are the keys of the plan's other sites taken
            over.

        Returns
        -------
        Known
        """
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
        """Return other sites of a plan with unknown names; none before the first run."""
        known = {other.lower() for other in self.keys}
        if not known:
            return []
        return [site for site in plan.names if site != name and site.lower() not in known]

    def check_keys_unchanged(self, plan: Plan, name: str) -> None:
        """Raise :class:`InvalidInput` if a plan has another signing key for a known site."""
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
    """Check a ledger against what is left under `stem` of its earlier runs.

    Raises :class:`LedgerCorrupt` if it lacks a run, or records, of which something is left.
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
    """Check a ledger against what this site itself signed in earlier runs at the hub.

    Parameters
    ----------
    ledger : DurableLedger
    name : str
        This site.
    key : str
        Its present public key, in base64.
    earlier : iterable of bytes
        Greetings and farewells from the hub, of the present run too.  What the site did not sign
        with `key` is ignored, so a hub cannot make any of it up.

    Raises
    ------
    LedgerCorrupt
        If the ledger lacks one of those runs, its greeting, or the record that a farewell names.
    """
    runs = set(ledger.runs)
    for words in earlier:
        body = read_own_message(words, name, key, SUMS)
        if body is None:
            continue
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
    """Yield what is left of earlier runs.

    A file, the run's name, and the ledger's head at its end if the file holds it.
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
    """Return a file of results as plain data; empty if it is none."""
    try:
        return dict(parse_json(files.read_bounded_file("results", path, LARGEST), LARGEST))
    except (SottovoceError, ValueError, TypeError):
        return {}
