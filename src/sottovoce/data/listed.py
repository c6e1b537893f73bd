"""Names of columns in one text, separated by commas, as the command line takes them."""

from __future__ import annotations

from collections.abc import Collection


def names_in(given: str, known: Collection[str]) -> list[str]:
    """Split a text at commas into the names of columns.

    A name of `known` may hold commas itself; then the longest one is meant.
    """
    parts = given.split(",")
    names, start = list[str](), 0
    while start < len(parts):
        ends = range(len(parts), start, -1)
        tried = {end: ",".join(parts[start:end]) for end in ends}
        end = next(
            (end for end in ends if tried[end] in known or tried[end].strip() in known), start + 1
        )
        name = tried[end] if tried[end] in known else tried[end].strip()
        if name:
            names.append(name)
        start = end
    return names or [given]
