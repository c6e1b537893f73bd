"""Exact draws of continuous noise, rounded to a grid, by the vector.

A release is a grid point plus continuous noise, correctly rounded to the grid: post-processing of
the continuous law's release.  So every price of that law holds, and only the rounding of the point
itself adds to it.

Of each random number only the first bits are drawn.  Every decision is a comparison of whole
numbers, made by NumPy where these bits decide it; where they do not, more bits are drawn and Python
decides.  Floating point decides nothing.  The algorithm is Karney's (2016, algorithm N) with bins
of a sixteenth of the standard deviation instead of a whole one; ``docs/privacy/exact_noise.md`` has
the proof, and the names that are used here.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from ..util.typing import BoolArray, IntArray

Draw = Callable[[int], bytes]
Words = NDArray[np.uint64]

# Bins in a standard deviation.
_BINS = 16
# A coin is a uniform whole number from 0 to _M - 1; bin k has a probability in proportion to
# exp(-k^2 / _M).
_M = 2 * _BINS**2
# Leading bits of a uniform that NumPy works with; with a coin of 9 bits and a sign they fill a word
# of 64 bits.
_FIRST = 54
# Bits of the uniform that selects the bin.
_BIN = 32
# The number of leading bits among these that a table is indexed by; they select most bins.
_GUIDE = 12
# Bits of the bins' borders that are computed beforehand, for where _BIN bits leave the bin open.
_STORED = 256
# Attempts that are made at a time, so that they stay in a processor's cache.
_BLOCK = 8192
# Bits that are drawn at a time where more are needed.
_MORE = 63
# Whole numbers from here on are stored as Python integers, not as int64.
_FITS = 2**62


class _Real:
    """A uniform number in (0, 1) of which only the first bits are drawn.

    It lies in ``[digits, digits + 1] / 2^bits`` and is uniform there; :meth:`refine_interval` draws
    further bits.
    """

    def __init__(self, draw: Draw, digits: int = 0, bits: int = 0) -> None:
        self.draw, self.digits, self.bits = draw, digits, bits

    def refine_interval(self, bits: int = _MORE) -> None:
        """Draw so many further bits."""
        drawn = int.from_bytes(self.draw(-(-bits // 8)), "little") & ((1 << bits) - 1)
        self.digits, self.bits = self.digits << bits | drawn, self.bits + bits

    def is_certainly_less(self, other: _Real) -> bool:
        """Return whether it is less than another, by as many bits as that takes."""
        while True:
            both = min(self.bits, other.bits)
            own, others = self.digits >> (self.bits - both), other.digits >> (other.bits - both)
            # Different beginnings decide, whatever the bits to come are; equal ones do not.
            if own != others:
                return own < others
            if self.bits == both:
                self.refine_interval()
            else:
                other.refine_interval()


# --- Bins ---


@lru_cache(maxsize=4)
def _bin_boundaries(bits: int) -> tuple[int, ...]:
    """Return ``floor(2^bits P(bin <= k))`` for k = 0, 1, ..., up to the first ``2^bits - 1``.

    Bin k has a probability proportional to ``exp(-k^2 / 512)``.  All digits are certified.
    """
    # 64 binary digits more than the borders have; more still where the two bounds differ.
    width = bits + 64
    while True:
        # Decimal digits of `width` bits: log10(2) = 0.30103.
        context = Context(prec=math.ceil(0.30103 * width) + 4)
        one, masses = Decimal(2**width), list[int]()
        while not masses or masses[-1]:
            power = context.divide(Decimal(-(len(masses) ** 2)), Decimal(_M))
            # Each mass is off by less than 2.
            masses.append(int(context.multiply(context.exp(power), one)))
        # Bound on the error of every partial sum, and of the rest beyond the computed masses, a
        # geometric series.  With too few digits the floors of both bounds differ, and all is
        # computed again with more.
        error = 2 * len(masses) + _M
        whole, part, floors = sum(masses), 0, list[int]()
        for mass in masses:
            part += mass
            least = ((part - error) << bits) // (whole + error)
            # Some mass is always left.
            most = min(((part + error) << bits) // (whole - error), 2**bits - 1)
            if least != most:
                break
            floors.append(least)
            if least == 2**bits - 1:
                return tuple(floors)
        width += 64


@lru_cache(maxsize=4)
def _first_bit_tables(bits: int) -> tuple[IntArray, NDArray[np.uint32]]:
    """Return tables that tell most bins from the first bits of a uniform.

    The first has the bin by the first bits, -1 where they do not tell it; the second the first
    `bits` bits of the borders.
    """
    cuts = np.array([cut >> (_STORED - bits) for cut in _bin_boundaries(_STORED)], dtype=np.uint32)
    rest = bits - min(_GUIDE, bits)
    first = np.arange(1 << (bits - rest), dtype=np.uint64) << np.uint64(rest)
    least = np.searchsorted(cuts, first, side="left")
    most = np.searchsorted(cuts, first + np.uint64((1 << rest) - 1), side="right")
    return np.where(least == most, least, -1).astype(np.int64), cuts


def prepare_tables() -> None:
    """Compute the tables before a first draw, which would do it otherwise."""
    _first_bit_tables(_BIN)


def _bin_of_uniform(u: _Real) -> int:
    """Return the number of borders below `u`."""
    while True:
        cuts = _bin_boundaries(max(_STORED, u.bits))
        beyond = max(0, _STORED - u.bits)
        found = bisect_left(cuts, u.digits, key=lambda cut: cut >> beyond)
        # Only a border that begins with the very digits of u leaves the bin open.
        if cuts[found] >> beyond != u.digits:
            return found
        u.refine_interval(beyond or u.bits)


# --- Normals ---


@dataclass
class _Normals:
    """Independent standard normals ``+-(k + x) / 16``, of which only the first bits are drawn.

    Attributes
    ----------
    first : array of int (n,)
        ``floor(2^54 (k + x))``, with the bin k and x in (0, 1).
    negative : array of bool (n,)
        Their signs.
    deep : dict
        By position: k and x of the numbers of which more bits have been drawn.
    """

    first: IntArray
    negative: BoolArray
    deep: dict[int, tuple[int, _Real]] = field(default_factory=dict)

    def exact_normal(self, at: int, draw: Draw) -> tuple[int, _Real]:
        """Return k and x of a number, for decisions by more bits; they are remembered."""
        first = int(self.first[at])
        k, digits = first >> _FIRST, first & ((1 << _FIRST) - 1)
        return self.deep.setdefault(at, (k, _Real(draw, digits, _FIRST)))

    def slice_of_normals(self, start: int, size: int) -> _Normals:
        """Return `size` of the numbers, from `start` on."""
        every = slice(start, start + size)
        deep = {
            at - start: number for at, number in self.deep.items() if start <= at < start + size
        }
        return _Normals(self.first[every], self.negative[every], deep)


def _accepted_normals(count: int, draw: Draw) -> _Normals:
    """Return the first `count` attempts that are accepted."""
    parts, found, deep = list[_Normals](), 0, dict[int, tuple[int, _Real]]()
    while found < count:
        left = count - found
        # About 0.976 of the attempts are accepted.  How many are made at a time does not change the
        # law.
        part = _accepted_attempts(min(_BLOCK, int(1.03 * left + math.sqrt(left)) + 8), draw)
        deep |= {found + at: number for at, number in part.deep.items()}
        parts.append(part)
        found += part.first.size
    first, negative = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("first", "negative")
    )
    return _Normals(first, negative, deep).slice_of_normals(0, count)


def _random_words(count: int, draw: Draw) -> Words:
    """Draw so many words of 64 random bits."""
    return np.frombuffer(draw(8 * count), dtype=np.uint64)


def _accepted_attempts(count: int, draw: Draw) -> _Normals:
    """Return the accepted ones of `count` attempts, in their order.

    An attempt is decided by a uniform u, which tells the bin k, by a word of x, a sign and a coin,
    and by a sequence of pairs of words, of which seldom any is looked at: see
    :func:`_decide_attempt`, which says the same one by one.
    """
    # The bin: the number of borders below u.
    guide, cuts = _first_bit_tables(_BIN)
    u = np.frombuffer(draw(4 * count), dtype=np.uint32) >> np.uint32(32 - _BIN)
    heads = _random_words(count, draw)
    k = guide[u >> np.uint32(_BIN - min(_GUIDE, _BIN))]
    unknown = np.flatnonzero(k < 0)
    k[unknown] = np.searchsorted(cuts, u[unknown])
    doubtful = [unknown[cuts[k[unknown]] == u[unknown]]]
    x, rest = _split_words(heads)
    coin, negative, accepted = rest & (_M - 1), rest >= _M, np.ones(count, dtype=bool)
    # Step j goes on while y_1 > y_2 > ... and the coins allow it; an attempt whose run has even
    # length is accepted.  What the first bits leave open (equal words) is decided below with more
    # bits.
    lanes, passed = np.flatnonzero(coin <= 2 * k), 0
    coin, y, drawn = coin[lanes], x[lanes], list[tuple[IntArray, Words, Words]]()
    while lanes.size:
        z_words, r_words = _random_words(lanes.size, draw), _random_words(lanes.size, draw)
        drawn.append((lanes, z_words, r_words))
        (z, rest), (r, _) = _split_words(z_words), _split_words(r_words)
        # The coin alone decides unless it is 2 k: then a further uniform r is compared with x, so
        # that it says yes with probability (2 k + x) / 512.
        edge = coin == 2 * k[lanes]
        doubtful.append(lanes[(z == y) | edge & (r == x[lanes])])
        on = (z < y) & (~edge | (r < x[lanes]))
        passed += 1
        lanes, y, coin = lanes[on], z[on], rest[on] & (_M - 1)
        accepted[lanes] = passed % 2 == 0
        on = coin <= 2 * k[lanes]
        lanes, y, coin = lanes[on], y[on], coin[on]
    first, deep = k << _FIRST | x, dict[int, tuple[int, _Real]]()
    # Done again from the same words, in the place among the attempts that it had.
    for lane in np.unique(np.concatenate(doubtful)).tolist():
        pairs = [(int(z[j]), int(r[j])) for at, z, r in drawn for j in np.flatnonzero(at == lane)]
        number = _decide_attempt(_Real(draw, int(u[lane]), _BIN), int(heads[lane]), pairs, draw)
        accepted[lane] = number is not None
        if number is not None:
            deep[lane] = number
    places = {lane: int(np.count_nonzero(accepted[:lane])) for lane in deep}
    return _Normals(
        first[accepted], negative[accepted], {places[lane]: number for lane, number in deep.items()}
    )


def _split_words(words: Words) -> tuple[IntArray, IntArray]:
    """Return the first bits of a uniform, and the ten bits below them."""
    return (words >> np.uint64(64 - _FIRST)).view(np.int64), (words & np.uint64(2 * _M - 1)).view(
        np.int64
    )


def _decide_attempt(
    u: _Real, head: int, pairs: Sequence[tuple[int, int]], draw: Draw
) -> tuple[int, _Real] | None:
    """Decide one attempt with as many bits as it takes.

    Parameters
    ----------
    u : _Real
        The uniform that tells the bin k.
    head : int
        The word of x, sign and coin.
    pairs : sequence of pairs of int
        Pairs of words that have been drawn.
    draw : callable
        Takes a number and returns as many random bytes.

    Returns
    -------
    tuple of int and _Real, or None
        k and x if the attempt is accepted, with probability ``exp(-x (2 k + x) / 512)``.
    """

    def endless() -> Iterator[tuple[int, int]]:
        yield from pairs
        while True:
            yield int.from_bytes(draw(8), "little"), int.from_bytes(draw(8), "little")

    def real(word: int) -> _Real:
        return _Real(draw, word >> (64 - _FIRST), _FIRST)

    k, x, words = _bin_of_uniform(u), real(head), endless()
    # The exponent in 2^parts equal parts, each at most 1.
    parts = (2 * k // _M).bit_length()
    coin: int = head % _M
    for part in range(1 << parts):
        if part:
            coin = next(words)[0] % _M
        passed, y = 0, x
        while True:
            finer = _Real(draw)
            finer.refine_interval(parts)
            whole = coin << parts | finer.digits
            if whole > 2 * k:
                break
            z, r = next(words)
            if (whole == 2 * k and not real(r).is_certainly_less(x)) or not (
                below := real(z)
            ).is_certainly_less(y):
                break
            passed, y, coin = passed + 1, below, z % _M
        # von Neumann: an even number of passed stages has probability e^(-x f).
        if passed % 2:
            return None
    return k, x


# --- Rounding ---

Factor = Callable[[int], tuple[Fraction, Fraction]]
"""From a number of bits to a lower and an upper bound of a positive number, by which a normal is
multiplied; with more bits the bounds are closer."""


def rounded_gaussian(
    d: int, sigma: Sequence[float], step: Sequence[float], draw: Draw = os.urandom
) -> IntArray:
    """Draw ``round(x / step)`` for ``x`` of law ``N(0, sigma^2 I)`` in R^d, exactly distributed.

    Parameters
    ----------
    d : int
        Entries of a vector, >= 1.
    sigma, step : sequence of float
        Standard deviations and steps of the grid, one for each vector, all > 0; their exact binary
        values are used.
    draw : callable
        Takes a number and returns as many random bytes.

    Returns
    -------
    array of shape (len(sigma), d)
        Of int64, or of Python integers if one is not below ``2^62``.

    Raises
    ------
    InvalidInput
        If a number is not finite and > 0, or `d` is less than 1.
    """

    def known(ratio: Fraction) -> Factor:
        return lambda bits: (ratio, ratio)

    factors = [
        known(a / b)
        for a, b in zip(_exact_values("sigma", sigma), _exact_values("step", step), strict=True)
    ]
    return _rounded_products(_accepted_normals(_whole(d) * len(factors), draw), factors, draw)


def rounded_spherical(
    d: int, rate: Sequence[float], step: Sequence[float], draw: Draw = os.urandom
) -> IntArray:
    """Draw ``round(x / step)`` for ``x`` in R^d of density ``exp(-rate ||x||)``, exactly.

    Parameters
    ----------
    d : int
        Entries of a vector, >= 1.
    rate, step : sequence of float
        Rates of the noise and steps of the grid, one for each vector, all > 0; their exact binary
        values are used.
    draw : callable
        Takes a number and returns as many random bytes.

    Returns
    -------
    array of shape (len(rate), d)
        Of int64, or of Python integers if one is not below ``2^62``.

    Raises
    ------
    InvalidInput
        If a number is not finite and > 0, or `d` is less than 1.

    Notes
    -----
    ``x = z ||z'|| / rate`` with independent standard normals ``z`` in R^d and ``z'`` in
    R^{d+1} has that density, a mixture of Gaussians (``docs/privacy/verdicts.md``, "Noise on a
    grid").  Of ``z'`` the length alone is drawn.
    """
    units = [
        1 / (a * b)
        for a, b in zip(_exact_values("rate", rate), _exact_values("step", step), strict=True)
    ]
    return _rounded_products(
        _accepted_normals(_whole(d) * len(units), draw), _accepted_lengths(d + 1, units, draw), draw
    )


def _whole(d: int) -> int:
    """Return a number of entries; InvalidInput if it is less than 1."""
    if d < 1:
        raise InvalidInput(
            "d",
            d,
            "must be at least 1, the number of coordinates of the noise",
            "draw no noise for an empty vector",
        )
    return d


def _exact_values(field: str, values: Sequence[float]) -> list[Fraction]:
    """Return the exact binary values of numbers that are finite and > 0."""
    for value in values:
        if not 0.0 < value < math.inf:
            raise InvalidInput(
                field,
                value,
                "must be finite and > 0, as a scale or step of noise",
                "change the noise",
            )
    return [Fraction(value) for value in values]


class _Length:
    """`unit` times the norm of `n` >= 2 standard normals, proposed by a single one (k, x).

    Marsaglia and Tsang (2000): its square is ``N v^3 / 9`` with ``N = 9 n - 6``, ``v = 1 + y``, ``y
    = z sqrt(2 / N)``, for a standard normal z that is accepted with probability ``exp(-q)``; q is 0
    where z is, and grows with its size.
    """

    def __init__(self, n: int, unit: Fraction, negative: bool, k: int, x: _Real) -> None:
        self._n = 9 * n - 6
        self._unit = unit
        self._sign = 1
        if negative:
            self._sign = -1
        self._k = k
        self._x = x
        self._known: tuple[int, tuple[Fraction, Fraction]] = (0, (unit, unit))

    def __call__(self, bits: int) -> tuple[Fraction, Fraction]:
        while self._x.bits < bits:
            self._x.refine_interval()
        if self._known[0] != self._x.bits:
            e, *sizes = self._scaled_length_bounds()
            # v = 1 + y; a smaller |y| is a larger v if y is negative.
            low, high = sorted(max(0, (1 << e) + self._sign * size) for size in sizes)
            unit = self._unit / (1 << 3 * e // 2)
            # Whole roots round down, so that one more unit is an upper bound.
            least, most = (math.isqrt(self._n * v**3 // 9) for v in (low, high))
            self._known = self._x.bits, (least * unit, (most + 1) * unit)
        return self._known[1]

    def is_accepted(self, draw: Draw) -> bool:
        """Draw a uniform u for the acceptance, and return whether ``q + ln u < 0``.

        The left side grows with u and with the size of z, so bounds of both decide it.
        """
        u = _Real(draw)
        while True:
            u.refine_interval()
            e, least, most = self._scaled_length_bounds()
            if self._acceptance_bounds(e, most, u.digits + 1, u.bits)[1] <= 0:
                return True
            if self._acceptance_bounds(e, least, u.digits, u.bits)[0] >= 0:
                return False
            self._x.refine_interval()

    def _scaled_length_bounds(self) -> tuple[int, int, int]:
        """Return an even e, and the least and the most that ``|y| 2^e`` can be."""
        bits = self._x.bits
        z, root = self._k << bits | self._x.digits, math.isqrt((2 << 2 * bits + 128) // self._n)
        return 2 * bits + 68, z * root, (z + 1) * (root + 1)

    def _acceptance_bounds(self, e: int, size: int, u: int, bits: int) -> tuple[float, float]:
        """Return bounds of ``q + ln(u / 2^bits)`` at ``|y| = size / 2^e``, times a positive number.

        ``36 q = N (2 y^3 - 3 y^2 + 6 y - 6 ln v)``; infinite where ``v <= 0``, which is never
        accepted.
        """
        y, n, width = self._sign * size, self._n, self._n.bit_length() + bits + 64
        if y <= -(1 << e):
            return math.inf, math.inf
        if not u:
            return -math.inf, -math.inf
        whole = n * y * (2 * y**2 - (3 * y << e) + (6 << 2 * e)) << width >> 3 * e
        sum_ = (
            whole
            - 6 * n * _fixed_point_log((1 << e) + y, e, width)
            + 36 * _fixed_point_log(u, bits, width)
        )
        # 1 for the polynomial, and less than 2 for each logarithm, of factors 6 N and 36.
        error = 12 * n + 73
        return sum_ - error, sum_ + error


def _fixed_point_log(number: int, e: int, width: int) -> int:
    """Return ``2^width ln(number / 2^e)``, off by less than 2."""
    context = Context(prec=math.ceil(0.30103 * (width + e.bit_length())) + 4)
    # The decimal module rounds logarithms correctly.
    log = context.ln(context.divide(Decimal(number), Decimal(1 << e)))
    return int(context.multiply(log, Decimal(1 << width)))


def _accepted_lengths(n: int, units: Sequence[Fraction], draw: Draw) -> list[_Length]:
    """Return the first proposals that are accepted, one for each unit."""
    found = list[_Length]()
    while len(found) < len(units):
        normals = _accepted_normals(len(units) - len(found), draw)
        for at, negative in enumerate(normals.negative.tolist()):
            length = _Length(n, units[len(found)], negative, *normals.exact_normal(at, draw))
            if length.is_accepted(draw):
                found.append(length)
    return found


def _rounded_products(normals: _Normals, factors: Sequence[Factor], draw: Draw) -> IntArray:
    """Return the nearest whole numbers of normals times factors, a row for each factor."""
    rows = zip(*(_scaled_factor_bounds(*factor(_FIRST)) for factor in factors), strict=True)
    m, w, t = (np.array(column, dtype=np.int64)[:, None] for column in rows)
    first, negative = (
        normals.first.reshape(len(factors), -1),
        normals.negative.reshape(len(factors), -1),
    )
    d, width = first.shape[1], max(1, _BLOCK // len(factors))
    out, doubtful = np.empty(first.shape, dtype=np.int64), np.empty(first.shape, dtype=bool)
    for start in range(0, d, width):
        part = np.s_[:, start : start + width]
        nearest, doubtful[part] = _nearest_and_doubtful(first[part], m, w, t)
        # 0 or -1; a choice for each number takes longer.
        sign = -negative[part].astype(np.int64)
        out[part] = (nearest ^ sign) - sign
    unknown = {*np.flatnonzero(doubtful).tolist(), *normals.deep}
    numbers = {
        at: _nearest_with_more_bits(*normals.exact_normal(at, draw), factors[at // d])
        for at in unknown
    }
    # Python's integers for all, as one array has one type.
    if any(number >= _FITS for number in numbers.values()):
        out = out.astype(object)
    for at, number in numbers.items():
        if normals.negative[at]:
            out.flat[at] = -number
        else:
            out.flat[at] = number
    return out


def _nearest_and_doubtful(
    first: IntArray, m: IntArray, w: IntArray, t: IntArray
) -> tuple[IntArray, BoolArray]:
    """Return the nearest whole numbers of normals times factors, and where they are in doubt.

    Factors are between ``m 2^e`` and ``(m + w) 2^e``.  The number times ``2^t`` is between
    ``whole``, the whole part of ``first m / 2^61``, and ``whole + w + 2``.
    """
    # Halves of 30 and 31 bits: partial products and their sum stay below 2^63
    # (docs/privacy/exact_noise.md, "What 63 bits hold").
    high, low, m_high, m_low = first >> 31, first & (1 << 31) - 1, m >> 31, m & (1 << 31) - 1
    whole = (high * m_high << 1) + (high * m_low + low * m_high + (low * m_low >> 31) >> 30)
    # Half a step, so that the shift below rounds to the nearest.
    whole += 1 << t - 1
    nearest = whole >> t
    return nearest, (whole + (w + 2) >> t != nearest) | (w < 0)


def _scaled_factor_bounds(low: Fraction, high: Fraction) -> tuple[int, int, int]:
    """Return `m` of 61 bits, `w` and `t` of a factor in [low, high], for
    :func:`_nearest_and_doubtful`.

    `w` is -1 where 63 bits do not hold the product.
    """

    def over(number: Fraction, e: int) -> tuple[int, int]:
        return divmod(number.numerator << max(0, -e), number.denominator << max(0, e))

    if low:
        e = low.numerator.bit_length() - low.denominator.bit_length() - 61
        e += over(low, e)[0] >> 61
        (m, _), (most, rest), t = over(low, e), over(high, e), _FIRST - 57 - e
        w = most - m + (rest > 0)
        if 1 <= t <= 61 and w < 1 << 20:
            return m, w, t
    return 0, -1, 1


def _nearest_with_more_bits(k: int, x: _Real, factor: Factor) -> int:
    """Return the whole number nearest to ``(k + x) / 16`` times the factor, with enough bits."""
    while True:
        number = k << x.bits | x.digits
        low, high = factor(x.bits)
        unit = Fraction(1, _BINS << x.bits)
        least, most = (
            math.floor(a * b * unit + Fraction(1, 2))
            for a, b in ((number, low), (number + 1, high))
        )
        if least == most:
            return least
        x.refine_interval()
