"""``sottovoce audit``: attack a method, and compare what the attack shows with what is claimed."""

from __future__ import annotations

import json
import math

import click
from rich.console import Console
from rich.table import Table

from ..audit import Verdict, attack, targets
from ..privacy.words import ceil_text
from ..training import jsonable
from .options import as_json, say, takes

_OPTIONS = [
    say("--form", "corrected, printed, or listed (pvp).  [default: corrected; for `all`: every form]"),
    say("--epsilon", "Total that the run claims.  [default: 1]", type=float),
    say("--delta", "Of the claim.  [default: none, where the method has a pure price]", type=float),
    say("--rounds", "Rounds that the adversary watches.  [default: 2, or 1]", type=int),
    say("--replicates", "Runs of each of the two worlds.  [default: 20,000 or more]", type=int),
    say("--confidence", "That the lower bound is true.", type=float, default=0.95),
    say("--seed", "Keys the noise of both worlds.", type=int, default=0),
    as_json(),
]


@click.command(name="audit")
@click.argument("method")
@takes(_OPTIONS)
def audit(
    method: str, form: str | None, epsilon: float | None, delta: float | None, rounds: int | None,
    replicates: int | None, confidence: float, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Attack METHOD (or `all`): play the worst distinguishing game known against the real code.

    Two tables differ in one row of one site.  The adversary knows both, sees every message of every round, and must say
    which one it was.  From thousands of runs of each follows a lower bound on epsilon, beside the claim; a bound above
    the claim refutes it.

    \b
      sottovoce audit mr_admm                  a corrected form: the bound should come near the claim, never above
      sottovoce audit dvp --form printed       a printed form whose claim is false
      sottovoce audit dvp --rounds 5 --epsilon 2 --json
      sottovoce audit all                      every claim of the package
    """
    if replicates is not None and replicates < 80:
        raise click.BadParameter(
            f"{replicates} is too few to see anything; use 2000 or more", param_hint="--replicates"
        )
    chosen = targets(form) if method == "all" else [(method, form or "corrected")]
    console = Console(stderr=True)
    found = []
    for name, kind in chosen:
        with console.status(f"{name} ({kind})") if console.is_terminal else _Silent():
            verdict = attack(
                name, kind, epsilon=epsilon, delta=delta, rounds=rounds, replicates=replicates, seed=seed,
                confidence=confidence,
            )  # fmt: skip
        found.append(verdict)
    if as_json:
        plain = [jsonable(one.to_dict()) for one in found]
        click.echo(json.dumps(plain if method == "all" else plain[0], indent=2))
        return
    _render(found, confidence)


class _Silent:
    def __enter__(self) -> None:
        """Nothing to show."""

    def __exit__(self, *_: object) -> None:
        """Nothing to take away."""


def _render(found: list[Verdict], confidence: float) -> None:
    table = Table(title="Claims under attack", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for header in ("method", "form"):
        table.add_column(header, no_wrap=True)
    for header in ("claimed", "proved", f"bound, {confidence:.0%}", "exact"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for one in found:
        exact = "" if one.exact_epsilon is None else f"{one.exact_epsilon:.3f}"
        lower = f"{math.floor(1000 * one.lower_bound) / 1000:.3f}"
        word = "[bold red]refuted[/]" if one.refuted else "[green]stands[/]"
        table.add_row(
            one.method, one.form, ceil_text(one.claimed_epsilon), ceil_text(one.proved_epsilon), lower, exact, word
        )
    console = Console()
    console.print(table)
    if len(found) == 1:
        one = found[0]
        at = f" at delta {one.delta:g}" if one.delta else ""
        console.print(f"[dim]{one.rounds} rounds, {one.replicates:,} runs of each world{at}; attack: {one.attack}[/]")
        console.print(f"[dim]the two tables: {one.why}[/]")
