"""Secure sums over sites.

The protocol between sites, and its hub's part (``docs/deploy/sums.md``).
"""
