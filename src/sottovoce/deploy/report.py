"""The pages at the end of a run: a site's own, and the hub's, which holds only what was released."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import numpy as np

from ..configuration import outline
from ..engine import FINISHED
from ..pages import frame, table
from ..privacy.chain import jsonable
from ..privacy.words import ceil_text, privacy_words
from ..simulate import Result
from ..typing import Any, Array
from .hub import Hub
from .plan import Plan
from .session import DEMONSTRATION, Finished


def site_page(plan: Plan, name: str, finished: Finished) -> str:
    """What one site keeps of a run; for its own people."""
    outcome = finished.outcome
    facts = [
        ("Run", plan.run), ("Plan", plan.digest), ("Rounds", f"{outcome.rounds} of {plan.config.rounds}"),
        ("Ended", outcome.stopped), ("Releases of this site", str(finished.privacy["releases"])),
        ("Rows", f"{plan.sites[plan.index(name)].rows:,}"),
        ("Lifetime budget of these rows", f"{ceil_text(finished.spent)} spent of {finished.budget:g}"),
        ("Seconds", f"{finished.seconds:.1f}, {finished.waited:.1f} of them with messages"),
    ]  # fmt: skip
    body = [
        *_head(f"Site {name}", plan.demonstration), _privacy(finished.privacy), "<h2>The run</h2>", _list(facts),
        *_agreed(plan), "<h2>This site's classifier</h2>", _model(finished.model[None], [name]),
    ]  # fmt: skip
    return frame(f"{plan.run}: {name}", body)


def hub_page(plan: Plan, status: dict[str, Any], models: Array, privacy: dict[str, Any]) -> str:
    """What a hub knows of a run: messages and public facts.

    Parameters
    ----------
    plan : Plan
    status : dict
        Of :meth:`sottovoce.deploy.hub.Hub.status`.
    models : array (N, d)
    privacy : dict
        The statement of the plan.
    """
    rows = [
        [escape(site["site"]), f"{site['rows']:,}", last_words(site, plan.config.rounds), escape(site["left"] or "no")]
        for site in status["sites"]
    ]
    body = [
        *_head(f"Run {plan.run}", plan.demonstration), _privacy(privacy), "<h2>Sites</h2>",
        _table([("site", ""), ("rows", "n"), ("last message", ""), ("left", "")], rows), *_agreed(plan),
        "<h2>Classifiers that were released</h2>", _model(models, plan.names),
        '<p class="soft">Everything on this page was sent by the sites or agreed on before: a hub sees no rows.</p>',
    ]  # fmt: skip
    return frame(plan.run, body)


ENDINGS = ("html", "npz", "json")
"""A run's results: its page, its classifiers for ``sottovoce predict``, and the rest as plain data."""


def finished(stem: Path, plan: Plan) -> dict[str, Any] | None:
    """The results of this very plan, if they stand under `stem` already."""
    found = _summary(stem)
    return found if found is not None and found.get("plan") == plan.digest else None


def put_aside(stem: Path, plan: Plan) -> None:
    """Keep the results of another run: ``north.npz`` of the run trial-1 becomes ``north.trial-1.npz``."""
    found = _summary(stem)
    if found is not None and found.get("plan") != plan.digest:
        for ending in ENDINGS:
            path = _at(stem, ending)
            if path.exists():
                path.replace(_at(stem, f"{found.get('run')}.{ending}"))


def last_words(site: dict[str, Any], rounds: int) -> str:
    """How far a site is, of :meth:`sottovoce.deploy.hub.Hub.sites`, in words."""
    if site["round"] > rounds:
        return "last model"
    return "none" if site["round"] < 0 else "greeting" if site["round"] == 0 else f"round {site['round']}"


def write_summary(stem: Path, summary: dict[str, Any]) -> None:
    """The last of the results: when it stands, all do."""
    text = json.dumps(jsonable(summary), indent=1, allow_nan=False)
    _at(stem, "json").write_text(text + "\n", encoding="utf-8")


def _at(stem: Path, ending: str) -> Path:
    return stem.with_name(f"{stem.name}.{ending}")


def _summary(stem: Path) -> dict[str, Any] | None:
    def numbers(found: dict[str, Any]) -> dict[str, Any]:
        return {key: float(value) if value in ("inf", "-inf") else value for key, value in found.items()}

    try:
        return dict(json.loads(_at(stem, "json").read_text(encoding="utf-8"), object_hook=numbers))
    except (OSError, ValueError, TypeError):
        return None


def write_hub(folder: Path, hub: Hub) -> bool:
    """Write ``hub.html`` and the rest of a run that all sites have left; whether no last model is missing."""
    plan, models = hub.plan, hub.models()
    if models is None:
        return False
    privacy = outline(plan.config, plan.prepared.facts.n, plan.d)["privacy"]
    stem, status = folder / "hub", hub.status()
    put_aside(stem, plan)
    (folder / "hub.html").write_text(hub_page(plan, status, models, privacy), encoding="utf-8")
    result(plan, models, privacy, FINISHED, 0.0).save(folder / "hub.npz")
    write_summary(stem, status | {"privacy": privacy})
    return True


def result(plan: Plan, models: Any, privacy: dict[str, Any], stopped: str, seconds: float) -> Result:
    """Classifiers of a run as a saved run, for ``sottovoce predict``; `models` has shape (sites, d)."""
    prepared = plan.prepared
    extra = {"data": plan.run, "schema": plan.schema, "plan": plan.digest}
    return Result(
        plan.config, prepared.facts, prepared.algorithm.to_dict(), np.asarray(models)[None], plan.config.rounds,
        stopped, [], privacy, seconds, extra,
    )  # fmt: skip


def _head(title: str, demonstration: bool) -> Iterable[str]:
    yield f"<h1>{escape(title)}</h1>"
    if demonstration:
        said = DEMONSTRATION.capitalize()
        yield f'<p class="lead refuted">{said}: its noise can be repeated by whoever has the plan.</p>'


def _privacy(privacy: dict[str, Any]) -> str:
    words = "".join(f"<p><b>{escape(head)}</b>{escape(rest)}</p>" for head, rest in privacy_words(privacy))
    return f"<h2>Privacy</h2>{words}"


def _agreed(plan: Plan) -> Iterable[str]:
    config = plan.config
    yield "<h2>What was agreed on</h2>"
    yield _list([
        ("Method", f"{config.method} ({config.form}), {config.loss} loss"), ("Graph", config.graph),
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
