"""How releases add up

The same Gaussian releases, each with noise eight times its sensitivity, added by four rules at a
delta of 10⁻⁵. Loss distributions are exact.
"""

import numpy as np
from style import INK, plt, save

from sottovoce.privacy.accountants import make_accountant
from sottovoce.privacy.events import GaussianMechanism

release = GaussianMechanism(
    source="gallery",
    relation="replace-one",
    sigma=np.array([8.0]),
    sensitivity=np.array([1.0]),
    dimension=1,
)
counts = [1, 2, 5, 10, 20, 50, 100]
figure, axes = plt.subplots()
for name, label in (("zcdp", "zCDP"), ("rdp", "Rényi"), ("pld", "loss distributions")):
    rule = make_accountant(name)
    axes.plot(
        counts,
        [float(np.max(rule.epsilon_of_events([release] * count, 1e-5))) for count in counts],
        "o-",
        label=label,
    )
one = float(np.max(make_accountant("pld").epsilon_of_events([release], 1e-7)))
axes.plot(
    counts, [one * count for count in counts], ":", color=INK, label="one by one, delta 10⁻⁷ each"
)
axes.set(xscale="log", yscale="log", xlabel="releases", ylabel="epsilon, in total")
axes.set_xticks(counts, map(str, counts))
axes.set_yticks([0.3, 1, 3, 10, 30], ["0.3", "1", "3", "10", "30"])
axes.minorticks_off()
axes.legend()
save(figure, __file__)
