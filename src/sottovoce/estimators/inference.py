"""Inference by estimators, and how fitted models are shown and exported."""

from __future__ import annotations

import math
from html import escape

import numpy as np
from scipy.sparse import issparse
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from ..answers.inference import Coefficients, Estimates, model_of, newton_of, table
from ..answers.terms import of_columns
from ..answers.training import check
from ..errors import InvalidInput
from ..ledger.durable import rows_digest
from ..problem.losses import Logistic
from ..problem.task import TwoClasses
from ..problem.weighted_loss import Weighted
from ..reports.coefficients import html_table, remark
from ..runs.config import RunConfig
from ..runs.engine import FINISHED
from ..runs.simulate import simulate
from ..util.typing import Any, Array, IntArray


def deal_digest(X: Any, label: IntArray, parts: list[IntArray]) -> bytes:
    """Of all rows and of each site's part: a ledger in memory adds up by site only fits that share it."""
    whole = (X.data, X.indices, X.indptr) if issparse(X) else (X,)
    return rows_digest(*(np.asarray(array, dtype=float) for array in (*whole, label, *parts)))


class Shown:
    """Mixin: a fitted model shows its privacy statement, and its table of coefficients if it has one."""

    def page(self) -> str:
        """HTML with the privacy statement and, after inference, the table of coefficients."""
        me: Any = self
        check_is_fitted(me, "coef_")
        words = escape(str(me.privacy_spent_["says"])).replace("\n", "<br>")
        shown = ""
        if (found := self._found()) is not None:
            lines = found.to_dict()
            shown = f"{html_table(lines)}<p>{escape(remark(lines, found.needs, found.weighed))}</p>"
        return f'<div class="sottovoce"><p>{words}</p>{shown}</div>'

    def __str__(self) -> str:
        me: Any = self
        if not hasattr(me, "privacy_spent_"):
            return repr(me)
        found = self._found()
        parts = [repr(me), str(me.privacy_spent_["says"]), *([] if found is None else [str(found)])]
        return "\n\n".join(parts)

    def _found(self) -> Coefficients | None:
        return getattr(self, "coefficients_", None)

    def _repr_html_inner(self) -> str:
        whole: str = super()._repr_html_inner()  # type: ignore[misc]
        return whole + (self.page() if hasattr(self, "coef_") else "")

    def _repr_mimebundle_(self, **more: Any) -> Any:
        shown = super()._repr_mimebundle_(**more)  # type: ignore[misc]
        if "text/html" in shown and hasattr(self, "coef_"):
            shown["text/html"] += self.page()
        return shown


class Inferring(Shown):
    """Mixin: ``inference=True`` and :meth:`to_sklearn`."""

    def _infer(
        self, K: int, X: Any, label: IntArray, parts: list[IntArray], sites: Array, knobs: dict[str, Any],
        seed: int | None, apart: bool, caveat: str | None,
    ) -> None:  # fmt: skip
        me: Any = self
        if K != 2:
            raise InvalidInput("inference", True, "is for two classes", "leave it out")
        if issparse(X) or not me.fit_intercept:
            raise InvalidInput("inference", True, "needs dense rows and an intercept", "leave it out")
        if me.ledger is not None:
            raise InvalidInput("ledger", None, "inference takes no ledger", "leave it out")
        run = RunConfig(seed=seed, **knobs)
        check(run)
        names = list(getattr(self, "feature_names_in_", [f"x{j}" for j in range(X.shape[1])]))
        own = [str(site) for site in sites] if apart and len(parts) > 1 else []
        naming = of_columns(names, float(me.data_norm), own)
        rows = naming.rows([(X[part], TwoClasses().encode(label[part])) for part in parts])
        result = simulate(run, rows, method=newton_of(naming), loss=Weighted(Logistic()), caveat=caveat)
        found: Estimates = result.outcome
        beta, k = naming.into_units @ model_of(found)[0], X.shape[1]
        shares = np.array([len(part) for part in parts]) / len(label)
        me.coefficients_ = table(found, naming, delta=run.delta)
        me.coef_ = beta[None, :k]
        me.intercept_ = np.atleast_1d(beta[k:] @ shares if own else beta[k])
        me.site_coef_ = np.repeat(me.coef_, len(parts), axis=0)
        me.site_intercept_ = beta[k:] if own else np.repeat(me.intercept_, len(parts))
        me.privacy_spent_, me.n_iter_, me.stopped_ = result.privacy, 1, FINISHED
        me.max_grad_norm_ = math.inf

    def to_sklearn(self) -> LogisticRegression:
        """A fitted ``LogisticRegression`` of scikit-learn with the same coefficients, and so the same answers.

        Both are linear in X, also for rows that training shortened.

        Raises
        ------
        InvalidInput
            If the loss is another than the logistic one, or classes were trained against the rest.
        """
        me: Any = self
        check_is_fitted(me, "coef_")
        softmax = str(me.loss) == "softmax"
        if not (str(me.loss) == "logistic" and len(me.coef_) == 1) and not softmax:
            rule = "scikit-learn's LogisticRegression has the logistic loss, or softmax for several classes"
            raise InvalidInput("loss", str(me.loss), rule, "use loss='softmax' for several classes")
        plain = LogisticRegression()
        plain.coef_, plain.intercept_, plain.classes_ = me.coef_.copy(), me.intercept_.copy(), me.classes_.copy()
        plain.n_features_in_, plain.n_iter_ = me.n_features_in_, np.array([me.n_iter_])
        if hasattr(me, "feature_names_in_"):
            plain.feature_names_in_ = me.feature_names_in_.copy()
        return plain


__all__ = ["Inferring", "Shown", "deal_digest"]
