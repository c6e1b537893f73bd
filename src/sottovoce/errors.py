"""Every exception of the library, and the one way in which a message is built.

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
    ├── Refused                          a message, plan or site breaks the agreement; nothing was released for it
    ├── Unreachable                      the hub did not answer, or not as itself
    └── NetClosed                        a neighbour left before the round was over
        └── TransportClosed              the run ended at the hub

A message never holds a data value: fields, declared parameters, counts of sites and rules only.  What only the holder
of the rows should know is no error: it is a warning, :class:`HolderNote`, and changes nothing of what is released.
"""

from __future__ import annotations


class SottovoceError(Exception):
    """Root of all errors that this library raises on purpose."""


class InvalidInput(SottovoceError, ValueError):
    """A parameter or declaration breaks a rule.  Raised before anything is spent.

    Parameters
    ----------
    field : str
        The name of the parameter as the user wrote it.
    value : object
        The offending value if it is a *declared* one; ``None`` if it is data, which is never shown.
    rule : str
        What must hold.
    remedy : str
        What to do about it.
    """

    nodes: object = None
    """Mask of the nodes concerned, where that is known and not all of them are."""

    def __init__(self, field: str, value: object, rule: str, remedy: str) -> None:
        shown = field if value is None else f"{field}={value!r}"
        super().__init__(f"{shown}: {rule}; {remedy}")
        self.field, self.value, self.rule, self.remedy = field, value, rule, remedy

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.field, self.value, self.rule, self.remedy)


class InvalidKind(InvalidInput, TypeError):
    """Data of a kind that no number or label can be read from; a TypeError too, as in scikit-learn."""


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
    """A durable ledger cannot be read or written, or is asked for something that its rows do not allow."""


class LedgerCorrupt(LedgerError):
    """A ledger's file is damaged, was edited, or is older than something that was made from it."""


class LedgerMismatch(LedgerError):
    """A ledger is used with another data set, or a run with another plan, than the one that was written down."""


class LedgerVersion(LedgerError):
    """A ledger was written with another version of the schema."""


class CheckpointError(SottovoceError):
    """A checkpoint is unreadable or belongs to another configuration."""


class NetClosed(SottovoceError):
    """A neighbour left the run before the round was complete."""


class TransportClosed(NetClosed):
    """A run across sites has ended: a site left it, or the hub was told to end it."""


class Refused(SottovoceError):
    """A message, a plan or a site is not what was agreed on.  What it asked for was not done."""


class Unreachable(SottovoceError):
    """The hub did not answer within the time allowed, or what answered could not show that it is the hub."""


class Busy(SottovoceError):
    """Another process takes part with the same ledger, or serves the same hub."""


class HolderNote(UserWarning):
    """What is worth knowing about private rows, for whoever holds them: it is computed from them and has no noise."""
