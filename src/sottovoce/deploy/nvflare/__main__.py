"""Command line of NVFlare as a transport: ``python -m sottovoce.deploy.nvflare``.

It makes startup kits from a plan, checks one, and drives a run to its end.
"""

from __future__ import annotations

import logging
from pathlib import Path

import click

from ...errors import EXIT_CODES, SottovoceError, exit_code_for_error
from ..plan_file import read_plan_file
from . import provision as kits
from .supervisor import Supervisor

_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group(epilog=EXIT_CODES)
def main() -> None:
    """Carry a run over NVFlare."""


@main.command()
@click.argument("plan", type=_FILE)
@click.option("--server", required=True, help="Host name under which the sites reach the hub.")
@click.option(
    "--port",
    type=int,
    default=8002,
    show_default=True,
    help="The hub's port, the only one that is open.",
)
@click.option(
    "--store", type=_FOLDER, required=True, help="Absolute folder at the hub for NVFlare's jobs."
)
@click.option(
    "--workspace", type=_FOLDER, required=True, help="Folder for the kits and the authority's key."
)
@click.option("--project", type=_FILE, help="Only write the file for `nvflare provision -p`.")
def provision(
    plan: Path, server: str, port: int, store: Path, workspace: Path, project: Path | None
) -> None:
    """Make a startup kit for the hub, for every site of PLAN and for the supervisor."""
    description = kits.describe_project(read_plan_file(plan), server, port, store=store)
    if project is not None:
        kits.write_project(project, description)
        click.echo(f"wrote {project}; go on with: nvflare provision -p {project} -w {workspace}")
        return
    click.echo(
        f"kits are in {kits.make_startup_kits(description, workspace)}; keep "
        f"{workspace}/*/state private"
    )


@main.command()
@click.argument("kit", type=_FOLDER)
def check(kit: Path) -> None:
    """Compare the policies of a site's startup KIT with those that are shipped."""
    kits.check_startup_kit(kit)
    click.echo(f"{kit}: all policies are as shipped")


@main.command()
@click.argument("kit", type=_FOLDER)
@click.argument("hub", type=_FOLDER)
@click.option(
    "--task-seconds",
    type=float,
    default=30.0,
    show_default=True,
    help="Seconds of silence after which a site counts as lost.",
)
def supervise(kit: Path, hub: Path, task_seconds: float) -> None:
    """Submit the run of HUB's plan with the supervisor's KIT, and again after every crash, until
    it is complete.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    supervisor = Supervisor(kit, hub, task_seconds=task_seconds)
    supervisor.run()
    click.echo(f"run {supervisor.plan.run} is complete; jobs submitted: {len(supervisor.jobs)}")


def start() -> None:
    """Run the command line; what cannot be done is one line on standard error, and an exit code."""
    try:
        main(prog_name="python -m sottovoce.deploy.nvflare")
    except SottovoceError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(exit_code_for_error(error)) from None


if __name__ == "__main__":
    start()
