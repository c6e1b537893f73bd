"""Exact draws of continuous noise, rounded to a grid.

A release is a grid point plus continuous noise, correctly rounded to the grid: post-processing of the continuous law's
release.  So every price of that law holds, and only the rounding of the point itself adds to it.

Of each uniform only the first bits are drawn, and every value computed from them is an interval (ball arithmetic,
FLINT).  Where an interval does not decide a rounding, more bits are drawn.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import flint

from ..util.typing import Any

_FIRST = 128  # bits a uniform starts with, beyond those that tell one grid point from the next


@dataclass
class _Uniform:
    """A uniform in (0, 1) of which the first `bits` binary digits have been drawn."""

    draw: Callable[[int], bytes]
    digits: int = 0
    bits: int = 0

    def ball(self, bits: int) -> Any:
        """The interval of all numbers that begin with the digits so far, of which there are at least `bits`."""
        more = -(-max(0, bits - self.bits) // 8)
        self.digits = (self.digits << 8 * more) | int.from_bytes(self.draw(more), "big")
        self.bits += 8 * more
        return flint.arb((2 * self.digits + 1, -self.bits - 1), flint.arb((1, -self.bits - 1)))


def rounded_spherical(d: int, rate: float, step: float, draw: Callable[[int], bytes] = os.urandom) -> list[int]:
    """``round(x / step)`` for ``x`` in R^d of density proportional to ``exp(-rate ||x||)``, exactly distributed.

    Parameters
    ----------
    d : int
    rate, step : float
        Both > 0; their exact binary values are used.
    draw : callable
        Takes a number and returns as many random bytes.

    Notes
    -----
    ``x = z ||z'|| / rate`` with independent standard normals ``z`` in R^d and ``z'`` in R^{d+1} has that density, a
    mixture of Gaussians (``docs/privacy/verdicts.md``, "Noise on a grid").  Normals come in pairs
    ``sqrt(-2 ln u) (cos, sin)(2 pi t)``, and chi-squared with two degrees of freedom is ``-2 ln u``.
    """
    pairs, halves = _pairs(-(-d // 2) + (d + 1) % 2, draw), [_Uniform(draw) for _ in range((d + 1) // 2)]

    def coordinates(bits: int) -> list[Any]:
        normals = _normals(pairs, bits)
        squared = sum((-2 * u.ball(bits).log() for u in halves), flint.arb(0))
        if (d + 1) % 2:
            squared += normals.pop() ** 2
        scale = squared.sqrt() / (flint.arb(rate) * flint.arb(step))
        return [z * scale for z in normals[:d]]

    return _rounded(coordinates, math.log2(d) - math.log2(rate) - math.log2(step))


def rounded_gaussian(d: int, sigma: float, step: float, draw: Callable[[int], bytes] = os.urandom) -> list[int]:
    """``round(x / step)`` for ``x`` of law ``N(0, sigma^2 I)`` in R^d, as :func:`rounded_spherical`."""
    pairs = _pairs(-(-d // 2), draw)

    def coordinates(bits: int) -> list[Any]:
        scale = flint.arb(sigma) / flint.arb(step)
        return [z * scale for z in _normals(pairs, bits)[:d]]

    return _rounded(coordinates, math.log2(sigma) - math.log2(step))


def _pairs(count: int, draw: Callable[[int], bytes]) -> list[tuple[_Uniform, _Uniform]]:
    return [(_Uniform(draw), _Uniform(draw)) for _ in range(count)]


def _normals(pairs: Sequence[tuple[_Uniform, _Uniform]], bits: int) -> list[Any]:
    normals = []
    for u, t in pairs:
        sine, cosine = (2 * t.ball(bits)).sin_cos_pi()
        length = (-2 * u.ball(bits).log()).sqrt()
        normals += [length * cosine, length * sine]
    return normals


def _rounded(coordinates: Callable[[int], list[Any]], width: float) -> list[int]:
    """The nearest whole numbers of the coordinates, drawing bits until all are decided; they are about ``2^width``."""
    bits = _FIRST + max(0, math.ceil(width))
    while True:
        with flint.ctx.workprec(2 * bits):
            cells = [(x + flint.arb(0.5)).floor().unique_fmpz() for x in coordinates(bits)]
        if all(cell is not None for cell in cells):
            return [int(cell) for cell in cells]
        bits *= 2
