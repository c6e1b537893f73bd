"""Inference by estimators, and how fitted models are shown and exported."""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse import issparse
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ..answers.coefficients import Coefficients
from ..answers.fits import LogOdds
from ..answers.saved import SavedModel
from ..answers.training import check
from ..errors import InvalidInput, printable
from ..ledger.durable import rows_digest
from ..privacy.statement_facts import Caveat
from ..problem.task import TwoClasses
from ..reports.coefficients import page_table
from ..reports.notebook import ColumnTable
from ..reports.plots import coefficient_plot, forest_plot
from ..runs.config import RunConfig
from ..runs.engine import FINISHED
from ..runs.relations import with_other_relation
from ..runs.simulate import Result, simulate
from ..util.pages import notebook
from ..util.plain import jsonable
from ..util.typing import Any, IntArray
from .base import Dealt
from .declared import Labelled, columns_of_array, positive_of, with_classes
from .transformer import SchemaTransformer


def deal_digest(X: Any, label: IntArray, parts: list[IntArray]) -> bytes:
    """Of all rows and of each site's part: a ledger in memory adds up by site only fits that share it."""
    whole = (X.data, X.indices, X.indptr) if issparse(X) else (X,)
    return rows_digest(*(np.asarray(array, dtype=float) for array in (*whole, label, *parts)))


class Shown:
    """Mixin: a fitted model shows its privacy statement, and its table of coefficients if it has one."""

    def summary(self) -> str:
        """The model in words: what was trained, its coefficients, and what is promised, with all caveats."""
        me: Any = self
        check_is_fitted(me, "privacy_spent_")
        kind = str(getattr(me, "loss_", getattr(me, "loss", "")))
        head = [f"{type(me).__name__}: {kind}, {len(me.sites_)} sites, {me.n_features_in_} columns".replace(": ,", ":")]
        if (positive := positive_of(self)) is not None:
            head.append(f"Coefficients are for the class {printable(positive)}.")
        if getattr(me, "max_grad_norm_", math.inf) < math.inf:
            head.append("Gradients were capped: sizes are not calibrated.  inference=True asks for those, with errors.")
        table = str(self._found() or "") or self._plain_table()
        return "\n\n".join(part for part in ("\n".join(head), table, str(me.privacy_spent_["says"])) if part)

    def _plain_table(self) -> str:
        """Coefficients by name, in aligned columns; of many columns the first ones."""
        table = getattr(self, "coefficients_", None)
        return str(table) if isinstance(table, ColumnTable) else ""

    def plot(self, ax: Any = None) -> Any:
        """Draw the coefficients: a forest plot with 95% intervals after inference, else bars without.

        Odds ratios are on a logarithmic axis.  A line that is refused is marked so.  Of many columns the largest are
        drawn.  It is computed from what was released, and costs no budget.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; None for a new figure.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        InvalidInput
            If matplotlib is not installed: ``pip install 'sottovoce[plot]'``.
        """
        me: Any = self
        check_is_fitted(me, "coef_")
        if (found := self._found()) is not None:
            return forest_plot(found.to_dict(), ax)
        table = dict(me.coefficients_)
        names = table.pop("name")[:-1]  # without the constant
        if "coefficient" in table:
            positive = positive_of(self)
            return coefficient_plot(names, table["coefficient"][:-1], () if positive is None else (positive,), ax)
        return coefficient_plot(names, np.array(list(table.values()))[:, :-1], list(table), ax)

    def page(self) -> str:
        """HTML with the privacy statement and, after inference, the table of coefficients."""
        me: Any = self
        check_is_fitted(me, "coef_")
        promised = str(me.privacy_spent_["says"])
        found = self._found()
        if found is None:
            return notebook(text=promised)
        return notebook(text=promised, table=page_table(found.to_dict()), remark=found.remark())

    def __str__(self) -> str:
        me: Any = self
        if not hasattr(me, "privacy_spent_"):
            return repr(me)
        found = self._found()
        parts = [repr(me), str(me.privacy_spent_["says"]), *([] if found is None else [str(found)])]
        return "\n\n".join(parts)

    def _found(self) -> Coefficients | None:
        found = getattr(self, "coefficients_", None)
        return found if isinstance(found, Coefficients) else None

    def _repr_html_inner(self) -> str:
        whole: str = super()._repr_html_inner()  # type: ignore[misc]
        return whole + (self.page() if hasattr(self, "coef_") else "")

    def _repr_mimebundle_(self, **more: Any) -> Any:
        shown = super()._repr_mimebundle_(**more)  # type: ignore[misc]
        if "text/html" in shown and hasattr(self, "coef_"):
            shown["text/html"] += self.page()
        return shown


def _check_fits_inference(estimator: Any, labelled: Labelled, X: Any) -> None:
    """InvalidInput for classes, rows or a ledger for which inference has no steps."""
    if len(labelled.names) != 2:
        raise InvalidInput("inference", True, "is for two classes", "leave it out")
    if issparse(X) or not estimator.fit_intercept:
        raise InvalidInput("inference", True, "needs dense rows and an intercept", "leave it out")
    if estimator.ledger is not None:
        raise InvalidInput("ledger", None, "inference takes no ledger", "leave it out")


class Inferring(Shown):
    """Mixin: ``inference=True`` and :meth:`to_sklearn`."""

    def _infer(
        self, labelled: Labelled, table: Any, X: Any, dealt: Dealt, knobs: dict[str, Any], caveat: Caveat
    ) -> Result:
        me: Any = self
        schema, label, parts = me.schema_, labelled.number, dealt.parts
        _check_fits_inference(me, labelled, X)
        run = RunConfig.from_dict({"seed": dealt.seed, **knobs})
        check(run)
        names = [] if schema is not None else list(getattr(self, "feature_names_in_", columns_of_array(X.shape[1])))
        layout = dealt.layout(schema, names, float(me._norm), me._site_constants(True))
        fit, naming = LogOdds(layout), layout.naming
        tables = [X[part] for part in parts] if schema is None else [table.take(part) for part in parts]
        rows = fit.rows(tables, [TwoClasses().encode(label[part]) for part in parts])
        found_in = simulate(run, rows, method=fit.recipe, loss=fit.loss, caveat=caveat)
        result = with_other_relation(found_in)
        found = fit.read(result.outcome, run.delta)
        named = schema if schema is None or schema.label else with_classes(schema, labelled.names)
        answered = layout.saved(found.model, named, jsonable(found.plain))
        beta, k = naming.into_units @ found.model, int(np.sum(naming.constant == 0))
        me.coefficients_, me._answered = found.table, answered
        me.coef_ = labelled.sorted(beta[None, :k])
        me.intercept_ = labelled.sorted(np.atleast_1d(beta[k:] @ answered.shares))
        me.site_coef_ = np.repeat(me.coef_, len(parts), axis=0)
        me.site_intercept_ = labelled.sorted(beta[k:]) if naming.sites else np.repeat(me.intercept_, len(parts))
        me._order = labelled.order
        me.n_iter_, me.stopped_, me.max_grad_norm_, me._result = 1, FINISHED, math.inf, result
        return result

    def to_sklearn(self) -> LogisticRegression | Pipeline:
        """A fitted ``LogisticRegression`` of scikit-learn with the same coefficients, and so the same answers.

        Both are linear in X, also for rows that training shortened.  Under a schema a pipeline from raw columns, with a
        :class:`sottovoce.SchemaTransformer` before it; classes are those of :meth:`predict`.

        Raises
        ------
        InvalidInput
            If the loss is another than the logistic one, classes were trained against the rest, or coefficients are
            those of inference under a schema.
        """
        me: Any = self
        check_is_fitted(me, "coef_")
        loss = str(getattr(me, "loss_", me.loss))
        if not (loss == "logistic" and len(me.coef_) == 1) and loss != "softmax":
            rule = "scikit-learn's LogisticRegression has the logistic loss, or softmax for several classes"
            raise InvalidInput("loss", loss, rule, "use loss='softmax' for several classes")
        plain = LogisticRegression()
        if me.schema_ is not None:
            return self._of_columns(plain)
        plain.coef_, plain.intercept_, plain.classes_ = me.coef_.copy(), me.intercept_.copy(), me.classes_.copy()
        plain.n_features_in_, plain.n_iter_ = me.n_features_in_, np.array([me.n_iter_])
        if hasattr(me, "feature_names_in_"):
            plain.feature_names_in_ = me.feature_names_in_.copy()
        return plain

    def _of_columns(self, plain: LogisticRegression) -> Pipeline:
        me: Any = self
        answered: SavedModel = me._answered
        if answered.naming is not None or answered.schema is None:
            rule = "with inference, rows are encoded in another way than a transformer does"
            raise InvalidInput("inference", True, rule, "use sottovoce export, or leave inference out")
        vectors = np.atleast_2d(answered.schema.task.vectors(answered.model))
        plain.coef_ = Labelled(me.classes_, me._order, me._order).sorted(vectors)
        plain.intercept_, plain.classes_ = np.zeros(len(plain.coef_)), me.classes_.copy()
        plain.n_features_in_, plain.n_iter_ = plain.coef_.shape[1], np.array([me.n_iter_])
        encode = SchemaTransformer(me.schema_, me.columns)
        encode.schema_, encode.n_features_in_ = me.schema_, me.n_features_in_
        encode.feature_names_in_ = me.feature_names_in_.copy()
        return Pipeline([("encode", encode), ("classify", plain)])


__all__ = ["Inferring", "Shown", "deal_digest"]
