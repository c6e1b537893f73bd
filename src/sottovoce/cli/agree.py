"""``sottovoce site agree``: the people of a site agree to the plan that its hub proposes.

The ledger records who agreed and when, before anything of the run is reserved.  ``site join
--wait`` and ``site run --stay`` use the same steps.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable
from pathlib import Path

import click

from ..deploy.agreement import (
    begun_run,
    fetch_proposal,
    install_agreed_proposal,
    people_missing,
)
from ..deploy.invitation import PLAN_GROUPS, matches_code, plan_comparison_code
from ..deploy.settings import SiteSettings
from ..errors import InvalidInput, SottovoceError, Unreachable
from ..ledger.durable import DurableLedger
from .options import decorate_with_options, make_option
from .site_check import check_site_settings

_TRIES = 3
"""How often somebody may mistype a code that was heard."""
_PATIENCE = 20.0
"""Seconds that `site agree` waits for a hub that does not answer."""
_QUICK = 0.0
"""Patience of a look whether the hub has a newer plan: one request."""
_CODE = re.compile(rf"([0-9A-Za-z]{{4}}-?){{{PLAN_GROUPS}}}")
"""What looks like a plan's code, and not like a folder."""
BY = make_option(
    "--by",
    "Who agrees, for the ledger.  [default: the name of the login]",
    metavar="NAME",
)
"""Option of the commands that record a consent."""


@click.command()
@click.argument("words", metavar="[NAME] [CODE]", nargs=-1)
@decorate_with_options(
    [
        BY,
        make_option(
            "--new-keys",
            "Known sites may have new signing keys, which they told you themselves.",
            is_flag=True,
        ),
    ]
)
def agree(words: tuple[str, ...], by: str | None, new_keys: bool) -> None:
    """Agree to the plan that the hub proposes: show it, check its CODE, record who agreed, end.

    NAME is the site's folder; without it the present one.  The hub is asked for its newest plan,
    which is checked and shown: price, columns, who sees what.  Type the plan's code as somebody
    reads it to you by telephone, or give it as CODE.  The ledger then holds your name and the time,
    and `site run` may take part in this plan and no other.  Nothing is spent or sent.

    With `four_eyes = true` in site.toml two people must agree, each by this command.
    """
    folder, code = _parse_folder_and_code(words)
    found = SiteSettings.read(folder / "site.toml")
    person = name_of_person(by)
    offered = fetch_or_keep(found, _PATIENCE)
    if offered is None:
        raise InvalidInput(
            "plan",
            found.plan,
            "there is no plan to agree to, here or at the hub",
            "wait until the hub's operator has written one",
        )
    if _is_agreed_already(found, offered, code):
        click.echo(
            f"nothing new to agree to: run {offered.agreed_plan.run} is agreed to, and the hub "
            "proposes no other"
        )
        return
    agreed = ask_for_consent(found, code, person, new_keys)
    run = begun_run(found)
    if not agreed:
        click.echo("a second person must agree, too: `sottovoce site agree` with another --by")
    elif run is not None and found.proposed.exists():
        click.echo(f"it begins when run {run} is over here (`sottovoce site end` ends that)")
    else:
        click.echo(f"next: sottovoce site run {folder / 'site.toml'}, unless it stays already")


def _is_agreed_already(found: SiteSettings, offered: SiteSettings, code: str | None) -> bool:
    """Return True if what is offered is the site's plan, and enough people have agreed to it.

    False for a code of another plan, which is then refused.
    """
    if offered is not found:
        return False
    plan = offered.agreed_plan
    if code is not None and not matches_code(code, plan_comparison_code(plan.digest)):
        return False
    return not people_missing(found, plan)


def _parse_folder_and_code(words: tuple[str, ...]) -> tuple[Path, str | None]:
    """Return the site's folder and the typed code, either of which may be left out."""
    if len(words) > 2:
        raise InvalidInput(
            "code", None, "is given in several words", "type it with dashes and without blanks"
        )
    given = list(words)
    code = None
    if given and not Path(given[-1]).exists() and (len(given) == 2 or _CODE.fullmatch(given[-1])):
        code = given.pop()
    folder = Path(".")
    if given:
        folder = Path(given[0])
    if folder.name == "site.toml":
        folder = folder.parent
    if not (folder / "site.toml").exists():
        raise InvalidInput(
            "folder", folder, "holds no site.toml", "give the folder that `site join` made"
        )
    return folder, code


def name_of_person(by: str | None) -> str:
    """Return who agrees: as given, or the name of the login."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise InvalidInput(
            "by", None, "is missing, and this login has no name", "give it: --by NAME"
        ) from None


def tell_site(found: SiteSettings) -> Callable[[str], None]:
    """Return a function that prints a line about a site on standard error."""
    return lambda line: click.echo(f"{found.name}: {line}", err=True)


def fetch_or_keep(found: SiteSettings, patience: float) -> SiteSettings | None:
    """Ask the hub for its newest plan, and return the settings with the plan to agree to.

    The proposal, or else the plan in the folder; None if there is neither.  A hub that is silent
    for `patience` seconds is told, and what is in the folder counts.
    """
    try:
        # Another transport than the relay gives no plans: what is in the folder counts.
        if found.hub:
            fetch_proposal(found, tell_site(found), patience)
    except Unreachable as error:
        if not (found.proposed.exists() or found.plan.exists()):
            raise
        tell_site(found)(f"{error}; so this is the last plan that came")
    return candidate(found)


def candidate(found: SiteSettings) -> SiteSettings | None:
    """Return the settings with the proposed plan, or else with the plan; None without either."""
    if found.proposed.exists():
        return found.of_proposal
    if found.plan.exists():
        return found
    return None


def ask_for_consent(
    found: SiteSettings, typed: str | None, by: str, new_keys: bool = False
) -> bool:
    """Show the plan that is proposed, check the code that somebody heard, and record the consent.

    The consent is in the ledger before the plan takes its place.  If the hub has a newer plan when
    a wrong code was typed, that one is shown and asked for.

    Parameters
    ----------
    found : SiteSettings
    typed : str or None
        The code, if it was typed beforehand.
    by : str
        Who agrees.
    new_keys : bool
        Accept sites whose keys are others than before.

    Returns
    -------
    bool
        True if nobody else has to agree.

    Raises
    ------
    InvalidInput
        If the code is another, or nobody is there to type it.
    """
    shown = candidate(found)
    while shown is not None:
        plan = shown.agreed_plan
        check_site_settings(shown, new_keys, asks=False)
        # None once the right code was typed.
        shown = _check_code_or_find_newer(found, shown, typed)
    with DurableLedger.open(found.ledger) as ledger:
        fresh = ledger.record_consent(plan.run, plan.digest, by)
    what = "agreed" if fresh else "had agreed before"
    click.echo(f"{by} {what} to run {plan.run}: it is in the ledger")
    missing = people_missing(found, plan)
    if not missing:
        install_agreed_proposal(found)
    return not missing


def _newer_plan(found: SiteSettings, digest: str) -> SiteSettings | None:
    """Return the settings with a newer plan than that of this digest, if the hub has one."""
    try:
        fetch_proposal(found, tell_site(found), _QUICK)
    except SottovoceError:
        # What was shown stays: the code that was typed is not its own.
        return None
    newer = candidate(found)
    if newer is None or newer.agreed_plan.digest == digest:
        return None
    return newer


def _check_code_or_find_newer(
    found: SiteSettings, shown: SiteSettings, typed: str | None
) -> SiteSettings | None:
    """Check that somebody gives the code of the plan that is shown.

    Returns None for the right code, and the settings with a newer plan if the hub has one when a
    code is wrong.  Raises :class:`InvalidInput` if every code that was typed is another, or nobody
    is there to type one.
    """
    plan = shown.agreed_plan
    code = plan_comparison_code(plan.digest)
    # Masks hide a share only among the sites whose keys are in the plan, so in a run of sums the
    # hub's operator is not the one to vouch for the plan.
    who = "the hub's operator, or another site,"
    if plan.uses_secure_sums:
        who = "another site"
    question = (
        f"{shown.name}: to take part in this run, type the plan's code as {who} reads it to you"
    )
    for _ in range(1 if typed is not None else _TRIES):
        if matches_code(typed if typed is not None else _prompt_for_code(question), code):
            return None
        newer = _newer_plan(found, plan.digest)
        if newer is not None:
            return newer
        click.echo("that is another code", err=True)
    rule = "is not the code of this plan: it was misheard, or a file was changed on its way"
    remedy = "ask again by a telephone number that you know; if it stays so, stop"
    raise InvalidInput("code", None, rule, remedy)


def _prompt_for_code(question: str) -> str:
    """Ask for a code; raises :class:`InvalidInput` if nobody is there to type it."""
    try:
        return str(click.prompt(question, err=True))
    except click.Abort as stop:
        # The end of the input, and not Ctrl-C: a service, or a script.
        if not isinstance(stop.__context__, EOFError):
            raise
        click.echo("", err=True)
    rule = "is missing, and there is no terminal to ask for it"
    remedy = "give it: `sottovoce site agree NAME CODE`, or --plan-code"
    raise InvalidInput("code", None, rule, remedy)
