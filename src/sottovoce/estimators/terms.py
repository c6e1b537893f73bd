"""The first step of every `fit` (validate): all declared parameters, checked before a row is read.

:func:`collect_terms` reads them into :class:`Terms`, which every later step takes.  The functions
``..._errors`` yield what is wrong, so that a fit can report all of it at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.utils import check_random_state

from ..data.schema import Schema
from ..data.weights import check_weight_cap
from ..errors import InvalidInput, PublicNote, SchemaError
from ..util.typing import Any
from .caveats import assumptions_of_fit
from .declared import read_schema_argument
from .encoding import Encoding, NormEncoding, SchemaEncoding
from .notices import Note
from .parameters import collect_run_fields, resolve_knobs

NO_NORM = (
    "data_norm is not declared, so every row of norm above 1 is scaled down to norm 1, and "
    "unscaled rows then differ little; declare data_norm, a public bound on the norm of most rows, "
    "or a schema"
)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Parameters that every estimator declares: public, and independent of the rows.

    Parameters
    ----------
    name : str
        Name of the estimator's class, for messages.
    seed : int or None
        Seed of a simulation; None for a release, whose noise cannot be repeated.
    n_sites : int
        Number of sites to which rows are assigned at random if none are given.
    schema : Schema or None
    columns : sequence of str or None
        Names for the columns of an array, under a schema.
    norm : float
        The bound on the norms of rows: `data_norm`, or 1.
    encoding : Encoding
        The map of rows into the unit ball.
    weighed : bool
        Whether rows beyond the bound get smaller weights, and are not scaled down.
    noisy : bool
        Whether the budget is finite.
    one_row_each : bool
        Whether one row of each of the schema's people is read, or as many as the schema says.
    knobs : dict
        Values of all knobs by name.
    fields : dict
        Values of :class:`RunConfig` by field, with the seed and the privacy unit of this fit.
    rests : tuple of str
        Assumptions of the epsilon that the estimator cannot check.
    notes : tuple of Note
    """

    name: str
    seed: int | None
    n_sites: int
    schema: Schema | None
    columns: Sequence[str] | None
    norm: float
    encoding: Encoding
    weighed: bool
    noisy: bool
    one_row_each: bool
    knobs: dict[str, Any]
    fields: dict[str, Any]
    rests: tuple[str, ...]
    notes: tuple[Note, ...]

    @property
    def is_simulation(self) -> bool:
        """True if the noise can be repeated, so that nothing is protected."""
        return self.seed is not None

    @property
    def schema_caveat(self) -> str | None:
        """What epsilon does not cover according to the schema; None for nothing."""
        if self.schema is None:
            return None
        return self.schema.caveat

    @property
    def max_weight(self) -> Any:
        """The public cap on sample weights; None without one."""
        return self.knobs.get("max_weight")

    @property
    def site_constants(self) -> Any:
        """True if every site gets a constant of its own; None if that is left open."""
        return self.knobs.get("site_constants")

    @property
    def rows_per_person(self) -> int | None:
        """Most rows of a person that are read at a site; None where the privacy unit is a row."""
        return self.fields.get("rows_per_person")


def collect_terms(
    estimator: Any,
    *,
    weighed: bool = False,
    one_row_each: bool = False,
    of_people: bool = True,
    many_fits: bool,
) -> Terms:
    """Collect the parameters that an estimator declares.

    Parameters
    ----------
    estimator : PrivateEstimator
        Its parameters are not yet checked.
    weighed : bool
        Whether rows beyond the norm bound get smaller weights, and are not scaled down.
    one_row_each : bool
        Whether the fit reads one row of each of the schema's people, however many it declares.
    of_people : bool
        Whether the estimator allows several rows for a person of the schema.
    many_fits : bool
        Whether another clone of the estimator was fitted before, so that epsilons add up.

    Returns
    -------
    Terms

    Raises
    ------
    InvalidInput
        For a schema that cannot be read, an invalid seed, or an unknown knob.
    """
    schema = read_schema_argument(estimator.schema)
    seed = seed_from_random_state(estimator.random_state)
    fields = collect_run_fields(estimator) | {"seed": seed}
    if schema is not None and schema.person is not None:
        fields["rows_per_person"] = schema.person.rows
        if one_row_each:
            fields["rows_per_person"] = 1
    rests, notes = assumptions_of_fit(schema, cloned=estimator._cloned, many_fits=many_fits)
    norm = 1.0
    if estimator.data_norm is not None:
        norm = estimator.data_norm
    _check_schema_parameters(schema, estimator.columns, of_people=of_people)
    # A simulation may read the rows' norms: `tables.norm_misfit_notes` then warns if 1 is a bad
    # bound.
    if schema is None and estimator.data_norm is None and estimator.random_state is None:
        notes = (*notes, Note("data_norm", NO_NORM, PublicNote))
    return Terms(
        name=type(estimator).__name__,
        seed=seed,
        n_sites=estimator.n_sites,
        schema=schema,
        columns=estimator.columns,
        norm=norm,
        encoding=_choose_encoding(schema, norm, estimator),
        weighed=weighed,
        noisy=not np.all(np.isinf(estimator.epsilon)),
        one_row_each=one_row_each,
        knobs=resolve_knobs(estimator),
        fields=fields,
        rests=rests,
        notes=notes,
    )


def _choose_encoding(schema: Schema | None, norm: float, estimator: Any) -> Encoding:
    """Return the encoding by the schema, or without one by the bound `norm` on norms of rows."""
    if schema is None:
        return NormEncoding(norm, estimator.fit_intercept)
    return SchemaEncoding(schema)


def _check_schema_parameters(
    schema: Schema | None, columns: Sequence[str] | None, *, of_people: bool
) -> None:
    """Refuse (InvalidInput) columns without a schema, and people where one row each is read."""
    if schema is None and columns is not None:
        rule = "cannot be used without a schema"
        raise InvalidInput("columns", None, rule, "give schema=, or leave columns out")
    if schema is not None and schema.person is not None and not of_people:
        rule = "declares several rows for a person, but a survival model takes one row a person"
        raise SchemaError(
            "person", None, rule, "keep one row a person and leave person out of the schema"
        )


def seed_from_random_state(random_state: Any) -> int | None:
    """Return the seed of a fit; None for a release.

    A generator is asked for one number; a negative seed is refused (InvalidInput).
    """
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(np.iinfo(np.int32).max))
    if random_state is None:
        return None
    if not isinstance(random_state, int | np.integer):
        return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    if random_state < 0:
        raise InvalidInput(
            "random_state",
            random_state,
            "must be >= 0",
            "use random_state=0, or None for a release",
        )
    return int(random_state)


def norm_bound_errors(estimator: Any, terms: Terms) -> Iterator[InvalidInput]:
    """Yield errors in the bound on norms, or in a parameter that the schema replaces."""
    if terms.schema is None:
        if not (math.isfinite(terms.norm) and terms.norm > 0):
            rule = "must be finite and > 0, because rows are divided by it"
            yield InvalidInput(
                "data_norm",
                estimator.data_norm,
                rule,
                "declare a public bound on the norm of a row",
            )
        return
    if estimator.data_norm is not None:
        rule = "cannot be combined with a schema, which declares bounds of its own"
        yield InvalidInput("data_norm", estimator.data_norm, rule, "leave it out")
    if "fit_intercept" in vars(estimator) and not estimator.fit_intercept:
        yield InvalidInput(
            "fit_intercept",
            False,
            "cannot be combined with a schema, which declares the constant itself",
            "use intercept = false in the schema",
        )


def site_constants_errors(terms: Terms, *, named: bool) -> Iterator[InvalidInput]:
    """Yield errors in the knob `site_constants`.

    It applies only where the fit's coefficients are `named`: with inference or least squares.
    """
    asked = terms.site_constants
    if asked is not None and not isinstance(asked, bool | np.bool_):
        yield InvalidInput(
            "site_constants", asked, "must be True, False or None", "use False for one constant"
        )
    elif asked is not None and not named:
        yield InvalidInput(
            "site_constants",
            asked,
            "applies to inference=True and to the squared loss only",
            "leave it out",
        )


def max_weight_errors(terms: Terms) -> Iterator[InvalidInput]:
    """Yield errors in the cap on sample weights."""
    if terms.max_weight is None:
        return
    try:
        check_weight_cap("max_weight", terms.max_weight)
    except InvalidInput as error:
        yield error


__all__ = [
    "Terms",
    "collect_terms",
    "max_weight_errors",
    "norm_bound_errors",
    "seed_from_random_state",
    "site_constants_errors",
]
