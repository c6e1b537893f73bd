"""The benchmarks run in little and print what they promise; nothing here measures time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parent.parent / "bench"


def run(name: str) -> dict[str, Any]:
    command = [sys.executable, str(BENCH / name), "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_roofline() -> None:
    answer = run("roofline.py")
    assert answer["assumptions"]
    for load in answer["workloads"]:
        assert load["seconds"] > 0 and load["operations"] > 0 and load["bytes"] > 0
        assert load["seconds"] >= sum(load["parts"].values()) * (1 - 1e-12)
        assert all(rate > 0 for rate in load["rates"].values())


def test_compare() -> None:
    answer = run("compare.py")
    ratios = {"ratio_scipy", "ratio_scipy_single", "ratio_newton", "ratio_floor", "ratio_floor_study"}
    slopes = {"slope_rows", "slope_replicates", "slope_rounds"}
    figures = {"seconds_study", "seconds_1000_nodes", "memory_mib_1000_nodes", "difference"}
    assert ratios | slopes | figures <= set(answer)
    assert all(answer[name] > 0 for name in ratios)
    # Same noise, same recurrence, same certificate: the same models.
    assert answer["certificate_scipy"] <= answer["certificate"]
    assert answer["certificate_newton"] <= answer["certificate"]
    largest = max(answer["difference"], answer["difference_newton"], answer["difference_batch"])
    assert largest <= 1e-5 * max(1.0, answer["largest_weight"])
