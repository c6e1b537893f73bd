"""A script of the repository, run here as an interpreter of its own would run it.

Such an interpreter needs two to three processor seconds to import scikit-learn, SciPy and
matplotlib, which are here already.  Whether a script also runs as a process of its own, one test of
each kind still asks.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from unittest import mock


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """The modules beside a script can be imported, and are forgotten afterwards, as are those of
    another script.
    """
    before = set(sys.modules)
    with mock.patch.object(sys, "path", [str(folder), *sys.path]):
        try:
            yield
        finally:
            for name in set(sys.modules) - before:
                file = getattr(sys.modules[name], "__file__", None)
                if file is not None and Path(file).parent == folder:
                    del sys.modules[name]


@contextlib.contextmanager
def _looks() -> Iterator[None]:
    """Pictures look as they do in a new process, and what a script sets about them ends with it."""
    if find_spec("matplotlib") is None:
        yield
        return
    import matplotlib.pyplot as plt

    plt.switch_backend("svg")
    with plt.rc_context():
        plt.rcdefaults()
        yield
    plt.close("all")


def ran(script: Path, *words: object, into: Path, environment: Mapping[str, str] = {}) -> str:
    """What `script` prints when it runs in the folder `into`, with `words` behind its name.

    Its variables of the environment, its modules, its filters of warnings and its look of pictures
    end with it.
    """
    said = io.StringIO()
    with (
        _beside(script.parent),
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "argv", [str(script), *map(str, words)]),
        contextlib.chdir(into),
        contextlib.redirect_stdout(said),
        warnings.catch_warnings(),
        _looks(),
    ):
        warnings.simplefilter("default")
        runpy.run_path(str(script), run_name="__main__")
    return said.getvalue()
