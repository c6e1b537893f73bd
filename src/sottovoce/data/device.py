"""Rows in another array library, on a GPU for example: :class:`sottovoce.data.design.Dense` by the
array API standard.

Only rows and margins are on the device.  Classifiers, noise, ledgers and the solver's algebra are
small and stay NumPy arrays on the host.  So noise streams are the same on every backend, and
results agree to within the certificate, the solver's proved bound on its error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from ..util.later import Later
from ..util.typing import Any, Array
from .design import Storage, norms_rounded_up

compat = Later("array_api_compat")

LIBRARIES = {
    "torch": "array_api_compat.torch",
    "cupy": "array_api_compat.cupy",
    "jax": "jax.numpy",
    "array_api_strict": "array_api_strict",
}
_BLOCK = {"cpu": 2**17}  # margins of one block, where the device is the host
_LARGE = 2**26  # on any other device


@dataclass(frozen=True)
class Backend:
    """An array library and one of its devices."""

    xp: Any
    device: Any

    @property
    def margins_per_block(self) -> int:
        """Margins of one block: as many as fit a cache on the host, and enough to keep a GPU
        busy.
        """
        return _BLOCK.get(str(self.device or "cpu").split(":")[0].lower(), _LARGE)

    def copy_to_device(self, x: NDArray[Any]) -> Any:
        """Copy an array to the device, in the same precision."""
        host = np.ascontiguousarray(x)
        # PyTorch shares memory, and takes none that cannot be written.
        own = np.require(host, requirements="W")
        if self.device is None:
            return self.xp.asarray(own)
        return self.xp.asarray(own, device=self.device)

    def copy_to_host(self, x: Any) -> Array:
        """Copy an array to the host, as a NumPy array."""
        if self.device is not None:
            x = compat.to_device(x, "cpu")
        return np.asarray(np.from_dlpack(x), dtype=float)


@cache
def backend_from_spec(spec: str) -> Backend:
    """Return the array library and device of a name.

    Names are ``"torch"``, ``"torch:cuda"``, ``"cupy"``, ``"jax"`` or ``"array_api_strict"``.

    Raises
    ------
    InvalidInput
        If the library is unknown or not installed, or has no such device.
    """
    name, _, device = spec.partition(":")
    if name not in LIBRARIES:
        raise InvalidInput(
            "backend", spec, f"must be one of numpy, {', '.join(LIBRARIES)}", "use 'numpy'"
        )
    try:
        xp = import_module(LIBRARIES[name])
    except ImportError:
        rule = f"the package {name} is not installed"
        raise InvalidInput("backend", spec, rule, f"pip install {name}, or use 'numpy'") from None
    if name == "jax":
        import_module("jax").config.update("jax_enable_x64", True)
        place = import_module("jax").devices(device)[0] if device else None
        return Backend(xp, place)
    found = Backend(xp, device or None)
    try:
        found.copy_to_device(np.zeros(1))
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(
            "backend", spec, f"has no such device here ({reason})", f"use {name!r}"
        ) from None
    return found


@dataclass(frozen=True)
class OnDevice(Storage):
    """Rows as one array (M, n, d) of another library."""

    a: Any
    home: Backend

    def to_storage_array(self, x: Array) -> Any:
        return self.home.copy_to_device(x)

    def to_numpy_array(self, x: Any) -> Array:
        return self.home.copy_to_host(x)

    @property
    def margins_per_block(self) -> int:
        return self.home.margins_per_block

    @property
    def is_on_this_machine(self) -> bool:
        return False

    def _in_precision_of_rows(self, x: Any) -> Any:
        """Copy `x` to the device, in the rows' precision."""
        if isinstance(x, np.ndarray):
            x = self.home.copy_to_device(x)
        return self.home.xp.astype(x, self.a.dtype)

    def margins_at(self, w: Array) -> Any:
        return self.home.xp.matmul(
            self._in_precision_of_rows(w), self.home.xp.matrix_transpose(self.a)
        )

    def weighted_row_sum(self, derivatives: Any) -> Array:
        return self.home.copy_to_host(
            self.home.xp.matmul(self._in_precision_of_rows(derivatives), self.a)
        )

    def weighted_gram(self, weights: Any) -> Array:
        xp = self.home.xp
        scaled = self.a * xp.sqrt(self._in_precision_of_rows(weights))[:, :, None]
        return self.home.copy_to_host(xp.matmul(xp.matrix_transpose(scaled), scaled))

    def gram_diagonal(self, weights: Any) -> Array:
        return self.home.copy_to_host(
            self.home.xp.sum(self._in_precision_of_rows(weights)[:, :, None] * self.a**2, axis=1)
        )

    def row_norm_bounds(self) -> Any:
        return norms_rounded_up(self.home.xp.sum(self.a**2, axis=2), int(self.a.shape[2]))

    def select_nodes(self, nodes: Any) -> OnDevice:
        where = self.home.copy_to_device(np.flatnonzero(nodes))
        return OnDevice(self.home.xp.take(self.a, where, axis=0), self.home)

    def every_nth_row(self, part: int, parts: int) -> OnDevice:
        return OnDevice(self.a[:, part::parts, :], self.home)

    @property
    def n(self) -> int:
        return int(self.a.shape[1])

    def slice_rows(self, first: int, last: int) -> OnDevice:
        return OnDevice(self.a[:, first:last, :], self.home)

    def in_single_precision(self) -> OnDevice:
        return OnDevice(self.home.xp.astype(self.a, self.home.xp.float32), self.home)


def backend_spec_of(x: Any) -> str:
    """Return the backend of an array; ``"numpy"`` for all that NumPy can convert."""
    # The common case, without loading array_api_compat.
    if isinstance(x, np.ndarray):
        return "numpy"
    try:
        name = compat.array_namespace(x).__name__
    except TypeError:
        return "numpy"
    library = next((known for known in LIBRARIES if known in name), "numpy")
    if library != "torch":
        return library
    place = str(getattr(x, "device", ""))
    if place in ("", "cpu"):
        return library
    return f"{library}:{place}"
