"""Writing and reading the file of a plan.

The file comes from another party, usually the hub's operator.  So it is read in bounded memory,
nothing in it is trusted before it is checked, and it is refused if it was changed since it was
written: it ends with the digest of everything else.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ..algorithms import KNOWN
from ..errors import InvalidInput, SottovoceError
from ..runs.centre import Centring
from ..runs.config import RunConfig
from ..runs.start import Start
from ..util import files
from ..util.codec import record_from_plain
from ..util.compatibility import check_file_format
from ..util.typing import Any
from . import limits
from .asks import Asks
from .members import Member
from .plan import LONGEST_START, Plan, digest_of_plan
from .plan_numbers import check_plan_numbers
from .strict import parse_json, reason_of_refusal
from .waits import Waits

PLANNED_BEFORE = (
    "end its run with version 0.2 at all sites, or write another plan: ledgers keep what was spent"
)
"""Remedy in the error for a plan of a version before 0.3."""
LARGEST = 32 * 2**20
"""The most bytes of a plan file."""
_CHANGED = "does not match its digest: it was changed"
_UNSOUND = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)
"""Exceptions that may be raised while a text is read that is no plan."""


def write_plan_file(plan: Plan, path: str | Path) -> None:
    """Write the file that every site gets; raises :class:`InvalidInput` for senseless numbers."""
    plain = plan.to_dict() | {"digest": plan.digest}
    # as they will be read: a schedule is an object there
    check_plan_numbers(plain)
    # Keys are not sorted: the order of a schema's columns matters.
    files.write_atomically("plan", path, json.dumps(plain, indent=1, allow_nan=False) + "\n")


def read_plan_file(path: str | Path) -> Plan:
    """Read what :func:`write_plan_file` wrote.

    Raises
    ------
    InvalidInput
        If it is not a plan of this version, or was changed since it was written.
    """
    try:
        plain = _read_plain_data(path)
        stated = plain.pop("digest")
        _check_format_and_digest(path, plain, stated)
        check_plan_numbers(plain)
        # Numbers that are too large are refused below, without NumPy's warnings before.
        with np.errstate(all="ignore"):
            plan = plan_from_dict(plain)
    except InvalidInput:
        raise
    except SottovoceError as error:
        raise InvalidInput(
            "plan", str(path), f"cannot be run: {error}", "correct the plan"
        ) from None
    except _UNSOUND as error:
        rule = f"is not a plan file{reason_of_refusal(error)}"
        raise InvalidInput("plan", str(path), rule, "write one with `sottovoce plan`") from None
    # Compared once more with the plan as it was understood: the file may hold entries that this
    # version ignores or reads otherwise.
    if plan.digest != stated:
        raise InvalidInput("plan", str(path), _CHANGED, "get the agreed file again")
    return plan


def plan_from_dict(plain: dict[str, Any]) -> Plan:
    """Return the plan of the plain data that :meth:`sottovoce.deploy.plan.Plan.to_dict` gives.

    Raises
    ------
    InvalidInput
        For a plan whose entries break a rule.
    Exception
        Of any class, for plain data that is no plan at all.
    """
    sites = _bounded_list(plain["sites"], limits.SITES, "sites")
    return Plan(
        run=plain["run"],
        config=RunConfig.from_dict(plain["config"]),
        d=plain["d"],
        sites=tuple(record_from_plain(Member, site) for site in sites),
        edges=tuple((i, j) for i, j in plain["edges"]),
        norm_cap=plain["norm_cap"],
        schema=plain["schema"],
        start=_start_from_dict(plain.get("start")),
        asks=Asks.from_dict(plain["asks"]) if "asks" in plain else None,
        centre=Centring.from_record(plain["centre"]) if "centre" in plain else None,
        waits=Waits(**plain["waits"]),
    )


def _read_plain_data(path: str | Path) -> dict[str, Any]:
    """Return the content of the file as plain data."""
    if not Path(path).is_file():
        remedy = (
            "check the path; the hub's operator has the plan (written with "
            "`sottovoce plan --write`)"
        )
        raise InvalidInput("plan", str(path), "there is no such file", remedy)
    with Path(path).open("rb") as file:
        found: dict[str, Any] = parse_json(file.read(LARGEST + 1), LARGEST)
    return found


def _check_format_and_digest(path: str | Path, plain: dict[str, Any], stated: object) -> None:
    """Refuse a file of another format, a file that was changed, and an unknown method.

    `plain` is the file's content without its digest, `stated` that digest.
    """
    refused = check_file_format(plain["version"], PLANNED_BEFORE)
    if refused is not None:
        raise InvalidInput("plan", str(path), refused.rule, refused.remedy)
    if digest_of_plan(plain) != stated:
        raise InvalidInput("plan", str(path), _CHANGED, "get the agreed file again")
    _check_method(path, plain["config"]["method"])


def _check_method(path: str | Path, method: object) -> None:
    """Refuse a method that is not one of this version's.

    A plan comes from others: the name of a method in it must never make a site load code.
    """
    if method not in KNOWN:
        rule = f"uses the method {method!r}, which this version does not have"
        remedy = (
            "use the same version everywhere, or register the method in the program that "
            "reads the plan"
        )
        raise InvalidInput("plan", str(path), rule, remedy)


def _start_from_dict(plain: dict[str, Any] | None) -> Start | None:
    """Return the start of a plan's plain data; None without one."""
    if plain is None:
        return None
    record = dict(plain)
    vector = _bounded_list(record.pop("vector"), LONGEST_START, "start")
    return Start.from_record(np.array(vector, dtype=float), record)


def _bounded_list(values: Any, most: int, field: str) -> list[Any]:
    """Check that a value is a list of at most `most` entries, and return it."""
    if not isinstance(values, list):
        raise TypeError
    limits.check_whole_number(field, len(values), most)
    return values
