# %% [markdown]
# # One paper from end to end: recycled ADMM (002)
#
# Zhang, Khalili and Liu, *Recycled ADMM: Improving the Privacy and Accuracy of Distributed Algorithms* (2020), from its
# claim on privacy over a run of its algorithm to its Figure 5 and the verdicts on it. It takes some seconds: the figure
# is drawn from fewer rows, rounds and replicates than `sottovoce study 002-fig5` uses, and its verdicts are no results.
# "Reproduced" is about the order of curves and not about their heights.

# %%
import math
import tempfile
from dataclasses import replace

import matplotlib.pyplot as plt

from sottovoce.runs.config import RunConfig
from sottovoce.runs.prepare import prepare
from sottovoce.runs.simulate import simulate
from sottovoce_papers import claims
from sottovoce_papers.studies import spec, verdicts
from sottovoce_papers.studies.run import run
from sottovoce_papers.studies.tables import deal

# %% [markdown]
# ## The claim
#
# Theorem 2: half of the rounds are computed from what was sent before, so only the odd ones cost anything. Beside the
# printed total stands the least that is proved here of the same noise, and where the proof is.

# %%
claim = next(one for one in claims.table() if one.method.startswith("R-ADMM"))
print(f"{claim.paper}: {claim.says}")
print(f"claimed {claim.claimed:.3f}, proved {claim.proved:.3f}: {claim.verdict} ({claim.proof})")

# %% [markdown]
# ## The algorithm to the letter
#
# Both forms run with the noise alpha = 1 of the paper, on 4,000 rows of Adult at five sites. What its Theorem 2 claims
# of the listing stands beside what is proved. All noise follows from a seed: a simulation, and no release.

# %%
dealt = deal({"data": "adult-002", "nodes": 5, "limit": 4000})
print(f"always the commoner class errs on {dealt.commoner:.3f} of the test rows")
for form in ("printed", "corrected"):
    config = RunConfig.from_dict(
        {
            "method": "r_admm",
            "form": form,
            "noise": 1.0,
            "epsilon": math.inf,
            "C": 1750.0,
            "rho": 0.22,
            "eta": 1.0,
            "gamma": 0.5,
            "rounds": 16,
            "replicates": 5,
        }
    )
    price = prepare(config, dealt.rows.n, dealt.rows.d).plan_ledger()
    error = dealt.errors(simulate(config, dealt.rows).consensus).mean()
    claimed = "claims nothing" if price.claimed() is None else f"claims {price.claimed():.2f}"
    print(f"{form:9}  {claimed:14}  proved epsilon {price.total():.2f}  test error {error:.3f}")

# %% [markdown]
# ## Figure 5 in little
#
# A study is a file: its cells, figures and claims. Here it has fewer rows and rounds; the methods spend one total.

# %%
study = spec.load("002-fig5").quickly()
study = replace(study, fixed={**study.fixed, "limit": 4000})
with tempfile.TemporaryDirectory() as folder:
    done = run(study, folder, jobs=1)
last = [row for row in done.rows if row["round"] == max(row["round"] for row in done.rows)]
print(f"{done.cells} cells, {len(done.rows)} rows; after the last round, as printed:")
methods = list(dict.fromkeys(row["method"] for row in last if row["basis"] == "printed"))
for method in methods:
    losses = [row["loss"] for row in last if (row["method"], row["basis"]) == (method, "printed")]
    print(f"  {verdicts.NAMES[method]:8} mean loss {sum(losses) / len(losses):.3f}")

# %%
figure, axes = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
for method in methods:
    own = [row for row in done.rows if (row["method"], row["basis"]) == (method, "printed")]
    rounds = sorted({row["round"] for row in own})
    means = []
    for k in rounds:
        there = [row["loss"] for row in own if row["round"] == k]
        means.append(sum(there) / len(there))
    axes.plot(rounds, means, "o-", label=verdicts.NAMES[method])
axes.set(xlabel="round", ylabel="mean loss (nats)", title="002, Figure 5, in little")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## The verdicts
#
# Each claim is a test over the table that could fail, in every setting on its own. Those of the full run, with the
# numbers behind them, are in `docs/measured/papers/results/verdicts.json` of the repository and on the page of the
# paper; `python bench/results.py --check 002-fig5` runs it again and compares.

# %%
for one in verdicts.judged(study, done.rows)[:3]:
    print(one.claim.says)
    for basis, verdict in one.verdicts.items():
        print(f"  {verdicts.BASES[basis]}: {verdict.reason}: {verdict.word}")
