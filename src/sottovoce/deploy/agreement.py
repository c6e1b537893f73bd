"""From the plan that a hub proposes to the plan that a site takes part in.

What a hub gives is a *proposal*, a file beside the site's plan (:attr:`SiteSettings.proposed`).  It
takes the place of the plan when the people of the site have agreed to it, which the ledger records
(:meth:`sottovoce.ledger.durable.DurableLedger.record_consent`), and when no run that has begun
stands in the way.  A newer proposal takes the place of an older one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..errors import Busy, InvalidInput
from ..ledger.durable import DurableLedger
from ..util import files
from . import certificates
from .files import write_new_file
from .invitation import Invitation
from .lock import exclusive_lock
from .plan import Plan
from .plan_file import read_plan_file, write_plan_file
from .relay import request_certificate_and_plan
from .settings import SiteSettings, people_who_agreed, replace_entry

Tell = Callable[[str], None]
"""Called with a line for the site's people."""


def fetch_proposal(found: SiteSettings, tell: Tell, patience: float = math.inf) -> None:
    """Ask the hub for its plan, and keep it as the site's proposal if it is new.

    It raises as :func:`fetch_plan` and :func:`keep_proposal` do.

    Parameters
    ----------
    found : SiteSettings
    tell : callable ``(line)``
        Called with why it waits, and with what is new.
    patience : float
        Seconds to wait for a hub that has a plan.
    """
    keep_proposal(found, fetch_plan(found, tell, patience), tell)


def fetch_plan(found: SiteSettings, tell: Tell, patience: float = math.inf) -> bytes:
    """Ask the hub for its plan, and for the site's certificate if there is none yet.

    The certificate of the site opens the hub; before there is one, that of the invitation.  A
    certificate in use is never replaced.

    Parameters
    ----------
    found : SiteSettings
    tell : callable ``(line)``
        Called with why it waits, and with what is new.
    patience : float
        Seconds to wait for a hub that has a plan.

    Returns
    -------
    bytes
        The plan's file, unchecked.

    Raises
    ------
    InvalidInput
        If the site has neither a certificate nor an invitation, or they do not fit its key.
    Refused
        If the hub refuses the request.
    Unreachable
        If the hub gave no plan for `patience` seconds.
    """
    own = _credentials_for_hub(found)
    certificate, plan = request_certificate_and_plan(found.hub, own, tell, patience=patience)
    if not found.credentials.certificate.exists():
        key = certificates.read_tls_key(found.credentials.key)
        certificates.check_tls_files(found.name, own[0], certificate, key)
        write_new_file(found.credentials.certificate, certificate)
    return plan


def _credentials_for_hub(found: SiteSettings) -> tuple[bytes, bytes, bytes]:
    """Return authority, certificate and key in PEM by which the site asks the hub for a plan."""
    if found.credentials.certificate.exists():
        found.check_connection()
        return found.credentials.read()
    if not found.is_invited:
        raise InvalidInput(
            "certificate",
            found.credentials.certificate,
            "there is no such file, and no invitation",
            "put the certificate of `hub admit` there",
        )
    invited = Invitation.read(found.invitation)
    return invited.authority.encode(), invited.certificate.encode(), invited.key.encode()


def keep_proposal(found: SiteSettings, data: bytes, tell: Tell) -> None:
    """Keep a plan that the hub gave as the site's proposal, in place of an older one.

    Nothing changes if it is the site's plan, or its proposal, already.

    Parameters
    ----------
    found : SiteSettings
    data : bytes
        The plan's file.
    tell : callable ``(line)``
        Called with what is new.

    Raises
    ------
    InvalidInput
        If it is no plan, or a plan without this site; an older proposal stays then.
    """
    fresh = found.proposed.with_name(f"{found.proposed.name}.new")
    files.write_atomically("plan", fresh, data)
    try:
        offered = read_plan_file(fresh)
        offered.index(found.name)
        current, former = _plan_in(found.plan), _plan_in(found.proposed)
        if current is not None and current.digest == offered.digest:
            # The hub offers the plan that the site has: it withdrew what it proposed in between.
            if former is not None:
                found.proposed.unlink(missing_ok=True)
                tell(f"the hub no longer proposes run {former.run}")
            return
        if former is not None and former.digest == offered.digest:
            return
        fresh.replace(found.proposed)
    finally:
        fresh.unlink(missing_ok=True)
    tell(f"the hub proposes run {offered.run}{_describe_replaced(found, current, former)}")


def _plan_in(path: Path) -> Plan | None:
    """Return the plan in a file; None if there is no file, or it is of no use any more."""
    if not path.exists():
        return None
    try:
        return read_plan_file(path)
    except InvalidInput:
        return None


def _describe_replaced(found: SiteSettings, current: Plan | None, former: Plan | None) -> str:
    """Say in whose place a new proposal comes; empty for nobody's.

    `current` is the site's plan, and `former` the proposal before.
    """
    if former is not None:
        return f", in place of its earlier proposal of run {former.run}"
    if current is None or found.read_results_of(current) is not None:
        return ""
    if begun_run(found) is None:
        return f", in place of run {current.run}, which has not begun here"
    return f"; run {current.run}, which has begun here, goes on first (or `site end` ends it)"


def people_missing(found: SiteSettings, plan: Plan) -> int:
    """Return how many people of a site have yet to agree to a plan, by its ledger."""
    with DurableLedger.open(found.ledger) as ledger:
        return max(0, found.people_needed - len(people_who_agreed(ledger, plan.digest)))


def install_agreed_proposal(found: SiteSettings) -> bool:
    """Let the proposal take the place of the plan, if it is agreed and nothing is in its way.

    A run that has begun here goes on first, to its end.

    Returns
    -------
    bool
        False if there is no such proposal, or the plan stays for now.
    """
    proposed = _plan_in(found.proposed)
    if proposed is None or people_missing(found, proposed) or begun_run(found) is not None:
        return False
    # A process that takes part in a run holds the lock.
    with suppress(Busy), exclusive_lock(found.lock_file, 0.0):
        # The plan that was read above, whatever has come into its file since.  It comes first: the
        # consent is in the ledger, so a kill before the next line loses nothing.
        _keep_plan_of_earlier_run(found)
        write_plan_file(proposed, found.plan)
        # For the readers of the file: what counts is the ledger.
        replace_entry(found.folder / "site.toml", "agreed", proposed.digest)
        again = _plan_in(found.proposed)
        if again is not None and again.digest == proposed.digest:
            found.proposed.unlink(missing_ok=True)
        return True
    return False


def _keep_plan_of_earlier_run(found: SiteSettings) -> None:
    """Keep the plan of a run that is in the ledger as ``plan.RUN.json``, before another comes.

    ``site replace`` asks for the plans of all earlier runs, and ``site results`` may need one.
    """
    plan = _plan_in(found.plan)
    if plan is None:
        return
    kept = found.plan_of_run(plan.run)
    with DurableLedger.open(found.ledger) as ledger:
        begun = plan.run in ledger.runs
    if begun and not kept.exists():
        write_plan_file(plan, kept)


def begun_run(found: SiteSettings) -> str | None:
    """Return the name of the run that has begun here and is not over; None if there is none."""
    plan = _plan_in(found.plan)
    if plan is None:
        return None
    with DurableLedger.open(found.ledger) as ledger:
        run = ledger.runs.get(plan.run)
    if run is None or run.plan != plan.digest or run.given_up:
        return None
    if found.read_results_of(plan) is not None:
        return None
    return plan.run
