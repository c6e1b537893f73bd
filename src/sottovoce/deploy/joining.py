"""A new site's folder: keys, ledger and settings, for ``site init``, ``join`` and ``replace``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..data.schema import Schema
from ..errors import InvalidInput
from ..ledger.durable import DurableLedger
from ..ledger.identity import is_ledger_of_rows
from ..ledger.life import describe_example_run
from ..util.files import write_atomically
from . import certificates
from .crypto import need_cryptography
from .files import all_files_or_none, write_new_file
from .invitation import Answer, Invitation
from .keys import SigningKey
from .lock import exclusive_lock
from .members import ANSWER, Member
from .names import check_site_name
from .plan import Plan
from .relay import grpc_target
from .settings import (
    SiteRules,
    SiteSettings,
    check_no_other_ledger,
    digests_of_rows,
    load_rows,
    replace_entry,
    write_settings,
)


@dataclass(frozen=True)
class Made:
    """Result of :func:`make_site_folder`.

    Parameters
    ----------
    member : Member
        The site's public facts.
    request : str
        Its certificate signing request, in PEM.
    share : str, optional
        A sentence on how much of the lifetime budget an example run takes: see
        :func:`sottovoce.ledger.life.describe_example_run`.
    unknown : list of str
        For each ledger nearby that could not be compared with the rows, the reason.
    warnings : list of str
        What is unusual about the lifetime budget.
    """

    member: Member
    request: str
    share: str | None
    unknown: list[str]
    warnings: list[str]


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


LARGE_EPSILON = 10.0
"""A lifetime epsilon above which a site is warned."""


@dataclass(frozen=True)
class LifetimeBudget:
    """The lifetime privacy budget of a new site's rows, over all runs together.

    Parameters
    ----------
    epsilon : float
    delta : float or None
        None for pure epsilon.
    accountant : str or None
        The rule by which privacy losses are composed; None for ``rdp`` with a delta, and ``pure``
        without.
    """

    epsilon: float
    delta: float | None
    accountant: str | None = None

    @property
    def rule(self) -> str:
        """Name of the accountant by which privacy losses are composed."""
        if self.accountant:
            return self.accountant
        if self.delta is None:
            return "pure"
        return "rdp"

    def warnings(self, rows: int) -> list[str]:
        """Return what is unusual about this budget for so many rows."""
        found = []
        if self.epsilon > LARGE_EPSILON:
            found.append(
                f"a lifetime epsilon of {self.epsilon:g} is above {LARGE_EPSILON:g}: it promises "
                "little about any row"
            )
        if self.delta is not None and self.delta * rows >= 1.0:
            found.append(
                f"a delta of {self.delta:g} is at least one over the number of rows: it would "
                "allow to publish a row as it is"
            )
        return found


@dataclass(frozen=True)
class SharedLedger:
    """The ledger of a site's rows that another folder of this site has, for a second hub.

    Parameters
    ----------
    path : Path
    """

    path: Path


def make_site_folder(
    folder: Path,
    name: str,
    hub: str,
    table: TableSource,
    budget: LifetimeBudget | SharedLedger,
    more: Callable[[Member, str], dict[str, str]] = lambda *_: {},
    spent: Sequence[Plan] = (),
    rules: SiteRules | None = None,
) -> Made:
    """Make a site's folder: all of its files, or none.

    Parameters
    ----------
    folder : Path
    name, hub : str
        Name of the site, and the hub's address, ``HOST:PORT``.
    table : TableSource
        The site's rows.
    budget : LifetimeBudget or SharedLedger
        Lifetime budget of the new ledger; or the ledger that these rows have.
    more : callable ``(member, request)``, optional
        Returns the content of further files by name, from the public facts and the certificate
        signing request in PEM.
    spent : sequence of Plan
        If a lost ledger is replaced: plans of all earlier runs.  The new ledger charges everything
        that they planned for the site.
    rules : SiteRules, optional
        What the site asks of every plan.

    Returns
    -------
    Made

    Raises
    ------
    InvalidInput
        If a file cannot be read, or there is a ledger of the same rows already; nothing is made.
    """
    need_cryptography()
    check_site_name("name", name)
    grpc_target(hub)
    if (folder / "site.toml").exists():
        raise InvalidInput("folder", str(folder), "already holds a site", "use another folder")
    rows = load_rows(table.data, table.schema)
    ours = digests_of_rows(table.data, table.schema, rows)
    shared = None
    if isinstance(budget, SharedLedger):
        shared = _check_shared_ledger(budget.path, table.data, *ours)
    unknown = check_no_other_ledger(table.data, folder, *ours, known=shared)
    with all_files_or_none(folder) as made:
        if isinstance(budget, LifetimeBudget):
            _make_ledger(folder / f"{name}.ledger", budget, ours[0], made, name, spent)
        key = _make_keys(folder, name, made)
        member = Member(name, int(rows.n[0, 0]), key.public)
        request = (folder / f"{name}.csr").read_text()
        public = {f"{name}.public.json": json.dumps(vars(member), indent=1) + "\n"}
        for file, text in (public | more(member, request)).items():
            write_new_file(folder / file, text)
            made(folder / file)
        write_settings(
            folder,
            name,
            hub,
            table.data.resolve(),
            table.schema_file,
            rules=rules,
            ledger=shared,
        )
    share, warnings = None, list[str]()
    if isinstance(budget, LifetimeBudget):
        share = describe_example_run(budget.rule, budget.epsilon, budget.delta or 0.0)
        warnings = budget.warnings(member.rows)
    return Made(member, request, share, unknown, warnings)


def _check_shared_ledger(path: Path, data: Path, *digests: bytes) -> Path:
    """Return the resolved path of a ledger, which must be of these rows."""
    if not is_ledger_of_rows(path, *digests):
        raise InvalidInput(
            "ledger", path, f"is not the ledger of {data}", "give the one that these rows have"
        )
    return path.resolve()


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
        Plans of earlier runs, whose ledger was lost.
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
    """Make a site's TLS key, its certificate signing request and its signing key.

    `made` is called with the path of each file once it is there.  Returns the signing key.
    """
    certificates.write_certificate_request(folder, name)
    for ending in ("key", "csr"):
        made(folder / f"{name}.{ending}")
    key = SigningKey.make()
    key.write(folder / f"{name}.signing")
    made(folder / f"{name}.signing")
    return key


def _charge_planned_events(ledger: DurableLedger, plan: Plan, name: str) -> None:
    """Charge all events that a plan planned for a site: at least what its run really spent."""
    events = plan.planned_privacy.events(name)
    with ledger.reserve(plan.run, plan.digest, events) as run:
        for event in events:
            run.record_event(event)


def rejoin_site(found: SiteSettings, invited: Invitation, *, new_hub: bool) -> Answer:
    """Let a site that has a folder join by another invitation.

    It gets a new TLS key, the invitation's address and authority; signing key, ledger, plan and
    results stay.  After a kill amid it the same call does all of it again: the invitation is
    written last.

    Parameters
    ----------
    found : SiteSettings
        Of the site, which must not run meanwhile.
    invited : Invitation
    new_hub : bool
        Accept another authority than that of the folder.

    Returns
    -------
    Answer
        To the invitation.

    Raises
    ------
    InvalidInput
        If the invitation is of another site, or of another hub without `new_hub`.
    Busy
        If the site runs.
    """
    need_cryptography()
    name = found.name
    if invited.name != name:
        rule = f"is to {invited.name!r}, and this folder is of {name!r}"
        raise InvalidInput("invitation", invited.name, rule, "give this site's own invitation")
    grpc_target(invited.hub)
    authority = found.credentials.authority
    if not new_hub and authority.exists():
        _check_same_hub(found, authority.read_bytes(), invited.authority.encode())
    with exclusive_lock(found.lock_file):
        # An error if it cannot be opened: then more than a key is lost.
        DurableLedger.open(found.ledger).close()
        public = SigningKey.read(found.signing).public
        member = Member(name, Member.read(found.result_file("public.json")).rows, public)
        with tempfile.TemporaryDirectory(dir=found.folder) as place:
            certificates.write_certificate_request(Path(place), name)
            request = (Path(place) / f"{name}.csr").read_text()
            answer = Answer(member, request, invited.digest)
            # Of the key before: the new one is signed by this hub, once the answer is admitted.
            found.credentials.certificate.unlink(missing_ok=True)
            (Path(place) / f"{name}.key").replace(found.credentials.key)
            (Path(place) / f"{name}.csr").replace(found.result_file("csr"))
        write_atomically("authority", authority, invited.authority)
        if not replace_entry(found.folder / "site.toml", "hub", invited.hub):
            rule = "has no line [data] by itself, so the hub's address cannot be written above it"
            raise InvalidInput("settings", found.folder / "site.toml", rule, "correct the file")
        write_atomically("answer", found.result_file(ANSWER), answer.text())
        write_atomically("invitation", found.invitation, invited.text(), mode=0o600)
    return answer


def _check_same_hub(found: SiteSettings, own: bytes, invited: bytes) -> None:
    """Raise :class:`InvalidInput` if an invitation is of another authority than a site's own."""
    if certificates.share_authority(own, invited):
        return
    rule = f"is of another hub than {found.folder}"
    remedy = (
        f"for a second hub of the same rows join in a new --folder with --ledger {found.ledger}; "
        "if this hub was made anew, add --new-hub"
    )
    raise InvalidInput("invitation", found.name, rule, remedy)
