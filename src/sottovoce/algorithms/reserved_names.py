"""Names that a method's own option (knob) may not have.

Options of methods are given by name among the fields of a run, the options of commands and the
parameters of estimators.  An option called, say, ``copies`` would receive the value that is meant
for the field of this name, by which the run's privacy loss is computed.

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
"""Fields of :class:`sottovoce.RunConfig`."""

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
"""Fields of :class:`sottovoce.TrainConfig`."""

FIELDS_OF_METHODS = frozenset({"name", "noise", "options", "penalty"})
"""Keys of every method's record."""

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
"""Options and settings of ``train`` and ``plan``, and the names of their parameters in code."""

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
"""Parameters of all estimators, their own knobs included."""

RESERVED_NAMES = (
    FIELDS_OF_RUNS
    | FIELDS_OF_TRAININGS
    | FIELDS_OF_METHODS
    | PARAMETERS_OF_COMMANDS
    | PARAMETERS_OF_ESTIMATORS
)
