"""How straight do two values go through the code?  ``python bench/flows.py [--steps]``

Two fits of ``ConsensusClassifier`` are traced.  *epsilon* is followed from ``fit`` to the first
charge of a training round in the ledger: a function holds it if an argument is the number, or an
object of the library in which it stands.  *row* is followed from ``fit`` to the first exchange with
neighbours: a function holds it if an argument has an array as long as the table.

A *stay* is a module in which functions that hold the value are called one after the other; a
*return* is a stay in a module that the value had left; a *climb* is a step to a module of a higher
layer of scripts/check_imports.py.  Properties, constructors, and what every module uses (errors,
util, losses, the readers of values and of frames) are not counted; the solvers are one module, and
the rehearsal before a fit has no row.  ``--steps`` prints each stay with its functions.
"""

from __future__ import annotations

import argparse
import ast
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import sottovoce
from sottovoce import ConsensusClassifier

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from check_imports import LAYER

PACKAGE = Path(sottovoce.__file__).parent
EPSILON = 1.2345  # no other number of a run is equal to it
N_ROWS = 300
EVERYWHERE = ("errors.py", "util/", "data/values", "data/frames", "problem/losses")
REHEARSAL = ("runs/auto_",)  # goes through synthetic rows, in arrays as long as the table
DEPTH = 5  # of objects in objects

Holds = Callable[[Any], bool]


@dataclass
class Stay:
    """Functions of one module, called one after the other with the value."""

    module: str
    functions: list[str] = field(default_factory=list)


@dataclass
class Walk:
    """The way of one value through the modules.

    Parameters
    ----------
    holds : callable
        Whether a plain value, a number or an array, is the one that is followed.
    is_end : callable
        Whether the call of a function is where the way ends.
    properties : set of (file, name)
        Functions that are called like attributes.
    ignored : tuple of str
        Beginnings of files through which this value does not go.
    """

    holds: Holds
    is_end: Callable[[str, FrameType], bool]
    properties: set[tuple[str, str]]
    ignored: tuple[str, ...] = ()
    stays: list[Stay] = field(default_factory=list)
    ended: bool = False

    def observe(self, frame: FrameType, event: str, _argument: object) -> None:
        """Take one event of the interpreter; only calls count."""
        path = Path(frame.f_code.co_filename)
        if self.ended or event != "call" or PACKAGE not in path.parents:
            return
        module, name = path.relative_to(PACKAGE).as_posix(), frame.f_code.co_name
        if module.startswith((*EVERYWHERE, *self.ignored)) or name.startswith(("<", "__")):
            return
        if module.startswith("solvers/"):
            module = "solvers"
        if (module, name) not in self.properties and any(map(self._reaches, arguments_of(frame))):
            if not self.stays or self.stays[-1].module != module:
                self.stays.append(Stay(module))
            if name not in self.stays[-1].functions:
                self.stays[-1].functions.append(name)
        self.ended = self.is_end(module, frame)

    def _reaches(self, value: object, depth: int = 0) -> bool:
        """Whether `value` is what is followed, or holds it somewhere inside."""
        if isinstance(value, float | np.ndarray):
            return self.holds(value)
        if depth > DEPTH:
            return False
        if isinstance(value, Mapping):
            inside = list(value.values())
        elif isinstance(value, list | tuple):
            inside = list(value)
        elif type(value).__module__.startswith("sottovoce"):
            inside = list(getattr(value, "__dict__", {}).values())
        else:
            return False
        return any(self._reaches(one, depth + 1) for one in inside)

    def count_returns(self) -> int:
        """Return how many stays are in a module that the value had been in before."""
        return len(self.stays) - len({stay.module for stay in self.stays})

    def count_climbs(self) -> int:
        """Return how many stays are in a higher layer than the stay before."""
        heights = [layer_of(stay.module) for stay in self.stays]
        return sum(after > before for before, after in pairwise(heights))


def arguments_of(frame: FrameType) -> list[object]:
    """Return the arguments of a call that begins."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [frame.f_locals.get(name) for name in names]


def layer_of(module: str) -> int:
    """Return the height of a module's room: of its file, or of the nearest folder that is one."""
    parts = module.removesuffix(".py").split("/")
    for length in range(len(parts), 0, -1):
        room = ".".join(parts[:length])
        if room in LAYER:
            return LAYER[room]
    return len(set(LAYER.values()))  # the package's own __init__ is above all rooms


def properties_of_package() -> set[tuple[str, str]]:
    """Return the file and the name of every property."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                "property" in ast.unparse(one) for one in node.decorator_list
            ):
                found.add((path.relative_to(PACKAGE).as_posix(), node.name))
    return found


def is_epsilon(value: Any) -> bool:
    """Whether a number is epsilon, or a short array has it."""
    if isinstance(value, float):
        return value == EPSILON
    return value.dtype == float and value.size < 20 and bool(np.any(value == EPSILON))


def is_table(value: Any) -> bool:
    """Whether an array is as long as the table."""
    return isinstance(value, np.ndarray) and value.size >= N_ROWS


def charges_a_round(module: str, frame: FrameType) -> bool:
    """Whether a ledger in memory is told of a release of the row guard."""
    if module != "ledger/memory.py" or frame.f_code.co_name != "record_event":
        return False
    caller = frame.f_back
    while caller is not None:
        if caller.f_code.co_name == "_charge_and_draw":
            return True
        caller = caller.f_back
    return False


def mixes_with_neighbours(module: str, frame: FrameType) -> bool:
    """Whether released vectors are summed over neighbours."""
    return module == "network/net.py" and frame.f_code.co_name == "neighbour_sum"


def walk_fit(model: ConsensusClassifier, walk: Walk) -> Walk:
    """Fit `model` to random rows, and let `walk` see every call."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 2))
    y = (X[:, 0] > 0).astype(int)
    sys.setprofile(walk.observe)
    try:
        model.fit(X, y)
    finally:
        sys.setprofile(None)
    if not walk.ended:
        raise RuntimeError("the value never came to the end of its way: was a function renamed?")
    return walk


def main() -> None:
    """Walk both flows and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", action="store_true", help="print each stay with its functions")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # 300 rows are near guessing, of course
    settings: dict[str, Any] = {
        "epsilon": EPSILON,
        "rounds": 3,
        "data_norm": 3.0,
        "classes": [0, 1],
        "random_state": 0,
    }
    properties = properties_of_package()
    # The first fit imports what is loaded when it is needed: that is not part of the way.
    walks = {
        "epsilon, from `fit` to the ledger's row": walk_fit(
            ConsensusClassifier(method="momentum", **settings),
            Walk(is_epsilon, charges_a_round, properties),
        ),
        "a table's row, to a released vector": walk_fit(
            ConsensusClassifier(method="mr_admm", delta=None, **settings),
            Walk(is_table, mixes_with_neighbours, properties, ignored=REHEARSAL),
        ),
    }
    print("| flow | stays | modules | returns | climbs |\n|---|---|---|---|---|")
    for name, walk in walks.items():
        modules = len({stay.module for stay in walk.stays})
        print(
            f"| {name} | {len(walk.stays)} | {modules} | {walk.count_returns()} |"
            f" {walk.count_climbs()} |"
        )
    if asked.steps:
        for name, walk in walks.items():
            print(f"\n{name}")
            for stay in walk.stays:
                print(f"  {stay.module}: {', '.join(stay.functions)}")


if __name__ == "__main__":
    main()
