"""An invitation to a site, its answer, and the short codes that people compare by telephone.

How a site joins without a prior exchange of keys: the hub's operator makes an invitation (``hub
invite``), the site answers it (``site join``), and both compare a code (``hub admit``).

The *invitation* (hub to site) holds the hub's address and authority, and a certificate with which a
site can ask the hub for the plan and for its own certificate, both public, and for nothing else.
The *answer* (site to hub) holds the site's name and row count, the public halves of its TLS and
signing keys, and the digest of the invitation.  Both go by any means, such as mail.

*Claim.*  Whoever changes one or both files on their way, with m evaluations of scrypt, gets the
same code at both ends with a chance of at most (m + 2) / 2^60, scrypt being a random oracle.

*Proof.*  The code is :func:`comparison_code` of the answer, 60 bits.  The hub accepts only answers
with the digest of its own invitation.  If a file was changed, the answers A of the site and B that
the hub gets differ: a changed invitation has another digest (its hash is collision-free).  Say that
k of the m evaluations are made before A is seen.  A holds keys that the site has just drawn, so its
code is new to everybody: it hits the codes of the k answers tried so far, and that of a B chosen by
then without trying it, with a chance of 2^-60 each.  (Only one of them becomes B, but let it be
any.)  Afterwards the code of A is one number, and the m - k answers tried, and a B chosen without
trying it, have it with a chance of 2^-60 each.  Together that is (m + 2) / 2^60.  A search for any
two answers that agree (a birthday) does not help, because A is one of the two, and the honest site
draws it once.  Each evaluation takes 32 MiB and some 0.1 s of a core, so 2^40 of them, 3,500 core
years, have a chance of one in a million.

A plan's code is longer, 100 bits: whoever writes two plans, one for each of two sites, searches for
any two that agree (a birthday), which takes 2^50 evaluations.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b32encode
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from ..errors import InvalidInput, SottovoceError
from ..util import files
from ..util.codec import record_from_plain, record_to_plain
from ..util.plain import canonical_json, personalised_hash
from .members import ANSWER, Member
from .names import check_site_name
from .plan_file import LARGEST
from .strict import parse_json, reason_of_refusal

GROUPS, PLAN_GROUPS = 3, 5
"""Groups in the code of an answer, and of a plan.  A group is four letters of 5 bits each, so the
codes have 60 and 100 bits.
"""
# From the letters of base32 to those of Crockford's alphabet, which has no I, L, O, U.
_LETTERS = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", "0123456789ABCDEFGHJKMNPQRSTVWXYZ")
# How a typed code is read: O as 0, I and L as 1, without blanks and dashes.
_HEARD = str.maketrans("OIL", "011", " -\t")
_SALT = b"sottovoce code 1"


# The same plan is named at many places of one command, and the function is slow on purpose.
@lru_cache(maxsize=64)
def comparison_code(data: bytes, groups: int = GROUPS) -> str:
    """Return a short code of public data, which people compare by telephone: ``7K2M-...``.

    It is scrypt of the data (RFC 7914 with N = 2^15, r = 8, p = 1), cut off after so many `groups`
    of four digits and letters.
    """
    raw = hashlib.scrypt(data, salt=_SALT, n=2**15, r=8, p=1, maxmem=2**26, dklen=20)
    text = b32encode(raw).decode().translate(_LETTERS)
    return "-".join(text[4 * k : 4 * k + 4] for k in range(groups))


def plan_comparison_code(digest: str) -> str:
    """Return the code of a plan from its digest in hexadecimal; five groups, 100 bits."""
    return comparison_code(digest.encode(), PLAN_GROUPS)


def matches_code(heard: str, code: str) -> bool:
    """Return True if the text that somebody typed is this code.

    Small letters, blanks and missing dashes do not matter, nor O, I, L in place of 0, 1, 1.
    """
    return heard.upper().translate(_HEARD) == code.replace("-", "")


@dataclass(frozen=True)
class Invitation:
    """The hub's invitation to a site.

    Parameters
    ----------
    name : str
        Name of the invited site.
    hub : str
        Address of the hub, ``HOST:PORT``.
    authority : str
        Certificate of the hub's authority, in PEM.
    certificate, key : str
        A TLS certificate and its key, in PEM.  Whoever has them can ask the hub for the plan and
        the site's certificate, both public, and for nothing else.
    epsilon, delta : float, optional
        The lifetime budget that the hub proposes; the site decides.
    schema : dict, optional
        The schema that the hub proposes.
    """

    name: str
    hub: str
    authority: str
    certificate: str
    key: str
    epsilon: float | None = None
    delta: float | None = None
    schema: dict[str, Any] | None = None

    @property
    def digest(self) -> str:
        """Digest of the whole file, in hexadecimal."""
        return personalised_hash(b"sottovoce invitation", self.text().encode()).hex()

    def text(self) -> str:
        """Return the file's content."""
        # Keys are not sorted: the order of a schema's columns matters.
        return json.dumps(record_to_plain(self), indent=1, allow_nan=False) + "\n"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what :meth:`text` gave; raises :class:`InvalidInput`."""
        try:
            found = record_from_plain(
                cls, parse_json(files.read_bounded_file("invitation", path, LARGEST), LARGEST)
            )
            check_site_name("name", found.name)
        except (SottovoceError, ValueError) as error:
            rule = f"is not an invitation{reason_of_refusal(error)}"
            raise InvalidInput(
                "invitation", path, rule, "give the file that `hub invite` wrote"
            ) from None
        return found


class _Answered(NamedTuple):
    """The entries of the file of an :class:`Answer`; name, rows and key are those of a plan."""

    name: str
    rows: int
    key: str
    request: str
    invitation: str


@dataclass(frozen=True)
class Answer:
    """A site's answer to an invitation.

    Parameters
    ----------
    member : Member
        Its public facts.
    request : str
        Its certificate request, in PEM.
    invitation : str
        Digest of the invitation.
    """

    member: Member
    request: str
    invitation: str

    def text(self) -> str:
        """Return the file's content, which also holds all that a plan needs of the site."""
        kept = {"request": self.request, "invitation": self.invitation}
        return json.dumps(record_to_plain(self.member) | kept, indent=1) + "\n"

    @property
    def comparison_code(self) -> str:
        """The code to compare by telephone; it depends on both keys, name, rows and invitation."""
        bound = record_to_plain(self.member) | {"request": self.request, "of": self.invitation}
        return comparison_code(canonical_json(bound).encode())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what :meth:`text` gave; raises :class:`InvalidInput`."""
        try:
            plain = record_from_plain(
                _Answered, parse_json(files.read_bounded_file("answer", path, LARGEST), LARGEST)
            )
            return cls(Member(plain.name, plain.rows, plain.key), plain.request, plain.invitation)
        except (SottovoceError, ValueError) as error:
            rule = f"is not an answer to an invitation{reason_of_refusal(error)}"
            raise InvalidInput(
                "answer", path, rule, f"give the NAME.{ANSWER} that `site join` wrote"
            ) from None

    def check_answers_invitation(self, invitation: Invitation) -> None:
        """Raise :class:`InvalidInput` unless this answers `invitation`."""
        if (self.invitation, self.member.name) != (invitation.digest, invitation.name):
            rule = (
                f"answers another invitation than the one of {invitation.name!r} in this folder: "
                "it was invited again since, or a file was changed on the way"
            )
            remedy = (
                "send this invitation once more, by another channel, and let the site answer "
                "with `site join`"
            )
            raise InvalidInput("answer", self.member.name, rule, remedy)
