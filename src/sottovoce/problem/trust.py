"""Trust: who may see what, and against whom a privacy guarantee holds.

The field calls these models local differential privacy of sites ("nobody"), secure aggregation
("sum") and central differential privacy ("curator", "aggregator").

================  ================================================================================
kind              what leaves a site
================  ================================================================================
``"nobody"``      what differential privacy protects: everybody may see it
``"sum"``         a share that nobody can read alone; the sum over sites is protected
``"curator"``     the rows themselves, to one party that is trusted; what it releases is protected
``"aggregator"``  an exact model, to one party that is trusted; what it releases is protected
================  ================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, get_args

from ..errors import InvalidInput
from ..util.codec import Unreadable, record_from_plain, record_to_plain
from ..util.typing import Any

Kind = Literal["nobody", "sum", "curator", "aggregator"]
RELATIONS = {"replace-one": 2.0, "zero-out": 1.0}
"""For each neighbouring relation, the number of gradients that differ between two tables.

Replacing a row removes one gradient and adds another; zeroing it out removes one.  The sensitivity
of a sum of gradients is this number times the largest norm of one.
"""

_SEES = {
    "nobody": "every message of every round and all of this configuration",
    "sum": "every message of every round and all of this configuration",
    "curator": "all that the curator releases and all of this configuration",
    "aggregator": "all that the aggregator releases and all of this configuration",
}
_EXCEPT = {
    "curator": "the curator, who holds all rows",
    "aggregator": "the aggregator, who sees every site's exact model",
}


@dataclass(frozen=True)
class Trust:
    """A trust model: whom a person trusts with their row, and what the adversary sees.

    Parameters
    ----------
    kind : {"nobody", "sum", "curator", "aggregator"}
        See the module.
    honest : int
        For sums: the least number of honest sites in each, at least 2, because the share of a
        single one could be computed from the sum.  0 for other kinds.
    colluding : int
        For sums: how many other sites may tell each other and the adversary all they know, at least
        1, because every site knows its own share.  0 for other kinds.
    sees : str
        What the adversary sees, such as "the model"; by default all that a run of this kind sends.
    """

    kind: Kind
    honest: int = 0
    colluding: int = 0
    sees: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InvalidInput(
                "trust", self.kind, f"must be one of {', '.join(get_args(Kind))}", "use 'nobody'"
            )
        summed = self.opens_sums
        for name, value, least in (("honest", self.honest, 2), ("colluding", self.colluding, 1)):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if summed and not (whole and value >= least):
                raise InvalidInput(
                    name,
                    value,
                    f"must be a whole number of sites, at least {least}",
                    f"use {least}",
                )
            if not summed and (not whole or value != 0):
                raise InvalidInput(
                    name, value, "is only for trust in sums", "leave it out, or use kind='sum'"
                )
        if not isinstance(self.sees, str):
            raise InvalidInput("sees", None, "must be a text", "leave it out")
        if not self.sees:
            object.__setattr__(self, "sees", _SEES[self.kind])

    @classmethod
    def in_sum(cls, honest: int, colluding: int) -> Self:
        """Trust in sums over sites."""
        return cls("sum", honest, colluding)

    @property
    def adversary(self) -> str:
        """The adversary of the guarantee, as a text that follows "against whoever ..."."""
        if not self.opens_sums:
            return f"sees {self.sees}"
        these = (
            "one of the sites knows"
            if self.colluding == 1
            else f"any {self.colluding} of the sites know"
        )
        return (
            f"sees {self.sees}, and all that {these}, but cannot break the encryption of single "
            "shares, while at least "
            f"{self.honest} other sites of every sum are honest"
        )

    @property
    def excepted(self) -> str | None:
        """The trusted party, against whom a guarantee does not hold; None if there is none."""
        return _EXCEPT.get(self.kind)

    @property
    def opens_sums(self) -> bool:
        """Whether an answer is a secure sum over sites, in which nobody sees a single share."""
        return self.kind == "sum"

    @property
    def answers_of_all(self) -> bool:
        """Whether one answer, with one noise, covers the rows of all sites together."""
        return self.opens_sums or self.pools_rows

    @property
    def pools_rows(self) -> bool:
        """Whether one party holds the rows of all sites."""
        return self.kind == "curator"

    @property
    def between_sites(self) -> bool:
        """Whether separate sites may run it: no party receives rows or exact models of others."""
        return self.kind in ("nobody", "sum")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(record_to_plain(self))

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Read what :meth:`to_dict` wrote; InvalidInput for anything else."""
        try:
            return record_from_plain(cls, plain)
        except Unreadable as error:
            rule = f"was not written by this version: {error}"
            raise InvalidInput("trust", None, rule, "use a file that this version wrote") from None


NOBODY = Trust("nobody")
"""All that leaves a site is protected."""
CURATOR = Trust("curator")
"""One party holds all rows."""
