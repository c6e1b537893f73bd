"""A printed claim, an attack on it, and the form that holds: dual variable perturbation (papers
000 and 001).
"""

from sottovoce.audit import Claim, attack
from sottovoce_papers.claims import table

# 1. What is printed of one release, and what a pair of tables attains: a claim below it is false.
claim = next(claim for claim in table() if claim.method == "DVP")
print(f"{claim.paper}: {claim.says}")
print(f"claimed {claim.claimed:.3f}, attained {claim.attained:.3f}; the proof: {claim.proof}")

# 2. Attack the code: the worst game that is known, for the form to the letter and for the corrected
# one.
claimed, shown = (0.25, 0.5, 1.0, 2.0), {}
for form in ("printed", "corrected"):
    for epsilon in claimed:
        verdict = attack("dvp", form, Claim(epsilon), quick=True)
        shown[form, epsilon] = verdict.lower_bound
        word = "refuted" if verdict.refuted else "not refuted"
        print(f"{form:9}  claimed {epsilon:<4g}  shown {verdict.lower_bound:.3f} at least  {word}")

# 3. The picture: above the diagonal a claim is false.
import matplotlib.pyplot as plt  # noqa: E402

inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
plt.rcParams |= dict.fromkeys(inks, "#7f868e")
figure, axes = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
axes.plot([0, 2], [0, 2], "--", color="#7f868e", label="claimed = true")
for form, colour in (("printed", "#dd8a1f"), ("corrected", "#3a8fd0")):
    axes.plot(
        claimed, [shown[form, epsilon] for epsilon in claimed], "o-", color=colour, label=form
    )
axes.set(xlabel="epsilon that is claimed", ylabel="epsilon that the attack shows")
axes.legend(frameon=False)
figure.savefig("paper_reader.svg", transparent=True)
