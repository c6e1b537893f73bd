"""``sottovoce site decline``: tell the hub that this site takes no part in a plan."""

from __future__ import annotations

from pathlib import Path

import click

from ..deploy.lock import exclusive_lock
from ..deploy.messages import DECLINES
from ..deploy.relay import RelayTransport
from ..deploy.settings import SiteSettings
from ..errors import BudgetExceeded, InvalidInput
from ..ledger.durable import DurableLedger
from .agree import candidate
from .options import FILE, decorate_with_options, json_flag_option
from .screen import print_json


@click.command()
@click.argument("settings", type=FILE)
@decorate_with_options([json_flag_option()])
def decline(settings: Path, as_json: bool) -> None:
    """Tell the hub that this site takes no part in the plan of SETTINGS, which has not begun.

    So a hub with a queue of plans need not wait.  The hub learns whether the ledger cannot pay for
    the plan, or the site does not agree; nothing is reserved or spent.
    """
    found = SiteSettings.read(settings)
    # A plan that the hub proposes waits beside the site's plan until people agree.
    found = candidate(found) or found
    found.check_connection()
    plan = found.agreed_plan
    refused, poor = DECLINES
    why = refused
    with exclusive_lock(found.lock_file):
        with DurableLedger.open(found.ledger) as ledger:
            if plan.run in ledger.runs:
                rule = "is in the ledger: this site takes part in it"
                raise InvalidInput("run", plan.run, rule, "end its part with `sottovoce site end`")
            try:
                found.session(ledger).check_before_run()
            except BudgetExceeded:
                why = poor
        with RelayTransport(
            found.hub,
            found.credentials,
            plan,
            found.patience,
            lambda line: click.echo(line, err=True),
        ) as transport:
            transport.decline(plan.digest, why)
    if as_json:
        print_json({"site": found.name, "run": plan.run, "plan": plan.digest, "why": why})
    else:
        click.echo(f"{found.name}: declined run {plan.run}: it {why}; nothing was spent")
