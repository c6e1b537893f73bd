"""Noise: keyed streams in a simulation, the operating system at a site.

Draws are of unit scale; the query, which knows the sensitivity, scales them.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..util.later import Later
from ..util.typing import Array, IntArray
from . import exact

special = Later("scipy.special")


def power(x: Array, more: int = 0) -> Array:
    """The largest power of two up to `x`, times ``2^more``, exactly: a logarithm rounds, and differs by machine."""
    return np.asarray(np.ldexp(1.0, np.frexp(x)[1] - 1 + more))


class Noise(ABC):
    """A source of noise vectors of shape ``(*lead, d)``.

    ``release`` numbers the charged releases of a node, ``use`` the draws within one.  A keyed source returns the same
    vector for the same pair, so that a resumed run repeats the interrupted one.
    """

    simulated: bool
    """Whether the noise can be repeated from a seed: a run with it is a simulation, not a release."""

    def load(self) -> None:  # noqa: B027 - most need nothing
        """Load, before a charge, the libraries of `spherical` and `gaussian`: a draw is too late to find one broken."""

    @abstractmethod
    def spherical(self, d: int, release: int, use: int = 0) -> Array:
        """Vectors of density proportional to ``exp(-||v||)``: direction uniform, norm Gamma(d, 1)."""

    @abstractmethod
    def gaussian(self, d: int, release: int, use: int = 0) -> Array:
        """Vectors of independent standard normals."""

    @abstractmethod
    def add_gaussian(self, w: Array, sigma: Array, coarsest: Array, release: int, use: int = 1) -> Array:
        """`w` plus noise ``N(0, sigma^2 I)``.

        A release is rounded to a grid of step at most ``min(coarsest, 2^-40 sigma)``, and the noise is exact there;
        `sigma` and `coarsest` have shape (..., 1).
        """

    @abstractmethod
    def steps(self, d: int, tau: Array, release: int, use: int = 1) -> IntArray:
        """Whole numbers of standard deviation `tau` (..., 1), shape (..., d), for a sum on a common grid.

        They are rounded normals.
        """

    @abstractmethod
    def add_pure(self, w: Array, rate: Array, coarsest: Array, release: int, use: int = 1) -> Array:
        """`w` plus noise of density ``exp(-rate ||v||)``; a release is rounded to a grid as in `add_gaussian`."""


class KeyedNoise(Noise):
    """Streams keyed by (seed, replicate, node, release, use), for simulations and tests only.

    A draw has the shape ``(*lead, d)``, `lead` being ``(len(replicates), len(nodes))`` unless given, as ``()`` for one
    site.
    """

    simulated = True

    def __init__(
        self, seed: int, replicates: Sequence[int], nodes: Sequence[int], lead: tuple[int, ...] | None = None
    ) -> None:
        digest = hashlib.blake2b(f"sottovoce noise {seed}".encode(), digest_size=16).digest()
        self._bits = np.random.Philox(key=np.frombuffer(digest, dtype=np.uint64))
        self._rng, self._unused = np.random.Generator(self._bits), self._bits.state
        self._streams = [(r, i) for r in replicates for i in nodes]
        self._lead = (len(replicates), len(nodes)) if lead is None else lead

    def _starts(self, release: int, use: int) -> Iterator[np.random.Generator]:
        """The generator, moved to the start of each stream in turn: far cheaper than making generators."""
        # The lowest counter word is the stream's own; the others name it, so streams cannot overlap.
        bits, unused, rng = self._bits, self._unused, self._rng
        counter = unused["state"]["counter"]
        counter[0], counter[1] = 0, (release << 8) | use
        for counter[3], counter[2] in self._streams:
            bits.state = unused
            yield rng

    def spherical(self, d: int, release: int, use: int = 0) -> Array:
        directions, norms = np.empty((len(self._streams), d)), list[float]()
        for row, rng in zip(directions, self._starts(release, use), strict=True):
            rng.standard_normal(out=row)
            norms.append(rng.standard_gamma(d))
        directions *= np.array(norms)[:, None] / np.linalg.norm(directions, axis=-1, keepdims=True)
        return directions.reshape(*self._lead, d)

    def gaussian(self, d: int, release: int, use: int = 0) -> Array:
        out = np.empty((len(self._streams), d))
        for row, rng in zip(out, self._starts(release, use), strict=True):
            rng.standard_normal(out=row)
        return out.reshape(*self._lead, d)

    def add_gaussian(self, w: Array, sigma: Array, coarsest: Array, release: int, use: int = 1) -> Array:
        return np.asarray(w + sigma * self.gaussian(w.shape[-1], release, use))

    def steps(self, d: int, tau: Array, release: int, use: int = 1) -> IntArray:
        return np.asarray(np.rint(tau * self.gaussian(d, release, use)).astype(np.int64))

    def add_pure(self, w: Array, rate: Array, coarsest: Array, release: int, use: int = 1) -> Array:
        return np.asarray(w + self.spherical(w.shape[-1], release, use) / rate)


class SystemNoise(Noise):
    """Noise from the operating system: nothing is seeded, and no draw can be repeated.

    Noise inside an objective is continuous: normals are inverse-CDF images of uniforms with 53 significant bits at
    every size, so that an error is a small share of the normal itself; norms are sums of exponentials.  Noise on an
    answer is exact on a grid (:mod:`sottovoce.privacy.exact`).
    """

    simulated = False

    def __init__(self, lead: tuple[int, ...] = ()) -> None:
        exact.prepare()
        self._lead = lead

    def load(self) -> None:
        special.load()

    @staticmethod
    def _words(shape: tuple[int, ...]) -> NDArray[np.uint64]:
        return np.frombuffer(os.urandom(8 * int(np.prod(shape, dtype=int))), dtype=np.uint64).reshape(shape)

    @classmethod
    def _uniform(cls, shape: tuple[int, ...]) -> Array:
        """Uniforms in (0, 1): a binade with its exact probability, down to 2^-960, and 53 bits in it."""
        exponent, open_ = np.zeros(shape, dtype=int), np.ones(shape, dtype=bool)
        for _ in range(15):
            word = cls._words(shape)
            high, low = ((part).astype(float) for part in (word >> np.uint64(11), word & np.uint64(0x7FF)))
            leading = np.where(high > 0, 53 - np.frexp(high)[1], np.where(low > 0, 64 - np.frexp(low)[1], 64))
            exponent += np.where(open_, leading, 0)
            open_ &= word == 0
            if not open_.any():
                break
        mantissa = 1.0 + ((cls._words(shape) >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52
        return np.asarray(np.ldexp(mantissa, -(exponent + 1)))

    def _normal(self, shape: tuple[int, ...]) -> Array:
        """Half of them from below the median of ``|x|``, half from above, so small and large values are precise."""
        word, share = self._words(shape), 0.5 * self._uniform(shape)
        size = np.where(word & np.uint64(2), np.sqrt(2.0) * special.erfinv(share), -special.ndtri(0.5 * share))
        return np.asarray(np.where(word & np.uint64(1), -size, size))

    def spherical(self, d: int, release: int, use: int = 0) -> Array:
        direction = self._normal((*self._lead, d))
        norm = -np.log(self._uniform((*self._lead, d))).sum(axis=-1, keepdims=True)
        return np.asarray(direction * norm / np.linalg.norm(direction, axis=-1, keepdims=True))

    def gaussian(self, d: int, release: int, use: int = 0) -> Array:
        return self._normal((*self._lead, d))

    def add_gaussian(self, w: Array, sigma: Array, coarsest: Array, release: int, use: int = 1) -> Array:
        return self._on_grid(w, np.minimum(coarsest, sigma * 2.0**-40), sigma, exact.rounded_gaussian)

    def steps(self, d: int, tau: Array, release: int, use: int = 1) -> IntArray:
        scales = np.broadcast_to(tau, (*self._lead, 1)).ravel().tolist()
        drawn = exact.rounded_gaussian(d, scales, [1.0] * len(scales)).reshape(*self._lead, d)
        if drawn.dtype == object:  # modulo 2^64, as sums are
            drawn = (drawn & (2**64 - 1)).astype(np.uint64).view(np.int64)
        return drawn

    def add_pure(self, w: Array, rate: Array, coarsest: Array, release: int, use: int = 1) -> Array:
        return self._on_grid(w, coarsest, rate, exact.rounded_spherical)

    @staticmethod
    def _on_grid(
        w: Array, coarsest: Array, scale: Array, draw: Callable[[int, list[float], list[float]], IntArray]
    ) -> Array:
        """`w` rounded to its grid, plus noise on that grid: a sum of whole numbers, rounded once, to a double.

        Where doubles hold the noise, IEEE addition does that.  No way that is taken here depends on `w`.
        """
        steps = power(np.broadcast_to(coarsest, (*w.shape[:-1], 1)))
        scales = np.broadcast_to(scale, steps.shape)
        noise = draw(w.shape[-1], scales.ravel().tolist(), steps.ravel().tolist()).reshape(w.shape)
        cells = w / steps
        np.rint(cells, out=cells)
        if max(noise.max(), -noise.min()) <= 2**53:
            cells += noise
            cells *= steps
            return cells
        both = zip(cells.ravel().tolist(), noise.ravel().tolist(), strict=True)
        return np.asarray(np.array([float(int(cell) + more) for cell, more in both]).reshape(w.shape) * steps)
