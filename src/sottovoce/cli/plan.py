"""``sottovoce plan``: what a run costs and how much noise it means, before there are any data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..algorithms import REGISTRY
from ..answers.assumed import Assumed, expected_shares
from ..data import load
from ..data.expected import expected_rows
from ..data.schema import Schema
from ..data.synthetic_tables import Expected
from ..deploy.answering import ahead
from ..deploy.asks import Asks
from ..deploy.invitation import plan_code
from ..deploy.plan import Member, Plan, check_public
from ..deploy.waits import Waits
from ..errors import InvalidInput
from ..network.dropout import outlook
from ..network.graphs import MOST_NODES, make_graph
from ..privacy.statement import Statement, ceil_text
from ..problem.losses import make_loss
from ..runs import auto_search
from ..runs.auto_search import choose, declared
from ..runs.centre import decide, frame_of
from ..runs.config import RunConfig
from ..runs.prepare import outline, quorum
from ..runs.public import Public, start_of
from ..runs.simulate import Result
from ..util import files
from ..util.plain import jsonable
from .options import FILE, NUMBER, as_json, knob_options, left_open, method_options, run_config, say, takes
from .render import privacy
from .screen import Console, escape, listing

_SHOWN = 8
_OPTIONS = [
    say("--sizes", "Rows of a site, or of each, separated by commas.", type=NUMBER, default=8000.0),
    say("--nodes", "Number of sites, if --sizes is one number.", type=int, default=5),
    say("--features", "Features, the constant one included.", type=int, default=36),
    say("--partition", "How the sites will differ, for --method auto: iid, or as for train.", default="iid"),
    say("--centre/--no-centre", "Whether the means of all columns are released first, where it pays: with --schema.",
        default=True),
    *method_options(),
    *knob_options(),
    say("--life", "Lifetime budget of a site's ledger: also say what the run takes of it.", type=float),
    say("--write", "Write the plan that separate sites agree on to this file.", type=FILE),
    say("--run", "Name of the run in that plan, new to every site's ledger.", name="run_name"),
    say("--site", "The .joined of `site join` or .public.json of `site init`; once a site, in the graph's order.",
        name="sites", type=FILE, multiple=True),
    say("--schema", "TOML file by which sites encode their rows: for that plan, and for --method auto.", type=FILE),
    say("--start", "Start from the model of this earlier run, a file of `train --save` or a hub's.", type=FILE),
    say("--public", "Start from public rows: a table under the schema of that plan.", type=FILE),
    say("--inference", "Coefficients with intervals in place of training: with --schema also which standard errors to "
        "expect, and from how many rows on they are printed.", is_flag=True),
    say("--site-constants/--one-constant", "Of inference: whether every site has a constant.", default=True),
    say("--expect-positives", "Of inference: the share of positive rows that you expect.", type=float,
        default=Assumed().positives),
    say("--expect-share", "Of inference: the share of a level that you expect among all rows, as 'stage: b=0.03'; "
        "may be repeated.", name="expect_shares", multiple=True),
    say("--expect-correlation", "Of inference: the correlation that you expect of each number with the next.",
        type=float, default=Assumed().correlation),
    say("--expect-residuals", "Of inference on numbers: standard deviation of their residuals, over the width of the "
        "label's bounds.", type=float, default=Assumed().residuals),
    say("--evaluation", "That plan ends with an evaluation of held-out rows, with this epsilon of theirs.", type=float),
    say("--holdout", "Share of every site's rows that is held out for it.", type=float, default=0.2),
    say("--cut", "Of the evaluation: from which probability on a row is positive.", type=float, default=0.5),
    say("--by", "Of the evaluation: also for every level of this column."),
    say("--norm-cap", "Longest message of that plan.  [default: from public facts]", type=float),
    say("--dropout", "Probability of each site to be lost in a round: also say how the run would end.", type=float,
        default=0.0),
    say("--deadline", "Of that plan: seconds that a round waits for its last site, then the run goes on without it.",
        type=float, default=Waits.deadline),
    say("--patience", "The same where it may not go on without it; then the run ends.", type=float,
        default=Waits.patience),
    as_json(),
]  # fmt: skip


@click.command(name="plan")
@takes(_OPTIONS)
def plan(
    sizes: float | tuple[float, ...], nodes: int, features: int, partition: str, as_json: bool, write: Path | None,
    run_name: str | None, sites: tuple[Path, ...], schema: Path | None, norm_cap: float | None, start: Path | None,
    public: Path | None, inference: bool, site_constants: bool, expect_positives: float,
    expect_shares: tuple[str, ...], expect_correlation: float, expect_residuals: float, evaluation: float | None,
    holdout: float, cut: float, by: str | None, life: float | None, centre: bool, dropout: float, deadline: float,
    patience: float, **knobs: Any,
) -> None:  # fmt: skip
    """Price a run from sizes alone: a budget gives the noise, --noise gives the price.  No data are read.

    \b
      sottovoce plan --epsilon 0.5                             which method
      sottovoce plan --method dvp --rounds 30 --epsilon 1      which noise
      sottovoce plan --method dvp --rounds 30 --noise 0.3      which epsilon
      sottovoce plan --method dvp --sizes 700,7000 --epsilon 2 uneven sites
      sottovoce plan --write plan.json --run trial-1 --schema s.toml \\
          --site north.public.json --site east.public.json
      sottovoce plan --inference --schema s.toml --sizes 2000 --epsilon 3
                                                               standard errors
      sottovoce plan --write plan.json ... --inference         coefficients
      sottovoce plan --write plan.json ... --evaluation 0.5    how good it is
    """
    asks = asked(inference, site_constants, evaluation, holdout, cut, by)
    assumed = Assumed(expect_positives, expect_correlation, expect_residuals, expect_shares)
    if evaluation is not None and write is None:
        raise InvalidInput("asks", None, "answers are asked in the sites' plan", "add --write, or leave them out")
    if inference and schema is None:
        rule = "coefficients are those of a schema's columns"
        raise InvalidInput("inference", True, rule, "add --schema, and --write for the sites' plan")
    if life is not None and not 0.0 < life < np.inf:
        raise InvalidInput("life", life, "must be above 0 and finite", "give the epsilon of `site init`")
    members, seed = _members(sites, write), RunConfig().seed
    encoding = None if schema is None else Schema.from_toml(schema)
    if inference and encoding is not None:
        expected_shares(encoding, expect_shares)  # before anything is written
    if write is not None:
        files.check("write", write, reads=(schema, start, public, *sites))
        sizes, seed = tuple(float(member.rows) for member in members), None
        features = 0 if encoding is None else encoding.n_features
        if run_name is None or not features:
            raise InvalidInput("write", str(write), "the sites' plan needs --run and --schema", "give both")
    if (start is not None or public is not None) and (write is None or None not in (start, public)):
        rule = "a starting point changes no price, and stands in the sites' plan, which has one"
        raise InvalidInput("start", None, rule, "give one of --start and --public, with --write")
    n = np.atleast_1d(np.asarray(sizes, dtype=float))
    if np.any((n < 1) | (n != np.floor(n))):
        raise InvalidInput("sizes", n.tolist(), "must be whole numbers of rows, at least 1", "use e.g. 8000")
    if n.size == 1 and write is None:
        if not 1 <= nodes <= MOST_NODES:
            raise InvalidInput("nodes", nodes, f"must be at least 1 and at most {MOST_NODES:,}", "use e.g. 5")
        n = np.repeat(n, nodes)
    if features < 1:
        raise InvalidInput("features", features, "must be at least 1", "use e.g. 36")
    config, choice = run_config(knobs, seed=seed, priced=True), None
    if inference and write is None:
        assert encoding is not None
        from ..answers.forecast import without_sites  # only this needs recipes

        _show(without_sites(encoding, config, n, site_constants, assumed, life), as_json)
        return
    if encoding is not None and encoding.person is not None:  # then sizes are numbers of people
        config = replace(config, rows_per_person=encoding.person.rows)
    if asks is not None:
        n = np.array([float(member.rows - asks.held(member.rows)) for member in members])
        if inference and config.auto and left_open() != auto_search.KNOBS:
            rule = "inference takes Newton steps of its own"
            raise InvalidInput("inference", True, rule, "leave the knobs of methods out")
    same = encoding is not None and encoding.n_features == features
    decision, centring = None, None
    if centre and encoding is not None and same and not inference and make_loss(config.loss).outputs == 1:
        decision = decide(config, n, features, frame_of(encoding))
        centring = decision.centring
    if config.auto and not inference:
        likely: Expected | None = expected_rows(encoding) if encoding is not None and same else None
        if public is not None:
            likely = Public.of(load(public, schema=encoding, test_share=None), config, len(n)).expected() or likely
        choice = choose(
            config,
            n,
            features,
            heterogeneity=declared(partition),
            free=left_open(),
            expected=likely,
            centre=centring,
        )
        config = choice.config
    caveats, begin = [None if encoding is None else encoding.caveat], None
    if write is not None:
        assert encoding is not None
        check_public(str(run_name), config, members, features)
        if public is not None:
            begin = Public.of(load(public, schema=encoding, test_share=None), config, len(members)).start
        elif start is not None:
            begin = start_of(Result.load(start), config, encoding.n_features, encoding)
        caveats += [] if begin is None else [begin.caveat]
    outlined = {} if inference else outline(config, n[:, None], features, caveat=caveats, life=life, centre=centring)
    if dropout and not inference:
        least, _ = quorum(config, len(n))
        graph, method = make_graph(config.graph, len(n), config.seed or 0), REGISTRY[config.method]
        outlined["dropout"] = outlook(
            dropout, graph, config.rounds, least=least, summed=least > 0, induced=bool(method.induced)
        )
    if decision is not None:
        outlined["centre"] = decision.to_dict()
    if write is not None:
        assert encoding is not None and run_name is not None
        agreed = Plan.make(
            run_name, config, members, features, schema=encoding.to_dict(), norm_cap=norm_cap, start=begin, asks=asks,
            centre=centring, waits=Waits(deadline, patience),
        )  # fmt: skip
        agreed.write(write)
        outlined |= ahead(agreed, outlined.get("releases", []), life, assumed)
        outlined |= {
            "plan": str(write),
            "digest": agreed.digest,
            "code": plan_code(agreed.digest),
            "sites": list(agreed.names),
        }
    if choice is not None:
        outlined["choice"] = choice.to_dict()
    _show(outlined, as_json)


def _show(outlined: dict[str, Any], as_json: bool) -> None:
    """Print a plan, as JSON or for people."""
    if as_json:
        click.echo(json.dumps(jsonable(outlined)))
    else:
        _render(outlined, Console())


def asked(
    inference: bool, site_constants: bool, evaluation: float | None, holdout: float, cut: float, by: str | None
) -> Asks | None:
    """Answers that the options ask for in addition to training; None without any."""
    if not inference and evaluation is None:
        return None
    share = 0.0 if evaluation is None else holdout
    return Asks(inference, inference and site_constants, evaluation, share, cut, by)


def _members(files: tuple[Path, ...], write: Path | None) -> tuple[Member, ...]:
    if bool(files) != (write is not None):
        raise InvalidInput("site", None, "--site and --write belong together", "give both, or --sizes alone")
    return tuple(map(Member.read, files))


def _lifelong(said: dict[str, Any]) -> str:
    told = f"a ledger with a lifetime budget of {ceil_text(said['least'])} can pay for this run, and is used up by it"
    if "budget" in said and said["runs"]:
        told += (
            f"; of one of {said['budget']:g} it takes {ceil_text(said['first'])} as the first run and "
            f"{ceil_text(said['later'])} as a later one, {said['runs']} times in all"
        )
    elif "budget" in said:
        told += f"; one of {said['budget']:g} cannot pay for it"
    elif said["accountant"] != "pure":
        told += "; of a larger one its first run takes more, its later ones less: see --life"
    return told


def _render(outlined: dict[str, Any], console: Console) -> None:
    sizes, releases, said = outlined["n"], outlined["releases"], outlined["privacy"]
    stated = Statement.from_dict(said)
    size = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    console.print(
        f"[bold]{outlined['method']}[/] ({said['form']}): {len(sizes)} sites of {size} {stated.counted}, "
        f"{escape(outlined['graph'])} graph, {outlined['features']} features, {outlined['rounds']} rounds: a plan, no "
        "data were read"
    )
    if "choice" in outlined:
        console.print(f"[bold]auto[/] {escape(outlined['choice']['says'])}", highlight=False)
    console.print(privacy(stated.guarantee))  # what makes a simulation is not decided yet
    if "centre" in outlined:
        console.print(escape(outlined["centre"]["says"]), highlight=False)
    parts = (
        ">epsilon\nin all",
        ">epsilon of its\nfirst release",
        ">noise of its\nfirst release",
        ">noise of\nits last",
    )
    table = listing(">site", f">{stated.counted}", *parts, vertical="bottom")
    for i, rows in enumerate(sizes[:_SHOWN]):
        first, last = releases[0], releases[-1]
        noise = (f"{first['spread'][i]:.3g}", f"{last['spread'][i]:.3g}")
        name = escape(outlined["sites"][i]) if "sites" in outlined else str(i)
        table.add_row(name, f"{rows:,}", *(ceil_text(e[i]) for e in (said["per_node"], first["epsilon"])), *noise)
    if len(sizes) > _SHOWN:
        table.add_row("…", f"and {len(sizes) - _SHOWN} more", "", "", "", "")
    console.print(table)
    if (dropout := outlined.get("dropout")) is not None:
        console.print(
            f"if a site is lost with probability {dropout['rate']:g} a round, {dropout['finishes']:.1%} of runs come "
            f"to their end, with {dropout['sites_left']:.1f} sites on average; the others end after "
            f"{dropout['rounds_if_not']:.1f} rounds; the price stays", highlight=False,
        )  # fmt: skip
    if outlined["life"] is not None:
        console.print(_lifelong(outlined["life"]), highlight=False)
    schedule = outlined["algorithm"].get("noise")
    if schedule is not None:
        factor = schedule["factor"]
        shown = f"{factor:.4g}" if isinstance(factor, float | int) else ", ".join(f"{f:.4g}" for f in factor[:_SHOWN])
        console.print(f"noise parameter of the method (`--noise`): {shown} times {schedule['start']}", highlight=False)
    for part in outlined.get("parts", [])[1:]:
        console.print(
            f"{sum(outlined['held']):,} of {sum(sizes):,} {stated.counted} are held out, never trained on, and cost "
            f"{ceil_text(part['epsilon'])} each; the others cost {ceil_text(outlined['parts'][0]['epsilon'])}",
            highlight=False,
        )
    if outlined.get("forecast"):
        _render_forecast(outlined["forecast"], console)
    if "plan" in outlined:
        wrote = f"wrote {escape(outlined['plan'])}, digest {outlined['digest']}"
        console.print(
            f"{wrote}\nthe plan's code, for the telephone: {outlined['code']}", soft_wrap=True, highlight=False
        )
    console.print(
        "[dim]noise: standard deviation of a coordinate of what a site sends, at most; weights of a useful classifier "
        "are of order 1[/]"
    )


def _render_forecast(said: dict[str, Any], console: Console) -> None:
    """From how many rows on coefficients are printed, and how sure they will be."""
    fewest, most = said["rows_half_range"]
    console.print(
        f"half of the coefficients are printed from about {said['rows_half']:,.0f} rows on as real tables go (four in "
        f"five: from {fewest:,.0f} to {most:,.0f}), and all from {said['rows_needed']:,.0f} on, or from "
        f"{said['rows_even']:,.0f} on if columns spread over their ranges and are unrelated; there are "
        f"{said['rows']:,.0f}", highlight=False,
    )  # fmt: skip
    heads = ("<coefficient", ">standard error\nto expect", ">without\nprivacy", ">printed\nin")
    table = listing(*heads, vertical="bottom")
    for line in said["standard_errors"]:
        name = line["name"] if line["level"] is None else f"{line['name']}: {line['level']}"
        error = "refused" if line["standard_error"] is None else f"{line['standard_error']:.3g}"
        table.add_row(escape(name), error, f"{line['without_privacy']:.3g}", f"{line['printed']:.0%}")
    console.print(table)
    console.print(
        "[dim]standard errors: if nine in ten numbers fill their declared ranges, "
        f"{escape(said['expects'])}; by made-up rows, no data were read[/]", highlight=False,
    )  # fmt: skip
