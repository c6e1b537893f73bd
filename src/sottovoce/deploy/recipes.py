"""The inference and evaluation of a plan: checked against public facts, with noise and cost.

A *recipe* is a fixed list of queries with their noise; to *price* it is to compute its privacy
loss, and to calibrate its noise if the plan has no scale yet.  Inference reads the training rows
and evaluation the held-out rows, so each row pays for the releases of one of them only
(docs/privacy/answers.md, "Between sites").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..algorithms import Recipe
from ..data.schema import Schema
from ..errors import InvalidInput
from ..problem.losses import Loss, make_loss
from ..problem.task import TwoClasses
from ..runs.config import RunConfig
from ..runs.prepare import prepare
from ..runs.pricing import Prepared
from ..util.typing import Array
from .asks import Asks

# Imported only when needed: they load SciPy's statistics, and most plans only train.
if TYPE_CHECKING:
    from ..answers.evaluation import Level
    from ..answers.fits import LogOdds
    from ..answers.terms import Naming


class Recipes(NamedTuple):
    """A plan's recipes with their noise and costs.

    Parameters
    ----------
    inference : Prepared, optional
        The inference, on the rows that are not held out.
    fit : LogOdds, optional
        Turns the estimates of the inference into coefficients.
    evaluation : Prepared, optional
        The evaluation, on the held-out rows.
    levels : tuple of Level
        Levels of the plan's column `by`, each with an evaluation of its own.
    """

    inference: Prepared | None
    fit: LogOdds | None
    evaluation: Prepared | None
    levels: tuple[Level, ...]

    @property
    def naming(self) -> Naming | None:
        """The encoding of an inference, with reference levels; None without an inference."""
        if self.fit is None:
            return None
        return self.fit.layout.naming


def price_recipes(
    asks: Asks,
    config: RunConfig,
    sizes: Sequence[int],
    d: int,
    schema: Schema | None,
    names: Sequence[str],
) -> Recipes:
    """Check the requested inference and evaluation, and compute their noise and privacy losses.

    The noise is calibrated if `asks` has no scale yet.

    Parameters
    ----------
    asks : Asks
        What is requested.
    config : RunConfig
        Configuration of the training; its trust and privacy unit hold for the answers, too.
    sizes : sequence of int
        Number of rows of every site, held-out ones included.
    d : int
        Number of encoded features.
    schema : Schema or None
    names : sequence of str
        Names of the sites, in the order of `sizes`.

    Returns
    -------
    Recipes

    Raises
    ------
    InvalidInput
        If the plan does not allow the request, or a site has too few rows.
    """
    _check_rows_count_alike(config, schema)
    _check_held_out(asks, sizes, names)
    prepared: Prepared | None = None
    fit: LogOdds | None = None
    if asks.inference:
        prepared, fit = _price_inference(asks, config, sizes, d, schema, names)
    if asks.evaluation is None:
        return Recipes(prepared, fit, None, ())
    # The model to evaluate is that of the inference, in its own columns, or else of the training.
    width = d
    encoding = schema
    if fit is not None:
        width = fit.layout.naming.d
        encoding = fit.layout.naming.schema
    judged, levels = _price_evaluation(asks, config, sizes, width, encoding)
    return Recipes(prepared, fit, judged, levels)


def _check_rows_count_alike(config: RunConfig, schema: Schema | None) -> None:
    """Refuse rows at several sites, shared budgets, weights, persons, and other tasks."""
    for field, many in (("sites_per_row", config.sites_per_row), ("copies", config.copies)):
        if many != 1:
            rule = "must be 1 in a plan with inference or evaluation"
            raise InvalidInput(field, many, rule, f"use {field}=1")
    loss = make_loss(config.loss)
    has_other_label = schema is not None and not isinstance(schema.task, TwoClasses)
    if loss.outputs != 1 or loss.offset_bound or has_other_label:
        rule = "inference and evaluation between sites need two classes"
        raise InvalidInput("label", None, rule, "leave inference and evaluation out")
    if schema is not None and schema.weighs:
        rule = "inference and evaluation between sites do not support row weights"
        raise InvalidInput(
            "weight", None, rule, "leave weight and class_weight out, or inference and evaluation"
        )
    if schema is not None and schema.person is not None:
        rule = "inference and evaluation between sites do not support user-level privacy"
        raise InvalidInput(
            "person", None, rule, "leave inference and evaluation out, or keep one row per person"
        )


def _check_held_out(asks: Asks, sizes: Sequence[int], names: Sequence[str]) -> None:
    """Refuse a `holdout` that leaves some site without held-out rows, or without training rows."""
    if asks.evaluation is None:
        return
    for name, rows in zip(names, sizes, strict=True):
        held = asks.held(rows)
        if not 0 < held < rows:
            rule = f"leaves {held} held-out rows and {rows - held} training rows at {name!r}"
            raise InvalidInput(
                "holdout", asks.holdout, rule, "choose a share that leaves each site both kinds"
            )


def _price_inference(
    asks: Asks,
    config: RunConfig,
    sizes: Sequence[int],
    d: int,
    schema: Schema | None,
    names: Sequence[str],
) -> tuple[Prepared, LogOdds]:
    """Price the inference on the rows that are not held out; see :func:`price_recipes`."""
    from ..answers import inference
    from ..answers.fits import Layout, LogOdds, sites_with_constants

    inference.check_run_is_inference(config)
    if config.noise is not None:
        rule = "must not be given: inference calibrates its own noise"
        raise InvalidInput("noise", None, rule, "leave it out and give an epsilon")
    trained = [rows - asks.held(rows) for rows in sizes]
    columns = [f"x{j}" for j in range(d)]
    constants = sites_with_constants(names, at_random=False, asked=asks.site_constants)
    site = None
    if schema is not None:
        site = schema.site
    fit = LogOdds(Layout.from_schema(schema, columns, 1.0, trained, constants, site))
    n = np.array(trained, dtype=float)[:, None]
    return _prepare_recipe(fit.recipe, config, n, fit.layout.naming.d, fit.loss, asks.scale), fit


def _price_evaluation(
    asks: Asks, config: RunConfig, sizes: Sequence[int], width: int, encoding: Schema | None
) -> tuple[Prepared, tuple[Level, ...]]:
    """Price the evaluation of a model with `width` entries, on the held-out rows.

    `encoding` is the schema by which that model's rows are encoded.  Returns the levels of the
    column `by`, too.
    """
    from ..answers import evaluation

    assert asks.evaluation is not None
    levels = evaluation.subgroup_levels(encoding, asks.by)
    groups = evaluation.subgroup_masks(levels, width + 1)
    # The model is trained later, so its digest is empty here; the price does not depend on it.
    histogram = evaluation.Histogram(judged=b"", threshold=asks.threshold, groups=groups)
    own = evaluation.Held(asks.evaluation, asks.threshold, asks.by).evaluation_config(
        config, histogram
    )
    n = np.array([[float(asks.held(rows))] for rows in sizes])
    # One column more than the model: the held-out rows get a constant (build_scored_rows).
    prepared = _prepare_recipe(histogram, own, n, width + 1, evaluation.LOSS, asks.evaluation_scale)
    evaluation.check_held_out_rows(prepared)
    return prepared, levels


def _prepare_recipe(
    method: Recipe, config: RunConfig, n: Array, d: int, loss: Loss, scale: float | None
) -> Prepared:
    """Return a recipe with noise of this `scale` (sensitivity over sigma), or calibrated if None.

    `n` is the number of rows of every site, (N, 1), and `d` the number of columns.
    """
    if scale is not None:
        method = method.with_noise(method.releases_with_noise.shape.scaled(scale))
    return prepare(config.for_recipe(method), n, d, method=method, loss=loss)
