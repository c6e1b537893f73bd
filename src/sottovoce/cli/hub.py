"""``sottovoce hub``: what the sites connect to.  It sees messages, never rows.

A hub's folder holds its certificate authority (``ca.crt``, ``ca.key``), its own certificate, those
of the sites that were admitted, the agreed ``plan.json``, and ``hub.log``, in which every message
of its runs is.  :mod:`sottovoce.cli.serving` runs the server; invitations are made in
:mod:`sottovoce.cli.join`.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import click

from ..deploy import certificates
from ..deploy.certificates import (
    Authority,
    check_host,
    hosts_in_certificate,
    public_key_fingerprint,
)
from ..deploy.crypto import need_cryptography
from ..deploy.files import KEY, all_files_or_none, write_new_file
from ..deploy.hub import Hub
from ..deploy.hub_settings import HubSettings
from ..deploy.hublog import HubLog
from ..deploy.invitation import Answer
from ..deploy.lock import exclusive_lock
from ..deploy.members import ANSWER
from ..deploy.monitor import PAGE
from ..deploy.names import check_site_name
from ..deploy.plan_file import read_plan_file
from ..deploy.plan_queue import PlanQueue
from ..deploy.relay import Credentials
from ..deploy.report import run_in_the_way, run_of_results
from ..deploy.waits import DEFAULT
from ..deploy.watch import Watch, describe_long_waits
from ..errors import EXIT_CODES, InvalidInput
from ..util.files import read_bounded_file
from .hub_queue import queue as queue_of_plans
from .join import invite, parse_site_codes, read_checked_answer
from .options import (
    FILE,
    FOLDER,
    check_parent_folder,
    decorate_with_options,
    json_flag_option,
    make_option,
)
from .outlets import Outlets
from .queue_serving import BEGIN, Choices, QueueServing
from .screen import Console, escape_markup, print_json
from .serving import LINGER, Serving, make_progress_table
from .teller import Teller

_STATES = {
    True: "the hub runs",
    False: "the hub is not running",
    None: "this transport keeps no times",
}
"""Texts of `running` in a hub's status; None where the log has no times to tell it by."""
_ALARMED = 3
"""Exit code of `hub status` with alarms: a person must look into it."""
_CODE = make_option(
    "--code",
    "NAME=CODE, what a site read out, so that nobody is asked; once a site.",
    name="codes",
    multiple=True,
    metavar="NAME=CODE",
)


@click.group(epilog=EXIT_CODES)
def hub() -> None:
    """Carry the messages of a run between sites.

    \b
      sottovoce hub invite north east south --host hub.example.org
      sottovoce hub admit hub north.joined east.joined south.joined
      sottovoce hub run hub --listen 0.0.0.0:8443     with plan.json in it
      sottovoce hub status hub
      sottovoce hub expel hub north                   go on without a site
      sottovoce hub end hub trial-1                   for good, for every site
    """


@hub.command()
@click.argument("folder", type=FOLDER)
@decorate_with_options(
    [
        make_option(
            "--host",
            "Name or address by which sites reach the hub; repeat for more.",
            name="hosts",
            multiple=True,
            required=True,
        )
    ]
)
def init(folder: Path, hosts: tuple[str, ...]) -> None:
    """Make a hub's FOLDER: an authority, a certificate."""
    need_cryptography()
    check_parent_folder("folder", folder)
    if (folder / "ca.key").exists():
        raise InvalidInput(
            "folder", str(folder), "already holds an authority", "use another folder"
        )
    for host in hosts:
        check_host(host)
    with all_files_or_none(folder) as made:
        authority = Authority.make(folder)
        made(folder / "ca.key")
        made(folder / "ca.crt")
        authority.write_hub_certificate(folder, hosts)
    click.echo(
        f"made {folder}; give ca.crt to every site, and keep ca.key to yourself\n"
        f"authority {public_key_fingerprint((folder / 'ca.crt').read_bytes())}: `site check` shows "
        "the same"
    )


@hub.command()
@click.argument("folder", type=FOLDER)
@click.argument("requests", type=FILE, nargs=-1, required=True)
@decorate_with_options(
    [
        make_option(
            "--renew",
            "Sign new keys of sites that have a certificate: into FOLDER/renewal.",
            is_flag=True,
        ),
        _CODE,
    ]
)
def admit(folder: Path, requests: tuple[Path, ...], renew: bool, codes: tuple[str, ...]) -> None:
    """Sign the keys of sites: NAME.crt.

    REQUESTS are answers to invitations, NAME.joined: type the code that each site reads to you by
    telephone.  Or they are certificate requests, NAME.csr, of `site init`: be sure of who sent
    each, have the sender read out the key that `site init` showed, and compare.  A name that was
    signed before is refused: with --renew its new certificate goes to the folder renewal.  All are
    signed, or none.
    """
    _admit_all_or_none(folder, requests, renew, parse_site_codes(codes))


def _admit_all_or_none(
    folder: Path, requests: tuple[Path, ...], renew: bool, codes: dict[str, str]
) -> None:
    """Check all requests, sign them, and write the certificates: all of them, or none.

    Names are compared without case, as some file systems do.

    Parameters
    ----------
    folder : Path
        The hub's.
    requests : tuple of Path
        Answers to invitations, or plain certificate requests.
    renew : bool
        Sign new keys of sites that have a certificate, into the folder ``renewal``.
    codes : dict of str to str
        Comparison codes that sites read out, by their names; for others a person is asked.
    """
    authority = Authority.read(folder)
    place = folder
    if renew:
        place = folder / "renewal"
    taken: set[str] = set()
    if place.is_dir():
        taken = {path.name.lower() for path in place.iterdir()}
    signed: list[_Signed] = []
    for path in requests:
        one = _check_and_sign_request(authority, folder, path, codes)
        file = f"{one.name}.crt".lower()
        if file in taken:
            rule = (
                f"{place / one.name}.crt exists: this name was signed before, and that certificate "
                "stays good"
            )
            remedy = "for a new key of the same site use --renew"
            if renew:
                remedy = "remove it when the site has it"
            raise InvalidInput("request", str(path), rule, remedy)
        taken.add(file)
        signed.append(one)
    # Certificates are written only once every request is checked, and all or none.
    with all_files_or_none(place) as made:
        for one in signed:
            write_new_file(place / f"{one.name}.crt", one.certificate)
            made(place / f"{one.name}.crt")
    for one in signed:
        # Without a key to compare: an answer to an invitation, which gives the site access.
        if one.key is None:
            what = "admitted; the site gets its certificate from this hub"
        else:
            what = f"signed; give the site {place / one.name}.crt\n   its key: {one.key}"
        click.echo(f"{one.path}: {one.name}, {what}")


class _Signed(NamedTuple):
    """A request with its certificate, which is not written yet.

    The key's fingerprint is for a comparison by telephone; an answer to an invitation, which was
    checked by its code, has none.
    """

    path: Path
    name: str
    certificate: bytes
    key: str | None


def _check_and_sign_request(
    authority: Authority, folder: Path, path: Path, codes: dict[str, str]
) -> _Signed:
    """Check an answer to an invitation, or read a plain request, and sign its key."""
    if path.suffix != f".{ANSWER}":
        request = read_bounded_file("request", path, KEY)
        name, certificate = authority.sign_site_request(request)
        return _Signed(path, name, certificate, public_key_fingerprint(request))
    answer = read_checked_answer(folder, path, codes)
    name, certificate = authority.sign_site_request(answer.request.encode())
    # The request carries a name of its own, which becomes that of the certificate.
    if name != answer.member.name:
        rule = "is of one site, but its certificate request is for a site of another name"
        raise InvalidInput("answer", path, rule, "have the site join again")
    return _Signed(path, name, certificate, None)


@hub.command()
@click.argument("folder", type=FOLDER)
@decorate_with_options(
    [
        make_option(
            "--authority",
            "A new authority, which takes the place of the old one step by step.",
            is_flag=True,
        ),
        make_option(
            "--forget",
            "Last step: certificates of an earlier authority are no longer taken.",
            is_flag=True,
        ),
        make_option(
            "--host",
            "Name or address by which sites reach the hub; repeat for more.  [default: as before]",
            name="hosts",
            multiple=True,
        ),
    ]
)
def renew(folder: Path, authority: bool, forget: bool, hosts: tuple[str, ...]) -> None:
    """Make a new key and certificate of the hub in FOLDER, or with --authority a new authority.

    A hub that runs takes them by itself.  While one authority follows another, ca.crt holds both:

    \b
      1. sottovoce hub renew hub --authority
      2. give the new hub/ca.crt to each site, in place of its own; each
         makes a new key (site renew), which hub admit --renew signs
      3. sottovoce hub renew hub                when every site has ca.crt
      4. sottovoce hub renew hub --forget       when each has its new key
    """
    # The earlier authority is forgotten only when all sites have keys of the new one.
    if forget and (authority or hosts):
        rule = "cannot be combined with --authority or --host"
        raise InvalidInput("forget", True, rule, "see `sottovoce hub renew --help`")
    for host in hosts:
        check_host(host)
    if authority:
        _begin_new_authority(folder)
        return
    own = Authority.read(folder)
    if forget:
        _forget_old_authority(folder, own)
        return
    own.write_hub_certificate(folder, hosts or hosts_in_certificate(folder / "hub.crt"), again=True)
    end = certificates.last_usable_time(folder / "ca.crt", folder / "hub.crt")
    click.echo(
        f"made {folder / 'hub.crt'}, good until {end:%Y-%m-%d}; a hub that runs takes it by itself"
    )


def _begin_new_authority(folder: Path) -> None:
    """Make an authority that follows the hub's own, and print the steps that are left."""
    Authority.create_successor(folder)
    click.echo(
        f"{folder / 'ca.crt'} holds a new authority and the old one, and signs by the new one from "
        "now on\n"
        f"authority {public_key_fingerprint((folder / 'ca.crt').read_bytes())}: `site check` shows "
        "the same\n"
        "1. give ca.crt to every site, which puts it in place of its own, and starts `site renew`\n"
        f"2. when all have it: sottovoce hub renew {folder}"
    )


def _forget_old_authority(folder: Path, own: Authority) -> None:
    """Take only the new authority's certificates from now on.

    `own` is the authority of the hub's folder, which signs by the newest of its certificates.
    """
    certificates.check_tls_files(
        "hub", *Credentials(*(folder / name for name in ("ca.crt", "hub.crt", "hub.key"))).read()
    )
    end = certificates.last_usable_time(folder / "ca.crt", folder / "hub.crt")
    # Without the earlier authority, ca.crt would no longer verify a certificate that it signed.
    if not own.signed((folder / "hub.crt").read_bytes()):
        rule = "the hub's certificate is still from the earlier authority"
        raise InvalidInput("forget", True, rule, f"first: sottovoce hub renew {folder}")
    own.remove_former_authorities(folder)
    click.echo(
        f"{folder / 'ca.crt'} holds one authority; the hub's certificate is good until "
        f"{end:%Y-%m-%d}"
    )


@hub.command()
@click.argument("folder", type=FOLDER)
@click.argument("name")
def revoke(folder: Path, name: str) -> None:
    """Refuse every certificate and invitation of site NAME from now on, also in a hub that runs.

    For a key that was stolen, a site that is to be invited anew, or one that is no longer a member.
    The name is free then.  The same site comes back by `hub invite`: it joins in the folder that it
    has (`site join NAME.invite --folder FOLDER`), never in a new one, which would be a second
    ledger of its rows.  A plan still has the site's signing key: if that was stolen too, end the
    run, and see `site replace`.
    """
    check_site_name("name", name)
    # Of a folder that is no hub's, nothing would be revoked anywhere.
    certificates.certificate_expiry(folder / "ca.crt")
    gone = certificates.revoke_certificates(folder, name)
    revoked = ", ".join(gone)
    if not gone:
        revoked = f"{name}, of which {folder} holds no certificate or invitation: check the name"
    # Certificates know seconds: one that is signed after this command has ended is good.
    time.sleep(1.0 - time.time() % 1.0)
    click.echo(
        f"revoked {revoked}; no certificate of {name} made until now is taken any more\n"
        f"for the same site again: sottovoce hub invite {name} --folder {folder}; it joins in the "
        "folder that it has, never in a new one"
    )


@hub.command()
@click.argument("folder", type=FOLDER)
@decorate_with_options(
    [
        make_option("--listen", "HOST:PORT to listen on.", default="0.0.0.0:8443"),
        make_option(
            "--once",
            "End when every site has left the run; with --queue, when no plan waits.",
            is_flag=True,
        ),
        make_option(
            "--queue",
            "Serve the plans of `hub queue`, one after another, in place of plan.json.",
            is_flag=True,
        ),
        make_option(
            "--begin",
            "With --queue: seconds in which all sites must join a plan, or it is set aside.",
            type=float,
            default=BEGIN,
        ),
        make_option(
            "--patience",
            "Seconds that a round waits for the last site after the first.  [default: the plan's "
            "deadline]",
            type=float,
        ),
        make_option(
            "--greeting",
            "The same for the greeting.  [default: until all sites are there]",
            type=float,
        ),
        make_option(
            "--linger",
            "With --once: seconds more for sites without which the run went on, to be told.",
            type=float,
            default=LINGER,
        ),
        make_option(
            "--page",
            "HOST:PORT of the page that shows the run while it goes on; or none.  [default: "
            f"{PAGE}, or a free port]",
        ),
        make_option(
            "--metrics",
            "HOST:PORT of /healthz and /metrics (Prometheus), best of this machine alone.  "
            "[default: metrics in FOLDER/hub.toml, or none]",
        ),
        make_option(
            "--on-alarm",
            "Program and arguments, run for each alarm, which it gets as JSON; no shell.",
            metavar="COMMAND",
        ),
        make_option(
            "--log-json",
            "File of JSON lines: who, when, what and which plan.",
            type=FILE,
        ),
        make_option(
            "--admit",
            "First admit the site with this answer to its invitation, as `hub admit`; once a site.",
            name="answers",
            multiple=True,
            type=FILE,
        ),
        _CODE,
        json_flag_option(
            "Print a JSON object at the start, for every refusal, and when every site has left."
        ),
    ]
)
def run(
    folder: Path,
    listen: str,
    once: bool,
    queue: bool,
    begin: float,
    patience: float | None,
    greeting: float | None,
    linger: float,
    page: str | None,
    metrics: str | None,
    on_alarm: str | None,
    log_json: Path | None,
    answers: tuple[Path, ...],
    codes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Serve the plan.json of FOLDER until stopped.

    After a crash, the same command goes on.  When the last model of every site is there, hub.html,
    hub.npz and hub.json are written to FOLDER; the hub goes on answering until Ctrl-C, or SIGTERM,
    unless --once is given.  A site without which a run of sums went on erases its key of the run
    when it is told so; --once gives it some time to ask.

    With --queue, plans are served one after another: see `sottovoce hub queue`.  One that a site
    declines (`site decline`) before it begins is set aside.
    """
    _check_waiting_times(patience, greeting, linger, begin)
    credentials = Credentials(*(folder / name for name in ("ca.crt", "hub.crt", "hub.key")))
    choices = Choices(credentials, listen, once, patience, greeting or math.inf, begin)
    settings = HubSettings.read(folder).changed_by(metrics, on_alarm, log_json)
    if not queue:
        # Everything that can be refused is refused before anybody is admitted.
        plan = read_plan_file(folder / "plan.json")
        choices.check_patience_of(plan)
        run_in_the_way(folder / "hub", plan)
    certificates.check_tls_files("hub", *credentials.read())
    _admit_new_answers(folder, answers, codes)
    stop = _make_stop_event()
    teller = Teller(as_json)
    with exclusive_lock(folder / "hub.lock"), HubLog(folder / "hub.log") as log:
        if queue:
            waiting = PlanQueue(folder)
            outlets = Outlets(folder, settings, page, teller, lambda: len(waiting.waiting()))
            with outlets.open():
                QueueServing(folder, log, teller, outlets, choices).follow(stop)
            return
        carried = Hub(plan, log, choices.waits_of(plan), choices.greeting)
        carried.check_log()
        outlets = Outlets(folder, settings, page, teller)
        serving = Serving(folder, carried, teller, outlets, once=once, linger=linger)
        with outlets.open(), serving.open_relay(credentials, listen):
            serving.follow_until_over(stop)


def _check_waiting_times(
    patience: float | None, greeting: float | None, linger: float, begin: float
) -> None:
    """Refuse waiting times, in seconds, that are infinite or negative, or 0 where that ends all."""
    for field, seconds in (("patience", patience), ("greeting", greeting), ("begin", begin)):
        if seconds is not None and not 0.0 < seconds < math.inf:
            raise InvalidInput(
                field, seconds, "must be above 0, in seconds", f"use --{field} {DEFAULT.deadline:g}"
            )
    if not 0.0 <= linger < math.inf:
        raise InvalidInput(
            "linger", linger, "must be 0 or above, in seconds", f"use --linger {LINGER:g}"
        )


def _admit_new_answers(folder: Path, answers: tuple[Path, ...], codes: tuple[str, ...]) -> None:
    """Admit the sites of these answers that have no certificate yet."""
    waiting = []
    for path in answers:
        certificate = folder / f"{Answer.read(path).member.name}.crt"
        if not certificate.exists():
            waiting.append(path)
    # After a restart by the same command none is left, and nobody is asked for a code again.
    if waiting:
        _admit_all_or_none(folder, tuple(waiting), False, parse_site_codes(codes))


def _make_stop_event() -> threading.Event:
    """Return an event that Ctrl-C and SIGTERM set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


@hub.command()
@click.argument("folder", type=FOLDER)
@decorate_with_options([json_flag_option()])
def status(folder: Path, as_json: bool) -> None:
    """How far every site of the run is, when it was heard, who waits for whom, and what to do.

    Only reads: it may run as another user, and while the hub runs.  Times are the hub's own.  Exit
    code 0 without alarms, 3 with one.
    """
    plan = read_plan_file(folder / "plan.json")
    with _open_hub_log(folder, read_only=True) as log:
        carried = Hub(plan, log)
        carried.check_log()
        shown = Watch(carried, folder).status_with_times()
    if as_json:
        print_json(shown)
    else:
        _print_status(shown)
    if shown["alarms"]:
        sys.exit(_ALARMED)


def _print_status(shown: dict[str, Any]) -> None:
    """Print the state of a run for people: its sites, who waits for whom, and alarms."""
    console = Console()
    state = _STATES[shown["running"]]
    if shown["ended"]:
        state = "ended by the hub"
    pace = ""
    if shown["seconds_a_round"] is not None:
        pace = f", {shown['seconds_a_round']:.3g} s a round"
    console.print(
        f"run [bold]{escape_markup(shown['run'])}[/], round {max(0, shown['round'])} of "
        f"{shown['rounds']}"
        f"{pace}; {state}\nplan {shown['plan']}",
        soft_wrap=True,
        highlight=False,
    )
    console.print(make_progress_table(shown["sites"], shown["rounds"]))
    for line in describe_long_waits(shown, 0.0):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for one in shown["alarms"]:
        console.print(f"{one['what']}: {one['do']}", markup=False, highlight=False, soft_wrap=True)


@hub.command()
@click.argument("folder", type=FOLDER)
@click.argument("run_name", metavar="RUN")
def end(folder: Path, run_name: str) -> None:
    """End RUN, the run of FOLDER's plan.json, for good.

    Every site that asks the hub from now on is told so, ends with exit code 4, and gives back what
    it has not spent. The hub may run meanwhile or be started afterwards; what the sites have spent
    stays spent.
    """
    plan = read_plan_file(folder / "plan.json")
    if run_name != plan.run:
        raise InvalidInput(
            "run", run_name, f"the plan of {folder} is of the run {plan.run!r}", "give that name"
        )
    with _open_hub_log(folder) as log:
        carried = Hub(plan, log)
        carried.check_log()
        if carried.all_sites_left:
            raise InvalidInput(
                "run", run_name, "is over: every site has left", "there is nothing to end"
            )
        log.decisions.record_end_of_run(plan.run)
    click.echo(
        f"run {plan.run} is ended; every site is told when it asks, while `sottovoce hub run "
        f"{folder}` runs"
    )


@hub.command()
@click.argument("folder", type=FOLDER)
@click.argument("name", metavar="NAME")
def expel(folder: Path, name: str) -> None:
    """Take site NAME out of the run of FOLDER's plan.json.

    The others do not wait for it any longer: they sign a roster without it and go on, or end if too
    few would be left. NAME is told when it asks, and ends with exit code 4.  The hub may run
    meanwhile or be started afterwards.
    """
    plan = read_plan_file(folder / "plan.json")
    # Refuses a name that is not in the plan.
    plan.index(name)
    if plan.waits.waits_for_ever:
        rule = "this plan needs all its sites to its end: it was written without a deadline"
        raise InvalidInput(
            "name",
            name,
            rule,
            f"end the run, for every site: `sottovoce hub end {folder} {plan.run}`",
        )
    with _open_hub_log(folder) as log:
        carried = Hub(plan, log)
        carried.check_log()
        if name in carried.gone():
            raise InvalidInput(
                "name", name, f"is out already: {carried.gone()[name]}", "there is nothing to do"
            )
        log.decisions.record_expulsion(plan.run, name)
    click.echo(
        f"{name} is taken out of run {plan.run}; the others go on while `sottovoce hub run "
        f"{folder}` runs"
    )


@hub.command()
@click.argument("folder", type=FOLDER)
def prune(folder: Path) -> None:
    """Remove from hub.log what the sites sent in runs that are over.

    That is of runs, other than that of plan.json, whose results are in FOLDER, or which were ended
    by `hub end`.  The sites' greetings and farewells stay: a farewell is signed, and holds the hash
    of the site's ledger, in which every message is.  The hub must not run meanwhile.
    """
    plan = read_plan_file(folder / "plan.json")
    with exclusive_lock(folder / "hub.lock"), _open_hub_log(folder) as log:
        with_results = {run_of_results(path) for path in folder.glob("hub*.json")}
        over = []
        for run in log.runs():
            # A run whose results are not written yet may need its messages for them.
            if run != plan.run and (run in with_results or log.decisions.is_run_ended(run)):
                over.append(run)
        before = (folder / "hub.log").stat().st_size
        removed = log.prune_runs(over)
    saved = before - (folder / "hub.log").stat().st_size
    click.echo(f"removed {removed:,} messages of {', '.join(over) or 'no run'}: {saved:,} bytes")


def _open_hub_log(folder: Path, *, read_only: bool = False) -> HubLog:
    """Open the hub's log; InvalidInput if no hub has run in this folder."""
    path = folder / "hub.log"
    if not path.exists():
        raise InvalidInput("folder", str(folder), "has no log yet", "start the hub")
    return HubLog(path, read_only=read_only)


hub.add_command(invite)
hub.add_command(queue_of_plans)
