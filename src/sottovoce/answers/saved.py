"""Saved models, as ``sottovoce train --save`` and the estimators write them, and their predictions.

There are two kinds of files.  A *run by rounds* (a method that exchanges models for several rounds)
is the run's own file, with a model for every site.  A model *with named coefficients* (inference,
least squares) is one JSON file with the encoding's names, coefficients, intervals, schema and
statement.  :class:`SavedModel` reads both; files are not trusted.  A *margin* is a row's linear
score: log-odds, or the scaled number to predict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ..data.move import Move
from ..data.products import products_by_row
from ..data.schema import Schema
from ..data.table import Table
from ..errors import CheckpointError, InvalidInput, format_declared_value
from ..problem.task import EventRate, TwoClasses
from ..runs.engine import UNREADABLE
from ..runs.simulate import SAVED_BEFORE, Result
from ..util import files
from ..util.compatibility import FORMAT, Refusal, check_file_format
from ..util.plain import digest_public_values, format_json_text, infinities_to_text
from ..util.typing import Any, Array, IntArray
from .between import widen_by_random_draw
from .coefficients import Coefficients
from .own_site import AVERAGE, index_of_site, indices_of_sites, whole_number_in_text
from .terms import Naming, label_in_words, naming_from_any

# Entry "kind" of a file with named coefficients.
_KIND = "sottovoce answers"

KEPT = ("evaluation", "versions", "command", "threshold")
"""Entries that ``train`` keeps with a run by rounds, for its report."""


def public_record(result: Result) -> dict[str, Any]:
    """Return what may be published of a run by rounds, as plain data."""
    plain = {
        "method": result.config.method,
        "privacy": result.privacy,
        "n_train": result.facts.n[:, 0].tolist(),
        "data": result.extra.get("data"),
        "config": result.config.to_dict(),
    }
    plain["label"] = None
    schema = result.extra.get("schema")
    if schema is not None:
        plain["label"] = label_in_words(Schema.from_dict(schema))
    return plain | {name: result.extra[name] for name in KEPT if name in result.extra}


@dataclass(frozen=True)
class NamedModel:
    """A model whose coefficients have names, with a constant for every site or one for all.

    Parameters
    ----------
    naming : Naming
    model : array (d,)
        Coefficients of encoded columns.
    shares : array (sites,)
        Each site's share of all rows.  A row of an unknown site gets the mean of the sites'
        constants, weighted by these.
    """

    naming: Naming
    model: Array
    shares: Array

    @property
    def constants(self) -> Array:
        """Constants of the sites as margins, and last their mean, (sites + 1,)."""
        own = self.model[self.naming.constant > 0] * self.naming.value
        with np.errstate(over="ignore", invalid="ignore"):
            return np.append(own, float(own @ self.shares))

    def margins(self, X: Array, where: IntArray | None) -> Array:
        """Compute the margins of encoded rows.

        Parameters
        ----------
        X : array (n, columns + 1)
            Rows as :meth:`sottovoce.answers.terms.Naming.encode_with_one_constant` encodes them.
        where : int array (n,) or None
            Indices of the rows' sites; `AVERAGE` for a row of an unknown site, and None if all
            rows are such.

        Returns
        -------
        array (n,)
        """
        if not self.naming.sites:
            return products_by_row(X, self.model)
        columns = products_by_row(X[:, :-1], self.model[self.naming.constant == 0])
        if where is None:
            where = np.full(len(X), AVERAGE)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(columns + self.constants[where])

    def weights(self, X: Array, where: IntArray | None) -> Array:
        """Compute the weight of each table line in these rows' margins, (n, lines).

        Arguments are those of :meth:`margins`.
        """
        # Rows have one constant; with sites known it is replaced by the constants of all sites.
        if where is not None:
            own = self.naming.value * np.vstack([np.eye(len(self.naming.sites)), self.shares])
            X = np.hstack([X[:, :-1], own[where]])
        weights = np.linalg.solve(self.naming.into_units.T, X.T).T
        # Zeros but for rounding, so that a refused line without weight refuses no prediction.
        return np.where(np.abs(weights) > 1e-12, weights, 0.0)


@dataclass(frozen=True)
class SavedModel:
    """A public model with the encoding of its rows and the record of its run.

    Parameters
    ----------
    naming : Naming or None
        Names of coefficients, after inference or least squares; None for a run by rounds.
    model : array (d,)
        Coefficients of encoded columns; of several classes, one vector after the other.
    shares : array (sites,)
        As for :class:`NamedModel`.
    record : dict
        The run's report as plain data.
    schema : Schema, optional
        As it was declared; None for numbers without a schema.
    loss : str, optional
        Name of the loss; None for a model whose coefficients have names.
    capped : bool
        Whether gradients were capped, so that probabilities are not calibrated.
    move : Move, optional
        The centring of the run: rows that had a norm above 1 after it were scaled down, and their
        margins are scaled down too.
    site : str, optional
        Name of the column with each row's site; None without one.
    only : int, optional
        Index of the one site whose constant all rows get, whatever a column says.
    """

    naming: Naming | None
    model: Array
    shares: Array
    record: dict[str, Any] = field(default_factory=dict)
    schema: Schema | None = None
    loss: str | None = None
    capped: bool = False
    move: Move | None = None
    site: str | None = None
    only: int | None = None

    @property
    def coefficients(self) -> list[dict[str, Any]]:
        """The table's lines."""
        return list(self.record.get("coefficients", []))

    @property
    def table(self) -> Coefficients:
        """The table of coefficients with intervals; InvalidInput if the run has none."""
        return Coefficients.from_plain_data(self.record)

    @property
    def trained_by(self) -> str:
        """Name of the loss by which the model was trained."""
        if self.loss is not None:
            return self.loss
        if self.schema is None or isinstance(self.schema.task, TwoClasses):
            return "logistic"
        return "squared"

    @property
    def threshold(self) -> float | None:
        """The probability from which on a row is called positive; None if the run states none."""
        said = self.record.get("threshold")
        evaluation = self.record.get("evaluation")
        if said is None and isinstance(evaluation, dict):
            said = evaluation.get("threshold")
        # A file is not trusted: it may say anything.
        if isinstance(said, float | int) and 0.0 < said < 1.0:
            return float(said)
        return None

    @property
    def digest(self) -> bytes:
        """Digest of all that predictions depend on except the rows: the model's identity."""
        if self.naming is None:
            parts: list[Any] = [self.model, self._plain_schema()]
            if self.move is not None:
                parts.append(self.move.digest)
            return digest_public_values(*parts)
        # Predictions do not depend on the report.
        told = {key: value for key, value in self.to_dict().items() if key != "record"}
        if self.only is not None:
            told["only"] = self.only
        return digest_public_values(told)

    def _plain_schema(self) -> dict[str, Any] | None:
        """Return the schema as plain data; None without one."""
        if self.schema is None:
            return None
        return self.schema.to_dict()

    @property
    def named_model(self) -> NamedModel:
        """The model of a run whose coefficients have names."""
        assert self.naming is not None
        return NamedModel(self.naming, self.model, self.shares)

    def encoding(self, run: Path) -> Schema:
        """Return the schema that encodes raw rows; InvalidInput, with the file `run`, for none."""
        if self.schema is None:
            rule = "was trained without a schema, so raw rows cannot be encoded"
            raise InvalidInput("run", str(run), rule, "train on a table")
        return self.schema

    def site_indices(self, table: Any, column: Any = None) -> IntArray | None:
        """Find each row's site among the model's; None if all rows have one constant.

        Parameters
        ----------
        table : raw columns, or array (n, d) without a schema
        column : array-like (n,), optional
            The site of every row, in place of what the table's own column says.

        Returns
        -------
        int array (n,) or None
            Indices of sites; `AVERAGE` for another site or none.
        """
        if self.naming is None or not self.naming.sites:
            return None
        n = number_of_rows(table)
        if self.only is not None:
            return np.full(n, self.only)
        if column is None and self.site is not None and not isinstance(table, np.ndarray):
            column = raw_columns(table).get(self.site)
        if column is None:
            return np.full(n, AVERAGE)
        return indices_of_sites(self.naming.sites, column)

    def margins(self, table: Any, X: Array | None = None, where: IntArray | None = None) -> Array:
        """Compute the margins of rows; a row's margin depends on no other row.

        Parameters
        ----------
        table : raw columns, or array (n, d) without a schema
        X : array, optional
            The same rows as the schema encodes them, if they are at hand; used for runs by rounds.
        where : int array (n,), optional
            Indices of the rows' sites; None for those that :meth:`site_indices` finds.

        Returns
        -------
        array (n,), or (K, n) for K classes
        """
        if self.naming is None:
            assert self.schema is not None
            if X is None:
                X = self.schema.encode(table, labels=False).X
            if self.move is not None:
                X = self.move.shorten_rows(X)
            return products_by_row(X, self.schema.task.vectors_by_margin(self.model))
        if where is None:
            where = self.site_indices(table)
        return self.named_model.margins(self.naming.encode_with_one_constant(table), where)

    def intervals(self, table: Any, alpha: float = 0.05, where: IntArray | None = None) -> Array:
        """Compute confidence intervals of the model's mean prediction for rows like these.

        They cover the sampling error and the privacy noise of the coefficients, not the spread of
        single outcomes.  They cost no budget.

        A row of a site that the model knows has that site's constant.  Any other row is taken to be
        of a new site, whose constant varies about the average as the known ones do
        (:mod:`sottovoce.answers.between`), so its interval is wider.

        Parameters
        ----------
        table : raw columns, or array (n, d) without a schema
        alpha : float
            One minus the confidence level, in (0, 1).
        where : int array (n,), optional
            As for :meth:`margins`.

        Returns
        -------
        array (n, 2)
            Log-odds, or numbers in the target's unit.  NaN for rows of which a coefficient is
            refused, and for rows of new sites if the table does not tell the population of sites
            (:attr:`sottovoce.answers.between.SiteConstants.unknown_spread_reason`).

        Raises
        ------
        InvalidInput
            If the run has no intervals or is of rates, or `alpha` is not inside (0, 1).
        """
        if self.schema is not None and isinstance(self.schema.task, EventRate):
            rule = "is not offered for rates; compare people by ratios of the table"
            raise InvalidInput("interval", None, rule, "leave it out")
        known, named = self.table, self.named_model
        if where is None:
            where = self.site_indices(table)
        ends = known.sums(named.weights(named.naming.encode_with_one_constant(table), where), alpha)
        if where is None:
            return ends
        others = where == AVERAGE
        if not np.any(others):
            return ends
        if known.site_constants.unknown_spread_reason is not None:
            ends[others] = np.nan
            return ends
        # A new site's constant is off the mean of all sites by one deviation between sites, and the
        # weighted mean of the known sites by sqrt(sum of squared shares) deviations.
        spreads = known.site_constants.likely_spreads() * math.sqrt(
            1.0 + float(self.shares @ self.shares)
        )
        ends[others] = widen_by_random_draw(ends[others], spreads, alpha)
        return ends

    def to_dict(self) -> dict[str, Any]:
        """Return a model with named coefficients as plain data, infinity as ``inf``."""
        assert self.naming is not None
        columns = [term.name for term in self.naming.terms if term.name != "(constant)"]
        plain = {
            "kind": _KIND,
            "version": FORMAT,
            "schema": self._plain_schema(),
            "columns": columns,
            "data_norm": self.naming.data_norm,
            "sites": list(self.naming.sites),
            "shares": self.shares.tolist(),
            "model": self.model.tolist(),
            "record": infinities_to_text(self.record),
        }
        if self.naming.sites:
            plain["site"] = self.site
        return plain

    def to_json(self) -> str:
        """Return the file's text."""
        return format_json_text(self.to_dict(), indent=1) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the model to a file, whole or not at all; NotWritten if that fails."""
        files.write_atomically("save", path, self.to_json())

    @classmethod
    def from_result(cls, result: Result, replicate: int = 0, site: int | None = None) -> SavedModel:
        """Take one replicate's average model of a run by rounds, or the model of one of its sites.

        Parameters
        ----------
        result : Result
        replicate : int
            From 0 on.
        site : int, optional
            Number of the site whose own model is taken; None for the average of all.

        Returns
        -------
        SavedModel

        Raises
        ------
        InvalidInput
            If there is no such replicate or site, or the schema does not fit the models.
        """
        replicates, nodes, d = result.models.shape
        if not 0 <= replicate < replicates:
            rule = f"the run has replicates 0 to {replicates - 1}"
            raise InvalidInput("replicate", replicate, rule, "use --replicate 0")
        if site is not None and not 0 <= site < nodes:
            rule = f"the run has sites 0 to {nodes - 1}"
            raise InvalidInput("site", site, rule, "leave --site out for the average")
        plain, schema = result.extra.get("schema"), None
        if plain is not None:
            schema = Schema.from_dict(plain)
            weights = schema.n_features * schema.task.outputs
            if weights != d:
                rule = f"has {d} coefficients, but its schema yields {weights}"
                raise InvalidInput("run", None, rule, "use a file written by `train --save`")
        # Before the site's own model is read: this refuses a run that trained no models.
        model = result.consensus[replicate]
        if site is not None:
            model = result.models[replicate, site]
        config, move = result.config, result.move
        if move is not None:
            move = move.for_replicate(replicate)
        capped = config.gradient_cap < math.inf
        return cls(
            None, model, np.ones(1), public_record(result), schema, config.loss, capped, move
        )

    @classmethod
    def load(
        cls, path: str | Path, replicate: int = 0, site: str | int | None = None
    ) -> SavedModel:
        """Read a model that ``train --save`` wrote, or the file that a site or hub keeps of a run.

        The file is not trusted: whatever it holds, it is parsed as data and checked.

        Parameters
        ----------
        path : path
        replicate : int
            From 0 on; 0 for a model whose coefficients have names.
        site : str or int, optional
            Of a run by rounds, the number of the site whose own model is read.  Of a model with a
            constant for every site, the name or number of the one whose constant all rows get.

        Returns
        -------
        SavedModel

        Raises
        ------
        CheckpointError
            If the file is no such model, or of another version.
        InvalidInput
            As :meth:`from_result`.

        Examples
        --------
        The table of a saved run, and a joint test of a column's levels; neither costs budget::

            table = SavedModel.load("run.json").table
            table.wald("stage")
        """
        if not starts_like_json(Path(path)):
            return cls.from_result(Result.load(path), replicate, _number_of_site(site))
        refused: Refusal | None = None
        try:
            plain = files.parse_bounded_json(
                files.read_bounded_text("run", Path(path)), infinite=True
            )
            refused = refusal_of_model(plain)
            if refused is not None:
                raise ValueError("another format")
            found = _from_plain(plain)
        except UNREADABLE as error:
            rule = refused or "not a saved run; use a file written by `train --save`"
            raise CheckpointError(f"run={format_declared_value(Path(path))}: {rule}") from error
        if replicate != 0:
            rule = "must be 0: a file with named coefficients holds the first replicate only"
            raise InvalidInput("replicate", replicate, rule, "leave --replicate out")
        if site is None:
            return found
        sites: tuple[str, ...] = ()
        if found.naming:
            sites = found.naming.sites
        return replace(found, only=index_of_site(sites, site))


def _from_plain(plain: dict[str, Any]) -> SavedModel:
    """Construct a model from plain data of :meth:`SavedModel.to_dict`, or a site's or hub's file.

    Raises one of :data:`sottovoce.runs.engine.UNREADABLE` for anything else.
    """
    # A site and a hub keep the model and the report of a run apart.
    if "answers" in plain:
        plain = plain["answers"] | {"record": plain["record"]}
    if plain["kind"] != _KIND:
        raise ValueError("another file")
    sites = [str(site) for site in plain["sites"]]
    column = plain["site"] if sites else None
    if not isinstance(column, str | None):
        raise ValueError("no name of a column")
    schema = None
    if plain["schema"] is not None:
        schema = Schema.from_dict(plain["schema"])
    naming = naming_from_any(schema, plain["columns"], float(plain["data_norm"]), sites)
    model = np.asarray(plain["model"], dtype=float)
    shares = np.asarray(plain["shares"], dtype=float)
    fits = model.shape == (naming.d,) and shares.shape == (max(1, len(sites)),)
    if not (fits and np.all(np.isfinite(model)) and np.all(np.isfinite(shares))):
        raise ValueError("another model")
    return SavedModel(naming, model, shares, dict(plain["record"]), schema, site=column)


def refusal_of_model(plain: dict[str, Any]) -> Refusal | None:
    """Return why a file with named coefficients has a version that cannot be read, or None.

    `plain` is the parsed file.  None also for other kinds of files.  ValueError if no version ever
    wrote its format.
    """
    model = plain.get("answers", plain)
    if not isinstance(model, dict) or model.get("kind") != _KIND:
        return None
    return check_file_format(model.get("version"), SAVED_BEFORE)


def number_of_rows(table: Any) -> int:
    """Return the number of rows of raw columns, or of an array."""
    if isinstance(table, np.ndarray):
        return len(table)
    return next((len(values) for values in raw_columns(table).values()), 0)


def raw_columns(table: Any) -> Mapping[str, Any]:
    """Return raw columns by name."""
    if isinstance(table, Table):
        return table.columns
    return dict(table)


def _number_of_site(site: str | int | None) -> int | None:
    """Return the number of a site that a run by rounds was asked for; InvalidInput for a name."""
    if site is None or isinstance(site, int):
        return site
    number = whole_number_in_text(site)
    if number is None:
        rule = "must be a whole number, because this run numbers its sites from 0 on"
        raise InvalidInput("site", site, rule, "leave --site out for the average")
    return number


def starts_like_json(path: Path) -> bool:
    """Return whether a file starts like JSON, as a model with named coefficients does."""
    # Opening a pipe would wait for its writer.
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(1) == b"{"
    except OSError:
        return False
