"""Exact draws on a grid: laws, what happens where the first bits do not decide, and how far 63 bits
reach.

Streams of bits are seeded, so every outcome is fixed; tests of laws have the level `LEVEL`, and
reject a wrong law.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Generator
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from sottovoce.errors import InvalidInput
from sottovoce.privacy import exact
from sottovoce.privacy.exact import rounded_gaussian, rounded_spherical
from sottovoce.privacy.noise import SystemNoise

SAMPLES, STEP, LEVEL = 3000, 2.0**-30, 1e-6


def _seeded(seed: int) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


def _few_bits(monkeypatch: pytest.MonkeyPatch, first: int = 4, bins: int = 6) -> None:
    """So few first bits that most comparisons need more of them: what is decided so must have
    the same law.
    """
    monkeypatch.setattr(exact, "_FIRST", first)
    monkeypatch.setattr(exact, "_BIN", bins)


def _fits(found: np.ndarray, edges: np.ndarray, probabilities: np.ndarray) -> bool:
    """Chi-square over cells between these edges, and what lies outside."""
    expected = np.append(probabilities, 1.0 - probabilities.sum()) * found.size
    inside = np.histogram(found, edges)[0]
    observed = np.append(inside, found.size - inside.sum())
    keep = expected > 20
    expected, observed = (np.append(a[keep], a[~keep].sum()) for a in (expected, observed))
    if expected[-1] < 1e-3:
        if observed[-1]:
            return False
        expected, observed = expected[:-1], observed[:-1]
    return bool(
        np.sum((observed - expected) ** 2 / expected) < stats.chi2(expected.size - 1).isf(LEVEL)
    )


# --- The law of Gaussian noise --------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.3, 1.7, 16.0, 40.3])
def test_cells_of_a_coarse_grid_have_the_gaussian_probabilities(sigma: float) -> None:
    """Against the exact mass function; a scale that is off by 2 percent is rejected."""
    found = rounded_gaussian(400_000, [sigma], [1.0], _seeded(1)).ravel()
    edges = np.arange(-math.ceil(7 * sigma) - 0.5, math.ceil(7 * sigma) + 1.0)

    def accepts(scale: float) -> bool:
        return _fits(found, edges, np.diff(stats.norm.cdf(edges, scale=scale)))

    assert [accepts(sigma * factor) for factor in (1.0, 0.98, 1.02, 2 / 3, 3 / 2)] == [True] + 4 * [
        False
    ]


def test_bins_and_what_is_in_them_have_their_probabilities() -> None:
    """16 bins a standard deviation, 8 cells each: wrong bins would show, and a wrong acceptance
    within them.
    """
    found = rounded_gaussian(3_000_000, [1.0], [2.0**-40], _seeded(2)).ravel() * 2.0**-40
    edges = np.arange(-6 * 128, 6 * 128 + 1) / 128.0
    assert _fits(found, edges, np.diff(stats.norm.cdf(edges)))
    # without the acceptance
    steps = np.exp(-0.5 * (np.floor(np.abs(edges[:-1] + 1 / 256) * 16) / 16) ** 2)
    assert not _fits(found, edges, steps / steps.sum())
    beyond, mean = np.sum(np.abs(found) > 4.5), 2 * found.size * stats.norm.sf(4.5)
    assert stats.poisson(mean).ppf(LEVEL) <= beyond <= stats.poisson(mean).isf(LEVEL)


def test_low_bits_and_signs_are_those_of_fair_coins() -> None:
    """At the width of a release's grid the last 8 bits are uniform to e^-10^9; and independent
    of size and sign.
    """
    found = rounded_gaussian(1_000_000, [1.3], [2.0**-40], _seeded(3)).ravel()
    low, high = found & 255, np.abs(found) > 0.6744897501960817 * 1.3 * 2.0**40
    table = np.array(
        [np.bincount(low[cell], minlength=256) for cell in (high & (found > 0), high & (found < 0))]
    )
    table = np.concatenate([table, [np.bincount(low[~high & (found > 0)], minlength=256)]])
    rest = np.bincount(low, minlength=256) - table.sum(axis=0)
    table, expected = np.concatenate([table, [rest]]), found.size / 1024
    assert np.sum((table - expected) ** 2 / expected) < stats.chi2(1023).isf(LEVEL)
    assert np.sum(
        (table[:, ::2].sum(axis=1) - found.size / 8) ** 2 / (found.size / 8)
    ) < stats.chi2(4).isf(LEVEL)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_rounded_normals_are_normal_and_independent(d: int) -> None:
    """A row for each sigma, of that scale and no other."""
    sigma = np.tile([3.0, 0.5], SAMPLES)
    x = (
        STEP
        * rounded_gaussian(d, sigma.tolist(), [STEP] * sigma.size, _seeded(20 + d))
        / sigma[:, None]
    )
    assert all(
        stats.kstest(column, stats.norm.cdf).pvalue > LEVEL for column in [*x[::2].T, *x[1::2].T]
    )
    assert stats.kstest(1.4 * x[:, 0], stats.norm.cdf).pvalue < LEVEL
    assert np.abs(x[::2].T @ x[::2] / SAMPLES - np.eye(d)).max() < 0.15
    assert np.abs(x[::2].T @ x[1::2] / SAMPLES).max() < 0.15


# --- The law of spherical noise -------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3, 8])
def test_the_norm_is_gamma_and_of_no_other_scale(d: int) -> None:
    """Kolmogorov-Smirnov; two thirds and three halves of the scale must be rejected."""
    x = STEP * rounded_spherical(d, [4.0] * SAMPLES, [STEP] * SAMPLES, _seeded(d)).astype(float)
    norm = 4.0 * np.linalg.norm(x, axis=1)
    assert stats.kstest(norm, stats.gamma(d).cdf).pvalue > LEVEL
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(norm * wrong, stats.gamma(d).cdf).pvalue < LEVEL
    if d > 1:  # a coordinate of a uniform direction has (1 + u)/2 ~ Beta((d-1)/2, (d-1)/2)
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        law = stats.beta((d - 1) / 2, (d - 1) / 2)
        assert all(stats.kstest((1 + column) / 2, law.cdf).pvalue > LEVEL for column in unit.T)
        assert np.abs(unit.T @ unit / SAMPLES * d - np.eye(d)).max() < 0.15


@pytest.mark.parametrize("few", [False, True])
def test_cells_of_a_coarse_grid_have_the_probabilities_of_the_rounded_law(
    few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chi-square over the cells of a grid as coarse as the noise; a wrong rate is rejected."""
    n = 5000 if few else 20000
    if few:
        _few_bits(monkeypatch)
    found = rounded_spherical(2, [1.0] * n, [1.0] * n, _seeded(7))
    cells = [(i, j) for i in range(-2, 3) for j in range(-2, 3)]

    @cache
    def part(i: int, j: int, rate: float) -> float:
        def density(y: float, x: float) -> float:
            return rate**2 / (2 * math.pi) * math.exp(-rate * math.hypot(x, y))

        return float(integrate.dblquad(density, i - 0.5, i + 0.5, j - 0.5, j + 0.5, epsabs=1e-9)[0])

    def statistic(rate: float) -> float:
        expected = n * np.array([part(*sorted(map(abs, cell)), rate) for cell in cells])
        observed = np.array([np.sum((found == cell).all(axis=1)) for cell in cells])
        return float(np.sum((observed - expected) ** 2 / expected))

    bound = stats.chi2(len(cells)).isf(LEVEL)
    assert statistic(1.0) < bound
    assert statistic(1.3 if few else 1.1) > bound


# --- Where the first bits do not decide -----------------------------------------------------------


@pytest.mark.parametrize(("first", "bins"), [(4, 6), (1, 3), (12, 32), (54, 5)])
def test_the_law_does_not_depend_on_how_many_bits_are_looked_at_first(
    first: int, bins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bins, comparisons and roundings that take more bits: chi-square, and a scale off by a
    tenth is rejected.
    """
    _few_bits(monkeypatch, first, bins)
    found = rounded_gaussian(20_000, [9.3], [1.0], _seeded(first)).ravel()
    edges = np.arange(-40.5, 41.0)
    for scale, right in ((9.3, True), (8.4, False), (10.2, False)):
        assert _fits(found, edges, np.diff(stats.norm.cdf(edges, scale=scale))) == right


def _one_by_one(u: int, head: int) -> Generator[None, tuple[int, int], bool]:
    """An attempt as the proof has it, which asks for a pair of words when it needs one; no bits
    but these.
    """
    cut = [int(c) >> (256 - 32) for c in exact._bin_boundaries(256)]
    assert u not in cut
    k, x, coin, passed = sum(c < u for c in cut), head >> 10, head % 512, 0
    y = x
    while coin <= 2 * k:
        z, r = yield
        if (coin == 2 * k and r >> 10 >= x) or z >> 10 >= y:
            break
        y, coin, passed = z >> 10, z % 512, passed + 1
    return passed % 2 == 0


def test_vectors_decide_as_the_proof_does_one_by_one() -> None:
    """The same words, dealt in the same order to attempts that ask for them."""
    n, drawn, stream = 20_000, list[bytes](), _seeded(4)

    def draw(size: int) -> bytes:
        drawn.append(stream(size))
        return drawn[-1]

    found = exact._accepted_attempts(n, draw)
    u, heads = (
        np.frombuffer(drawn[0], np.uint32).tolist(),
        np.frombuffer(drawn[1], np.uint64).tolist(),
    )
    words = (np.frombuffer(part, np.uint64).tolist() for part in drawn[2:])
    attempts, accepted = (
        [_one_by_one(*both) for both in zip(u, heads, strict=True)],
        np.zeros(n, dtype=bool),
    )
    waiting, rounds = dict.fromkeys(range(n)), 0
    while waiting:
        pairs = zip(next(words), next(words), strict=True) if rounds else itertools.repeat(None)
        for lane, pair in zip(list(waiting), pairs, strict=bool(rounds)):
            try:
                attempts[lane].send(pair)
            except StopIteration as end:
                accepted[lane] = end.value
                del waiting[lane]
        rounds += 1
    assert rounds > 3
    k = np.searchsorted(exact._first_bit_tables(32)[1], np.array(u, dtype=np.uint32))
    first = k.astype(object) * 2**54 + np.array([head >> 10 for head in heads], dtype=object)
    assert not found.deep
    assert found.first.tolist() == first[accepted].tolist()
    assert found.negative.tolist() == [bool(heads[lane] & 512) for lane in np.flatnonzero(accepted)]
    assert 0.97 < accepted.mean() < 0.98  # sqrt(pi / 2) / (1/32 + sqrt(pi / 2)), nearly


@pytest.mark.parametrize("kind", ["bin", "comparison", "edge"])
def test_a_tie_of_the_first_bits_is_broken_by_more(kind: str) -> None:
    """One of 64 attempts meets a tie, in each of the three ways; it keeps its place, and the
    others are as before.
    """
    cuts, stream = exact._first_bit_tables(32)[1], _seeded(5)
    k, lane, half = 20, 17, 1 << 63
    # in the middle of bin k
    u = np.full(64, (int(cuts[k - 1]) + int(cuts[k])) // 2, dtype=np.uint32)
    coin = {"bin": 511, "comparison": 3, "edge": 2 * k}[kind]
    heads = np.full(64, half | 511, dtype=np.uint64)
    heads[lane] = half | coin
    if kind == "bin":
        u[lane] = cuts[k]
    pair = {"comparison": (half | 3, 0), "edge": (half >> 1, half)}.get(kind)
    outcomes = set()
    for seed in range(40):
        stream = _seeded(seed)
        parts = [u.tobytes(), heads.tobytes()]
        parts += [] if pair is None else [np.array([word], np.uint64).tobytes() for word in pair]
        found = exact._accepted_attempts(
            64, lambda size, p=parts, s=stream: p.pop(0) if p else s(size)
        )
        assert set(found.deep) <= {lane}
        rest = [first for at, first in enumerate(found.first.tolist()) if at not in found.deep]
        assert rest == [k << 54 | half >> 10] * 63
        outcomes.add(found.deep[lane][0] if lane in found.deep else None)
    # of a bin: this or the next one; of comparisons: below, and so a further stage and mostly no
    # answer, or not below
    assert outcomes == ({k, k + 1} if kind == "bin" else {k, None})


@pytest.mark.parametrize(("k", "bits", "parts", "n"), [(400, 512, 1, 4000), (600, 1100, 2, 1000)])
def test_bins_far_out_have_their_acceptance_too(k: int, bits: int, parts: int, n: int) -> None:
    """Beyond 16 standard deviations exponents are larger than 1: binomial test; one cut off at 1
    is rejected.
    """
    stream = _seeded(bits)
    middle = sum(exact._bin_boundaries(bits)[k - 1 : k + 1]) // 2
    assert (2 * k // 512).bit_length() == parts
    accepted, expected, cut_off = 0, 0.0, 0.0
    for _ in range(n):
        u, head = exact._Real(stream, middle, bits), int.from_bytes(stream(8), "little")
        number, x = exact._decide_attempt(u, head, [], stream), head / 2.0**64
        assert number is None or number[0] == k
        accepted += number is not None
        expected += math.exp(-x * (2 * k + x) / 512)
        cut_off += math.exp(-x)
    for mean, right in ((expected, True), (cut_off, False)):
        law = stats.binom(n, mean / n)
        assert (law.ppf(LEVEL) <= accepted <= law.isf(LEVEL)) == right


def test_undecided_bits_are_drawn_until_they_decide() -> None:
    """Two numbers that begin alike for 300 bits; a uniform on a border for 300 bits."""
    alike = bytes(8)
    for one, two in ((b"\x00" * 8, b"\x01" * 8), (b"\x01" * 8, b"\x00" * 8)):
        left, right = iter([alike] * 5 + [one] * 9), iter([alike] * 5 + [two] * 9)
        x, y = (
            exact._Real(lambda size, own=left: next(own)),
            exact._Real(lambda size, own=right: next(own)),
        )
        assert x.is_certainly_less(y) == (one < two)
        assert min(x.bits, y.bits) > 300
    border = exact._bin_boundaries(512)[30]
    for more, found in ((0, 30), (2**40, 31)):
        rest = ((border & (1 << 256) - 1) + more - 2**20).to_bytes(32, "little")
        parts = [(border >> 256 & (1 << 224) - 1).to_bytes(28, "little"), rest]
        assert (
            exact._bin_of_uniform(exact._Real(lambda size, p=parts: p.pop(0), border >> 480, 32))
            == found
        )
        assert not parts


# --- Borders of bins ------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [32, 256, 512])
def test_borders_are_whole_parts_of_the_probabilities(bits: int) -> None:
    """All of them, against mpmath with 400 bits more."""
    with mpmath.workprec(bits + 400):
        masses = [mpmath.exp(-mpmath.mpf(k * k) / 512) for k in range(1200)]
        whole, part = mpmath.fsum(masses), mpmath.mpf(0)
        cuts = exact._bin_boundaries(bits)
        for cut, mass in zip(cuts, masses, strict=False):
            part += mass
            assert cut == int(mpmath.floor(part / whole * 2**bits))
    assert cuts[-1] == 2**bits - 1 > cuts[-2]
    guide, first = exact._first_bit_tables(32)
    assert [int(cut) for cut in first[:100]] == list(exact._bin_boundaries(32))[:100]
    # a bin that 32 bits tell fits 7 bits
    assert np.searchsorted(first, 2**32 - 1) < 128 > guide.max()


@pytest.mark.parametrize("bits", [3, 6, 12, 16])
def test_the_guide_tells_the_bin_of_every_uniform_and_no_more(bits: int) -> None:
    guide, cuts = exact._first_bit_tables(bits)
    each = (1 << bits) // guide.size
    for at, told in enumerate(guide.tolist()):
        own = range(at * each, (at + 1) * each)
        bins = {int(np.sum(cuts < u)) for u in own}
        known = len(bins) == 1 and not set(own) & set(cuts.tolist())
        assert (bins == {told}) if known else (told == -1)


# --- Rounding -------------------------------------------------------------------------------------


def test_products_are_exact_in_63_bits_and_doubt_covers_all_that_is_not_known() -> None:
    """Random numbers and the largest: against fractions, at both ends of what the first bits
    leave open.
    """
    rng = np.random.default_rng(0)
    first = np.concatenate(
        [
            rng.integers(0, 2**61, 300),
            2 ** rng.integers(0, 61, 50) - 1,
            [0, 1, 2**61 - 1, 2**61 - 1],
        ]
    )
    doubts = 0
    for _ in range(200):
        m, w = int(rng.integers(2**60, 2**61)), int(rng.choice([0, 1, 12, 2**20 - 1]))
        m, t = (2**61 - 1 if rng.random() < 0.1 else m), int(rng.integers(1, 62))
        cells, doubtful = exact._nearest_and_doubtful(
            first, np.array([m]), np.array([w]), np.array([t])
        )
        for own, cell, doubt in zip(first.tolist(), cells.tolist(), doubtful.tolist(), strict=True):
            least, most = (
                Fraction(own * m, 2 ** (61 + t)),
                Fraction((own + 1) * (m + w), 2 ** (61 + t)),
            )
            half = Fraction(1, 2)
            assert cell == math.floor(least + half)
            if not doubt:
                assert cell == math.floor(most + half) and most != cell + half
            doubts += doubt and math.floor(most + half) == cell
            assert most - least <= Fraction(w + 2, 2**t) or w  # no more doubt than that
    assert doubts < 0.2 * 200 * first.size


@pytest.mark.parametrize(
    "sigma", [1.0, 1.3, 0.7 * 2.0**40, 1.9 * 2.0**56, 2.0**-4, math.pi * 2.0**-20, 1e300, 1e-300]
)
def test_factors_are_between_their_bounds(sigma: float) -> None:
    for low, high in (
        (Fraction(sigma), Fraction(sigma)),
        (Fraction(sigma), Fraction(sigma) * (1 + Fraction(1, 2**58))),
    ):
        m, w, t = exact._scaled_factor_bounds(low, high)
        if w < 0:
            assert not 2.0**-4 < sigma < 2.0**56
            continue
        e = -3 - t
        assert 2**60 <= m < 2**61 and 1 <= t <= 61
        assert m * Fraction(2) ** e <= low <= high <= (m + w) * Fraction(2) ** e
        assert w <= 10 and (w == 0) == (low == high)


@pytest.mark.parametrize(
    "sigma", [1.3, 0.9 * 2.0**30, 1.1 * 2.0**41, 1.7 * 2.0**55, 1.2 * 2.0**70, 2.0**-9]
)
def test_numbers_at_the_border_of_two_cells_go_where_their_further_bits_say(sigma: float) -> None:
    """The first bits are those of a border; what is drawn then lies below or above it."""
    rng = np.random.default_rng(1)
    factor = Fraction(sigma)
    for _ in range(100):
        cell = int(rng.integers(1, max(2, min(2**60, int(3 * sigma)))))
        border = (cell - Fraction(1, 2)) * 16 / factor  # of k + x
        first = math.floor(border * 2**54)
        if first >= 120 << 54:
            continue
        digits = math.floor(border * 2 ** (54 + 63)) - (first << 63)
        for more, right in ((-2, cell - 1), (2, cell)):
            if not 0 <= digits + more < 2**63:
                continue
            drawn = (digits + more).to_bytes(8, "little")
            normals = exact._Normals(np.array([first]), np.array([False]))
            parts = [drawn]

            def draw(size: int, parts=parts) -> bytes:
                return parts.pop(0) if parts else bytes(size)

            found = exact._rounded_products(normals, [lambda bits: (factor, factor)], draw)
            assert int(found[0, 0]) == right


def test_the_answer_is_that_of_the_whole_digits() -> None:
    """Digits that were drawn, with as many as one likes after them: the cell is that of plain
    arithmetic.
    """
    for seed, (s, x) in enumerate(
        itertools.product((1.3 * 2.0**41, 2.0**-30, 0.7 * 2.0**63), (4, 54))
    ):
        draw = _seeded(seed)
        normals = exact._accepted_normals(50, draw)
        for at in range(0, 50, 10):
            k, number = normals.exact_normal(at, draw)
            number.refine_interval(x)
        whole = {at: (k << r.bits | r.digits, r.bits) for at, (k, r) in normals.deep.items()}
        found = exact._rounded_products(
            normals, [lambda bits, s=s: (Fraction(s), Fraction(s))], draw
        )
        assert found.dtype == (object if s > 2.0**57 else np.int64)
        for at, cell in enumerate(found[0].tolist()):
            digits, bits = whole.get(at, (int(normals.first[at]), 54))
            if at in normals.deep:
                k, r = normals.deep[at]
                # nothing that was drawn is drawn anew
                assert (k << r.bits | r.digits) >> (r.bits - bits) == digits
                digits, bits = k << r.bits | r.digits, r.bits
            middle = Fraction(2 * digits + 1, 2 << bits) / 16 * Fraction(s)
            assert abs(cell) == math.floor(middle + Fraction(1, 2))
            assert cell == 0 or (cell < 0) == normals.negative[at]


# --- Lengths --------------------------------------------------------------------------------------


def _length_of(
    n: int, k: int, digits: int, bits: int, sign: int = 1, draw: exact.Draw = bytes
) -> exact._Length:
    return exact._Length(n, Fraction(1), sign < 0, k, exact._Real(draw, digits, bits))


def _excess(n: int, z: mpmath.mpf, u: mpmath.mpf) -> mpmath.mpf:
    """``q + ln u``, from the density of Gamma(n / 2) and that of the proposal: not how the
    sampler has it.
    """
    shape, scale = mpmath.mpf(n) / 2, mpmath.mpf(n) / 2 - mpmath.mpf(1) / 3
    v = (1 + z / mpmath.sqrt(9 * scale)) ** 3
    if z < -mpmath.sqrt(9 * scale):
        return mpmath.inf
    target = (shape - mpmath.mpf(1) / 3) * mpmath.log(v) - scale * v + scale if v else -mpmath.inf
    return -target - z**2 / 2 + (mpmath.log(u) if u else -mpmath.inf)


@pytest.mark.parametrize(("n", "few"), [(2, False), (3, True), (101, False), (200_001, False)])
def test_lengths_are_those_of_normal_vectors(
    n: int, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chi-square against mpmath's masses; 2/3, 3/2 and a tenth off are rejected."""
    if few:
        _few_bits(monkeypatch)
    found = [length(60) for length in exact._accepted_lengths(n, [Fraction(1)] * 6000, _seeded(n))]
    assert all(0 < high - low < Fraction(1, 2**40) for low, high in found)
    lengths, middle = np.array([float(low) for low, _ in found]), math.sqrt(n)
    edges = [0.0, *(middle + 0.1 * np.arange(-int(min(10 * middle, 25)) + 1, 30)), 1e9]

    def accepts(scale: float) -> bool:
        each = [edge / scale for edge in edges[1:-1]]
        if n > 1000:  # too far for mpmath's series
            cdf = stats.chi(n).cdf(each)
        else:
            cdf = [float(mpmath.gammainc(n / 2, 0, edge**2 / 2, regularized=True)) for edge in each]
        return _fits(lengths, np.array(edges), np.diff(np.array([0.0, *cdf, 1.0])))

    assert [accepts(scale) for scale in (1.0, 0.9, 1.1, 2 / 3, 3 / 2)] == [True] + 4 * [False]


@pytest.mark.parametrize(("n", "coarse"), [(2, 1), (5, 9), (100, 9)])
def test_every_proposal_of_few_bits_is_decided_only_if_all_its_numbers_are(
    n: int, coarse: int
) -> None:
    """All bins, signs and uniforms of 4 bits, against mpmath at both ends; and what is accepted
    in all.
    """
    accepted, rejected, left, bits = mpmath.mpf(0), mpmath.mpf(0), 0, 4
    with mpmath.workprec(200):
        for sign, k in itertools.product((1, -1), range(0, 90, coarse)):
            length = _length_of(n, k, 0, 0, sign)
            e, *sizes = length._scaled_length_bounds()
            z = [sign * mpmath.mpf(k + more) / 16 for more in (0, 1)]
            mass = abs(mpmath.ncdf(z[1]) - mpmath.ncdf(z[0])) / 2**bits
            for u in range(1 << bits):
                least = length._acceptance_bounds(e, sizes[0], u, bits)[0]
                most = length._acceptance_bounds(e, sizes[1], u + 1, bits)[1]
                true = [_excess(n, z[end], mpmath.mpf(u + end) / 2**bits) for end in (0, 1)]
                assert least <= 36 * true[0] * 2 ** (length._n.bit_length() + bits + 64)
                assert most >= 36 * true[1] * 2 ** (length._n.bit_length() + bits + 64)
                assert (least >= 0, most <= 0) == (
                    true[0] >= 0,
                    true[1] <= 0 or k == u == 0 == true[1],
                )
                accepted, rejected = accepted + mass * (most <= 0), rejected + mass * (least >= 0)
                left += least < 0 < most
        if coarse == 1:
            b = mpmath.mpf(2) / 3  # of two normals: e^b Gamma(b + 1/3) b^(1/6 - b) / sqrt(2 pi)
            own = mpmath.exp(b) / mpmath.sqrt(2 * mpmath.pi * b)
            assert accepted < own < 1 - rejected < accepted + 0.2
    assert left


@pytest.mark.parametrize(("n", "sign"), [(2, 1), (2, -1), (30, 1), (30, -1)])
def test_a_proposal_at_the_border_goes_where_its_further_bits_say(n: int, sign: int) -> None:
    """The first 63 bits of u are those of the border at the x that is known; what is drawn then
    is below or above.
    """
    k, digits = 24, 12345 << 40
    with mpmath.workprec(300):
        z = sign * (k + mpmath.mpf(digits) / 2**54) / 16
        border = int(mpmath.floor(mpmath.exp(-_excess(n, z, mpmath.mpf(1))) * 2**126))
    for more in (-(2**40), 2**40):
        asked = list[int]()

        def words(size: int, whole: int = border + more, asked: list[int] = asked) -> bytes:
            asked.append(size)
            part = whole >> 63 if len(asked) == 1 else whole & (1 << 63) - 1
            return part.to_bytes(8, "little")

        assert border >> 63 == border + more >> 63
        assert _length_of(n, k, digits, 54, sign).is_accepted(words) == (more < 0)
        assert asked == [8, 8]


def test_what_is_not_positive_is_never_accepted() -> None:
    """Two normals: ``v > 0`` up to ``z = -sqrt(6)``, in bin 39, and there all uniforms are
    zeros.
    """
    border = math.isqrt(6 << 2 * 67)  # of 16 z, 63 bits
    for more, right in ((-(2**20), True), (2**20, False)):
        drawn = (border + more - (39 << 63)).to_bytes(8, "little")
        length = _length_of(2, 39, 0, 0, -1, lambda size, drawn=drawn: drawn)
        assert length.is_accepted(bytes) == right
        assert length._x.bits == 63
        assert (length(63)[1] > Fraction(1, 2**100)) == right


def test_lengths_lie_between_their_bounds_which_close_in() -> None:
    """Against mpmath, at both ends of what is known of the proposal."""
    rng = np.random.default_rng(8)
    with mpmath.workprec(1200):
        for n, sign, bits in itertools.product((2, 3, 1001), (1, -1), (1, 54)):
            k, digits = int(rng.integers(0, 30)), int(rng.integers(0, 1 << bits))
            length = _length_of(n, k, digits, bits, sign, _seeded(bits))
            bounds = [length(more) for more in (bits, bits + 1, bits + 70)]
            for (low, high), (next_low, next_high) in itertools.pairwise(bounds):
                assert low <= next_low < next_high <= high
                assert next_high - next_low < (high - low) / 2**60
            assert length._x.bits == bits + 126 and length._x.digits >> 126 == digits
            ends = []
            for end in (0, 1):
                z = sign * (k + mpmath.mpf(length._x.digits + end) / 2**length._x.bits) / 16
                ends.append(
                    mpmath.sqrt(
                        (9 * n - 6)
                        / mpmath.mpf(9)
                        * (1 + z * mpmath.sqrt(mpmath.mpf(2) / (9 * n - 6))) ** 3
                    )
                )
            low, high = (mpmath.mpf(bound.numerator) / bound.denominator for bound in bounds[-1])
            assert low <= min(ends) < max(ends) <= high < low + 2 * (max(ends) - min(ends))


@pytest.mark.parametrize("width", [20, 139, 700])
def test_logarithms_are_off_by_less_than_two(width: int) -> None:
    rng = random.Random(width)
    with mpmath.workprec(width + 600):
        for bits in (1, 60, 180, 500):
            for number in (
                1,
                (1 << bits) - 1,
                (1 << bits) + 1,
                *(rng.randrange(1, 3 << bits) for _ in range(20)),
            ):
                true = mpmath.log(mpmath.mpf(number) / 2**bits) * 2**width
                assert abs(exact._fixed_point_log(number, bits, width) - true) < 2


# --- Range, and wrong inputs ----------------------------------------------------------------------


@pytest.mark.parametrize("power", [-300, -60, -6, -5, -4, 0, 20, 41, 55, 56, 57, 58, 70, 300])
def test_noise_of_every_size_has_its_standard_deviation(power: int) -> None:
    """From far below a step to far beyond 63 bits: the sum of squares, and no number is there
    twice.
    """
    n, s = 2000, 1.3 * 2.0**power
    found = rounded_gaussian(n, [s], [1.0], _seeded(power + 400))[0]
    if power < -5:
        assert not found.any()
        return
    total = float(np.sum((found.astype(float) / s) ** 2)) if power > 4 else float(n)

    def accepts(factor: float) -> bool:
        law = stats.chi2(n)
        return bool(2 * min(law.cdf(total / factor**2), law.sf(total / factor**2)) > LEVEL)

    assert [accepts(factor) for factor in (1.0, 2 / 3, 3 / 2)] == [True, False, False]
    if power > 40:
        assert len({abs(number) for number in found.tolist()}) == n


def test_rate_and_step_are_used_without_rounding() -> None:
    """Tiny and huge noise: no overflow, no bias to zero."""
    assert rounded_spherical(3, [1e200], [1.0], _seeded(1)).tolist() == [[0, 0, 0]]
    assert min(abs(cell) for cell in rounded_spherical(3, [1e-200], [1.0], _seeded(1))[0]) > 10**190
    assert rounded_spherical(2, [1e-160], [1e-160], _seeded(1)).tolist() != [[0, 0]]
    assert (
        min(abs(cell) for cell in rounded_gaussian(3, [1e200], [1e-200], _seeded(1))[0]) > 10**390
    )
    both = rounded_gaussian(3, [1e200, 1.0], [1e-200, 2.0**-30], _seeded(2))
    assert min(map(abs, both[0])) > 10**390 and max(map(abs, both[1])) < 2**33


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.inf, math.nan])
def test_noise_without_a_scale_is_refused(wrong: float) -> None:
    for draw, name in ((rounded_gaussian, "sigma"), (rounded_spherical, "rate")):
        with pytest.raises(InvalidInput, match=f"^{name}=.*finite and > 0"):
            draw(3, [1.0, wrong], [1.0, 1.0])
        with pytest.raises(InvalidInput, match=r"^step=.*finite"):
            draw(3, [1.0], [wrong])
        with pytest.raises(InvalidInput, match=r"^d=0: .*least 1"):
            draw(0, [1.0], [1.0])


# --- On a grid ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wide", [40, 53, 54, 80])
def test_grid_points_and_noise_are_added_exactly_and_rounded_once(wide: int) -> None:
    """As Python's integers do it, for answers and noise of every size; zero has no sign."""
    rng = np.random.default_rng(wide)
    w = rng.normal(size=(2, 600)) * 2.0 ** rng.integers(-80, 80, size=(2, 600))
    w[:, :3] = [0.0, -0.0, -1e-30]
    noise = np.array(
        [
            [random.Random(wide).randrange(-(2**wide), 2**wide + 1) for _ in range(600)]
            for _ in range(2)
        ]
    )
    noise[:, :3], noise[0, 3] = 0, 2**wide
    steps = np.array([[2.0**-31], [2.0**-11]])
    out = SystemNoise._add_noise_on_grid(
        w, steps * 1.5, np.ones((2, 1)), lambda d, scale, step: noise
    )
    for row, step in enumerate(steps.ravel().tolist()):
        whole = [
            int(cell) + int(more)
            for cell, more in zip(np.rint(w[row] / step), noise[row], strict=True)
        ]
        assert out[row].tolist() == [float(number) * step for number in whole]
    assert not np.signbit(out[:, :3]).any()


def test_steps_beyond_the_ring_go_round_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No share of a sum is cut off, and none is refused after its charge."""
    far = np.array([[2**63 + 5, -(2**64) - 7, 3]], dtype=object)
    monkeypatch.setattr(exact, "rounded_gaussian", lambda d, sigma, step: far)
    assert SystemNoise().draw_rounded_gaussian(3, np.array([2.0**60]), 1).tolist() == [
        5 - 2**63,
        -7,
        3,
    ]
