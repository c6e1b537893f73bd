"""``sottovoce site replace`` and ``accept``: a lost key or ledger, and the consent of others.

An amendment is a file that says which new signing key a site has, and, if its ledger was lost, in
which runs it took part.  Every other member of the plan signs it
(:mod:`sottovoce.deploy.amendment`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import click

from ..data.schema import Schema
from ..deploy.amendment import ENDING, Amendment
from ..deploy.joining import LifetimeBudget, TableSource, make_site_folder
from ..deploy.keys import SigningKey
from ..deploy.known import ENDING as KNOWN
from ..deploy.known import Known
from ..deploy.lock import exclusive_lock
from ..deploy.members import Member
from ..deploy.plan_file import read_plan_file
from ..deploy.settings import SiteSettings
from ..errors import InvalidInput
from ..ledger.durable import DurableLedger
from ..util import files
from .join import check_spoken_code, print_ledger_notes
from .options import FILE, FOLDER, check_parent_folder, decorate_with_options, make_option


@click.command()
@click.argument("settings", type=FILE)
@decorate_with_options(
    [
        make_option(
            "--folder", "The ledger was lost: make the site's new folder here.", type=FOLDER
        ),
        make_option(
            "--plan",
            "With --folder: the plan of a run that the site ever agreed to; once a run.",
            name="plans",
            type=FILE,
            multiple=True,
        ),
        make_option(
            "--epsilon", "With --folder: the lifetime budget that the lost ledger had.", type=float
        ),
        make_option("--delta", "With --folder: its delta; 0 for none.", type=float, default=0.0),
        make_option(
            "--old-key",
            "The old public key, from a .public.json, if the signing key is lost too.",
            metavar="KEY",
        ),
    ]
)
def replace(
    settings: Path,
    folder: Path | None,
    plans: tuple[Path, ...],
    epsilon: float | None,
    delta: float,
    old_key: str | None,
) -> None:
    """Make a new signing key for a site, and an amendment for the other members to sign.

    With --folder the ledger is lost: a new folder is made, with a new ledger of the same budget, in
    which all that the plans of --plan planned counts as spent: at least as much as was spent.  The
    others know in which runs the site took part, and sign only if none is left out.

    Send NAME.amendment from one member to the next, for `site accept`; when all have signed,
    everybody puts it into the site's folder, and takes the new key with the next plan.
    """
    found = SiteSettings.read(settings)
    name = found.name
    old = old_key or SigningKey.read(found.signing).public
    # Refuses a text that is no key.
    Member(name, 1, old)
    runs: dict[str, str] | None = None
    if folder is not None:
        place = folder
        key, runs = _replace_lost_ledger(found, folder, plans, epsilon, delta)
    elif plans or epsilon is not None:
        rule = "a new ledger needs a new folder"
        raise InvalidInput("folder", None, rule, "give --folder, or leave --plan out")
    else:
        place = found.folder
        key = _replace_signing_key(found)
    amendment = Amendment(name, old, key.public, runs).sign(name, key)
    path = place / f"{name}.{ENDING}"
    files.write_atomically("amendment", path, amendment.text())
    click.echo(
        f"1. send {path} to the other members, one after another: each signs it with `site "
        "accept`\n"
        f"2. read this code to each by telephone: {amendment.comparison_code}\n"
        "3. when all have signed, each puts the file beside its site.toml; write the next plan "
        f"with {name}'s new key"
    )


def _replace_signing_key(found: SiteSettings) -> SigningKey:
    """Make a new signing key of a site that has its ledger; the old key file is renamed.

    The site must not run meanwhile.
    """
    with exclusive_lock(found.lock_file):
        # An error if the ledger cannot be opened: then more than the key is lost.
        DurableLedger.open(found.ledger).close()
        key = SigningKey.make()
        if found.signing.exists():
            now = f"{datetime.now(UTC):%Y%m%d%H%M%S}"
            found.signing.replace(found.signing.with_name(f"{found.signing.name}.{now}"))
        key.write(found.signing)
    public = found.result_file("public.json")
    if public.exists():
        files.write_atomically("public", public, _format_public_facts(Member.read(public), key))
    return key


def _replace_lost_ledger(
    found: SiteSettings,
    folder: Path,
    plans: tuple[Path, ...],
    epsilon: float | None,
    delta: float,
) -> tuple[SigningKey, dict[str, str]]:
    """Make a new folder of a site that lost its ledger, in which all planned runs count as spent.

    Returns the new signing key, and the digest of each plan by the name of its run.
    """
    if epsilon is None:
        rule = "is missing: the lifetime budget that the lost ledger had"
        raise InvalidInput("epsilon", None, rule, "give it, and its --delta")
    check_parent_folder("folder", folder)
    agreed = [read_plan_file(path) for path in plans]
    if found.schema is None:
        rule = "is missing: site.toml names no schema file"
        raise InvalidInput("schema", None, rule, "name it there: [data] schema")
    name = found.name
    table = TableSource(found.data, Schema.from_toml(found.schema), found.schema)
    budget = LifetimeBudget(epsilon, delta or None)
    made = make_site_folder(folder, name, found.hub, table, budget, spent=agreed, rules=found.rules)
    key = SigningKey.read(folder / f"{name}.signing")
    runs = {plan.run: plan.digest for plan in agreed}
    known = Known.read(found.result_file(KNOWN))
    if agreed:
        with DurableLedger.open(folder / f"{name}.ledger") as ledger:
            # The keys of the other sites that the lost folder knew are still compared.
            renewed = Known(agreed[-1].run, ledger.file.head(), known.keys, known.shared)
            renewed.write(folder / f"{name}.{KNOWN}")
            click.echo(
                f"made {folder}: {ledger.total():.6g} of {epsilon:g} count as spent, by "
                f"{len(runs)} plans"
            )
    print_ledger_notes(made)
    return key, runs


def _format_public_facts(before: Member, key: SigningKey) -> str:
    """Return the site's public facts with a new key, as JSON."""
    plain = {"name": before.name, "rows": before.rows, "key": key.public}
    return json.dumps(plain, indent=1) + "\n"


@click.command()
@click.argument("settings", type=FILE)
@click.argument("amendment", type=FILE)
@decorate_with_options(
    [make_option("--code", "What the site read out, so that nobody is asked.", metavar="CODE")]
)
def accept(settings: Path, amendment: Path, code: str | None) -> None:
    """Sign the AMENDMENT of another member, which lost its key or its ledger.

    Refused if the other site's old key differs from the one that this site knows from its runs, or
    if a run in which both took part is left out.  It asks for the code that the other site's people
    read out by telephone, and adds a signature to the file.
    """
    found = SiteSettings.read(settings)
    one = Amendment.read(amendment)
    if one.name == found.name:
        raise InvalidInput("amendment", one.name, "is of this site itself", "the others sign it")
    one.check_shared(Known.read(found.result_file(KNOWN)))
    if one.runs is None:
        what = "lost its signing key"
    else:
        what = f"lost its ledger; all of {_names_of_runs(one.runs)} counts as spent"
    click.echo(f"{one.name} {what}")
    check_spoken_code(
        f"{one.name}: the code that {one.name} reads to you",
        one.comparison_code,
        code,
        "of this amendment",
    )
    signed = one.sign(found.name, SigningKey.read(found.signing))
    files.write_atomically("amendment", amendment, signed.text())
    click.echo(f"signed {amendment}; signatures so far: {', '.join(signed.signatures)}")


def _names_of_runs(runs: Iterable[str]) -> str:
    """Join names of runs for a sentence; "no run" if there are none."""
    return ", ".join(runs) or "no run"
