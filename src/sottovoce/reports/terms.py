"""Words of privacy statements, explained for readers of a report.

They are those of docs/reference/glossary.toml, which a report cannot lead to: it is one file.
"""

from __future__ import annotations

from ..privacy.statement import Statement

SECURE_SUM = 'secure sum, `trust="sum"`'
SIMULATION = "simulation"

MEANINGS = {
    "epsilon": (
        "The exponent of the guarantee; less is stronger. It belongs to a relation and a unit."
    ),
    "delta": (
        "The addend of the guarantee: any set of outcomes is at most e^epsilon times as "
        "probable, plus delta."
    ),
    "replace-one, zero-out": (
        "What epsilon compares: a row with any other, which promises more; a row with an empty one."
    ),
    "unit": "What is protected: one row of one site, or all rows of a person.",
    "accountant": (
        "The arithmetic that turns all releases of a row into one epsilon and delta: Rényi "
        "(RDP), zero-concentrated (zCDP), privacy loss distributions (PLD), or sums of pure "
        "epsilons."
    ),
    "ledger": "The list of all releases of a site's rows, with their total.",
    SECURE_SUM: "Masked shares of which only the protected sum can be read.",
    SIMULATION: "A run whose noise comes from a seed. It must not be published as private.",
}
"""Terms of the glossary with their meanings, in the order in which they are shown."""


def terms_of(privacy: Statement) -> list[tuple[str, str]]:
    """Return the terms that a statement uses, with their meanings."""
    unused = set()
    if privacy.alone is None:  # it is told of sums alone
        unused.add(SECURE_SUM)
    if not privacy.simulated:
        unused.add(SIMULATION)
    # The setting that a term of the glossary names says nothing to readers of a report.
    return [
        (term.partition(", `")[0], meaning)
        for term, meaning in MEANINGS.items()
        if term not in unused
    ]
