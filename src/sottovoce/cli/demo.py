"""``sottovoce demo``: a hub and its sites as processes of this machine.

:mod:`sottovoce.deploy.demonstration` makes their folders with Adult's rows and runs them; this
module shows how far they are, and compares the model with that of the same run in one process.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.live import Live
from rich.table import Table

from ..algorithms.method import TRUSTS
from ..deploy import demonstration
from ..deploy.demonstration import Demonstration
from ..deploy.waits import Waits
from ..errors import InvalidInput
from ..privacy.statement import DEMONSTRATION, ceil_text
from ..runs import defaults
from ..runs.config import RunConfig
from .options import decorate_with_options, json_flag_option, make_option
from .plan_options import make_requested_answers
from .render import make_privacy_panel
from .screen import Console, escape_markup, make_listing, print_json

_EVERY = 0.5
"""Seconds between two updates of the table."""


@click.command(name="demo")
@decorate_with_options(
    [
        make_option("--sites", "Number of sites.", type=int, default=5),
        make_option("--rounds", "Rounds of exchange with the neighbours.", type=int, default=30),
        make_option(
            "--method",
            "One of `sottovoce methods`.  [default: prox_admm; momentum with --trust sum]",
        ),
        make_option(
            "--trust",
            "Whom sites trust: nobody, or secure aggregation (sum).  [default: nobody]",
            type=click.Choice(["nobody", "sum"]),
        ),
        make_option("--colluders", "Under sum: sites that may collude.", type=int, default=1),
        make_option("--epsilon", "Total budget of the run.", type=float, default=defaults.EPSILON),
        make_option(
            "--delta", "Delta of an (epsilon, delta) guarantee.", type=float, default=defaults.DELTA
        ),
        make_option("--graph", "The sites' network.", default="ring"),
        make_option(
            "--centre/--no-centre",
            "Whether to release the means of all columns first, if that helps.",
            default=True,
        ),
        make_option(
            "--inference",
            "Coefficients with intervals of a few columns, in place of training.",
            is_flag=True,
        ),
        make_option(
            "--evaluation",
            "Also evaluate on held-out rows, with this epsilon for them.",
            type=float,
        ),
        make_option(
            "--holdout",
            "Share of each site's rows that is held out for it.",
            type=float,
            default=0.2,
        ),
        make_option(
            "--lose-site",
            "Sites that are killed in the middle of the run, and do not come back.",
            type=int,
            default=0,
        ),
        make_option(
            "--transport",
            "What carries the messages.",
            type=click.Choice(["relay", "nvflare"]),
            default="relay",
        ),
        make_option(
            "--keep",
            "Folder for hub and sites, which stays.  [default: one that is removed at the end]",
            type=click.Path(file_okay=False, path_type=Path),
        ),
        json_flag_option(),
    ]
)
def demo(
    sites: int,
    rounds: int,
    method: str | None,
    trust: str | None,
    colluders: int,
    epsilon: float,
    delta: float,
    graph: str,
    centre: bool,
    inference: bool,
    evaluation: float | None,
    holdout: float,
    lose_site: int,
    transport: str,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Start a hub and sites as real processes, train on Adult, and compare with one process.

    With --inference it prints coefficients with intervals, with --evaluation the area under the ROC
    curve and more. The model is compared with that of the same run in one process.  For that the
    noise is repeatable: this is a demonstration, not a release, and its ledgers and reports say so.

    \b
      sottovoce demo                             five sites on a ring
      sottovoce demo --sites 3 --trust sum       only sums are seen
      sottovoce demo --inference --keep rehearsal   look into the folders
    """
    _check_lost_sites(lose_site, sites, transport, inference or evaluation is not None)
    asks = make_requested_answers(
        inference,
        site_constants=False,
        evaluation=evaluation,
        holdout=holdout,
        cut=0.5,
        by=None,
    )
    named = method or _default_method(inference, trust)
    config = RunConfig(named, epsilon, delta, rounds, graph, trust=trust, colluders=colluders)
    console = Console()
    schema = None
    waits = Waits()
    if inference:
        # Six columns: coefficients of all would need more rows than Adult has.
        schema = demonstration.FEW
    if lose_site:
        # Waits of seconds, because the others wait for the lost sites.
        waits = demonstration.SOON
    with _open_run_folder(keep) as place:
        built = demonstration.build_demonstration(
            Path(place), config, sites, schema=schema, asks=asks, centre=centre, waits=waits
        )
        report = _run_and_compare(built, transport, lose_site, console, as_json)
        # Made from files in the folder, which may be removed at the end of the context.
        table = _progress_table(built)
    if keep is None:
        del report["folder"]
    if as_json:
        print_json(report)
        return
    console.print(table)
    _show_comparison(built, report, transport, console)
    if keep is not None:
        text = f"everything is in {keep}: start with {keep / 'hub' / 'hub.html'}"
        console.print(escape_markup(text), highlight=False, soft_wrap=True)


def _check_lost_sites(lose_site: int, sites: int, transport: str, answers: bool) -> None:
    """Refuse to kill all sites, or any in a run that is not a training over the relay."""
    if not 0 <= lose_site < sites:
        rule = f"must be at least 0, and leave one of {sites} sites"
        raise InvalidInput("lose_site", lose_site, rule, "use --lose-site 1")
    if lose_site and (transport != "relay" or answers):
        rule = "needs a training over the relay"
        raise InvalidInput(
            "lose_site", lose_site, rule, "remove transport, inference and evaluation"
        )


def _default_method(inference: bool, trust: str | None) -> str:
    """Return the method of a demonstration that names none."""
    if inference:
        return "auto"
    if TRUSTS[trust or "nobody"].opens_sums:
        return "momentum"
    return "prox_admm"


def _open_run_folder(keep: Path | None) -> tempfile.TemporaryDirectory[str] | nullcontext[Path]:
    """Return a context whose value is the folder that was asked for, or one that is removed."""
    if keep is None:
        return tempfile.TemporaryDirectory(prefix="sottovoce-demo-")
    return nullcontext(keep)


def _run_and_compare(
    built: Demonstration, transport: str, lose_site: int, console: Console, as_json: bool
) -> dict[str, Any]:
    """Run hub and sites to the end under a live table, and compare with the run in one process."""
    started = time.perf_counter()
    live: Live | nullcontext[None] = nullcontext()
    if not as_json and console.is_terminal:
        live = Live(_progress_table(built), console=console, transient=True)
    with live as shown:
        exits = _run_demonstration(built, transport, lose_site, shown)
    report = demonstration.compare_with_simulation(built, transport, time.perf_counter() - started)
    if lose_site:
        report["exits"] = exits
    return report


def _run_demonstration(
    built: Demonstration, transport: str, lose_site: int, shown: Live | None
) -> dict[str, int]:
    """Run hub and sites, and return the exit codes of processes, which only the relay has."""
    updated = 0.0

    def update_table() -> None:
        nonlocal updated
        if shown is not None and time.perf_counter() - updated > _EVERY:
            updated = time.perf_counter()
            shown.update(_progress_table(built))

    if transport == "relay":
        return demonstration.run_over_relay(built, update_table, lose_site)
    # NVFlare is an extra, which other demonstrations do not need.
    from ..deploy.nvflare.loopback import run_demonstration

    run_demonstration(built, update_table)
    return {}


def _show_comparison(
    built: Demonstration, report: dict[str, Any], transport: str, console: Console
) -> None:
    """Print a demonstration's privacy and answers, and its difference to the run in one process."""
    console.print(
        make_privacy_panel(built.plan.planned_privacy.statement.words, f"Privacy: {DEMONSTRATION}")
    )
    if "record" in report:
        # Loads SciPy's statistics.
        from .answers import render_answers_record

        render_answers_record(report["record"], console)
        same = "[bold red]are not[/]"
        if report["same_answers"]:
            same = "are"
        console.print(f"all answers {same} those of the same run in one process")
    console.print(
        f"{report['rounds']} rounds over {transport}, {report['seconds_per_round']:.3f} s a round; "
        f"test error {100 * report['test_error']:.2f}%; largest difference to the same run in one "
        f"process: {report['difference']:.3g}",
        highlight=False,
    )
    roster = report["roster"]
    if roster:
        for name, why in roster["gone"].items():
            console.print(
                f"without {escape_markup(name)} from round {roster['since'][name]} on: it {why}",
                highlight=False,
            )


def _progress_table(demo: Demonstration) -> Table:
    """Make a table of how far every site is, and what it has spent."""
    table = make_listing("<site", ">rows", ">round", "<", ">epsilon spent", ">of")
    rounds = demo.plan.exchange_table.attempts
    rows = demo.rows.n[:, 0].astype(int)
    for one, size in zip(demonstration.read_site_progress(demo), rows, strict=True):
        bar = "█" * round(24 * one["round"] / rounds)
        spent = (ceil_text(one["spent"]), f"{one['budget']:g}")
        table.add_row(
            one["site"], f"{size:,}", f"{one['round']}/{rounds}", f"[green]{bar:24}[/]", *spent
        )
    return table
