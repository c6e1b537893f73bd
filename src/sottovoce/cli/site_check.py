"""What a site checks and shows before it takes part in a run, for ``site check`` and ``agree``."""

from __future__ import annotations

from typing import Any

import click

from ..data.file_formats import header_notes
from ..deploy import certificates
from ..deploy.invitation import plan_comparison_code
from ..deploy.plan import schema_from_plain
from ..deploy.report import describe_plan, describe_sums
from ..deploy.requests import request_and_reply_sizes
from ..deploy.settings import SiteSettings, people_who_agreed
from ..deploy.waits import Waits
from ..errors import escape_unprintable
from ..ledger.durable import DurableLedger
from ..privacy.statement import ceil_text
from .render import make_privacy_panel
from .screen import Console, escape_markup, print_json


def check_site_settings(
    found: SiteSettings, new_keys: bool = False, as_json: bool = False, asks: bool = True
) -> None:
    """Check everything that a site's settings name, and print it; nothing is sent.

    Parameters
    ----------
    found : SiteSettings
        The site's settings, perhaps with a proposed plan in the place of its plan.
    new_keys : bool
        Accept sites whose keys are others than before.
    as_json : bool
        Print JSON.
    asks : bool
        Say how to agree to the plan.  False if somebody is about to be asked whether to take part.
    """
    report, accountant = _check_and_report(found, new_keys)
    if as_json:
        print_json(report)
        _check_agreement(found)
        return
    console = Console()
    _print_plan_and_price(found, report, accountant, console)
    _print_columns_and_audience(found, report, console)
    _print_plan_terms(found, report, asks, console)
    if asks:
        _check_agreement(found)
    if asks and not report["agreed"]:
        console.print(
            "once all sites have the same plan, agree to it with `sottovoce site agree`, or add "
            r"this line above \[data] in site.toml:"
        )
        console.print(escape_markup(found.agreed_line), soft_wrap=True, highlight=False)
    console.print(
        f"certificate until {report['certificate_ends']}; everything fits; nothing was sent",
        highlight=False,
    )


def _check_agreement(found: SiteSettings) -> None:
    """Raise :class:`InvalidInput` unless the people of the site agreed to the plan."""
    with DurableLedger.open(found.ledger) as ledger:
        found.check_plan_is_agreed(ledger)


def _check_and_report(found: SiteSettings, new_keys: bool) -> tuple[dict[str, Any], str]:
    """Check all that the settings name, and describe it as plain data.

    The second value is the ledger's accountant, which the printed text needs and the report lacks.
    """
    erased = erase_old_keys(found)
    with found.open_ledger() as ledger:
        remembered = found.check_records(ledger, new_keys=new_keys)
        session = found.session(ledger)
        session.check_before_run()
        # A folder of mapped rows has no header line.
        if not found.data.is_dir():
            for note in header_notes(found.data):
                click.echo(f"Note: {escape_unprintable(found.data.name)}: {note}", err=True)
        plan = session.plan
        shown = ledger.show()
        known = plan.run in ledger.runs
        people = people_who_agreed(ledger, plan.digest)
        # A run that the ledger has begun is in what is spent or held already.
        takes_now = 0.0
        if not known:
            takes_now = float(
                ledger.account.epsilon_added_by_run(plan.planned_privacy.events(found.name)).max()
            )
    found.check_connection()
    authority = certificates.public_key_fingerprint(found.credentials.read()[0])
    table = plan.exchange_table
    planned = plan.planned_privacy.statement
    asks = None
    if plan.asks is not None:
        asks = plan.asks.to_dict()
    report: dict[str, Any] = {
        "site": found.name,
        "run": plan.run,
        "plan": plan.digest,
        "hub": found.hub,
        "rows": int(session.rows.n[0, 0]),
        "features": table.last_model.width,
        "method": plan.config.method,
        "rounds": table.attempts,
        "asks": asks,
        "neighbours": list(table.neighbour_names(found.name)),
        "sites": list(plan.names),
        "demonstration": plan.demonstration,
        "spent": shown["spent"][0],
        "budget": shown["epsilon"][0],
        "certificate_ends": certificates.last_usable_time(
            found.credentials.authority, found.credentials.certificate
        ).isoformat(),
        "authority": authority,
        "known": known,
        "takes": takes_now,
        "privacy": planned.to_dict(),
        "participants": plan.facts.participants,
        "colluders": plan.facts.colluders,
        "sent": 0,
        "message_bytes": request_and_reply_sizes(plan)[0],
        "inbox_bytes": request_and_reply_sizes(plan)[1],
        "agreed": found.digest == plan.digest or bool(people),
        "consents": people,
        "new_sites": remembered.unknown_sites(plan, found.name),
        "erased": sorted(erased),
        "waits": vars(plan.waits),
    }
    return report, shown["accountant"]


def _print_plan_and_price(
    found: SiteSettings, report: dict[str, Any], accountant: str, console: Console
) -> None:
    """Print what the run asks of a site, what it promises, and what it takes of the ledger."""
    plan = found.agreed_plan
    planned = plan.planned_privacy.statement
    if plan.uses_secure_sums:
        partners = f"sums {describe_sums(plan)}"
    else:
        partners = f"neighbours {escape_markup(', '.join(report['neighbours']))}"
    console.print(
        f"[bold]{escape_markup(found.name)}[/] in run [bold]{escape_markup(plan.run)}[/]: "
        f"{report['rows']:,} "
        f"{planned.counted}, {report['features']} features, {describe_plan(plan)}, {partners}"
    )
    console.print(make_privacy_panel(planned.words, "Privacy of the whole run"))
    spent, budget = (
        _format_ledger_epsilon(report["spent"]),
        _format_ledger_epsilon(report["budget"]),
    )
    price = "this run is included"
    if not report["known"]:
        price = f"this run will take {ceil_text(report['takes'])} of it"
    # Only pure epsilons add up; the other accountants compose all runs of a ledger together.
    if accountant != "pure":
        price += " (not the plan's epsilon: a ledger counts all its runs together)"
    console.print(f"ledger: {spent} spent of {budget}; {price}")


def _print_columns_and_audience(
    found: SiteSettings, report: dict[str, Any], console: Console
) -> None:
    """Print which columns a run reads, and who sees what of this site."""
    plan = found.agreed_plan
    schema = schema_from_plain(plan.schema)
    if schema is not None:
        columns = ", ".join(block.name for block in schema.blocks)
        if schema.label is not None:
            columns += f"; label {schema.label.column}"
        console.print(f"columns: {escape_markup(columns)}", highlight=False)
    if plan.uses_secure_sums:
        seen = f"all sites and the hub see sums {describe_sums(plan)}, and no share by itself"
    else:
        heard = escape_markup(", ".join(report["neighbours"]))
        seen = f"the hub and {heard} see this site's messages"
        if plan.centre is not None:
            seen += ", and all sites the noisy mean of its columns"
    console.print(
        f"who sees what: {seen}; all see how many rows it has, and when its messages come; nobody "
        "sees a row",
        highlight=False,
    )


def _format_ledger_epsilon(value: float | str) -> str:
    """Format an epsilon of :meth:`DurableLedger.show`, which gives infinity as a text."""
    if isinstance(value, str):
        return value
    return ceil_text(value)


def _print_plan_terms(
    found: SiteSettings, report: dict[str, Any], asks: bool, console: Console
) -> None:
    """Print held-out rows, sizes of messages, waits, and what to compare with other sites."""
    plan = found.agreed_plan
    planned = plan.planned_privacy.statement
    if plan.asks is not None and plan.asks.evaluation is not None:
        console.print(
            f"{plan.asks.held(report['rows']):,} {planned.counted} are held out by their "
            "positions: the order "
            "of the table must not depend on what is in it",
            highlight=False,
        )
    console.print(
        f"messages of up to {report['message_bytes']:,} bytes, inboxes of up to "
        f"{report['inbox_bytes']:,} a round: within the limits of all transports and stores",
        highlight=False,
    )
    console.print(_describe_waits(plan.waits), highlight=False)
    said = f"plan {plan.digest}"
    # Who is about to be asked for the code must hear it from somebody else, so it is not shown.
    if asks:
        said = (
            f"compare with the other sites and the hub:\nplan {plan.digest}\n"
            f"authority {report['authority']}\n"
            f"the plan's code, for the telephone: {plan_comparison_code(plan.digest)}"
        )
    console.print(said, soft_wrap=True, highlight=False)
    if report["new_sites"]:
        console.print(
            "sites that were in no earlier run of this site: "
            f"{escape_markup(', '.join(report['new_sites']))}",
            highlight=False,
        )


def _describe_waits(waits: Waits) -> str:
    """Describe how long the rounds of a plan wait."""
    if waits.waits_for_ever:
        return "a round waits for all sites, however long it takes"
    return (
        f"a round waits {waits.deadline:g} s for its last site, and {waits.patience:g} s where it "
        "cannot go on without it"
    )


def erase_old_keys(found: SiteSettings) -> dict[str, str]:
    """Erase keys of runs of sums that cannot go on, and print a line about each."""
    return found.erase_old_keys(lambda line: click.echo(f"{found.name}: {line}", err=True))
