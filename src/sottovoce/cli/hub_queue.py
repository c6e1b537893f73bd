"""``sottovoce hub queue``: plans that one hub serves one after another.

``sottovoce hub run FOLDER --queue`` serves them (:mod:`sottovoce.cli.queue_serving`).
"""

from __future__ import annotations

from pathlib import Path

import click

from ..deploy import certificates
from ..deploy.hublog import HubLog
from ..deploy.plan_file import read_plan_file
from ..deploy.plan_queue import Entry, PlanQueue
from ..errors import InvalidInput
from .options import FILE, FOLDER, decorate_with_options, json_flag_option
from .screen import Console, escape_markup, make_listing, print_json


@click.group()
def queue() -> None:
    """Plans that `hub run --queue` serves one after another.

    \b
      sottovoce hub queue add hub trial-1.json trial-2.json
      sottovoce hub queue list hub
      sottovoce hub queue drop hub trial-2
    """


@queue.command()
@click.argument("folder", type=FOLDER)
@click.argument("plans", metavar="PLAN...", type=FILE, nargs=-1, required=True)
def add(folder: Path, plans: tuple[Path, ...]) -> None:
    """Add plans, written by `sottovoce plan --write`, at the end of the queue of FOLDER.

    The hub may run meanwhile.
    """
    # Of a folder that is no hub's, nobody would serve them.
    certificates.certificate_expiry(folder / "ca.crt")
    found = PlanQueue(folder)
    for path in plans:
        entry = found.add(path)
        click.echo(
            f"plan {entry.number}: run {entry.run}, {len(found.waiting()) - 1} before it\n"
            f"plan {entry.plan.digest}"
        )


@queue.command(name="list")
@click.argument("folder", type=FOLDER)
@decorate_with_options([json_flag_option("Print a JSON list and nothing else.")])
def list_plans(folder: Path, as_json: bool) -> None:
    """List all plans of FOLDER's queue: which wait, are done, or were set aside and why."""
    found = PlanQueue(folder).to_list()
    if as_json:
        print_json(found)
        return
    table = make_listing(">number", "<run", "<state", "<since", "<why")
    for one in found:
        table.add_row(
            str(one["number"]),
            escape_markup(one["run"]),
            one["state"],
            one["at"] or "",
            escape_markup(one["why"]),
        )
    Console().print(table)


@queue.command()
@click.argument("folder", type=FOLDER)
@click.argument("run_name", metavar="RUN")
def drop(folder: Path, run_name: str) -> None:
    """Set the plan of RUN aside, which waits in FOLDER's queue and was not offered to sites yet.

    One that was offered is ended by `sottovoce hub end`.
    """

    def check_not_offered(entry: Entry) -> None:
        """Refuse a plan that the hub serves, or of which its log holds messages."""
        begun = False
        if (folder / "hub.log").exists():
            with HubLog(folder / "hub.log", read_only=True) as log:
                begun = entry.run in log.runs()
        offered = folder / "plan.json"
        if begun or (offered.exists() and read_plan_file(offered).digest == entry.plan.digest):
            rule = "was offered to the sites"
            remedy = f"end it, for every site: `sottovoce hub end {folder} {entry.run}`"
            raise InvalidInput("run", run_name, rule, remedy)

    entry = PlanQueue(folder).drop(run_name, check_not_offered)
    click.echo(f"plan {entry.number}, run {entry.run}: set aside")
