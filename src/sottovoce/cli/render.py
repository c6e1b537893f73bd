"""What ``sottovoce train`` prints for people."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from ..training import Report


def ceil_text(epsilon: float, digits: int = 3) -> str:
    """Epsilon in text, rounded up: a guarantee is never printed smaller than it is."""
    if math.isinf(epsilon):
        return "inf"
    scale = 10**digits
    return f"{math.ceil(epsilon * scale - 1e-6) / scale:.{digits}f}"


def factor_text(epsilon: float) -> str:
    """``exp(epsilon)`` in text, rounded up to three digits."""
    power = math.floor(epsilon / math.log(10.0))
    if power > 6:
        return f"10^{power + 1}"
    step = 10.0 ** (power - 2)
    return f"{math.ceil(math.exp(epsilon) / step * (1.0 - 1e-12)) * step:.{max(0, 2 - power)}f}"


def privacy_words(privacy: dict[str, Any]) -> str:
    """The statement in sentences."""
    epsilon = privacy["epsilon"]
    if math.isinf(epsilon):
        reason = "the run drew no noise" if privacy["form"] == "corrected" else "nothing can be proved for this form"
        return f"[bold red]No privacy guarantee[/]: {reason} (epsilon = inf)."
    delta = "delta = 0 (pure)" if privacy["delta"] == 0 else f"delta = {privacy['delta']:g}"
    other = "with another in its place" if privacy["relation"] == "replace-one" else "with an empty one in its place"
    words = (
        f"[bold green]epsilon = {ceil_text(epsilon)}[/], {delta}, proved; accountant: {privacy['accountant']}, "
        f"{privacy['releases']} releases a site.\n"
        f"Protects {privacy['unit']} ({privacy['relation']}): whoever {privacy['adversary']} finds no outcome more "
        f"than {factor_text(epsilon)} times as likely with the row as {other}."
    )
    if "caveat" in privacy:
        words += f"\n[bold yellow]Not covered[/]: {privacy['caveat']}."
    if "printed_claim" in privacy:
        claim = privacy["printed_claim"]
        verdict = "is not proved" if claim < epsilon * (1 - 1e-9) else "holds, and is loose"
        words += f"\n[bold]As printed[/]: the paper claims {ceil_text(claim)}, which {verdict}."
        words += f" Assumes {privacy['assumes']}."
    return words


def render(report: Report, console: Console, saved: Path | None) -> None:
    """Print a report."""
    config, result, facts = report.config.run, report.result, report.result.facts
    sizes = facts.n[:, 0].astype(int)
    size = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
    console.print(
        f"[bold]{config.method}[/] ({config.form}) on [bold]{escape(report.config.data)}[/]: "
        f"{facts.n_nodes} sites of {size} rows, {escape(report.config.partition)} partition, "
        f"{escape(config.graph)} graph, {facts.d} features, "
        f"{result.rounds} of {config.rounds} rounds"
        + ("" if config.replicates == 1 else f", {config.replicates} replicates")
        + ("" if result.stopped == "finished" else f" [bold yellow](stopped: {result.stopped})[/]")
    )
    words = privacy_words(result.privacy)
    if not result.privacy["release"] and math.isfinite(result.privacy["epsilon"]):
        words += "\n[dim]Simulation: whoever knows --seed can remove the noise. Not a release.[/]"
    if "ledger" in result.privacy:
        book = result.privacy["ledger"]
        words += f"\nLedger: run {escape(book['run'])}; "
        words += f"{ceil_text(book['spent'])} spent of {min(book['budget']):g} for life."
    console.print(Panel(words, title="Privacy", title_align="left"))
    if report.test_errors.size:
        console.print(_accuracy(report, max(8, min(40, console.width - 34))))
    console.print(_sites(report))
    for note in report.notes:
        console.print(f"[yellow]note[/] {escape(note)}")
    if saved is not None:
        console.print(f"saved to {escape(str(saved))}", highlight=False)
    console.print(
        f"[dim]{result.seconds:.1f} s of training; {len(report.dataset.y_test):,} test rows, taken as public\n"
        "accuracies and 'positive %' read rows without noise: for the data's holder only[/]"
    )


def _accuracy(report: Report, bar: int) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name, justify in (("test accuracy", "left"), ("%", "right"), ("", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    errors = report.test_errors
    spread = f" ± {100 * errors.std(ddof=1):.2f}" if errors.size > 1 else ""
    lines = [("this run", float(errors.mean()), spread, "green")]
    for name, error in (("without privacy", report.nonprivate_test_error), ("majority", report.majority_test_error)):
        if error is not None:
            lines.append((name, error, "", "blue"))
    for name, error, extra, colour in lines:
        accuracy = 1 - error
        table.add_row(name, f"{100 * accuracy:.2f}{extra}", f"[{colour}]{'█' * round(bar * accuracy)}[/]")
    return table


def _sites(report: Report) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    headers = ["site", "rows", "positive %", "epsilon spent"]
    scored = report.site_test_errors.size > 0
    for header in headers + (["own test accuracy %"] if scored else []):
        table.add_column(header, justify="right")
    sizes, most = report.result.facts.n[:, 0].astype(int), 10
    for i, spent in enumerate(report.result.privacy["per_node"][:most]):
        own = [f"{100 * (1 - report.site_test_errors[:, i].mean()):.2f}"] if scored else []
        table.add_row(str(i), f"{sizes[i]:,}", f"{100 * report.positives[i]:.1f}", ceil_text(spent), *own)
    if len(sizes) > most:
        table.add_row("…", f"and {len(sizes) - most} more", "", "", *([""] if scored else []))
    return table
