"""``sottovoce hub``: what the sites connect to.  It sees messages, never rows."""

from __future__ import annotations

import json
import signal
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.live import Live
from rich.table import Table

from ..deploy.certificates import Authority, check_host, fingerprint
from ..deploy.hub import Hub
from ..deploy.hublog import HubLog
from ..deploy.keys import need_cryptography
from ..deploy.lock import only_one
from ..deploy.plan import Plan
from ..deploy.relay import Credentials, serve
from ..deploy.report import last_words, write_hub
from ..errors import InvalidInput
from .files import check_folder
from .options import as_json, say, takes
from .screen import Console, escape

_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
_EVERY = 0.2


@click.group()
def hub() -> None:
    """Carry the messages of a run between sites.

    \b
      sottovoce hub init hub --host hub.example.org
      sottovoce hub admit hub north.csr east.csr south.csr
      sottovoce hub run hub --listen 0.0.0.0:8443     with plan.json in it
      sottovoce hub status hub
    """


@hub.command()
@click.argument("folder", type=_FOLDER)
@takes([say("--host", "Name or address by which sites reach the hub; repeat for more.", name="hosts", multiple=True,
            required=True)])  # fmt: skip
def init(folder: Path, hosts: tuple[str, ...]) -> None:
    """Make a hub's FOLDER: an authority, a certificate."""
    need_cryptography()
    check_folder("folder", folder)
    if (folder / "ca.key").exists():
        raise InvalidInput("folder", str(folder), "holds an authority already", "use another folder")
    for host in hosts:
        check_host(host)
    folder.mkdir(mode=0o700, exist_ok=True)
    Authority.make(folder).serve(folder, hosts)
    click.echo(
        f"made {folder}; give ca.crt to every site, and keep ca.key to yourself\n"
        f"authority {fingerprint((folder / 'ca.crt').read_bytes())}: `site check` shows the same"
    )


@hub.command()
@click.argument("folder", type=_FOLDER)
@click.argument("requests", type=_FILE, nargs=-1, required=True)
def admit(folder: Path, requests: tuple[Path, ...]) -> None:
    """Sign the certificate requests of sites.

    Be sure of who sent each, and of the name that it asks for: have the sender read out the key that `site init`
    showed, and compare.
    """
    authority = Authority.read(folder)
    for path in requests:
        try:
            request = path.read_bytes()
            name, certificate = authority.admit(request)
        except OSError:
            raise InvalidInput("request", str(path), "cannot be read", "correct the path") from None
        place = folder / f"{name}.crt"
        again = "; signed before: that certificate stays good until it ends" if place.exists() else ""
        place.write_bytes(certificate)
        click.echo(f"{path}: {name}, signed; give the site {place}{again}\n   its key: {fingerprint(request)}")


@hub.command()
@click.argument("folder", type=_FOLDER)
@takes([
    say("--listen", "HOST:PORT to listen on.", default="0.0.0.0:8443"),
    say("--once", "End when every site has left the run.", is_flag=True),
    as_json("Print a JSON object at the start, for every refusal, and when every site has left."),
])  # fmt: skip
def run(folder: Path, listen: str, once: bool, as_json: bool) -> None:
    """Serve the plan.json of FOLDER until stopped.

    After a crash, the same command goes on.  When the last model of every site is there, hub.html, hub.npz and hub.json
    are written to FOLDER; the hub goes on answering until Ctrl-C, or SIGTERM, unless --once is given.
    """
    plan = Plan.read(folder / "plan.json")
    stop, console = threading.Event(), Console()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    def tell(text: str, **more: Any) -> None:
        if as_json:
            click.echo(json.dumps(more))
        else:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    def refused(site: str, why: str) -> None:
        tell(f"{site}: refused: {why}", site=site, refused=why)

    with only_one(folder / "hub.lock"), HubLog(folder / "hub.log") as log:
        carried, written = Hub(plan, log), False
        carried.models()  # refuses the log of another plan
        credentials = Credentials(*(folder / f for f in ("ca.crt", "hub.crt", "hub.key")))
        server, port = serve(carried, credentials, listen, refused)
        tell(f"run {plan.run}: listening on port {port}; Ctrl-C ends it\nplan {plan.digest}",
             run=plan.run, plan=plan.digest, port=port)  # fmt: skip
        live: Any = nullcontext()
        if console.is_terminal and not as_json:
            live = Live(
                get_renderable=lambda: _table(carried.sites(), plan.config.rounds), console=console,
                refresh_per_second=2,
            )  # fmt: skip
        with live:
            while not stop.wait(_EVERY):
                gone = log.gone(plan.run)
                if not written and len(gone) == len(plan.names):
                    written, there = True, write_hub(folder, carried)
                    tell("every site has left" + (f": hub.html, hub.npz and hub.json are in {folder}" if there else ""),
                         left=gone, finished=there)  # fmt: skip
                if once and len(gone) == len(plan.names):
                    break
        if stop.is_set() and not written and not as_json:
            tell("stopped; the same command goes on")
        log.close()
        server.stop(1.0).wait()


@hub.command()
@click.argument("folder", type=_FOLDER)
@takes([as_json()])
def status(folder: Path, as_json: bool) -> None:
    """How far every site of the run is, also while the hub runs."""
    plan = Plan.read(folder / "plan.json")
    if not (folder / "hub.log").exists():
        raise InvalidInput("folder", str(folder), "has no log yet", "start the hub")
    with HubLog(folder / "hub.log") as log:
        shown = Hub(plan, log).status()
    if as_json:
        click.echo(json.dumps(shown))
        return
    console = Console()
    console.print(
        f"run [bold]{escape(shown['run'])}[/], {shown['rounds']} rounds\nplan {shown['plan']}", soft_wrap=True,
        highlight=False,
    )  # fmt: skip
    console.print(_table(shown["sites"], shown["rounds"]))


def _table(sites: list[dict[str, Any]], rounds: int) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("site", "rows", "last message", "left"):
        table.add_column(name, justify="left" if name in ("site", "left") else "right")
    for one in sites:
        table.add_row(escape(one["site"]), f"{one['rows']:,}", last_words(one, rounds), escape(one["left"] or "no"))
    return table
