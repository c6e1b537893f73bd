"""What leaves a run with inference: one JSON file with names, coefficients, intervals, schema and statement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .. import files
from ..data.schema import Schema
from ..errors import CheckpointError, shown
from ..plain import digest_of, jsonable
from ..runs.engine import UNREADABLE
from ..typing import Any, Array
from .naming import Naming, naming_of

_KIND, _VERSION = "sottovoce answers", 1


def to_keep(plain: dict[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    """A report without what reads rows without noise; `notes` are those that hold no count of rows."""
    secrets = ("exact", "test_error", "mean_test_error", "seconds")
    kept = {key: value for key, value in plain.items() if key not in secrets} | {"notes": list(notes)}
    if kept["evaluation"] is not None:
        kept["evaluation"] = {key: value for key, value in kept["evaluation"].items() if key != "exact"}
    return kept


@dataclass(frozen=True)
class Answered:
    """A model whose coefficients have names, from :mod:`sottovoce.answers.inference`.

    Parameters
    ----------
    naming : Naming
    model : array (d,)
        In encoded columns.
    shares : array (sites,)
        Of all rows: a row of no known site has the mean of the sites' constants.
    record : dict
        Coefficients, statement, configuration and whatever else the run says, as plain data.
    schema : Schema, optional
        As it was declared; None for numbers without a schema.
    """

    naming: Naming
    model: Array
    shares: Array
    record: dict[str, Any] = field(default_factory=dict)
    schema: Schema | None = None

    @property
    def coefficients(self) -> list[dict[str, Any]]:
        """The table's lines."""
        return list(self.record.get("coefficients", []))

    @property
    def digest(self) -> bytes:
        """Of all on which margins depend but the rows: whose answers an evaluation's are."""
        return digest_of({key: value for key, value in self.to_dict().items() if key != "record"})

    def margins(self, table: Any) -> Array:
        """Log-odds of every row of raw columns, or of numbers without a schema."""
        margins = self.naming.encoded(table) @ self.model
        if self.naming.sites:
            own = self.model[self.naming.constant > 0] * self.naming.value
            margins = margins + float(own @ self.shares)
        return np.asarray(margins)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with an infinite number as the text ``inf``."""
        columns = [term.name for term in self.naming.terms if term.name != "(constant)"]
        return {
            "kind": _KIND, "version": _VERSION, "schema": None if self.schema is None else self.schema.to_dict(),
            "columns": columns, "data_norm": self.naming.data_norm, "sites": list(self.naming.sites),
            "shares": self.shares.tolist(), "model": self.model.tolist(), "record": jsonable(self.record),
        }  # fmt: skip

    def to_json(self) -> str:
        """The file's text."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    def save(self, path: str | Path) -> None:
        """Write :meth:`to_json` to a file, in one step.

        Raises
        ------
        NotWritten
        """
        files.write("save", path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Answered:
        """Read what :meth:`save` wrote, or a site's or hub's file of an inference; it may come from anybody.

        Raises
        ------
        CheckpointError
            If the file is none of these.
        """
        try:
            plain = files.from_json(files.read_text("run", Path(path)), infinite=True)
            if "answers" in plain:  # what a site or a hub keeps of a run
                plain = plain["answers"] | {"record": plain["record"]}
            if plain["kind"] != _KIND or plain["version"] != _VERSION:
                raise ValueError("another file")
            sites = [str(site) for site in plain["sites"]]
            schema = None if plain["schema"] is None else Schema.from_dict(plain["schema"])
            naming = naming_of(schema, plain["columns"], float(plain["data_norm"]), sites)
            model, shares = (np.asarray(plain[key], dtype=float) for key in ("model", "shares"))
            fine = model.shape == (naming.d,) and shares.shape == (max(1, len(sites)),)
            if not (fine and np.all(np.isfinite(model)) and np.all(np.isfinite(shares))):
                raise ValueError("another model")
            return cls(naming, model, shares, dict(plain["record"]), schema)
        except UNREADABLE as error:
            rule = "not a saved run; use a file written by `train --save`"
            raise CheckpointError(f"run={shown(Path(path))}: {rule}") from error
