"""Ledgers, in which spending is written down.

In memory for one process, or on disk for the life of a data set.
"""
