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


def test_it_is_loaded_when_something_of_it_is_used(library: str) -> None:
    late = Later(library)
    assert library not in sys.modules
    assert late.value == [1, 2] and library in sys.modules
    assert late.value is sys.modules[library].value
    with pytest.raises(AttributeError):
        late.other  # noqa: B018


def test_looking_through_modules_loads_nothing(library: str) -> None:
    late = Later(library)
    assert not hasattr(late, "__wrapped__") and not hasattr(late, "__file__")
    assert library not in sys.modules


def test_it_can_be_loaded_before_it_is_used(library: str) -> None:
    assert Later(library).load() is sys.modules[library]
    with pytest.raises(ImportError):
        Later("no_such_library_anywhere").load()
    with pytest.raises(ImportError):
        Later("no_such_library_anywhere").value  # noqa: B018


def test_noise_of_the_operating_system_has_its_library_before_anything_is_charged() -> None:
    code = (
        "import sys; from sottovoce.privacy.noise import SystemNoise; print('scipy.special' in sys.modules); "
        "SystemNoise(); print('scipy.special' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
