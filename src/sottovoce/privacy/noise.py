"""Where randomness comes from: keyed streams in simulation, the operating system at a site.

Laws are drawn at unit scale; the query that knows the sensitivity scales them.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from ..typing import Array


class Noise(ABC):
    """A source of noise vectors of shape ``(*lead, d)``.

    ``release`` numbers the charged releases of a node, ``use`` the draws within one release; a keyed source returns
    the same vector for the same pair, so that a resumed run repeats the run that was interrupted.
    """

    simulated: bool
    """True where the noise can be repeated by whoever knows the seed: such a run is no release."""

    @abstractmethod
    def spherical(self, d: int, release: int, use: int = 0) -> Array:
        """Vectors of density proportional to ``exp(-||v||)``: direction uniform, norm Gamma(d, 1)."""


class KeyedNoise(Noise):
    """Streams keyed by (seed, replicate, node, release, use), for simulations and tests only.

    Parameters
    ----------
    seed : int
    replicates, nodes : sequence of int
        Which streams; the result has the shape ``(len(replicates), len(nodes), d)``, less the axes that `lead` drops.
    lead : tuple
        Leading shape of a draw; by default ``(len(replicates), len(nodes))``, and ``()`` for one site.
    """

    simulated = True

    def __init__(
        self, seed: int, replicates: Sequence[int], nodes: Sequence[int], lead: tuple[int, ...] | None = None
    ) -> None:
        digest = hashlib.blake2b(f"sottovoce noise {seed}".encode(), digest_size=16).digest()
        self._key = np.frombuffer(digest, dtype=np.uint64)
        self._streams = [(r, i) for r in replicates for i in nodes]
        self._lead = (len(replicates), len(nodes)) if lead is None else lead

    def _generator(self, replicate: int, node: int, release: int, use: int) -> np.random.Generator:
        # The lowest counter word is the stream's own; the others name it, so streams cannot overlap.
        counter = np.array([0, (release << 8) | use, node, replicate], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=self._key, counter=counter))

    def spherical(self, d: int, release: int, use: int = 0) -> Array:
        out = np.empty((len(self._streams), d))
        for row, (replicate, node) in zip(out, self._streams, strict=True):
            rng = self._generator(replicate, node, release, use)
            direction = rng.standard_normal(d)
            row[:] = direction * (rng.standard_gamma(d) / np.linalg.norm(direction))
        return out.reshape(*self._lead, d)


class SystemNoise(Noise):
    """The operating system's generator.  Nothing is seeded, nothing can be repeated.

    Normals are inverse-CDF images of 53-bit uniforms and the norm is a sum of exponentials, so no pseudo-random
    generator stands between the operating system and the release.
    """

    simulated = False

    def __init__(self, lead: tuple[int, ...] = ()) -> None:
        self._lead = lead

    @staticmethod
    def _uniform(shape: tuple[int, ...]) -> Array:
        words = np.frombuffer(os.urandom(8 * int(np.prod(shape, dtype=int))), dtype=np.uint64)
        return ((words >> np.uint64(11)).astype(float).reshape(shape) + 0.5) * 2.0**-53

    def spherical(self, d: int, release: int, use: int = 0) -> Array:
        direction = ndtri(self._uniform((*self._lead, d)))
        norm = -np.log(self._uniform((*self._lead, d))).sum(axis=-1, keepdims=True)
        return np.asarray(direction * norm / np.linalg.norm(direction, axis=-1, keepdims=True))
