"""A private ROC curve

The curve and the area with its interval come from noisy counts of held-out scores. The thin grey
line is exact.
"""

from sklearn.metrics import roc_curve
from style import BLUE, INK, plt, save

from sottovoce import RunConfig, TrainConfig
from sottovoce.answers.evaluation import Held
from sottovoce.answers.training import infer
from sottovoce.data import load

run = RunConfig("auto", epsilon=2.0, delta=1e-5, trust="sum", seed=0)
fit = infer(TrainConfig(run, data="adult"), held=Held(epsilon=0.1))
found, adult = fit.evaluation.quality[""], load("adult")
false, true, _ = roc_curve(adult.y_test > 0, fit.answered.margins(adult.test_columns))

figure, axes = plt.subplots(figsize=(5.2, 4.4))
axes.plot(*zip(*found.roc, strict=True), "o-", color=BLUE, label="private, epsilon 0.1")
axes.plot(false[::20], true[::20], color=INK, lw=1, label="exact, for the holder")
axes.plot([0, 1], [0, 1], ":", color=INK, lw=1)
area = f"area {found.auc.value:.3f}, {found.auc.low:.3f} to {found.auc.high:.3f}"
axes.set(xlabel="false positives, share", ylabel="true positives, share", title=area)
axes.legend(loc="lower right")
save(figure, __file__)
