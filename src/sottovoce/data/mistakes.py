"""All mistakes of a schema file in one pass, for ``sottovoce schema check``.

:class:`sottovoce.data.Schema` raises the first error only.  Here each entry is read by itself, and
then entries together, each time without those that were refused before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InvalidInput, SchemaError
from ..util.files import parse_bounded_toml, read_bounded_text
from .columns import KINDS, Block, block_from_dict
from .curved import is_derived, named_source_blocks
from .entries import convert_entry
from .labels import label_from_entry
from .meant import suggest_spelling
from .person import Person
from .schema import EXAMPLE, KEYS, LARGEST_NORM, Schema
from .weights import CaseWeight

OPEN = "?"
"""What a drafted schema says where its author has to fill in a public fact."""
# Entries of a date that may be days.
_DAYS = ("lo", "hi", "missing", "typical")
# Entries that are texts in a category alone.
_TEXTS = ("base", "missing")
# How often a block, or the whole schema, is read again without what was refused.
_ROUNDS = 50
# Stands for the columns where all have mistakes, so that the other entries can be read.
_SOME = {"kind": "number", "lo": 0, "hi": 1}
# Known entries of the tables that declare a column with a role.
_ENTRIES = {
    "label": (
        "column",
        "positive",
        "negative",
        "values",
        "lo",
        "hi",
        "unit",
        "family",
        "event",
        "time",
        "cuts",
        "event_code",
    ),
    "weight": ("column", "max"),
    "person": ("column", "rows"),
}
# The type of each entry of a block, in words; a text if it is not listed.
_WANTED = {
    "lo": "a number",
    "hi": "a number",
    "missing": "a number",
    "weight": "a number",
    "size": "a whole number",
    "edges": "a list of numbers",
    "typical": "a list of two numbers",
    "other": "true or false",
    "indicator": "true or false",
    "columns": "a list of names",
    "base": "the number of a bin",
    "values": "a list of texts",
    "of": "a list of columns",
    "knots": "a list of numbers",
    "bandwidth": "a number",
    "degree": "a whole number",
    "features": "a whole number",
    "seed": "a whole number",
}


class Checked(NamedTuple):
    """A schema, None if it has mistakes; and all of them, each one line that names the entry."""

    schema: Schema | None
    mistakes: tuple[str, ...]


def check_file(path: str | Path) -> Checked:
    """Read a schema file as :meth:`Schema.from_toml` does, and find every mistake in it."""
    path = Path(path)
    try:
        given = parse_bounded_toml(read_bounded_text("schema", path))
    except InvalidInput as error:
        return Checked(None, (str(error),))
    except ValueError as error:
        wrong = SchemaError("schema", path, f"must be TOML: {error}", f"for example: {EXAMPLE}")
        return Checked(None, (str(wrong),))
    return check({"name": path.stem} | given)


def check(given: Mapping[str, Any]) -> Checked:
    """Find every mistake in the entries of a schema file: see :func:`check_file`."""
    columns = given.get("columns", {})
    found, fine = _mistakes_of_columns(columns)
    wrong, entries = _mistakes_of_other_keys(given)
    found += wrong
    if fine:
        entries["columns"] = fine
    elif found and isinstance(columns, Mapping):
        entries["columns"] = {"a column": _SOME}
    more = _collect_refusals(Schema.from_dict, entries, "")
    whole = isinstance(columns, Mapping) and len(fine) == len(columns)
    found += [error for error in more if whole or LARGEST_NORM not in error.rule]
    if found:
        return Checked(None, tuple(dict.fromkeys(map(str, found))))
    return Checked(Schema.from_dict(given), ())


def _mistakes_of_columns(columns: object) -> tuple[list[SchemaError], dict[str, Any]]:
    """Return the mistakes of all blocks, and the entries of the blocks without any.

    Blocks that are derived from others come last.
    """
    found = list[SchemaError]()
    fine = dict[str, Any]()
    plain = dict[str, Block]()
    declared: dict[str, Any] = {}
    if isinstance(columns, Mapping):
        declared = {str(name): block for name, block in columns.items()}
    first = [name for name, block in declared.items() if not _is_derived_table(block)]
    for name, block in sorted(declared.items(), key=lambda one: _is_derived_table(one[1])):
        if not isinstance(block, Mapping):
            found.append(_not_a_table_error(name))
            continue
        wrong = _mistakes_of_block(name, block, first, plain)
        found += wrong
        if wrong:
            continue
        if not is_derived(block):
            plain[name] = block_from_dict(name, block)
        if not _waits_for_source(block, first, plain):
            fine[name] = block
    return found, fine


def _is_derived_table(block: object) -> bool:
    return isinstance(block, Mapping) and is_derived(block)


def _mistakes_of_other_keys(given: Mapping[str, Any]) -> tuple[list[SchemaError], dict[str, Any]]:
    """Return the mistakes outside the columns, and the entries without those that have mistakes."""
    found = list[SchemaError]()
    entries = dict(given)
    for key, value in given.items():
        if key not in KEYS:
            found.append(_unknown_entry_error(key, "a schema", key, KEYS))
            del entries[key]
        elif value == OPEN:
            found.append(_still_open_error(key))
            del entries[key]
    for key, read in (
        ("label", label_from_entry),
        ("weight", CaseWeight.case_weight_from_entry),
        ("person", Person.person_from_entry),
    ):
        wrong = _mistakes_of_role_entry(key, entries.get(key), read)
        if wrong:
            found += wrong
            # Weights of classes are checked against the label, which may be the one that is wrong.
            entries.pop(key, None)
            entries.pop("class_weight", None)
            # An offset belongs to a label of counts.
            if key == "label":
                entries.pop("offset", None)
    return found, entries


def _not_a_table_error(name: str) -> SchemaError:
    return SchemaError(
        f"columns.{name}", None, "must be a table", f'write [columns.{name}] and kind = "number"'
    )


def _still_open_error(field: str) -> SchemaError:
    return SchemaError(
        field, OPEN, "is not filled in", "declare it from what the column means, or remove it"
    )


def _mistakes_of_block(
    name: str, given: Mapping[str, Any], columns: Collection[str], plain: Mapping[str, Block]
) -> list[SchemaError]:
    """Return the mistakes of one block: of single entries first, then of entries together.

    `columns` names the columns that are not derived from others, and `plain` has the blocks of
    those without mistakes.
    """
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        wrong, likely = _mistake_of_kind(name, kind)
        if likely:
            return [wrong, *_mistakes_of_block(name, {**given, "kind": likely}, columns, plain)]
        return [wrong]
    known, needed = _entries_of_kind(kind)
    found, left = _mistakes_of_entries(name, kind, given, known)
    for key in _missing_entries(given, known, needed):
        rule = f"is missing, and kind {kind!r} needs it"
        found.append(SchemaError(f"{name}.{key}", None, rule, "declare it"))
    if isinstance(left.get("weight"), int | float) and not 1e-6 <= left["weight"] <= 1e6:
        weight = left.pop("weight")
        rule = "must be from 1e-6 to 1e6"
        found.append(SchemaError(f"{name}.weight", weight, rule, "leave it out for a weight of 1"))
    if any(key not in left for key in needed) or _waits_for_source(given, columns, plain):
        return found

    def read(some: Mapping[str, Any]) -> Block:
        entries = dict(some)
        if is_derived(given):
            entries |= named_source_blocks(name, some, plain)
        return block_from_dict(name, entries)

    return found + _collect_refusals(read, left, f"{name}.", needed)


def _mistake_of_kind(name: str, kind: object) -> tuple[SchemaError, str]:
    """Return the error of an unknown or missing kind, and the kind that was likely meant, or ""."""
    field = f"{name}.kind"
    if kind == OPEN or kind is None:
        rule = "is not filled in" if kind == OPEN else "is missing"
        remedy = f"declare one of {', '.join(KINDS)}, or ignore the column"
        return SchemaError(field, None, rule, remedy), ""
    question = suggest_spelling(kind, KINDS) if isinstance(kind, str) else ""
    rule = f"must be one of {', '.join(KINDS)}"
    wrong = SchemaError(field, kind, rule, question or "declare the kind of the column")
    return wrong, _name_in_suggestion(question)


def _missing_entries(
    given: Mapping[str, Any], known: Collection[str], needed: Collection[str]
) -> list[str]:
    """Return the needed entries that are absent, except for those under a misspelled name."""
    misspelled = {
        _name_in_suggestion(suggest_spelling(key, known))
        for key in given
        if key not in (*known, "kind")
    }
    return [key for key in needed if key not in given and key not in misspelled]


def _entries_of_kind(kind: str) -> tuple[list[str], list[str]]:
    """Return the entries that a block of a kind may have, and those of them that it needs."""
    declared = [field for field in fields(KINDS[kind]) if field.name != "name"]
    needed = [field.name for field in declared if field.default is MISSING]
    if kind == "date":
        needed.append("epoch")
    return [field.name for field in declared], needed


def _name_in_suggestion(remedy: str) -> str:
    """Return the name that a question of :func:`suggest_spelling` proposes."""
    return remedy.removeprefix("did you mean ").removesuffix("?")


def _mistakes_of_entries(
    name: str, kind: str, given: Mapping[str, Any], known: Collection[str]
) -> tuple[list[SchemaError], dict[str, Any]]:
    """Return the mistakes of a block's entries, each read by itself, and the entries without any.

    The kind is always among the latter.
    """
    found = list[SchemaError]()
    left = dict(given)
    for key, value in given.items():
        if key == "kind":
            continue
        if key not in known:
            found.append(_unknown_entry_error(f"{name}.{key}", kind, key, known))
        elif value == OPEN or (isinstance(value, list | tuple) and OPEN in value):
            found.append(_still_open_error(f"{name}.{key}"))
        elif not _is_readable_entry(kind, key, given):
            remedy = "correct its type"
            if value == "mean":
                remedy = "use a public value: a mean of the rows is private"
            rule = f"must be {_expected_type_in_words(kind, key)}"
            found.append(SchemaError(f"{name}.{key}", None, rule, remedy))
        else:
            continue
        del left[key]
    return found, left


def _expected_type_in_words(kind: str, key: str) -> str:
    """Return the type that an entry of a block of this kind must have, in words."""
    if kind == "category" and key in _TEXTS:
        return "a text"
    wanted = _WANTED.get(key, "a text")
    if kind == "date" and key in _DAYS:
        return f"{wanted}, or a day such as 2024-01-31"
    return wanted


def _waits_for_source(
    given: Mapping[str, Any], columns: Collection[str], plain: Mapping[str, Block]
) -> bool:
    """Whether a block is derived from a column that has mistakes of its own."""
    of = given.get("of")
    if not is_derived(given) or not isinstance(of, list | tuple):
        return False
    with_mistakes = set(columns) - set(plain)
    return bool(set(map(str, of)) & with_mistakes)


def _unknown_entry_error(field: str, what: str, key: str, known: Collection[str]) -> SchemaError:
    remedy = suggest_spelling(key, known) or "remove it"
    return SchemaError(field, None, f"is unknown; {what} accepts {', '.join(known)}", remedy)


def _is_readable_entry(kind: str, key: str, given: Mapping[str, Any]) -> bool:
    """Whether one entry of a block can be read by itself."""
    cls = KINDS[kind]
    entries = dict(given)
    try:
        # Days are read with an epoch, of which any will do here.
        if hasattr(cls, "convert_days_to_units"):
            entries = cls.convert_days_to_units("", {"epoch": "2000-01-01"} | {key: given[key]})
        convert_entry(kind, key, entries[key])
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _mistakes_of_role_entry(
    key: str, given: object, read: Callable[[Any], object]
) -> list[SchemaError]:
    """Return the mistakes of the entry `key`: label, weight or person; `read` raises them."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        known = _ENTRIES[key]
        wrong = [
            _still_open_error(f"{key}.{name}") for name, value in given.items() if value == OPEN
        ]
        wrong += [
            _unknown_entry_error(f"{key}.{name}", key, str(name), known)
            for name in given
            if name not in known
        ]
        if wrong:
            return wrong
    return _collect_refusals(read, given, f"{key}.")


def _collect_refusals(
    read: Callable[[Any], object], given: Any, prefix: str, needed: Collection[str] = ("columns",)
) -> list[SchemaError]:
    """Return all errors of reading entries, which are read again without those that were refused.

    Parameters
    ----------
    read : callable
        Raises an InvalidInput for entries that it refuses.
    given : mapping
        The entries.
    prefix : str
        What stands before an entry's name in the fields of the errors, such as ``"age."``.
    needed : collection of str
        Entries without which nothing can be read; the search ends where one of them is refused.

    Returns
    -------
    list of SchemaError
    """
    found = list[SchemaError]()
    left = dict(given) if isinstance(given, Mapping) else given
    for _ in range(_ROUNDS):
        try:
            read(left)
        except InvalidInput as error:
            wrong = [
                SchemaError(one.field, one.value, one.rule, one.remedy)
                for one in (error, *error.others)
            ]
        else:
            break
        found += wrong
        own = [one.field.removeprefix(prefix) for one in wrong if one.field.startswith(prefix)]
        refused = {field.partition(".")[0] for field in own}
        removable = [
            key for key in refused if isinstance(left, dict) and key in left and key not in needed
        ]
        if not removable:
            break
        for key in removable:
            del left[key]
    return found


__all__ = ["OPEN", "Checked", "check", "check_file"]
