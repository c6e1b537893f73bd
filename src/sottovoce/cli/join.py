"""``sottovoce hub invite`` and ``site join``: files to and from sites, and a code by telephone.

The hub writes an invitation for each site, NAME.invite; the site answers with NAME.joined, its
public facts and keys.  A short code, computed from both files, is read out by telephone and typed
at the other end: it matches only if neither file was changed on its way.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click

from ..data.draft import toml_of
from ..data.schema import Schema
from ..deploy.certificates import Authority, check_host, hosts_in_certificate
from ..deploy.files import all_files_or_none, write_new_file
from ..deploy.invitation import Answer, Invitation, matches_code
from ..deploy.joining import LifetimeBudget, Made, SharedLedger, TableSource, make_site_folder
from ..deploy.members import ANSWER, Member
from ..deploy.names import check_site_name
from ..deploy.relay import grpc_target
from ..deploy.settings import SiteRules
from ..errors import InvalidInput, escape_unprintable
from .options import FILE, FOLDER, check_parent_folder, decorate_with_options, make_option

INVITE = "invite"
"""Ending of an invitation's file."""
PORT = "8443"
# How often somebody may mistype a code that was heard.
_TRIES = 3

# The hub's side


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@decorate_with_options(
    [
        make_option(
            "--host",
            "HOST or HOST:PORT by which sites reach the hub.  [default: as in the invitations "
            "before]",
        ),
        make_option(
            "--folder", "The hub's folder; created if missing.", default="hub", type=FOLDER
        ),
        make_option(
            "--schema",
            "TOML file that the sites are asked to use; a site may give another.",
            type=FILE,
        ),
        make_option(
            "--epsilon",
            "Lifetime budget that the sites are asked to choose; each decides itself.",
            type=float,
            default=3.0,
        ),
        make_option("--delta", "The delta of that budget; 0 for none.", type=float, default=1e-5),
    ]
)
def invite(
    names: tuple[str, ...],
    host: str | None,
    folder: Path,
    schema: Path | None,
    epsilon: float,
    delta: float,
) -> None:
    """Write an invitation for each site NAME: FOLDER/NAME.invite.

    Send each to its site, by mail or any other way.  The site answers with a file, NAME.joined, and
    reads a code to you by telephone, by which `hub admit` knows that both files came unchanged.
    The hub's authority and certificate are made if FOLDER has none.  Sites can be invited at any
    time; those that are there need nothing new.
    """
    _check_invited_names(names)
    if not epsilon > 0.0 or not 0.0 <= delta < 1.0:
        raise InvalidInput(
            "epsilon", epsilon, "must be above 0, and delta in [0, 1)", "use e.g. --epsilon 3"
        )
    declared = None
    if schema is not None:
        declared = Schema.from_toml(schema).to_dict()
    check_parent_folder("folder", folder)
    address = _choose_hub_address(folder, host)
    _check_not_invited(folder, names)
    with all_files_or_none(folder) as made:
        if not (folder / "ca.crt").exists():
            authority = Authority.make(folder)
            made(folder / "ca.key")
            made(folder / "ca.crt")
            authority.write_hub_certificate(folder, [address.rpartition(":")[0].strip("[]")])
            made(folder / "hub.key")
            made(folder / "hub.crt")
        authority = Authority.read(folder)
        pem = (folder / "ca.crt").read_text()
        for name in names:
            certificate, key = (
                part.decode() for part in authority.make_invitation_certificate(name)
            )
            one = Invitation(name, address, pem, certificate, key, epsilon, delta or None, declared)
            # It holds a private key, by which the site asks the hub for its certificate.
            write_new_file(folder / f"{name}.{INVITE}", one.text(), secret=True)
            made(folder / f"{name}.{INVITE}")
    # Printed only when all are written: a failure takes all of them back.
    for name in names:
        click.echo(f"{folder / name}.{INVITE}: send it to {name}, who answers with {name}.{ANSWER}")
    click.echo(
        f"the sites reach the hub at {address}; `hub run --admit` asks for the code that each "
        "reads to you"
    )


def _check_invited_names(names: tuple[str, ...]) -> None:
    """Refuse names that cannot be file names, or are equal but for case."""
    for name in names:
        check_site_name("name", name)
    # Files are named by sites, and some file systems do not tell case apart.
    if len({name.lower() for name in names}) != len(names):
        raise InvalidInput("name", None, "is given twice", "give every site a name of its own")


def _check_not_invited(folder: Path, names: tuple[str, ...]) -> None:
    """Refuse names that have an invitation or a certificate in the hub's folder."""
    if not folder.is_dir():
        return
    taken = {path.name.lower() for path in folder.iterdir()}
    for name in names:
        for ending in (INVITE, "crt"):
            if f"{name}.{ending}".lower() in taken:
                rule = f"{folder / name}.{ending} exists: this name was invited or admitted before"
                remedy = (
                    f"to invite the same site again: `sottovoce hub revoke {folder} {name}` first"
                )
                raise InvalidInput("name", name, rule, remedy)


def _choose_hub_address(folder: Path, host: str | None) -> str:
    """Return ``HOST:PORT`` for invitations: as given, or as in the earlier ones."""
    if host is None:
        for path in sorted(folder.glob(f"*.{INVITE}")):
            return Invitation.read(path).hub
        raise InvalidInput(
            "host", None, "is needed for the first invitation", "use e.g. --host hub.example.org"
        )
    name, colon, port = host.rpartition(":")
    # The colons of an IPv6 address are its own, unless brackets set a port apart.
    bare_ipv6 = ":" in name and not host.endswith("]") and not name.startswith("[")
    if not colon or bare_ipv6:
        name, port = host, PORT
    name = name.strip("[]")
    check_host(name)
    address = f"{name}:{port}"
    if ":" in name:
        address = f"[{name}]:{port}"
    grpc_target(address, "host")
    if (folder / "hub.crt").exists() and name not in hosts_in_certificate(folder / "hub.crt"):
        rule = (
            "is not in the hub's certificate, which is for "
            f"{', '.join(hosts_in_certificate(folder / 'hub.crt'))}"
        )
        raise InvalidInput("host", name, rule, "use one of those, or `hub renew --host`")
    return address


def parse_site_codes(given: tuple[str, ...]) -> dict[str, str]:
    """Parse the option ``--code NAME=CODE``, which is given once a site."""
    found = {}
    for option in given:
        name, equals, code = option.partition("=")
        if not equals:
            raise InvalidInput(
                "code", None, "must be NAME=CODE", "use e.g. --code north=K7QM-2XRD-9V4H"
            )
        if name in found:
            raise InvalidInput(
                "code",
                None,
                f"is given twice for {escape_unprintable(name)}",
                "leave one of the two out",
            )
        found[name] = code
    return found


def read_checked_answer(folder: Path, path: Path, codes: dict[str, str]) -> Answer:
    """Read an answer to an invitation, and check it by the code heard from the site.

    Parameters
    ----------
    folder : Path
        The hub's folder, with its invitations.
    path : Path
        The site's answer.
    codes : dict of str to str
        Codes that were typed beforehand, by site; others are asked for.

    Returns
    -------
    Answer

    Raises
    ------
    InvalidInput
        If the site was not invited, the answer is to another invitation, or the code is another.
    """
    answer = Answer.read(path)
    name = answer.member.name
    invitation = folder / f"{name}.{INVITE}"
    if not invitation.exists():
        raise InvalidInput(
            "answer", path, f"is from {name!r}, who was not invited", "see `sottovoce hub invite`"
        )
    answer.check_answers_invitation(Invitation.read(invitation))
    check_spoken_code(
        f"{name}: the code that {name} reads to you",
        answer.comparison_code,
        codes.get(name),
        f"of {name}",
    )
    return answer


def check_spoken_code(question: str, code: str, given: str | None, of: str) -> None:
    """Check that somebody types the right code.

    Parameters
    ----------
    question : str
        The prompt.
    code : str
        The right code.
    given : str or None
        Typed beforehand; None asks, several times.
    of : str
        Whose code it is, for the message, such as "of north".

    Raises
    ------
    InvalidInput
        If every code that was typed is another.
    """
    if given is not None:
        if matches_code(given, code):
            return
    else:
        for _ in range(_TRIES):
            if matches_code(click.prompt(question, err=True), code):
                return
            click.echo("that is another code", err=True)
    rule = f"is not the code {of}: it was misheard, or a file was changed on its way"
    raise InvalidInput(
        "code", None, rule, "ask again by a telephone number that you know; if it stays so, stop"
    )


# The site's side


class Joining(NamedTuple):
    """What somebody typed of a new site.

    Parameters
    ----------
    data : Path or None
        The site's table; refused if missing.
    schema : Path or None
        Schema in place of the invitation's.
    epsilon, delta : float or None
        Lifetime budget; delta 0 is pure epsilon.  What is None is asked for, if the invitation
        proposes it.
    accountant : str or None
        Accountant of the new ledger, for its life; None for the default.
    ledger : Path or None
        The ledger that these rows have, for a second hub; None makes one.
    rules : SiteRules
        What the site asks of every plan.
    """

    data: Path | None
    schema: Path | None
    epsilon: float | None
    delta: float | None
    accountant: str | None
    ledger: Path | None
    rules: SiteRules


def make_invited_site(invited: Invitation, folder: Path, typed: Joining) -> None:
    """Make the folder of an invited site, and say what to do next.

    Parameters
    ----------
    invited : Invitation
    folder : Path
        The new folder.
    typed : Joining

    Raises
    ------
    InvalidInput
        If the table, an epsilon or a schema is missing, or nobody confirms the budget.
    """
    name = invited.name
    if typed.data is None:
        raise InvalidInput(
            "data", None, "is missing", "give the table of this site: --data rows.csv"
        )
    if typed.schema is None and invited.schema is None:
        rule = "is missing, also from the invitation"
        raise InvalidInput(
            "schema", None, rule, "agree on one with the other sites: --schema schema.toml"
        )
    check_parent_folder("folder", folder)
    budget = _budget_or_ledger(invited, typed)
    table, files_of_schema = _encoding_source(invited, typed.data, typed.schema)

    def make_more_files(member: Member, request: str) -> dict[str, str]:
        answer = Answer(member, request, invited.digest)
        return files_of_schema | {
            "ca.crt": invited.authority,
            f"{name}.{INVITE}": invited.text(),
            f"{name}.{ANSWER}": answer.text(),
        }

    made = make_site_folder(
        folder, name, invited.hub, table, budget, make_more_files, rules=typed.rules
    )
    click.echo(f"made {folder}: {made.member.rows:,} rows, keys, {_describe_ledger(budget)}")
    if typed.schema is None:
        click.echo(f"the schema is the invitation's: read {folder / 'schema.toml'}")
    print_ledger_notes(made)
    print_next_steps(folder, Answer(made.member, made.request, invited.digest))


def _describe_ledger(budget: LifetimeBudget | SharedLedger) -> str:
    """Describe the ledger of a new site: made with this budget, or shared with another folder."""
    if isinstance(budget, SharedLedger):
        return f"and the ledger that these rows have: {budget.path}"
    delta = "pure epsilon"
    if budget.delta is not None:
        delta = f"delta {budget.delta:g}"
    return (
        "and the one ledger of these rows\n"
        f"lifetime budget of these rows: epsilon {budget.epsilon:g}, {delta}; never make a second "
        "ledger for them"
    )


def _budget_or_ledger(invited: Invitation, typed: Joining) -> LifetimeBudget | SharedLedger:
    """Return the budget of a new ledger, or the ledger that the rows have."""
    if typed.ledger is None:
        return _lifetime_budget(invited, typed.epsilon, typed.delta, typed.accountant)
    for field in ("epsilon", "delta", "accountant"):
        if getattr(typed, field) is not None:
            rule = "cannot be given with --ledger, whose budget never changes"
            raise InvalidInput(field, None, rule, "leave it out, or give --ceiling")
    return SharedLedger(typed.ledger)


def _lifetime_budget(
    invited: Invitation, epsilon: float | None, delta: float | None, accountant: str | None
) -> LifetimeBudget:
    """Return the budget that was typed; what the invitation proposes must be confirmed."""
    if epsilon is None and invited.epsilon is None:
        raise InvalidInput(
            "epsilon", None, "is missing, also from the invitation", "use e.g. --epsilon 3"
        )
    silent = epsilon is None or (delta is None and invited.delta is not None)
    if epsilon is None:
        epsilon = invited.epsilon or 0.0
    if delta is None:
        delta = invited.delta
    # A ledger of pure epsilon has no delta.
    budget = LifetimeBudget(epsilon, delta or None, accountant)
    if silent:
        _confirm_budget(budget)
    return budget


def _confirm_budget(budget: LifetimeBudget) -> None:
    """Ask whether the invitation's budget is this site's; raises :class:`InvalidInput` if not."""
    for line in budget.warnings(0):
        click.echo(f"warning: {line}", err=True)
    remedy = "decide, and say so, e.g.: --epsilon 3 --delta 1e-5"
    question = (
        f"the invitation proposes epsilon {budget.epsilon:g} and delta {budget.delta or 0:g} as "
        "the budget of these rows for life, and it never changes; is it yours?"
    )
    try:
        confirmed = click.confirm(question, err=True)
    except click.Abort as stop:
        # The end of the input, and not Ctrl-C: nobody is there.
        if not isinstance(stop.__context__, EOFError):
            raise
        click.echo("", err=True)
        confirmed = False
    if not confirmed:
        rule = "is the lifetime budget of these rows, and only the site decides it"
        raise InvalidInput("epsilon", None, rule, remedy)


def _encoding_source(
    invited: Invitation, data: Path, schema: Path | None
) -> tuple[TableSource, dict[str, str]]:
    """Return the table with its schema, and the schema's file if it is the invitation's."""
    if schema is not None:
        return TableSource(data, Schema.from_toml(schema), schema.resolve()), {}
    encoding = Schema.from_dict(invited.schema or {})
    text = toml_of(encoding, [f"From the invitation of {invited.name}."])
    # It is written into the site's folder, so site.toml names it by that.
    return TableSource(data, encoding, Path("schema.toml")), {"schema.toml": text}


def print_ledger_notes(made: Made) -> None:
    """Print warnings, what an example run takes, and files that may be a ledger of these rows."""
    for line in made.warnings:
        click.echo(f"warning: {line}", err=True)
    if made.share is not None:
        click.echo(made.share)
    for why in made.unknown:
        click.echo(
            f"note: could not check whether this is a ledger of the same rows: {why}",
            err=True,
        )


def print_next_steps(folder: Path, answer: Answer) -> None:
    """Print what the site's people have to do next."""
    name = answer.member.name
    click.echo(
        f"1. send {folder / name}.{ANSWER} to the hub's operator\n"
        "2. telephone the operator, by a number that you know, and read out this code: "
        f"{answer.comparison_code}"
    )
