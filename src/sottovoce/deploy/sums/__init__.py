"""Secure sums over sites: the protocol between sites, and its hub's part (``docs/deploy/sums.md``)."""
