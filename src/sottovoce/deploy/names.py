"""Names of sites and runs, and the rules for them.

The names become parts of file names, common names of certificates and keys of logs, so a name must
be valid in all of these, and must not clash with one of this library's own files.
"""

from __future__ import annotations

import re

from ..errors import InvalidInput

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9_-])?")
"""1 to 63 letters, digits, ``_``, ``.`` or ``-``; first a letter or digit, and no dot last."""
OURS = frozenset(
    {
        "ca",
        "hub",
        "plan",
        "site",
        "rows",
        "errors",
        "renewal",
        "last_failure",
        "server",
        "localhost",
        "nvflare",
    }
)
"""First parts of the names of this library's own files and folders: ``ca.crt``, ``hub.key``,
``plan.json``, ...
"""
_PORTS = [f"{port}{k}" for port in ("com", "lpt") for k in range(10)]
DEVICES = frozenset({"con", "prn", "aux", "nul", *_PORTS})
"""Names that Windows takes for a device, with any ending after a dot."""


def check_site_name(field: str, name: object) -> None:
    """Check that a site's name is valid in certificates, files and logs, and clashes with none.

    Raises :class:`InvalidInput` otherwise; `field` is the name of the value in the error.
    """
    _check_against(field, name, OURS, "use e.g. 'north-1'")


def check_run_name(field: str, name: object) -> None:
    """Check the name of a run by the rules of :func:`check_site_name`, except for clashes.

    Results of an earlier run are kept as ``SITE.RUN.html`` and so on, so it may clash only with
    ``SITE.public.json``.
    """
    # SITE.public.json is the site's public key
    _check_against(field, name, frozenset({"public"}), "use e.g. 'trial-1'")


def _check_against(field: str, name: object, taken: frozenset[str], remedy: str) -> None:
    """Check a name, whose first part must be none of `taken`; raises :class:`InvalidInput`."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        rule = (
            "must be 1 to 63 letters, digits, '_', '.' or '-', a letter or digit first and no "
            "'.' last"
        )
        shown = name[:80] if isinstance(name, str) else None
        raise InvalidInput(field, shown, rule, remedy)
    # Windows reads CON.txt as the device, and does not tell capitals from small letters.
    first = name.partition(".")[0].lower()
    if first in DEVICES:
        raise InvalidInput(field, name, "is a device name on Windows", remedy)
    if first in taken:
        rule = (
            f"must not be {first!r} or begin with '{first}.', because this program's own files do"
        )
        raise InvalidInput(field, name, rule, remedy)


def check_names_differ(field: str, names: tuple[str, ...]) -> None:
    """Raise :class:`InvalidInput` for names that some file systems take for the same name."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            rule = (
                f"must differ from {seen[name.lower()]!r} by more than capital letters, "
                "because names become file names"
            )
            raise InvalidInput(field, name, rule, "rename one of the two")
        seen[name.lower()] = name
