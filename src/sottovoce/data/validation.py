"""Validation of an estimator's input: rows, labels and sites are converted to arrays, or refused in
one line that shows no value of them.

scikit-learn does the checking.  Its messages are replaced: they repeat values of the data, and
advise to impute missing values from the other rows, which voids the guarantee.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from ..errors import InvalidInput, InvalidKind, SottovoceError, escape_unprintable
from ..util.typing import Any, Array, ArrayLike, IntArray
from .frames import check_unique_names, frame_column_names, read_frame, reads_as_number
from .values import (
    Declared,
    as_python_value,
    column_as_numbers,
    is_masked_array,
    masked_as_none,
    objects_or_rows,
    sites_named_in_column,
    value_as_text,
    values_one_by_one,
)

_SHOWN = 8  # columns that a message names
NORM_SLACK = 1.0 + 1e-6
"""Rows longer than the bound by no more than this factor are not counted as longer: rows that were
divided by their own norms, in single or double precision, are.
"""
MOST_BEYOND = 0.9
"""Share of rows beyond the bound on their norms above which their holder gets a note."""
T = TypeVar("T")

# Messages of scikit-learn and NumPy: pattern, rule, remedy.  Groups match counts, shapes, class
# names, never an entry.
_MESSAGES: tuple[tuple[str, str, str], ...] = (
    (
        r"X has (\d+) features, but (\w+) is expecting (\d+) features",
        "this X has {} features, but {} is expecting {} features as input",
        "give the columns that fit was given",
    ),
    (
        r"Found array with (\d+) (sample|feature)\(s\) \(shape=(\([\d, ]*\))\)",
        "found array with {} {}(s) (shape={}) while a minimum of 1 is required",
        "give rows and columns",
    ),
    (
        r"Expected (?:2D|a 2-dimensional)|Found array with dim \d",
        "must have shape (n_samples, n_features)",
        "Reshape your data: X.reshape(1, -1) is one row, X.reshape(-1, 1) one column",
    ),
    (
        r"Input (?:\w+ )?contains (?:NaN|inf)|(?:Python )?int too large",
        "holds NaN or infinite values",
        "replace them by a public constant, or drop those rows; a schema can declare a replacement",
    ),
    (
        r"Sparse data was passed",
        "is sparse, which is not supported here",
        "use X.toarray(), or of a pandas frame X.sparse.to_dense()",
    ),
    (
        r"Complex data not supported",
        "must be real: Complex data not supported",
        "give real numbers",
    ),
    (
        r"could not convert string",
        "holds text that is not a number",
        "give a schema, or encode text by public categories, not by those found in the rows",
    ),
    (
        r"setting an array element",
        "has rows of several lengths, or entries that are not numbers",
        "give a table of numbers",
    ),
    (
        r".*argument must be .*string.*number",
        "holds entries that are not numbers: an argument must be a string or a real number",
        "give a table of numbers",
    ),
    (
        r"Feature names are only supported",
        "names of columns must all be text, or none of them",
        "use X.columns = X.columns.astype(str)",
    ),
    (r"y should be a 1d array", "must be a 1d array", "give one value a row"),
    (
        r"Unknown label type: ([\w-]+)",
        "Unknown label type: {}",
        "give labels of one kind: text, whole numbers or booleans",
    ),
)


def run_without_data_in_errors(field: str, check: Callable[[], T], frame: Any = None) -> T:
    """Run a check, and replace its errors by an :class:`InvalidInput` without data values.

    The original error is not kept as the cause: messages of scikit-learn repeat values of the data,
    and a traceback would show them.

    Parameters
    ----------
    field : str
        Named by the error.
    check : callable
        Takes nothing.
    frame : object, optional
        What is checked.  Of a data frame the error names the columns that were refused.

    Returns
    -------
    object
        What `check` returns.

    Raises
    ------
    InvalidInput
        In place of any other exception; an InvalidKind for a TypeError.  Errors of this package,
        warnings and a MemoryError pass unchanged.
    """
    try:
        return check()
    except (SottovoceError, Warning, MemoryError):
        raise
    except Exception as error:
        refusal = _refusal_without_data(field, error, frame)
    # Raised here, where nothing is being handled: a traceback would show what scikit-learn said.
    raise refusal


def _refusal_without_data(field: str, error: Exception, frame: Any) -> InvalidInput:
    """Return the error that replaces one of scikit-learn or NumPy, without values of the data."""
    text = str(error)
    kind = InvalidKind if isinstance(error, TypeError) else InvalidInput
    if text.startswith("The feature names should match"):
        return kind(
            field,
            None,
            "has different columns from those given to fit",
            _printable_feature_names(text),
        )
    for pattern, rule, remedy in _MESSAGES:
        found = re.match(pattern, text, re.DOTALL)
        if not found:
            continue
        said = rule.format(*found.groups())
        # Only a rule about entries is about some columns more than others.
        if rule.startswith("holds"):
            said += _name_refused_columns(frame, text="text" in rule)
        return kind(field, None, said, remedy)
    # An unknown message may repeat values, so nothing of it is shown.
    return kind(field, None, "cannot be read as an array", "give one row, label or site per line")


def check_column_types(X: Any) -> None:
    """Refuse columns that would silently train as other numbers than are meant, without a schema.

    They are: two columns of a frame that share a name, as coefficients go by names (names of
    several levels are none to scikit-learn, and columns go by their order); points in time and
    durations, which NumPy takes for nanoseconds since 1970; and masked entries, whose mask is lost
    on the way.
    """
    if hasattr(type(X), "columns"):
        check_unique_names("X", [str(name) for name in frame_column_names(X)])
    if is_masked_array(X) and np.ma.getmaskarray(X).any():
        remedy = (
            "replace them by a public constant, or drop those rows; "
            "a schema can declare a replacement"
        )
        raise InvalidInput("X", None, "holds masked entries", remedy)
    if any(map(_is_temporal_dtype, _column_dtypes(X))):
        rule = "holds points in time or durations, which are not numbers without a unit"
        raise InvalidInput(
            "X",
            None,
            rule,
            'give a schema with kind = "date", or numbers such as days since a public day',
        )


def _column_dtypes(X: Any) -> list[Any]:
    """Return the types of the columns of a frame, or the one type of an array."""
    # An array or a series has one type, a frame of pandas or polars one for each column.
    if hasattr(X, "dtype"):
        return [X.dtype]
    if hasattr(X, "dtypes"):
        return list(X.dtypes)
    return []


def _is_temporal_dtype(dtype: Any) -> bool:
    if getattr(dtype, "kind", "") in ("m", "M"):
        return True
    is_temporal = getattr(dtype, "is_temporal", None)  # of polars
    return callable(is_temporal) and bool(is_temporal())


def _name_refused_columns(frame: Any, *, text: bool) -> str:
    """Name the frame's columns that hold text, or missing and infinite values, for a message.

    `text` selects which of the two; the result is "" or such as " in column age".
    """
    if not hasattr(type(frame), "columns"):
        return ""
    found = []
    for name, column in read_frame(frame).columns.items():
        try:
            missing = column_as_numbers(column)[1]
            unfit = not text and bool(missing.any())
        except ValueError as error:
            not_finite = str(error) == "not finite"
            unfit = not_finite != text
        # A name that reads as a number may be a value: of the first row of a file without a header.
        if unfit and not reads_as_number(name):
            found.append(escape_unprintable(name))
    if not found:
        return ""
    shown = ", ".join(found[:_SHOWN])
    if len(found) > _SHOWN:
        shown += f" and {len(found) - _SHOWN} more"
    columns = "column" if len(found) == 1 else "columns"
    return f" in {columns} {shown}"


def _printable_feature_names(text: str) -> str:
    """Return scikit-learn's list of columns, in its own words, made safe for a terminal.

    Names are declared facts, but those of a file without a header are its first row: names that
    look like numbers are not shown.
    """
    unseen = re.search(r"Feature names unseen at fit time:\n(?:- .*\n)+", text)
    if unseen and any(map(reads_as_number, re.findall(r"^- (.*)$", unseen[0], re.MULTILINE))):
        text = text.replace(
            unseen[0], "Some names read as numbers: does the table have a header?\n"
        )
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def validate_declared_classes(classes: Any) -> Array:
    """Return the declared classes in the order of ``np.unique``, as ``classes_`` of scikit-learn.

    InvalidInput if they are fewer than two, of several kinds, not finite, or not all different.
    """
    remedy = "give two labels or more, such as classes=['no', 'yes']"
    if isinstance(classes, str | bytes) or not isinstance(classes, Iterable):
        raise InvalidInput("classes", classes, "must be a list of labels", remedy)
    values = [as_python_value(value) for value in classes]
    wrong = _rule_broken_by_labels(values)
    if wrong is not None:
        rule, what_to_do = wrong
        raise InvalidInput("classes", values, rule, what_to_do or remedy)
    return np.unique(np.asarray(values))


def _rule_broken_by_labels(values: Sequence[Any]) -> tuple[str, str] | None:
    """Return the rule that declared labels break, with its remedy, or None.

    The remedy is "" where that of the caller will do.
    """
    kinds = {_kind_of_label_value(value) for value in values}
    if len(kinds) > 1 or None in kinds:
        return "must be all text, all finite numbers or all booleans", ""
    if kinds == {"number"} and any(abs(value) > 2**53 for value in values):
        return (
            "must be numbers up to 2^53: larger ones are rounded in a column with missing labels",
            "use text, in y too",
        )
    if len({value_as_text(value) for value in values}) != len(values):
        return "must name every label once", ""
    if len(values) < 2:
        return "must be two labels or more", ""
    return None


def _kind_of_label_value(value: object) -> str | None:
    """Return "text", "boolean" or "number" for a label of Python's own types; None for others."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return "number"
    return None


def class_index_of_labels(y: ArrayLike, classes: Array, n: int) -> IntArray:
    """Look up the declared class of each of n rows; -1 for an undeclared or missing label.

    Every label is looked up by itself, with ``1``, ``1.0`` and ``"1"`` as one
    (:func:`sottovoce.data.values.canonical_text`): readers of tables turn a column into text
    because of one rare label, and one row must not change how others are read.

    Parameters
    ----------
    y : array_like of shape (n,) or (n, 1)
        Labels.
    classes : ndarray of shape (K,)
        The declared classes.
    n : int
        Number of rows.

    Returns
    -------
    ndarray of int, shape (n,)
        From -1 to K - 1.

    Raises
    ------
    InvalidInput
        If `y` has not one label a row; no label is shown.
    """
    column = _flatten_single_column(_untyped_array("y", y))
    _check_one_each("y", "label", column, n)
    known: dict[object, int] = {}
    spelled: dict[str, int] = {}
    for k, label in enumerate(classes.tolist()):
        known[label] = k
        spelled |= {str(label): k, value_as_text(label): k}
    declared_texts = Declared(spelled)

    def index(label: object) -> int:
        try:
            label = as_python_value(label)
            if label is None or label != label:
                return -1
            if label in known:
                return known[label]
            return int(declared_texts.meaning_of_text(value_as_text(label), -1))
        except Exception:
            # A list, for example, or what cannot be compared: it concerns this row only.
            return -1

    return np.fromiter(map(index, values_one_by_one(column)), dtype=np.intp, count=n)


def _flatten_single_column(array: Array) -> Array:
    """Return an array (n, 1) as (n,); others as they are."""
    if array.ndim == 2 and array.shape[1] == 1:
        return array[:, 0]
    return array


def _untyped_array(field: str, given: Any) -> Array:
    """Convert one value per row to an array; a list becomes an array of objects.

    NumPy would make texts of a list's numbers if one of its values is a text.
    """
    if is_masked_array(given):
        return masked_as_none(given)
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return np.asarray(run_without_data_in_errors(field, lambda: objects_or_rows(given)))
    return np.asarray(run_without_data_in_errors(field, lambda: np.asarray(given)))


def classes_from_labels(y: ArrayLike, n: int) -> tuple[Array, IntArray]:
    """Find the classes that occur in the labels of n rows, for simulations only.

    Also returns the index of each row's class, (n,).  InvalidInput on what scikit-learn refuses,
    and on fewer than two classes.
    """
    column = typed_labels(run_without_data_in_errors("y", lambda: column_or_1d(y, warn=True)))
    _check_one_each("y", "label", column, n)
    if column.dtype.kind == "c" or (column.dtype.kind == "f" and not np.all(np.isfinite(column))):
        raise InvalidInput(
            "y", None, "holds complex, NaN or infinite values", "give the label of every row"
        )
    run_without_data_in_errors("y", lambda: check_classification_targets(column))
    classes, index = run_without_data_in_errors("y", lambda: np.unique(column, return_inverse=True))
    if len(classes) < 2:
        rule = "needs samples of two classes, and holds only one class"
        raise InvalidInput(
            "y", None, rule, "declare the classes with classes=[...], or give rows of two"
        )
    return classes, index


def typed_labels(labels: Array) -> Array:
    """Return labels in an array of objects as numbers or truth values, if all are such.

    Others are returned as they are.  scikit-learn takes an array of objects for texts alone, and a
    frame makes one of whole numbers too.
    """
    if labels.dtype.kind != "O":
        return labels
    values = [as_python_value(label) for label in labels.tolist()]
    kinds = {_kind_of_label_value(value) for value in values}
    if kinds in ({"number"}, {"boolean"}):
        return np.array(values)
    return labels


def site_of_each_row(groups: Any, n: int) -> Array:
    """Return the site of each of n rows as a column; InvalidInput without one value a row."""
    column = _flatten_single_column(_untyped_array("groups", groups))
    _check_one_each("groups", "site", column, n)
    return column


def sites_from_groups(groups: ArrayLike, n: int) -> tuple[Array, list[IntArray]]:
    """Return the sites that n rows name, sorted, and the row numbers of each.

    Which rows are of one site follows from :func:`sottovoce.data.values.canonical_text`.  Names are
    numbers if numbers were given, else texts; whether a row says 1 or 1.0 changes none.
    """
    column = site_of_each_row(groups, n)
    given = values_one_by_one(column)
    if any(isinstance(name, list | tuple | dict | set) for name in given):
        raise InvalidInput(
            "groups",
            None,
            "has rows whose site is not a single text or number",
            "name one site a row",
        )
    sites, index, none = sites_named_in_column(column)
    if none.any():
        raise InvalidInput("groups", None, "has rows without a site", "name the site of every row")
    parts = [np.flatnonzero(index == i) for i in range(len(sites))]
    own = [as_python_value(given[part[0]]) for part in parts]
    kinds = {type(name) for name in own}
    if kinds == {bool}:
        return np.array(own), parts
    if kinds <= {int, float}:
        return np.array([_number_of_site_name(name) for name in sites]), parts
    return np.array(sites), parts


def _number_of_site_name(text: str) -> int | float:
    """Convert a site's name that is a number to an int, or else to a float."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def note_on_data_norm(
    X: Any, data_norm: float, *, noisy: bool = True, weighed: bool = False
) -> str | None:
    """Return a note if a bound on the norms suits few of the rows; otherwise None.

    The note is for the rows' holder: it depends on the data, and no noise protects it.

    Parameters
    ----------
    X : ndarray or sparse matrix, shape (n, d)
        Rows as given, before they are divided.
    data_norm : float
        The declared bound on the norms of rows.
    noisy : bool
        Whether noise is added in the fit; without it, short rows do no harm and are not spoken of.
    weighed : bool
        Whether rows beyond the bound count for less, instead of being clipped to it.

    Returns
    -------
    str or None
        A sentence if more than 90% of the rows lie beyond the bound, or `noisy` and all rows have
        less than half of it.
    """
    # A norm that overflows is longer than any bound.
    with np.errstate(over="ignore"):
        if issparse(X):
            squares = X.power(2).sum(axis=1)
        else:
            squares = np.einsum("nd,nd->n", X, X)
    norms = np.sqrt(np.asarray(squares, dtype=float))
    done, remedy = "were clipped", "norms"
    if weighed:
        done, remedy = "count for less", "weight"
    beyond = int(np.sum(norms > data_norm * NORM_SLACK))
    if beyond == len(norms):
        return (
            f"data_norm is smaller than the norm of every row, so all rows {done}: "
            f"a larger value keeps their {remedy}"
        )
    if beyond > MOST_BEYOND * len(norms):
        return (
            f"{beyond} of {len(norms)} rows are longer than data_norm and {done}: "
            f"a larger value keeps their {remedy}"
        )
    if noisy and norms.max() < data_norm / 2:
        return (
            "every row is shorter than half of data_norm: "
            "a smaller value reduces the noise relative to the rows"
        )
    return None


def validate_initial_model(
    coef: ArrayLike | None, intercept: ArrayLike | None, models: int, features: int
) -> tuple[Array, Array] | None:
    """Validate the coefficients and intercepts that a fit starts from.

    Parameters
    ----------
    coef : array_like of shape (models, features), optional
        Zeros if None.  For one model also of shape (features,).
    intercept : array_like of shape (models,), optional
        Zeros if None.  For one model also a number.
    models : int
        1 for two classes, or the number of classes.
    features : int
        Number of columns.

    Returns
    -------
    tuple of ndarray or None
        Coefficients (models, features) and intercepts (models,); None if neither is given.

    Raises
    ------
    InvalidInput
        If one of them has another shape, or numbers that are not finite.
    """
    if coef is None and intercept is None:
        return None
    coefficients = _initial_array("coef_init", coef, (models, features))
    intercepts = _initial_array("intercept_init", intercept, (models,))
    return coefficients, intercepts


def _initial_array(field: str, given: ArrayLike | None, shape: tuple[int, ...]) -> Array:
    """Return the array that a fit starts from, zeros if None is given, or raise an InvalidInput."""
    if given is None:
        return np.zeros(shape)
    array: Array = run_without_data_in_errors(field, lambda: np.asarray(given, dtype=np.float64))
    # One model may be given without the axis of models.
    if shape[0] == 1 and array.shape == shape[1:]:
        array = array.reshape(shape)
    if array.shape != shape or not np.all(np.isfinite(array)):
        rule = f"must be finite numbers of shape {shape}, like the fitted attribute"
        raise InvalidInput(field, None, rule, "give a public model of the same columns and classes")
    return array


def _check_one_each(field: str, what: str, column: Array, n: int) -> None:
    if column.shape != (n,):
        rule = f"must name a {what} for each of the {n} rows, but has shape {column.shape}"
        raise InvalidInput(field, None, rule, "give one value a row")
