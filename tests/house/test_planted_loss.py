"""A loss is registered in one line, and everything that takes losses takes it."""

from __future__ import annotations

from pathlib import Path

from planting import planted_apart

PLANTED = '''
@dataclass(frozen=True)
class Slow(Loss):
    """``2 log(1 + exp(-z/2))``: slope -p with p = 1/(1 + exp(z/2)), bend p (1 - p) / 2 <= 1/8."""

    name: ClassVar[str] = "slow"
    about: ClassVar[str] = "the logistic loss at half its pace"
    monotone: ClassVar[bool] = True
    spec: ClassVar[str] = "slow"
    curvature_bound: ClassVar[float] = 0.125

    def value(self, z: Array) -> Array:
        return 2.0 * Logistic().value(z / 2.0)

    def derivative(self, z: Array) -> Array:
        return Logistic().derivative(z / 2.0)

    def curvature(self, z: Array) -> Array:
        return Logistic().curvature(z / 2.0) / 2.0


REGISTRY: dict'''
USES = """
import json
from click.testing import CliRunner
from sottovoce import ConsensusClassifier, RunConfig
from sottovoce.cli import cli
from sottovoce.data.rows import Rows
from sottovoce.problem.losses import make_loss
from sottovoce.runs.simulate import simulate
import numpy as np

X = np.eye(4)[np.arange(40) % 4] / 2
y = np.where(np.arange(40) % 2, 1.0, -1.0)
run = simulate(RunConfig(method="objective", rounds=1, loss="slow", rho=0.1), Rows.build_from_parts([(X, y)] * 3))
try:
    make_loss("fast")
except ValueError as error:
    refused = str(error)
asked = (["train", "--set", "help"], ["plan", "--set", "help"], ["compare", "--help"])
helps = [" ".join(CliRunner().invoke(cli, words).output.split()) for words in asked]
said = CliRunner().invoke(cli, ["plan", "--method", "mr_admm", "--pure", "--set", "loss=slow", "--json"]).output
print(json.dumps({
    "spent": round(run.privacy["epsilon"], 9),
    "sharper": [row["logistic"] for row in run.ledger],
    "refused": "'logistic' or 'slow' or 'huber:H'" in refused,
    "helps": ["logistic, slow, huber:H" in text for text in helps],
    "plan": round(json.loads(said)["privacy"]["epsilon"], 6),
    "auto": RunConfig(method="auto", loss="slow").method,
    "estimator": ConsensusClassifier("mr_admm", loss="slow", n_sites=2, random_state=0).fit(X, y).coef_.shape,
    "documented": "the logistic loss at half its pace" in " ".join(ConsensusClassifier.__doc__.split()),
}))
"""


def test_a_planted_loss_is_everywhere_and_one_file_was_touched(tmp_path: Path) -> None:
    edits = {"\nREGISTRY: dict": PLANTED, "in (Logistic, ": "in (Logistic, Slow, "}
    assert planted_apart(tmp_path, "problem/losses.py", edits, USES) == {
        "spent": 1.0,
        "sharper": [False],
        "refused": True,
        "helps": [True] * 3,
        "plan": 1.0,
        "auto": "mr_admm",
        "estimator": [1, 4],
        "documented": True,
    }
