"""Libraries that are loaded at their first use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sottovoce.util.later import Later


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "late_library.py").write_text("value = [1, 2]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "late_library", raising=False)
    return "late_library"


def test_module_is_imported_at_first_attribute_access(library: str) -> None:
    late = Later(library)
    assert library not in sys.modules
    assert late.value == [1, 2] and library in sys.modules
    assert late.value is sys.modules[library].value
    with pytest.raises(AttributeError):
        late.other  # noqa: B018


def test_inspecting_sys_modules_imports_nothing(library: str) -> None:
    late = Later(library)
    assert not hasattr(late, "__wrapped__") and not hasattr(late, "__file__")
    assert library not in sys.modules


def test_module_can_be_imported_explicitly_in_advance(library: str) -> None:
    assert Later(library).import_module_now() is sys.modules[library]
    with pytest.raises(ImportError):
        Later("no_such_library_anywhere").import_module_now()
    with pytest.raises(ImportError):
        Later("no_such_library_anywhere").value  # noqa: B018


@pytest.mark.parametrize(("method", "needed"), [("dvp", True), ("momentum", False)])
def test_noise_inside_an_objective_has_its_library_before_anything_is_charged(
    method: str, needed: bool
) -> None:
    code = f"""
import sys
import numpy as np
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.noise import SystemNoise
from sottovoce import RunConfig
from sottovoce.runs.simulate import simulate
from sottovoce.data.rows import Rows

told = []
once = Ledger.charge_once
def watched(self, event, draw):
    told.append("scipy.special" in sys.modules)
    return once(self, event, draw)
Ledger.charge_once = watched
X = np.random.default_rng(0).uniform(-0.1, 0.1, (2, 40, 3))
rows = Rows.build_from_parts([(x, np.where(x[:, 0] > 0, 1.0, -1.0)) for x in X])
options = dict(epsilon=5.0, rounds=1, seed=None, graph="complete")
options |= dict(accountant="pure") if {needed} else dict(accountant="zcdp", delta=1e-5)
SystemNoise()
assert "scipy.special" not in sys.modules
simulate(RunConfig("{method}", **options), rows)
assert told and set(told) == {{{needed}}}, told
"""
    subprocess.run([sys.executable, "-c", code], check=True)
