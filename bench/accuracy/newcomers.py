"""What estimators say and do by default on tables as people have them: the table of
docs/reference/estimator.md.

``python bench/accuracy/newcomers.py [--draws N] [--cases 1,2] [--quick] [--json]``

Breast cancer and digits come with scikit-learn; "text" is made up: 2,000 documents of 40 words of
two topics, hashed to 4,096 columns.  A quarter of the rows is held out; five sites, epsilon 1 and
delta 1e-5 unless it says otherwise.  Every draw has a split, a deal and noise of its own.  Lines
have the accuracy on held-out rows and that of their commonest class (means over draws, with the
standard deviation), processor seconds of the slowest fit, and the warnings.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sottovoce import ConsensusClassifier


def documents(n: int = 2000, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Texts of two topics that share most of their words, with frequencies as in Zipf's law."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    shares = 1.0 / np.arange(1.0, 1001.0)
    topic = [rng.permuted(np.r_[np.full(30, 6.0), np.ones(970)]) * shares for _ in range(2)]
    words = [rng.choice(1000, size=40, p=topic[k] / topic[k].sum()) for k in y]
    return [" ".join(f"word{w}" for w in document) for document in words], y


def cases(seed: int) -> dict[str, tuple[Any, Any, Any]]:
    """A name, rows, labels and a model of each case."""
    cancer, digits, (texts, topic) = load_breast_cancer(), load_digits(), documents()
    kept = {"random_state": seed}
    hashed = HashingVectorizer(n_features=2**12)
    return {
        "unscaled columns": (cancer.data, cancer.target, ConsensusClassifier(**kept)),
        "behind a StandardScaler": (
            cancer.data,
            cancer.target,
            make_pipeline(StandardScaler(), ConsensusClassifier(data_norm=6.0, **kept)),
        ),
        "sparse text": (texts, topic, make_pipeline(hashed, ConsensusClassifier(**kept))),
        "ten classes, each against the rest": (
            digits.data,
            digits.target,
            ConsensusClassifier(loss="logistic", data_norm=60.0, **kept),
        ),
        "ten classes": (digits.data, digits.target, ConsensusClassifier(data_norm=60.0, **kept)),
        "ten classes, epsilon 10, sums": (
            digits.data,
            digits.target,
            ConsensusClassifier(data_norm=60.0, epsilon=10.0, trust="sum", **kept),
        ),
    }


def fitted(name: str, seed: int) -> dict[str, Any]:
    """One draw of a case."""
    X, y, model = cases(seed)[name]
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=seed)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        started = time.process_time()
        model.fit(X_train, y_train)
        seconds = time.process_time() - started
        accuracy = float(np.mean(model.predict(X_test) == y_test))
    said = [f"{type(w.message).__name__}: {w.message}" for w in seen]
    commonest = float(np.unique(y_test, return_counts=True)[1].max() / len(y_test))
    return {"accuracy": accuracy, "commonest": commonest, "seconds": seconds, "said": said}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(cases(0))
    parser.add_argument("--draws", type=int, default=3, help="of split, deal and noise")
    parser.add_argument("--cases", help=f"some of 1 to {len(names)}, between commas")
    parser.add_argument("--quick", action="store_true", help="the first three cases, one draw")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    chosen = (
        [names[int(k) - 1] for k in given.cases.split(",")]
        if given.cases
        else names[: 3 if given.quick else None]
    )
    draws = range(1 if given.quick else given.draws)
    lines = [{"case": name, "draws": [fitted(name, seed) for seed in draws]} for name in chosen]
    if given.json:
        print(json.dumps({"cases": lines}))
        return
    table = Table(*("case", "accuracy %", "commonest %", "seconds", "said"))
    for one in lines:
        found = {
            key: np.array([draw[key] for draw in one["draws"]])
            for key in ("accuracy", "commonest", "seconds")
        }
        spread = f" ± {100 * found['accuracy'].std(ddof=1):.1f}" if len(draws) > 1 else ""
        numbers = (
            f"{100 * found['accuracy'].mean():.1f}{spread}",
            f"{100 * found['commonest'].mean():.1f}",
        )
        said = dict.fromkeys(line for draw in one["draws"] for line in draw["said"])
        table.add_row(
            one["case"], *numbers, f"{found['seconds'].max():.1f}", "\n".join(said) or "-"
        )
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
