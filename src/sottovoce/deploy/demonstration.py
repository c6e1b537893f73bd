"""A hub and its sites as processes of this machine, on public rows: a demonstration, not a release.

Commands, certificates, keys, ledgers and transports are those of a deployment.  Only the noise is
not secret: its seed is in the plan, so that the same run can be repeated in one process and the
models compared (:func:`compare_with_simulation`).  Plan and ledgers are marked as a demonstration's
and can never be used for another run.  ``sottovoce demo`` and the benches call
:func:`build_demonstration`, then :func:`run_over_relay` or the NVFlare counterpart.
"""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..answers.saved import SavedModel
from ..answers.terms import rows_of_columns
from ..data import partition
from ..data.labels import build_rows_for_task
from ..data.loaders import Dataset, load
from ..data.rows import Rows
from ..errors import EndedEarly, FinishedWithout, InvalidInput, SottovoceError, exit_code_for_error
from ..ledger.digest import rows_digest
from ..ledger.durable import DurableLedger
from ..ledger.journal import Journal
from ..privacy.statement import DEMONSTRATION
from ..problem.losses import make_loss
from ..runs.centre import decide_centring, frame_of_schema
from ..runs.config import RunConfig
from ..runs.engine import BUDGET, FINISHED
from ..runs.simulate import Result
from ..util.plain import infinities_to_text
from ..util.typing import Any, Array, IntArray
from . import certificates
from .answering import results_to_dict
from .asks import Asks, SiteTable, make_site_table
from .files import write_new_file
from .hub import Hub
from .hublog import HubLog
from .keys import SigningKey
from .local import answer_as_sites, train_as_sites
from .members import Member, training_row_counts
from .plan import Plan
from .plan_file import write_plan_file
from .proposal import Proposal, make_calibrated_plan
from .settings import write_settings
from .sums.roster import Attempt
from .waits import DEFAULT, Waits

LIFE = 3.0
"""Lifetime budget of a demonstration's ledger, in multiples of the run's epsilon."""
LONGEST = 1800.0
"""Seconds before a demonstration is given up."""
SOON = Waits(deadline=5.0, patience=10.0)
"""Waits, in seconds, of a demonstration that loses sites, which would else wait a minute."""
FEW: dict[str, Any] = {
    "name": "adult-few",
    "ignore": ["*"],
    "label": {"column": "income", "positive": ">50K", "negative": "<=50K"},
    "columns": {
        "age": {"kind": "number", "lo": 17.0, "hi": 90.0},
        "hours-per-week": {"kind": "number", "lo": 1.0, "hi": 99.0},
        "sex": {"kind": "category", "values": ["Female", "Male"]},
        "marital-status": {
            "kind": "category",
            "base": "alone",
            "values": {
                "alone": [
                    "Never-married",
                    "Divorced",
                    "Separated",
                    "Widowed",
                    "Married-spouse-absent",
                ],
                "married": ["Married-civ-spouse", "Married-AF-spouse"],
            },
        },
        "education-num": {"kind": "number", "lo": 1.0, "hi": 16.0},
        "capital-gain": {"kind": "bins", "edges": [0.0, 1.0, 1e6], "base": 0},
    },
}
"""A schema of six columns of Adult, for demonstrations of an inference: coefficients of all columns
of the shipped schema would need more rows than there are.
"""
_NAMES = ("north", "east", "south", "west", "centre")
"""Names of up to five sites; more are numbered."""
# Environment of a process that uses one thread for linear algebra.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Demonstration:
    """Files and data of a demonstration.

    Parameters
    ----------
    folder : Path
        Holds ``hub/`` and a folder for each site, with its ``site.toml``.
    plan : Plan
    dataset : Dataset
        All rows, and the test rows.
    rows : Rows
        Encoded rows of all sites, to repeat the training in one process.
    port : int
        TCP port of the hub on the loopback interface.
    tables : list of SiteTable
        Tables of all sites, to repeat inference and evaluation in one process.
    """

    folder: Path
    plan: Plan
    dataset: Dataset
    rows: Rows
    port: int
    tables: list[SiteTable]

    def settings_file_of(self, name: str) -> Path:
        """Return the path of a site's ``site.toml``."""
        return self.folder / name / "site.toml"

    @property
    def hub(self) -> Path:
        """The hub's folder."""
        return self.folder / "hub"


def find_free_port() -> int:
    """Return a free TCP port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def build_demonstration(
    folder: Path,
    config: RunConfig,
    sites: int,
    data: str = "adult",
    schema: dict[str, Any] | None = None,
    asks: Asks | None = None,
    *,
    centre: bool = True,
    waits: Waits = DEFAULT,
) -> Demonstration:
    """Partition public rows over sites, and write the files of hub and sites.

    The files are those that ``sottovoce site init`` and ``hub admit`` write.

    Parameters
    ----------
    folder : Path
        Empty or absent.
    config : RunConfig
        With a seed, which makes the noise repeatable.
    sites : int
        At least 1; the hub and each site get a folder.
    data : str
        A data set with a schema, or the path of a table.
    schema : dict, optional
        Schema of the table, as plain data; by default the one of the data set.
    asks : Asks, optional
        Inference or evaluation, in addition to the training or instead of it.
    centre : bool
        Centre rows if :func:`sottovoce.runs.centre.decide_centring` expects a gain.
    waits : Waits
        How long a round waits for its last site.

    Returns
    -------
    Demonstration

    Raises
    ------
    InvalidInput
        If there is no seed, no schema, no site, or the folder holds files.
    """
    if config.seed is None:
        raise InvalidInput("seed", None, "a demonstration needs repeatable noise", "give a seed")
    if sites < 1:
        raise InvalidInput("sites", sites, "must be at least 1", "use e.g. 5")
    dataset = load(data, schema=schema)
    if dataset.schema is None:
        raise InvalidInput(
            "data", data, "has no schema that the sites can share", "use 'adult' or a table"
        )
    parts = partition("iid", dataset.y_train, sites, config.seed, dataset.train_columns)
    rows = _encode_site_rows(dataset, parts)
    rows.check_loss_fits(make_loss(config.loss))
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInput(
            "keep", str(folder), "already holds files", "give an empty or a new folder"
        )
    port = find_free_port()
    members = _make_site_folders(folder, config, dataset, parts, rows)
    centring = None
    if centre and not (asks is not None and asks.inference):
        # not for an inference, which reads rows as they are
        frame = frame_of_schema(dataset.schema)
        centring = decide_centring(
            config, training_row_counts(members, asks), rows.d, frame
        ).centring
    proposal = Proposal(
        run="demonstration",
        config=config,
        sites=members,
        d=rows.d,
        schema=dataset.schema.to_dict(),
        asks=asks,
        centre=centring,
        waits=waits,
    )
    plan = make_calibrated_plan(proposal)
    _write_plans(folder, plan, port)
    return Demonstration(folder, plan, dataset, rows, port, _make_site_tables(dataset, parts))


def _write_plans(folder: Path, plan: Plan, port: int) -> None:
    """Write the plan for hub and sites, and the settings of every site."""
    write_plan_file(plan, folder / "hub" / "plan.json")
    for name in plan.names:
        write_plan_file(plan, folder / name / "plan.json")
        hub = f"127.0.0.1:{port}"
        write_settings(folder / name, name, hub, Path("rows.csv"), agreed=plan.digest)


def _encode_site_rows(dataset: Dataset, parts: Sequence[IntArray]) -> Rows:
    """Return the encoded rows of all sites; `parts` holds positions of rows, for each site."""
    encoded = [(dataset.X_train[part], dataset.y_train[part]) for part in parts]
    return build_rows_for_task(dataset.task, encoded, dataset.weights_of_parts(parts))


def _make_site_tables(dataset: Dataset, parts: Sequence[IntArray]) -> list[SiteTable]:
    """Return the tables of all sites; `parts` holds positions of rows, for each site."""
    return [
        make_site_table(
            dataset.schema,
            dataset.X_train[part],
            dataset.y_train[part],
            rows_of_columns(dataset.train_columns, part),
        )
        for part in parts
    ]


def _make_site_folders(
    folder: Path, config: RunConfig, dataset: Dataset, parts: Sequence[IntArray], rows: Rows
) -> list[Member]:
    """Make the folders of the hub and of all sites, with rows, ledgers, certificates and keys.

    `parts` holds positions of rows for each site, `rows` the same rows encoded.  Returns the sites'
    public facts.
    """
    hub = folder / "hub"
    hub.mkdir(parents=True)
    authority = certificates.Authority.make(hub)
    authority.write_hub_certificate(hub, ["127.0.0.1"])
    return [
        _make_site_folder(
            folder / name, name, dataset, parts[i], rows.rows_of_node(i), config, authority, hub
        )
        for i, name in enumerate(_site_names(len(parts)))
    ]


def _site_names(sites: int) -> tuple[str, ...]:
    """Return names for this number of sites."""
    if sites <= len(_NAMES):
        return _NAMES[:sites]
    return tuple(f"site-{i + 1}" for i in range(sites))


def _make_site_folder(
    folder: Path,
    name: str,
    dataset: Dataset,
    part: IntArray,
    rows: Rows,
    config: RunConfig,
    authority: certificates.Authority,
    hub: Path,
) -> Member:
    """Make the folder of one site, as ``site init`` and ``hub admit`` do.

    `part` holds the positions of its rows, `rows` the same rows encoded.  Returns its public facts.
    """
    folder.mkdir()
    columns = {column: values[part] for column, values in dataset.train_columns.items()}
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    accountant = "rdp"
    if config.delta is None:
        accountant = "pure"
    ledger = DurableLedger.create(
        folder / f"{name}.ledger",
        epsilon=LIFE * np.max(config.epsilon).item(),
        delta=config.delta or 0.0,
        accountant=accountant,
        fingerprint=rows_digest(*rows.fingerprint_arrays()),
        demonstration=True,
    )
    ledger.close()
    certificates.write_certificate_request(folder, name)
    _, certificate = authority.sign_site_request((folder / f"{name}.csr").read_bytes())
    write_new_file(folder / f"{name}.crt", certificate)
    write_new_file(folder / "ca.crt", (hub / "ca.crt").read_bytes())
    key = SigningKey.make()
    key.write(folder / f"{name}.signing")
    return Member(name, int(rows.n[0, 0]), key.public)


def start_command(*arguments: str, errors: Path) -> subprocess.Popen[str]:
    """Start a ``sottovoce`` command as a process, with one thread for linear algebra.

    Its standard error is appended to the file `errors`.
    """
    with errors.open("a") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "sottovoce", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=file,
            text=True,
            env=os.environ | ONE_THREAD,
        )


def run_over_relay(demo: Demonstration, tick: Callable[[], None], lose: int = 0) -> dict[str, int]:
    """Run hub and sites as processes over the relay, until all sites are done.

    Parameters
    ----------
    demo : Demonstration
    tick : callable
        Called some times a second, to show progress.
    lose : int
        Number of sites, the last ones of the plan, that are killed in the middle of the run and do
        not come back.

    Returns
    -------
    dict of int
        Exit codes of the processes, under ``hub`` and the sites' names.

    Raises
    ------
    SottovoceError
        With the message of the first process that fails, or after :data:`LONGEST` seconds.
    """
    until = time.monotonic() + LONGEST
    processes = _Processes(demo, lose)
    try:
        processes.start()
        while processes.any_is_running:
            if processes.doomed and _third_of_rounds_is_over(demo):
                processes.kill_doomed_sites()
            processes.check_no_failure()
            if time.monotonic() > until:
                raise SottovoceError(f"demonstration: did not finish within {LONGEST:g} s")
            tick()
            # shorter steps until the kill, which must come before a site's end
            pause = 0.01 if processes.doomed else 0.05
            time.sleep(pause)
        return processes.wait_for_exit_codes()
    finally:
        processes.kill_remaining()


class _Processes:
    """The processes of a demonstration: the hub and its sites, the last `lose` to be killed.

    Attributes
    ----------
    doomed : tuple of str
        Sites that are to be killed and are still running.
    """

    def __init__(self, demo: Demonstration, lose: int) -> None:
        names = demo.plan.names
        self._demo = demo
        self._lost = self.doomed = names[len(names) - lose :]
        self._running: dict[str, subprocess.Popen[str]] = {}
        # exit codes that are no failure: if sites are lost, those that say so
        self._fine = {0}
        if lose:
            self._fine |= {
                exit_code_for_error(EndedEarly("")),
                exit_code_for_error(FinishedWithout("")),
            }

    def start(self) -> None:
        """Start the hub, then all sites."""
        demo = self._demo
        address = f"127.0.0.1:{demo.port}"
        hub = ["hub", "run", str(demo.hub), "--listen", address, "--once", "--linger", "0"]
        self._running["hub"] = start_command(*hub, errors=self._error_file_of("hub"))
        for name in demo.plan.names:
            site = ("site", "run", str(demo.settings_file_of(name)), "--json")
            self._running[name] = start_command(*site, errors=self._error_file_of(name))

    @property
    def any_is_running(self) -> bool:
        """True while any of them runs."""
        return any(process.poll() is None for process in self._running.values())

    def kill_doomed_sites(self) -> None:
        """Kill the sites that are to be lost.

        Raises :class:`SottovoceError` if one of them has already finished.
        """
        for name in self.doomed:
            if self._running[name].poll() == 0:
                raise SottovoceError(
                    f"lose_site: {name} finished before it could be stopped; use more rounds"
                )
            self._running[name].kill()
        self.doomed = ()

    def check_no_failure(self) -> None:
        """Check that no process failed, except those that were killed on purpose.

        Raises :class:`SottovoceError` with the failed process's own message.
        """
        for name, process in self._running.items():
            killed = name in self._lost and name not in self.doomed
            if killed or process.poll() is None or process.returncode in self._fine:
                continue
            said = self._error_file_of(name).read_text().strip()
            raise SottovoceError(f"{name}: {said or f'exit code {process.returncode}'}")

    def wait_for_exit_codes(self) -> dict[str, int]:
        """Return the exit codes, once all have ended."""
        return {name: process.wait() for name, process in self._running.items()}

    def kill_remaining(self) -> None:
        """Kill all processes that still run, and remove empty error files."""
        for name, process in self._running.items():
            process.kill()
            process.wait()
            errors = self._error_file_of(name)
            if errors.exists() and not errors.stat().st_size:
                errors.unlink()

    def _error_file_of(self, name: str) -> Path:
        return self._demo.folder / name / "errors"


def _third_of_rounds_is_over(demo: Demonstration) -> bool:
    """Return True once a third of the rounds is over: the moment at which sites are killed.

    The round is that of the plan's last site, which is one of those to be killed.
    """
    if not (demo.hub / "hub.log").exists():
        return False
    third = max(1, demo.plan.exchange_table.attempts // 3)
    with HubLog(demo.hub / "hub.log") as log:
        return log.last(demo.plan.run, demo.plan.names[-1]) >= third


def read_site_progress(demo: Demonstration) -> list[dict[str, Any]]:
    """Return every site's round, spent epsilon and budget, as recorded in its ledger."""
    shown: list[dict[str, Any]] = []
    for name in demo.plan.names:
        with DurableLedger.open(demo.folder / name / f"{name}.ledger") as ledger:
            spent, budget = float(np.max(ledger.per_node())), float(ledger.epsilon[0])
            sent = Journal(ledger, demo.plan.run).highest_round
            if demo.plan.uses_secure_sums:
                # Greetings and rosters are messages too, and no rounds; each attempt has one row.
                sent = len(ledger.rows)
        done = min(max(sent, 0), demo.plan.exchange_table.attempts)
        shown.append({"site": name, "round": done, "spent": spent, "budget": budget})
    return shown


def compare_with_simulation(demo: Demonstration, transport: str, wall: float) -> dict[str, Any]:
    """Compare the models of a demonstration with those of the same run in one process.

    Parameters
    ----------
    demo : Demonstration
        After its run.  The simulation loses the same sites at the same rounds.
    transport : str
        Name of the transport, for the report.
    wall : float
        Seconds that the run took, for the report.

    Returns
    -------
    dict
        ``difference`` is the largest absolute difference of an entry of a model; ``test_error``,
        times, spending and the plan's statement are of the run over the transport.
    """
    plan = demo.plan
    with HubLog(demo.hub / "hub.log") as log:
        carried = Hub(plan, log)
        roster = carried.rounds.roster
        attempts = None
        if plan.uses_secure_sums:
            attempts = carried.rounds.attempts
    names = [name for name in plan.names if name not in roster["gone"]]
    # the summaries of the sites that came to the end
    ends = [json.loads((demo.folder / name / f"{name}.json").read_text()) for name in names]
    # what the report says in addition, of inference and evaluation
    told: dict[str, Any] = {}
    if plan.asks is None:
        whole = all(end["stopped"] in (FINISHED, BUDGET) for end in ends)
        twin = _simulate_models(demo, names, roster, attempts, whole=whole)
    else:
        twin, told = _simulate_answers(demo, ends)
    models, error = _load_models_and_error(demo, names, ends)
    rounds = min(end["rounds"] for end in ends)
    seconds = max(end["seconds"] for end in ends)
    return {
        "transport": transport,
        "sites": len(plan.names),
        "rounds": rounds,
        "stopped": ends[0]["stopped"],
        "seconds_per_round": seconds / max(rounds, 1),
        "seconds_with_messages_per_round": max(end["waited"] for end in ends) / max(rounds, 1),
        "seconds": wall,
        "test_error": error,
        "difference": float(np.max(np.abs(models - np.array(twin)))),
        "privacy": plan.planned_privacy.statement.to_dict(),
        "plan": plan.digest,
        "spent": [end["spent"] for end in ends],
        "demonstration": DEMONSTRATION,
        "folder": str(demo.folder),
        "roster": roster,
    } | told


def _simulate_answers(
    demo: Demonstration, ends: Sequence[dict[str, Any]]
) -> tuple[list[Array], dict[str, Any]]:
    """Repeat a run with recipes in one process.

    `ends` are the sites' summaries.  Returns every site's model, and for the report the first
    site's results and whether all sites' results equal those of the simulation.
    """
    alone = answer_as_sites(demo.plan, demo.tables)
    known = [infinities_to_text(results_to_dict(demo.plan, found)) for _, found in alone]
    same = [end["record"] for end in ends] == known
    return [model for model, _ in alone], {"record": ends[0]["record"], "same_answers": same}


def _load_models_and_error(
    demo: Demonstration, names: Sequence[str], ends: Sequence[dict[str, Any]]
) -> tuple[Array, float]:
    """Return the models that these sites saved, (sites, d), and their error rate on the test rows.

    `ends` are the summaries of the sites `names`.  The error is that of an inference's common
    model, or of the mean of all models.
    """
    if demo.plan.is_inference:
        models = np.array([end["answers"]["model"] for end in ends])
        first = demo.plan.names[0]
        answered = SavedModel.load(demo.folder / first / f"{first}.json")
        return models, _error_of_margins(demo.dataset, answered.margins(demo.dataset.test_columns))
    results = [Result.load(demo.folder / name / f"{name}.npz") for name in names]
    models = np.array([result.models[0, 0] for result in results])
    return models, _error_of_margins(demo.dataset, demo.dataset.X_test @ models.mean(axis=0))


def _simulate_models(
    demo: Demonstration,
    names: Sequence[str],
    roster: dict[str, Any],
    attempts: list[Attempt] | None,
    *,
    whole: bool,
) -> list[Array]:
    """Repeat a training in one process, and return the models of the sites `names`.

    Parameters
    ----------
    demo : Demonstration
    names : sequence of str
        Sites that came to the end.
    roster : dict
        The last roster, as plain data: which sites were lost (``since``), and in which round.
    attempts : list of Attempt, optional
        Of a run of sums: the sites of every attempt, and whether its sum was opened.
    whole : bool
        Whether the run came to its end; else all sites stop in the round in which one was lost.
    """
    plan = demo.plan
    if attempts is not None:
        told = [([plan.index(name) for name in one.members], one.opened) for one in attempts]
        made = train_as_sites(plan, demo.rows, attempts=told)
    else:
        first = plan.stages[0].first
        lost = {plan.index(name): round - first for name, round in roster["since"].items()}
        end: dict[int, int] = {}
        if lost and not whole:
            end = dict.fromkeys(range(len(plan.names)), max(lost.values()))
        made = train_as_sites(plan, demo.rows, lost=end | lost)
    return [made[plan.index(name)][0] for name in names]


def _error_of_margins(dataset: Dataset, margins: Array) -> float:
    """Return the task's error on the test rows, from their margins under a model."""
    return float(dataset.task.error(margins, dataset.y_test))
