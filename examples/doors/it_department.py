"""A hub and three sites as processes on this machine: what runs, what lies on disk, and what the
ledger says.
"""

import json
import subprocess
import sys
from pathlib import Path


def sottovoce(*words: str) -> str:
    """What the command of that name prints."""
    command = [sys.executable, "-c", "from sottovoce.cli import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# 1. Hub and sites with keys and certificates made on the spot; in a real run each is at another
# organisation.
told = json.loads(
    sottovoce("demo", "--sites", "3", "--rounds", "5", "--keep", "rehearsal", "--json")
)
print(f"{told['sites']} sites, {told['rounds']} rounds: {told['stopped']}")
print(f"difference to the same run in one process: {told['difference']:g}")

# 2. What a site keeps, and what the hub keeps: it has no rows.
for folder in ("rehearsal/north", "rehearsal/hub"):
    names = {path.name for path in Path(folder).iterdir()}
    kinds = {
        "rows": ".csv",
        "ledger": ".ledger",
        "secret keys": ".key",
        "all messages": ".log",
        "report": ".html",
    }
    held = [kind for kind, ending in kinds.items() if any(name.endswith(ending) for name in names)]
    print(f"{folder}: {', '.join(held)}")

# 3. The ledger of a site: what was spent, and whether anybody changed it.
book = "rehearsal/north/north.ledger"
entry = json.loads(sottovoce("ledger", "show", book, "--json"))
print(
    f"budget {entry['epsilon'][0]:g}, spent {entry['spent'][0]:.2f}, {entry['releases']} releases"
)
print(sottovoce("ledger", "verify", book).split(";")[0])

# 4. The picture: how much lies where.
import matplotlib.pyplot as plt  # noqa: E402

inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
plt.rcParams |= dict.fromkeys(inks, "#7f868e")
kept = {
    "rows, at the site": "north/rows.csv",
    "ledger, at the site": book.removeprefix("rehearsal/"),
    "all messages, at the hub": "hub/hub.log",
    "the model": "hub/hub.npz",
}
sizes = [Path("rehearsal", name).stat().st_size / 1000 for name in kept.values()]
figure, axes = plt.subplots(figsize=(5.2, 2.4), layout="constrained")
axes.barh(range(4), sizes, 0.6, color=["#dd8a1f", "#1fa187", "#3a8fd0", "#3a8fd0"])
axes.set_yticks(range(4), kept)
axes.invert_yaxis()
axes.set(xscale="log", xlabel="kilobytes")
figure.savefig("it_department.svg", transparent=True)
