"""Reports and files of results at the end of a run, of a site and of the hub.

A run leaves three files (:data:`ENDINGS`) under a *stem*, a path without ending: ``north/north`` at
a site, ``hub/hub`` at the hub.  ``NAME.html`` is a page for people, ``NAME.npz`` the models, and
``NAME.json`` the *summary*, plain data, written last.  A site's page is for its own people; the
hub's holds only what the sites released.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..data.move import Move
from ..errors import InvalidInput
from ..privacy.statement import DEMONSTRATION, Statement, ceil_text
from ..reports import answer, sections
from ..runs.engine import FINISHED
from ..runs.simulate import Result
from ..util import files
from ..util.pages import Column, Table, render_template
from ..util.plain import infinities_to_text
from ..util.typing import Any, Array
from .answering import Found, results_document, results_to_dict
from .hub import Hub
from .names import check_run_name
from .plan import Plan
from .plan_file import LARGEST
from .session import Finished
from .strict import parse_json


def render_site_report(plan: Plan, name: str, finished: Finished) -> str:
    """Render a site's report of a run as a page, for the site's own people.

    Parameters
    ----------
    plan : Plan
    name : str
        The site.
    finished : Finished
        Its results.

    Returns
    -------
    str
        HTML.
    """
    outcome = finished.outcome
    ended = outcome.stopped
    if finished.by is not None:
        ended = f"{outcome.stopped}: {finished.by}"
    spent = f"{ceil_text(finished.spent)} spent of {finished.budget:g}"
    facts = [
        ("Run", plan.run),
        ("Plan", plan.digest),
        ("Rounds", f"{outcome.rounds} of {_number_of_rounds(plan)}"),
        ("Ended", ended),
        (
            "Releases of this site",
            f"{finished.statement.made} of {finished.statement.planned_releases}",
        ),
        ("Rows", f"{plan.sites[plan.index(name)].rows:,}"),
        ("Lifetime budget of these rows", spent),
        *[(f"Without {site}", why) for site, why in finished.lost.items()],
    ]
    classifier = None
    if not plan.is_inference:
        classifier = _table_of_classifiers(finished.model[None], [name])
    return render_template(
        "site.html",
        title=f"{plan.run}: {name}",
        site=name,
        demonstration=_demonstration_warning(plan),
        answers=_answers_for_page(plan, finished.found),
        privacy=finished.statement.words,
        facts=facts,
        agreed=_public_facts(plan),
        classifier=classifier,
    )


def render_hub_report(
    plan: Plan,
    status: dict[str, Any],
    models: Array,
    statement: Statement,
    found: Found | None = None,
    names: Sequence[str] = (),
) -> str:
    """Render the hub's report of a run, which holds messages and public facts only.

    Parameters
    ----------
    plan : Plan
    status : dict
        See :meth:`sottovoce.deploy.hub.Hub.status_as_dict`.
    models : array (sites, d)
        Last models; one for all sites in a run of sums.
    statement : Statement
        The plan's privacy statement.
    found : Found, optional
        Results of inference and evaluation.
    names : sequence of str
        The sites whose models these are, in their order; all sites of the plan if empty.

    Returns
    -------
    str
        HTML.
    """
    columns = [
        Column("site"),
        Column(statement.counted, "n"),
        Column("last message"),
        Column("left"),
    ]
    rows = [
        [
            site["site"],
            f"{site['rows']:,}",
            describe_progress(site, plan.exchange_table.attempts),
            site["left"] or "no",
        ]
        for site in status["sites"]
    ]
    owners = names or plan.names
    unseen = "no rows"
    if plan.uses_secure_sums:
        owners = ["all sites"]
        unseen = "no rows, and no single share of a sum"
    classifiers = None
    if not plan.is_inference:
        classifiers = _table_of_classifiers(models, owners)
    return render_template(
        "hub.html",
        title=plan.run,
        run=plan.run,
        demonstration=_demonstration_warning(plan),
        answers=_answers_for_page(plan, found),
        privacy=statement.words,
        sites=Table(columns, rows),
        agreed=_public_facts(plan),
        classifiers=classifiers,
        unseen=unseen,
    )


def _number_of_rounds(plan: Plan) -> int:
    """Return the number of rounds: of a training its own, of an inference all its attempts."""
    if plan.is_inference:
        return plan.exchange_table.attempts
    return plan.config.rounds


ENDINGS = ("html", "npz", "json")
"""Endings of a run's files of results: the page, the classifiers for ``sottovoce predict``, and the
summary as plain data.
"""


def read_finished_results(stem: Path, plan: Plan) -> dict[str, Any] | None:
    """Return the summary under `stem` if it is of this plan, by its digest; else None."""
    found = _read_summary(stem)
    if found is None or found.get("plan") != plan.digest:
        return None
    return found


def run_of_results(path: Path) -> str | None:
    """Return the name of the run whose summary a file holds; None for any other file."""
    if path.suffix != ".json":
        return None
    found = _read_summary(path.with_suffix(""))
    if found is None:
        return None
    return found.get("run")


def put_other_results_aside(stem: Path, plan: Plan) -> None:
    """Rename the results of another run, such as ``north.npz`` to ``north.trial-1.npz``.

    Nothing is overwritten: if that name is taken a number is added.  Does nothing if the results
    are of this plan; raises as :func:`run_in_the_way`.
    """
    run = run_in_the_way(stem, plan)
    if run is None:
        return
    names = (run, *(f"{run}-{k}" for k in range(2, 10_000)))
    # The same new name for all files of a run, so that one sees that they belong together.
    free = next(name for name in names if not _any_result_exists(stem, name))
    for ending in ENDINGS:
        if _file_beside(stem, ending).exists():
            _file_beside(stem, ending).replace(_file_beside(stem, f"{free}.{ending}"))


def _any_result_exists(stem: Path, name: str) -> bool:
    """Return True if a file of results exists under a name such as ``north.NAME.npz``."""
    return any(_file_beside(stem, f"{name}.{ending}").exists() for ending in ENDINGS)


def run_in_the_way(stem: Path, plan: Plan) -> str | None:
    """Return the name of another run whose results are under `stem`; None if there are none.

    Raises :class:`InvalidInput` if the files there are no results of a run.
    """
    if not _file_beside(stem, "json").exists():
        # No results, or those of a run that was killed while it wrote them: the summary is written
        # last, so the files are incomplete and will be written again.
        return None
    found = _read_summary(stem) or {}
    try:
        check_run_name("run", found.get("run"))
    except InvalidInput:
        path = str(_file_beside(stem, "json"))
        rule = "does not say which run it belongs to"
        remedy = "move it away and repeat the command"
        raise InvalidInput("results", path, rule, remedy) from None
    if found.get("plan") == plan.digest:
        return None
    return str(found["run"])


def describe_sums(plan: Plan) -> str:
    """Describe in words how many sites a sum of a plan needs, and how many may collude."""
    facts = plan.facts
    return (
        f"over at least {facts.participants} of {facts.n_nodes} sites, {facts.colluders} of which "
        "may collude"
    )


def describe_plan(plan: Plan) -> str:
    """Describe in a few words what a plan computes: method and rounds, inference, evaluation."""
    asks = plan.asks
    text = f"{plan.config.method}, {plan.config.rounds} rounds"
    if plan.is_inference:
        text = "coefficients with intervals"
    if asks is not None and asks.evaluation is not None:
        held = sum(asks.held(site.rows) for site in plan.sites)
        text += f", an evaluation on {held:,} held-out rows"
    return text


def describe_progress(site: dict[str, Any], rounds: int) -> str:
    """Return the progress of a site in words, such as ``round 3``.

    `site` is an entry of :meth:`sottovoce.deploy.hub.Hub.sites`, and `rounds` the number of rounds
    of its plan.
    """
    round = site["round"]
    if round > rounds:
        return "last model"
    if round < 0:
        return "none"
    if round == 0:
        return "greeting"
    return f"round {round}"


def write_summary(stem: Path, summary: dict[str, Any]) -> None:
    """Write the summary, ``NAME.json``, the last file of the results: once it exists, all exist."""
    text = json.dumps(infinities_to_text(summary), indent=1, allow_nan=False) + "\n"
    files.write_atomically("results", _file_beside(stem, "json"), text)


def _file_beside(stem: Path, ending: str) -> Path:
    return stem.with_name(f"{stem.name}.{ending}")


def _with_infinities(found: Any) -> Any:
    """Return plain data with infinite numbers, which JSON writes as text."""
    if isinstance(found, dict):
        return {key: _with_infinities(value) for key, value in found.items()}
    if found in ("inf", "-inf"):
        return float(found)
    return found


def _read_summary(stem: Path) -> dict[str, Any] | None:
    """Read the summary of results under `stem`; None if there is none, or it is broken."""
    try:
        return dict(_with_infinities(parse_json(_file_beside(stem, "json").read_bytes(), LARGEST)))
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def write_hub_results(folder: Path, hub: Hub) -> bool:
    """Write ``hub.html`` and the hub's other results to its `folder`.

    Returns False, and writes nothing, as long as the run has no last models.
    """
    plan = hub.plan
    models = hub.results.models()
    if models is None:
        return False
    statement = plan.planned_privacy.statement
    stem = folder / "hub"
    status = hub.status_as_dict()
    put_other_results_aside(stem, plan)
    found = hub.results.found()
    sites = [*hub.results.last_models_by_site()]
    page = render_hub_report(plan, status, models, statement, found, sites)
    files.write_atomically("report", folder / "hub.html", page)
    if not plan.is_inference:
        move = hub.results.move()
        saved = make_saved_result(plan, models, statement, FINISHED, plan.config.rounds, move)
        saved.save(folder / "hub.npz")
    answers = {}
    if found is not None:
        answers = results_document(plan, found)
    write_summary(stem, answers | status | {"privacy": statement.to_dict()})
    return True


def make_saved_result(
    plan: Plan,
    models: Any,
    statement: Statement,
    stopped: str,
    rounds: int,
    move: Move | None = None,
) -> Result:
    """Return the classifiers of a run as a saved run, for ``sottovoce predict``.

    The saved run has no times, because times depend on rows.

    Parameters
    ----------
    plan : Plan
    models : array (sites, d)
        Models of rows that are not centred.
    statement : Statement
        Privacy statement of the run.
    stopped : str
        Why the run ended: a reason of :mod:`sottovoce.runs.engine`.
    rounds : int
        Number of completed rounds.
    move : Move, optional
        The map by which the training centred its rows.

    Returns
    -------
    Result
    """
    prepared = plan.stages[0].prepared
    extra: dict[str, Any] = {"data": plan.run, "schema": plan.schema, "plan": plan.digest}
    if plan.asks is not None and plan.asks.evaluation is not None:
        extra["threshold"] = plan.asks.threshold
    # The first axis of all arrays of a saved run is that of its replicates, here one.
    replicated = None
    if move is not None:
        replicated = replace(move, mean=move.mean[None])
    return Result(
        plan.config,
        prepared.facts,
        prepared.algorithm.to_dict(),
        np.asarray(models)[None],
        rounds,
        stopped,
        [],
        statement,
        extra=extra,
        start=plan.start,
        centring=plan.centre,
        move=replicated,
    )


def _demonstration_warning(plan: Plan) -> str:
    """Return the warning that a demonstration protects nothing; empty for other runs."""
    if not plan.demonstration:
        return ""
    return DEMONSTRATION.capitalize()


def _answers_for_page(plan: Plan, found: Found | None) -> dict[str, Any] | None:
    """Return what templates/answers.html shows; None without recipes."""
    if found is None:
        return None
    # imported late: it loads modules that most runs do not need
    from ..answers.coefficients import add_site_effects

    plain = add_site_effects(results_to_dict(plan, found))
    lead, points = answer(plain)
    return {"lead": lead, "points": points, **sections(plain)}


def _public_facts(plan: Plan) -> list[tuple[str, str]]:
    """Return the public facts of a plan as rows of a table: label and text."""
    config, start = plan.config, plan.start
    capped = ""
    if not np.isinf(config.gradient_cap):
        capped = f", per-row gradients clipped at {config.gradient_cap:g}"
    found = []
    if start is not None:
        found.append(("Starting point", f"public ({start.kind}), digest {start.digest}"))
    found.append(("Method", f"{describe_plan(plan)} ({config.form}), {config.loss} loss{capped}"))
    found.append(("Graph", config.graph))
    if plan.uses_secure_sums:
        found.append(("Sums", describe_sums(plan)))
    if plan.centre is not None:
        found.append(("Rows", plan.centre.says))
    found += [
        ("Sites", str(len(plan.sites))),
        ("Features", str(plan.d)),
        ("Weights", f"C = {config.C:g}, rho = {config.rho:g}"),
        ("Norm bound of messages", f"{plan.norm_cap:.3g}"),
        ("Digest", plan.digest),
    ]
    return found


def _table_of_classifiers(models: Array, names: Sequence[str]) -> Table:
    """Return a table of the Euclidean norms of the sites' classifiers, and of their average.

    `models` is (sites, d), `names` their owners in order.
    """
    owners, vectors = list(names), list(models)
    if len(owners) > 1:
        owners.append("average")
        vectors.append(models.mean(axis=0))
    columns = [Column("classifier of"), Column("weights", "n"), Column("length", "n")]
    rows = [
        [owner, str(models.shape[1]), f"{np.linalg.norm(vector):.4g}"]
        for owner, vector in zip(owners, vectors, strict=True)
    ]
    return Table(columns, rows)
