"""Reports of fitted linear models: text, HTML and plots, all from what was released."""

from __future__ import annotations

import math

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..answers.coefficients import Coefficients
from ..errors import escape_unprintable
from ..reports.coefficients import coefficient_table
from ..reports.notebook import ColumnTable
from ..reports.plots import coefficient_plot, forest_plot
from ..util.pages import render_for_notebook
from ..util.typing import Any
from .declared import positive_class_name


def table_with_intervals(model: Any) -> Coefficients | None:
    """Return the table of coefficients with intervals; None for a model that has none."""
    found = getattr(model, "coefficients_", None)
    if isinstance(found, Coefficients):
        return found
    return None


def describe_model(model: Any) -> str:
    """Return text: the training, the coefficients, and the privacy statement with caveats."""
    check_is_fitted(model, "privacy_spent_")
    kind = str(getattr(model, "loss_", getattr(model, "loss", "")))
    sizes = f"{len(model.sites_)} sites, {model.n_features_in_} columns"
    # Without the empty name of a loss.
    head = [f"{type(model).__name__}: {kind}, {sizes}".replace(": ,", ":")]
    positive = positive_class_name(model)
    if positive is not None:
        head.append(f"Coefficients are for the class {escape_unprintable(positive)}.")
    if getattr(model, "max_grad_norm_", math.inf) < math.inf:
        head.append(
            "Gradients were capped, so the sizes of coefficients are not calibrated; "
            "inference=True estimates calibrated ones, with standard errors."
        )
    table = str(table_with_intervals(model) or "") or _table_without_intervals(model)
    parts = ("\n".join(head), table, str(model.privacy_spent_["says"]))
    return "\n\n".join(part for part in parts if part)


def _table_without_intervals(model: Any) -> str:
    """Return coefficients by name, in aligned columns; of many columns the first ones."""
    table = getattr(model, "coefficients_", None)
    if isinstance(table, ColumnTable):
        return str(table)
    return ""


def plot_coefficients(model: Any, ax: Any) -> Any:
    """Draw the coefficients of a fitted model on matplotlib's Axes: with intervals, or as bars."""
    check_is_fitted(model, "coef_")
    found = table_with_intervals(model)
    if found is not None:
        return forest_plot(found.to_dict(), ax)
    table = dict(model.coefficients_)
    # The last line is the constant, which is in another unit.
    names = table.pop("name")[:-1]
    if "coefficient" in table:
        positive = positive_class_name(model)
        classes: tuple[str, ...] = ()
        if positive is not None:
            classes = (positive,)
        return coefficient_plot(names, table["coefficient"][:-1], classes, ax)
    by_class = np.array(list(table.values()))[:, :-1]
    return coefficient_plot(names, by_class, list(table), ax)


def model_page_html(model: Any) -> str:
    """Return HTML with the privacy statement and, after inference, the table of coefficients."""
    check_is_fitted(model, "coef_")
    statement = str(model.privacy_spent_["says"])
    found = table_with_intervals(model)
    if found is None:
        return render_for_notebook(text=statement)
    return render_for_notebook(
        text=statement, table=coefficient_table(found.to_dict()), remark=found.remark()
    )


def text_of_model(model: Any) -> str:
    """Return the parameters; of a fitted model also its privacy statement and table."""
    if not hasattr(model, "privacy_spent_"):
        return repr(model)
    parts = [repr(model), str(model.privacy_spent_["says"])]
    found = table_with_intervals(model)
    if found is not None:
        parts.append(str(found))
    return "\n\n".join(parts)


__all__ = [
    "describe_model",
    "model_page_html",
    "plot_coefficients",
    "table_with_intervals",
    "text_of_model",
]
