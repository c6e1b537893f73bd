"""Curved columns

Two crescents that no line tells apart. Fifty waves of two numbers, from public constants, curve a
private model.
"""

import numpy as np
from style import BLUE, INK, ORANGE, plt, save

from sottovoce import ConsensusClassifier

rng = np.random.default_rng(0)
side, height = rng.choice([-1.0, 1.0], 5000), rng.uniform(-1.8, 1.8, 5000)
frame = {"across": side * (1 - height**2) + 0.3 * rng.normal(size=5000), "height": height}
number = {"kind": "number", "lo": -5.0, "hi": 5.0, "typical": [-2.5, 2.5]}
straight = {"intercept": 0.5, "columns": {"across": number, "height": number}}
bent = {"kind": "fourier", "of": ["across", "height"], "features": 50, "bandwidth": 0.7}
curved = straight | {"columns": straight["columns"] | {"waves": bent}}

across, up = np.meshgrid(np.linspace(-3, 3, 90), np.linspace(-1.8, 1.8, 60))
figure, axes = plt.subplots()
axes.scatter(
    frame["across"][:700],
    height[:700],
    s=5,
    c=np.where(side[:700] > 0, BLUE, ORANGE),
    alpha=0.7,
    lw=0,
)
for schema, style in ((straight, ":"), (curved, "-")):
    model = ConsensusClassifier(
        "momentum",
        schema=schema,
        classes=["left", "right"],
        rounds=100,
        knobs={"max_grad_norm": 0.3},
        random_state=0,
    ).fit(frame, np.where(side > 0, "right", "left"))
    score = model.decision_function({"across": across.ravel(), "height": up.ravel()}).reshape(
        across.shape
    )
    axes.contour(across, up, score, levels=[0.0], colors=INK, linestyles=style, linewidths=2)
axes.plot([], [], ":", color=INK, label="straight")
axes.plot([], [], "-", color=INK, label="with 50 waves")
axes.set(xlabel="across", ylabel="height", xlim=(-3, 3), ylim=(-1.8, 2.5))
axes.legend(loc="upper center", ncols=2)
save(figure, __file__)
