"""The benchmarks run in little and print what they promise; nothing here measures time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


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


def test_startup() -> None:
    """One process a command: seconds are told, and libraries with whoever wanted them."""
    answer = run("startup.py")["commands"]
    assert {"python -c pass", "sottovoce --help", "sottovoce --version", "sottovoce train"} <= set(answer)
    for entry in answer.values():
        assert 0 <= entry["least"] <= entry["median"] and entry["modules"] > 10
        assert sum(library["modules"] for library in entry["libraries"]) == entry["modules"]
    wanted = {
        name: {library["library"]: library["because"] for library in entry["libraries"]}
        for name, entry in answer.items()
    }
    assert wanted["sottovoce train"]["numpy"].startswith("sottovoce.")
    assert wanted["sottovoce --help"]["click"].startswith("sottovoce.cli:")
    assert "numpy" not in wanted["sottovoce --help"] and "numpy" in wanted["python -c 'import numpy'"]


def test_fuzz() -> None:
    """300 inputs of one seed: no exception, no data value, nothing spent on a refusal."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("cryptography")
    answer = run("fuzz.py")
    assert answer["failures"] == [] and answer["inputs"] == 300
    counts = answer["targets"].values()
    assert len(counts) >= 13 and sum(count["inputs"] for count in counts) == 300
    assert sum(count.get("refused", 0) for count in counts) > 150  # the mutations do break something
    assert sum(count.get("accepted", 0) for count in counts) > 10  # and what they are made from is sound


def test_fuzz_sees_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("cryptography")
    monkeypatch.syspath_prepend(str(BENCH))
    import fuzz

    made = fuzz.Fixture(tmp_path, [["4417.0593", "3141.5926", "wquarzberg", "nweidach", "sick"]])
    monkeypatch.setattr(fuzz, "head", lambda path: (7, b"after"))

    def judge(code: int, out: str, err: str, error: str = "", before: object = (7, b"after")) -> list[str]:
        return fuzz.judge(made, "csv", fuzz.Said(code, out, err, error), before)

    assert judge(0, "fine\n", "") == [] and judge(2, "", "error: x: is odd; mend it\n") == []
    assert judge(2, "", "Usage: x\n\nError: No such option\n") == []
    assert judge(0, "", "", "Traceback ...\nValueError: 1") == ["exception: ValueError: 1"]
    assert judge(1, "", "error: x\n") == ["exit code 1"]
    assert judge(2, "", "error: x\nerror: y\n") == ["2 lines of error"] == judge(2, "", "error: x\nwarning\n")
    assert judge(0, "", "RuntimeWarning\n") == ["speaks on standard error though all is well"]
    assert judge(2, "", "error: wquarzberg, 4417.0593\n") == ["shows 2 values of the rows"]
    assert judge(2, "", "error: \x1b[31m\n") == ["control characters"]
    assert judge(2, "{}", "error: x\n") == ["an answer beside an error"]
    assert judge(2, "", "error: x\n", before=(6, b"before")) == ["spent though it refused"]


def test_fuzz_repeats_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import _mutations
    import numpy as np

    plain = {"a": [1, 2.5, "x"], "b": {"c": None, "d": [True]}}
    data = json.dumps(plain).encode()
    for seed in range(200):
        values, texts = [], []
        for _ in range(2):
            rng = np.random.default_rng([3, seed])
            values.append(repr(_mutations.mutate(rng, plain)))
            texts.append(_mutations.scramble(rng, data, text=True))
        assert values[0] == values[1] and texts[0] == texts[1]
    assert plain == json.loads(data)


def test_fill() -> None:
    """Every change to the schema is tried, and a typical row is as long as the schema says where it says so."""
    cells = run("fill.py")["cells"]
    names = {cell["rows"] for cell in cells}
    assert {"bounds only", "`scale`", "`unit`", "`typical`", "`intercept = 0.5`"} < names
    assert len(cells) == len(names) * len({cell["method"] for cell in cells})
    for cell in cells:
        assert 0 < cell["norm"] <= 1 and 0 <= cell["accuracy"] <= 100 and cell["sd"] >= 0
        if "`typical`" in cell["rows"]:
            assert abs(cell["norm"] - cell["expected_norm"]) < 0.1


def test_start() -> None:
    """Every line has its four accuracies; a start changes no price, which the benchmark checks itself."""
    command = [sys.executable, str(BENCH / "start.py"), "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)
    assert len(lines) == 12 and {line["epsilon"] for line in lines} == {0.1, 0.5}
    for line in lines:
        assert all(0 <= line[name][0] <= 100 for name in ("zero", "from start", "stiff", "public"))
