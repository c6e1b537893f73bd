"""Constraints, declared beside the fields that they bind, and the one function that checks them.

A frozen dataclass states what its fields may hold, as scikit-learn's estimators do, and calls
the check when it is made::

    @dataclass(frozen=True)
    class Run:
        rounds: int = constrained_field(10, Count(most=50_000))
        seed: int | None = constrained_field(0, optional_constraint(Count(least=0)))
        replicates: int = constrained_field(1, Count())

        def __post_init__(self) -> None:
            validate_fields_and_rules(self, rules=(one_run_without_a_seed,))

A rule over several fields is a named function of the object, which yields an :class:`InvalidInput`
for what is wrong. :func:`validate_fields_and_rules` collects everything that is wrong and raises
one error.

There are about ten kinds of constraint.  A library for them (pydantic, cattrs) would convert
values, report in its own words and load before the first command's help is printed; here a value is
never converted, and every message says field, value, rule and what to do.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from numbers import Integral, Rational, Real

from ..errors import InvalidInput, raise_collected_errors
from .typing import Any

LONGEST_NUMBER = 512
"""Bits of the largest whole number: longer ones overflow when they become a float."""
_KEY = "constraint"


class Constraint(ABC):
    """A declared constraint on the value of a field."""

    @property
    @abstractmethod
    def requirement_text(self) -> str:
        """The constraint in words that follow "must be"."""

    @abstractmethod
    def is_satisfied_by(self, value: object) -> bool:
        """Return True if a value satisfies the constraint."""

    def concerns_kind_of(self, value: object) -> bool:
        """Return True for a value of the constrained kind, such as any number for an interval.

        Of the options of :class:`AnyOf`, a message shows the rule of the one that concerns the
        value's kind.
        """
        return self.is_satisfied_by(value)

    def broken_rule_text(self, value: object) -> str:
        """Return the rule that a value breaks, for a message."""
        return f"must be {self.requirement_text}"


@dataclass(frozen=True)
class Text(Constraint):
    """A text."""

    @property
    def requirement_text(self) -> str:
        return "a text"

    def is_satisfied_by(self, value: object) -> bool:
        return isinstance(value, str)


@dataclass(frozen=True)
class Pattern(Constraint):
    """A text that matches a regular expression as a whole.

    Parameters
    ----------
    expression : str
    meaning : str
        What such a text is, in words that follow "must be".
    """

    expression: str
    meaning: str

    @property
    def requirement_text(self) -> str:
        return self.meaning

    def is_satisfied_by(self, value: object) -> bool:
        return isinstance(value, str) and re.fullmatch(self.expression, value) is not None

    def concerns_kind_of(self, value: object) -> bool:
        return isinstance(value, str)


@dataclass(frozen=True)
class Flag(Constraint):
    """True or False."""

    @property
    def requirement_text(self) -> str:
        return "True or False"

    def is_satisfied_by(self, value: object) -> bool:
        return isinstance(value, bool)


@dataclass(frozen=True)
class Nothing(Constraint):
    """None, where a field may be left out."""

    @property
    def requirement_text(self) -> str:
        return "None"

    def is_satisfied_by(self, value: object) -> bool:
        return value is None


@dataclass(frozen=True)
class Instance(Constraint):
    """An object of a class; `meaning` says what it is, if that is not the name of the class."""

    kind: type
    meaning: str = ""

    @property
    def requirement_text(self) -> str:
        if self.meaning:
            return self.meaning
        return f"a {self.kind.__name__}"

    def is_satisfied_by(self, value: object) -> bool:
        return isinstance(value, self.kind)


@dataclass(frozen=True, init=False)
class OneOf(Constraint):
    """One of a few texts."""

    options: tuple[str, ...]

    def __init__(self, *options: str) -> None:
        # The class is frozen, so it cannot assign in the usual way.
        object.__setattr__(self, "options", options)

    @property
    def requirement_text(self) -> str:
        names = [repr(option) for option in self.options]
        if len(names) <= 2:
            return " or ".join(names)
        return f"one of {', '.join(names)}"

    def is_satisfied_by(self, value: object) -> bool:
        return isinstance(value, str) and value in self.options

    def concerns_kind_of(self, value: object) -> bool:
        return isinstance(value, str)


@dataclass(frozen=True)
class Count(Constraint):
    """A whole number from `least` to `most`; True and False are none."""

    least: int = 1
    most: int | None = None

    @property
    def requirement_text(self) -> str:
        text = f"a whole number, at least {self.least:,}"
        if self.most is not None:
            text += f" and at most {self.most:,}"
        return text

    def is_satisfied_by(self, value: object) -> bool:
        # True is an instance of int, and counts nothing.
        if isinstance(value, bool) or not isinstance(value, Integral):
            return False
        number = int(value)
        if number.bit_length() >= LONGEST_NUMBER or number < self.least:
            return False
        return self.most is None or number <= self.most

    def concerns_kind_of(self, value: object) -> bool:
        return isinstance(value, Integral) and not isinstance(value, bool)

    def broken_rule_text(self, value: object) -> str:
        # Without a bound above, only the number of its bits can be wrong with a number so large.
        if self.most is None and self.concerns_kind_of(value) and value >= self.least:  # type: ignore[operator]
            return "must be a whole number of less than 150 digits"
        return f"must be {self.requirement_text}"


@dataclass(frozen=True)
class Interval(Constraint):
    """A number from `low` to `high`; NaN is none.

    Parameters
    ----------
    low, high : float
        Infinite ends leave that side open; infinity itself is a number of the interval if its end
        is closed.
    closed : {"both", "low", "high", "neither"}
        Which ends belong to it.
    why : str
        The reason of its ends, in words that follow "because".
    """

    low: float = -math.inf
    high: float = math.inf
    closed: str = "both"
    why: str = ""

    @property
    def requirement_text(self) -> str:
        text = "a number"
        if self._must_be_finite:
            text = "a finite number"
        ends = self._finite_ends_text()
        if ends:
            text += f" {' and '.join(ends)}"
        return self._with_reason(text)

    @property
    def _must_be_finite(self) -> bool:
        return self.high == math.inf and not self._includes_high_end

    def _finite_ends_text(self) -> list[str]:
        """Return the finite ends in words: none, one or both."""
        ends = []
        if self.low > -math.inf:
            sign = ">=" if self._includes_low_end else ">"
            ends.append(f"{sign} {self.low:g}")
        if self.high < math.inf:
            sign = "<=" if self._includes_high_end else "<"
            ends.append(f"{sign} {self.high:g}")
        return ends

    def _with_reason(self, text: str) -> str:
        if not self.why:
            return text
        return f"{text}, because {self.why}"

    @property
    def _includes_low_end(self) -> bool:
        return self.closed in ("both", "low")

    @property
    def _includes_high_end(self) -> bool:
        return self.closed in ("both", "high")

    def is_satisfied_by(self, value: object) -> bool:
        number = real_number_or_none(value)
        if number is None or math.isnan(number):
            return False
        above = number >= self.low if self._includes_low_end else number > self.low
        below = number <= self.high if self._includes_high_end else number < self.high
        return above and below

    def concerns_kind_of(self, value: object) -> bool:
        return real_number_or_none(value) is not None

    def broken_rule_text(self, value: object) -> str:
        if not self.concerns_kind_of(value):
            return f"must be {self.requirement_text}"
        bounds = self._finite_ends_text()
        if self._must_be_finite:
            bounds = ["finite", *bounds]
        # A number that an interval without bounds refuses is NaN.
        if not bounds:
            return self._with_reason("must not be NaN")
        return self._with_reason(f"must be {' and '.join(bounds)}")


@dataclass(frozen=True, init=False)
class Both(Constraint):
    """The conjunction of several constraints; a message says the first that is broken."""

    parts: tuple[Constraint, ...]

    def __init__(self, *parts: Constraint) -> None:
        object.__setattr__(self, "parts", parts)

    @property
    def requirement_text(self) -> str:
        return ", and ".join(one.requirement_text for one in self.parts)

    def is_satisfied_by(self, value: object) -> bool:
        return all(one.is_satisfied_by(value) for one in self.parts)

    def concerns_kind_of(self, value: object) -> bool:
        return any(one.concerns_kind_of(value) for one in self.parts)

    def broken_rule_text(self, value: object) -> str:
        return next(
            one.broken_rule_text(value) for one in self.parts if not one.is_satisfied_by(value)
        )


@dataclass(frozen=True, init=False)
class AnyOf(Constraint):
    """The disjunction of several constraints.

    A message says the one that concerns the value, if any.
    """

    options: tuple[Constraint, ...]

    def __init__(self, *options: Constraint) -> None:
        object.__setattr__(self, "options", options)

    @property
    def requirement_text(self) -> str:
        return ", or ".join(one.requirement_text for one in self.options)

    def is_satisfied_by(self, value: object) -> bool:
        return any(one.is_satisfied_by(value) for one in self.options)

    def concerns_kind_of(self, value: object) -> bool:
        return any(one.concerns_kind_of(value) for one in self.options)

    def broken_rule_text(self, value: object) -> str:
        for one in self.options:
            if one.concerns_kind_of(value):
                return one.broken_rule_text(value)
        return f"must be {self.requirement_text}"


@dataclass(frozen=True)
class PerNode(Constraint):
    """One value, or a tuple of them, one for each node."""

    each: Constraint

    @property
    def requirement_text(self) -> str:
        return f"{self.each.requirement_text}, or a tuple of them, one per node"

    def is_satisfied_by(self, value: object) -> bool:
        return all(map(self.each.is_satisfied_by, _entries_of_value(value)))

    def concerns_kind_of(self, value: object) -> bool:
        return all(map(self.each.concerns_kind_of, _entries_of_value(value)))

    def broken_rule_text(self, value: object) -> str:
        if not self.concerns_kind_of(value):
            return f"must be {self.requirement_text}"
        return next(
            self.each.broken_rule_text(one)
            for one in _entries_of_value(value)
            if not self.each.is_satisfied_by(one)
        )


@dataclass(frozen=True)
class Each(Constraint):
    """A tuple of values that each keep to one constraint."""

    constraint: Constraint

    @property
    def requirement_text(self) -> str:
        return f"a tuple, each {self.constraint.requirement_text}"

    def is_satisfied_by(self, value: object) -> bool:
        return isinstance(value, tuple) and all(map(self.constraint.is_satisfied_by, value))


@dataclass(frozen=True)
class UsableSize(Constraint):
    """Numbers, also those of a tuple, of a size at which arithmetic neither overflows nor
    underflows.

    Zero, infinities, and values that are no numbers satisfy it.
    """

    smallest: float = 1e-100
    largest: float = 1e100

    @property
    def requirement_text(self) -> str:
        return f"0, or of a size from {self.smallest:g} to {self.largest:g}"

    def is_satisfied_by(self, value: object) -> bool:
        numbers = map(real_number_or_none, _entries_of_value(value))
        return all(number is None or self._is_usable(number) for number in numbers)

    def _is_usable(self, number: float) -> bool:
        # What is not finite is for an interval to refuse.
        if number == 0 or not math.isfinite(number):
            return True
        return self.smallest <= abs(number) <= self.largest


def _entries_of_value(value: object) -> tuple[object, ...]:
    """Return the values of a tuple; of anything else, that alone."""
    if isinstance(value, tuple):
        return value
    return (value,)


def optional_constraint(constraint: Constraint) -> Constraint:
    """Return the constraint of a field that may be left out."""
    return AnyOf(constraint, Nothing())


def real_number_or_none(value: object) -> float | None:
    """Convert a real number to a float; None for all else, and for whole numbers that are too long.

    True and False are no numbers.  Fractions are none either: records of runs are JSON, which has
    none.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if isinstance(value, Rational) and not isinstance(value, Integral):
        return None
    # A whole number may be larger than every float.
    try:
        return float(value)
    except OverflowError:
        return None


def constrained_field(default: Any, constraint: Constraint, remedy: str = "") -> Any:
    """Declare a field of a dataclass with its constraint.

    Parameters
    ----------
    default : Any
    constraint : Constraint
    remedy : str
        What to do about a wrong value; without one, the default is named.

    Returns
    -------
    dataclasses.Field
    """
    return field(default=default, metadata=constraint_metadata(constraint, remedy))


def constraint_metadata(constraint: Constraint, remedy: str = "") -> dict[str, Any]:
    """Return the metadata of a field by which :func:`validate_fields_and_rules` finds its
    constraint.
    """
    return {_KEY: (constraint, remedy)}


Rule = Callable[[Any], Iterable[InvalidInput]]
"""A rule over several fields: it yields what is wrong, and nothing if it holds."""


def collect_broken_constraints(
    target: Any, error: type[InvalidInput] = InvalidInput
) -> list[InvalidInput]:
    """Return an error for every field of a dataclass that breaks its constraint, in order."""
    found = []
    for one in fields(target):
        if _KEY not in one.metadata:
            continue
        constraint, remedy = one.metadata[_KEY]
        value = getattr(target, one.name)
        if constraint.is_satisfied_by(value):
            continue
        rule = constraint.broken_rule_text(value)
        # A message shows no value where it is None, so the type stands for it.
        if value is None:
            value = type(value)
        found.append(error(one.name, value, rule, remedy or _default_remedy(one)))
    return found


def _default_remedy(one: Field[Any]) -> str:
    """Return the remedy of a field that declares none."""
    if one.default is MISSING:
        return "correct it"
    if one.default is None:
        return "leave it out"
    return f"the default is {one.default!r}"


def collect_broken_rules(target: Any, rules: Iterable[Rule]) -> list[InvalidInput]:
    """Return the errors of rules over several fields, in the order of the rules."""
    return [wrong for rule in rules for wrong in rule(target)]


def validate_fields_and_rules(
    target: Any, rules: Sequence[Rule] = (), error: type[InvalidInput] = InvalidInput
) -> None:
    """Check the constraints of a dataclass's fields, then the rules over several of them.

    Rules may trust that every field by itself keeps to its constraint, so they are asked only if
    all do.

    Parameters
    ----------
    target : dataclass instance
        Its fields may declare constraints with :func:`constrained_field`.
    rules : sequence of callable
        Each takes `target` and yields errors.
    error : type
        Class of the errors on single fields, an InvalidInput.

    Raises
    ------
    InvalidInput
        About the first thing that is wrong; its ``others`` are about all else.  Of the class
        `error` for a single field, and as the rule made it for several.
    """
    raise_collected_errors(collect_broken_constraints(target, error))
    # Only now may a rule trust each field by itself.
    raise_collected_errors(collect_broken_rules(target, rules))
