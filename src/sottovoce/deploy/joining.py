"""A new site's folder: keys, ledger and settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..data.schema import Schema
from ..errors import InvalidInput
from ..ledger.durable import DurableLedger
from ..ledger.life import example
from . import certificates
from .crypto import need_cryptography
from .files import together, write_new
from .keys import SigningKey
from .members import Member
from .names import check_name
from .plan import Plan
from .relay import target
from .settings import check_no_other, digests_of, load_rows, write_settings


@dataclass(frozen=True)
class Made:
    """A new site: its public facts, its certificate request, and what to tell its people of its ledger."""

    member: Member
    request: str
    share: str | None
    unknown: list[str]


def make_site(
    folder: Path, name: str, hub: str, data: Path, schema: Schema, schema_file: Path, epsilon: float,
    delta: float | None, accountant: str | None, more: Callable[[Member, str], dict[str, str]] = lambda *_: {},
    spent: Sequence[Plan] = (),
) -> Made:  # fmt: skip
    """Make a site's folder: all of its files, or none.

    `more` gives further files by name, from the public facts and the certificate request.  The ledger has charged all
    that the plans in `spent` planned for the site, in place of a ledger that was lost.
    """
    need_cryptography()
    check_name("name", name)
    target(hub)
    if (folder / "site.toml").exists():
        raise InvalidInput("folder", str(folder), "holds a site already", "use another folder")
    rows = load_rows(data, schema)
    kind = accountant or ("pure" if delta is None else "rdp")
    ours = digests_of(data, schema, rows)
    unknown = check_no_other(data, folder, *ours)
    with together(folder) as made:
        book = folder / f"{name}.ledger"
        with DurableLedger.create(
            book, epsilon=epsilon, delta=delta or 0.0, accountant=kind, fingerprint=ours[0]
        ) as ledger:
            made(book)
            for plan in spent:
                events = plan.privacy.events(name)
                with ledger.reserve(plan.run, plan.digest, events) as run:
                    for event in events:
                        run.charge(event)
        certificates.request(folder, name)
        for ending in ("key", "csr"):
            made(folder / f"{name}.{ending}")
        key = SigningKey.make()
        key.write(folder / f"{name}.signing")
        made(folder / f"{name}.signing")
        member, request = Member(name, int(rows.n[0, 0]), key.public), (folder / f"{name}.csr").read_text()
        public = {f"{name}.public.json": json.dumps(vars(member), indent=1) + "\n"}
        for file, text in (public | more(member, request)).items():
            write_new(folder / file, text)
            made(folder / file)
        write_settings(folder, name, hub, data.resolve(), schema_file)
    return Made(member, request, example(kind, epsilon, delta or 0.0), unknown)
