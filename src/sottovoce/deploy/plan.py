"""The plan that sites agree on before the first round: one file, one digest, and nothing in it that is not public.

It fixes the run completely: method and hyperparameters as calibrated, graph, schedules, row counts, schema, and each
site's name and public key.  Every message carries its digest, so that a site with any other plan is refused.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from ..algorithms import REGISTRY
from ..configuration import Prepared, RunConfig, prepare
from ..curator import Planner
from ..data.schema import Schema
from ..engine import Place
from ..engine import run as drive
from ..errors import InvalidInput, SottovoceError
from ..net import Net
from ..privacy.accountants import make as make_accountant
from ..privacy.chain import canonical, keyed_hash
from ..privacy.events import Event
from ..privacy.ledger import Ledger
from ..typing import Any, Array

VERSION = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
LARGEST = 32 * 2**20
"""Bytes of a plan file at most."""
_ROOM = 100.0


@dataclass(frozen=True)
class Member:
    """A site as everybody knows it.

    Parameters
    ----------
    name : str
        Letters, digits, ``_``, ``.`` and ``-``; also the common name of its certificate.
    rows : int
    key : str
        Its Ed25519 public key, 32 bytes in base64.
    """

    name: str
    rows: int
    key: str

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if not isinstance(self.rows, int) or self.rows < 1:
            raise InvalidInput("rows", self.rows, "must be a whole number, at least 1", "give the site's row count")
        try:
            size = len(base64.b64decode(self.key, validate=True))
        except ValueError:
            size = 0
        if size != 32:
            raise InvalidInput("key", self.key, "must be 32 bytes in base64", "give the file that `site init` wrote")


def check_name(field: str, name: str) -> None:
    """Refuse a name that cannot stand in certificates, files and logs.

    Raises
    ------
    InvalidInput
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidInput(field, name, "must be 1 to 63 letters, digits, '_', '.' or '-'", "use e.g. 'north-1'")


@dataclass(frozen=True)
class Plan:
    """An agreed run.  Use :meth:`make`, which calibrates, or :meth:`read`.

    Parameters
    ----------
    run : str
        Its name: in the hub's log and in every site's ledger.
    config : RunConfig
        With explicit penalty and noise; with a seed it is a demonstration, whose noise anybody can repeat.
    d : int
        Features, the constant one included.
    sites : tuple of Member
        In the order of the graph's nodes.
    edges : tuple of pairs
    norm_cap : float
        Messages of a larger Euclidean norm are refused.
    schema : dict or None
        How every site encodes its rows.
    """

    run: str
    config: RunConfig
    d: int
    sites: tuple[Member, ...]
    edges: tuple[tuple[int, int], ...]
    norm_cap: float
    schema: dict[str, Any] | None = None

    @classmethod
    def make(
        cls,
        run: str,
        config: RunConfig,
        sites: Sequence[Member],
        d: int,
        *,
        schema: dict[str, Any] | None = None,
        norm_cap: float | None = None,
    ) -> Self:
        """Check and calibrate a run, and write down what came out.

        Parameters
        ----------
        run : str
        config : RunConfig
        sites : sequence of Member
        d : int
        schema : dict, optional
            Of :meth:`sottovoce.data.Schema.to_dict`.
        norm_cap : float, optional
            None for a hundred times what minimisers and noise of these public parameters reach.

        Raises
        ------
        InvalidInput
        """
        n = np.array([[float(site.rows)] for site in sites])
        prepared = prepare(config, n, d)
        known = replace(
            config, eta=prepared.algorithm.penalty, eta_growth=1.0, noise=prepared.algorithm.noise, noise_growth=1.0,
            accountant=config.notion,
        )  # fmt: skip
        cap = _cap(prepared, config.rounds) if norm_cap is None else norm_cap
        return cls(run, known, d, tuple(sites), prepared.graph.edges, cap, schema)

    def __post_init__(self) -> None:
        check_name("run", self.run)
        if REGISTRY[self.config.method].trust != "nobody":
            rule = "its curator would hold the rows of all sites"
            raise InvalidInput("method", self.config.method, rule, "use a method that trusts nobody")
        names = [site.name for site in self.sites]
        if len(set(names)) != len(names) or len({site.key for site in self.sites}) != len(names):
            raise InvalidInput("sites", names, "every site needs a name and a key of its own", "correct the list")
        if not (np.isfinite(self.norm_cap) and self.norm_cap > 0):
            raise InvalidInput("norm_cap", self.norm_cap, "must be finite and > 0", "leave it out")
        if self.schema is not None and len(self.features) != self.d:
            raise InvalidInput("d", self.d, f"the schema has {len(self.features)} features", "use its number")
        if self.config.replicates != 1:
            raise InvalidInput("replicates", self.config.replicates, "sites run once", "use replicates=1")
        if self.prepared.graph.edges != self.edges:
            rule = "this version makes another graph from it"
            raise InvalidInput("graph", self.config.graph, rule, "use the version that wrote the plan")

    @property
    def demonstration(self) -> bool:
        """Whether its noise can be repeated: such a run releases nothing that is protected."""
        return self.config.seed is not None

    @cached_property
    def prepared(self) -> Prepared:
        """The run, validated and priced."""
        n = np.array([[float(site.rows)] for site in self.sites])
        return prepare(self.config, n, self.d)

    @cached_property
    def digest(self) -> str:
        """Of everything in the plan; sites that name the same agree."""
        return keyed_hash(b"plan", canonical(self.to_dict()).encode()).hex()

    @property
    def features(self) -> list[str]:
        """Names of the features, in order; without a schema, none."""
        return [] if self.schema is None else Schema.from_dict(self.schema).feature_names

    @property
    def names(self) -> tuple[str, ...]:
        """Of all sites."""
        return tuple(site.name for site in self.sites)

    def index(self, name: str) -> int:
        """Number of a site's node.

        Raises
        ------
        InvalidInput
            If the plan knows no such site.
        """
        if name not in self.names:
            raise InvalidInput("name", name, f"is no site of the plan, which has {', '.join(self.names)}", "correct it")
        return self.names.index(name)

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Names of a site's neighbours, in the order in which their vectors are added."""
        return tuple(self.names[j] for j in self.prepared.graph.neighbours(self.index(name)))

    def events(self, name: str) -> tuple[Event, ...]:
        """All that a site will charge, in order, as far as the run's own budget allows."""
        if name not in self._events:
            self._events[name] = self._allowed(name)
        return self._events[name]

    @cached_property
    def _events(self) -> dict[str, tuple[Event, ...]]:
        return {}

    def _allowed(self, name: str) -> tuple[Event, ...]:
        prepared, i = self.prepared, self.index(name)
        facts, delta = prepared.facts.node(i), prepared.ledger.delta
        budget = np.broadcast_to(prepared.ledger.epsilon, (len(self.sites),))[i]

        def planned(limit: float) -> tuple[Event, ...]:
            planner = Planner(facts, Ledger(make_accountant(self.config.notion), limit, delta))
            place = Place(facts, _Silent(prepared.graph.degree[i]), planner, (), 1)
            drive(prepared.algorithm.at(i), place, self.config.rounds)
            return planner.ledger.rows

        everything = planned(math.inf)
        accountant = make_accountant(self.config.notion)
        spent = accountant.nothing()
        for event in everything:
            spent = accountant.add(spent, event)
        # Totals only grow: if the whole run fits, so does each part, and one look is cheaper than one a release.
        return everything if np.all(accountant.within(spent, delta, budget)) else planned(float(budget))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "version": VERSION, "run": self.run, "config": self.config.to_dict(), "d": self.d,
            "sites": [{"name": s.name, "rows": s.rows, "key": s.key} for s in self.sites],
            "edges": [list(edge) for edge in self.edges], "norm_cap": self.norm_cap, "schema": self.schema,
            "features": self.features,
        }  # fmt: skip

    def write(self, path: str | Path) -> None:
        """Write the file that every site gets."""
        text = json.dumps(
            self.to_dict() | {"digest": self.digest}, indent=1, allow_nan=False
        )  # the schema's order counts
        Path(path).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read what :meth:`write` wrote.

        Raises
        ------
        InvalidInput
            If it is no plan of this version, or was changed since.
        """
        try:
            if not Path(path).is_file():
                raise InvalidInput("plan", str(path), "there is no such file", "see `sottovoce plan --write`")
            if Path(path).stat().st_size > LARGEST:
                raise ValueError
            plain = json.loads(Path(path).read_text(encoding="utf-8"))
            stated, version = plain.pop("digest"), plain.pop("version")
            if version != VERSION:
                raise InvalidInput("plan", str(path), f"has version {version!r}, this one reads {VERSION}", "update")
            if plain["schema"] is not None:
                Schema.from_dict(plain["schema"])
            plan = cls(
                run=plain.pop("run"), config=RunConfig.from_dict(plain.pop("config")), d=plain.pop("d"),
                sites=tuple(Member(**site) for site in plain.pop("sites")),
                edges=tuple((int(i), int(j)) for i, j in plain.pop("edges")), norm_cap=plain.pop("norm_cap"),
                schema=plain.pop("schema"),
            )  # fmt: skip
            plain.pop("features")
        except SottovoceError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInput("plan", str(path), "is no plan file", "write one with `sottovoce plan`") from error
        if plain or plan.digest != stated:
            rule = "does not have the digest that stands in it: it was changed"
            raise InvalidInput("plan", str(path), rule, "get the agreed file again")
        return plan


class _Silent(Net):
    """Neighbours that send zeros: prices do not depend on messages."""

    def __init__(self, degree: Array) -> None:
        self.degree = degree

    def neighbour_sum(self, x: Array) -> Array:
        return np.zeros_like(x)


def _cap(prepared: Prepared, rounds: int) -> float:
    """From public facts: a minimiser of one site alone is no longer than slope times C over mu; noise comes on top."""
    facts = prepared.facts
    alone = facts.loss.slope_bound * facts.C / facts.mu
    planner = Planner(facts, Ledger(make_accountant(prepared.config.notion), np.inf, prepared.ledger.delta))
    drive(prepared.algorithm, Place(facts, _Silent(prepared.graph.degree), planner, (facts.n_nodes,), 1), rounds)
    spread = max((float(np.max(event.spread())) for event in planner.ledger.rows), default=0.0)
    return _ROOM * (alone + np.sqrt(facts.d).item() * spread)
