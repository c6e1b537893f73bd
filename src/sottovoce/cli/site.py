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

from ..data.schema import Schema
from ..deploy import certificates
from ..deploy.agreement import (
    begun_run,
    fetch_proposal,
    install_agreed_proposal,
)
from ..deploy.answering import results_document
from ..deploy.events_log import EventsLog
from ..deploy.invitation import Answer, Invitation
from ..deploy.joining import LifetimeBudget, TableSource, make_site_folder, rejoin_site
from ..deploy.lock import exclusive_lock
from ..deploy.members import ANSWER
from ..deploy.names import check_site_name
from ..deploy.relay import RelayTransport
from ..deploy.session import Finished, check_complete_end
from ..deploy.settings import SiteRules, SiteSettings
from ..deploy.sums.masks import give_up_run, masking_keys_beside
from ..errors import EXIT_CODES, InvalidInput, LedgerError, SottovoceError
from ..ledger.durable import DurableLedger
from ..privacy.statement import Statement, ceil_text
from .agree import BY, agree, ask_for_consent, candidate, name_of_person, tell_site
from .decline import decline
from .join import (
    INVITE,
    Joining,
    make_invited_site,
    print_ledger_notes,
    print_next_steps,
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
from .site_check import check_site_settings, erase_old_keys
from .staying import Staying

_NEW_KEYS = make_option(
    "--new-keys",
    "Known sites may have new signing keys, which they told you themselves.",
    is_flag=True,
)


_RULES = (
    make_option(
        "--four-eyes", "Two people must agree to each plan, by `site agree`.", is_flag=True
    ),
    make_option(
        "--ceiling",
        "Epsilon that all runs together may reach, below the budget; a line of site.toml, which "
        "can be changed.",
        type=float,
    ),
)
"""What a new site asks of every plan."""


@click.group(epilog=EXIT_CODES)
def site() -> None:
    """Take part in a run across organisations: rows, ledger and keys stay here.

    \b
      sottovoce site join north.invite --data rows.csv --wait
      sottovoce site init here --name north --hub hub.example.org:8443 \\
          --data rows.csv --schema s.toml --epsilon 3 --delta 1e-5
      sottovoce site check here/site.toml     validate everything, send nothing
      sottovoce site agree here               agree to the hub's plan
      sottovoce site run here/site.toml       take part until the run ends
      sottovoce site results --folder here    the report again, without a hub
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
        *_RULES,
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
    four_eyes: bool,
    ceiling: float | None,
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
        rules=SiteRules(four_eyes, ceiling),
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
            "Lifetime budget of these rows, for good.  [default: asks whether the invitation's is "
            "yours]",
            type=float,
        ),
        make_option(
            "--delta",
            "Delta of that budget; 0 for pure epsilon.  [default: as --epsilon]",
            type=float,
        ),
        make_option(
            "--accountant",
            "Of the budget, for life.  [default: pure without a delta, else rdp]",
            type=LIFELONG,
        ),
        make_option("--folder", "The site's folder.  [default: its name]", type=FOLDER),
        make_option(
            "--ledger",
            "The ledger that these rows have, in the site's folder of another hub: both hubs share "
            "its budget.",
            type=FILE,
        ),
        *_RULES,
        make_option(
            "--new-hub",
            "The hub was made anew, with another authority: the site in --folder goes over to it.",
            is_flag=True,
        ),
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
        BY,
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
    ledger: Path | None,
    four_eyes: bool,
    ceiling: float | None,
    new_hub: bool,
    wait: bool,
    plan_code: str | None,
    by: str | None,
) -> None:
    """Answer the invitation in FILE: make this site's folder, and NAME.joined in it for the hub.

    Keys, the ledger and site.toml are made; the data are read, to tie the ledger to them; nothing
    is sent.  Send NAME.joined to the hub's operator, and read the code to the operator by
    telephone.  With --wait the command stays: when the hub runs it shows the plan and its price,
    and takes part if you type the plan's code.  After an interruption the same command goes on, and
    after a run it takes part in the hub's next one.

    A site that was invited again, since the hub moved or a TLS key was stolen, joins in the folder
    that it has: with a new TLS key, the same signing key and the same ledger.
    """
    invited = Invitation.read(invitation)
    name = invited.name
    folder = folder or Path(name)
    if (folder / "site.toml").exists():
        # The command is typed again after an interruption, or the site was invited again: no
        # second ledger is made.
        kept = folder / f"{name}.{INVITE}"
        if not kept.exists() or Invitation.read(kept) != invited:
            _rejoin(folder, invited, new_hub)
        else:
            click.echo(f"{folder} is there already: going on")
        print_next_steps(folder, Answer.read(folder / f"{name}.{ANSWER}"))
    else:
        rules = SiteRules(four_eyes, ceiling)
        typed = Joining(data, schema, epsilon, delta, accountant, ledger, rules)
        make_invited_site(invited, folder, typed)
    if wait:
        _wait_and_take_part(folder, plan_code, by)
    else:
        click.echo(
            f"then: sottovoce site join {invitation} --folder {folder} --wait\n"
            f"or as a service: sottovoce site run {folder / 'site.toml'} --stay, and for each plan "
            f"sottovoce site agree {folder}"
        )


def _rejoin(folder: Path, invited: Invitation, new_hub: bool) -> None:
    """Let the site of a folder join by another invitation, and say what changes."""
    found = SiteSettings.read(folder / "site.toml")
    before = found.hub
    rejoin_site(found, invited, new_hub=new_hub)
    address = f"the hub at {invited.hub}"
    if before and before != invited.hub:
        address += f", which was at {before}"
    click.echo(
        f"{folder} has joined by this invitation: a new TLS key, {address}; signing key, ledger "
        f"and budget stay: {found.ledger}"
    )


def _wait_and_take_part(folder: Path, typed_code: str | None, by: str | None) -> None:
    """Get certificate and plan from the hub, ask for consent to the plan, and take part."""
    settings = folder / "site.toml"
    found = SiteSettings.read(settings)
    run = begun_run(found)
    if run is None or not found.credentials.certificate.exists():
        fetch_proposal(found, tell_site(found))
    if run is None:
        shown = candidate(found)
        assert shown is not None
        with DurableLedger.open(found.ledger) as ledger:
            agreed = shown.is_agreed(ledger)
        if not agreed and not ask_for_consent(found, typed_code, name_of_person(by)):
            click.echo(
                "a second person must agree, too: `sottovoce site agree` with another --by; then "
                "repeat this command"
            )
            return
        install_agreed_proposal(found)
    run_site_to_end(settings)


@site.command()
@click.argument("settings", type=FILE)
@decorate_with_options(
    [
        make_option(
            "--take",
            "The certificate that the hub signed: put it and the new key in place of the old ones.",
            type=FILE,
        )
    ]
)
def renew(settings: Path, take: Path | None) -> None:
    """Make a new TLS key, and a request for it; then, with --take, put both in use.

    What is in use stays in use until then.  Ledger and signing key stay.  For a stolen TLS key the
    hub's operator first revokes this site; then a new invitation does the same by one command,
    `site join` with this folder.
    """
    found = SiteSettings.read(settings)
    folder = found.folder / "renewal"
    if take is not None:
        own = found.credentials
        with exclusive_lock(found.lock_file):
            certificates.take_renewed_certificate(
                found.name, folder, take, (own.authority, own.certificate, own.key)
            )
        click.echo(f"{found.name} has the new key and certificate; ledger and signing key stay")
        return
    certificates.write_certificate_request(folder, found.name)
    made = folder / f"{found.name}.csr"
    click.echo(
        f"made {folder}\n"
        f"1. give the hub's operator {made.name} for `hub admit --renew` (after a `hub revoke` "
        "without --renew), and read out its key: "
        f"{certificates.public_key_fingerprint(made.read_bytes())}\n"
        f"2. when {found.name}.crt comes, stop the site: sottovoce site renew {settings} --take "
        f"{found.name}.crt"
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
    found = SiteSettings.read(settings)
    check_site_settings(candidate(found) or found, new_keys, as_json)


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
            "--stay",
            "Stay as a service: fetch the hub's plans, and take part in each that people agreed to "
            "by `site agree`.",
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
def run(
    settings: Path,
    new_keys: bool,
    times: bool,
    stay: bool,
    log_json: Path | None,
    as_json: bool,
) -> None:
    """Take part in a run until it ends.

    After a crash, or a stop, the same command goes on; nothing is drawn or charged twice.  With
    --stay it waits for plans that are agreed to, one after another, and takes part in no other; it
    ends by Ctrl-C or SIGTERM, or with an exit code that asks for a person.

    With --json: one JSON object a round on standard output, with what is spent of the rows'
    lifetime budget, and one at the end, with the ledger's head.
    """
    found = SiteSettings.read(settings)
    log = None
    if log_json is not None:
        log = EventsLog(log_json, found.name, partial(click.echo, err=True))

    def take_part() -> None:
        with _log_begin_and_end(settings, log):
            run_site_to_end(settings, new_keys, times, as_json, log)

    if stay:
        Staying(lambda: SiteSettings.read(settings), take_part, tell_site(found)).follow()
    install_agreed_proposal(found)
    if not found.plan.exists() and found.is_invited:
        remedy = f"agree to one first: `sottovoce site agree {found.folder}`"
        raise InvalidInput("plan", found.plan, "there is no agreed plan", remedy)
    take_part()


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
    erase_old_keys(found)
    found.check_connection()
    done = found.read_final_results()
    if done is None:
        ended = _run_site_session(found, as_json, new_keys, log)
        done = _describe_end(found, ended) | ended.times
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
    _show_end(found, done, as_json)
    # Everything is shown before an early end becomes an error with its exit code.
    check_complete_end(found.name, str(done["run"]), str(done["stopped"]), done.get("lost", {}))


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


@site.command()
@decorate_with_options(
    [
        make_option("--folder", "The site's folder.", type=FOLDER, default="."),
        json_flag_option("Print one JSON object."),
    ]
)
def results(folder: Path, as_json: bool) -> None:
    """Write the results of the last run again, from this site's ledger alone.

    For a site that lost its report, or its classifier, when the hub is gone: the ledger holds every
    release and message, and the same results follow.  Nothing is charged, drawn or sent.
    """
    found = SiteSettings.read(folder / "site.toml")
    with exclusive_lock(found.lock_file):
        ended = found.rebuild_results()
    done = _describe_end(found, ended)
    _show_end(found, done, as_json)
    check_complete_end(found.name, str(done["run"]), str(done["stopped"]), done.get("lost", {}))


def _describe_end(found: SiteSettings, ended: Finished) -> dict[str, Any]:
    """Describe how a run ended as plain data, without times."""
    done: dict[str, Any] = {"site": found.name, "run": found.agreed_plan.run}
    if ended.found is not None:
        done |= results_document(found.agreed_plan, ended.found)
    return done | ended.to_dict()


def _show_end(found: SiteSettings, done: dict[str, Any], as_json: bool) -> None:
    """Print how a run ended, and where its files are."""
    ending = "npz"
    if found.agreed_plan.is_inference:
        ending = "json"
    done |= {"report": str(found.result_file("html")), "model": str(found.result_file(ending))}
    if as_json:
        print_json(done)
    else:
        _print_finished_run(done)


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


site.add_command(agree)
site.add_command(replace)
site.add_command(accept)
site.add_command(decline)
