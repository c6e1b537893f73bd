"""Every exception of the library, and how error messages are built.

::

    SottovoceError
    ├── InvalidInput (also ValueError)   a field, its value, the rule it breaks, what to do
    │   ├── InvalidKind (also TypeError) data of a kind that cannot be read at all
    │   ├── SchemaError                  a declaration of public facts is missing or does not fit
    │   └── GraphError                   the network cannot carry the method
    ├── BudgetExceeded                   the next release would pass the budget; nothing was drawn
    ├── UnknownEvent                     an accountant was asked for a price that it cannot prove
    ├── SolverError                      a local solve did not reach its certificate
    ├── LedgerError                      a durable ledger cannot be used so
    │   ├── LedgerCorrupt                damaged, edited, or older than something made from it
    │   ├── LedgerMismatch               of another data set, or another plan
    │   └── LedgerVersion                written with another schema
    ├── CheckpointError                  a saved run does not belong to this configuration
    ├── NotWritten (also OSError)        a file could not be written; the one before still stands
    ├── Refused                          a message, plan or site breaks the agreement
    ├── Unreachable                      the hub did not answer, or not as itself
    ├── Queued                           the hub has other plans to serve before this one
    ├── Busy                             another process uses the ledger, or serves the hub
    ├── AttemptLost                      a secure sum over sites was charged but not computed
    ├── EndedEarly                       another party ended a run before its last round
    ├── FinishedWithout                  a run across sites is finished, without some of them
    └── NetClosed                        a neighbour left before the round was over
        └── TransportClosed              the run ended at the hub

A message is one line of bounded length without control characters.  It never holds a data value,
only fields, declared parameters, counts of sites and rules.  What only the data owner should know
is a warning, :class:`HolderNote`; what follows from public facts alone is another,
:class:`PublicNote`.  Nothing was released for a message that is :class:`Refused`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from os import PathLike
from typing import Self

LONGEST = 200
"""Most characters of a value, or of a field's name, in a message."""
# Most characters of a rule or a remedy, and of a whole message.
_LONGEST_SENTENCE = 800
_LONGEST_MESSAGE = 2000
# Most entries of a tuple or list of numbers that a message shows; more could be a row.
_ENTRIES = 8


def escape_unprintable(text: str, longest: int | None = None) -> str:
    """Return a text as one line that cannot control a terminal: unprintable characters are escaped.

    With `longest`, a longer text is cut and ends in "…".
    """
    # Cut before it is escaped, so that a huge text takes no time; one more shows that it was cut.
    if longest is not None:
        text = text[: longest + 1]
    if not text.isprintable():
        text = "".join(map(_printable_character, text))
    if longest is None or len(text) <= longest:
        return text
    return text[: longest - 1] + "…"


def _printable_character(c: str) -> str:
    """Return a character, or its escape such as ``\\n`` if it is not printable."""
    if c.isprintable():
        return c
    return c.encode("unicode_escape").decode("ascii")


def format_declared_value(value: object) -> str:
    """Format a declared value for a message: a short number or text as it is, else its type.

    Arrays, tables and long texts can hold rows, so they are never shown, even if given by mistake.
    """
    value = _value_or_type(value)
    if isinstance(value, type):
        return f"<{value.__name__}>"
    return _format_plain_value(value)


def _value_or_type(value: object) -> object:
    """Return the value if it may be shown, else its type."""
    if isinstance(value, type) or 0 < len(_format_plain_value(value)) <= LONGEST:
        return value
    return type(value)


def _format_plain_value(value: object) -> str:
    """Format a number, a text of one line, a path, or a few numbers; empty for all else."""
    # Python refuses to write the longest whole numbers.
    if isinstance(value, int) and value.bit_length() > 4 * LONGEST:
        return ""
    if value is None:
        return repr(value)
    if isinstance(value, Number):
        return _format_number(value)
    if isinstance(value, str):
        # A text of several lines may hold rows.
        if "\n" in value:
            return ""
        return repr(str(value))
    if isinstance(value, PathLike):
        return _format_path_end(str(value))
    if isinstance(value, tuple | list):
        return _format_few_numbers(value)
    return ""


def _format_number(value: Number) -> str:
    """Format a number; NumPy's scalars as Python's."""
    if hasattr(value, "item"):
        return repr(value.item())
    return repr(value)


def _format_path_end(path: str) -> str:
    """Format a path; of a long one the end, which tells more than the start."""
    if len(path) >= LONGEST - 2:
        path = "…" + path[-(LONGEST - 4) :]
    return repr(path)


def _format_few_numbers(values: tuple[object, ...] | list[object]) -> str:
    """Format a few numbers as Python writes a list or a shape; empty for all else."""
    # A long or mixed sequence may be a row.
    if len(values) > _ENTRIES or not all(isinstance(entry, Number) for entry in values):
        return ""
    text = ", ".join(map(format_declared_value, values))
    if isinstance(values, list):
        return f"[{text}]"
    if len(values) == 1:
        return f"({text},)"
    return f"({text})"


class SottovoceError(Exception):
    """Root of all errors that this library raises on purpose.

    Examples
    --------
    >>> from sottovoce import RunConfig, SottovoceError
    >>> try:
    ...     RunConfig(epsilon=-1.0)
    ... except SottovoceError as error:
    ...     print(error)
    epsilon=-1.0: must be > 0; use e.g. epsilon=1, or epsilon=inf for a run without noise
    """

    def __str__(self) -> str:
        return escape_unprintable(super().__str__(), _LONGEST_MESSAGE)


class InvalidInput(SottovoceError, ValueError):
    """A parameter or declaration breaks a rule.  Raised before anything is spent.

    Parameters
    ----------
    field : str
        Name of the parameter as the user wrote it.
    value : object
        The offending value if it is *declared*; ``None`` for data, which is never shown.  Message
        and attribute keep only what :func:`format_declared_value` shows.
    rule : str
        What must hold.
    remedy : str
        What to do about it.
    """

    nodes: object = None
    """Mask of the nodes concerned, if known and not all."""
    others: tuple[InvalidInput, ...] = ()
    """What else is wrong, where everything was checked at once (:func:`raise_collected_errors`);
    the message names it too.
    """

    def __init__(self, field: str, value: object, rule: str, remedy: str) -> None:
        self.field = escape_unprintable(str(field), LONGEST)
        self.rule = escape_unprintable(str(rule), _LONGEST_SENTENCE)
        self.remedy = escape_unprintable(str(remedy), _LONGEST_SENTENCE)
        # An error that is kept, or sent to another process, keeps no rows.
        self.value = _value_or_type(value)
        named = self.field
        if value is not None:
            named = f"{self.field}={format_declared_value(value)}"
        super().__init__(f"{named}: {self.rule}; {self.remedy}")

    def __str__(self) -> str:
        own = super().__str__()
        if not self.others:
            return own
        return escape_unprintable(". Also: ".join([own, *map(str, self.others)]), _LONGEST_MESSAGE)

    def __reduce__(self) -> tuple[object, ...]:
        # By default pickle calls the class with the message alone, where it takes four fields.
        return type(self), (self.field, self.value, self.rule, self.remedy), vars(self)


def raise_collected_errors(errors: Sequence[InvalidInput]) -> None:
    """Raise the first of these errors, which holds the others; nothing if there are none."""
    if not errors:
        return
    first, *others = errors
    first.others = tuple(others)
    raise first


class InvalidKind(InvalidInput, TypeError):
    """Data from which no number or label can be read; also a TypeError, as in scikit-learn."""


class SchemaError(InvalidInput):
    """A schema misses a declaration, or the rows do not have the declared columns."""


class GraphError(InvalidInput):
    """The network is not connected, or does not fit the number of sites."""


class BudgetExceeded(SottovoceError):
    """The next release would pass the budget.  No ledger row was written and no noise was drawn."""


class UnknownEvent(SottovoceError):
    """An accountant has no proof for an event, and refuses to guess a price."""


class SolverError(SottovoceError):
    """A local solve did not reach the gradient norm that its guarantee needs."""


class LedgerError(SottovoceError):
    """A durable ledger cannot be read or written, or its rows do not allow what is asked."""


class LedgerCorrupt(LedgerError):
    """A ledger file is damaged, edited, or older than a head or checkpoint made from it."""


class LedgerMismatch(LedgerError):
    """A ledger is used with another data set, or a run with another plan, than recorded."""


class LedgerVersion(LedgerError):
    """A ledger was written with another version of the schema."""


class CheckpointError(SottovoceError):
    """A checkpoint is unreadable or belongs to another configuration."""


class NetClosed(SottovoceError):
    """A neighbour left the run before the round was complete."""


class AttemptLost(SottovoceError):
    """A secure sum over sites could not be computed, because a site did not send its part (share).

    The attempt is charged; the run goes on with the next one.
    """


class TransportClosed(NetClosed):
    """A run across sites has ended for a site.

    `site` is the one that the others go on without; None if the hub ended the run.
    """

    def __init__(self, why: str, site: str | None = None) -> None:
        super().__init__(why)
        self.site = site


class EndedEarly(SottovoceError):
    """A run across sites ended before its last round, as another site left or the hub ended it."""


class FinishedWithout(SottovoceError):
    """A run across sites is finished, without some of them."""


def check_no_lost_sites(where: str, lost: Mapping[str, str]) -> None:
    """Raise :class:`FinishedWithout` if a finished run `where` went on without some of its sites.

    `lost` maps the name of each such site to the reason, a verb's phrase.
    """
    if lost:
        who = ", ".join(f"{name!r} (it {why})" for name, why in sorted(lost.items()))
        raise FinishedWithout(
            f"{where}: finished without {who}; the results are those of the remaining sites"
        )


class NotWritten(SottovoceError, OSError):
    """A file could not be written, as the disk is full for example; an earlier file still
    stands.
    """

    released = False
    """Whether noise was drawn before, and may have been paid for: the exit code must not say
    that nothing was spent.
    """

    def mark_as_after_release(self) -> Self:
        """Mark the error as that of a command that had released something, and return it."""
        self.released = True
        return self


class Exhausted(SottovoceError):
    """This process or machine has no file descriptors or memory left; it says nothing about a file,
    and it passes.
    """


class Refused(SottovoceError):
    """A message, a plan or a site does not fit the agreement.  What it asked for was not done."""


class Unreachable(SottovoceError):
    """The hub did not answer within the time allowed, or the answer did not come from the hub."""


class Queued(SottovoceError):
    """The plan waits in the hub's queue: whoever asks for it asks again."""


class Busy(SottovoceError):
    """Another process takes part with the same ledger, or serves the same hub."""


class HolderNote(UserWarning):
    """A note for the owner of private rows, computed from them without noise: keep it private."""


class PublicNote(UserWarning):
    """A note that follows from public facts alone, such as declarations: anybody may read it."""


class NotCalibrated(UserWarning):
    """A warning that probabilities are not calibrated, because gradients were capped."""


EXITS = {
    0: "done",
    1: "failed: repeat the same command; what a ledger has already paid for costs nothing more",
    2: "bad input, or a ledger that cannot be used: nothing was spent beyond what the ledger shows",
    3: "refused, because another party broke the agreement: a person must look into it before the "
    "command is repeated",
    4: "a run across sites ended early, because another site left or the hub ended it",
    5: "a run across sites finished without some of its sites",
    130: "interrupted",
    141: "the program that read the output closed it early; a result that a ledger paid for is "
    "stored",
}
"""Exit codes of the commands."""

EXIT_CODES = (
    "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXITS.items()) + "."
)
""":data:`EXITS` as the end of a help text."""


def exit_code_for_error(error: SottovoceError) -> int:
    """Return the exit code in :data:`EXITS` of a command that ends with `error`."""
    # Noise was drawn before, so the code must not say that nothing was spent.
    if isinstance(error, NotWritten) and error.released:
        return 1
    if isinstance(
        error,
        InvalidInput | CheckpointError | BudgetExceeded | LedgerError | UnknownEvent | NotWritten,
    ):
        return 2
    for kind, code in ((Refused, 3), (EndedEarly, 4), (FinishedWithout, 5)):
        if isinstance(error, kind):
            return code
    return 1
