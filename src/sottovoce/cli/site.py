"""``sottovoce site``: one organisation's part in a run across organisations.

A site's folder holds its keys, the ledger of its rows, the agreed ``plan.json`` and ``site.toml``,
the settings that the other commands read (:class:`sottovoce.deploy.settings.SiteSettings`, `found`
below).  Rows never leave the site; its messages go to a hub (:mod:`sottovoce.cli.hub`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..data.file_formats import header_notes
from ..data.schema import Schema
from ..deploy import certificates
from ..deploy.answering import results_document
from ..deploy.events_log import EventsLog
from ..deploy.files import write_new_file
from ..deploy.invitation import Answer, Invitation
from ..deploy.invitation import plan_comparison_code as code_of_plan
from ..deploy.joining import LifetimeBudget, TableSource, make_site_folder
from ..deploy.lock import exclusive_lock
from ..deploy.members import ANSWER
from ..deploy.names import check_site_name
from ..deploy.relay import RelayTransport, request_certificate_and_plan
from ..deploy.report import describe_plan, describe_sums
from ..deploy.requests import request_and_reply_sizes
from ..deploy.session import Finished, check_complete_end
from ..deploy.settings import SiteSettings
from ..deploy.sums.masks import give_up_run, masking_keys_beside
from ..deploy.waits import Waits
from ..errors import EXIT_CODES, InvalidInput, LedgerError, SottovoceError, escape_unprintable
from ..ledger.durable import DurableLedger
from ..privacy.statement import Statement, ceil_text
from ..util import files
from .decline import decline
from .join import (
    INVITE,
    check_spoken_code,
    make_invited_site,
    print_ledger_notes,
    print_next_steps,
    write_agreed_digest,
)
from .options import (
    FILE,
    FOLDER,
    LIFELONG,
    check_parent_folder,
    decorate_with_options,
    json_flag_option,
    make_option,
)
from .render import make_privacy_panel
from .replace import accept, replace
from .screen import Console, escape_markup, print_json, show_progress_bar

_NEW_KEYS = make_option(
    "--new-keys",
    "Known sites may have new signing keys, which they told you themselves.",
    is_flag=True,
)


@click.group(epilog=EXIT_CODES)
def site() -> None:
    """Take part in a run across organisations: rows, ledger and keys stay here.

    \b
      sottovoce site join north.invite --data rows.csv --wait
      sottovoce site init here --name north --hub hub.example.org:8443 \\
          --data rows.csv --schema s.toml --epsilon 3 --delta 1e-5
      sottovoce site check here/site.toml     validate everything, send nothing
      sottovoce site run here/site.toml       take part until the run ends
      sottovoce site end here/site.toml       give up this site's part in the run
      sottovoce site renew here/site.toml     before the certificate ends
      sottovoce site replace here/site.toml   a signing key or ledger was lost
    """


@site.command()
@click.argument("folder", type=FOLDER)
@decorate_with_options(
    [
        make_option(
            "--name", "The site's name, as in the plan and its certificate.", required=True
        ),
        make_option("--hub", "HOST:PORT of the hub.", required=True),
        make_option(
            "--data",
            "CSV or Parquet file, or a folder of mapped rows.",
            required=True,
            type=click.Path(path_type=Path),
        ),
        make_option(
            "--schema",
            "TOML file declaring the public facts of the table.",
            required=True,
            type=FILE,
        ),
        make_option("--epsilon", "Lifetime budget of these rows.", required=True, type=float),
        make_option(
            "--delta",
            "Delta of an (epsilon, delta) guarantee.  [default: none, pure epsilon]",
            type=float,
        ),
        make_option(
            "--accountant",
            "Of the budget, for life.  [default: pure without a delta, else rdp]",
            type=LIFELONG,
        ),
    ]
)
def init(
    folder: Path,
    name: str,
    hub: str,
    data: Path,
    schema: Path,
    epsilon: float,
    delta: float | None,
    accountant: str | None,
) -> None:
    """Make a site's FOLDER: keys, the ledger, site.toml.

    It says what to give to the hub's operator.  The data are read, to tie the ledger to them, and
    nothing is sent. Refused if there is a ledger of these rows already: in the folder of the data,
    in the one that FOLDER is made in, or in a folder inside one of these.
    """
    # Before the data are read, which may take long.
    check_site_name("name", name)
    check_parent_folder("folder", folder)
    encoding = Schema.from_toml(schema)
    made = make_site_folder(
        folder,
        name,
        hub,
        TableSource(data, encoding, schema.resolve()),
        LifetimeBudget(epsilon, delta, accountant),
    )
    click.echo(
        f"made {folder}\n"
        f"1. give the hub's operator {name}.csr and {name}.public.json, and read out the key that "
        "is to be admitted:\n"
        f"   {certificates.public_key_fingerprint(made.request.encode())}\n"
        f"2. put {name}.crt, ca.crt and plan.json here when they come, and go on with `site "
        "check`\n"
        "3. this is the one ledger of these rows: never make a second one, and never restore it "
        "from a backup"
    )
    print_ledger_notes(made)


@site.command()
@click.argument("invitation", metavar="FILE", type=FILE)
@decorate_with_options(
    [
        make_option(
            "--data",
            "CSV or Parquet file, or a folder of mapped rows.",
            type=click.Path(path_type=Path),
        ),
        make_option(
            "--schema",
            "TOML file declaring the public facts of the table.  [default: the invitation's]",
            type=FILE,
        ),
        make_option(
            "--epsilon",
            "Lifetime budget of these rows, for good.  [default: as the invitation proposes]",
            type=float,
        ),
        make_option(
            "--delta",
            "Delta of that budget; 0 for pure epsilon.  [default: as the invitation proposes]",
            type=float,
        ),
        make_option(
            "--accountant",
            "Of the budget, for life.  [default: pure without a delta, else rdp]",
            type=LIFELONG,
        ),
        make_option("--folder", "The site's folder.  [default: its name]", type=FOLDER),
        make_option(
            "--wait",
            "Wait for the hub, show the plan, ask for your consent, and take part to the end.",
            is_flag=True,
        ),
        make_option(
            "--plan-code",
            "The plan's code, if you have heard it already: --wait does not ask then.",
            metavar="CODE",
        ),
    ]
)
def join(
    invitation: Path,
    data: Path | None,
    schema: Path | None,
    epsilon: float | None,
    delta: float | None,
    accountant: str | None,
    folder: Path | None,
    wait: bool,
    plan_code: str | None,
) -> None:
    """Answer the invitation in FILE: make this site's folder, and NAME.joined in it for the hub.

    Keys, the ledger and site.toml are made; the data are read, to tie the ledger to them; nothing
    is sent.  Send NAME.joined to the hub's operator, and read the code to the operator by
    telephone.  With --wait the command stays: when the hub runs it shows the plan and its price,
    and takes part if you type the plan's code.  After an interruption the same command goes on, and
    after a run it takes part in the hub's next one.
    """
    invited = Invitation.read(invitation)
    name = invited.name
    folder = folder or Path(name)
    if (folder / "site.toml").exists():
        # The command is typed again after an interruption: what was made then must be of this
        # very invitation, and no second ledger is made.
        kept = folder / f"{name}.{INVITE}"
        if not kept.exists() or Invitation.read(kept) != invited:
            rule = "holds a site that did not join by this invitation"
            raise InvalidInput(
                "folder", folder, rule, "use another --folder, or take part with `site run`"
            )
        click.echo(f"{folder} is there already: going on")
        print_next_steps(folder, Answer.read(folder / f"{name}.{ANSWER}"))
    else:
        make_invited_site(invited, folder, data, schema, epsilon, delta, accountant)
    if wait:
        _wait_and_take_part(invited, folder, plan_code)
    else:
        click.echo(f"then: sottovoce site join {invitation} --wait")


def _wait_and_take_part(invited: Invitation, folder: Path, typed_code: str | None) -> None:
    """Get certificate and plan from the hub, ask for consent to the plan, and take part."""
    settings, name = folder / "site.toml", invited.name
    found = SiteSettings.read(settings)
    run_is_over = found.plan.exists() and found.read_final_results() is not None
    has_files = found.credentials.certificate.exists() and found.plan.exists()
    if run_is_over or not has_files:
        _fetch_certificate_and_plan(invited, found, run_is_over)
    # Read again, because the plan may be that of the next run now.
    found = SiteSettings.read(settings)
    agreed = found.agreed_plan
    if found.digest != agreed.digest:
        check_site_settings(settings, asks=False)
        # Masks hide a share only among the sites whose keys are in the plan, so in a run of sums
        # the hub's operator is not the one to vouch for the plan.
        if agreed.uses_secure_sums:
            who = "another site"
        else:
            who = "the hub's operator, or another site,"
        question = (
            f"{name}: to take part in this run, type the plan's code as {who} reads it to you"
        )
        check_spoken_code(question, code_of_plan(agreed.digest), typed_code, "of this plan")
        write_agreed_digest(settings, agreed.digest)
    run_site_to_end(settings)


def _fetch_certificate_and_plan(
    invited: Invitation, found: SiteSettings, run_is_over: bool
) -> None:
    """Ask the hub, by the invitation's own certificate, for the site's certificate and the plan."""
    name = invited.name
    own = invited.authority.encode(), invited.certificate.encode(), invited.key.encode()
    certificate, plan = request_certificate_and_plan(
        found.hub, own, lambda line: click.echo(f"{name}: {line}", err=True)
    )
    certificates.check_tls_files(name, own[0], certificate, found.credentials.key.read_bytes())
    for path, content in ((found.credentials.certificate, certificate), (found.plan, plan)):
        if not path.exists():
            write_new_file(path, content)
        elif run_is_over and path == found.plan and path.read_bytes() != content:
            # The plan of the hub's next run; a certificate that is in use is never replaced here.
            files.write_atomically("plan", path, content)


@site.command()
@click.argument("settings", type=FILE)
def renew(settings: Path) -> None:
    """Make a new TLS key, and a request for it.

    What is in use stays in use until the new files are put in its place.
    """
    found = SiteSettings.read(settings)
    folder = found.folder / "renewal"
    certificates.write_certificate_request(folder, found.name)
    made = folder / f"{found.name}.csr"
    click.echo(
        f"made {folder}\n"
        f"1. give the hub's operator {made.name} for `hub admit --renew`, and read out its key: "
        f"{certificates.public_key_fingerprint(made.read_bytes())}\n"
        f"2. when {found.name}.crt comes, stop the site, put it and {folder.name}/{found.name}.key "
        "in place of "
        "the old ones, and remove the folder"
    )


@site.command()
@click.argument("settings", type=FILE)
@decorate_with_options([_NEW_KEYS, json_flag_option()])
def check(settings: Path, new_keys: bool, as_json: bool) -> None:
    """Validate everything that SETTINGS names; send nothing.

    Data, plan, ledger, keys and certificates are read and compared, with each other and with what
    is left of earlier runs; it says what the run will take of the budget, and by which line of
    SETTINGS this site agrees to the plan.
    """
    check_site_settings(settings, new_keys, as_json)


def check_site_settings(
    settings: Path, new_keys: bool = False, as_json: bool = False, asks: bool = True
) -> None:
    """Check everything that a site's settings name, and print it; nothing is sent.

    Parameters
    ----------
    settings : Path
        The site's ``site.toml``.
    new_keys : bool
        Accept sites whose keys are others than before.
    as_json : bool
        Print JSON.
    asks : bool
        Say how to agree to the plan.  False if somebody is about to be asked whether to take part.
    """
    found = SiteSettings.read(settings)
    report, accountant = _check_and_report(found, new_keys)
    if as_json:
        print_json(report)
        found.check_plan_is_agreed()
        return
    console = Console()
    _print_plan_and_price(found, report, accountant, console)
    _print_plan_terms(found, report, asks, console)
    if asks:
        found.check_plan_is_agreed()
    if asks and not report["agreed"]:
        console.print(
            "once all sites have the same plan, add this line above "
            rf"\[data] in {escape_markup(settings.name)}:"
        )
        console.print(escape_markup(found.agreed_line), soft_wrap=True, highlight=False)
    console.print(
        f"certificate until {report['certificate_ends']}; everything fits; nothing was sent",
        highlight=False,
    )


def _check_and_report(found: SiteSettings, new_keys: bool) -> tuple[dict[str, Any], str]:
    """Check all that the settings name, and describe it as plain data.

    The second value is the ledger's accountant, which the printed text needs and the report lacks.
    """
    erased = _erase_old_keys(found)
    with DurableLedger.open(found.ledger) as ledger:
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
        "agreed": found.digest == plan.digest,
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
            f"the plan's code, for the telephone: {code_of_plan(plan.digest)}"
        )
    console.print(said, soft_wrap=True, highlight=False)
    if report["new_sites"]:
        console.print(
            "sites that were in no earlier run of this site: "
            f"{escape_markup(', '.join(report['new_sites']))}",
            highlight=False,
        )


@site.command()
@click.argument("settings", type=FILE)
@decorate_with_options(
    [
        _NEW_KEYS,
        make_option(
            "--times",
            "Also tell how long the run took, which depends on the rows: for their holder alone, "
            "and no log.",
            is_flag=True,
        ),
        make_option(
            "--log-json",
            "File of JSON lines for this site alone: who, when, what and which plan.",
            type=FILE,
        ),
        json_flag_option("Print a JSON object a round, and one at the end."),
    ]
)
def run(settings: Path, new_keys: bool, times: bool, log_json: Path | None, as_json: bool) -> None:
    """Take part in a run until it ends.

    After a crash, or a stop, the same command goes on; nothing is drawn or charged twice.

    With --json: one JSON object a round on standard output, with what is spent of the rows'
    lifetime budget, and one at the end, with the ledger's head.
    """
    log = None
    if log_json is not None:
        tell = partial(click.echo, err=True)
        log = EventsLog(log_json, SiteSettings.read(settings).name, tell)
    with _log_begin_and_end(settings, log):
        run_site_to_end(settings, new_keys, times, as_json, log)


@contextmanager
def _log_begin_and_end(settings: Path, log: EventsLog | None) -> Iterator[None]:
    """Log the beginning of a site's part in a run, and its end or error; no durations."""
    if log is None:
        yield
        return
    plan = SiteSettings.read(settings).agreed_plan
    log.write("begins", plan.digest, run=plan.run)
    try:
        yield
    except SottovoceError as error:
        log.write("ends", plan.digest, run=plan.run, error=str(error))
        raise
    except KeyboardInterrupt:
        log.write("stopped", plan.digest, run=plan.run)
        raise
    log.write("ends", plan.digest, run=plan.run)


def run_site_to_end(
    settings: Path,
    new_keys: bool = False,
    times: bool = False,
    as_json: bool = False,
    log: EventsLog | None = None,
) -> None:
    """Take part in a run until it ends, and print how it ended.

    Parameters
    ----------
    settings : Path
        The site's ``site.toml``.
    new_keys : bool
        Accept sites whose keys are others than before.
    times : bool
        Also print durations, which depend on the rows.
    as_json : bool
        Print JSON.
    log : EventsLog, optional
        Gets what a site is told while it waits.
    """
    found = SiteSettings.read(settings)
    _erase_old_keys(found)
    found.check_connection()
    done = found.read_final_results()
    if done is None:
        ended = _run_site_session(found, as_json, new_keys, log)
        done = {"site": found.name, "run": found.agreed_plan.run}
        if ended.found is not None:
            done |= results_document(found.agreed_plan, ended.found)
        done |= ended.to_dict()
        done |= ended.times
    else:
        # The run was over before: an older copy of the ledger is noticed all the same.
        if found.ledger.exists():
            with DurableLedger.open(found.ledger) as ledger:
                found.check_records(ledger, new_keys=new_keys)
        if not as_json:
            click.echo(
                f"{found.name}: run {done['run']} was over before; nothing is sent", err=True
            )
    # How long a site's computations took depends on its rows, so durations are for their holder.
    if not times:
        done = {key: value for key, value in done.items() if key not in ("seconds", "waited")}
    ending = "npz"
    if found.agreed_plan.is_inference:
        ending = "json"
    done |= {"report": str(found.result_file("html")), "model": str(found.result_file(ending))}
    if as_json:
        print_json(done)
    else:
        _print_finished_run(done)
    # Everything is shown before an early end becomes an error with its exit code.
    check_complete_end(found.name, str(done["run"]), str(done["stopped"]), done.get("lost", {}))


def _describe_waits(waits: Waits) -> str:
    """Describe how long the rounds of a plan wait."""
    if waits.waits_for_ever:
        return "a round waits for all sites, however long it takes"
    return (
        f"a round waits {waits.deadline:g} s for its last site, and {waits.patience:g} s where it "
        "cannot go on without it"
    )


def _erase_old_keys(found: SiteSettings) -> dict[str, str]:
    """Erase keys of runs of sums that cannot go on, and print a line about each."""
    return found.erase_old_keys(lambda line: click.echo(f"{found.name}: {line}", err=True))


@site.command()
@click.argument("settings", type=FILE)
@decorate_with_options([json_flag_option()])
def end(settings: Path, as_json: bool) -> None:
    """End this site's part in the run of SETTINGS for good.

    What has no row in the ledger goes back to the budget, the key of a run of sums is erased, and
    `site run` refuses this run from now on.  Nothing is sent.  For a site that will not come back,
    or a run whose hub is gone; what was spent stays spent.
    """
    found = SiteSettings.read(settings)
    run = found.agreed_plan.run
    # The site must not run meanwhile.
    with exclusive_lock(found.lock_file), DurableLedger.open(found.ledger) as ledger:
        known = run in ledger.runs
        try:
            returned, erased = give_up_run(ledger, run)
        except LedgerError:
            if known:
                raise
            rule = "is not in the ledger: this site has taken no part in it"
            raise InvalidInput("run", run, rule, "there is nothing to end") from None
        recorded = next(one for one in ledger.show()["runs"] if one["run"] == run)
        report = {
            "site": found.name,
            "run": run,
            "state": recorded["state"],
            "returned": returned,
            "charged": recorded["charged"],
            "key_erased": erased,
            "spent": ledger.total(),
            "budget": float(ledger.epsilon[0]),
            "sent": 0,
        }
    if as_json:
        print_json(report)
    else:
        _print_given_up_run(found, report)


def _print_given_up_run(found: SiteSettings, report: dict[str, Any]) -> None:
    """Print what became of a site's part in a run that it gave up."""
    if found.agreed_plan.uses_secure_sums:
        others = "go on without it when the hub's patience ends"
    else:
        others = "wait until `hub end`"
    what = "was over before"
    if report["state"] == "given up":
        what = "is ended for good"
    key = "there is no key of this run here"
    if report["key_erased"]:
        key = "the key of this run is erased"
    click.echo(
        f"{found.name}: its part in run {report['run']} {what}: {report['returned']} releases went "
        f"back to the budget, {report['charged']} stay spent\n"
        f"{key}\n"
        f"nothing was sent: the other sites {others}"
    )


def _print_finished_run(done: dict[str, Any]) -> None:
    """Print how a site's part in a run ended, for people.

    `done` is what `site run --json` prints; ``spent`` and ``budget`` are epsilons.
    """
    shown = Console()
    # Durations were asked for, and the run did not end before this command.
    if "seconds" in done:
        shown.print(
            f"{done['seconds']:.1f} s, {done['waited']:.1f} of them with messages", highlight=False
        )
    shown.print(
        f"[bold]{escape_markup(done['site'])}[/]: {done['rounds']} rounds ({done['stopped']}); "
        f"{ceil_text(done['spent'])} spent of {done['budget']:g} for life",
        highlight=False,
    )
    for other, why in done.get("lost", {}).items():
        shown.print(f"without {escape_markup(other)}: it {escape_markup(why)}", highlight=False)
    shown.print(
        make_privacy_panel(
            Statement.from_dict(done["privacy"]).words, "Privacy of this site's rows"
        )
    )
    # What an inference or an evaluation found; a training has no record.
    if "record" in done:
        # Loads SciPy's statistics.
        from .answers import render_answers_record

        render_answers_record(done["record"], shown)
    shown.print(
        f"report {done['report']}; classifier {done['model']}", soft_wrap=True, highlight=False
    )


def _run_site_session(
    found: SiteSettings, as_json: bool, new_keys: bool, log: EventsLog | None
) -> Finished:
    """Run the site's session over the relay, with a bar or a JSON line after each round."""
    plan = found.agreed_plan
    console = Console(stderr=True)
    rounds = plan.exchange_table.attempts

    def tell(line: str) -> None:
        if log is not None:
            log.write("told", plan.digest, line=line)
        console.print(
            f"{escape_markup(found.name)}: {escape_markup(line)}", highlight=False, soft_wrap=True
        )

    with (
        exclusive_lock(found.lock_file),
        show_progress_bar(console, f"{found.name}: round", rounds, quiet=as_json) as bar,
        RelayTransport(found.hub, found.credentials, plan, found.patience, tell) as transport,
    ):
        if not as_json:
            tell(f"run {plan.run} over {found.hub}; it begins when all neighbours are there")

        def watch(k: int, spent: float, budget: float) -> None:
            if as_json:
                print_json({"round": k, "rounds": rounds, "spent": spent, "budget": budget})
            elif bar is not None:
                text = f"{found.name}: {ceil_text(spent)} of {budget:g} spent for life; round"
                bar(completed=k, description=text)

        observer = None
        if as_json or bar is not None:
            observer = watch
        try:
            return found.run_and_write_results(transport, observer, new_keys=new_keys)
        # Nothing is lost: what was drawn is in the ledger.
        except KeyboardInterrupt:
            tell("stopped; the same command goes on")
            raise
        except SottovoceError:
            if plan.run in masking_keys_beside(found.ledger.resolve()):
                tell(
                    "the key of this run stays beside the ledger, so that the run can go on; to "
                    "give the run up: `site end`"
                )
            raise


site.add_command(replace)
site.add_command(accept)
site.add_command(decline)
