"""``sottovoce audit``: attack a method, and compare what the attack shows with what is claimed.

A "game" asks an adversary which of two neighbouring tables a run had; a "verdict" is its outcome:
a lower bound on epsilon, beside the claimed and the proved one.  :mod:`sottovoce.audit` plays the
games; this module reads options and prints verdicts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
from rich.table import Table

from ..audit import ADVERSARIES, FORMS, Claim, Verdict, attack, targets
from ..audit.inference_attacks import measure_inference_attacks
from ..audit.one_run import CanaryRun, OneRunVerdict, attack_once
from ..audit.rare import RareVerdict
from ..audit.report import write
from ..audit.several import WorstVerdict
from ..audit.stopping import StoppingVerdict
from ..errors import InvalidInput
from ..privacy.statement import ceil_text
from ..util import files
from ..util.plain import infinities_to_text
from .options import decorate_with_options, json_flag_option, make_option, typed_command_line
from .screen import Console, escape_markup, make_listing

_OPTIONS = [
    make_option(
        "--form",
        "corrected, printed, or listed (pvp).  [default: corrected; for `all`: every form]",
    ),
    make_option(
        "--epsilon",
        "Total epsilon that the run claims.  [default: 1; pp_admm as printed: 2.65 at delta 0.01]",
        type=float,
    ),
    make_option(
        "--delta",
        "Delta of the claim.  [default: none if the method has a pure guarantee, else 1e-5; of "
        "sums 0.1]",
        type=float,
    ),
    make_option(
        "--rounds",
        "Rounds that the adversary observes.  [default: 2, or 1; stopping: 40 releases]",
        type=int,
    ),
    make_option(
        "--replicates",
        f"Runs of each of the two tables.  [default: 20,000 or more; {', '.join(ADVERSARIES)}: at "
        f"most {', '.join(f'{one.runs:,}' for one in ADVERSARIES.values())}]",
        type=int,
    ),
    make_option(
        "--colluders",
        "Of `sums`: sites that collude with the adversary.  [default: 1, as claimed]",
        type=int,
    ),
    make_option("--confidence", "Confidence of the lower bound.", type=float, default=0.95),
    make_option("--seed", "Seed of the noise of both tables.", type=int, default=0),
    make_option(
        "--report",
        "Also write an HTML page: bounds, and what a neighbour learns about real rows.",
        type=click.Path(),
    ),
    make_option(
        "--quick",
        "At most 4,000 runs of each table by default; smaller attacks in the page.",
        is_flag=True,
    ),
    make_option(
        "--one-run",
        "One run on real rows with canaries among them, instead of the worst pair.",
        is_flag=True,
    ),
    make_option("--data", "With --one-run: the rows.  [default: adult]"),
    make_option(
        "--canaries",
        "With --one-run: canaries, rows that are included or not at random.  [default: 1000]",
        type=int,
    ),
    json_flag_option(),
]


@dataclass(frozen=True)
class AuditOptions:
    """The parameters of ``sottovoce audit``, by the names of its options; None where left out."""

    method: str
    form: str | None
    epsilon: float | None
    delta: float | None
    rounds: int | None
    replicates: int | None
    confidence: float
    seed: int
    report: str | None
    quick: bool
    one_run: bool
    data: str | None
    canaries: int | None
    colluders: int | None
    as_json: bool

    @property
    def options_of_other_mode(self) -> dict[str, Any]:
        """Options that the chosen mode refuses, None where they were left out.

        With ``--one-run`` those of games between two tables; without it those of one run.
        """
        if self.one_run:
            # A flag that is left out is False, and no option that was given.
            return {
                "--replicates": self.replicates,
                "--report": self.report,
                "--quick": self.quick or None,
                "--colluders": self.colluders,
            }
        return {"--data": self.data, "--canaries": self.canaries}

    @property
    def attacked_targets(self) -> list[tuple[str, str]]:
        """Pairs of a method's name and a form of its claim, each of which is attacked."""
        if self.method == "all":
            return targets(self.form)
        return [(self.method, self.form or "corrected")]

    def make_attack_function(self) -> Callable[[str, str], Verdict]:
        """Return the attack on a method and form, with everything else of it given."""
        claim = Claim(self.epsilon, self.delta, self.rounds)
        if self.one_run:
            canaries = 1000
            if self.canaries is not None:
                canaries = self.canaries
            return partial(
                attack_once,
                claim=claim,
                run=CanaryRun(self.data or "adult", canaries),
                seed=self.seed,
                confidence=self.confidence,
            )
        return partial(
            attack,
            claim=claim,
            replicates=self.replicates,
            seed=self.seed,
            confidence=self.confidence,
            quick=self.quick,
            colluders=self.colluders,
        )


@click.command(name="audit")
@click.argument("method")
@decorate_with_options(_OPTIONS)
def audit(**parameters: Any) -> None:
    """Attack METHOD (or `all`): play the worst distinguishing game known against the real code.

    Two tables differ in one row of one site.  The adversary knows both, sees every message of every
    round, and must say which one it was.  From thousands of runs of each follows a lower bound on
    epsilon, beside the claim; a bound above the claim refutes it.

    Other audits attack the code around the methods: `stopping` the epsilon that a ledger quotes to
    an analyst who may stop, `refusals` the aborts of a site that gets extreme vectors, `labels` an
    estimator that meets a rare label, `capped` gradient clipping, `sums` secure aggregation with
    colluding sites, `answers` the releases behind coefficients, evaluations and regressions,
    `people` the guarantee for a person with several rows, `rare` the values that a survey must
    hide.

    \b
      sottovoce audit mr_admm                  comes near the claim, never above
      sottovoce audit dvp --form printed       a claim that is false
      sottovoce audit dvp --rounds 5 --epsilon 2 --json
      sottovoce audit stopping                 an analyst picks when to stop
      sottovoce audit sums --colluders 2       one too many: refuted
      sottovoce audit answers                  every release behind an answer
      sottovoce audit all                      every claim of the package
      sottovoce audit all --report audit.html  a page, with attacks on real rows
      sottovoce audit dgd --one-run --delta 1e-5    one run with 1000 canaries
    """
    options = AuditOptions(**parameters)
    report = options.report
    _check_one_run_options(options.method, options.one_run, options.options_of_other_mode)
    _check_game_options(options.method, options.replicates, options.colluders)
    if report is not None:
        files.check_writable_path("report", report)
    _check_claimed_epsilon(options.form, options.epsilon)
    chosen, play = options.attacked_targets, options.make_attack_function()
    console = Console(stderr=True)
    found = []
    for k, (name, kind) in enumerate(chosen, 1):
        with _show_step_progress(console, report, f"{k} of {len(chosen)}: {name} ({kind})"):
            found.append(play(name, kind))
    if not options.as_json:
        _render(found, options.confidence)
    elif options.method == "all":
        _print_verdicts_json([one.to_dict() for one in found])
    else:
        _print_verdicts_json(found[0].to_dict())
    # Last, so that a full disk costs the page only.
    if report is not None:
        with _show_step_progress(console, report, "attacks on real rows"):
            write(
                report,
                found,
                measure_inference_attacks(options.seed, options.quick),
                typed_command_line(),
            )


def _print_verdicts_json(plain: Any) -> None:
    """Print one verdict, or a list of them, as JSON with infinities as texts."""
    click.echo(json.dumps(infinities_to_text(plain), indent=2))


def _check_one_run_options(method: str, one_run: bool, of_other_mode: dict[str, Any]) -> None:
    """Refuse options of games with ``--one-run``, and its own options without it."""
    rule = "needs --one-run"
    if one_run:
        rule = "cannot be combined with --one-run"
    for name, value in of_other_mode.items():
        if value is not None:
            raise click.BadParameter(rule, param_hint=name)
    if one_run and method == "all":
        raise click.BadParameter(
            "`all` cannot be combined with --one-run; name one method", param_hint="METHOD"
        )


_FEWEST_RUNS = 80
"""Fewest runs of each table that a game is played with, unless the audit itself plays fewer."""


def _check_game_options(method: str, replicates: int | None, colluders: int | None) -> None:
    """Refuse colluders where nothing is summed, and too few runs."""
    if colluders is not None and method != "sums":
        raise click.BadParameter("needs the audit `sums`", param_hint="--colluders")
    # An audit whose single run is a whole release plays few: `labels` 40 with --quick.
    fewest, enough = _FEWEST_RUNS, 2000
    if method in ADVERSARIES and ADVERSARIES[method].quick < _FEWEST_RUNS:
        fewest = enough = ADVERSARIES[method].quick
    if replicates is not None and replicates < fewest:
        few = f"{replicates} is too few for a bound; use {enough} or more"
        raise click.BadParameter(few, param_hint="--replicates")


def _check_claimed_epsilon(form: str | None, epsilon: float | None) -> None:
    """Refuse an unknown form, and an epsilon that claims nothing."""
    # None takes the usual form, or every form for `all`.
    if form not in (None, *FORMS):
        raise InvalidInput(
            "form", form, "must be corrected, printed or listed", "leave it out for `all`"
        )
    if epsilon is not None and not (math.isfinite(epsilon) and epsilon > 0):
        raise InvalidInput(
            "epsilon", epsilon, "must be finite and > 0: a claim to attack", "use --epsilon 1"
        )


def _games_table(found: WorstVerdict) -> Table:
    """Make a table of the bounds of all games of an audit, whose verdict is the worst of them."""
    table = make_listing("<game", ">bound", ">exact", no_wrap=True)
    table.title = "All games"
    for name, game in found.games.items():
        table.add_row(escape_markup(name), *map(_format_lower_bound, game.values()))
    return table


def _format_lower_bound(bound: float | None) -> str:
    """Format a lower bound on epsilon, rounded down so that it stays one; empty for None."""
    if bound is None:
        return ""
    return f"{math.floor(1000 * bound) / 1000:.3f}"


def _show_step_progress(
    console: Console, report: str | None, about: str
) -> AbstractContextManager[Any]:
    """Show the progress of a long command; plain lines if there is no terminal."""
    if console.is_terminal:
        return console.status(about)
    if report is not None:
        click.echo(about, err=True)
    return nullcontext()


def _render(found: list[Verdict], confidence: float) -> None:
    """Print verdicts as a table; a single one also with its game."""
    bound = f">bound, {confidence:.0%}"
    table = make_listing(
        "<method, form", ">claimed", ">proved", bound, ">exact", "<verdict", no_wrap=True
    )
    # On a narrow screen names give way, not numbers.
    names = table.columns[0]
    names.no_wrap = False
    names.overflow = "fold"
    table.title = "Claims under attack"
    for one in found:
        claimed = ceil_text(one.claimed_epsilon)
        if one.delta:
            claimed += f" at {one.delta:g}"
        exact = ""
        if one.exact_epsilon is not None:
            exact = f"{one.exact_epsilon:.3f}"
        table.add_row(
            f"{one.method}, {one.form}",
            claimed,
            ceil_text(one.proved_epsilon),
            _format_lower_bound(one.lower_bound),
            exact,
            _format_verdict(one),
        )
    console = Console()
    console.print(table)
    if len(found) != 1:
        return
    one = found[0]
    for line in _describe_game(one):
        console.print(f"[dim]{escape_markup(line)}[/]")
    if isinstance(one, WorstVerdict):
        console.print(_games_table(one))


def _format_verdict(one: Verdict) -> str:
    """Format a verdict: by the runs, else by the exact privacy loss of the pair."""
    if one.refuted:
        return "[bold red]refuted[/]"
    if one.is_refuted_exactly:
        return "[bold red]refuted (exact)[/]"
    return "[green]stands[/]"


def _describe_game(one: Verdict) -> list[str]:
    """Describe the game that was played, and its two tables or its canaries."""
    at = ""
    if one.delta:
        at = f" at delta {one.delta:g}"
    if isinstance(one, OneRunVerdict):
        right = f"{one.right} of {one.guesses} guesses right, {one.canaries} canaries"
        return [f"one run of {one.rounds} rounds{at}: {right}", f"the canaries: {one.why}"]
    tables = f"the two tables: {one.why}"
    if isinstance(one, StoppingVerdict):
        return [
            f"{one.releases} releases, {one.replicates:,} runs{at}; attack: {one.attack}",
            "an analyst who stops at the best moment makes delta "
            f"{one.realised_delta:.3g} (exact); "
            f"lower bound by the runs: {one.realised_delta_bound:.3g}",
            tables,
        ]
    if isinstance(one, RareVerdict):
        runs = 2 * one.replicates
        return [
            f"{one.shown:,} of {runs:,} surveys{at} show values that few rows have: a rate of "
            f"{one.shown / runs:.4f}, lower bound {one.rate_bound:.4f}; stated: at most "
            f"{one.stated:g}; attack: {one.attack}",
            tables,
        ]
    return [
        f"{one.rounds} rounds, {one.replicates:,} runs of each table{at}; attack: {one.attack}",
        tables,
    ]
