"""Secure aggregation: sums over sites of which only the total is seen (``docs/deploy/sums.md``).

In each *attempt* a site sends its *share* (its part of the sum, with noise) under pairwise masks
that vanish in the total.  :mod:`~.masks` makes masks and keys, :mod:`~.messages` the signed
messages, :mod:`~.roster` has the rules by which all sites agree on who takes part,
:mod:`~.own_key` holds a site's masking key, and :mod:`~.witnesses` protects a restarted site from
an old backup.
"""
