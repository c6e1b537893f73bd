"""Sums over sites of which nobody sees an addend: the protocol between sites, and its hub's part.

``masks`` has the keys of a run and the masks, ``said`` what sites sign, ``state`` the rules that turn messages into
rosters and attempts, ``net`` a site's side and ``desk`` the hub's.  ``docs/deploy/sums.md`` describes the whole.
"""
