"""Sample sizes: the rows a node needs for a given accuracy, by the theorems of 000 to 004.

All bounds but those of :class:`FeatureMethod` hold "for some constant" that no paper computes.  It
is an argument, 1 by default, and :class:`SampleSize` names it, so only two bounds of one theorem
can be compared.  The
theorems want independent rows of one distribution in the unit ball, a loss of slope at most 1,
exact minimisers (004 apart) and the regulariser ``|f|^2 / 2``, whose weight the *proof* chooses.
``form="printed"`` is the formula of the paper, ``form="corrected"`` what its proof gives;
``docs/explanation/design_tools.md`` lists where they differ, and ``sottovoce claims --rows`` prints
both.

Arguments that several bounds share; :class:`~sottovoce.errors.InvalidInput` unless finite and > 0:

accuracy : float
    Excess of the expected loss; in 001 of C times the loss.
confidence : float
    delta (004: xi), the probability of failure of one statement.
reference_norm : float or array over rounds
    ``|f0|``, the norm of the classifier to compare with.  The worst round counts.
epsilon : float or array over rounds
    The paper's parameter of its noise, not the epsilon of a run; ``inf`` for no noise.
d, C : int, float
    Features, and the weight of the mean loss.
beta, constant, w, V : float
    The theorem's constant, which is **free**: no paper gives its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import optimize

from sottovoce.errors import InvalidInput
from sottovoce.util.typing import Any, Array, ArrayLike

KNOWN, FREE = "known", "free: only order can be read from it"
_MOST = 1e18  # rows at which a search ends


@dataclass(frozen=True)
class SampleSize:
    """A lower bound on the rows of one node."""

    value: float  # rows; inf: the theorem promises this accuracy for no number of rows
    # "known: ...", or "free: only order can be read from it: ..." with the names of the constants
    constants: str


def admm(
    *,
    accuracy: float,
    confidence: float,
    reference_norm: ArrayLike,
    C: float,
    beta: float = 1.0,
    form: str = "corrected",
) -> SampleSize:
    """Compute the rows for ADMM without noise: 000, Theorem 2, and 001, Theorem 9 (appendix 3).

    ::

        printed     B > beta max_t  C   |f0|^2 ln(1/delta) / alpha_acc^2
        corrected   B > beta max_t  C^2 |f0|^2 ln(1/delta) / alpha_acc^2

    Then ``C E[L(f(t+1))] <= C E[L(f0)] + alpha_acc + Delta(t)`` with probability at least ``1 -
    delta``, where Delta(t) is how far round t is from convergence.

    Parameters
    ----------
    accuracy : float
        alpha_acc, in units of C times the loss.
    confidence : float
        delta, the probability of failure.
    reference_norm : float or array over rounds
        ``|f0|``.
    C : float
        Weight of the mean loss.
    beta : float
        The theorem's free constant.
    form : {"corrected", "printed"}
        Which of the two formulas.

    Returns
    -------
    SampleSize

    Raises
    ------
    InvalidInput
        If an argument is out of range.
    """
    alpha, delta = _positive("accuracy", accuracy), _chance("confidence", confidence)
    beta, C = _positive("beta", beta), _positive("C", C)
    (f,) = _rounds(reference_norm=reference_norm)
    return _free(beta * _statistical(f, C, alpha, delta, form), "beta_non")


def dvp(
    *,
    accuracy: float,
    confidence: float,
    reference_norm: ArrayLike,
    epsilon: ArrayLike,
    d: int,
    C: float,
    c1: float = 0.25,
    beta: float = 1.0,
    form: str = "corrected",
) -> SampleSize:
    """Compute the rows for dual variable perturbation: 000, Theorem 3, and 001, Theorem 10
    (appendix 4).

    ::

        "printed"   B > beta max( max_t   |f0(t)| d ln(1/delta) / (alpha_acc alpha(t)),       001
                                  max_t C c1 |f0(t)|^2          / (alpha_acc alpha(t)),
                                  max_t C   |f0(t)|^2 ln(1/delta) / alpha_acc^2 )
        "000"       the first is    |f0(t)| d ln(d/delta) / (alpha_acc alpha(t))              000
        "corrected" the first is  C |f0(t)| d ln(d/delta) / (alpha_acc alpha(t)), the third has C^2

    Then ``C E[L(f*(t))] <= C E[L(f0(t))] + alpha_acc`` with probability at least ``1 - 2 delta``,
    where f*(t) is the limit if the noise of round t stayed for ever; Corollary 11 adds the distance
    Delta(t) of f(t) from it.

    Parameters
    ----------
    accuracy : float
        alpha_acc, in units of C times the loss.
    confidence : float
        delta, the probability of failure of one statement.
    reference_norm, epsilon : float or array over rounds
        ``|f0(t)|``, and alpha(t), the parameter of the noise.
    d : int
        Number of features.
    C : float
        Weight of the mean loss.
    c1 : float
        Bound on the second derivative of the loss: 1/4 for the logistic loss.
    beta : float
        The theorem's free constant.
    form : {"corrected", "printed", "000"}
        Which of the formulas; "printed" is that of 001.

    Returns
    -------
    SampleSize

    Raises
    ------
    InvalidInput
        If an argument is out of range.
    """
    alpha, delta = _positive("accuracy", accuracy), _chance("confidence", confidence)
    beta = _positive("beta", beta)
    f, a = _rounds(reference_norm=reference_norm, epsilon=epsilon)
    d, C, c1 = _count("d", d), _positive("C", C), _positive("c1", c1)
    # 001 prints ln(1/delta) in the first term, 000 ln(d/delta); the third is the same in both
    if form == "000":
        form, noise = "printed", d * math.log(d / delta)
    elif _printed(form):
        noise = d * math.log(1 / delta)
    else:
        # the proof's bound on the norm of the noise, with the weight of the loss
        noise = C * d * math.log(d / delta)
    first, second = f * noise / (alpha * a), C * c1 * f**2 / (alpha * a)
    third = _statistical(f, C, alpha, delta, form)
    return _free(beta * max(np.max(first), np.max(second), third), "beta_dual")


def pvp(
    *,
    accuracy: float,
    confidence: float,
    reference_norm: ArrayLike,
    epsilon: ArrayLike,
    d: int,
    C: float,
    eta: float,
    degree: int,
    c4: float = 0.25,
    beta: float = 1.0,
    sent: bool = True,
    form: str = "corrected",
) -> SampleSize:
    """Compute the rows for primal variable perturbation: 001, Theorems 12 and 13, (26) (appendices
    5 and 6).

    ::

        printed     B > beta max over t of  C |f0(t)|^3 eta N_p d ln(d/delta)   / (alpha_acc^2 alpha(t)),
                                            C |f0(t)|^2 ln(1/delta)             / alpha_acc^2
        sent, also  4 C |f0(t)| d ln(d/delta)^2         / (alpha_acc alpha(t)),
                    4 |f0(t)|^3 eta N_p d ln(d/delta)   / (alpha_acc^2 alpha(t)),
                    4 C^(3/2) |f0(t)|^2 d ln(d/delta)   / (alpha_acc^(3/2) alpha(t))
        corrected   the second has C^2, the third ln(d/delta), the fourth C, the fifth sqrt(c4)

    With probability at least ``1 - 2 delta`` for the exact iterate f*(t), and ``1 - 3 delta`` for
    V*(t), which is sent. The final answer comes from a step of dual variable perturbation: by
    Corollary 15 it needs this bound and :func:`dvp`, and holds with probability at least ``1 - 5
    delta``.

    Parameters
    ----------
    accuracy : float
        alpha_acc, in units of C times the loss.
    confidence : float
        delta, the probability of failure of one statement.
    reference_norm, epsilon : float or array over rounds
        ``|f0(t)|``, and alpha(t), the parameter of the noise.
    d : int
        Number of features.
    C : float
        Weight of the mean loss.
    eta, degree : float, int
        Penalty, and N_p, the neighbours of the node.
    c4 : float
        Lipschitz constant of the loss's derivative; 1/4 for the logistic loss.  Not in the printed
        form.
    beta : float
        The theorem's free constant.
    sent : bool
        The iterate that is sent (Theorem 13), or the exact one that never leaves the node (Theorem
        12).
    form : {"corrected", "printed"}
        Which of the two formulas.

    Returns
    -------
    SampleSize

    Raises
    ------
    InvalidInput
        If an argument is out of range.
    """
    alpha, delta = _positive("accuracy", accuracy), _chance("confidence", confidence)
    beta = _positive("beta", beta)
    f, a = _rounds(reference_norm=reference_norm, epsilon=epsilon)
    d, C = _count("d", d), _positive("C", C)
    eta, degree = _positive("eta", eta), _count("degree", degree)
    c4, log = _positive("c4", c4), math.log(d / delta)
    penalty = f**3 * eta * degree * d * log / (alpha**2 * a)
    terms = [np.max(C * penalty), _statistical(f, C, alpha, delta, form)]
    if not sent:
        return _free(beta * max(terms), "beta^A_prim")
    # Factors of the third, fourth and fifth term of Theorem 13: a square too many of the logarithm
    # as printed, and C and sqrt(c4) missing.
    third, fourth, fifth = 1.0, C, math.sqrt(c4)
    if _printed(form):
        third, fourth, fifth = log, 1.0, 1.0
    terms.append(np.max(4 * C * f * d * log * third / (alpha * a)))
    terms.append(np.max(4 * fourth * penalty))
    terms.append(np.max(4 * fifth * C**1.5 * f**2 * d * log / (alpha**1.5 * a)))
    return _free(beta * max(terms), "beta^B_prim")


def mr_admm(
    *,
    accuracy: float,
    confidence: float,
    reference_norm: float,
    epsilon: ArrayLike | None = None,
    d: int = 1,
    C: float = 1.0,
    gap: ArrayLike = 0.0,
    a: float = 1.0,
    w: float = 1.0,
) -> SampleSize:
    """Compute the rows for MR-ADMM without noise and with it: 002, Theorems 3 and 4.

    ::

        Theorem 3   B >= w max_k |f_ref|^2 ln(1/delta) / (tau - Delta(k))^2
        Theorem 4   B >= w max_k C N ln(1/delta) / ( N C (tau - Delta(k))^2 / (2 |f_ref|^2)
                                                     - (1 + a) N d^2 ln(d/delta)^2 / (C alpha(k)^2) )

    Then ``E[L(f(2k-1))] <= E[L(f_ref)] + tau`` with probability at least ``1 - delta`` and ``1 - 2
    delta``.  ``inf`` if the denominator is not positive: nothing is promised, however many rows
    there are.  There is one form: 001's proof gives what is printed.  But as alpha grows Theorem 4
    tends to twice Theorem 3, where 002 says "the same".

    Parameters
    ----------
    accuracy : float
        tau.
    confidence : float
        delta, the probability of failure of one statement.
    reference_norm : float
        ``|f_ref|``.
    epsilon : float or array over odd rounds, optional
        alpha(k), the rate of the noise, whose density falls as ``exp(-alpha |noise|)``.  Without
        it, Theorem 3.
    d : int
        Number of features.
    C : float
        Weight of the mean loss.
    gap : float or array over odd rounds
        Delta(k) >= 0, how far round 2k-1 is from convergence; must be < tau.
    a : float
        **Free**, any number > 0; a smaller one makes w larger.
    w : float
        The theorems' free constant.

    Returns
    -------
    SampleSize

    Raises
    ------
    InvalidInput
        If an argument is out of range.
    """
    tau, delta = _positive("accuracy", accuracy), _chance("confidence", confidence)
    w = _positive("w", w)
    f, short = _positive("reference_norm", reference_norm), _shortfall(accuracy, gap)
    log = math.log(1 / delta)
    # Theorem 3: no noise
    if epsilon is None:
        return _free(w * np.max(f**2 * log / (tau - short) ** 2), "w")
    short, rate = _rounds(gap=short, epsilon=epsilon)
    d, C, a = _count("d", d), _positive("C", C), _positive("a", a)
    noise = (1 + a) * (d * math.log(d / delta) / (C * rate)) ** 2
    return _free(w * _over(log, (tau - short) ** 2 / (2 * f**2) - noise), "w, a")


def output_perturbation(
    *,
    accuracy: float,
    confidence: float,
    reference_norm: float,
    epsilon: float,
    d: int,
    c: float = 0.25,
    constant: float = 1.0,
    form: str = "corrected",
) -> SampleSize:
    """Compute the rows for output perturbation at one site, such as a site of the average method in
    its first scenario: 003, Theorem 3.2.

    ::

        corrected   n > K max( |f0|^2 ln(1/delta) / e_g^2,
                               |f0| d ln(d/delta) / (e_g e_p),
                               |f0|^2 d ln(d/delta) c^(1/2) / (e_g^(3/2) e_p) )
        printed     the second lacks the d

    Then ``E[L(f)] <= E[L(f0)] + e_g`` with probability at least ``1 - 2 delta``; f0 minimises the
    expected loss.

    Parameters
    ----------
    accuracy, epsilon : float
        e_g, and e_p, the epsilon of the release.
    confidence : float
        delta, the probability of failure of one statement.
    reference_norm : float
        ``|f0|``.
    d : int
        Number of features.
    c : float
        Lipschitz constant of the loss's derivative: 1/4 for the logistic loss.
    constant : float
        K, the theorem's free constant.
    form : {"corrected", "printed"}
        Which of the two formulas.

    Returns
    -------
    SampleSize

    Raises
    ------
    InvalidInput
        If an argument is out of range.
    """
    K, f = _positive("constant", constant), _positive("reference_norm", reference_norm)
    g, p = _positive("accuracy", accuracy), _price("epsilon", epsilon)
    delta, d, c = _chance("confidence", confidence), _count("d", d), _positive("c", c)
    log = math.log(d / delta)
    features = d
    if _printed(form):
        features = 1
    first = f**2 * math.log(1 / delta) / g**2
    second = f * log * features / (g * p)
    third = f**2 * d * log * math.sqrt(c) / (g**1.5 * p)
    return _free(K * max(first, second, third), "constant")


def objective_perturbation(
    *,
    accuracy: float,
    confidence: float,
    reference_norm: float,
    epsilon: float,
    d: int,
    c: float = 0.25,
    constant: float = 1.0,
) -> SampleSize:
    """Compute the rows for objective perturbation at one site: 003, Theorem 3.4.

    ::

        n > K max( |f0|^2 ln(1/delta) / e_g^2,  |f0|^2 c / (e_g e_p),  |f0| d ln(d/delta) / (e_g e_p) )

    for ``E[L(f)] <= E[L(f0)] + e_g`` with probability at least ``1 - 2 delta``.  It is 001's
    Theorem 10, corrected, with C = 1.

    Parameters
    ----------
    accuracy, epsilon : float
        e_g, and e_p, the epsilon of the release.
    confidence : float
        delta, the probability of failure of one statement.
    reference_norm : float
        ``|f0|``.
    d : int
        Number of features.
    c : float
        Bound on the second derivative of the loss: 1/4 for the logistic loss.
    constant : float
        K, the theorem's free constant.

    Returns
    -------
    SampleSize

    Raises
    ------
    InvalidInput
        If an argument is out of range.
    """
    bound = dvp(
        accuracy=accuracy,
        confidence=confidence,
        reference_norm=reference_norm,
        epsilon=epsilon,
        d=d,
        C=1.0,
        c1=c,
        beta=constant,
    )
    return _free(bound.value, "constant")


@dataclass(frozen=True, kw_only=True)
class FeatureMethod:
    """003, Theorems 4.12, 4.14 and 4.16: how far the feature method is from the best classifier f*,
    in mean square.

    With ``s = (lambda1 + Lambda lambda2)^2`` and ``G = L(0) - L(f*)``, ``E|f - f*|^2 <= 4 P Q + R``
    where::

        P   = k N / s (8 C4 C1^2 / m + 2 Lambda^2 C2 + 4 C1^2) + 8 N G / lambda1 + 4 N |f*|^2  [+ sites' noise]
        Q   = q / s (8 C4 C1^2 / m0 + 2 Lambda^2 C3 + 4 C1^2)                        [+ the aggregator's noise]
        R   = 4 G / lambda1                                        printed in (4.23) and (4.29): 2 G / lambda1

        4.12   no noise                k = 8, q = 4
        4.14   noise at the sites      k = 16, q = 4, sites' noise  16 N d^2 ln(d/delta)^2 / (s m^2 epsilon^2)
        4.16   at the aggregator too   k = 16, q = 8, its noise     8 N^2 ln(N/delta)^2 / (s m0^2 epsilon0^2)

    In expectation over rows; over the noise with probability at least ``(1-delta)^N`` and
    ``(1-delta)^(N+1)``.

    Parameters
    ----------
    N : int
        Sites.
    lambda1, lambda2, Lambda : float
        Strong convexity of the loss in the weights and of R, and the weight of R.  The logistic and
        Huber losses have lambda1 = 0, for which the bound is infinite; it is refused.
    reference_norm, loss_gap : float
        ``|f*|`` and G; G is at most ln 2 for the logistic loss.
    C1, C2, C3 : float
        ``E|grad l|^2 <= C1^2`` (1 for rows in the unit ball, which the aggregator's are not, and a
        loss of slope 1); bounds on the mean of ``|grad R|^2`` at f*_span, the best combination of
        the sites' models, and at its weights.
    C4 : float
        Constant of 003's Lemma 4.7.  **Known**: 1/2 will do, as the variance of ``|sum X_i|`` is at
        most ``sum E|X_i|^2``.
    epsilon, epsilon0 : float, optional
        Of the noise at the sites and at the aggregator.  Neither: 4.12.  `epsilon` only: 4.14.
        Both: 4.16.
    form : {"corrected", "printed"}
        Of R only.
    """

    N: int
    lambda1: float
    lambda2: float
    Lambda: float
    reference_norm: float
    loss_gap: float
    C1: float = 1.0
    C2: float = 1.0
    C3: float = 1.0
    C4: float = 0.5
    epsilon: float | None = None
    epsilon0: float | None = None
    d: int = 1
    confidence: float = 0.05
    form: str = "corrected"

    def __post_init__(self) -> None:
        for name in ("lambda1", "lambda2", "C1", "C4"):
            _positive(name, getattr(self, name))
        for name in ("Lambda", "reference_norm", "loss_gap", "C2", "C3"):
            _positive(name, getattr(self, name), zero=True)
        _count("N", self.N)
        _count("d", self.d)
        _chance("confidence", self.confidence)
        _printed(self.form)
        for name, price in (("epsilon", self.epsilon), ("epsilon0", self.epsilon0)):
            if price is not None:
                _price(name, price)
        if self.epsilon is None and self.epsilon0 is not None:
            rule = "needs epsilon: 003 has no theorem for noise at the aggregator only"
            raise InvalidInput("epsilon0", self.epsilon0, rule, "give both")

    def error(self, m: float, m0: float) -> float:
        """Compute the bound on ``E|f - f*|^2`` for m rows per site and m0 rows of the aggregator.

        With ``inf`` rows it is the floor that no number of rows passes.
        """
        P, Q, R = self._parts()
        return float(
            4 * np.polyval(P, 1 / _price("m", m)) * np.polyval(Q, 1 / _price("m0", m0)) + R
        )

    def rows(
        self, accuracy: float, *, m: float | None = None, m0: float | None = None
    ) -> SampleSize:
        """Find the fewest rows with which :meth:`error` is at most `accuracy`.

        Parameters
        ----------
        accuracy : float
            Wanted bound on ``E|f - f*|^2``.
        m : float, optional
            Rows per site; given, the rows of the aggregator are found.
        m0 : float, optional
            Rows of the aggregator; given, the rows per site are found.  With neither, both
            numbers are the same.

        Returns
        -------
        SampleSize
            ``inf`` if the floor of the bound is above `accuracy`, as it is for every small one.

        Raises
        ------
        InvalidInput
            If both `m` and `m0` are given, or a number is out of range.
        """
        P, Q, R = self._parts()
        target = (_positive("accuracy", accuracy) - R) / 4  # of P Q
        if m is not None and m0 is not None:
            raise InvalidInput(
                "m0", m0, "cannot be given together with m", "leave out the one to be computed"
            )
        if m is not None:
            value = _invert(Q, target / np.polyval(P, 1 / _price("m", m)))
        elif m0 is not None:
            value = _invert(P, target / np.polyval(Q, 1 / _price("m0", m0)))
        else:
            value = _invert(np.convolve(P, Q), target)
        return SampleSize(
            value, f"{KNOWN}: C4 = 1/2 (derived); C1, C2, C3 and loss_gap belong to the data"
        )

    def _parts(self) -> tuple[Array, Array, float]:
        """Return P and Q of the bound as coefficients of polynomials in 1/m and 1/m0, highest power
        first, and R.
        """
        N, delta, s = self.N, self.confidence, (self.lambda1 + self.Lambda * self.lambda2) ** 2
        # Theorem 4.12: no noise
        k, q = 8 * N / s, 4 / s
        sites, aggregator = 0.0, 0.0
        r = 4
        if _printed(self.form):
            r = 2
        # Theorem 4.14: k doubles, and P has the sites' noise
        if self.epsilon is not None:
            k = 16 * N / s
            sites = 16 * N * (self.d * math.log(self.d / delta) / self.epsilon) ** 2 / s
        # Theorem 4.16: q doubles, Q has the aggregator's noise, and the 4 of R is printed
        if self.epsilon0 is not None:
            q = 8 / s
            aggregator = 8 * (N * math.log(N / delta) / self.epsilon0) ** 2 / s
            r = 4
        falling, C1 = 8 * self.C4 * self.C1**2, 4 * self.C1**2
        fixed = 8 * N * self.loss_gap / self.lambda1 + 4 * N * self.reference_norm**2
        P = [sites, k * falling, k * (2 * self.Lambda**2 * self.C2 + C1) + fixed]
        Q = [aggregator, q * falling, q * (2 * self.Lambda**2 * self.C3 + C1)]
        return np.array(P), np.array(Q), r * self.loss_gap / self.lambda1


def pp_admm(
    *,
    accuracy: float,
    confidence: float,
    reference_norm: float,
    beta: float = 0.0,
    sigma1: ArrayLike = 0.0,
    sigma2: ArrayLike = 0.0,
    d: int = 1,
    gap: ArrayLike = 0.0,
    a: float = 1.0,
    V: float = 1.0,
    form: str = "corrected",
) -> SampleSize:
    """Compute the rows for plausible ADMM without noise and with it: 004, Theorems 3.4 and 3.5.

    ::

        printed     |D| >= V max_t ln(1/xi) / ( (a_acc - Delta(t))^2 / (2 |ref|^2) - (1 + a) (beta + H(t)) )
        H(t)        = sigma2 (a_acc - Delta(t)) sqrt(2 d ln(1/xi)) / |ref|^2 + 2 sigma1^2 d ln(1/xi)
        corrected   beta^2 in the place of beta

    Then ``E[L(theta(t))] <= E[L(ref)] + a_acc`` with probability at least ``1 - 3 xi``, or ``1 -
    xi`` without noise (H = 0, Theorem 3.4).  ``inf`` if the denominator is not positive.

    Parameters
    ----------
    accuracy : float
        a_acc.
    confidence : float
        xi, at most 1/2, where the bounds on the noise hold.
    reference_norm : float
        ``|ref|``.
    beta : float
        Largest norm of the gradient with which the local solver may stop.
    sigma1, sigma2 : float or array over rounds
        Standard deviations of the noise in the objective and on the answer.
    d : int
        Number of features.
    gap, a
        As in :func:`mr_admm`.
    V : float
        The theorems' free constant.
    form : {"corrected", "printed"}
        Which of the two formulas.

    Returns
    -------
    SampleSize

    Raises
    ------
    InvalidInput
        If an argument is out of range.
    """
    accuracy, xi = _positive("accuracy", accuracy), _chance("confidence", confidence)
    V = _positive("V", V)
    if xi > 0.5:
        raise InvalidInput(
            "confidence", confidence, "must be <= 1/2, for the norm of Gaussian noise", "use 0.05"
        )
    f, a = _positive("reference_norm", reference_norm), _positive("a", a)
    short, s1, s2 = _rounds(gap=_shortfall(accuracy, gap), sigma1=sigma1, sigma2=sigma2)
    beta, d, log = _positive("beta", beta, zero=True), _count("d", d), math.log(1 / xi)
    # H(t): noise on the answer, and in the objective
    H = s2 * (accuracy - short) * math.sqrt(2 * d * log) / f**2 + 2 * s1**2 * d * log
    # the proof gives the square of the gradient's norm, where the norm is printed
    inexact = beta**2
    if _printed(form):
        inexact = beta
    left = (accuracy - short) ** 2 / (2 * f**2) - (1 + a) * (inexact + H)
    return _free(V * _over(log, left), "V, a")


def self_consistent(bound: Callable[[float], SampleSize]) -> SampleSize:
    """Find the fewest rows n with ``n >= bound(n).value``, for noise that depends on n.

    ``bound(n)`` is the theorem's bound under the noise that n rows have; its value must not grow
    with n.  The result is within a relative 1e-9; ``inf`` if there is none up to 1e18.
    """
    last = bound(_MOST)
    if not last.value <= _MOST:
        return SampleSize(math.inf, last.constants)
    low, high = 0.0, math.log(_MOST)
    if bound(1.0).value <= 1.0:
        return SampleSize(1.0, last.constants)
    while high - low > 1e-9:
        middle = (low + high) / 2
        n = math.exp(middle)
        # the bound falls with n, so what is enough for n is enough for more
        if bound(n).value <= n:
            high = middle
        else:
            low = middle
    return SampleSize(math.exp(high), last.constants)


GOAL: dict[str, Any] = {"accuracy": 0.1, "confidence": 0.05, "reference_norm": 2.0}
NOISE: dict[str, Any] = {"epsilon": 1.0, "d": 100}
SETTING: dict[str, Any] = GOAL | NOISE | {"C": 10.0, "eta": 0.1, "degree": 2}
# 004: delta1 of its noise, and the gradient with which its solver stops
DELTA, TOLERANCE = (
    1e-5,
    10.0**-3.5,
)
_FEATURE = "4 G / lambda1 in R, where (4.23) and (4.29) have 2 G / lambda1"
DIFFERS = {
    "000, Theorem 3": "C |f0| d ln(d/delta) / (alpha_acc alpha) first, C^2 |f0|^2 ln(1/delta) / "
    "alpha_acc^2 third",
    "001, Theorem 9": "C^2 |f0|^2 ln(1/delta) / alpha_acc^2",
    "001, Theorem 10": "C |f0| d ln(d/delta) / (alpha_acc alpha) first, C^2 |f0|^2 ln(1/delta) / "
    "alpha_acc^2 third",
    "001, Theorem 12": "C^2 |f0|^2 ln(1/delta) / alpha_acc^2 second, a term that is not the "
    "largest here",
    "001, Theorem 13": "C^2 in the second term, ln(d/delta) and no square of it in the third, C "
    "in the fourth, "
    "sqrt(c_4) in the fifth",
    "003, Theorem 3.2": "d in the second term",
    "003, Theorem 4.12": _FEATURE,
    "003, Theorem 4.14": _FEATURE,
    "004, Theorem 3.4": "beta^2 in the place of beta",
    "004, Theorem 3.5": "beta^2 in the place of beta",
}
"""How the corrected form of a theorem differs from the printed one, whether or not that matters at
:data:`SETTING`.
"""


def table() -> list[dict[str, Any]]:
    """Compute the rows that every theorem asks for at :data:`SETTING`, printed and corrected.

    Free constants are 1.  Where the noise depends on the number of rows (002, Theorem 4; 004,
    Theorem 3.5), it is the fixed point of :func:`self_consistent`.
    """
    epsilon, one = NOISE["epsilon"], GOAL | NOISE
    dual, c = one | {"C": SETTING["C"]}, math.sqrt(2.0 * math.log(1.25 / DELTA))
    rate = epsilon / 2.0 / SETTING["C"]  # of 002's noise, a row: (32)
    span = partial(
        FeatureMethod,
        N=5,
        lambda1=1.0,
        lambda2=1.0,
        Lambda=0.01,
        reference_norm=2.0,
        loss_gap=0.01,
        d=100,
    )
    exact = partial(pp_admm, **GOAL, beta=TOLERANCE)
    # 000 prints another first term than 001
    of_000 = {"printed": "000", "corrected": "corrected"}
    bounds: dict[str, Callable[[str], SampleSize]] = {
        "000, Theorem 3": lambda form: dvp(**dual, form=of_000[form]),
        "001, Theorem 9": lambda form: admm(**GOAL, C=SETTING["C"], form=form),
        "001, Theorem 10": lambda form: dvp(**dual, form=form),
        "001, Theorem 12": lambda form: pvp(**SETTING, sent=False, form=form),
        "001, Theorem 13": lambda form: pvp(**SETTING, form=form),
        "002, Theorem 3": lambda _: mr_admm(**GOAL),
        "002, Theorem 4": lambda _: self_consistent(
            lambda n: mr_admm(**dual | {"epsilon": n * rate})
        ),
        "003, Theorem 3.2": lambda form: output_perturbation(**one, form=form),
        "003, Theorem 3.4": lambda _: objective_perturbation(**one),
        "003, Theorem 4.12": lambda form: span(form=form).rows(GOAL["accuracy"]),
        "003, Theorem 4.14": lambda form: span(form=form, epsilon=epsilon).rows(GOAL["accuracy"]),
        "003, Theorem 4.16": lambda form: span(form=form, epsilon=epsilon, epsilon0=epsilon).rows(
            GOAL["accuracy"]
        ),
        "004, Theorem 3.4": lambda form: exact(form=form),
        "004, Theorem 3.5": lambda form: self_consistent(
            lambda n: exact(sigma1=2 * c / n / epsilon, d=100, form=form)
        ),
    }
    found = {theorem: (bound("printed"), bound("corrected")) for theorem, bound in bounds.items()}
    return [
        {
            "theorem": theorem,
            "printed": printed.value,
            "corrected": ours.value,
            "constants": ours.constants,
        }
        | {"differs": DIFFERS.get(theorem, "")}
        for theorem, (printed, ours) in found.items()
    ]


def _invert(polynomial: Array, target: Any) -> float:
    """Return 1/x for the largest x with polynomial(x) <= target; all coefficients are >= 0.

    x is 1 over a number of rows, so the result is the fewest rows; ``inf`` if there is no x > 0.
    """

    def excess(x: float) -> float:
        return float(np.polyval(polynomial, x) - target)

    if not excess(0.0) < 0:
        return math.inf
    high = 1.0
    while excess(high) < 0:
        high *= 2.0
    return 1.0 / float(optimize.brentq(excess, 0.0, high, xtol=1e-300, rtol=1e-14, maxiter=2000))


def _statistical(f: Array, C: float, accuracy: float, delta: float, form: str) -> float:
    """Compute the term of 001's bounds that does not depend on the noise."""
    # the proof gives C^2, where C is printed
    weight = C**2
    if _printed(form):
        weight = C
    return np.max(weight * f**2 * math.log(1 / delta) / accuracy**2)


def _free(value: float, names: str) -> SampleSize:
    return SampleSize(float(value), f"{FREE}: {names}")


def _over(numerator: float, denominator: Array) -> float:
    """Divide by the smallest denominator over rounds; infinity if that is not positive."""
    smallest = float(np.min(denominator))
    # nothing is promised, however many rows there are
    if not smallest > 0:
        return math.inf
    return numerator / smallest


def _printed(form: str) -> bool:
    if form not in ("corrected", "printed"):
        raise InvalidInput("form", form, "must be 'corrected' or 'printed'", "use 'corrected'")
    return form == "printed"


def _shortfall(accuracy: float, gap: ArrayLike) -> Array:
    """Validate `gap`, and return it as an array over rounds; each must be below `accuracy`."""
    (short,) = _rounds(gap=gap)
    if not np.all(short < accuracy):
        raise InvalidInput(
            "gap",
            short.tolist(),
            f"must be < accuracy = {accuracy!r} in all rounds",
            "run more rounds",
        )
    return short


def _positive(name: str, value: float, *, zero: bool = False, infinite: bool = False) -> float:
    """Validate that a number is > 0, or >= 0 with `zero`, and finite unless `infinite`."""
    rule, holds = "> 0", value > 0
    if zero:
        rule, holds = ">= 0", value >= 0
    # a comparison with NaN does not hold
    if not holds or (math.isinf(value) and not infinite):
        if not infinite:
            rule = f"finite and {rule}"
        raise InvalidInput(name, value, f"must be {rule}", "correct it")
    return float(value)


_price = partial(_positive, infinite=True)


def _chance(name: str, value: float) -> float:
    if not 0 < value < 1:
        raise InvalidInput(
            name, value, "must be between 0 and 1: it is a probability of failure", "use 0.05"
        )
    return float(value)


def _count(name: str, value: int) -> int:
    if not (math.isfinite(value) and value >= 1 and value == int(value)):
        raise InvalidInput(name, value, "must be a whole number >= 1", "correct it")
    return int(value)


def _rounds(**given: ArrayLike) -> list[Array]:
    """Validate numbers, or one value per round, and broadcast them to arrays of one length."""
    values = {name: np.atleast_1d(np.asarray(value, dtype=float)) for name, value in given.items()}
    for name, value in values.items():
        if value.ndim != 1 or value.size == 0:
            raise InvalidInput(
                name, value.shape, "must be a number, or one value per round", "correct it"
            )
        for one in value.tolist():
            _positive(
                name, one, infinite=name == "epsilon", zero=name in ("gap", "sigma1", "sigma2")
            )
    if len({len(value) for value in values.values()} - {1}) > 1:
        lengths = {name: len(value) for name, value in values.items()}
        raise InvalidInput(
            "rounds", lengths, "must have the same length", "give numbers, or one value per round"
        )
    return list(np.broadcast_arrays(*values.values()))
