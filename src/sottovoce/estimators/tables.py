"""Parts of the second step of every `fit` (encode): read rows, assign them to sites, weigh them.

:class:`Features` are rows as numbers, :class:`Dealt` says which row is at which site, and
:class:`Weights` how much each counts.  To *deal* rows is to assign them to sites, by `groups`, by
the schema's site column, or at random.  All of it stays with the data owner; notes that count rows
are for the data owner only.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from ..answers.fits import Layout, check_product_memory, sites_with_constants
from ..answers.training import ONE_EACH
from ..data import partition
from ..data.person import first_rows_of_each, partition_people
from ..data.rows import Rows
from ..data.schema import Schema, describe_unfit_rows
from ..data.validation import (
    check_column_types,
    note_on_data_norm,
    run_without_data_in_errors,
    sites_from_groups,
)
from ..data.weights import shares_of_classes, weights_below_cap
from ..errors import HolderNote, InvalidInput, PublicNote
from ..ledger.digest import rows_digest
from ..util.typing import Any, Array, ArrayLike, IntArray
from .caveats import learned_columns_note
from .declared import (
    columns_of_array,
    declared_site_column,
    declared_weights,
    open_table_of_schema,
    person_numbers,
    source_columns,
)
from .notices import Note
from .terms import Terms

HEAVIEST_READ = "the largest weight was read off the rows, and epsilon does not cover that"


@dataclass(frozen=True)
class Features:
    """Rows as numbers, with the number and the names of their columns.

    Parameters
    ----------
    table : Table or array-like
        The frame under a schema; without one X as it was given.
    values : array or CSR (n, p)
        The numbers of X; under a schema, encoded rows.
    names : array of str or None
        Names of the columns of X; None for those of an array.
    width : int
        Number of columns of X; under a schema, of those that it reads.
    notes : tuple of Note
    """

    table: Any
    values: Any
    names: Array | None
    width: int
    notes: tuple[Note, ...] = ()

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @property
    def column_names(self) -> list[str]:
        """Names of the columns of an array: its own, or x0, x1, ..."""
        if self.names is None:
            return columns_of_array(self.values.shape[1])
        return [str(name) for name in self.names]

    def rows_for_model(self, schema: Schema | None) -> Any:
        """Return rows as a saved model reads them: raw columns under a schema, else an array."""
        if schema is None:
            return self.values
        return self.table


class _Columns(BaseEstimator):
    """An empty estimator, on which scikit-learn's validation sets `n_features_in_` and names."""


def read_features(terms: Terms, X: Any, *, sparse: bool = False) -> Features:
    """Read X as numbers, as scikit-learn validates it; under a schema, as encoded rows.

    Parameters
    ----------
    terms : Terms
    X
        An array (n, p), or a frame under a schema.
    sparse : bool
        Whether sparse X is allowed, and read as CSR.

    Returns
    -------
    Features
        With a note for the rows' holder if the columns seem to be computed from the rows.

    Raises
    ------
    InvalidInput
        For what scikit-learn refuses; no message shows a value of a row.
    """
    if terms.schema is not None:
        return read_encoded_table(terms.schema, X, terms.columns, weighed=terms.weighed)
    if issparse(X) and not sparse:
        raise InvalidInput("X", None, "sparse input is not supported", "use X.toarray()")
    check_column_types(X)
    # The estimator itself keeps the columns of its last fit until this one succeeds.
    columns: Any = _Columns()
    accepted: str | bool = False
    if sparse:
        accepted = "csr"

    def validated() -> Any:
        return validate_data(
            columns, X, dtype=np.float64, accept_sparse=accepted, estimator=terms.name
        )

    values = run_without_data_in_errors("X", validated, X)
    notes: tuple[Note, ...] = ()
    told = learned_columns_note(values)
    if told is not None:
        notes = (told,)
    names = getattr(columns, "feature_names_in_", None)
    return Features(X, values, names, columns.n_features_in_, notes)


def read_encoded_table(
    schema: Schema, X: Any, columns: Sequence[str] | None, *, weighed: bool
) -> Features:
    """Encode the rows of a table, with notes for the data owner on what did not fit.

    Parameters
    ----------
    schema : Schema
    X
        A frame, or an array.
    columns : sequence of str or None
        Names of an array's columns.
    weighed : bool
        Whether the fit gives rows beyond the norm bound smaller weights, and does not scale them
        down; it changes the words of the notes only.

    Returns
    -------
    Features
    """
    table = open_table_of_schema(schema, X, columns)
    found = schema.encode(table, labels=False)
    notes: tuple[Note, ...] = ()
    unfitted = describe_unfit_rows(found.clipped, weighed=weighed)
    if unfitted:
        notes = (Note("schema", "; ".join(unfitted), HolderNote),)
    names = np.array(source_columns(schema, table.columns), dtype=object)
    return Features(table, found.X, names, len(names), notes)


@dataclass(frozen=True)
class Dealt:
    """Rows assigned to sites: identifiers, row numbers, and persons if the privacy unit is one.

    Parameters
    ----------
    sites : array
        Identifiers, taken as public.
    parts : list of array of int
        Row numbers at each site.
    people : list of array of int or None
        Number of the person of each row of `parts`, if a person's rows are protected together.
    most : int or None
        Most rows of a person that are read at a site, if the privacy unit is a person.
    apart : bool
        Whether sites were given, and not dealt at random.
    column : str or None
        The schema's column that gave them, if it did.
    notes : tuple of Note
    """

    sites: Any
    parts: list[IntArray]
    people: list[IntArray] | None = None
    most: int | None = None
    apart: bool = True
    column: str | None = None
    notes: tuple[Note, ...] = ()

    @property
    def rows_per_site(self) -> Array:
        """Number of rows at each site, (N, 1); of people, if their rows are protected together."""
        counted = self.parts
        if self.people is not None:
            counted = [np.unique(own) for own in self.people]
        return np.array([[float(len(one))] for one in counted])

    def layout_with_names(self, terms: Terms, features: Features) -> Layout:
        """Return the encoding for inference and least squares, whose coefficients have names.

        It has a constant for every site if the knob `site_constants` says so, or by default if
        sites were given.
        """
        asked = terms.site_constants
        if asked is not None:
            asked = bool(asked)
        constants = sites_with_constants(list(self.sites), at_random=not self.apart, asked=asked)
        if terms.schema is None:
            columns = features.column_names
            width = len(columns)
        else:
            # The schema names its own columns.
            columns = []
            width = terms.schema.n_features
        check_product_memory(len(constants), width)
        sizes = [len(part) for part in self.parts]
        return Layout.from_schema(terms.schema, columns, terms.norm, sizes, constants, self.column)

    def bound_people(self, rows: Rows, weights: list[Array] | None = None) -> Rows:
        """Add weights in [0, 1], one array a site, and mark which rows belong to one person.

        Together a person's rows then change a sum by no more than one row.
        """
        if weights is not None:
            rows = rows.with_weight(weights)
        if self.people is None or self.most is None:
            return rows
        return rows.with_people(self.people, self.most)


def deal_rows_to_sites(terms: Terms, features: Features, groups: ArrayLike | None) -> Dealt:
    """Assign rows to the sites that `groups` or the schema's column names, or else at random.

    Parameters
    ----------
    terms : Terms
        Number of sites for random assignment, the seed, and the privacy unit.
    features : Features
    groups : array-like (n,) or None
        The site of every row.

    Returns
    -------
    Dealt
        Where the privacy unit is a person, with at most as many rows of each as the schema says.

    Raises
    ------
    InvalidInput
        If there are more sites than rows, or than people.
    """
    people = person_numbers(terms.schema, features.table)
    # Named only where the schema's column gave the sites.
    column = None
    if groups is None and terms.n_sites != 1:
        groups = declared_site_column(terms.schema, features.table)
        if groups is not None and terms.schema is not None:
            column = terms.schema.site
    if groups is None:
        sites = np.arange(terms.n_sites)
        dealt = Dealt(sites, _deal_at_random(terms, len(features), people), apart=False)
    else:
        dealt = Dealt(*sites_from_groups(groups, len(features)), column=column)
    if people is None:
        return dealt
    return _keep_rows_of_people(terms, dealt, people)


def _deal_at_random(terms: Terms, n: int, people: IntArray | None) -> list[IntArray]:
    """Assign n rows to `n_sites` sites at random, a person's rows to one; return row numbers.

    `people` (n,) is the person of each row, or None.  InvalidInput if there are too many sites.
    """
    units, what = n, "rows"
    if people is not None:
        units, what = int(people.max()) + 1, "people"
    if not (isinstance(terms.n_sites, int | np.integer) and 1 <= terms.n_sites <= units):
        rule = f"must be a whole number from 1 to the number of {what}, {units}"
        raise InvalidInput("n_sites", terms.n_sites, rule, "use fewer sites or more rows")
    seed = terms.seed
    if seed is None:
        seed = secrets.randbits(64)
    if people is None:
        return partition("iid", np.ones(n), terms.n_sites, seed)
    return partition_people(people, terms.n_sites, seed)


def _keep_rows_of_people(terms: Terms, dealt: Dealt, people: IntArray) -> Dealt:
    """Keep each person's first rows at a site: one, or as many as the schema says."""
    most = terms.rows_per_person
    assert most is not None
    parts = [part[first_rows_of_each(people[part], most)] for part in dealt.parts]
    if terms.one_row_each:
        note = Note("one row a person", ONE_EACH, PublicNote)
        return replace(dealt, parts=parts, most=most, notes=(note,))
    notes: tuple[Note, ...] = ()
    left_out = len(people) - sum(map(len, parts))
    if left_out:
        what = (
            f"{left_out} of {len(people)} rows were left out: they are beyond person.rows, the "
            "most rows of one person that are read"
        )
        notes = (Note("people", f"{what} (for the data's holder only)", HolderNote),)
    people_at_sites = [people[part] for part in parts]
    return replace(dealt, parts=parts, people=people_at_sites, most=most, notes=notes)


@dataclass(frozen=True)
class Weights:
    """Weights of all rows, (n,) in [0, 1], and a caveat if they were scaled by private rows.

    `of_rows` is None if all rows count alike.
    """

    of_rows: Array | None = None
    caveat: str | None = None
    notes: tuple[Note, ...] = ()

    def weights_at_sites(self, parts: list[IntArray]) -> list[Array] | None:
        """Return the weights of the rows at each site; None if all rows count alike."""
        if self.of_rows is None:
            return None
        return [self.of_rows[part] for part in parts]

    def times_class_weight(self, of_classes: Any, names: Array, number: IntArray) -> Weights:
        """Multiply these weights by public weights of classes.

        Parameters
        ----------
        of_classes : mapping or None
            Public weights by class, 1 for classes that it does not name; None to change nothing.
        names : array (K,) of str or number
            The classes.
        number : array of int (n,)
            Position of every row's class in `names`; negative for a row without a known class,
            which is a row of zeros, so that its weight does not matter.

        Returns
        -------
        Weights
            In [0, 1].
        """
        if of_classes is None:
            return self
        by_class = shares_of_classes("class_weight", of_classes, names.tolist())
        weights = by_class[np.maximum(number, 0)]
        if self.of_rows is not None:
            weights = self.of_rows * weights
        return replace(self, of_rows=weights)


def read_row_weights(terms: Terms, features: Features, given: ArrayLike | None) -> Weights:
    """Read the weights of rows: those `fit` was given, or else the column that the schema declares.

    Parameters
    ----------
    terms : Terms
        Its `max_weight`, the public cap.
    features : Features
    given : array-like (n,) or None
        `sample_weight` of `fit`.

    Returns
    -------
    Weights
        Relative to the cap, in [0, 1], with a caveat if the cap was read off the rows.

    Raises
    ------
    InvalidInput
        For other shapes, and for a release whose cap is not public.
    """
    n = len(features)
    caveat = None
    if given is not None:
        own = np.asarray(
            run_without_data_in_errors("sample_weight", lambda: np.asarray(given, dtype=np.float64))
        )
        cap, caveat = _weight_cap(terms, own, n)
        weight, heavy = weights_below_cap("sample_weight", own, cap)
    else:
        declared = declared_weights(terms.schema, features.table)
        if declared is None:
            return Weights()
        weight, heavy = declared
    notes: tuple[Note, ...] = ()
    if heavy:
        what = f"{heavy} of {n} rows have a weight above max_weight, and were given that weight"
        notes = (Note("max_weight", f"{what} (for the data's holder only)", HolderNote),)
    return Weights(weight, caveat, notes)


def _weight_cap(terms: Terms, own: Array, n: int) -> tuple[Any, str | None]:
    """Return the cap on the weights `own` of n rows, and a caveat if it was read off them.

    InvalidInput for another shape, and for a release without a declared cap.
    """
    if own.shape != (n,):
        rule = f"must have one number for each of the {n} rows, but has shape {own.shape}"
        raise InvalidInput("sample_weight", None, rule, "give one number for each row")
    if terms.max_weight is not None:
        return terms.max_weight, None
    if not terms.is_simulation:
        rule = "must be declared for a release, because the largest weight of the rows is private"
        remedy = "give knobs={'max_weight': 3}, or a random_state for a simulation"
        raise InvalidInput("max_weight", None, rule, remedy)
    if not np.any(own):
        # scikit-learn's checks of estimators look for these words.
        rule = "Sample weights must contain at least one non-zero number"
        raise InvalidInput(
            "sample_weight", None, rule, "declare the knob max_weight, or leave weights out"
        )
    # Equal weights become 1 each, whatever they are, so nothing was read off the rows.
    caveat = None
    if not np.all(own == own[0]):
        caveat = HEAVIEST_READ
    largest = float(np.max(own))
    # Negative and infinite weights are refused when shares are taken.
    if not 0 < largest < np.inf:
        largest = 1.0
    return largest, caveat


def norm_misfit_notes(terms: Terms, features: Features) -> tuple[Note, ...]:
    """Return a note, for the data owner of a simulation, on a `data_norm` that suits no row.

    Empty in a release, where reading norms off the rows would not be covered by epsilon.
    """
    if not terms.is_simulation or terms.schema is not None:
        return ()
    ill = note_on_data_norm(features.values, terms.norm, noisy=terms.noisy, weighed=terms.weighed)
    if not ill:
        return ()
    return (Note("norms", f"{ill} (a simulation, for the data's holder only)", HolderNote),)


def digest_of_deal(X: Any, label: IntArray, parts: list[IntArray]) -> bytes:
    """Compute a digest of all rows, their labels and their assignment to sites.

    A ledger in memory adds up privacy losses site by site only for fits with the same digest.

    Parameters
    ----------
    X : array or CSR (n, p)
    label : array of int (n,)
    parts : list of array of int
        Row numbers at each site, then, if the unit is a person, the persons of these rows.

    Returns
    -------
    bytes
    """
    arrays = [X]
    if issparse(X):
        arrays = [X.data, X.indices, X.indptr]
    arrays += [label, *parts]
    return rows_digest(*(np.asarray(array, dtype=float) for array in arrays))


def seed_of_class(seed: int | None, c: int) -> int | None:
    """Derive the seed of the run of class c from that of the fit, so that runs share no noise.

    The run of class 1, the only run of two classes, keeps the seed; None stays None.
    """
    if seed is None or c == 1:
        return seed
    digest = hashlib.blake2b(f"{seed} class {c}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


__all__ = [
    "Dealt",
    "Features",
    "Weights",
    "deal_rows_to_sites",
    "digest_of_deal",
    "norm_misfit_notes",
    "read_encoded_table",
    "read_features",
    "read_row_weights",
    "seed_of_class",
]
