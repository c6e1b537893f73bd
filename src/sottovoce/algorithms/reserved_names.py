"""Names that no knob of a method may have, since they mean something else wherever knobs are given
by name.

Knobs stand among the fields of a run in flat dictionaries, among the options of commands, and among
the parameters of estimators.  A knob of the same name would take a value such as ``copies`` away
from the field that prices it.

The names are written down here, and not looked up, because a method is registered before the
modules that declare most of them are loaded.  ``tests/house/test_knobs.py`` compares the list with
those modules.
"""

from __future__ import annotations

FIELDS_OF_RUNS = frozenset(
    {
        "C",
        "accountant",
        "auto",
        "backend",
        "centre",
        "colluders",
        "copies",
        "delta",
        "epsilon",
        "eta",
        "eta_growth",
        "form",
        "graph",
        "loss",
        "method",
        "noise",
        "noise_growth",
        "options",
        "other_options",
        "participants",
        "relation",
        "replicates",
        "rho",
        "rounds",
        "rows_per_person",
        "seed",
        "sites_per_row",
        "start",
        "tol",
        "trust",
    }
)
"""Of :class:`sottovoce.RunConfig`."""

FIELDS_OF_TRAININGS = frozenset(
    {
        "centre",
        "data",
        "dropout",
        "nodes",
        "partition",
        "public",
        "public_share",
        "run",
        "schema",
        "sizes",
        "start",
        "strength",
        "test_share",
    }
)
"""Of :class:`sottovoce.TrainConfig`."""

FIELDS_OF_METHODS = frozenset({"name", "noise", "options", "penalty"})
"""What every method's record holds."""

PARAMETERS_OF_COMMANDS = frozenset(
    {
        "C",
        "accountant",
        "as_json",
        "by",
        "centre",
        "checkpoint",
        "colluders",
        "config",
        "cut",
        "data",
        "deadline",
        "delta",
        "dropout",
        "epsilon",
        "eta",
        "eta_growth",
        "evaluation",
        "expect_correlation",
        "expect_positives",
        "expect_residuals",
        "expect_share",
        "features",
        "form",
        "graph",
        "holder",
        "holdout",
        "inference",
        "json",
        "ledger",
        "life",
        "loss",
        "method",
        "nodes",
        "noise",
        "noise_growth",
        "norm_cap",
        "participants",
        "partition",
        "patience",
        "public",
        "public_share",
        "pure",
        "relation",
        "replicates",
        "report",
        "rho",
        "rounds",
        "run",
        "run_name",
        "save",
        "save_config",
        "schema",
        "seed",
        "set",
        "set_",
        "site",
        "site_constants",
        "sites",
        "sites_per_row",
        "sizes",
        "start",
        "strength",
        "system_noise",
        "test_share",
        "tol",
        "trust",
        "write",
    }
)
"""Of ``train`` and ``plan``: options, settings, and how they are called inside."""

PARAMETERS_OF_ESTIMATORS = frozenset(
    {
        "C",
        "accounting",
        "centre",
        "class_weight",
        "classes",
        "colluders",
        "columns",
        "data_norm",
        "delta",
        "edges",
        "epsilon",
        "eta",
        "eta_growth",
        "event_code",
        "fit_intercept",
        "form",
        "graph",
        "inference",
        "knobs",
        "ledger",
        "loss",
        "max_weight",
        "method",
        "n_components",
        "n_sites",
        "noise_growth",
        "random_state",
        "relation",
        "rho",
        "rounds",
        "schema",
        "site_constants",
        "sites_per_row",
        "tol",
        "trust",
        "verbose",
        "y_bounds",
    }
)
"""Of all estimators, their own knobs included."""

RESERVED_NAMES = (
    FIELDS_OF_RUNS
    | FIELDS_OF_TRAININGS
    | FIELDS_OF_METHODS
    | PARAMETERS_OF_COMMANDS
    | PARAMETERS_OF_ESTIMATORS
)
