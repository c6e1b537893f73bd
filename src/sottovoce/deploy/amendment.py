"""The replacement of a site's lost signing key or ledger, which all other members sign.

An *amendment* names the site, its key of before and its new one, and, if the ledger was lost, every
run that the site has ever agreed to, each with its plan's digest.  The new ledger has charged all
that those plans planned for the site, which is at least what was spent.  Each other member checks
that no run that it shared with the site is left out, compares the amendment's short code with the
site's people by telephone, and signs.  A member takes the new key for the old one once all other
members of a plan that it knows have signed, itself among them.  The commands are ``sottovoce site
replace`` (at the site) and ``site accept`` (at the others); see ``docs/deploy/it.md``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from ..errors import InvalidInput, SottovoceError
from ..util import files
from ..util.codec import record_from_plain, record_to_plain
from ..util.plain import canonical_json
from .invitation import PLAN_GROUPS, comparison_code
from .keys import SigningKey, verify_signature
from .known import Known
from .members import Member
from .names import check_run_name, check_site_name
from .plan import Plan
from .strict import parse_json, reason_of_refusal

ENDING = "amendment"
"""Ending of an amendment's file."""
_DOMAIN = b"sottovoce amendment 1\n"
"""Prefix of the signed text, so that no signature of another kind of message can be used here."""
_LARGEST = 2**20
"""The most bytes of an amendment's file."""


@dataclass(frozen=True)
class Amendment:
    """The new key of a site, and after the loss of its ledger its runs, for all members to sign.

    Parameters
    ----------
    name : str
        The site.
    old, key : str
        Its former public signing key and its new one, in base64.
    runs : dict, optional
        Digest of the plan by run name, of all runs whose planned privacy loss the new ledger has
        charged; None if the ledger was not lost.
    signatures : dict
        Signatures in base64, by the name of the member that signed.
    """

    name: str
    old: str
    key: str
    runs: dict[str, str] | None = None
    signatures: dict[str, str] = field(default_factory=dict)

    @property
    def signed_content(self) -> bytes:
        """The bytes that members sign: everything but the signatures."""
        body = {"name": self.name, "old": self.old, "key": self.key, "runs": self.runs}
        return _DOMAIN + canonical_json(body).encode()

    @property
    def comparison_code(self) -> str:
        """A short code of everything but the signatures, to compare by telephone."""
        return comparison_code(self.signed_content, PLAN_GROUPS)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what :meth:`text` gave; raises :class:`InvalidInput`."""
        try:
            found = record_from_plain(
                cls, parse_json(files.read_bounded_file("amendment", path, _LARGEST), _LARGEST)
            )
            for key in (found.old, found.key):
                Member(found.name, 1, key)
            for run in found.runs or {}:
                check_run_name("run", run)
            for name, signature in found.signatures.items():
                check_site_name("name", name)
                base64.b64decode(signature, validate=True)
        except (SottovoceError, ValueError) as error:
            rule = f"is not an amendment{reason_of_refusal(error)}"
            raise InvalidInput(
                "amendment", path, rule, "give the file that `site replace` wrote"
            ) from None
        return found

    def text(self) -> str:
        """Return the file's content."""
        return json.dumps(record_to_plain(self), indent=1) + "\n"

    def sign(self, name: str, key: SigningKey) -> Self:
        """Return this amendment with the signature of a member."""
        made = base64.b64encode(key.sign(self.signed_content)).decode()
        signatures = dict(sorted((self.signatures | {name: made}).items()))
        return replace(self, signatures=signatures)

    def is_signed_by(self, name: str, key: str) -> bool:
        """Return True if the member with this public key has signed."""
        try:
            signature = base64.b64decode(self.signatures.get(name, ""))
            verify_signature(base64.b64decode(key), signature, self.signed_content)
        except ValueError:
            return False
        return True

    def check_shared(self, known: Known) -> None:
        """Check the amendment of another site against this site's own records, before it signs.

        The old key must be the one in the records, and no run in which both took part may be
        missing.

        Raises :class:`InvalidInput` otherwise.
        """
        mine = {other.lower(): key for other, key in known.keys.items()}
        if mine.get(self.name.lower()) != self.old:
            rule = f"its old key differs from the key of {self.name} in earlier runs of this site"
            raise InvalidInput(
                "amendment",
                self.name,
                rule,
                "ask that site, and do not sign before it is explained",
            )
        if self.runs is None:
            return
        shared = {run: one.plan for run, one in known.shared.items() if self.name in one.sites}
        lacks = [run for run, digest in shared.items() if self.runs.get(run) != digest]
        if lacks:
            rule = f"does not list {', '.join(sorted(lacks))}, in which both sites took part"
            raise InvalidInput(
                "amendment",
                self.name,
                rule,
                "send that site those plans; their budget counts as spent",
            )


def apply_signed_amendments(
    known: Known, plan: Plan, own: str, amendments: Iterable[Amendment]
) -> Known:
    """Return a site's records with the new keys of amendments that all members have signed.

    An amendment counts if the plan has its new key, the records have its old one, and it is signed
    by this site and by all other members of the plan whose keys are in the records.

    Parameters
    ----------
    known : Known
        This site's records after its last run.
    plan : Plan
        The plan that is about to be run.
    own : str
        Name of this site; an amendment of its own is ignored.
    amendments : iterable of Amendment

    Returns
    -------
    Known
        The records, with the keys replaced.
    """
    keys = dict(known.keys)
    now = {site.name: site.key for site in plan.sites}
    for one in amendments:
        if one.name == own or now.get(one.name) != one.key or keys.get(one.name) != one.old:
            continue
        # A site that this one has not met cannot vouch for another: its key is not in the records.
        others = [name for name in plan.names if name not in (own, one.name) and name in keys]
        if all(one.is_signed_by(name, keys[name]) for name in others) and one.is_signed_by(
            own, now[own]
        ):
            keys[one.name] = one.key
    return Known(known.run, known.head, keys, known.shared)


def read_amendments_in(folder: Path) -> list[Amendment]:
    """Return the amendments in a site's folder."""
    return [Amendment.read(path) for path in sorted(folder.glob(f"*.{ENDING}"))]
