"""What a long or a wide run leaves at the hub: memory, log, processor time a round.

    python bench/speed/lasting.py [KIND:SITES:ROUNDS ...] [--json]

By default graph:3:10000 graph:100:100 sums:3:1000 sums:100:100 masks:100:10 masks:100:10000.  A hub
alone in a process of its own gets every message in the order of the rounds, checks it, stores it,
and hands it out.  The plan is that of `sites.py` (momentum, 10 columns).  graph: messages of zeros,
well signed.  sums: a whole run, once, of sites with 40 rows and ledgers on disk in threads of one
process; what they sent is given to the hub again.  MB: resident memory of the hub after a tenth of
the rounds, and at the end.  log: bytes of hub.log at the end, and those of the messages in it. ms:
processor time of the hub a round.  masks:SITES:WORDS: a site's processor time for the masks of one
attempt, with all other sites, and with two.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sites import agreed, ledger

from sottovoce import DurableLedger
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.messages import Kind, Message
from sottovoce.deploy.plan import Plan
from sottovoce.deploy.plan_file import read_plan_file, write_plan_file
from sottovoce.deploy.session import SiteSession
from sottovoce.deploy.sums.masks import Bound, RunKey, mask_share

CASES = (
    "graph:3:10000",
    "graph:100:100",
    "sums:3:1000",
    "sums:100:100",
    "masks:100:10",
    "masks:100:10000",
)


def record(kind: str, many: int, rounds: int, folder: Path) -> None:
    """Leave plan.json in `folder`, and sent.log with all messages of a run."""
    plan, keys, rows = agreed(kind, many, rounds)
    write_plan_file(plan, folder / "plan.json")
    if kind == "graph":
        with sqlite3.connect(folder / "sent.db") as sent:
            sent.execute("CREATE TABLE message (round INTEGER, site TEXT, bytes BLOB)")
            sent.executemany("INSERT INTO message VALUES (?, ?, ?)", forged(plan, keys))
        return
    with HubLog(folder / "sent.db") as log:
        hub = Hub(plan, log)

        def take_part(i: int) -> None:
            name = plan.names[i]
            with DurableLedger.open(ledger(folder / f"{name}.ledger")) as book:
                session = SiteSession(plan, name, rows.node(i), book, keys[i])
                session.run(LocalTransport(hub, name, 600.0))

        with ThreadPoolExecutor(many) as pool:
            list(pool.map(take_part, range(many)))


def forged(plan: Plan, keys: list[SigningKey]) -> Iterator[tuple[int, str, bytes]]:
    """Well-signed messages of all sites and rounds."""
    for round in range(plan.exchange_table.last + 1):
        kind: Kind = "release"
        if round == 0:
            kind = "hello"
        elif round == plan.exchange_table.last:
            kind = "stop"
        payload = np.zeros(0 if round == 0 else plan.exchange_table.widths[0])
        for name, key in zip(plan.names, keys, strict=True):
            yield (
                round,
                name,
                Message(plan.run, plan.digest, round, name, kind, payload).to_signed_bytes(key),
            )


def memory() -> float:
    """Resident MB of this process (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def replay(folder: Path) -> dict[str, Any]:
    """Give a hub of its own all messages again."""
    plan = read_plan_file(folder / "plan.json")
    sent = sqlite3.connect(folder / "sent.db")
    with HubLog(folder / "hub.log") as log:
        hub, told, size = Hub(plan, log), dict[int, float](), 0
        (last,) = sent.execute("SELECT max(round) FROM message").fetchone()
        started = time.process_time()
        for round in range(last + 1):
            messages = dict(
                sent.execute("SELECT site, bytes FROM message WHERE round = ?", (round,))
            )
            for name, message in messages.items():
                size += len(message)
                hub.exchange(name, round, message, 0.0)
            for name in messages:
                if hub.rounds.inbox_of_site(name, round) is None:
                    raise SystemExit(f"round {round} is incomplete")
            if round in (last // 10, last):
                told[round] = memory()
        seconds = time.process_time() - started
    sent.close()
    stored = sum(path.stat().st_size for path in folder.glob("hub.log*"))
    tenth, end = told[last // 10], told[last]
    return {
        "tenth_mb": tenth,
        "end_mb": end,
        "log": stored,
        "messages": size,
        "ms": 1e3 * seconds / (last + 1),
    }


def masked(many: int, words: int, folder: Path, repeats: int = 20) -> dict[str, float]:
    """Median processor ms of a site's masks of one attempt: with all others, and with two of
    them.
    """
    keys = {f"site-{i:03}": RunKey.make(folder / f"{i}.masks") for i in range(many)}
    public, name = {site: key.public for site, key in keys.items()}, "site-000"
    share, spent = np.zeros(words, dtype=np.int64), dict[str, float]()
    for kind, members in (("all", [*keys]), ("two", [*keys][:3])):
        times = []
        for attempt in range(repeats + 1):  # the first also makes the exchanges, once a run
            started = time.process_time()
            mask_share(
                share,
                keys[name],
                name,
                members,
                public,
                Bound(*[bytes(32)] * 2, attempt, *[bytes(32)] * 2),
            )
            times.append(1e3 * (time.process_time() - started))
        spent |= {kind: median(times[1:]), f"{kind}_first": times[0]}
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--replay", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.replay is not None:
        print(json.dumps(replay(given.replay)))
        return
    found = []
    for case in given.cases:
        kind, many, rounds = case.split(":")
        if kind == "masks":
            with tempfile.TemporaryDirectory() as place:
                spent = masked(int(many), int(rounds), Path(place))
            found.append({"kind": kind, "sites": int(many), "words": int(rounds)} | spent)
            if not given.json:
                print(
                    f"{case}: {spent['all']:.2f} ms a site and attempt with all others, "
                    f"{spent['two']:.2f} with two; "
                    f"the first {spent['all_first']:.1f} and {spent['two_first']:.1f}",
                    flush=True,
                )
            continue
        with tempfile.TemporaryDirectory() as place:
            record(kind, int(many), int(rounds), Path(place))
            told = subprocess.run(
                [sys.executable, __file__, "--replay", place],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        one = {"kind": kind, "sites": int(many), "rounds": int(rounds)} | json.loads(told)
        found.append(one)
        if not given.json:
            print(
                f"{case}: {one['tenth_mb']:.0f} MB after a tenth, {one['end_mb']:.0f} MB at the "
                "end; log "
                f"{one['log'] / 1e6:.1f} MB, messages {one['messages'] / 1e6:.1f} MB; "
                f"{one['ms']:.1f} ms a round of "
                "the hub",
                flush=True,
            )
    if given.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
