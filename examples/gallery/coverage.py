"""Coverage

Forty private studies of one question, each with new rows and noise, and their 95% intervals. About
one in twenty must miss the truth (orange).
"""

from rows import TRUTH, made_up
from style import BLUE, INK, ORANGE, plt, save

from sottovoce import ConsensusClassifier

figure, axes = plt.subplots(figsize=(5.2, 4.4))
missed = 0
for study in range(40):
    X, y = made_up(4000, seed=study)
    model = ConsensusClassifier(
        epsilon=4.0,
        data_norm=4.0,
        trust="sum",
        inference=True,
        classes=["no", "yes"],
        random_state=study,
    )
    line = model.fit(X, y).coefficients_[0]
    misses = not line["low"] <= TRUTH[0] <= line["high"]
    missed += misses
    axes.plot([line["low"], line["high"]], [study, study], color=ORANGE if misses else BLUE, lw=1.6)
    axes.plot(line["estimate"], study, "o", color=ORANGE if misses else BLUE, ms=3)
axes.axvline(TRUTH[0], color=INK, lw=1)
axes.set(
    xlabel="coefficient of x0, with its 95% interval",
    ylabel="study",
    title=f"{missed} of 40 miss the truth",
)
save(figure, __file__)
