"""Names of columns in one text, separated by commas, as the command line takes them."""

from __future__ import annotations

from collections.abc import Collection


def split_column_names(given: str, known: Collection[str]) -> list[str]:
    """Split a text at commas into the names of columns.

    A name of `known` may hold commas itself; then the longest one is meant.
    """
    parts = given.split(",")
    names = list[str]()
    start = 0
    while start < len(parts):
        end, name = _longest_known_name(parts, start, known)
        if name:
            names.append(name)
        start = end
    return names or [given]


def _longest_known_name(parts: list[str], start: int, known: Collection[str]) -> tuple[int, str]:
    """Return the end and the name of the longest known name that begins at part `start`.

    A name may span several parts, as it may hold commas; if none is known, it is that part alone.
    """
    for end in range(len(parts), start, -1):
        name = ",".join(parts[start:end])
        # A name may begin or end with blanks itself.
        if name in known:
            return end, name
        if name.strip() in known:
            return end, name.strip()
    return start + 1, parts[start].strip()
