"""``sottovoce plan``: what a run costs and how much noise it means, before there are any data.

Sizes of sites, a budget and perhaps a schema are enough.  :func:`plan` prices a run
(:func:`sottovoce.runs.prepare.outline_run`), or forecasts the standard errors of an inference
(:mod:`sottovoce.answers.forecast`); with ``--write`` it also writes the plan that separate sites
agree on (:mod:`sottovoce.deploy.proposal`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.table import Table

from ..algorithms import REGISTRY
from ..answers.assumed import parse_expected_shares
from ..data import load
from ..data.expected import expected_rows
from ..data.schema import Schema
from ..data.synthetic_tables import Expected
from ..errors import InvalidInput
from ..network.dropout import simulate_dropout
from ..network.graphs import MOST_NODES, make_graph
from ..privacy.statement import Statement, ceil_text
from ..problem.losses import make_loss
from ..runs.centre import Centring, Decision, decide_centring, frame_of_schema
from ..runs.config import RunConfig
from ..runs.defaults import KNOBS, with_loss_of_task
from ..runs.prepare import outline_run, quorum_of_sums
from ..runs.public import Public, start_from_result
from ..runs.simulate import Result
from ..runs.start import Start
from ..util import files
from ..util.plain import infinities_to_text
from ..util.typing import Array
from .options import decorate_with_options, knobs_left_open, make_run_config
from .plan_options import FEATURES, PLAN_OPTIONS, PlanOptions
from .render import make_privacy_panel
from .run_command import RunCommand, save_config
from .screen import Console, escape_markup, make_listing

if TYPE_CHECKING:
    from ..deploy.members import Member  # only the sites' plan needs `deploy`
    from ..runs.auto_search import Choice

_SHOWN = 8
"""Sites in the table of noise, and noise factors of a method; a run may have thousands."""
_EXAMPLES = """
\b
Examples:
  sottovoce plan --epsilon 0.5                              which method
  sottovoce plan --method dvp --rounds 30 --epsilon 1       which noise
  sottovoce plan --method dvp --rounds 30 --set noise=0.3   which epsilon
  sottovoce plan --inference --schema s.toml --sizes 2000 --epsilon 3
  sottovoce plan --write plan.json --run trial-1 --schema s.toml \\
      --site north.public.json --site east.public.json
"""


@dataclass(frozen=True)
class Sites:
    """The sites that a plan is for.

    Parameters
    ----------
    members : tuple of Member
        The sites of an agreed plan; none if only sizes are known.
    sizes : array (N,)
        Rows of every site that the run is priced for: those that are not held out; people where
        they are the unit.
    features : int
        Columns of an encoded row.
    schema : Schema or None
        Public facts of their tables.
    """

    members: tuple[Member, ...]
    sizes: Array
    features: int
    schema: Schema | None

    def model_entries(self, config: RunConfig) -> int:
        """Return the entries of a model: a weight for each feature and margin of the loss."""
        return self.features * make_loss(config.loss).outputs

    @property
    def matching_schema(self) -> Schema | None:
        """The schema, if encoded rows have its number of features; else None."""
        if self.schema is None or self.schema.n_features != self.features:
            return None
        return self.schema


@click.command(
    name="plan", cls=RunCommand, epilog=_EXAMPLES, context_settings={"max_content_width": 100}
)
@decorate_with_options(PLAN_OPTIONS)
def plan(**parameters: Any) -> None:
    """Price a run from sizes alone, without data: noise from a budget, or epsilon from a noise.

    With --write it is the plan that separate sites agree on.
    """
    options = PlanOptions.from_parameters(parameters)
    check_planned_answers(options)
    members = read_plan_members(options)
    schema = None
    if options.schema is not None:
        schema = Schema.from_toml(options.schema)
    if options.inference and schema is not None:
        # Checks the shares before anything is written.
        parse_expected_shares(schema, options.expect_share)
    check_plan_outputs(options, schema)
    sites = make_priced_sites(options, members, schema)
    # A plan with a seed would be a demonstration, whose noise anybody can repeat.
    seed = None
    if options.write is None:
        seed = RunConfig().seed
    config = make_run_config(options.run, seed=seed, priced=True)
    if schema is not None and not options.inference:
        config = with_loss_of_task(config, schema.task)
    if options.inference and options.write is None:
        assert schema is not None
        found = forecast_inference(options, config, sites.sizes, schema)
    else:
        found = outline_and_write_plan(options, *without_held_out_rows(options, config, sites))
    save_config(options.save_config)
    _print_plan(found, options.as_json)


def forecast_inference(
    options: PlanOptions, config: RunConfig, sizes: Array, schema: Schema
) -> dict[str, Any]:
    """Forecast the price and the standard errors of an inference over sites of these sizes.

    Parameters
    ----------
    options : PlanOptions
        What the command line and its file ask for.
    config : RunConfig
        The run.
    sizes : array (N,)
        Rows of every site.
    schema : Schema
        Public facts of the tables.

    Returns
    -------
    dict
        Plain data.
    """
    # Only a forecast needs this module.
    from ..answers.forecast import forecast_from_schema

    return forecast_from_schema(
        schema, config, sizes, options.site_constants, options.forecast_assumptions, options.life
    )


def without_held_out_rows(
    options: PlanOptions, config: RunConfig, sites: Sites
) -> tuple[RunConfig, Sites]:
    """Return the run and its sites without held-out rows, in the schema's unit of privacy.

    Where the schema declares people with several rows, sizes are numbers of people.

    Parameters
    ----------
    options : PlanOptions
        What the command line and its file ask for.
    config : RunConfig
        The run as typed.
    sites : Sites
        The sites that it is priced for.

    Returns
    -------
    config : RunConfig
    sites : Sites

    Raises
    ------
    InvalidInput
        If an inference is asked for together with a knob of a method.
    """
    asks = options.asks
    # Where the schema declares people with several rows, sizes are numbers of people.
    if sites.schema is not None and sites.schema.person is not None:
        config = replace(config, rows_per_person=sites.schema.person.rows)
    if asks is None:
        return config, sites
    trained = [float(member.rows - asks.held(member.rows)) for member in sites.members]
    # An inference has no method, so a knob of one that was typed would do nothing.
    if options.inference and config.auto and knobs_left_open() != KNOBS:
        rule = "inference has no settings of methods"
        raise InvalidInput("inference", True, rule, "remove the settings of methods")
    return config, replace(sites, sizes=np.array(trained))


def check_planned_answers(options: PlanOptions) -> None:
    """Refuse answers that this plan cannot ask."""
    # Building them refuses an invalid threshold or share.
    _ = options.asks
    if options.evaluation is not None and options.write is None:
        raise InvalidInput(
            "asks", None, "an evaluation needs a plan of sites", "add --write, or remove it"
        )
    if options.inference and options.schema is None:
        rule = "coefficients need the columns of a schema"
        raise InvalidInput("inference", True, rule, "add --schema, and --write for the sites' plan")
    if options.life is not None and not 0.0 < options.life < np.inf:
        raise InvalidInput(
            "life", options.life, "must be above 0 and finite", "give the epsilon of `site init`"
        )


def read_plan_members(options: PlanOptions) -> tuple[Member, ...]:
    """Read the sites that agree on the plan; none if only sizes are given."""
    if bool(options.sites) != (options.write is not None):
        raise InvalidInput(
            "site", None, "--site and --write belong together", "give both, or --sizes alone"
        )
    if not options.sites:
        return ()
    from ..deploy.members import Member

    return tuple(map(Member.read, options.sites))


def check_plan_outputs(options: PlanOptions, schema: Schema | None) -> None:
    """Refuse files that cannot be written, and a plan of sites that lacks something."""
    reads = (options.schema, options.start, options.public, options.config, *options.sites)
    for name, path in (("write", options.write), ("save_config", options.save_config)):
        if path is not None:
            files.check_writable_path(name, path, reads=reads)
    if options.write is not None and (
        options.run_name is None or schema is None or not schema.n_features
    ):
        rule = "the sites' plan needs --run, and --schema with columns"
        raise InvalidInput("write", str(options.write), rule, "give both")
    starts = [path for path in (options.start, options.public) if path is not None]
    if starts and (options.write is None or len(starts) > 1):
        rule = "a starting point belongs in the sites' plan and changes no price"
        raise InvalidInput("start", None, rule, "set one of start and public, with --write")


def make_priced_sites(
    options: PlanOptions, members: tuple[Member, ...], schema: Schema | None
) -> Sites:
    """Return the sites of a plan, from the files of its members or from typed sizes.

    Parameters
    ----------
    options : PlanOptions
        What the command line and its file ask for.
    members : tuple of Member
        The sites of an agreed plan; none if only sizes are known.
    schema : Schema or None
        Public facts of the tables; needed for an agreed plan.

    Returns
    -------
    Sites

    Raises
    ------
    InvalidInput
        If a size, the number of sites or of features is out of range.
    """
    if options.write is not None:
        assert schema is not None
        rows = np.array([float(member.rows) for member in members])
        return Sites(members, _checked_sizes(rows), schema.n_features, schema)
    sizes = _checked_sizes(np.atleast_1d(np.asarray(options.sizes, dtype=float)))
    if sizes.size == 1:
        if not 1 <= options.nodes <= MOST_NODES:
            rule = f"must be at least 1 and at most {MOST_NODES:,}"
            raise InvalidInput("nodes", options.nodes, rule, "use e.g. 5")
        sizes = np.repeat(sizes, options.nodes)
    features = options.features
    if features is None:
        features = FEATURES
        if schema is not None and schema.n_features:
            features = schema.n_features
    if features < 1:
        raise InvalidInput("features", features, "must be at least 1", "use e.g. 36")
    return Sites(members, sizes, features, schema)


def _checked_sizes(sizes: Array) -> Array:
    """Return the numbers of rows, (N,); InvalidInput unless all are whole and at least 1."""
    if np.any((sizes < 1) | (sizes != np.floor(sizes))):
        rule = "must be whole numbers of rows, at least 1"
        raise InvalidInput("sizes", sizes.tolist(), rule, "use e.g. 8000")
    return sizes


def outline_and_write_plan(options: PlanOptions, config: RunConfig, sites: Sites) -> dict[str, Any]:
    """Outline a plan as plain data, and write the plan of separate sites to its file.

    Parameters
    ----------
    options : PlanOptions
        What the command line and its file ask for.
    config : RunConfig
        The run, with its budget.
    sites : Sites
        The sites that it is priced for.

    Returns
    -------
    dict
        Privacy, noise and rounds, and, where asked for, dropout, centring, the plan's digest and
        the choice of a method.
    """
    decision = decide_on_centring(options, config, sites)
    choice = None
    if config.auto and not options.inference:
        choice = choose_method_by_trials(options, config, sites, decision)
        config = choice.config
    start = load_starting_point(options, config, sites)
    found: dict[str, Any] = {}
    if not options.inference:
        schema_caveat = None
        if sites.schema is not None:
            schema_caveat = sites.schema.caveat
        caveats = [schema_caveat]
        if start is not None:
            caveats.append(start.caveat)
        found = outline_run(
            config,
            sites.sizes[:, None],
            sites.model_entries(config),
            caveat=caveats,
            life=options.life,
            centre=_centring_or_none(decision),
        )
        # A model of several classes has a weight for each of them and each feature.
        found["features"] = sites.features
        if options.dropout:
            found["dropout"] = compute_dropout_outlook(options.dropout, config, len(sites.sizes))
    if decision is not None:
        found["centre"] = decision.to_dict()
    if options.write is not None:
        found |= make_and_write_plan(
            options, config, sites, found.get("releases", []), decision, start
        )
    if choice is not None:
        found["choice"] = choice.to_dict()
    return found


def _centring_or_none(decision: Decision | None) -> Centring | None:
    """Return how rows are centred first; None if they are not."""
    if decision is None:
        return None
    return decision.centring


def decide_on_centring(options: PlanOptions, config: RunConfig, sites: Sites) -> Decision | None:
    """Decide if the means of columns are released and subtracted first.

    None where that is not asked for, or impossible: without a schema, in an inference, and for a
    loss with several outputs.

    Parameters
    ----------
    options : PlanOptions
        What the command line and its file ask for.
    config : RunConfig
        The run.
    sites : Sites
        The sites that it is priced for.

    Returns
    -------
    Decision or None
    """
    one_output = make_loss(config.loss).outputs == 1
    if sites.matching_schema is None or not options.centre or options.inference or not one_output:
        return None
    return decide_centring(
        config, sites.sizes, sites.features, frame_of_schema(sites.matching_schema)
    )


def choose_method_by_trials(
    options: PlanOptions, config: RunConfig, sites: Sites, decision: Decision | None
) -> Choice:
    """Choose the method and its open knobs by trials on synthetic data like the expected rows.

    Parameters
    ----------
    options : PlanOptions
        What the command line and its file ask for.
    config : RunConfig
        The run.
    sites : Sites
        The sites that it is priced for.
    decision : Decision or None
        On centring.

    Returns
    -------
    Choice
    """
    # Runs of a named method need no search.
    from ..runs.auto_search import choose_method, heterogeneity_of_partition

    likely: Expected | None = None
    if sites.matching_schema is not None:
        likely = expected_rows(sites.matching_schema)
    if options.public is not None:
        likely = load_public_rows(options, config, sites).expected_worlds() or likely
    return choose_method(
        config,
        sites.sizes,
        sites.model_entries(config),
        heterogeneity=heterogeneity_of_partition(options.partition),
        free=knobs_left_open(),
        expected=likely,
        centre=_centring_or_none(decision),
    )


def load_public_rows(options: PlanOptions, config: RunConfig, sites: Sites) -> Public:
    """Load the public rows that a plan names.

    Parameters
    ----------
    options : PlanOptions
        What the command line and its file ask for.
    config : RunConfig
        The run.
    sites : Sites
        The sites that it is priced for.

    Returns
    -------
    Public
    """
    rows = load(str(options.public), schema=sites.schema, test_share=None)
    return Public.from_dataset(rows, config, len(sites.sizes))


def load_starting_point(options: PlanOptions, config: RunConfig, sites: Sites) -> Start | None:
    """Return the starting point of an agreed plan's run; None for zero.

    Parameters
    ----------
    options : PlanOptions
        What the command line and its file ask for.
    config : RunConfig
        The run.
    sites : Sites
        The sites that it is priced for.

    Returns
    -------
    Start or None
    """
    if options.write is None:
        return None
    from ..deploy.plan import check_public

    assert sites.schema is not None
    check_public(str(options.run_name), config, sites.members, sites.model_entries(config))
    if options.public is not None:
        return load_public_rows(options, config, sites).start
    if options.start is not None:
        return start_from_result(
            Result.load(options.start), config, sites.model_entries(config), sites.schema
        )
    return None


def compute_dropout_outlook(rate: float, config: RunConfig, sites: int) -> dict[str, Any]:
    """Compute how a run ends if each site is lost with this probability a round.

    Parameters
    ----------
    rate : float
        Probability that a site is lost in a round.
    config : RunConfig
        The run.
    sites : int
        Number of sites.

    Returns
    -------
    dict
        Plain data.
    """
    least, _ = quorum_of_sums(config, sites)
    # A plan without a seed has the graph of seed 0.
    graph = make_graph(config.graph, sites, config.seed or 0)
    method = REGISTRY[config.method]
    return simulate_dropout(
        rate, graph, config.rounds, least=least, summed=least > 0, induced=bool(method.induced)
    )


def make_and_write_plan(
    options: PlanOptions,
    config: RunConfig,
    sites: Sites,
    releases: list[dict[str, Any]],
    decision: Decision | None,
    start: Start | None,
) -> dict[str, Any]:
    """Make and write the plan that sites agree on, and return what to tell about it.

    Parameters
    ----------
    options : PlanOptions
        What the command line and its file ask for.
    config : RunConfig
        The run, with its method.
    sites : Sites
        The members of the plan.
    releases : list of dict
        Releases of the outline, as plain data; empty for an inference.
    decision : Decision or None
        On centring.
    start : Start or None
        Where the run starts; None for zero.

    Returns
    -------
    dict
        The outline of the answers, the plan's file, digest and code, and the names of its sites.
    """
    from ..deploy.answering import outline_recipes
    from ..deploy.invitation import plan_comparison_code
    from ..deploy.plan_file import write_plan_file
    from ..deploy.proposal import Proposal, make_calibrated_plan
    from ..deploy.waits import Waits

    assert sites.schema is not None and options.run_name is not None and options.write is not None
    made = make_calibrated_plan(
        Proposal(
            options.run_name,
            config,
            sites.members,
            sites.model_entries(config),
            schema=sites.schema.to_dict(),
            norm_cap=options.norm_cap,
            start=start,
            asks=options.asks,
            centre=_centring_or_none(decision),
            waits=Waits(options.deadline, options.patience),
        )
    )
    write_plan_file(made, options.write)
    return outline_recipes(made, releases, options.life, options.forecast_assumptions) | {
        "plan": str(options.write),
        "digest": made.digest,
        "code": plan_comparison_code(made.digest),
        "sites": list(made.names),
    }


def _print_plan(outlined: dict[str, Any], as_json: bool) -> None:
    """Print a plan, as JSON or for people."""
    if as_json:
        click.echo(json.dumps(infinities_to_text(outlined)))
    else:
        _render_plan(outlined, Console())


def _describe_lifetime_use(life: dict[str, Any]) -> str:
    """Describe what a run takes of a ledger's lifetime budget."""
    text = f"smallest lifetime budget of a ledger for this run: {ceil_text(life['least'])}"
    if "budget" in life and life["runs"]:
        text += (
            f"; of a lifetime budget of {life['budget']:g} it takes {ceil_text(life['first'])} as "
            f"the first run and {ceil_text(life['later'])} as a later one, so {life['runs']} such "
            "runs fit"
        )
        if life["accountant"] != "pure":
            text += (
                " (epsilons of runs do not simply add up: the first also brings in the delta, "
                "which all of them share)"
            )
    elif "budget" in life:
        text += f"; a lifetime budget of {life['budget']:g} is too small for it"
    elif life["accountant"] != "pure":
        text += "; of a larger budget the first run takes more, later ones less: see --life"
    return text


def _render_plan(outlined: dict[str, Any], console: Console) -> None:
    """Print a plan for people."""
    stated = Statement.from_dict(outlined["privacy"])
    _render_plan_header(outlined, stated, console)
    console.print(_make_noise_table(outlined, stated))
    _render_plan_notes(outlined, console)
    # The first part is the privacy of the rows that are trained on, the others of held-out rows.
    for part in outlined.get("parts", [])[1:]:
        console.print(
            f"{sum(outlined['held']):,} of {sum(outlined['n']):,} {stated.counted} are held out, "
            f"never trained on, and cost {ceil_text(part['epsilon'])} each; the others cost "
            f"{ceil_text(outlined['parts'][0]['epsilon'])}",
            highlight=False,
        )
    if outlined.get("forecast"):
        _render_forecast(outlined["forecast"], console)
    if "plan" in outlined:
        wrote = f"wrote {escape_markup(outlined['plan'])}, digest {outlined['digest']}"
        code = f"the plan's code, for the telephone: {outlined['code']}"
        console.print(f"{wrote}\n{code}", soft_wrap=True, highlight=False)
    legend = "noise: largest standard deviation of a coordinate of what a site sends"
    if not outlined.get("forecast"):
        legend += "; weights of a useful classifier are of order 1"
    console.print(f"[dim]{legend}[/]")


def _render_plan_header(outlined: dict[str, Any], stated: Statement, console: Console) -> None:
    """Print what would run, and what it would promise."""
    sizes = outlined["n"]
    size = f"{min(sizes):,}"
    if min(sizes) != max(sizes):
        size += f" to {max(sizes):,}"
    console.print(
        f"[bold]{outlined['method']}[/] ({outlined['privacy']['form']}): {len(sizes)} sites of "
        f"{size} {stated.counted}, {escape_markup(outlined['graph'])} graph, "
        f"{outlined['features']} "
        f"features, {outlined['rounds']} rounds: a plan, no data were read"
    )
    if "choice" in outlined:
        console.print(f"[bold]auto[/] {escape_markup(outlined['choice']['says'])}", highlight=False)
    # The guarantee alone: what makes a run a simulation is not decided yet.
    console.print(make_privacy_panel(stated.guarantee))
    if "centre" in outlined:
        console.print(escape_markup(outlined["centre"]["says"]), highlight=False)


def _make_noise_table(outlined: dict[str, Any], stated: Statement) -> Table:
    """Make a table of the price and noise of every site, or of the first ones.

    A curator, who pools the rows of all sites, is one line.
    """
    heads = (
        ">epsilon\nin all",
        ">epsilon of its\nfirst release",
        ">noise of its\nfirst release",
        ">noise of\nits last",
    )
    table = make_listing(">site", f">{stated.counted}", *heads, vertical="bottom")
    sizes = outlined["n"]
    first = outlined["releases"][0]
    last = outlined["releases"][-1]
    names = outlined.get("sites", range(len(sizes)))
    if len(outlined["privacy"]["per_node"]) == 1:
        sizes, names = [sum(sizes)], ["all" if len(sizes) > 1 else names[0]]
    for i, rows in enumerate(sizes[:_SHOWN]):
        prices = (
            ceil_text(each[i]) for each in (outlined["privacy"]["per_node"], first["epsilon"])
        )
        noise = (f"{release['spread'][i]:.3g}" for release in (first, last))
        table.add_row(escape_markup(str(names[i])), f"{rows:,}", *prices, *noise)
    if len(sizes) > _SHOWN:
        table.add_row("…", f"and {len(sizes) - _SHOWN} more", "", "", "", "")
    return table


def _render_plan_notes(outlined: dict[str, Any], console: Console) -> None:
    """Print how lost sites end the run, what it takes of a ledger, and the method's own noise."""
    dropout = outlined.get("dropout")
    if dropout is not None:
        console.print(
            f"if a site is lost with probability {dropout['rate']:g} a round, "
            f"{dropout['finishes']:.1%} of runs come to their end, with "
            f"{dropout['sites_left']:.1f} sites on average; the others end after "
            f"{dropout['rounds_if_not']:.1f} rounds; the price stays",
            highlight=False,
        )
    if outlined["life"] is not None:
        console.print(_describe_lifetime_use(outlined["life"]), highlight=False)
    schedule = outlined["algorithm"].get("noise")
    if schedule is not None:
        start = np.asarray(schedule["start"], dtype=float)
        factors = np.atleast_1d(schedule["factor"])[:_SHOWN]
        shown = ", ".join(f"{start * factor:.4g}" for factor in factors)
        console.print(
            f"noise parameter of the method (`--set noise=`): {shown}",
            highlight=False,
        )


def _render_forecast(said: dict[str, Any], console: Console) -> None:
    """Print the rows from which coefficients are printed, and the standard errors to expect.

    `said` is a forecast's plain data: see
    :func:`sottovoce.answers.forecast.forecast_from_schema`.
    """
    fewest, most = said["rows_half_range"]
    console.print(
        f"rows that are needed, of {said['rows']:,.0f} that there are: where columns are uneven "
        "and related, as in real tables, half of the coefficients are printed from about "
        f"{said['rows_half']:,.0f} rows on (four in five synthetic tables: from {fewest:,.0f} to "
        f"{most:,.0f}) and all from {said['rows_needed']:,.0f} on; where columns spread over their "
        f"ranges and are unrelated, all from {said['rows_even']:,.0f} on",
        highlight=False,
    )
    heads = ("<coefficient", ">standard error\nto expect", ">without\nprivacy", ">printed\nin")
    table = make_listing(*heads, vertical="bottom")
    for line in said["standard_errors"]:
        name = line["name"]
        if line["level"] is not None:
            name = f"{name}: {line['level']}"
        error = "refused"
        if line["standard_error"] is not None:
            error = f"{line['standard_error']:.3g}"
        table.add_row(
            escape_markup(name), error, f"{line['without_privacy']:.3g}", f"{line['printed']:.0%}"
        )
    console.print(table)
    console.print(
        "[dim]standard errors: if nine in ten numbers fill their declared ranges, "
        f"{escape_markup(said['expects'])}; from synthetic rows, no data were read[/]",
        highlight=False,
    )
