"""The members of a plan: each site's public facts, and the file in which a site states them.

A member is a site of a plan; its position in the plan is its *node* in the graph.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from ..errors import InvalidInput, SottovoceError
from ..util.typing import Array
from . import limits
from .asks import Asks
from .names import check_names_differ, check_site_name
from .strict import parse_json

ROWS = 10**12
"""The most rows of a site."""
ANSWER = "joined"
"""Ending of a site's answer to an invitation, which holds its public facts and more."""
_KEY_BYTES = 32
"""Length of an Ed25519 public key."""
_PUBLIC_FILE_BYTES = 4096
"""The most bytes of the file in which a site states its public facts."""


@dataclass(frozen=True)
class Member:
    """The public facts of a site.

    Parameters
    ----------
    name : str
        Also the common name of its certificate; see :func:`sottovoce.deploy.names.check_site_name`.
    rows : int
        Number of its rows, held-out ones included.
    key : str
        Its Ed25519 public signing key, 32 bytes in base64.
    """

    name: str
    rows: int
    key: str

    def __post_init__(self) -> None:
        check_site_name("name", self.name)
        limits.check_whole_number("rows", self.rows, ROWS, "give the site's row count")
        try:
            raw = base64.b64decode(self.key, validate=True)
        except (ValueError, TypeError):
            raw = b""
        if len(raw) != _KEY_BYTES or base64.b64encode(raw).decode() != self.key:
            rule = f"the key of {self.name!r} must be {_KEY_BYTES} bytes in base64"
            raise InvalidInput("key", None, rule, "give the file that `site init` wrote")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the ``NAME.public.json`` of ``site init``, or what ``site join`` wrote.

        Raises :class:`InvalidInput`.
        """
        try:
            if not path.is_file():
                raise InvalidInput(
                    "site", str(path), "there is no such file", "give each site's NAME.public.json"
                )
            with path.open("rb") as file:
                told = parse_json(file.read(_PUBLIC_FILE_BYTES + 1), _PUBLIC_FILE_BYTES)
            if path.suffix == f".{ANSWER}":
                told = {name: told[name] for name in ("name", "rows", "key")}
            return cls(**told)
        except SottovoceError:
            raise
        except (OSError, ValueError, TypeError, LookupError):
            rule = "is not a public file of `site init`"
            raise InvalidInput(
                "site", str(path), rule, "give each site's NAME.public.json"
            ) from None


def check_members(sites: Sequence[Member]) -> None:
    """Raise :class:`InvalidInput` unless every site has a name and a key of its own."""
    check_names_differ("sites", tuple(site.name for site in sites))
    if len({site.key for site in sites}) != len(sites):
        raise InvalidInput("sites", None, "each site must have its own key", "correct the list")


def node_of_site(names: Sequence[str], name: str) -> int:
    """Return a site's position in the plan; raises :class:`InvalidInput` for any other name."""
    if name not in names:
        raise InvalidInput(
            "name", name, "is not a site of the plan", f"use one of {', '.join(names)}"
        )
    return names.index(name)


def training_row_counts(sites: Sequence[Member], asks: Asks | None) -> Array:
    """Return the number of rows of every site that are not held out, (N, 1)."""
    return np.array(
        [[float(rows)] for rows in row_counts_read(sites, asks, held_out=False).values()]
    )


def row_counts_read(
    sites: Sequence[Member], asks: Asks | None, *, held_out: bool
) -> dict[str, int]:
    """Return the number of rows of every site that a stage of a plan reads.

    Parameters
    ----------
    sites : sequence of Member
    asks : Asks, optional
        Fixes the held-out rows; without it a stage reads all rows.
    held_out : bool
        Count the held-out rows instead of the others; without effect if there is no `asks`.

    Returns
    -------
    dict of int
        By the site's name, in the order of `sites`.
    """
    if asks is None:
        return {site.name: site.rows for site in sites}
    held = {site.name: asks.held(site.rows) for site in sites}
    if held_out:
        return held
    return {site.name: site.rows - held[site.name] for site in sites}
