"""What the tests of sites share: a small plan, its keys, and a run with one thread a site."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from problems import make_rows

from sottovoce.data.memmap import write_rows
from sottovoce.data.rows import Rows
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.members import Member
from sottovoce.deploy.messages import Farewell, Kind, Message, Reason
from sottovoce.deploy.plan import Plan
from sottovoce.deploy.plan_file import write_plan_file
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.deploy.session import Finished, SiteSession
from sottovoce.deploy.settings import write_settings
from sottovoce.deploy.transport import Transport
from sottovoce.deploy.waits import ENDLESS, Waits
from sottovoce.ledger.durable import DurableLedger
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.runs.config import RunConfig
from sottovoce.util.plain import personalised_hash

NAMES = ("north", "east", "south")
SIZES = (60, 45, 80)
CANNOT_GO_ON: Reason = "it cannot go on"


@dataclass
class Consortium:
    """Sites of one plan, with throw-away ledgers in `folder`."""

    folder: Path
    plan: Plan
    keys: dict[str, SigningKey]
    rows: Rows
    budget: float = 10.0
    ledgers: dict[str, DurableLedger] = field(default_factory=dict)

    def ledger(self, name: str) -> DurableLedger:
        path = self.folder / f"{name}.ledger"
        if not path.exists():
            delta = self.plan.config.delta
            DurableLedger.create(
                path,
                epsilon=self.budget,
                delta=delta or 0.0,
                accountant="rdp" if delta else "pure",
                demonstration=self.plan.demonstration,
            ).close()
        return DurableLedger.open(path)

    def session(self, name: str, ledger: DurableLedger, /, **changes: Any) -> SiteSession:
        i = self.plan.index(name)
        seed = self.plan.config.seed
        noise = None if seed is None else KeyedNoise(seed, [0], [i], lead=())
        return SiteSession(
            **(
                {
                    "plan": self.plan,
                    "name": name,
                    "rows": self.rows.rows_of_node(i),
                    "ledger": ledger,
                    "key": self.keys[name],
                    "noise": noise,
                }
                | changes
            )
        )

    def run_site(self, name: str, transport: Transport, **changes: Any) -> Finished:
        with self.ledger(name) as ledger:
            return self.session(name, ledger, **changes).run(transport)

    def run(self, door: Callable[[str], Transport]) -> dict[str, Finished]:
        with ThreadPoolExecutor(len(self.plan.names)) as pool:
            jobs = {name: pool.submit(self.run_site, name, door(name)) for name in self.plan.names}
            return {name: job.result() for name, job in jobs.items()}

    def run_locally(self, log: HubLog, patience: float = 20.0) -> dict[str, Finished]:
        hub = Hub(self.plan, log)
        return self.run(lambda name: LocalTransport(hub, name, patience))

    def sealed(self, name: str, round: int, payload: Any = None, kind: Kind | None = None) -> bytes:
        """A well-signed message of a site, whatever it says."""
        values = (
            np.zeros(0 if round == 0 else self.plan.d)
            if payload is None
            else np.asarray(payload, dtype=float)
        )
        kind = kind or ("hello" if round == 0 else "release")
        return Message(self.plan.run, self.plan.digest, round, name, kind, values).to_signed_bytes(
            self.keys[name]
        )

    def farewell(
        self, name: str, round: int, reason: Reason = "too few sites are left", **changes: Any
    ) -> bytes:
        """A well-signed last word of a site, before `round`."""
        said = {
            "run": self.plan.run,
            "plan": self.plan.digest,
            "round": round,
            "sender": name,
            "reason": reason,
        }
        return Farewell(**(said | changes)).to_signed_bytes(self.keys[name])


def consortium(
    folder: Path,
    names: tuple[str, ...] = NAMES,
    sizes: tuple[int, ...] = SIZES,
    d: int = 4,
    **knobs: Any,
) -> Consortium:
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "method": "dvp",
        "epsilon": 2.0,
        "rounds": 4,
        "seed": 3,
        "graph": "ring",
        "rho": 0.02,
    } | knobs
    rows = make_rows(list(sizes), d)
    keys = {name: SigningKey.make() for name in names}
    members = [
        Member(name, size, keys[name].public) for name, size in zip(names, sizes, strict=True)
    ]
    waits = settings.pop("waits", Waits() if str(settings["method"]).startswith("sum") else ENDLESS)
    plan = make_calibrated_plan(
        Proposal("trial", RunConfig.from_dict(settings), members, rows.d, waits=waits)
    )
    return Consortium(folder, plan, keys, rows)


class Stop(Exception):
    """Stands for a crash."""


class Fragile:
    """A way to the hub that breaks down once, before or after the message of a round got there."""

    def __init__(self, inner: Transport, round: int, after: bool) -> None:
        self._inner, self._round, self._after = inner, round, after

    def highest_stored_round(self, plan: str) -> int:
        return self._inner.highest_stored_round(plan)

    def send_farewell(self, farewell: bytes) -> None:
        self._inner.send_farewell(farewell)

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        if round == self._round and not self._after:
            raise Stop
        found = self._inner.exchange(round, message)
        if round == self._round:
            raise Stop
        return found


def settle(sites: Consortium, home: Path) -> Path:
    """The files of the first site of a plan, as its settings want them."""
    home.mkdir()
    name = sites.plan.names[0]
    signed = sites.rows.rows_of_node(0).signed[0]
    y = np.where(np.arange(len(signed)) % 2, 1.0, -1.0)
    write_rows(home / "data", [(0, signed * y[:, None], y)])
    write_plan_file(sites.plan, home / "plan.json")
    sites.keys[name].write(home / f"{name}.signing")
    sites.folder = home
    sites.ledger(name).close()
    write_settings(home, name, "127.0.0.1:1", Path("data"))
    return home


def rewrite(path: Path, plain: dict[str, Any]) -> None:
    """A plan's file with the right digest, whatever it says: another program may have written
    it.
    """
    digest = personalised_hash(
        b"plan", json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
    ).hex()
    path.write_text(json.dumps(plain | {"digest": digest}))
