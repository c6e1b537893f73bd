"""Ledgers: privacy loss is written down before a release is drawn, and compared with a budget.

:class:`.memory.Ledger` lasts for one process, and :class:`.durable.DurableLedger` is a file for the
life of a data set.  Both hold *rows*, one for each release that was charged: its event, which has
the parameters that price it (:mod:`sottovoce.privacy.events`).  A *run* charges the releases of one
training.  A *deal* is a partition of the data set's rows over nodes.
"""
