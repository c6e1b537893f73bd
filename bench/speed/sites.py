"""What a round costs between sites: milliseconds of a site and of the hub, in a graph and in sums;
and a site's start.

    python bench/speed/sites.py [--sites 5 50 100] [--rounds 8] [--repeats 5] [--json] [--quick]

Sites of 40 rows with 10 columns run momentum at epsilon 2, delta 1e-5, each with its ledger on
disk, in threads of one process, with a hub beside them: all that a deployment does but TLS.  graph:
releases go to all sites, which everybody checks and adds up; sums: masked shares.  What a site does
between two of its rounds, and what the hub does for one site, is processor time of the site's
thread; medians over rounds and sites.  A round takes one site's time, since sites work side by
side, and the hub's for all sites, one after another.  start: processor seconds of a new process
until a site could ask its hub: `sottovoce site check` of a site with 40 rows; the first is not
counted, it writes the bytecode.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from startup import PACKAGE, environment, run

from sottovoce import DurableLedger, RunConfig
from sottovoce.data.memmap import write_rows
from sottovoce.data.rows import Rows
from sottovoce.deploy.certificates import Authority, write_certificate_request
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.members import Member
from sottovoce.deploy.plan import Plan
from sottovoce.deploy.plan_file import write_plan_file
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.deploy.session import SiteSession
from sottovoce.deploy.settings import write_settings

ROWS, COLUMNS = 40, 10
KINDS: dict[str, dict[str, Any]] = {"graph": {"graph": "complete"}, "sums": {"trust": "sum"}}
ONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Timed(LocalTransport):
    """A way to the hub that counts what the hub does for this site."""

    spent = 0.0

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        started = time.thread_time()
        try:
            return super().exchange(round, message)
        finally:
            self.spent += time.thread_time() - started


def agreed(kind: str, many: int, rounds: int) -> tuple[Plan, list[SigningKey], Rows]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(many, ROWS, COLUMNS))
    X /= 1.01 * np.linalg.norm(X, axis=-1, keepdims=True)
    rows = Rows.build_from_parts([(part, np.where(part[:, 0] > 0, 1.0, -1.0)) for part in X])
    keys = [SigningKey.make() for _ in range(many)]
    members = [Member(f"site-{i + 1}", ROWS, key.public) for i, key in enumerate(keys)]
    config = RunConfig.from_dict(
        {
            "method": "momentum",
            "rounds": rounds,
            "epsilon": 2.0,
            "delta": 1e-5,
            "seed": None,
            **KINDS[kind],
        }
    )
    return make_calibrated_plan(Proposal("bench", config, members, COLUMNS)), keys, rows


def ledger(path: Path) -> Path:
    DurableLedger.create(path, epsilon=10.0, delta=1e-5, accountant="rdp").close()
    return path


def one_run(kind: str, many: int, rounds: int, folder: Path) -> tuple[float, float]:
    """Medians, over sites and rounds, of a site's seconds and of the hub's for one site."""
    plan, keys, rows = agreed(kind, many, rounds)
    own, hubs = list[float](), list[float]()
    with HubLog(folder / "hub.log") as log:
        hub = Hub(plan, log)

        def site(i: int) -> None:
            name, ends = plan.names[i], list[tuple[float, float]]()
            door = Timed(hub, name, 600.0)

            def observe(k: int, state: object) -> None:
                ends.append((time.thread_time(), door.spent))

            with DurableLedger.open(ledger(folder / f"{name}.ledger")) as book:
                SiteSession(
                    plan, name, rows.rows_of_node(i), book, keys[i], observers=[observe]
                ).run(door)
            steps = np.diff(np.array(ends), axis=0)
            own.extend((steps[:, 0] - steps[:, 1]).tolist())
            hubs.extend(steps[:, 1].tolist())

        with ThreadPoolExecutor(many) as pool:
            list(pool.map(site, range(many)))
    return median(own), median(hubs)


def started(folder: Path, times: int) -> float:
    """Processor seconds of `sottovoce site check`."""
    plan, keys, rows = agreed("graph", 5, 4)
    name, signed = plan.names[0], rows.rows_of_node(0).signed[0]
    y = np.where(np.arange(ROWS) % 2, 1.0, -1.0)
    write_rows(folder / "data", [(0, np.asarray(signed) * y[:, None], y)])
    write_plan_file(plan, folder / "plan.json")
    keys[0].write(folder / f"{name}.signing")
    ledger(folder / f"{name}.ledger")
    authority = Authority.make(folder)
    write_certificate_request(folder, name)
    (folder / f"{name}.crt").write_bytes(
        authority.sign_site_request((folder / f"{name}.csr").read_bytes())[1]
    )
    write_settings(folder, name, "127.0.0.1:1", Path("data"), agreed=plan.digest)
    env = environment(folder / "bytecode") | ONE
    command = ["-m", PACKAGE, "site", "check", str(folder / "site.toml")]
    return median([run(command, env, folder)[0] for _ in range(times + 1)][1:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sites", type=int, nargs="+", default=[5, 50, 100])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument(
        "--repeats", type=int, default=5, help="of the start; a run's medians are over its rounds"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--quick", action="store_true", help="few sites and rounds: shows that it runs"
    )
    given = parser.parse_args()
    sites, rounds, repeats = (
        ([4], 3, 1) if given.quick else (given.sites, given.rounds, given.repeats)
    )
    found = []
    for kind in KINDS:
        for many in sites:
            with tempfile.TemporaryDirectory() as folder:
                own, hub = one_run(kind, many, rounds, Path(folder))
            found.append(
                {"kind": kind, "sites": many, "site": 1e3 * own, "hub": 1e3 * hub * many}
                | {"round": 1e3 * own + 1e3 * hub * many}
            )
    with tempfile.TemporaryDirectory() as folder:
        start = started(Path(folder), repeats)
    if given.json:
        print(json.dumps({"runs": found, "start": start}))
        return
    print(f"{'':8}{'sites':>6}{'a site, ms':>12}{'the hub, ms':>13}{'a round, ms':>13}")
    for one in found:
        print(
            f"{one['kind']:8}{one['sites']:6}{one['site']:12.1f}{one['hub']:13.1f}{one['round']:13.1f}"
        )
    print(f"start of a site: {start:.2f} s")


if __name__ == "__main__":
    main()
