"""Paragraphs of a finished run that are ready to paste into a paper: methods and data protection.

They hold only what the run's record says, so they are as true as the record is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..privacy.statement import Statement, Words
from ..util.enumerations import join_with_and
from ..util.typing import Any
from .causes import all_refused_by_noise, cause_of_line
from .coefficients import CONSTANT, assumption_sentences, has_intervals, ratio_of
from .plain import read_finite_number

_NAMED_COLUMNS = 12
"""Most columns that a sentence names; more of them are counted."""


def statistical_methods(plain: dict[str, Any], what: str) -> str:
    """Return the paragraph "Statistical methods" of a run.

    Parameters
    ----------
    plain : dict
        The run's record.
    what : str
        The predicted event or number in words.

    Returns
    -------
    str
        Sentences on the model, its rows, intervals, refused coefficients and evaluation.
    """
    privacy = Statement.from_dict(plain["privacy"])
    lines = plain.get("coefficients") or ()
    said = [_model_sentence(plain, lines, what, privacy.counted)]
    if has_intervals(lines):
        said += [
            "Coefficients were computed from sums to which random noise had been added "
            "(differential privacy).",
            "Standard errors, 95% confidence intervals and two-sided p values account for the "
            "sampling of rows and for this noise.",
            *_refused_sentences(lines),
        ]
    else:
        said.append(
            "The model was trained under differential privacy, with random noise on whatever was "
            "released; no confidence intervals of its coefficients were requested."
        )
    said.append(assumption_sentences(plain))
    if found := plain.get("evaluation"):
        said.append(_evaluation_sentence(found))
    if plain.get("versions"):
        said.append(f"Software: {plain['versions']}.")
    return " ".join(filter(None, said))


def _model_sentence(
    plain: dict[str, Any], lines: Sequence[dict[str, Any]], what: str, counted: str
) -> str:
    """Return the sentence on the outcome, the columns, and the rows that the model is of."""
    modelled = f"The mean of {what} was modelled by linear regression"
    if (ratio := ratio_of(lines)) is not None:
        were = "were" if ratio.verb == "are" else "was"
        modelled = f"The {ratio.noun} of {what} {were} modelled by {ratio.model}"
    elif not lines:
        modelled = f"A linear model of {what} was trained"
    columns = list(dict.fromkeys(line["name"] for line in lines if line["name"] != CONSTANT))
    on_columns = ""
    if len(columns) > _NAMED_COLUMNS:
        on_columns = f" on {len(columns)} columns"
    elif columns:
        on_columns = f" on {join_with_and([str(name) for name in columns])}"
    sizes = [read_finite_number(size) for size in plain["n_train"]]
    rows = f"{sum(sizes):,.0f} {counted}"
    if len(sizes) > 1:
        rows += f" at {len(sizes)} sites"
        if plain.get("between_sites"):
            rows += ", each with a constant of its own"
    return f"{modelled}{on_columns}, with {rows}."


def _refused_sentences(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Return the sentence on coefficients without an estimate; none if all are reported."""
    refused = [line for line in lines if line.get("refused") is not None]
    if not refused:
        return []
    many = f"Of {len(lines)} coefficients {len(refused)} are not reported"
    if all_refused_by_noise(refused):
        return [f"{many}, because the noise would have been most of them."]
    reasons = dict.fromkeys(
        cause.brief for cause in map(cause_of_line, refused) if cause is not None
    )
    if not reasons:
        return [f"{many}."]
    return [f"{many} ({'; '.join(reasons)})."]


def _evaluation_sentence(found: dict[str, Any]) -> str:
    """Return the sentence on how the model was evaluated."""
    rows = read_finite_number(found["rows"])
    counted = Statement.from_dict(found["privacy"]).counted
    return (
        f"The model was evaluated on {rows:,.0f} {counted} that it was not trained on; the 95% "
        "confidence intervals of these measures, too, account for sampling and noise."
    )


def data_protection(privacy: Statement, held_out: Words) -> str:
    """Return the paragraph "Data protection" of a run.

    Parameters
    ----------
    privacy : Statement
        The statement on training rows.
    held_out : list of pairs
        The words of the statement on held-out rows, where it is another.

    Returns
    -------
    str
        The exact statement as a paragraph, and what it takes to be public.

    Guarantee
    ---------
    The guarantee's sentences are the statement's own, word for word.
    """
    said = [_guarantee_in_one_line(privacy.words)]
    if held_out:
        said.append(f"For held-out rows: {_guarantee_in_one_line(held_out)}")
    if privacy.public:
        said.append(f"Taken as public, and not protected: {privacy.public}.")
    return " ".join(said)


def _guarantee_in_one_line(words: Words) -> str:
    """Return the words of a statement without what they say of the page that shows them."""
    sentences = [f"{head}{rest}" for head, rest in words]
    if sentences[0].startswith("epsilon ="):
        sentences[0] = f"Differential privacy with {sentences[0]}"
    return " ".join(" ".join(said.split()) for said in sentences if " described below " not in said)
