"""Batched minimisation of local objectives, with a certificate.

The objective of node i and replicate r, in the papers' scale, is

    F(w) = (C / n_i) sum_k loss(a_k.w) + linear.w + (q / 2) ||w||^2,        a_k = y_k x_k, ||a_k|| <= 1,
    grad F(w) = (C / n_i) sum_k slope(a_k.w) a_k + linear + q w,
    Hess F(w) = (C / n_i) sum_k bend(a_k.w) a_k a_k' + q I  >=  q I.

Since F is q-strongly convex, ``||grad F(w)|| <= g`` certifies ``||w - argmin F|| <= g / q``: the gradient norm that a
solve returns is a proof of how close it came.

Method: limited-memory BFGS on top of a Newton preconditioner.  The Hessian's data term is factorised once per node at
a *reference point* and shared by all replicates and rounds (the quadratic term only shifts its spectrum), so that
replicates of one node cost one matrix product together.  Margins are linear in w: a line search needs no product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .data.rows import Rows
from .errors import SolverError
from .losses import Loss
from .typing import Array

MEMORY = 10
MAX_ITERATIONS = 500
WIDEST = 2000
"""Features up to which the preconditioner is the whole reference Hessian, and beyond which its diagonal."""


def certified_error(C: float, tol: float, q: Array) -> Array:
    """Largest distance between a certified answer and the exact minimiser, shape of `q`, known before any solve.

    ``2 C tol / q``: one ``C tol`` for the gradient norm that the certificate asks for, one for the rounding with which
    that norm was computed, which the solver checks against :func:`gradient_rounding`.
    """
    return 2.0 * C * tol / q


def gradient_rounding(
    C: float, n: Array, bend_bound: float, w: Array, linear: Array, q: Array, outputs: int = 1
) -> Array:
    """Bound on the error of the gradient computed in double precision, shape (..., 1).

    With unit roundoff u, products of length m err by at most ``m u`` times the product of norms (any order of
    summation).  A margin errs by ``d u ||w||``, hence its slope by ``c1 d u ||w|| + 8 u``; n slopes times rows of norm
    at most one, weighted by C/n, err by ``C (n u + c1 d u ||w|| + 8 u)``; the rest by ``4 u (||linear|| + q ||w||)``.
    With K > 1 margins a row, each is a difference of two products, K slopes err by sqrt K of what their margins do, and
    gradients add up over K blocks: ``2 K`` times the first bound covers it.
    """
    u, d = 2.0**-53, w.shape[-1]
    size = np.linalg.norm(w, axis=-1, keepdims=True)
    data = C * u * (n + bend_bound * d * size + 8.0) * (1.0 if outputs == 1 else 2.0 * outputs)
    return np.asarray(data + 4.0 * u * (np.linalg.norm(linear, axis=-1, keepdims=True) + q * size))


@dataclass(frozen=True)
class Solution:
    """Minimisers of shape (..., d), with the gradient norms reached (..., 1) and the iterations spent."""

    w: Array
    gradient_norm: Array
    iterations: int


class Solver:
    """Solves the local problems of the nodes in `rows`.

    Parameters
    ----------
    rows : Rows
        N nodes.
    loss : Loss
    C : float

    Notes
    -----
    The preconditioner is rebuilt at the solves number 1, 2, 4, 8, ... from the mean start over replicates (public
    values), which :meth:`state` returns and :meth:`restore` takes, so that a resumed run repeats every bit.
    """

    def __init__(self, rows: Rows, loss: Loss, C: float) -> None:
        rows.check(loss.outputs)
        self._design = rows.design()
        self._weight = C / rows.n  # (N, 1)
        self._loss = loss
        self._C = C
        self._solves = 0
        self._reference = np.zeros((len(rows.n), rows.d))
        self._basis: Array | None = None
        self._spectrum: Array | None = None

    def state(self) -> dict[str, Array]:
        """What :meth:`restore` needs to go on bit by bit."""
        return {"solves": np.array(self._solves), "reference": self._reference}

    def restore(self, state: dict[str, Array]) -> None:
        """Go on from a :meth:`state`."""
        self._solves = int(state["solves"])
        self._factorise(np.asarray(state["reference"], dtype=float))

    def skip(self, start: Array) -> None:
        """Take note of a solve whose answer is known already, so that later solves repeat every bit."""
        self._count(self._stack(start, start.shape[:-1]))

    def _stack(self, x: Array, lead: tuple[int, ...]) -> Array:
        """(..., width) -> (N, R, width)."""
        x = np.broadcast_to(x, (*lead, x.shape[-1]))
        return np.ascontiguousarray(x.reshape(-1, len(self._reference), x.shape[-1]).transpose(1, 0, 2))

    def _count(self, start: Array) -> None:
        self._solves += 1
        if self._spectrum is None or self._solves & (self._solves - 1) == 0:
            self._factorise(start.mean(axis=1))

    def _factorise(self, reference: Array) -> None:
        self._reference = reference
        margins = self._design.margins(reference[:, None, :])[:, 0]
        weights = self._loss.bend(margins) * self._weight
        if reference.shape[1] > WIDEST:
            self._spectrum, self._basis = self._design.diagonal(weights), None
        else:
            self._spectrum, self._basis = np.linalg.eigh(self._design.gram(weights))

    def minimise(self, linear: Array, q: Array, start: Array, tol: float) -> Solution:
        """Minimise for every leading index.

        Parameters
        ----------
        linear, start : array (..., d)
            ``...`` is ``()`` for one node, or ``(R, N)`` or ``(N,)`` for all.
        q : array (..., 1)
            Curvature of the quadratic term, > 0.
        tol : float
            Certificate relative to the data term: ``||grad|| <= tol * C``.

        Raises
        ------
        SolverError
            If the certificate is not reached, or rounding alone could hide that it was missed.
        """
        lead = np.broadcast_shapes(linear.shape[:-1], start.shape[:-1])
        w0, c = self._stack(start, lead), self._stack(linear, lead)
        curvature = self._stack(np.broadcast_to(q, (*lead, 1)), lead)
        self._count(w0)
        goal = tol * self._C
        w, iterations = self._lbfgs(w0, c, curvature, 0.9 * goal)
        norms = np.linalg.norm(self._gradient(w, c, curvature), axis=-1, keepdims=True)  # margins afresh
        n = (self._C / self._weight)[:, :, None]
        hidden = gradient_rounding(self._C, n, self._loss.bend_bound, w, c, curvature, self._loss.outputs)
        if not (np.all(norms <= goal) and np.all(hidden <= goal)):
            raise SolverError(
                f"tol={tol:g}: double precision cannot certify a gradient norm this small here; use a larger tol"
            )

        def unstack(x: Array) -> Array:
            return x.transpose(1, 0, 2).reshape(*lead, x.shape[-1])

        return Solution(unstack(w), unstack(norms), iterations)

    def gradient(self, w: Array, part: int = 0, parts: int = 1) -> Array:
        """The data term's gradient ``(C / n) sum_k slope(a_k.w) a_k``, shape (..., d).

        Parameters
        ----------
        w : array (..., d)
        part, parts : int
            Rows ``part, part + parts, ...`` only, weighted by C over the least number of rows of any such part.
        """
        lead, points = w.shape[:-1], self._stack(w, w.shape[:-1])
        design = self._design.every(part, parts)
        weight = self._C / np.maximum(np.floor(self._C / self._weight / parts), 1.0)
        out = weight[:, :, None] * design.combine(self._loss.slope(design.margins(points)))
        return np.asarray(out.transpose(1, 0, 2).reshape(*lead, w.shape[-1]))

    def objective(self, w: Array, clip: float) -> Array:
        """The data term ``(C / n) sum_k min(loss(a_k.w), clip)``, shape (..., 1)."""
        lead, points = w.shape[:-1], self._stack(w, w.shape[:-1])
        values = np.minimum(self._loss.value(self._design.margins(points)), clip)
        rows = np.arange(values.shape[-1]) < (self._C / self._weight)[:, :, None]  # not those that fill up small nodes
        out = self._weight[:, :, None] * np.sum(values * rows, axis=-1, keepdims=True)
        return np.asarray(out.transpose(1, 0, 2).reshape(*lead, 1))

    def _gradient(self, w: Array, c: Array, q: Array) -> Array:
        slopes = self._loss.slope(self._design.margins(w))
        return np.asarray(self._weight[:, :, None] * self._design.combine(slopes) + c + q * w)

    def _lbfgs(self, w: Array, c: Array, q: Array, goal: float) -> tuple[Array, int]:
        assert self._spectrum is not None
        out_w, out_norm = w.copy(), np.full(w.shape[:2], np.inf)
        # The working set is a rectangle nodes x replicates that shrinks as solves finish.
        node, rep = np.arange(w.shape[0]), np.arange(w.shape[1])
        design, weight = self._design, self._weight[:, :, None]
        basis, spectrum = self._basis, self._spectrum[:, None, :]
        z = design.margins(w)
        g = weight * design.combine(self._loss.slope(z)) + c + q * w
        steps: list[tuple[Array, Array, Array]] = []
        for iteration in range(MAX_ITERATIONS):
            norm = np.sqrt(np.einsum("brd,brd->br", g, g))
            out_w[np.ix_(node, rep)], out_norm[np.ix_(node, rep)] = w, norm
            open_ = norm > goal
            if not open_.any():
                return out_w, iteration
            keep_node, keep_rep = open_.any(axis=1), open_.any(axis=0)
            if keep_node.sum() * keep_rep.sum() <= 0.75 * open_.size:
                cut = np.ix_(keep_node, keep_rep)
                node, rep = node[keep_node], rep[keep_rep]
                w, c, q, z, g = w[cut], c[cut], q[cut], z[cut], g[cut]
                steps = [(s[cut], y[cut], r[cut]) for s, y, r in steps]
                if not keep_node.all():
                    design, weight, spectrum = design.keep(keep_node), weight[keep_node], spectrum[keep_node]
                    basis = None if basis is None else basis[keep_node]
            p = self._direction(g, steps, basis, spectrum, q)
            zp = design.margins(p)
            t, slope = self._step(z, zp, weight, np.einsum("brd,brd->br", p, c + q * w), p, q, g)
            z += t * zp
            s = t * p
            w = w + s
            g_new = weight * design.combine(slope) + c + q * w
            y = g_new - g
            sy = np.einsum("brd,brd->br", s, y)
            # F is q-strongly convex, so <s, y> >= q |s|^2 > 0 unless the step is lost in rounding.
            rho = np.divide(1.0, sy, out=np.zeros_like(sy), where=sy > 0)
            steps = [*steps[-(MEMORY - 1) :], (s, y, rho[:, :, None])]
            g = g_new
        worst = float(out_norm.max())
        raise SolverError(
            f"tol={goal / self._C:g}: a local solve stopped after {MAX_ITERATIONS} iterations short of its certificate "
            f"by a factor {worst / goal:.3g}; use a larger rho or tol"
        )

    def _direction(
        self, g: Array, steps: list[tuple[Array, Array, Array]], basis: Array | None, spectrum: Array, q: Array
    ) -> Array:
        """Two-loop recursion around the shifted spectral inverse of the reference Hessian."""
        p = -g
        alphas = []
        for s, y, rho in reversed(steps):
            alpha = rho * np.einsum("brd,brd->br", s, p)[:, :, None]
            p = p - alpha * y
            alphas.append(alpha)
        if basis is None:  # the diagonal alone
            p = p / (spectrum + q)
        else:
            p = np.matmul(np.matmul(p, basis) / (spectrum + q), basis.transpose(0, 2, 1))
        for (s, y, rho), alpha in zip(steps, reversed(alphas), strict=True):
            p = p + s * (alpha - rho * np.einsum("brd,brd->br", y, p)[:, :, None])
        return p

    def _step(
        self, z: Array, zp: Array, weight: Array, linear_p: Array, p: Array, q: Array, g: Array
    ) -> tuple[Array, Array]:
        """Step lengths with a slope at most 0.4 of the starting slope, and the loss slopes there.

        ``phi'(t) = weight sum_k slope(z_k + t zp_k) zp_k + (c + q w).p + t q ||p||^2`` increases in t (F is convex),
        so secant steps inside a bracket converge.
        """
        curve = q[:, :, 0] * np.einsum("brd,brd->br", p, p)
        start = np.einsum("brd,brd->br", g, p)
        t = np.ones_like(start)
        low, low_phi = np.zeros_like(t), start
        high, high_phi = np.full_like(t, np.inf), np.zeros_like(t)
        for _ in range(30):
            slope = self._loss.slope(z + t[:, :, None] * zp)
            phi = weight[:, :, 0] * np.einsum("brn,brn->br", slope, zp) + linear_p + t * curve
            bad = np.abs(phi) > 0.4 * np.abs(start)
            if not bad.any():
                break
            below = phi < 0
            low, low_phi = np.where(bad & below, t, low), np.where(bad & below, phi, low_phi)
            high, high_phi = np.where(bad & ~below, t, high), np.where(bad & ~below, phi, high_phi)
            with np.errstate(invalid="ignore", divide="ignore"):
                secant = low - low_phi * (high - low) / (high_phi - low_phi)
            inside = low + np.clip((secant - low) / np.where(np.isfinite(high), high - low, 1.0), 0.1, 0.9) * (
                np.where(np.isfinite(high), high - low, 1.0)
            )
            t = np.where(bad, np.where(np.isfinite(high), inside, 2.0 * t), t)
        return t[:, :, None], slope
