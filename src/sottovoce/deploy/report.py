"""The pages at the end of a run: a site's own, and the hub's, which holds only what was released."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

import numpy as np

from ..data.move import Move
from ..errors import InvalidInput
from ..privacy.statement import DEMONSTRATION, Statement, ceil_text
from ..reports import STYLE, answer, sections
from ..runs.engine import FINISHED
from ..runs.simulate import Result
from ..util import files
from ..util.pages import frame, table
from ..util.plain import jsonable
from ..util.typing import Any, Array
from .answering import Found, document, record
from .hub import Hub
from .names import check_run
from .plan import LARGEST, Plan
from .session import Finished
from .strict import parse


def site_page(plan: Plan, name: str, finished: Finished) -> str:
    """A site's page, for its own people."""
    outcome = finished.outcome
    facts = [
        ("Run", plan.run), ("Plan", plan.digest), ("Rounds", f"{outcome.rounds} of {plan.rounds or plan.attempts}"),
        ("Ended", outcome.stopped if finished.by is None else f"{outcome.stopped}: {finished.by}"),
        ("Releases of this site", f"{finished.statement.made} of {finished.statement.planned}"),
        ("Rows", f"{plan.sites[plan.index(name)].rows:,}"),
        ("Lifetime budget of these rows", f"{ceil_text(finished.spent)} spent of {finished.budget:g}"),
        *[(f"Without {site}", why) for site, why in finished.lost.items()],
    ]  # fmt: skip
    body = [
        *_head(f"Site {name}", plan.demonstration), *_answers(plan, finished.found),
        _privacy(finished.statement), "<h2>The run</h2>", _list(facts),
        *_agreed(plan),
    ]  # fmt: skip
    if not plan.infers:  # of which the coefficients are above
        body += ["<h2>This site's classifier</h2>", _model(finished.model[None], [name])]
    return frame(f"{plan.run}: {name}", body, STYLE)


def hub_page(
    plan: Plan, status: dict[str, Any], models: Array, statement: Statement, found: Found | None = None,
    names: Sequence[str] = (),
) -> str:  # fmt: skip
    """The hub's page: messages and public facts.

    `status` is that of :meth:`sottovoce.deploy.hub.Hub.status`, `models` has shape (N, d), `statement` is the plan's;
    `names` are of the models, all sites of the plan if left out.
    """
    rows = [
        [escape(site["site"]), f"{site['rows']:,}", last_words(site, plan.attempts), escape(site["left"] or "no")]
        for site in status["sites"]
    ]
    unseen = "no rows, and no single share of a sum" if plan.summed else "no rows"
    body = [
        *_head(f"Run {plan.run}", plan.demonstration), *_answers(plan, found), _privacy(statement),
        "<h2>Sites</h2>",
        _table([("site", ""), (statement.counted, "n"), ("last message", ""), ("left", "")], rows), *_agreed(plan),
        *([] if plan.infers else ["<h2>Classifiers that were released</h2>",
                                  _model(models, ["all sites"] if plan.summed else names or plan.names)]),
        f'<p class="soft">Everything on this page was sent by the sites or agreed on before: a hub sees {unseen}.</p>',
    ]  # fmt: skip
    return frame(plan.run, body, STYLE)


ENDINGS = ("html", "npz", "json")
"""A run's results: its page, its classifiers for ``sottovoce predict``, and the rest as plain data."""


def finished(stem: Path, plan: Plan) -> dict[str, Any] | None:
    """The results of this very plan under `stem`, if there are any."""
    found = _summary(stem)
    return found if found is not None and found.get("plan") == plan.digest else None


def run_of(path: Path) -> str | None:
    """The run whose results a file holds; None if it holds none."""
    found = _summary(path.with_suffix("")) if path.suffix == ".json" else None
    return None if found is None else found.get("run")


def put_aside(stem: Path, plan: Plan) -> None:
    """Rename the results of another run: ``north.npz`` of the run trial-1 becomes ``north.trial-1.npz``.

    Nothing is overwritten: a second such name gets a number.  Raises as :func:`other_run`.
    """
    run = other_run(stem, plan)
    if run is None:
        return
    names = (run, *(f"{run}-{k}" for k in range(2, 10_000)))
    free = next(n for n in names if not any(_at(stem, f"{n}.{ending}").exists() for ending in ENDINGS))
    for ending in ENDINGS:
        if _at(stem, ending).exists():
            _at(stem, ending).replace(_at(stem, f"{free}.{ending}"))


def other_run(stem: Path, plan: Plan) -> str | None:
    """The name of another run whose results are under `stem`; None if there are none.

    Raises :class:`InvalidInput` if the files there are no results of a run.
    """
    if not _at(stem, "json").exists():
        return None  # or those of a run that was killed while it wrote them: they are written again
    found = _summary(stem) or {}
    try:
        check_run("run", found.get("run"))
    except InvalidInput:
        path, rule = str(_at(stem, "json")), "is in the way: it does not say of which run it is"
        raise InvalidInput("results", path, rule, "move it away; the same command goes on") from None
    return None if found.get("plan") == plan.digest else str(found["run"])


def sums_text(plan: Plan) -> str:
    """How many sites a sum of a plan needs, and how many may collude."""
    facts = plan.facts
    return f"over at least {facts.participants} of {facts.n_nodes} sites, {facts.colluders} of which may collude"


def asked_text(plan: Plan) -> str:
    """What a plan does, in a few words."""
    asks, parts = plan.asks, []
    parts.append("coefficients with intervals" if plan.infers else f"{plan.config.method}, {plan.rounds} rounds")
    if asks is not None and asks.evaluation is not None:
        held = sum(asks.held(site.rows) for site in plan.sites)
        parts.append(f"an evaluation on {held:,} held-out rows")
    return ", ".join(parts)


def last_words(site: dict[str, Any], rounds: int) -> str:
    """Progress of a site, an entry of :meth:`sottovoce.deploy.hub.Hub.sites`, in words."""
    if site["round"] > rounds:
        return "last model"
    return "none" if site["round"] < 0 else "greeting" if site["round"] == 0 else f"round {site['round']}"


def write_summary(stem: Path, summary: dict[str, Any]) -> None:
    """Write the last of the results: once it exists, all exist."""
    files.write("results", _at(stem, "json"), json.dumps(jsonable(summary), indent=1, allow_nan=False) + "\n")


def _at(stem: Path, ending: str) -> Path:
    return stem.with_name(f"{stem.name}.{ending}")


def _summary(stem: Path) -> dict[str, Any] | None:
    def numbers(found: Any) -> Any:
        if isinstance(found, dict):
            return {key: numbers(value) for key, value in found.items()}
        return float(found) if found in ("inf", "-inf") else found

    try:
        return dict(numbers(parse(_at(stem, "json").read_bytes(), LARGEST)))
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def write_hub(folder: Path, hub: Hub) -> bool:
    """Write ``hub.html`` and the hub's other results; False, and nothing written, while a last model is missing."""
    plan, models = hub.plan, hub.results.models()
    if models is None:
        return False
    statement, stem, status = plan.statement, folder / "hub", hub.status()
    put_aside(stem, plan)
    found, sites = hub.results.found(), [*hub.results.last_models()]
    files.write("report", folder / "hub.html", hub_page(plan, status, models, statement, found, sites))
    if not plan.infers:
        result(plan, models, statement, FINISHED, plan.config.rounds, hub.results.move()).save(folder / "hub.npz")
    answers = {} if found is None else document(plan, found)
    write_summary(stem, answers | status | {"privacy": statement.to_dict()})
    return True


def result(
    plan: Plan, models: Any, statement: Statement, stopped: str, rounds: int, move: Move | None = None
) -> Result:  # fmt: skip
    """Classifiers of a run, (sites, d), as a saved run for ``sottovoce predict``; `move` is the map of centred rows.

    It does not say how long the run took, because that depends on rows.
    """
    prepared = plan.prepared
    extra: dict[str, Any] = {"data": plan.run, "schema": plan.schema, "plan": plan.digest}
    if plan.asks is not None and plan.asks.evaluation is not None:
        extra["threshold"] = plan.asks.threshold
    return Result(
        plan.config, prepared.facts, prepared.algorithm.to_dict(), np.asarray(models)[None], rounds, stopped, [],
        statement, extra=extra, start=plan.start, centring=plan.centre,
        move=None if move is None else replace(move, mean=move.mean[None]),
    )  # fmt: skip


def _head(title: str, demonstration: bool) -> Iterable[str]:
    yield f"<h1>{escape(title)}</h1>"
    if demonstration:
        said = DEMONSTRATION.capitalize()
        yield f'<p class="lead refuted">{said}: its noise can be repeated by whoever has the plan.</p>'


def _answers(plan: Plan, found: Found | None) -> list[str]:
    """The answer in a sentence, further ones, and the tables; nothing without recipes."""
    if found is None:
        return []
    from ..answers.coefficients import with_sites  # which loads what most runs do not need

    plain = with_sites(record(plan, found))
    lead, points = answer(plain)
    listed = "".join(f"<li>{escape(point)}</li>" for point in points)
    return [f'<p class="lead">{escape(lead)}</p>', *([f"<ul>{listed}</ul>"] if points else []), *sections(plain)]


def _privacy(statement: Statement) -> str:
    words = "".join(f"<p><b>{escape(head)}</b>{escape(rest)}</p>" for head, rest in statement.words)
    return f"<h2>Privacy</h2>{words}"


def _agreed(plan: Plan) -> Iterable[str]:
    config, start = plan.config, plan.start
    begin = [] if start is None else [("Starting point", f"public ({start.kind}), digest {start.digest}")]
    capped = "" if np.isinf(config.gradient_cap) else f", gradients of rows up to {config.gradient_cap:g}"
    sums = [("Sums", sums_text(plan))] if plan.summed else []
    sums += [] if plan.centre is None else [("Rows", plan.centre.says)]
    yield "<h2>What was agreed on</h2>"
    yield _list([*begin,
        ("Method", f"{asked_text(plan)} ({config.form}), {config.loss} loss{capped}"), ("Graph", config.graph), *sums,
        ("Sites", str(len(plan.sites))), ("Features", str(plan.d)),
        ("Weights", f"C = {config.C:g}, rho = {config.rho:g}"), ("Longest message", f"{plan.norm_cap:.3g}"),
        ("Digest", plan.digest),
    ])  # fmt: skip


def _model(models: Array, names: Sequence[str]) -> str:
    size = np.linalg.norm(models, axis=1)
    rows = [[escape(name), str(models.shape[1]), f"{norm:.4g}"] for name, norm in zip(names, size, strict=True)]
    if len(names) > 1:
        mean = models.mean(axis=0)
        rows.append(["average", str(models.shape[1]), f"{np.linalg.norm(mean):.4g}"])
    return _table([("classifier of", ""), ("weights", "n"), ("length", "n")], rows)


def _list(entries: Iterable[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in entries) + "</dl>"


def _table(head: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> str:
    def line(row: Sequence[str]) -> str:
        cells = (f'<td class="{css}">{cell}</td>' for cell, (_, css) in zip(row, head, strict=True))
        return f"<tr>{''.join(cells)}</tr>"

    return table(head, map(line, rows))
