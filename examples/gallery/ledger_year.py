"""A year of a ledger

A new model every month, each with an epsilon of 0.3. The ledger adds them by what is proved of all
together, and refuses the fit that would cross the budget.
"""

from rows import made_up
from style import BLUE, INK, ORANGE, plt, save

from sottovoce import Ledger, PrivateClassifier, SottovoceError

X, y = made_up(3000)
ledger = Ledger("zcdp", epsilon=1.2, delta=1e-5)
spent, refused = [0.0], []
for month in range(1, 13):
    model = PrivateClassifier(
        "output",
        epsilon=0.3,
        data_norm=3.0,
        classes=["no", "yes"],
        ledger=ledger,
        random_state=month,
    )
    try:
        spent.append(model.fit(X, y).privacy_spent_["ledger"]["spent"])
    except SottovoceError:
        spent.append(spent[-1])
        refused.append(month)

figure, axes = plt.subplots()
axes.step(range(13), spent, where="post", color=BLUE, label="the ledger")
axes.plot(range(13), [0.3 * month for month in range(13)], ":", color=INK, label="one by one")
axes.plot(refused, [spent[-1]] * len(refused), "x", color=ORANGE, ms=8, mew=2, label="refused")
axes.axhline(ledger.epsilon, color=INK, lw=1)
axes.annotate(
    "budget for life", (0.1, ledger.epsilon), (0, 4), textcoords="offset points", fontsize=10
)
axes.set(xlabel="month", ylabel="epsilon spent, at delta 10⁻⁵", xticks=range(13), ylim=(0, 3.7))
axes.legend()
save(figure, __file__)
