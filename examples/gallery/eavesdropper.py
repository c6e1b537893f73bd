"""An eavesdropper's view

Somebody hears every message and knows all rows but one: Ada's or Bo's? At epsilon 0.5 the two can
hardly be told apart; at 8 they can.
"""

import numpy as np
from style import plt, save

from sottovoce.audit import make_case
from sottovoce.audit.game import record_transcripts, score_all_attacks

figure, panels = plt.subplots(2, 1, sharex=False, figsize=(5.2, 4.4))
for axes, epsilon in zip(panels, (0.5, 8.0), strict=True):
    case = make_case("prox_average", epsilon=epsilon, delta=1e-5, rounds=1)
    seen = record_transcripts(case, 0, 3000, 1), record_transcripts(case, 1, 3000, 2)
    scores = score_all_attacks(case, seen)[0].scores
    cells = np.linspace(*np.quantile(np.concatenate(scores), [0.005, 0.995]), 40)
    for score, name, colour in zip(scores, ("Ada's row", "Bo's row"), ("C0", "C1"), strict=True):
        axes.stairs(
            np.histogram(score, cells, density=True)[0],
            cells,
            fill=True,
            color=colour,
            alpha=0.45,
            label=name,
        )
    axes.set(ylabel="density", title=f"epsilon {epsilon:g}")
panels[1].set_xlabel("how much more likely with Bo's row (log of the ratio)")
panels[0].legend()
save(figure, __file__)
