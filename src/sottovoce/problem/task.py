"""Tasks: what kind of label a model predicts: one of two classes, of K classes, or a number.

All that depends on the kind of label is a method here: how labels are encoded, how margins become
predictions, errors, baselines, and the words for reports.

Margins are ``w.x`` without a label, of any number of models at once: (..., n) for one margin a row,
and (..., K, n) for K, classes before rows as in :class:`sottovoce.problem.losses.Softmax`.

Errors read labels without noise: they are for public rows, and for the holder of private ones.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from ..errors import InvalidInput, escape_unprintable
from ..util.typing import Any, Array, ArrayLike, BoolArray, IntArray

# Largest number of margins in memory when models are scored.
_MARGINS = 2**24
# Largest absolute value of a bound: larger ones could overflow when squared.
_LIMIT = 1e100

Error = TypeVar("Error", float, Array)


@dataclass(frozen=True)
class Wording:
    """Words and number formats for errors and labels in reports.

    Attributes
    ----------
    quality, qualities : str
        Name of :meth:`Task.quality`, singular and plural: "accuracy", "accuracies".
    unit : str
        Unit of printed qualities, such as "%".
    labels : str
        Name of :meth:`Task.label_summary`, with its unit.
    scale : float
        Factor from a quality or summary to its printed number.
    quality_form, label_form : str
        Format specifications of the printed numbers, such as ".2f".
    """

    quality: str
    qualities: str
    unit: str
    labels: str
    scale: float
    quality_form: str
    label_form: str

    def quality_text(self, value: float) -> str:
        """Format a quality, or a difference of qualities, in the printed unit."""
        return f"{self.scale * value:{self.quality_form}}"

    def label_text(self, value: float) -> str:
        """Format a summary of labels in the printed unit."""
        return f"{self.scale * value:{self.label_form}}"


@dataclass(frozen=True)
class Detail:
    """One more measure of quality, for the rows' holder only: a number, and a text with unit."""

    value: float
    text: str


class Task(ABC):
    """A learning task: the kind of label, its errors, its words.  `y` is an encoded label."""

    names: tuple[str, ...] = ()
    """Names of the classes 0, 1, ...; empty for a number."""

    @property
    def outputs(self) -> int:
        """Number of margins per row."""
        return 1

    @property
    @abstractmethod
    def wording(self) -> Wording:
        """Words for reports."""

    @property
    def worst_error(self) -> float:
        """The largest possible error."""
        return 1.0

    @abstractmethod
    def has_known_label(self, y: Array) -> BoolArray:
        """Return whether each row has a declared label; others are rows of zeros."""

    @abstractmethod
    def encode(self, answers: ArrayLike) -> Array:
        """Encode numbers of classes (negative: no known label) or numbers in the label's unit."""

    @abstractmethod
    def decode(self, margins: Array) -> Array | IntArray:
        """Return the prediction for every row, (..., n): what :meth:`encode` takes."""

    @abstractmethod
    def shown_answers(self, margins: Array) -> list[str] | list[float]:
        """Return one model's prediction for every row, as shown in a table."""

    @abstractmethod
    def error(self, margins: Array, y: Array) -> Array:
        """Compute the error of models, shape (...), from 0 to :attr:`worst_error`.

        `margins` are (..., n) or (..., K, n), or of one row, which stands for all rows; `y` is
        (n,).
        """

    @abstractmethod
    def errors(self, margins: Array, y: Array) -> dict[str, Array]:
        """Compute every measure of error, by name; the first is :meth:`error`."""

    def further_qualities(self, margins: Array, y: Array) -> dict[str, Detail]:
        """Compute further qualities of one model with margins (n,) or (K, n), by name."""
        return {}

    @abstractmethod
    def baseline_margins(self, y: Array) -> dict[str, Array]:
        """Return margins, (1,) or (K, 1), of models that see no columns, fitted to the labels `y`.

        A model must beat them.  The one with the least error on `y` comes first.
        """

    @abstractmethod
    def quality(self, error: Error) -> Error:
        """Convert an error to what is reported: accuracy for classes, itself for a number."""

    @abstractmethod
    def label_summary(self, y: Array) -> float:
        """Return one number about a site's labels, for their holder only (``wording.labels``)."""

    @abstractmethod
    def rows_by_label(self, y: Array) -> tuple[IntArray, ...]:
        """Return row indices by kind of label, the highest first; unknown labels come last."""

    def vectors_by_margin(self, W: Array) -> Array:
        """Split models (..., outputs d) into a vector a margin: (..., d) or (..., K, d)."""
        return W

    def model_errors(self, X: Array, y: Array, W: Array) -> Array:
        """Compute the errors of many models on the same rows, in parts that fit memory.

        Parameters
        ----------
        X : array (n, d)
            Rows.
        y : array (n,)
            Encoded labels.
        W : array (..., outputs d)
            Models.

        Returns
        -------
        array (...)
            :meth:`error` of every model, from 0 to :attr:`worst_error`.
        """
        flat = W.reshape(-1, W.shape[-1])
        some = max(1, _MARGINS // max(1, len(X) * self.outputs))
        parts = []
        for k in range(0, len(flat), some):
            vectors = self.vectors_by_margin(flat[k : k + some])
            margins = X @ vectors.reshape(-1, vectors.shape[-1]).T
            parts.append(self.error(margins.T.reshape(*vectors.shape[:-1], len(X)), y))
        return np.concatenate(parts).reshape(W.shape[:-1])


class Classification(Task):
    """Two classes or more, numbered 0, 1, ...; the error is the misclassification rate."""

    @property
    def wording(self) -> Wording:
        return Wording("accuracy", "accuracies", "%", "commonest %", 100.0, ".2f", ".1f")

    @property
    @abstractmethod
    def contrasts(self) -> tuple[int, ...]:
        """The classes that one-against-rest models of one margin are trained for."""

    @abstractmethod
    def decode(self, margins: Array) -> IntArray: ...

    @abstractmethod
    def number(self, y: Array) -> IntArray:
        """Return the class of each row from encoded labels, negative for no known label."""

    @abstractmethod
    def from_softmax(self, vectors: Array) -> Array:
        """Convert softmax models, a vector for every class (..., K, d), to this task's models.

        The result has the shape (..., outputs d).
        """

    def shown_answers(self, margins: Array) -> list[str]:
        shown = [escape_unprintable(name) for name in self.names]
        return [shown[k] for k in self.decode(margins).tolist()]

    def errors(self, margins: Array, y: Array) -> dict[str, Array]:
        return {"misclassified": self.error(margins, y)}

    def expected_error(self, margins: Array, chances: Array) -> Array:
        """Compute the expected misclassification rate of models, (...), for random labels.

        `chances`, (n, K), are the probabilities of the classes of every row.
        """
        answer = self.decode(margins)
        right = np.take_along_axis(chances.T, answer.reshape(-1, len(chances)), axis=0)
        return np.asarray(1.0 - right.mean(axis=-1)).reshape(answer.shape[:-1])

    @abstractmethod
    def expected_log_loss(self, margins: Array, chances: Array) -> Array:
        """Compute the expected log loss of models, in nats per row, (...), for random labels.

        `margins`, (..., n) or (..., K, n), are taken as log-odds, or as logits of softmax;
        `chances`, (n, K), are the probabilities of the classes of every row.
        """

    def quality(self, error: Error) -> Error:
        return 1.0 - error

    def _check_names(self, most: float) -> None:
        names = self.names
        texts = isinstance(names, tuple) and all(isinstance(name, str) for name in names)
        if not (texts and 2 <= len(set(names)) == len(names) <= most):
            many = "two" if most == 2 else "two or more"
            raise InvalidInput(
                "names", None, f"must be {many} different texts", "name every class once"
            )


@dataclass(frozen=True)
class TwoClasses(Classification):
    """Two classes: one margin per row, whose sign is the prediction.

    `y` is -1 or 1, and 0 for a row without a known label.

    `names` are two different texts, of the negative class 0 and the positive class 1.  A margin of
    zero counts as an error, whatever the label; :meth:`decode` gives class 0 for it.  The baseline
    "majority" always answers the commoner class, and class 1 in a tie.
    """

    names: tuple[str, ...] = ("-1", "1")

    def __post_init__(self) -> None:
        self._check_names(2)

    @property
    def wording(self) -> Wording:
        return Wording("accuracy", "accuracies", "%", "positive %", 100.0, ".2f", ".1f")

    @property
    def contrasts(self) -> tuple[int, ...]:
        return (1,)

    def has_known_label(self, y: Array) -> BoolArray:
        return y != 0.0

    def encode(self, answers: ArrayLike, positive: int = 1) -> Array:
        """Encode class numbers as 1 for `positive`, -1 for other classes, and 0 if negative."""
        number = np.asarray(answers)
        return np.where(number == positive, 1.0, np.where(number < 0, 0.0, -1.0))

    def decode(self, margins: Array) -> IntArray:
        return (margins > 0).astype(np.intp)

    def number(self, y: Array) -> IntArray:
        return np.where(y == 0.0, -1, (y > 0).astype(np.intp))

    def error(self, margins: Array, y: Array) -> Array:
        return np.asarray((margins * y <= 0).mean(axis=-1))

    def expected_log_loss(self, margins: Array, chances: Array) -> Array:
        of_one = np.logaddexp(0.0, margins) - chances[:, 1] * margins
        return np.asarray(of_one.mean(axis=-1))

    def baseline_margins(self, y: Array) -> dict[str, Array]:
        return {"majority": np.array([1.0 if y.mean() >= 0 else -1.0])}

    def label_summary(self, y: Array) -> float:
        """Share of positive labels."""
        return float(np.mean(y > 0))

    def rows_by_label(self, y: Array) -> tuple[IntArray, ...]:
        return np.flatnonzero(y > 0), np.flatnonzero(y <= 0)

    def from_softmax(self, vectors: Array) -> Array:
        return vectors[..., 1:, :] - vectors[..., :1, :]


@dataclass(frozen=True)
class ManyClasses(Classification):
    """Several classes: a margin for each, of which the largest (the first in a tie) is predicted.

    `names` are of two classes or more, all different.  `y` is the number of the class, and -1 for a
    row without a known label, which every answer gets wrong.  The baseline "majority" always
    answers the commonest class, the first in a tie.
    """

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        self._check_names(np.inf)

    @property
    def outputs(self) -> int:
        return len(self.names)

    @property
    def contrasts(self) -> tuple[int, ...]:
        return tuple(range(len(self.names)))

    def has_known_label(self, y: Array) -> BoolArray:
        return y >= 0

    def encode(self, answers: ArrayLike) -> Array:
        return np.maximum(np.asarray(answers), -1)

    def decode(self, margins: Array) -> IntArray:
        return np.asarray(margins.argmax(axis=-2))

    def number(self, y: Array) -> IntArray:
        return np.asarray(y, dtype=np.intp)

    def error(self, margins: Array, y: Array) -> Array:
        return np.asarray((self.decode(margins) != y).mean(axis=-1))

    def expected_log_loss(self, margins: Array, chances: Array) -> Array:
        largest = margins.max(axis=-2, keepdims=True)
        normaliser = np.log(np.exp(margins - largest).sum(axis=-2)) + largest[..., 0, :]
        of_one = normaliser - (chances.T * margins).sum(axis=-2)
        return np.asarray(of_one.mean(axis=-1))

    def further_qualities(self, margins: Array, y: Array) -> dict[str, Detail]:
        """Accuracy on the rows of each class that has any."""
        answer, found = self.decode(margins), {}
        for k, name in enumerate(self.names):
            if (mine := y == k).any():
                right = float(np.mean(answer[mine] == k))
                found[f"accuracy on {escape_unprintable(name)}"] = Detail(
                    right, f"{100.0 * right:.2f}%"
                )
        return found

    def baseline_margins(self, y: Array) -> dict[str, Array]:
        commonest = np.zeros((len(self.names), 1))
        commonest[_rows_of_classes(y, len(self.names)).argmax()] = 1.0
        return {"majority": commonest}

    def label_summary(self, y: Array) -> float:
        """Share of the commonest label."""
        return float(_rows_of_classes(y, len(self.names)).max() / len(y))

    def rows_by_label(self, y: Array) -> tuple[IntArray, ...]:
        number = np.maximum(y, 0)
        return tuple(np.flatnonzero(number == k) for k in reversed(range(len(self.names))))

    def vectors_by_margin(self, W: Array) -> Array:
        return W.reshape(*W.shape[:-1], len(self.names), -1)

    def from_softmax(self, vectors: Array) -> Array:
        return vectors


class Bounds(NamedTuple):
    """Bounds of a numeric label, and the linear map between [low, high] and [-1, 1]."""

    low: float
    high: float

    @property
    def half(self) -> float:
        """Half of the distance between the bounds."""
        return 0.5 * (self.high - self.low)

    @property
    def middle(self) -> float:
        """The middle of the bounds, which is mapped to 0."""
        return self.low + self.half

    def to_unit(self, numbers: Array) -> Array:
        """Clip numbers to the bounds, and map them to [-1, 1]."""
        inside = np.clip(numbers, self.low, self.high)
        return np.clip((inside - self.middle) / self.half, -1.0, 1.0)

    def from_unit(self, scaled: Array) -> Array:
        """Map numbers from [-1, 1] to the bounds; those outside become the nearest bound."""
        inside = self.middle + self.half * np.clip(scaled, -1.0, 1.0)
        # Clipped again, as rounding may leave the bounds.
        return np.clip(inside, self.low, self.high)


@dataclass(frozen=True)
class BoundedNumber(Task):
    """A number between declared bounds, which the one margin of a row predicts.

    `y` is the label scaled from [low, high] to [-1, 1], and NaN for a row without a label.  Labels
    and predictions beyond the bounds are clipped.  The error is the root mean square, in the
    label's unit; NaN if any label is not known. Baselines are "mean", of the labels, and "middle",
    of the bounds, which needs no label.

    Parameters
    ----------
    low, high : float
        Public bounds of the label, never read off rows.
    unit : str
        Of the label, such as "days".

    Raises
    ------
    InvalidInput
        If the bounds are not finite numbers within 1e100 of 0 with ``low < high`` and a number
        between them, or the unit is not one short line.
    """

    low: float
    high: float
    unit: str = ""

    def __post_init__(self) -> None:
        given = self.low, self.high
        object.__setattr__(self, "low", _bound(self.low))
        object.__setattr__(self, "high", _bound(self.high))
        if not self.low < self.bounds.middle < self.high:  # NaN too
            rule = (
                "must be finite numbers, low below high with numbers between them, within "
                f"{_LIMIT:g}"
            )
            raise InvalidInput("low, high", given, rule, "declare bounds such as low=0, high=60")
        if not isinstance(self.unit, str) or self.unit != escape_unprintable(self.unit, 40):
            rule = "must be one line of at most 40 characters"
            raise InvalidInput("unit", self.unit, rule, "use a word such as 'days'")

    @property
    def bounds(self) -> Bounds:
        """Both bounds of the label."""
        return Bounds(self.low, self.high)

    @property
    def wording(self) -> Wording:
        what, size = "root mean squared error", math.floor(math.log10(self.worst_error))
        # Digits for about a thousandth of the distance between the bounds.
        form = f".{max(0, 3 - size)}f" if abs(size) < 10 else ".4g"
        return Wording(
            what, f"{what}s", self.unit, f"mean label {self.unit}".rstrip(), 1.0, form, form
        )

    @property
    def worst_error(self) -> float:
        return 2.0 * self.bounds.half

    def has_known_label(self, y: Array) -> BoolArray:
        return ~np.isnan(y)

    def encode(self, answers: ArrayLike) -> Array:
        return self.bounds.to_unit(np.asarray(answers, dtype=np.float64))

    def decode(self, margins: Array) -> Array:
        return self.bounds.from_unit(margins)

    def shown_answers(self, margins: Array) -> list[float]:
        return list(self.decode(margins).tolist())

    def error(self, margins: Array, y: Array) -> Array:
        return np.asarray(
            self.bounds.half * np.sqrt(np.mean((np.clip(margins, -1.0, 1.0) - y) ** 2, axis=-1))
        )

    def errors(self, margins: Array, y: Array) -> dict[str, Array]:
        absolute = self.bounds.half * np.mean(np.abs(np.clip(margins, -1.0, 1.0) - y), axis=-1)
        return {"root_mean_squared": self.error(margins, y), "mean_absolute": np.asarray(absolute)}

    def further_qualities(self, margins: Array, y: Array) -> dict[str, Detail]:
        """The mean absolute error, and R2 unless all labels are equal."""
        absolute = float(self.errors(margins, y)["mean_absolute"])
        found = {
            "mean absolute error": Detail(
                absolute, f"{self.wording.quality_text(absolute)} {self.unit}".rstrip()
            )
        }
        spread = float(np.var(y))
        if spread > 0.0:
            share = 1.0 - float(np.mean((np.clip(margins, -1.0, 1.0) - y) ** 2)) / spread
            found = {"R2": Detail(share, f"{share:.4f}")} | found
        return found

    def baseline_margins(self, y: Array) -> dict[str, Array]:
        return {"mean": np.array([_mean_known(y, 0.0)]), "middle": np.zeros(1)}

    def quality(self, error: Error) -> Error:
        return error

    def label_summary(self, y: Array) -> float:
        """Mean of the labels in their unit, NaN if none is known."""
        return float(self.decode(np.array(_mean_known(y, np.nan))))

    def rows_by_label(self, y: Array) -> tuple[IntArray, ...]:
        """Rows above the middle of the bounds, and all others."""
        return np.flatnonzero(y > 0), np.flatnonzero(~(y > 0))


@dataclass(frozen=True)
class EventRate(Task):
    """Events of people who are seen for some time: dated ones, at most one each, or counts.

    The one margin of a row predicts the logarithm of the rate: events in one unit of time.  A label
    holds both, the time as a part of the last edge: of dated events it is the time, negative
    without an event; of counts the number plus half the time.  NaN is unknown.

    Parameters
    ----------
    edges : tuple of float
        Public edges of intervals of time, increasing from 0 or more; 0 and the longest time of
        counts.
    most : float
        Largest number of events.
    dated : bool
        Whether an event ends the time of its person.
    """

    edges: tuple[float, ...]
    most: float
    dated: bool

    @property
    def wording(self) -> Wording:
        return Wording(
            "mean absolute error", "errors", "events", "events per time", 1.0, ".3g", ".3g"
        )

    @property
    def worst_error(self) -> float:
        return math.inf

    def has_known_label(self, y: Array) -> BoolArray:
        return ~np.isnan(y)

    def encode(self, answers: ArrayLike) -> Array:
        """Encode pairs (n, 2) of numbers of events and times, in their units."""
        events, time = np.asarray(answers, dtype=np.float64).T
        part = np.minimum(time, self.edges[-1]) / self.edges[-1]
        if self.dated:
            # Who has the event after the last edge, or at it, was seen until then.
            came = (events > 0.0) & (time <= self.edges[-1])
            y = np.where(came, part, -part)
            return np.where(np.isnan(events) | ~(time > self.edges[0]), np.nan, y)
        counted = np.rint(np.clip(events, 0.0, self.most))
        return np.where(np.isnan(time), np.nan, counted + 0.5 * part)

    def events_and_time(self, y: Array) -> tuple[Array, Array]:
        """Return numbers of events, and times as parts of the last edge; NaN for unknown labels."""
        if self.dated:
            return np.where(np.isnan(y), np.nan, (y > 0.0).astype(float)), np.abs(y)
        events = np.floor(y)
        return events, 2.0 * (y - events)

    def decode(self, margins: Array) -> Array:
        return np.exp(np.minimum(margins, 700.0))

    def shown_answers(self, margins: Array) -> list[float]:
        return list(self.decode(margins).tolist())

    def error(self, margins: Array, y: Array) -> Array:
        events, time = self.events_and_time(y)
        expected = self.decode(margins) * time * self.edges[-1]
        return np.asarray(np.mean(np.abs(expected - events), axis=-1))

    def errors(self, margins: Array, y: Array) -> dict[str, Array]:
        return {"mean_absolute": self.error(margins, y)}

    def baseline_margins(self, y: Array) -> dict[str, Array]:
        return {"mean": np.log(np.array([max(self.label_summary(y), 1e-300)]))}

    def quality(self, error: Error) -> Error:
        return error

    def label_summary(self, y: Array) -> float:
        """Events in one unit of time, over all rows with a known label; NaN if there are none."""
        events, time = self.events_and_time(y[~np.isnan(y)])
        return float(events.sum() / (time.sum() * self.edges[-1])) if time.size else math.nan

    def rows_by_label(self, y: Array) -> tuple[IntArray, ...]:
        """Rows with events, and all others."""
        some = self.events_and_time(y)[0] > 0.0
        return np.flatnonzero(some), np.flatnonzero(~some)


def _rows_of_classes(y: Array, classes: int) -> IntArray:
    """Count the rows of each class; negative numbers are of none."""
    return np.bincount(y[y >= 0].astype(np.intp), minlength=classes)


def _mean_known(y: Array, none: float) -> float:
    """The mean of the labels that are not NaN; `none` if there are none."""
    known = y[~np.isnan(y)]
    return float(known.mean()) if known.size else none


def _bound(given: Any) -> float:
    """Return a bound as a float; NaN for what is no number, or too large."""
    plain = given.item() if isinstance(given, np.generic) else given
    fine = isinstance(plain, int | float) and not isinstance(plain, bool) and abs(plain) <= _LIMIT
    return float(plain) if fine else math.nan


def task_of_classes(classes: int) -> Classification:
    """Return the task of `classes` classes, named by their numbers."""
    return task_of_margins(1 if classes == 2 else classes)


def task_of_margins(outputs: int) -> Classification:
    """Return the classification task of a loss with this number of margins per row.

    One margin is for two classes; otherwise there is one margin for each class.
    """
    return TwoClasses(("0", "1")) if outputs == 1 else ManyClasses(tuple(map(str, range(outputs))))
