"""Lists of names in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def join_with_and(names: Sequence[str]) -> str:
    """Join names with commas and a last "and"; empty for none."""
    parts = (", ".join(names[:-1]), *names[-1:])
    return " and ".join(part for part in parts if part)


def first_names(names: Sequence[str], most: int) -> str:
    """Join the first `most` names with commas, and say how many more there are."""
    told = ", ".join(names[:most])
    if len(names) > most:
        return f"{told} and {len(names) - most} more"
    return told
