"""Check a table as training would: load, encode and partition it, without spending anything.

`sottovoce schema check` calls it, so that a holder of rows learns of a refusal before training.
"""

from __future__ import annotations

from ..data.check import Review, review
from ..data.loaders import split_table
from ..data.schema import Schema
from ..data.table import Table
from ..errors import InvalidInput
from ..network.graphs import make_graph
from ..problem.task import EventRate
from .prepare import check_run_size
from .training import (
    TrainConfig,
    config_for_dataset,
    deal_rows_to_nodes,
    rows_of_sites,
    with_partition,
)


def review_for_training(schema: Schema, table: Table) -> Review:
    """Review a table under its schema, and report whether `sottovoce train` would refuse it.

    Parameters
    ----------
    schema : Schema
    table : Table
        All rows that would be given to training with its default options.

    Returns
    -------
    Review
        That of :func:`sottovoce.data.review`, with the refusal of training if there is one.
    """
    found = review(schema, table)
    if found.refused:
        return found
    return found.also_refused(refusal_of_training(schema, table))


def refusal_of_training(schema: Schema, table: Table) -> InvalidInput | None:
    """Return the error with which `sottovoce train` would refuse a table; None if it would not.

    Options have their defaults.  The same functions are called in the same order, up to the first
    that would spend anything.
    """
    config = TrainConfig()
    try:
        dataset = split_table(table, schema, test_share=config.test_share)
        # Events are fitted by inference, which reads no rows of this form.
        if isinstance(dataset.task, EventRate):
            deal_rows_to_nodes(with_partition(config, dataset), dataset)
            return None
        config = config_for_dataset(config, dataset)
        rows = rows_of_sites(config, dataset, deal_rows_to_nodes(config, dataset))
        check_run_size(config.run, rows.n, rows.d)
        make_graph(config.run.graph, len(rows.n), config.run.seed or 0)
    except InvalidInput as error:
        return error
    return None
