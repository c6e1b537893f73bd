"""Sources of noise: streams keyed by a seed in a simulation, the operating system at a site.

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


def scaled_power_of_two(x: Array, more: int = 0) -> Array:
    """Return the largest power of two up to `x`, times ``2^more``, exactly.

    A logarithm would round, and differ by machine.
    """
    return np.asarray(np.ldexp(1.0, np.frexp(x)[1] - 1 + more))


class Noise(ABC):
    """A source of noise vectors of shape ``(*lead, d)``.

    ``release`` numbers the charged releases of a node, ``use`` the draws within one.  A keyed
    source returns the same vector for the same pair, so that a resumed run repeats the interrupted
    one.
    """

    simulated: bool
    """Whether a seed repeats the noise: a run with it is a simulation, not a release."""

    def load_libraries(self) -> None:  # noqa: B027 - most need nothing
        """Load, before a charge, the libraries of `draw_spherical` and `draw_gaussian`.

        A draw is too late to find one broken.
        """

    @abstractmethod
    def draw_spherical(self, d: int, release: int, use: int = 0) -> Array:
        """Draw vectors of density proportional to ``exp(-||v||)``.

        Their direction is uniform and their norm has the law Gamma(d, 1).

        Parameters
        ----------
        d : int
            Entries of a vector.
        release : int
            Running number of the release.
        use : int
            Number of the draw within the release.

        Returns
        -------
        array of shape (..., d)
        """

    @abstractmethod
    def draw_gaussian(self, d: int, release: int, use: int = 0) -> Array:
        """Draw vectors of independent standard normals.

        Parameters
        ----------
        d : int
            Entries of a vector.
        release : int
            Running number of the release.
        use : int
            Number of the draw within the release.

        Returns
        -------
        array of shape (..., d)
        """

    @abstractmethod
    def add_gaussian(
        self, w: Array, sigma: Array, coarsest: Array, release: int, use: int = 1
    ) -> Array:
        """Add noise ``N(0, sigma^2 I)`` to an answer.

        Parameters
        ----------
        w : array of shape (..., d)
            The exact answer.
        sigma : array of shape (..., 1)
            Standard deviation of each entry's noise, > 0.
        coarsest : array of shape (..., 1)
            Largest step of the grid.  A release is rounded to a grid of step at most
            ``min(coarsest, 2^-40 sigma)``, and the noise is exact there.
        release : int
            Running number of the release.
        use : int
            Number of the draw within the release.

        Returns
        -------
        array of shape (..., d)
        """

    @abstractmethod
    def draw_rounded_gaussian(self, d: int, tau: Array, release: int, use: int = 1) -> IntArray:
        """Draw rounded normals, for shares of a sum on a common grid.

        Parameters
        ----------
        d : int
            Entries of a vector.
        tau : array of shape (..., 1)
            Standard deviation in steps of the grid.
        release : int
            Running number of the release.
        use : int
            Number of the draw within the release.

        Returns
        -------
        integer array of shape (..., d)
        """

    @abstractmethod
    def add_spherical(
        self, w: Array, rate: Array, coarsest: Array, release: int, use: int = 1
    ) -> Array:
        """Add spherical noise of density ``exp(-rate ||v||)`` to an answer.

        Parameters
        ----------
        w : array of shape (..., d)
            The exact answer.
        rate : array of shape (..., 1)
            Rate of the noise, > 0.
        coarsest : array of shape (..., 1)
            Largest step of the grid to which a release is rounded; the noise is exact there.
        release : int
            Running number of the release.
        use : int
            Number of the draw within the release.

        Returns
        -------
        array of shape (..., d)
        """


class KeyedNoise(Noise):
    """Streams keyed by (seed, replicate, node, release, use), for simulations and tests only.

    Parameters
    ----------
    seed : int
        Whoever knows it can remove the noise.
    replicates, nodes : sequence of int
        Numbers of the replicates and nodes that are drawn for.
    lead : tuple of int, optional
        Leading axes of a draw, ``(len(replicates), len(nodes))`` by default; ``()`` for one site.
    """

    simulated = True

    def __init__(
        self,
        seed: int,
        replicates: Sequence[int],
        nodes: Sequence[int],
        lead: tuple[int, ...] | None = None,
    ) -> None:
        digest = hashlib.blake2b(f"sottovoce noise {seed}".encode(), digest_size=16).digest()
        self._bits = np.random.Philox(key=np.frombuffer(digest, dtype=np.uint64))
        # One generator for all streams, and its state before any draw, with counters at 0.
        self._rng, self._unused = np.random.Generator(self._bits), self._bits.state
        self._streams = [(r, i) for r in replicates for i in nodes]
        if lead is None:
            lead = (len(replicates), len(nodes))
        self._lead = lead

    def _generators_by_stream(self, release: int, use: int) -> Iterator[np.random.Generator]:
        """Yield the generator, moved to the start of each stream in turn.

        That is far cheaper than making generators.
        """
        # The lowest counter word is the stream's own; the others name it, so streams cannot
        # overlap.
        bits, unused, rng = self._bits, self._unused, self._rng
        counter = unused["state"]["counter"]
        counter[0], counter[1] = 0, (release << 8) | use
        for counter[3], counter[2] in self._streams:
            bits.state = unused
            yield rng

    def draw_spherical(self, d: int, release: int, use: int = 0) -> Array:
        """Draw spherical noise: a normal direction times a Gamma(d, 1) norm.

        Parameters
        ----------
        d, release, use
            As for :meth:`Noise.draw_spherical`.

        Returns
        -------
        array of shape (..., d)
        """
        directions, norms = np.empty((len(self._streams), d)), list[float]()
        for row, rng in zip(directions, self._generators_by_stream(release, use), strict=True):
            rng.standard_normal(out=row)
            norms.append(rng.standard_gamma(d))
        directions *= np.array(norms)[:, None] / np.linalg.norm(directions, axis=-1, keepdims=True)
        return directions.reshape(*self._lead, d)

    def draw_gaussian(self, d: int, release: int, use: int = 0) -> Array:
        """Draw standard normals of each stream.

        Parameters
        ----------
        d, release, use
            As for :meth:`Noise.draw_gaussian`.

        Returns
        -------
        array of shape (..., d)
        """
        out = np.empty((len(self._streams), d))
        for row, rng in zip(out, self._generators_by_stream(release, use), strict=True):
            rng.standard_normal(out=row)
        return out.reshape(*self._lead, d)

    def add_gaussian(
        self, w: Array, sigma: Array, coarsest: Array, release: int, use: int = 1
    ) -> Array:
        """Add Gaussian noise in double precision, without a grid.

        Parameters
        ----------
        w, sigma, coarsest, release, use
            As for :meth:`Noise.add_gaussian`; `coarsest` is not used.

        Returns
        -------
        array of shape (..., d)
        """
        return np.asarray(w + sigma * self.draw_gaussian(w.shape[-1], release, use))

    def draw_rounded_gaussian(self, d: int, tau: Array, release: int, use: int = 1) -> IntArray:
        """Draw normals and round them.

        Parameters
        ----------
        d, tau, release, use
            As for :meth:`Noise.draw_rounded_gaussian`.

        Returns
        -------
        integer array of shape (..., d)
        """
        return np.asarray(np.rint(tau * self.draw_gaussian(d, release, use)).astype(np.int64))

    def add_spherical(
        self, w: Array, rate: Array, coarsest: Array, release: int, use: int = 1
    ) -> Array:
        """Add spherical noise in double precision, without a grid.

        Parameters
        ----------
        w, rate, coarsest, release, use
            As for :meth:`Noise.add_spherical`; `coarsest` is not used.

        Returns
        -------
        array of shape (..., d)
        """
        return np.asarray(w + self.draw_spherical(w.shape[-1], release, use) / rate)


class SystemNoise(Noise):
    """Noise from the operating system: nothing is seeded, and no draw can be repeated.

    Noise inside an objective is continuous: normals are inverse-CDF images of uniforms with 53
    significant bits at every size, so that an error is a small share of the normal itself; norms
    are sums of exponentials.  Noise on an answer is exact on a grid
    (:mod:`sottovoce.privacy.exact`).
    """

    simulated = False

    def __init__(self, lead: tuple[int, ...] = ()) -> None:
        exact.prepare_tables()
        self._lead = lead

    def load_libraries(self) -> None:
        special.import_module_now()

    @staticmethod
    def _random_words(shape: tuple[int, ...]) -> NDArray[np.uint64]:
        """Draw words of 64 random bits from the operating system."""
        return np.frombuffer(
            os.urandom(8 * int(np.prod(shape, dtype=int))), dtype=np.uint64
        ).reshape(shape)

    @classmethod
    def _random_uniform(cls, shape: tuple[int, ...]) -> Array:
        """Draw uniforms in (0, 1): a binade by its exact probability, and 53 bits in it.

        Binades go down to 2^-960.
        """
        exponent, open_ = np.zeros(shape, dtype=int), np.ones(shape, dtype=bool)
        # The leading zero bits of an endless word tell the binade; 15 words of zeros, of
        # probability 2^-960, end the search.
        for _ in range(15):
            word = cls._random_words(shape)
            # In two parts, as a double holds 53 bits of a word exactly.
            high = (word >> np.uint64(11)).astype(float)
            low = (word & np.uint64(0x7FF)).astype(float)
            leading = np.where(
                high > 0, 53 - np.frexp(high)[1], np.where(low > 0, 64 - np.frexp(low)[1], 64)
            )
            exponent += np.where(open_, leading, 0)
            open_ &= word == 0
            if not open_.any():
                break
        mantissa = (
            1.0 + ((cls._random_words(shape) >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52
        )
        return np.asarray(np.ldexp(mantissa, -(exponent + 1)))

    def _random_normal(self, shape: tuple[int, ...]) -> Array:
        """Draw standard normals by inverting the distribution of ``|x|``.

        Half of them come from below its median, half from above, so that small and large values are
        precise.
        """
        word, share = self._random_words(shape), 0.5 * self._random_uniform(shape)
        size = np.where(
            word & np.uint64(2), np.sqrt(2.0) * special.erfinv(share), -special.ndtri(0.5 * share)
        )
        return np.asarray(np.where(word & np.uint64(1), -size, size))

    def draw_spherical(self, d: int, release: int, use: int = 0) -> Array:
        """Draw spherical noise as a normal direction times a sum of d exponentials.

        Parameters
        ----------
        d, release, use
            As for :meth:`Noise.draw_spherical`; `release` and `use` key nothing.

        Returns
        -------
        array of shape (..., d)
        """
        direction = self._random_normal((*self._lead, d))
        norm = -np.log(self._random_uniform((*self._lead, d))).sum(axis=-1, keepdims=True)
        return np.asarray(direction * norm / np.linalg.norm(direction, axis=-1, keepdims=True))

    def draw_gaussian(self, d: int, release: int, use: int = 0) -> Array:
        """Draw standard normals.

        Parameters
        ----------
        d, release, use
            As for :meth:`Noise.draw_gaussian`; `release` and `use` key nothing.

        Returns
        -------
        array of shape (..., d)
        """
        return self._random_normal((*self._lead, d))

    def add_gaussian(
        self, w: Array, sigma: Array, coarsest: Array, release: int, use: int = 1
    ) -> Array:
        """Round an answer to its grid, and add exact Gaussian noise there.

        Parameters
        ----------
        w, sigma, coarsest, release, use
            As for :meth:`Noise.add_gaussian`; `release` and `use` key nothing.

        Returns
        -------
        array of shape (..., d)
        """
        return self._add_noise_on_grid(
            w, np.minimum(coarsest, sigma * 2.0**-40), sigma, exact.rounded_gaussian
        )

    def draw_rounded_gaussian(self, d: int, tau: Array, release: int, use: int = 1) -> IntArray:
        """Draw exactly rounded normals, modulo ``2^64``.

        Parameters
        ----------
        d, tau, release, use
            As for :meth:`Noise.draw_rounded_gaussian`; `release` and `use` key nothing.

        Returns
        -------
        integer array of shape (..., d)
        """
        scales = np.broadcast_to(tau, (*self._lead, 1)).ravel().tolist()
        drawn = exact.rounded_gaussian(d, scales, [1.0] * len(scales)).reshape(*self._lead, d)
        # Python's integers, modulo 2^64 as sums are.
        if drawn.dtype == object:
            drawn = (drawn & (2**64 - 1)).astype(np.uint64).view(np.int64)
        return drawn

    def add_spherical(
        self, w: Array, rate: Array, coarsest: Array, release: int, use: int = 1
    ) -> Array:
        """Round an answer to its grid, and add exact spherical noise there.

        Parameters
        ----------
        w, rate, coarsest, release, use
            As for :meth:`Noise.add_spherical`; `release` and `use` key nothing.

        Returns
        -------
        array of shape (..., d)
        """
        return self._add_noise_on_grid(w, coarsest, rate, exact.rounded_spherical)

    @staticmethod
    def _add_noise_on_grid(
        w: Array,
        coarsest: Array,
        scale: Array,
        draw: Callable[[int, list[float], list[float]], IntArray],
    ) -> Array:
        """Round `w` to its grid, and add noise on that grid.

        The sum of whole numbers is rounded once, to a double; where doubles hold the noise, IEEE
        addition does that.  No branch that is taken here depends on `w`.
        """
        steps = scaled_power_of_two(np.broadcast_to(coarsest, (*w.shape[:-1], 1)))
        scales = np.broadcast_to(scale, steps.shape)
        noise = draw(w.shape[-1], scales.ravel().tolist(), steps.ravel().tolist()).reshape(w.shape)
        cells = w / steps
        np.rint(cells, out=cells)
        if max(noise.max(), -noise.min()) <= 2**53:
            cells += noise
            cells *= steps
            return cells
        both = zip(cells.ravel().tolist(), noise.ravel().tolist(), strict=True)
        return np.asarray(
            np.array([float(int(cell) + more) for cell, more in both]).reshape(w.shape) * steps
        )
