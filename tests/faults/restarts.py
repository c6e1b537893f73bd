"""Restart a site of a run of sums amid its questions, many times, over the relay.

``python tests/faults/restarts.py [--restarts 200] [--rounds 20] [--seed 0] [--json]``

A site that was started again asks the others how far they have seen it, before it signs anything
new.  Here it is cut off from the hub at a random instant while it asks, and started again at once.
The others are slow to answer, so the hub mostly holds the question of a process that is gone when
the next one asks.  Some starts get their answers, and are cut off one exchange later.  Hub and
sites are in one process, and speak gRPC with TLS over loopback.  A connection is cut as a kill cuts
it: the hub's end of it goes on waiting.

Every restart must go on: exit code 3, or anything else than being cut off again, ends the program.
At the end all models are, bit by bit, those of the same run in one process without a restart, every
row was charged once, and no key is left.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from sites import SCHEMA, table

from sottovoce.deploy import demonstration
from sottovoce.deploy.demonstration import Demonstration
from sottovoce.deploy.hub import Hub
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.local import train_as_sites
from sottovoce.deploy.relay import Credentials, RelayTransport, start_relay
from sottovoce.deploy.session import Finished
from sottovoce.deploy.settings import SiteSettings
from sottovoce.errors import SottovoceError, exit_code_for_error
from sottovoce.ledger.durable import DurableLedger
from sottovoce.runs.config import RunConfig

SITES = 5
LONGEST = 0.06
"""Seconds after a question at which the site is cut off, at most."""
SLOW = 0.4
"""Seconds that another site takes to answer, at most."""


class Cut(Exception):
    """Stands for a kill."""


class Fragile(RelayTransport):
    """A way to the hub that is cut off some time after the site has begun to ask, unless the
    answers are there.
    """

    seconds: float | None = None
    further = False
    """Whether to get its answers and one exchange more, and be cut off then."""
    _asked = False

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        found = super().exchange(round, message)
        if self.further and self._asked:
            raise Cut
        return found

    def ask_other_sites(self, question: bytes, enough: int) -> dict[str, bytes]:
        self._asked = True
        if self.seconds is None or self.further:
            return super().ask_other_sites(question, enough)
        found: list[dict[str, bytes] | Exception] = []

        def ask() -> None:
            try:
                found.append(RelayTransport.ask_other_sites(self, question, enough))
            except (
                Exception
            ) as error:  # that of a channel that was closed, or the one that is looked for
                found.append(error)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(self.seconds)
        if found and isinstance(found[0], SottovoceError):
            raise found[0]
        self._channel.close()
        raise Cut


class Slow(RelayTransport):
    """A site that is busy when it is asked."""

    rng = random.Random(0)

    def send_request(self, method: str, asked: dict[str, Any]) -> dict[str, Any]:
        if method == "answer":
            time.sleep(self.rng.uniform(0.0, SLOW))
        return super().send_request(method, asked)


def settings(demo: Demonstration, name: str) -> SiteSettings:
    return SiteSettings.read(demo.settings_file_of(name))


def one(
    demo: Demonstration,
    name: str,
    address: str,
    seconds: float | None = None,
    further: bool = False,
) -> Finished | None:
    """A start of a site; None if it was cut off."""
    site = settings(demo, name)
    with Fragile(address, site.credentials, site.agreed_plan, 60.0) as way:
        way.seconds, way.further = seconds, further
        try:
            return site.run_and_write_results(way)
        except Cut:
            return None


def other_site(demo: Demonstration, name: str, address: str) -> Finished:
    """A site that is never cut off."""
    site = settings(demo, name)
    with Slow(address, site.credentials, site.agreed_plan, 60.0) as way:
        return site.run_and_write_results(way)


def last_words(name: str, start: int, error: SottovoceError) -> SystemExit:
    return SystemExit(
        f"start {start} of {name} ended with exit code {exit_code_for_error(error)}: {error}"
    )


def play(demo: Demonstration, restarts: int, rng: random.Random) -> dict[str, int]:
    """A run in which the first site is restarted this often, spread over its exchanges; checks
    all that is promised.
    """
    plan, name = demo.plan, demo.plan.names[0]
    hub_files = Credentials(*(demo.hub / file for file in ("ca.crt", "hub.crt", "hub.key")))
    refused: list[tuple[str, str]] = []
    with HubLog(demo.hub / "hub.log") as log, ThreadPoolExecutor(SITES) as pool:
        hub = Hub(plan, log)
        server, port = start_relay(
            hub,
            hub_files,
            "127.0.0.1:0",
            lambda *said: refused.append(said),
            lambda *said: refused.append(said),
        )
        address = f"127.0.0.1:{port}"
        Slow.rng = random.Random(rng.random())
        others = [pool.submit(other_site, demo, other, address) for other in plan.names[1:]]
        cut = open_ = further = 0
        try:
            _until_greeted(demo, name, address)
            for start in range(restarts):
                before = hub.asked(plan.names[1]).get(name)
                open_ += before is not None
                goes_on = (
                    further < plan.exchange_table.attempts - 1
                    and rng.random() < plan.exchange_table.attempts / restarts
                )
                further += goes_on
                if one(demo, name, address, rng.uniform(0.0, LONGEST), goes_on) is not None:
                    raise SystemExit(f"start {start} of {name} was not cut off")
                cut += 1
            ended = one(demo, name, address)
            ends = [ended, *(other.result() for other in others)]
        except SottovoceError as error:
            raise last_words(name, cut + 1, error) from None
        finally:
            if sys.exc_info()[0] is not None:
                log.decisions.record_end_of_run(plan.run)  # the others wait
            server.stop(0.0).wait()
    if refused:
        raise SystemExit(f"refused: {refused[0]}")
    twins = train_as_sites(plan, demo.rows)
    for i, (site, end) in enumerate(zip(plan.names, ends, strict=True)):
        if end is None or not np.array_equal(end.model, twins[i][0]):
            raise SystemExit(f"{site}: its model differs from the twin's")
        with DurableLedger.open(demo.folder / site / f"{site}.ledger") as ledger:
            if ledger.to_list() != [event.to_dict() for event in plan.planned_privacy.events(site)]:
                raise SystemExit(f"{site}: spent something else than what was planned")
        if list((demo.folder / site).glob("*.masks*")):
            raise SystemExit(f"{site}: its key is still there")
    return {
        "restarts": cut,
        "with_the_dead_process_still_asking": open_,
        "after_one_exchange_more": further,
        "exit_3": 0,
    }


def _until_greeted(demo: Demonstration, name: str, address: str) -> None:
    """The first start: cut off when the first roster is to be signed."""
    site = settings(demo, name)

    class Early(Fragile):
        def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
            if round == 1:
                raise Cut
            return super().exchange(round, message)

    with Early(address, site.credentials, site.agreed_plan, 60.0) as way:
        try:
            site.run_and_write_results(way)
        except Cut:
            return
    raise SystemExit("the first start was not cut off")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--restarts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        config = RunConfig(
            method="sum_momentum",
            rounds=arguments.rounds,
            epsilon=5.0,
            delta=1e-5,
            seed=arguments.seed,
        )
        rows = table(Path(folder), 150 * SITES)
        demo = demonstration.build_demonstration(
            Path(folder) / "run", config, SITES, str(rows), SCHEMA
        )
        report = play(demo, arguments.restarts, random.Random(arguments.seed))
    report["wall"] = round(time.perf_counter() - started)
    if arguments.json:
        print(json.dumps(report))
    else:
        print("\n".join(f"{word:40} {value}" for word, value in report.items()))
        print(f"{report['restarts']} restarts amid questions, and none ended with exit code 3")


if __name__ == "__main__":
    main()
