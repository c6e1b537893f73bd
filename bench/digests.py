"""Digests of every method on fixed seeds: written before a change that must change no result,
compared after it.

``python bench/digests.py --write FILE`` and later ``python bench/digests.py --against FILE`` (exit
code 1 on a difference).  Digests hold for one machine and one set of versions: the last bits of
products are a library's choice. Rows are not centred, as they were not when digests began.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce import ConsensusClassifier, RunConfig, TrainConfig, train
from sottovoce.algorithms import REGISTRY
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.runs.simulate import simulate

SITES, ROWS, FEATURES, CLASSES = 4, 150, 6, 3


@dataclass(frozen=True)
class Case:
    name: str
    config: RunConfig
    classes: bool = False


def cases() -> list[Case]:
    """Every method in every form, without a delta and with one, without noise, with both laws,
    and with classes.
    """
    found = []
    for name, cls in REGISTRY.items():
        for form in cls.forms:
            for label, more in (
                ("pure", {"epsilon": 2.0}),
                ("delta", {"epsilon": 2.0, "delta": 1e-5}),
                ("gaussian", {"epsilon": 2.0, "delta": 1e-5, "law": "gaussian"}),
                (
                    "huber",
                    {"epsilon": 2.0, "delta": 1e-5, "loss": "huber:0.5", "relation": "zero-out"},
                ),
                ("exact", {"epsilon": math.inf}),
                ("softmax", {"epsilon": 2.0, "delta": 1e-5, "loss": f"softmax:{CLASSES}"}),
            ):
                options = {
                    "method": name,
                    "form": form,
                    "rounds": 4,
                    "graph": "ring",
                    "replicates": 2,
                } | more
                try:
                    found.append(
                        Case(
                            f"{name} {form} {label}",
                            RunConfig.from_dict(options),
                            label == "softmax",
                        )
                    )
                except InvalidInput:  # this method has no such form
                    continue
    return found


def rows(classes: bool) -> Rows:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(SITES, ROWS, FEATURES))
    X /= 1.001 * np.maximum(1.0, np.linalg.norm(X, axis=-1, keepdims=True))
    score = X @ rng.normal(size=(FEATURES, CLASSES)) + 0.3 * rng.normal(size=(SITES, ROWS, CLASSES))
    if classes:
        return Rows.build_with_classes(list(zip(X, score.argmax(axis=-1), strict=True)), CLASSES)
    return Rows.build_from_parts(list(zip(X, np.where(score[..., 0] > 0, 1.0, -1.0), strict=True)))


def digest(*parts: Any) -> str:
    whole = hashlib.blake2b(digest_size=12)
    for part in parts:
        whole.update(
            part.tobytes()
            if isinstance(part, np.ndarray)
            else json.dumps(part, sort_keys=True).encode()
        )
    return whole.hexdigest()


def run_all() -> dict[str, str]:
    found: dict[str, str] = {}
    two, many = rows(False), rows(True)
    for case in cases():
        try:
            result = simulate(case.config, many if case.classes else two)
        except InvalidInput as error:
            found[case.name] = f"refused: {error.field}"
            continue
        found[case.name] = digest(result.models, result.ledger, repr(result.privacy["epsilon"]))
    for label, config in (
        ("train default", TrainConfig()),
        ("train delta", TrainConfig(run=RunConfig(method="prox_admm", delta=1e-5))),
        ("train label", TrainConfig(partition="label")),
    ):
        report = train(replace(config, centre=False))
        found[label] = digest(report.result.models, report.result.ledger, report.test_errors)
    X = np.concatenate([part[0] for part in _parts(two)])
    y = np.concatenate([part[1] for part in _parts(two)])
    for label, options in (
        ("estimator", {"method": "mr_admm", "delta": None}),
        ("estimator delta", {"method": "prox_admm"}),
    ):
        model = ConsensusClassifier(random_state=3, knobs={"centre": False}, **options).fit(X, y)
        found[label] = digest(model.coef_, model.intercept_, model.site_coef_)
    return found


def _parts(whole: Rows) -> list[tuple[np.ndarray, np.ndarray]]:
    signed = np.asarray(whole.signed)
    return [(own, np.where(own[:, 0] > 0, 1.0, -1.0)) for own in signed]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--against", type=Path, metavar="FILE")
    options = parser.parse_args()
    found = run_all()
    if options.write:
        options.write.write_text(json.dumps(found, indent=1) + "\n")
    if not options.against:
        print("\n".join(f"{value}  {name}" for name, value in found.items()))
        return 0
    before = json.loads(options.against.read_text())
    changed = sorted(
        name for name in before.keys() | found.keys() if before.get(name) != found.get(name)
    )
    print(
        "\n".join(f"changed: {name}: {before.get(name)} -> {found.get(name)}" for name in changed)
    )
    print(f"{len(found)} results, {len(changed)} changed")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
