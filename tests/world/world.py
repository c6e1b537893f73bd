"""A seeded world: the real sites, hub, logs and ledgers in one process, behind a clock, a network
and disks that fail.

Every process is an *actor* with a thread of its own, but only one actor runs at a time, and which
one is next follows from the simulated time and the seed.  So a seed repeats a run, its faults
included.  A *door* is a place in a site's work at which a fault may happen.  :mod:`auditor` checks
the promises of ``docs/deploy``, :mod:`lies` is a malicious hub, and :mod:`plants` has bugs that the
auditor must find.

    # random workloads and faults, an honest hub
    python tests/world/world.py --seeds 0:1000
    # a malicious hub with a colluder
    python tests/world/world.py --seeds 0:1000 --kind liar
    # print what happened in one run
    python tests/world/world.py --seeds 17:18 --tell
    # until the planted bug is found
    python tests/world/world.py --seeds 0:1000 --plant mask
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from auditor import Auditor
from lies import Lies
from plants import PLANTS
from problems import make_rows

from sottovoce.deploy import run_sites
from sottovoce.deploy.hub import Hub
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.members import Member
from sottovoce.deploy.messages import check_plan_digest
from sottovoce.deploy.plan import Plan
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.deploy.session import Finished, SiteSession, check_complete_end
from sottovoce.deploy.sums.masks import erase_old_masking_keys
from sottovoce.deploy.waits import Waits
from sottovoce.deploy.watch import Watch
from sottovoce.errors import (
    InvalidInput,
    NotWritten,
    Refused,
    SottovoceError,
    TransportClosed,
    Unreachable,
    exit_code_for_error,
)
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.file import ChainFile
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.queries.vault import Vault
from sottovoce.runs.config import RunConfig
from sottovoce.util import files

NAMES, SIZES = ("north", "east", "south", "west", "centre"), (60, 45, 80, 50, 40)
GRAPHS = ("ring", "complete", "path", "star")
METHODS = ("prox_admm", "mr_admm", "momentum", "dgd", "output", "dvp", "sum_momentum", "sum_prox")
WAITS = Waits(5.0, 14.0)
"""Deadline and patience of every plan, in simulated seconds."""
GREETING = 40.0
"""Simulated seconds that the greeting waits for its last site."""
POLL, PATIENCE, TRIES = 0.5, 30.0, 6
"""Simulated seconds between two requests of a waiting site; simulated seconds without a reply after
which a site gives up; and the most starts of a site.
"""
EVERY = 2.0
"""Simulated seconds between two looks of the hub's process at the run."""
FAULTS = (
    "crash",
    "lost",
    "slow",
    "full",
    "clock",
    "cut",
    "restored",
    "certificate",
    "hub",
    "hub full",
    "expel",
)


# a folder in memory for the files of a run, which is faster than a disk
_MEMORY = next((folder for folder in ("/dev/shm",) if Path(folder).is_dir()), None)


class Crash(BaseException):
    """A process dies here."""


class Stuck(Exception):
    """The world has gone on for longer than any plan allows."""


@dataclass(frozen=True)
class Workload:
    """Method, number of sites and rounds, and graph of a run."""

    method: str
    sites: int
    rounds: int
    graph: str

    @classmethod
    def of(cls, rng: random.Random) -> Workload:
        method = rng.choice(METHODS)
        least = 3 if method.startswith("sum") else 2
        return cls(method, rng.randint(least, 5), rng.randint(1, 4), rng.choice(GRAPHS))


@cache
def agreed(work: Workload) -> tuple[Plan, dict[str, SigningKey], Any]:
    """Return the plan, the sites' signing keys and the rows of a workload; made once for each."""
    names, rows = NAMES[: work.sites], make_rows(list(SIZES[: work.sites]), 3)
    keys = {name: SigningKey.make() for name in names}
    members = [
        Member(name, size, keys[name].public) for name, size in zip(names, SIZES, strict=False)
    ]
    graph = (
        {}
        if work.method.startswith("sum")
        else {"graph": "complete" if work.sites < 3 else work.graph}
    )
    config = RunConfig.from_dict(
        {
            "method": work.method,
            "epsilon": 2.0,
            "delta": 1e-5,
            "rounds": work.rounds,
            "seed": 3,
            "rho": 0.02,
            **graph,
        }
    )
    return make_calibrated_plan(Proposal("trial", config, members, rows.d, waits=WAITS)), keys, rows


def _faults(kind: str) -> list[str]:
    """Return the faults that may happen in a world of this kind.

    Under a hub that lies no ledger is restored: such a site counts as a colluder
    (``docs/deploy/threats.md``).
    """
    return [fault for fault in FAULTS if kind == "faults" or fault != "restored"]


class Actor:
    """A process: a thread that runs only while the scheduler waits for it."""

    def __init__(self, world: World, name: str, work: Callable[[], None]) -> None:
        self.world, self.name, self.go = world, name, threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self.thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        self.go.acquire()
        try:
            if not self.world.over:
                work()
        except Crash:
            pass
        except (
            BaseException
        ) as error:  # a bug of the world itself, or of what it runs: said by the scheduler
            self.world.failed = self.world.failed or error
        finally:
            self.world.turn.release()


class World:
    """One run of one workload under the faults of a seed.

    Parameters
    ----------
    seed : int
    kind : {"calm", "faults", "liar"}
        No faults, random faults, or a malicious hub with the keys of one site.
    folder : Path, optional
        For all files; by default a temporary one.
    tell : bool
        Whether the caller prints what happened.
    """

    def __init__(
        self, seed: int, kind: str = "faults", folder: Path | None = None, tell: bool = False
    ) -> None:
        self.rng, self.kind, self.tell = random.Random(f"{kind} {seed}"), kind, tell
        self.work = Workload.of(self.rng)
        self.plan, self.keys, self.rows = agreed(self.work)
        self.folder = folder or Path(tempfile.mkdtemp(prefix="world-", dir=_MEMORY))
        self.now, self.order, self.queue = 0.0, count(), list[tuple[float, float, int, Actor]]()
        self.turn, self.over, self.failed = threading.Semaphore(0), False, None
        self.actor: Actor | None = None
        self.codes, self.ends, self.log = dict[str, int](), dict[str, Finished](), list[str]()
        names = list(self.plan.names)
        self.liar = self.rng.choice(names) if kind == "liar" else None
        self.auditor = Auditor(
            self.folder,
            "trial",
            names,
            self.plan.quorum.least,
            summed=self.plan.uses_secure_sums,
            liars=() if self.liar is None else (self.liar,),
        )
        self.auditor.order = self.plan.names
        self.hub: Hub | None = None
        self.watch: tuple[Hub, Watch] | None = None
        self.looked, self.kinds = -EVERY, Counter[str]()
        self.drift, self.jump = 1.0, 0.0
        self.doors: Counter[str] = Counter()
        self.crashes: dict[str, set[int]] = {name: set() for name in names}
        self.lost, self.expired = set[str](), dict[str, float]()
        self.cut: dict[str, list[tuple[float, float]]] = {
            name: [] for name in (*names, "hub", "hub full")
        }
        self.full: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        self.slow: dict[str, float] = dict.fromkeys(names, 0.0)
        self.copies: dict[str, bytes] = {}
        self.restores, self.repeats = set[str](), set[str]()
        self.faults = (
            []
            if kind == "calm"
            else self.rng.choices(_faults(kind), k=self.rng.choice((0, 1, 1, 2, 2, 3, 4, 6)))
        )
        for fault in self.faults:
            self._plan(fault)

    def _plan(self, fault: str) -> None:
        """Draw when and where a fault happens; times are simulated seconds."""
        rng, name = self.rng, self.rng.choice(self.plan.names)
        at = rng.uniform(0.0, 2.0 + 1.5 * self.work.rounds)
        span = (at, at + rng.choice((1.0, 4.0, 8.0, 20.0)))
        match fault:
            case "crash" | "lost":
                self.crashes[name].add(rng.randrange(1, 20 + 14 * self.work.rounds))
                if fault == "lost":
                    self.lost.add(name)
            case "slow":
                self.slow[name] = rng.choice((0.5, 2.0, 4.0, 7.0))
            case "full":
                self.full[name].append(span)
            case "cut":
                self.cut[name].append(span)
            case "hub" | "hub full":
                self.cut[fault].append(span)
            case "clock":
                self.drift, self.jump = (
                    rng.choice((0.5, 0.9, 1.1, 2.0)),
                    rng.choice((-1e4, -3.0, 3.0, 1e4)),
                )
                self.jump_at = at
            case "restored":
                self.crashes[name].add(rng.randrange(5, 20 + 14 * self.work.rounds))
                self.restores.add(name)
            case "certificate":
                self.expired[name] = at
            case "expel":
                self.spawn("operator", lambda: (self.sleep(at), self._expel(name))[1])

    jump_at = float("inf")

    def say(self, line: str) -> None:
        """Note a line of what happens, with the time and the present actor."""
        self.log.append(f"{self.now:8.2f} {self.actor.name if self.actor else '-':8} {line}")

    # Time

    def spawn(self, name: str, work: Callable[[], None]) -> None:
        """Start an actor now."""
        self._push(Actor(self, name, work), 0.0)

    def _push(self, actor: Actor, delay: float) -> None:
        heapq.heappush(self.queue, (self.now + delay, self.rng.random(), next(self.order), actor))

    def sleep(self, seconds: float) -> None:
        """The present actor waits; others run meanwhile."""
        actor = self.actor
        assert actor is not None
        self._push(actor, seconds)
        self.turn.release()
        actor.go.acquire()
        if self.over:
            raise Crash

    def clock(self) -> float:
        """The hub's own clock."""
        return self.drift * self.now + (self.jump if self.now >= self.jump_at else 0.0)

    @property
    def longest(self) -> float:
        """Simulated seconds after which every run of this world is over."""
        rounds = self.plan.exchange_table.last + 2
        slack = 4.0 * max(self.slow.values()) + 3.0
        waits = rounds * (slack + WAITS.patience / min(1.0, self.drift)) + 2.0 * GREETING
        return waits + TRIES * (PATIENCE + 25.0) + 200.0

    def run(self) -> list[str]:
        """Let everything happen; returns the promises that were broken."""
        for name in self.plan.names:  # made by hand, before anything can fail
            path = self.folder / f"{name}.ledger"
            DurableLedger.create(
                path, epsilon=20.0, delta=1e-5, accountant="rdp", demonstration=True
            ).close()
        self.spawn("hub", self._hub)
        for name in self.plan.names:
            if name != self.liar:
                self.spawn(name, lambda name=name: self._site(name))
        try:
            while self.queue and self.failed is None:
                self.now, _, _, self.actor = heapq.heappop(self.queue)
                if self.now > self.longest:
                    self.auditor.breach(f"no end after {self.now:.0f} s: {self.codes}")
                    break
                self.actor.go.release()
                self.turn.acquire()
                if self.over or len(self.codes) == len(self.plan.names) - (self.liar is not None):
                    break
            self.actor = None
            if self.failed is not None:
                raise self.failed
            self._judge()
        finally:
            self.over = True
            while self.queue:
                self.actor = heapq.heappop(self.queue)[3]
                self.actor.go.release()
                self.turn.acquire()
            if self.hub is not None:
                self.hub.log.close()
            shutil.rmtree(self.folder, ignore_errors=True)
        return self.auditor.broken

    # The hub

    def _hub(self) -> None:
        """Open, and for every cut close and open again from the log alone."""
        path = self.folder / "hub.log"
        for start, end in [*sorted(self.cut["hub"]), (None, None)]:
            self.hub = Hub(self.plan, HubLog(path), greeting=GREETING, clock=self.clock)
            if start is None:
                return
            self.sleep(max(0.0, start - self.now))
            hub, self.hub = self.hub, None
            hub.log.close()
            self.say("the hub is killed")
            self.sleep(max(0.0, end - self.now))

    def look(self, hub: Hub) -> None:
        """Look at the run as a hub's process does between requests, and at what it would tell.

        Whatever fails must be an error that such a process tells and waits for.
        """
        if 0.0 <= self.now - self.looked < EVERY:
            return
        self.looked = self.now
        if self.watch is None or self.watch[0] is not hub:
            self.watch = (hub, Watch(hub, self.folder, self.clock))
        full = self.at(self.cut["hub full"])
        try:
            self.watch[1].note_new_messages(now=True)
            told = self.watch[1].status_with_times()
        except (SottovoceError, OSError) as error:
            # A log that cannot be written is waited for; the times must not raise at all.
            if isinstance(error, InvalidInput) or not full or not str(error).startswith("log="):
                self.auditor.breach(f"the hub's look ends it: {error}")
            return
        found = {one["alarm"] for one in told["alarms"]}
        self.kinds.update(found)
        over = all(site["left"] is not None for site in told["sites"])
        if full != ("not written" in found) and not over:
            self.auditor.breach(f"a disk that is full: {full}; alarms: {found}")
        if not self.faults and found - {"disk"}:
            self.auditor.breach(f"no fault, and alarms: {found}")

    def _expel(self, name: str) -> None:
        """Take a site out, as the hub's operator does."""
        while True:
            with suppress(SottovoceError):  # a full disk: the operator tries again
                if self.hub is not None and name not in self.hub.gone():
                    self.hub.log.decisions.record_expulsion("trial", name)
                    self.say(f"expels {name}")
                if self.hub is not None:
                    return
            self.sleep(1.0)

    # Sites

    def door(self, name: str, kind: str) -> None:
        """A place where a process may die, and where a copy of its ledger may be made."""
        self.doors[name] += 1
        if name in self.restores and name not in self.copies and self.rng.random() < 0.1:
            with suppress(OSError):
                self.copies[name] = (self.folder / f"{name}.ledger").read_bytes()
        if self.doors[name] in self.crashes[name]:
            self.say(f"dies at {kind}")
            raise Crash

    def at(self, spans: list[tuple[float, float]]) -> bool:
        return any(start <= self.now < end for start, end in spans)

    def _site(self, name: str) -> None:
        """Run a site, and start it again after a crash or an error, at most TRIES times."""
        path, dead = self.folder / f"{name}.ledger", False
        for _ in range(TRIES):
            code = self._start(name, path)
            self.say(f"ends with {code}")
            if code == -9 and name in self.lost:
                dead = True
                break
            if code == -9 and name in self.copies:
                self.say("its ledger is restored")
                path.write_bytes(self.copies.pop(name))
                self.auditor.put_back.add(name)
                path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
            if code in (0, 3, 4, 5) or (code == 2 and not self.full[name]):
                break
            self.sleep(self.rng.choice((0.2, 2.0, 6.0)) if code == -9 else 10.0)
        self.codes[name] = -9 if dead else code

    def _start(self, name: str, path: Path) -> int:
        """Start a site's session once; returns the exit code, -9 for a crash."""
        i = self.plan.index(name)
        try:
            with DurableLedger.open(path) as ledger:
                if self.plan.uses_secure_sums:
                    erase_old_masking_keys(ledger, "trial")
                noise = Watched(3, [0], [i], lead=())
                noise.world, noise.name = self, name
                session = SiteSession(
                    self.plan, name, self.rows.rows_of_node(i), ledger, self.keys[name], noise
                )
                ended = self.ends[name] = session.run(Door(self, name))
            check_complete_end(name, "trial", ended.outcome.stopped, ended.lost)
        except Crash:
            if self.over:
                raise
            return -9
        except SottovoceError as error:
            self.say(f"{type(error).__name__}: {error}")
            return exit_code_for_error(error)
        return 0

    # Judgement

    def _judge(self) -> None:
        """Check at the end of a run what was spent, the exit codes, the rosters and the models."""
        auditor, plan = self.auditor, self.plan
        for name, code in self.codes.items():
            auditor.spending(name, code)
        if self.kind == "liar" or auditor.broken:
            return
        while self.hub is None:
            self.hub = Hub(
                plan, HubLog(self.folder / "hub.log"), greeting=GREETING, clock=self.clock
            )
        _room(self.hub, True)
        roster = self.hub.status_as_dict()["roster"]
        harmed = {
            name for name in plan.names if self.restored(name) or self.codes[name] in (-9, 1, 2)
        }
        for name, code in self.codes.items():
            end = self.ends.get(name)
            if code == 3:
                auditor.breach(f"{name}: refused something of an honest hub")
            if code not in (-9, 1, 2) and end is None:
                auditor.breach(f"{name}: ended with {code} and no result")
            if end is None or name in harmed:
                continue
            whole = end.outcome.stopped in ("finished", "budget spent")
            right = 4 if not whole else 5 if end.lost else 0
            if code != right:
                auditor.breach(f"{name}: ended with {code} where {right} is right")
            if name in roster["gone"] and code == 0 and end.outcome.rounds < plan.config.rounds:
                auditor.breach(f"{name}: is out, and says that all is well")
        stay = [name for name in roster["members"] if name not in harmed]
        rosters = [self.ends[name].roster for name in stay if name in self.ends]
        if not self.faults and any(self.codes.values()):
            auditor.breach(f"no fault, and ended with {self.codes}")
        if len({self.codes[name] for name in stay}) > 1 or any(
            one != rosters[0] for one in rosters
        ):
            auditor.breach(f"those that stay end in different ways: {self.codes}, {rosters}")
        if stay and all(self.codes[name] in (0, 5) for name in stay):
            self._compare(roster, stay)

    def restored(self, name: str) -> bool:
        return name in self.restores

    def _compare(self, roster: dict[str, Any], stay: list[str]) -> None:
        """Models of those that stay, against the same run in one process."""
        plan, hub = self.plan, self.hub
        assert hub is not None
        index = plan.names.index
        if plan.uses_secure_sums:
            told = [
                ([index(name) for name in one.members], one.opened) for one in hub.rounds.attempts
            ]
            made = run_sites(plan.config, self.rows, attempts=told)
        else:
            made = run_sites(
                plan.config, self.rows, lost={index(name): k for name, k in roster["since"].items()}
            )
        for name in stay:
            model = (
                plan.stages[0]
                .prepared.algorithm.method_of_node(index(name))
                .model(made[index(name)][0].state)
            )
            if not np.array_equal(model, self.ends[name].model):
                self.auditor.breach(f"{name}: another model than its twin's")


class Watched(KeyedNoise):
    """The plan's noise; the auditor sees every draw."""

    world: World
    name: str

    def _generators_by_stream(self, *which: int) -> Iterator[np.random.Generator]:
        for generator in super()._generators_by_stream(*which):
            if self.name not in self.world.repeats:
                self.world.door(self.name, "a draw")
                self.world.auditor.drawn(self.name)
                self.world.door(self.name, "a drawn number")
            yield generator


class Door:
    """A site's way to the hub: slow, cut, answered by a hub that is down, full, or lies."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.answers: Callable[[str, bytes], bytes] | None = None
        self.earlier: list[bytes] = []
        self.lies = None if world.liar is None else Lies(world, name)

    def highest_stored_round(self, plan: str) -> int:
        check_plan_digest(plan, self.world.plan.digest)
        if self.lies is not None:
            return self.world.rng.choice((0, 0, 0, 1, 5))
        self.earlier, highest = self._ask(
            lambda hub: (hub.earlier(self.name), hub.highest_round_of(self.name))
        )
        return int(highest)

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        world = self.world
        world.auditor.said(self.name, round, message)
        world.door(self.name, f"exchange {round}")
        world.sleep(world.rng.uniform(0.0, 0.1) + world.rng.random() * world.slow[self.name])
        if self.lies is not None:
            return self.lies.exchange(round, message, self.answers)
        found = self._until(lambda hub: hub.exchange(self.name, round, message, 0.0))
        world.door(self.name, f"the inbox of {round}")
        return found

    def ask_other_sites(self, question: bytes, enough: int) -> dict[str, bytes]:
        if self.lies is not None:
            return self.lies.inquire(question, enough)
        return self._until(lambda hub: hub.pass_on_question(self.name, question, enough, 0.0))

    def send_farewell(self, farewell: bytes) -> None:
        if self.lies is None:
            self._ask(lambda hub: hub.record_farewell(self.name, farewell))

    def _until(self, ask: Callable[[Hub], dict[str, bytes] | None]) -> dict[str, bytes]:
        """Repeat a request until it has a result, and answer other sites' questions meanwhile."""
        while True:
            found, questions = self._ask(lambda hub: (ask(hub), hub.asked(self.name)))
            if found is not None:
                return dict(found)
            for asker, question in questions.items():
                if self.answers is not None:
                    answer = self.answers(asker, question)
                    self._ask(
                        lambda hub, asker=asker, answer=answer: hub.take_attestation(
                            self.name, asker, answer
                        )
                    )
            self.world.sleep(POLL)

    def _ask(self, request: Callable[[Hub], Any]) -> Any:
        """One request, repeated until the hub replies."""
        world, since = self.world, self.world.now
        while True:
            world.sleep(world.rng.uniform(0.001, 0.05))
            ends = world.expired.get(self.name, float("inf"))
            if world.hub is not None and not world.at(world.cut[self.name]) and world.now < ends:
                try:
                    _room(world.hub, not world.at(world.cut["hub full"]))
                    world.look(world.hub)
                    found = request(world.hub)
                    if world.rng.random() < 0.01 and self.world.faults:
                        raise OSError("the reply is lost")
                    return found
                except (Refused, TransportClosed):
                    raise
                except (SottovoceError, OSError):
                    pass  # the hub's own trouble: the site asks again
            if world.now - since > PATIENCE:
                raise Unreachable("hub: no answer")
            world.sleep(1.0)


def _room(hub: Hub, there: bool) -> None:
    """Whether the hub's disk has room; its log meets the real error of a full disk."""
    hub.log.file.db.execute(f"PRAGMA max_page_count = {1_000_000 if there else 1}")


@contextmanager
def doors(world: World) -> Iterator[None]:
    """Every transaction of a ledger is a place to die, and the disk may be full."""
    whole = ChainFile.transaction

    @contextmanager
    def transaction(self: ChainFile[Any], mode: str = "IMMEDIATE") -> Iterator[Any]:
        name = self.real.stem
        site = world.actor is not None and world.actor.name == name and not world.over
        if site:
            world.door(name, "a transaction")
            pages = 1 if world.at(world.full[name]) else 1_000_000
            self._db.execute(f"PRAGMA max_page_count = {pages}")
        with whole(self, mode) as state:
            yield state
        if site:
            world.door(name, "a commit")

    again = Vault.repeat_solve

    def repeat(self: Vault, solve: Callable[[], object], start: Any) -> None:
        """With noise that can be repeated a stored release is solved again, which a real site
        never does.
        """
        name = self.noise.name  # type: ignore[attr-defined]
        world.repeats.add(name)
        again(self, solve, start)
        world.repeats.discard(name)

    write = files.write_atomically

    def write_if_there_is_room(field: str, *what: Any, **more: Any) -> None:
        """The times of the hub's process are on the disk of its log."""
        if field == "seen" and world.at(world.cut["hub full"]):
            raise NotWritten("seen: cannot be written: No space left on device")
        write(field, *what, **more)

    ChainFile.transaction, Vault.repeat_solve = transaction, repeat  # type: ignore[method-assign,assignment]
    files.write_atomically = write_if_there_is_room
    try:
        yield
    finally:
        files.write_atomically = write
        Vault.repeat_solve = again  # type: ignore[method-assign]
        ChainFile.transaction = whole  # type: ignore[method-assign]


def play(seed: int, kind: str = "faults", tell: bool = False) -> tuple[World, list[str]]:
    """One world to its end, and which promises it broke."""
    world = World(seed, kind, tell=tell)
    with doors(world):
        broken = world.run()
    if tell:
        print("\n".join([f"{world.work} {world.faults}", *world.log, f"{world.codes}", *broken]))
    return world, broken


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0:100")
    parser.add_argument("--kind", choices=("calm", "faults", "liar"), default="faults")
    parser.add_argument("--plant", default=None, help="a planted bug: " + ", ".join(PLANTS))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--tell", action="store_true")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split(":"))
    started, found, codes, faults = (
        time.perf_counter(),
        dict[int, list[str]](),
        Counter[int](),
        Counter[str](),
    )
    alarms = Counter[str]()
    done = 0
    if arguments.plant:
        PLANTS[arguments.plant]()
    for seed in range(first, last):
        if time.perf_counter() - started > arguments.seconds:
            break
        world, broken = play(seed, arguments.kind, arguments.tell)
        done += 1
        codes.update(world.codes.values())
        faults.update(world.faults)
        alarms.update(world.kinds)
        if broken:
            found[seed] = broken
            print(f"seed {seed}: {broken[0]}", flush=True)
            if arguments.plant:
                break
    print(
        json.dumps(
            {
                "kind": arguments.kind,
                "plant": arguments.plant,
                "runs": done,
                "first": first,
                "broken": len(found),
                "codes": dict(sorted(codes.items())),
                "faults": dict(faults),
                "alarms": dict(alarms),
                "seconds": round(time.perf_counter() - started, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
