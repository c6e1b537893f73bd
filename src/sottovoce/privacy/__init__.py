"""Privacy: what a release costs, how much noise it needs, how noise is drawn, and what is stated.

The way of a release: its *event* (:mod:`.events`) holds the parameters that price it;
:mod:`.prices` computes the price of one event from the bounds U1 to U7 of docs/privacy
(:mod:`.bounds`, :mod:`.spherical`, :mod:`.gaussian`); an *accountant* (:mod:`.accountants`)
composes prices to an epsilon at delta; :mod:`.calibration` finds the least noise for a target;
:mod:`.noise` draws it; and :mod:`.statement` says what was proved.
"""
