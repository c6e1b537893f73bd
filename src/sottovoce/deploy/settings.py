"""A site's own settings file, ``site.toml``, and a run as its settings say.

The file says where the site's rows, ledger, keys and plan are; nothing in it leaves the site.
:class:`SiteSettings` reads and checks it, and :meth:`SiteSettings.run_and_write_results` runs the
plan with what it names (``sottovoce site run``).

::

    name = "north"
    hub = "hub.example.org:8443"
    plan = "plan.json"
    ledger = "north.ledger"
    agreed = "5b0c..."           # the plan's digest, compared with the other sites; sums need it
    four_eyes = true             # optional: two people must agree to a plan (`site agree`)
    ceiling = 2.0                # optional: epsilon that all runs may reach, below the budget

    [data]
    file = "rows.csv"            # a table (.csv, .parquet, ...), or a folder made by write_rows
    schema = "schema.toml"       # optional: the plan holds it, and a file must agree

    [keys]
    authority = "ca.crt"
    certificate = "north.crt"
    key = "north.key"
    signing = "north.signing"

Paths are relative to the file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from ..data.labels import build_rows_for_task
from ..data.loaders import file_digest, load
from ..data.memmap import map_rows
from ..data.person import first_rows_of_each
from ..data.rows import Rows
from ..data.schema import Schema
from ..errors import InvalidInput, SottovoceError
from ..ledger.digest import rows_digest
from ..ledger.durable import DurableLedger
from ..ledger.identity import is_ledger_of_rows
from ..privacy.noise import KeyedNoise, Noise
from ..runs.config import RunConfig
from ..runs.engine import BUDGET, FINISHED, Observer
from ..runs.training import ONE_SITE, describe_deal
from ..util import files
from ..util.typing import Any
from . import certificates
from .amendment import apply_signed_amendments, read_amendments_in
from .answering import results_document
from .asks import SiteTable, make_site_table
from .files import KEY, write_new_file
from .keys import SigningKey
from .known import ENDING, Known, check_ledger_against_results
from .names import check_site_name
from .plan import Plan, schema_from_plain
from .plan_file import read_plan_file
from .relay import Credentials, grpc_target
from .report import (
    make_saved_result,
    put_other_results_aside,
    read_finished_results,
    render_site_report,
    run_in_the_way,
    write_summary,
)
from .session import Finished, SiteSession
from .sums.masks import erase_old_masking_keys, masking_keys_beside
from .transport import Transport

Watch = Callable[[int, float, float], None]
"""Called after a round with its number, the spent part of the rows' lifetime budget, and that
budget.
"""
_TOP = {
    "name": str,
    "hub": str,
    "plan": str,
    "ledger": str,
    "agreed": str,
    "patience": int | float,
    "four_eyes": bool,
    "ceiling": int | float,
    "data": dict,
    "keys": dict,
}
"""Entries at the top of the file, with their types."""
_DATA = {"file": str, "schema": str}
"""Entries of the table ``[data]``."""
_KEYS = {"authority": str, "certificate": str, "key": str, "signing": str}
"""Entries of the table ``[keys]``."""
_WORDS = {
    str: "a text in quotes",
    dict: "a table of entries",
    int | float: "a number",
    bool: "true or false",
}
"""What an entry of a type is in TOML, for messages."""
PATIENCE = 600.0
"""Default of ``patience``: seconds without a reply after which the hub counts as unreachable."""
EYES = 2
"""People who must agree to a plan where ``four_eyes = true``."""
_MOST_PATIENCE = 10**8
"""The largest ``patience``, some three years."""
_LONGEST = 4096
"""The most characters of a text in the file."""
_OPTIONAL = {
    "hub",
    "agreed",
    "patience",
    "four_eyes",
    "ceiling",
    "schema",
    "keys.authority",
    "keys.certificate",
    "keys.key",
}
"""Entries that may be absent."""

_FILE = """\
name = {name}
hub = {hub}
plan = "plan.json"
ledger = {ledger}
{agreed}{rules}
[data]
file = {data}
{schema}
[keys]
authority = "ca.crt"
certificate = {certificate}
key = {key}
signing = {signing}
"""


@dataclass(frozen=True)
class SiteRules:
    """What a new site asks of every plan.

    Parameters
    ----------
    four_eyes : bool
        Two people must agree.
    ceiling : float, optional
        Epsilon that all runs together may reach, below the ledger's budget.
    """

    four_eyes: bool = False
    ceiling: float | None = None

    @property
    def lines(self) -> str:
        """The entries of ``site.toml``."""
        found = ""
        if self.four_eyes:
            found += "four_eyes = true\n"
        if self.ceiling is not None:
            found += f"ceiling = {_checked_ceiling(self.ceiling)!r}\n"
        return found


def write_settings(
    folder: Path,
    name: str,
    hub: str,
    data: Path,
    schema: Path | None = None,
    agreed: str | None = None,
    rules: SiteRules | None = None,
    ledger: Path | None = None,
) -> Path:
    """Write a site's ``site.toml``, a new file in its folder.

    Parameters
    ----------
    folder : Path
        The site's folder.
    name : str
        The site.
    hub : str
        Address of the hub, ``HOST:PORT``.
    data : Path
        File or folder of the site's rows.
    schema : Path, optional
        File of a schema that must agree with the plan's.
    agreed : str, optional
        Digest of the plan to which the site agrees.
    rules : SiteRules, optional
        What the site asks of every plan.
    ledger : Path, optional
        The ledger, if it is not in the folder.

    Returns
    -------
    Path
        The file.
    """
    values = {
        "name": name,
        "hub": hub,
        "ledger": str(ledger or f"{name}.ledger"),
        "data": str(data),
        "certificate": f"{name}.crt",
        "key": f"{name}.key",
        "signing": f"{name}.signing",
    }
    # a JSON string is a TOML string, too
    shown = {key: json.dumps(value) for key, value in values.items()}
    path = folder / "site.toml"
    lines = {"schema": "", "agreed": "", "rules": (rules or SiteRules()).lines}
    if schema is not None:
        lines["schema"] = f"schema = {json.dumps(str(schema))}\n"
    if agreed is not None:
        lines["agreed"] = f"agreed = {json.dumps(agreed)}\n"
    write_new_file(path, _FILE.format(**shown, **lines))
    return path


def replace_entry(settings: Path, key: str, value: str) -> bool:
    """Write a text as an entry at the top of ``site.toml``, in place of an earlier one.

    Parameters
    ----------
    settings : Path
        The file.
    key, value : str
        The entry's name and text.

    Returns
    -------
    bool
        False if the file has no line ``[data]`` to write it above, and is left as it is.
    """
    old_lines = settings.read_text("utf-8").splitlines()
    lines = [line for line in old_lines if not re.match(rf"{key}\s*=", line)]
    if "[data]" not in lines:
        return False
    # A key of the file itself must stand above its first table.
    lines.insert(lines.index("[data]"), f"{key} = {json.dumps(value)}")
    files.write_atomically("settings", settings, "\n".join(lines) + "\n")
    return True


def digests_of_rows(file: Path, schema: Schema | None, rows: Rows) -> list[bytes]:
    """Return the digests by which a ledger recognises the rows of a site; treat them as secret.

    Parameters
    ----------
    file : Path
        The table, or a folder of mapped rows.
    schema : Schema, optional
    rows : Rows
        The same rows, encoded.

    Returns
    -------
    list of bytes
        The digest of the file, which is the same under every schema that bounds the same unit, row
        or person, and that of the encoded rows.  A folder of mapped rows holds encoded rows alone,
        and has the second only.
    """
    # The digest also depends on how rows lie at sites, here one, and on the schema's person column.
    raw = file_digest(str(file), describe_deal(ONE_SITE, schema, 1, RunConfig()))
    encoded = rows_digest(*rows.fingerprint_arrays())
    if raw is None:
        return [encoded]
    return [raw, encoded]


def check_no_other_ledger(
    data: Path, folder: Path, *fingerprints: bytes, known: Path | None = None
) -> list[str]:
    """Check, before a new ledger is made, that no ledger nearby is of the same rows.

    Compares every ``*.ledger`` in the folder of the data (for a link, its own folder too), in the
    parent of `folder`, and one level below both.

    Parameters
    ----------
    data : Path
        The site's table.
    folder : Path
        Where the ledger is to be made.
    *fingerprints : bytes
        Digests of the rows (:func:`digests_of_rows`).
    known : Path, optional
        The ledger of these rows that is to be used.

    Returns
    -------
    list of str
        Why some ledgers could not be compared.

    Raises
    ------
    InvalidInput
        If one is of the same rows: a second ledger would be a second budget.
    """
    unknown: list[str] = []
    for path in _find_ledgers_near(data, folder):
        if known is not None and path.resolve() == known:
            continue
        try:
            there = is_ledger_of_rows(path, *fingerprints)
        except SottovoceError as error:
            unknown.append(str(error))
            continue
        if there:
            rule = (
                f"already has the ledger {path}: a second one would be a second budget for the "
                "same rows"
            )
            remedy = (
                "use that ledger: `site join FILE --folder` with its folder goes on there, also by "
                "a new invitation of its hub; for another hub add --ledger with its path"
            )
            raise InvalidInput("data", data, rule, remedy)
    return unknown


def _find_ledgers_near(data: Path, folder: Path) -> list[Path]:
    """Return the ledgers beside the data, beside `folder`, and one level below, each once."""
    # The data may be a link: a ledger may lie beside the link, or beside the file itself.
    places = dict.fromkeys((data.resolve().parent, data.absolute().parent, folder.resolve().parent))
    near: dict[Path, None] = {}
    for place in places:
        for pattern in ("*.ledger", "*/*.ledger"):
            near |= dict.fromkeys(sorted(place.glob(pattern)))
    return [*near]


def load_rows(file: Path, schema: Schema | None) -> Rows:
    """Return all encoded rows of one site; see :func:`load_rows_and_table`."""
    return load_rows_and_table(file, schema)[0]


def load_rows_and_table(file: Path, schema: Schema | None) -> tuple[Rows, SiteTable | None]:
    """Load all rows of one site, from a table or from a folder of memory-mapped rows.

    Returns the encoded rows, and for a table also the table itself.  Raises :class:`InvalidInput`
    for a file that cannot be read or does not fit the schema; no message holds a value of the data.
    """
    try:
        folder, there = file.is_dir(), file.exists()
    except OSError as error:
        raise InvalidInput(
            "data", str(file), f"cannot be read: {error.strerror}", "correct the path"
        ) from None
    if folder:
        mapped = map_rows(file)
        if len(mapped.n) != 1:
            raise InvalidInput(
                "data", str(file), f"holds rows of {len(mapped.n)} sites", "map those of this site"
            )
        return mapped, None
    if not there:
        raise InvalidInput("data", str(file), "there is no such file", "correct the path")
    dataset = load(file, schema=schema, test_share=None)
    weights = None
    if dataset.weights is not None:
        weights = [dataset.weights]
    table = make_site_table(schema, dataset.X_train, dataset.y_train, dataset.train_columns)
    if dataset.people is None or schema is None or schema.person is None:
        return build_rows_for_task(
            dataset.task, [(dataset.X_train, dataset.y_train)], weights
        ), table
    # A person's rows beyond the declared number are not read at all.
    read = first_rows_of_each(dataset.people, schema.person.rows)
    if weights is not None:
        weights = [weights[0][read]]
    rows = build_rows_for_task(
        dataset.task, [(dataset.X_train[read], dataset.y_train[read])], weights
    )
    return rows.with_people([dataset.people[read]], schema.person.rows), table


@dataclass(frozen=True)
class SiteSettings:
    """The content of ``site.toml``, with absolute paths.

    Parameters
    ----------
    folder : Path
        The folder that holds the file.
    name : str
        The site.
    hub : str
        Address of the hub, ``HOST:PORT``; empty if another transport than the relay is used.
    plan, ledger, data, signing : Path
        Files of the plan, the ledger, the rows and the signing key.
    credentials : Credentials
        TLS files for the relay.
    schema : Path, optional
        File of a schema that must agree with the plan's.
    patience : float
        Seconds without a reply after which the hub counts as unreachable.
    digest : str, optional
        Digest of the plan to which this site has agreed, the entry ``agreed``.
    four_eyes : bool
        Whether two people must agree to a plan.
    ceiling : float
        Epsilon that all runs together may reach; infinite for the ledger's budget alone.
    """

    folder: Path
    name: str
    hub: str
    plan: Path
    ledger: Path
    data: Path
    signing: Path
    credentials: Credentials
    schema: Path | None = None
    patience: float = PATIENCE
    digest: str | None = None
    four_eyes: bool = False
    ceiling: float = math.inf

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read and check the file; raises :class:`InvalidInput`."""
        file = Path(path)
        # `KEY` is the most bytes of a key file; settings may have as many.
        text = files.read_bounded_text("settings", file, KEY)
        try:
            given = files.parse_bounded_toml(text)
        except ValueError as error:
            remedy = "write it as `sottovoce site init` does"
            raise InvalidInput("settings", file, f"is not TOML: {error}", remedy) from None
        _check_entries("", given, _TOP)
        _check_entries("data.", given["data"], _DATA)
        _check_entries("keys.", given["keys"], _KEYS)
        check_site_name("name", given["name"])
        texts = given | {f"data.{key}": value for key, value in given["data"].items()}
        texts |= {f"keys.{key}": value for key, value in given["keys"].items()}
        for field, value in texts.items():
            if isinstance(value, str) and not (value.isprintable() and 0 < len(value) <= _LONGEST):
                rule = f"must be 1 to {_LONGEST} characters without control characters"
                raise InvalidInput(field, None, rule, "write such a text")
        patience = given.get("patience", PATIENCE)
        if not 0 < patience <= _MOST_PATIENCE or not math.isfinite(patience):
            rule = f"must be above 0 and at most {_MOST_PATIENCE} seconds"
            raise InvalidInput("patience", None, rule, f"use patience = {PATIENCE:g}")
        folder, keys, name = file.resolve().parent, given["keys"], given["name"]

        def at(text: str) -> Path:
            """Return a path of the file, which is relative to the file's folder."""
            return folder / text

        schema = None
        if "schema" in given["data"]:
            schema = at(given["data"]["schema"])
        return cls(
            folder,
            name,
            given.get("hub", ""),
            at(given["plan"]),
            at(given["ledger"]),
            at(given["data"]["file"]),
            at(keys["signing"]),
            Credentials(
                at(keys.get("authority", "ca.crt")),
                at(keys.get("certificate", f"{name}.crt")),
                at(keys.get("key", f"{name}.key")),
            ),
            schema,
            float(patience),
            given.get("agreed"),
            given.get("four_eyes", False),
            _checked_ceiling(given.get("ceiling")),
        )

    def open_ledger(self) -> DurableLedger:
        """Open the ledger, which then keeps to this site's ceiling."""
        ledger = DurableLedger.open(self.ledger)
        ledger.account.ceiling = self.ceiling
        return ledger

    def check_connection(self) -> None:
        """Raise :class:`InvalidInput` for an address or TLS files that allow no connection."""
        grpc_target(self.hub)
        certificates.check_tls_files(self.name, *self.credentials.read())

    @cached_property
    def agreed_plan(self) -> Plan:
        """The plan; raises :class:`InvalidInput` if this site's schema differs from the plan's."""
        plan = read_plan_file(self.plan)
        if self.schema is not None:
            own = Schema.from_toml(self.schema)
            agreed = schema_from_plain(plan.schema)
            if agreed is not None and own.data_dependent != agreed.data_dependent:
                rule = (
                    f"the plan's schema says {agreed.data_dependent}, and the privacy statement "
                    "depends on it"
                )
                raise InvalidInput(
                    "data_dependent",
                    own.data_dependent,
                    rule,
                    "agree with the other sites on the true value",
                )
            if agreed is None or own.fingerprint != agreed.fingerprint:
                rule = "encodes rows differently from the plan's schema"
                raise InvalidInput(
                    "schema",
                    str(self.schema),
                    rule,
                    "use the plan's schema, or agree on another plan",
                )
        return plan

    def check_plan_is_agreed(self, ledger: DurableLedger) -> None:
        """Check that the people of this site agreed to this plan.

        They did if the ledger has their consent (``sottovoce site agree``), two people's with
        `four_eyes`; or if the entry ``agreed`` is the plan's digest.  The entry may be absent for a
        plan that somebody put into the folder, except for a plan of secure sums.  Raises
        :class:`InvalidInput`.
        """
        if self.is_agreed(ledger):
            return
        plan = self.agreed_plan
        if self.four_eyes:
            rule = _lack_of_people(people_who_agreed(ledger, plan.digest))
            raise InvalidInput("four_eyes", True, rule, _how_to_agree(self))
        if self.digest is None and not (plan.uses_secure_sums or self.is_invited):
            return
        rule = f"is not the digest of {self.plan.name}"
        if self.digest is None:
            rule = "is missing, and nobody has agreed to this plan"
            if plan.uses_secure_sums:
                rule = (
                    "is missing, but masks protect a site only if all sites use the keys of the "
                    "same plan"
                )
        remedy = (
            "compare the digest with the other sites by telephone; if all are equal, "
            f"{_how_to_agree(self)}, or write {self.agreed_line}"
        )
        raise InvalidInput("agreed", self.digest, rule, f"{remedy} above [data] in site.toml")

    def is_agreed(self, ledger: DurableLedger) -> bool:
        """Return True if enough people agreed to this plan, or the entry ``agreed`` is its digest.

        The entry is one person's: where two must agree, it does not count.
        """
        digest = self.agreed_plan.digest
        if not self.four_eyes and self.digest == digest:
            return True
        return len(people_who_agreed(ledger, digest)) >= self.people_needed

    @property
    def rules(self) -> SiteRules:
        """What this site asks of every plan."""
        ceiling = None
        if math.isfinite(self.ceiling):
            ceiling = self.ceiling
        return SiteRules(self.four_eyes, ceiling)

    @property
    def people_needed(self) -> int:
        """How many people must agree to a plan."""
        if self.four_eyes:
            return EYES
        return 1

    @property
    def invitation(self) -> Path:
        """File of the invitation by which the site joined; absent after ``site init``."""
        return self.result_file("invite")

    @property
    def is_invited(self) -> bool:
        """True if the site joined by an invitation, so that its plans come from the hub."""
        return self.invitation.exists()

    @property
    def proposed(self) -> Path:
        """File of a plan that the hub proposes, to which nobody has agreed yet."""
        return self.plan.with_name(f"{self.plan.name}.proposed")

    def plan_of_run(self, run: str) -> Path:
        """Return the file that keeps the plan of an earlier run, ``plan.RUN.json``."""
        return self.plan.with_name(f"{self.plan.stem}.{run}.json")

    @property
    def of_proposal(self) -> Self:
        """The same settings with the proposed plan in the place of the plan."""
        return replace(self, plan=self.proposed)

    @property
    def agreed_line(self) -> str:
        """The line of ``site.toml`` by which the site agrees to the plan, ``agreed = "..."``."""
        return f"agreed = {json.dumps(self.agreed_plan.digest)}"

    def check_records(self, ledger: DurableLedger, *, new_keys: bool = False) -> Known:
        """Compare ledger and plan with the records of earlier runs, and return these records.

        Refuses an older copy of the ledger (:class:`LedgerCorrupt`), and a plan with other signing
        keys of known sites (:class:`InvalidInput`) unless `new_keys`.  The keys are not compared
        again for a run that this ledger has begun.
        """
        check_ledger_against_results(ledger, self.folder / self.name)
        known = Known.read(self.result_file(ENDING))
        known = apply_signed_amendments(
            known, self.agreed_plan, self.name, read_amendments_in(self.folder)
        )
        if not new_keys and self.agreed_plan.run not in ledger.runs:
            known.check_keys_unchanged(self.agreed_plan, self.name)
        return known

    def session(self, ledger: DurableLedger, observers: Sequence[Observer] = ()) -> SiteSession:
        """Return the session of this site for its plan.

        Noise is the operating system's, unless the ledger is a demonstration's: only ``sottovoce
        demo`` makes such a file, and ties it to the demonstration's rows.
        """
        plan = self.agreed_plan
        schema = schema_from_plain(plan.schema)
        noise: Noise | None = None
        if ledger.demonstration and plan.config.seed is not None:
            noise = KeyedNoise(plan.config.seed, [0], [plan.index(self.name)], lead=())
        rows, table = load_rows_and_table(self.data, schema)
        signing = SigningKey.read(self.signing)
        # The digest of the file alone, if there is one: the session computes that of the encoded
        # rows itself.
        raw = digests_of_rows(self.data, schema, rows)[:-1]
        return SiteSession(plan, self.name, rows, ledger, signing, noise, observers, table, *raw)

    def run_and_write_results(
        self, transport: Transport, watch: Watch | None = None, *, new_keys: bool = False
    ) -> Finished:
        """Run the plan to its end over a transport, and write the results beside the settings.

        The caller must hold the lock of :attr:`lock_file`.  The files are ``NAME.html``, the
        report; ``NAME.npz`` (after an inference ``NAME.json``), the classifier for ``sottovoce
        predict``; ``NAME.json``, the summary; and ``NAME.known``, with which the next run is
        compared.  Results of another run are renamed to ``NAME.RUN.html`` and so on.

        Parameters
        ----------
        transport : Transport
        watch : callable, optional
            Called after every round (:data:`Watch`).
        new_keys : bool
            Accept other signing keys of known sites.

        Returns
        -------
        Finished

        Raises
        ------
        InvalidInput, LedgerError, BudgetExceeded, Refused, Unreachable
            As :meth:`check_records` and :meth:`sottovoce.deploy.session.SiteSession.run`.
        """
        # Raises, before anything is spent, if the results could not be written at the end.
        run_in_the_way(self.folder / self.name, self.agreed_plan)
        with self.open_ledger() as ledger:
            known = self.check_records(ledger, new_keys=new_keys)
            self.check_plan_is_agreed(ledger)
            observers = [] if watch is None else [_budget_observer(watch, ledger)]
            session = self.session(ledger, observers)
            ended = session.run(transport)
        self._write_results(session.plan, known, ended)
        return ended

    def rebuild_results(self) -> Finished:
        """Write the results of the plan's run again, from the ledger alone.

        For a site that lost its report when the hub is gone: see
        :meth:`sottovoce.deploy.session.SiteSession.replay`.  The caller must hold the lock of
        :attr:`lock_file`.
        """
        run_in_the_way(self.folder / self.name, self.agreed_plan)
        with self.open_ledger() as ledger:
            known = self.check_records(ledger)
            session = self.session(ledger)
            ended = session.replay()
        self._write_results(session.plan, known, ended)
        return ended

    def _write_results(self, plan: Plan, known: Known, ended: Finished) -> None:
        """Write the files of an ended run, the summary last: once it exists, all exist.

        `known` are the records of earlier runs.
        """
        stem = self.folder / self.name
        put_other_results_aside(stem, plan)
        answers = {}
        if ended.found is not None:
            answers = results_document(plan, ended.found)
        files.write_atomically(
            "report", self.result_file("html"), render_site_report(plan, self.name, ended)
        )
        if not plan.is_inference:
            how = ended.outcome
            kept = make_saved_result(
                plan, ended.model[None], ended.statement, how.stopped, how.rounds, ended.move
            )
            kept.save(self.result_file("npz"))
        named = {
            "run": plan.run,
            "plan": plan.digest,
            "site": self.name,
            "demonstration": plan.demonstration,
        }
        complete = ended.outcome.stopped in (FINISHED, BUDGET)
        known.after(plan, self.name, ended.head, complete).write(self.result_file(ENDING))
        summary = named | answers | ended.to_dict()
        if plan.demonstration:
            # Times depend on the rows, so the results of a run that protects these have none.
            summary |= ended.times
        write_summary(stem, summary)

    def erase_old_keys(self, tell: Callable[[str], None]) -> dict[str, str]:
        """Erase the private masking keys of runs that are over; called at every start.

        See :func:`sottovoce.deploy.sums.masks.erase_old_masking_keys`.  `tell` is called with a
        line for each erased key, and for each key of another run that is still open.  Returns the
        runs of the erased keys, with their state in the ledger.
        """
        if not masking_keys_beside(self.ledger.resolve()):
            return {}
        with DurableLedger.open(self.ledger) as ledger:
            erased = erase_old_masking_keys(ledger, self.agreed_plan.run)
        for run, state in erased.items():
            tell(f"erased the key of run {run}, which is {state} in the ledger")
        for run in sorted(
            masking_keys_beside(self.ledger.resolve()).keys() - {self.agreed_plan.run}
        ):
            why = (
                "is open in the ledger: its key stays; if it will not go on, `sottovoce ledger "
                "close` erases it"
            )
            tell(f"run {run} {why}")
        return erased

    @property
    def lock_file(self) -> Path:
        """Lock file of this site.

        It is in the ledger's folder.  A site whose ledger is that of another folder has a lock of
        its own, so that it takes part at two hubs at a time: the ledger itself, which both share,
        decides who may spend.
        """
        ledger = self.ledger.resolve()
        if ledger.parent == self.folder or not self.folder.is_dir():
            return ledger.with_suffix(".lock")
        return self.folder / f"{self.name}.lock"

    def read_final_results(self) -> dict[str, Any] | None:
        """Return the summary of the plan's run if this site has finished it; else None.

        A run that ended early counts as finished, too, once its summary is written.
        """
        return self.read_results_of(self.agreed_plan)

    def read_results_of(self, plan: Plan) -> dict[str, Any] | None:
        """Return the summary of a plan's run if this site has finished it; else None."""
        found = read_finished_results(self.folder / self.name, plan)
        if found is None or found.get("stopped") in (FINISHED, BUDGET):
            return found
        # Summaries of version 0.1 lack this entry, and state too little of runs that ended early.
        if "made" not in dict(found.get("privacy") or {}):
            return None
        return found

    def result_file(self, kind: str) -> Path:
        """Return the path of a file of results by its ending, such as ``html``."""
        return self.folder / f"{self.name}.{kind}"


def _checked_ceiling(given: float | None) -> float:
    """Return the entry ``ceiling`` as a number; infinite if it is absent."""
    if given is None:
        return math.inf
    if not given > 0.0:
        raise InvalidInput("ceiling", given, "must be above 0", "write e.g. ceiling = 2.0")
    return float(given)


def people_who_agreed(ledger: DurableLedger, digest: str) -> list[str]:
    """Return the names of the people whose consent to a plan the ledger has, by its digest."""
    return [one.by for one in ledger.consents if one.plan == digest]


def _lack_of_people(people: Sequence[str]) -> str:
    """Say who is missing where two people must agree to a plan."""
    if not people:
        return "asks for the consent of two people, and nobody has agreed to this plan"
    return f"asks for the consent of two people, and {people[0]} alone has agreed to this plan"


def _how_to_agree(found: SiteSettings) -> str:
    """Return the command by which somebody agrees to a plan."""
    return f"use `sottovoce site agree {found.folder.name}`"


def _budget_observer(watch: Watch, ledger: DurableLedger) -> Observer:
    """Return an observer of rounds that calls `watch` with the round and the ledger's spending."""
    return lambda k, _: watch(k, ledger.total(), float(ledger.epsilon[0]))


def _check_entries(prefix: str, given: dict[str, Any], known: dict[str, Any]) -> None:
    """Check the entries of a table of ``site.toml``; raises :class:`InvalidInput`.

    Parameters
    ----------
    prefix : str
        Of the table's entries, such as ``data.``; empty for the top of the file.
    given : dict
        The entries.
    known : dict
        Types of the entries that may be there, by name.
    """
    for key, value in given.items():
        if key not in known:
            raise InvalidInput(
                prefix + key, None, f"must be one of {', '.join(known)}", "remove or correct it"
            )
        # To Python True is an int, and would pass for a number of seconds.
        is_flag = isinstance(value, bool)
        if not isinstance(value, known[key]) or is_flag != (known[key] is bool):
            rule = f"must be {_WORDS[known[key]]}"
            raise InvalidInput(prefix + key, None, rule, "write it as `sottovoce site init` does")
    for key in known:
        if key not in given and key not in _OPTIONAL and prefix + key not in _OPTIONAL:
            raise InvalidInput(prefix + key, None, "is missing", "see `sottovoce site init`")
