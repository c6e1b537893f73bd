"""A new site's folder: keys, ledger and settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..data.schema import Schema
from ..errors import InvalidInput
from ..ledger.durable import DurableLedger
from ..ledger.life import describe_example_run
from . import certificates
from .crypto import need_cryptography
from .files import all_files_or_none, write_new_file
from .keys import SigningKey
from .members import Member
from .names import check_site_name
from .plan import Plan
from .relay import grpc_target
from .settings import check_no_other_ledger, digests_of_rows, load_rows, write_settings


@dataclass(frozen=True)
class Made:
    """A site that was made.

    Parameters
    ----------
    member : Member
        Its public facts.
    request : str
        Its certificate request, in PEM.
    share : str, optional
        What to tell its people of the ledger: see
        :func:`sottovoce.ledger.life.describe_example_run`.
    unknown : list of str
        Why ledgers nearby could not be compared.
    """

    member: Member
    request: str
    share: str | None
    unknown: list[str]


@dataclass(frozen=True)
class TableSource:
    """The rows of a new site, and their encoding.

    Parameters
    ----------
    data : Path
        The table.
    schema : Schema
    schema_file : Path
        The file that holds it.
    """

    data: Path
    schema: Schema
    schema_file: Path


@dataclass(frozen=True)
class LifetimeBudget:
    """The budget of the ledger of a new site's rows.

    Parameters
    ----------
    epsilon : float
    delta : float or None
        None for pure epsilon.
    accountant : str or None
        The rule by which it adds up; None for the one that goes with delta.
    """

    epsilon: float
    delta: float | None
    accountant: str | None = None

    @property
    def rule(self) -> str:
        """The rule by which it adds up."""
        if self.accountant:
            return self.accountant
        if self.delta is None:
            return "pure"
        return "rdp"


def make_site_folder(
    folder: Path,
    name: str,
    hub: str,
    table: TableSource,
    budget: LifetimeBudget,
    more: Callable[[Member, str], dict[str, str]] = lambda *_: {},
    spent: Sequence[Plan] = (),
) -> Made:
    """Make a site's folder: all of its files, or none.

    Parameters
    ----------
    folder : Path
    name, hub : str
        Of the site, and the hub's address, ``HOST:PORT``.
    table : TableSource
        Its rows.
    budget : LifetimeBudget
        Of its ledger.
    more : callable ``(member, request)``, optional
        Gives further files by name, from the public facts and the certificate request.
    spent : sequence of Plan
        The ledger has charged all that these planned for the site, in place of a ledger that was
        lost.

    Returns
    -------
    Made

    Raises
    ------
    InvalidInput
        Before anything is made, for what cannot be read and for rows that have a ledger already.
    """
    need_cryptography()
    check_site_name("name", name)
    grpc_target(hub)
    if (folder / "site.toml").exists():
        raise InvalidInput("folder", str(folder), "already holds a site", "use another folder")
    rows = load_rows(table.data, table.schema)
    ours = digests_of_rows(table.data, table.schema, rows)
    unknown = check_no_other_ledger(table.data, folder, *ours)
    with all_files_or_none(folder) as made:
        _make_ledger(folder / f"{name}.ledger", budget, ours[0], made, name, spent)
        key = _make_keys(folder, name, made)
        member = Member(name, int(rows.n[0, 0]), key.public)
        request = (folder / f"{name}.csr").read_text()
        public = {f"{name}.public.json": json.dumps(vars(member), indent=1) + "\n"}
        for file, text in (public | more(member, request)).items():
            write_new_file(folder / file, text)
            made(folder / file)
        write_settings(folder, name, hub, table.data.resolve(), table.schema_file)
    share = describe_example_run(budget.rule, budget.epsilon, budget.delta or 0.0)
    return Made(member, request, share, unknown)


def _make_ledger(
    path: Path,
    budget: LifetimeBudget,
    fingerprint: bytes,
    made: Callable[[Path], None],
    name: str,
    spent: Sequence[Plan],
) -> None:
    """Make a site's ledger, and charge all that earlier plans planned for the site.

    Parameters
    ----------
    path : Path
    budget : LifetimeBudget
    fingerprint : bytes
        Digest of the rows.
    made : callable
        Called with the path once the file is there.
    name : str
        The site.
    spent : sequence of Plan
        In place of a ledger that was lost.
    """
    ledger = DurableLedger.create(
        path,
        epsilon=budget.epsilon,
        delta=budget.delta or 0.0,
        accountant=budget.rule,
        fingerprint=fingerprint,
    )
    with ledger:
        made(path)
        for plan in spent:
            _charge_planned_events(ledger, plan, name)


def _make_keys(folder: Path, name: str, made: Callable[[Path], None]) -> SigningKey:
    """Make a site's TLS key, its certificate request and its signing key; returns the last."""
    certificates.write_certificate_request(folder, name)
    for ending in ("key", "csr"):
        made(folder / f"{name}.{ending}")
    key = SigningKey.make()
    key.write(folder / f"{name}.signing")
    made(folder / f"{name}.signing")
    return key


def _charge_planned_events(ledger: DurableLedger, plan: Plan, name: str) -> None:
    """Charge all that a plan planned for a site, which is at least what was spent."""
    events = plan.planned_privacy.events(name)
    with ledger.reserve(plan.run, plan.digest, events) as run:
        for event in events:
            run.record_event(event)
