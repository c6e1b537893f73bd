"""Nelder and Mead's method as scipy has it by default, to the last bit, at half its cost for many parameters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np

from sottovoce.util.typing import Array, IntArray

NEAR = 1e-4
"""scipy's ``xatol`` and ``fatol``: both the simplex and the values on it end within this."""
PER_PARAMETER = 200
"""scipy's limit of evaluations, and of iterations."""
_FIRST = 0.00025  # scipy's first step along every axis from a zero


class _Spent(Exception):
    """The limit of evaluations is reached."""


class _Simplex:
    """Corners and the values there, the least first.

    scipy copies all corners to sort them after every step, and measures the whole simplex before every step.  Here they
    are copied only where their order changes, and measured only where the values are near already.
    """

    def __init__(self, at: Callable[[Array], float], d: int) -> None:
        self.at, self.d, self.calls = at, d, 0
        self.most = PER_PARAMETER * d
        self.corners = np.zeros((d + 1, d))
        self.corners[1:] = _FIRST * np.eye(d)
        self.spare = np.empty_like(self.corners)
        self.values = np.array([self.value(corner.copy()) for corner in self.corners])
        self.sorted: IntArray = np.arange(d + 1)
        self.sort()
        self.sort()  # as scipy: where values are equal, a second sort may turn them

    def value(self, x: Array) -> float:
        if self.calls >= self.most:
            raise _Spent
        self.calls += 1
        return self.at(x)

    def sort(self) -> None:
        order = self.values.argsort()
        if (order == self.sorted).all():
            return
        self.values = self.values[order]
        self.corners.take(order, axis=0, out=self.spare, mode="clip")
        self.corners, self.spare = self.spare, self.corners

    def ended(self) -> bool:
        first, last = self.values[0], self.values[-1]
        return bool(last - first <= NEAR and np.abs(self.corners[1:] - self.corners[0]).max() <= NEAR)

    def replace(self, x: Array, value: float) -> None:
        """Put another corner in the place of the worst."""
        self.corners[-1], self.values[-1] = x, value

    def step(self) -> None:
        """Reflect the worst corner at the middle of the others; then expand, contract or shrink."""
        worst, values = self.corners[-1], self.values
        middle = np.add.reduce(self.corners[:-1], 0) / self.d
        reflected = 2.0 * middle - worst
        there = self.value(reflected)
        if there < values[0]:
            expanded = 3.0 * middle - 2.0 * worst
            beyond = self.value(expanded)
            if beyond < there:
                self.replace(expanded, beyond)
            else:
                self.replace(reflected, there)
        elif there < values[-2]:
            self.replace(reflected, there)
        elif there < values[-1]:
            outside = 1.5 * middle - 0.5 * worst
            halfway = self.value(outside)
            if halfway <= there:
                self.replace(outside, halfway)
            else:
                self.shrink()
        else:
            inside = 0.5 * middle + 0.5 * worst
            halfway = self.value(inside)
            if halfway < values[-1]:
                self.replace(inside, halfway)
            else:
                self.shrink()

    def shrink(self) -> None:
        """Draw all corners halfway to the best."""
        best = self.corners[0]
        for j in range(1, self.d + 1):
            self.corners[j] = best + 0.5 * (self.corners[j] - best)
            self.values[j] = self.value(self.corners[j].copy())


def from_zero(at: Callable[[Array], float], d: int) -> tuple[Array, float, bool]:
    """What ``scipy.optimize.minimize(at, np.zeros(d), method="Nelder-Mead")`` finds.

    Returns
    -------
    x : array (d,)
    value : float
    stopped : bool
        Whether a limit ended it.
    """
    simplex, iterations = _Simplex(at, d), 1
    while simplex.calls < simplex.most and iterations < simplex.most:
        if simplex.ended():
            break
        with suppress(_Spent):  # the corners so far are sorted, and the loop ends
            simplex.step()
            iterations += 1
        simplex.sort()
    stopped = simplex.calls >= simplex.most or iterations >= simplex.most
    return simplex.corners[0].copy(), float(simplex.values[0]), stopped
