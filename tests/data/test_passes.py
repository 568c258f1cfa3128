"""One pass over any source leaves the statistics of its rows, in the memory of a few chunks."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.data.blocks import BLOCK
from coke.data.formats import open_table
from coke.data.npy import open_arrays
from coke.data.passes import stream_statistics
from coke.data.sources import Chunk, Passing, Source, complete
from coke.data.units import Scaling, columns_of, fit_scaling
from coke.errors import DataError, InputError
from coke.maths import compiled
from coke.maths.losses.problem import Quadratic
from kit.streams import DOUBLE, LAM, SITES, Array, D, X, Y, expected, features, many, stream_columns

FAST = pytest.mark.skipif(not compiled.available(), reason="needs the extra `fast`")


@given(st.integers(1, 250), st.permutations(range(10)))
def test_chunks_do_not_change_moments_and_ranges(chunk: int, order: list[int]) -> None:
    """Merged over any chunks, in any order of the rows, they are those of all rows."""
    rows = np.concatenate([np.arange(i, 200, 10) for i in order])
    told = stream_columns(open_arrays(X[rows], Y[rows], chunk=chunk))
    whole = columns_of(np.column_stack([X, Y]))
    assert told.T == whole.T
    assert_allclose(np.stack(told[1:]), np.stack(whole[1:]), rtol=1e-12)


def mse(risk: Quadratic, theta: Array) -> float:
    return float(risk.global_losses(theta[None])[0])


def objective(risk: Quadratic, theta: Array) -> float:
    return float(risk.objectives(theta[None])[0])


@pytest.mark.parametrize("mapping", ["cos-sin", "cos-phase"])
@pytest.mark.parametrize("given_as", [np.float32, np.float64])
@pytest.mark.parametrize(("sigma", "lam"), [(4.5, 1e-3), (20.0, 1e-6)])
def test_single_precision_does_not_change_the_answer(
    mapping: str, given_as: Any, sigma: float, lam: float
) -> None:
    """A within 1e-6 and the MSE within a rounding of float32; the objective much closer.

    Also where features are collinear. The columns' offsets are large beside their spread, and what
    float32 loses of them is made good. How sums are ordered is the BLAS's: Δ MSE is 1e-9 to 3e-8.
    """
    rounding = 2.0**-24
    X, y = many()
    X = (X * 0.1 + np.linspace(-300.0, 300.0, 20)).astype(given_as)
    source, phi = open_arrays(X, y), features(mapping, 20, 50, sigma)
    scaling = fit_scaling("standard", 20, stream_columns(source))
    fast = stream_statistics(source, phi, scaling, lam=lam).risk
    slow = stream_statistics(source, phi, scaling, lam=lam, how=DOUBLE).risk
    assert 0 < abs(fast.A - slow.A).max() <= 1e-6 * abs(slow.A).max()
    assert abs(fast.b - slow.b).max() <= 1e-6 * np.sqrt(slow.yy[0] * abs(slow.A).max())
    theta, best = fast.optimum(), slow.optimum()
    assert objective(slow, theta) <= (1 + 1e-7) * objective(slow, best)
    if sigma < 10:
        assert objective(slow, theta) <= (1 + 1e-11) * objective(slow, best)
        assert abs(mse(slow, theta) - mse(slow, best)) <= rounding * mse(slow, best)
        assert abs(mse(fast, theta) - mse(slow, best)) <= rounding * mse(slow, best)


@FAST
@pytest.mark.parametrize("mapping", ["cos-sin", "cos-phase"])
@pytest.mark.parametrize("precision", ["auto", "double"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_compiled_loops_leave_the_same_statistics(mapping: str, precision: str, order: Any) -> None:
    """Of rows by row and by column: to a few 1e-7 in float32, to rounding in float64."""
    X, y = many()
    X = (X * 0.1 + np.linspace(-300.0, 300.0, 20)).astype(np.float32, order)
    source, phi = open_arrays(X, y), features(mapping, 20, 50, 4.5)
    scaling = fit_scaling("standard", 20, stream_columns(source))
    fast = stream_statistics(source, phi, scaling, lam=LAM, how=Passing(precision, fast=True)).risk
    slow = stream_statistics(source, phi, scaling, lam=LAM, how=DOUBLE).risk
    far = 1e-6 if precision == "auto" else 1e-13
    assert 0 < abs(fast.A - slow.A).max() <= far * abs(slow.A).max()
    assert abs(fast.b - slow.b).max() <= far * np.sqrt(slow.yy[0] * abs(slow.A).max())
    assert objective(slow, fast.optimum()) <= (1 + 1e-11) * objective(slow, slow.optimum())


@pytest.mark.parametrize("fast", [False, pytest.param(True, marks=FAST)])
@pytest.mark.parametrize("far", [1e3, 1e30, 1e200])
def test_blocks_beyond_single_precision_are_done_in_double(far: float, fast: bool) -> None:
    """Angles that float32 cannot tell: the bits are those of the float64 pass."""
    X, y = many(3000)
    X[BLOCK:] *= far
    source, phi = open_arrays(X, y), features(d=20)
    both = Passing(fast=fast), Passing("double", fast=fast)
    mixed, double = (stream_statistics(source, phi, lam=LAM, how=how).risk for how in both)
    assert_allclose(mixed.A, double.A, atol=1e-7)
    large = open_arrays(X[BLOCK:], 1e20 * y[BLOCK:])
    auto, slow = (stream_statistics(large, phi, lam=LAM, how=how) for how in both)
    assert_array_equal(auto.risk.A, slow.risk.A)
    assert_array_equal(auto.risk.b, slow.risk.b)


def test_targets_beyond_single_precision_are_no_obstacle() -> None:
    source, phi = open_arrays(X, 1e60 * Y), features()
    fast, slow = (
        stream_statistics(source, phi, lam=LAM, how=Passing(p)) for p in ("auto", "double")
    )
    assert_array_equal(fast.risk.b, slow.risk.b)


@pytest.mark.parametrize("fast", [False, pytest.param(True, marks=FAST)])
@pytest.mark.parametrize("precision", ["auto", "double"])
def test_threads_change_no_bit(precision: str, fast: bool) -> None:
    X, y = many(30_000)
    source, phi = open_arrays(X, y, np.arange(30_000) % 7, chunk=5000), features(d=20, L=40)
    one, two, five = (
        stream_statistics(source, phi, lam=LAM, how=Passing(precision, workers, fast=fast)).risk
        for workers in (1, 2, 5)
    )
    assert bits(one) == bits(two) == bits(five)


def bits(risk: Quadratic) -> tuple[bytes, ...]:
    return tuple(part.tobytes() for part in (risk.A, risk.b, risk.yy, risk.T))


@pytest.mark.parametrize("chunk", [700, 16384])
def test_neither_chunks_nor_the_order_of_sites_change_a_bit(chunk: int) -> None:
    """Sums are made of so many rows of a site, wherever the rows of others stand between them."""
    X, y = many(9000)
    sites = np.random.default_rng(0).integers(0, 4, 9000)
    order, phi = np.argsort(sites, kind="stable"), features(d=20, L=40)
    mixed = open_arrays(X, y, sites, chunk=chunk)
    sorted_ = open_arrays(X[order], y[order], sites[order], chunk=5000)
    a, b = (stream_statistics(source, phi, lam=LAM) for source in (mixed, sorted_))
    assert a.names == b.names == ("0", "1", "2", "3")
    assert bits(a.risk) == bits(b.risk)


def test_rows_that_wait_for_their_site_take_less_room_than_its_sums() -> None:
    """A thousand sites, whose rows come in turn: the peak is that of fewer rows, and the sums'."""

    def peak(each: int) -> int:
        source = open_arrays(
            np.ones((1000 * each, 20)), np.ones(1000 * each), np.arange(1000 * each) % 1000
        )
        tracemalloc.start()
        stream_statistics(source, features(d=20, L=20), lam=LAM)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(2)
    sums = 8 * 1000 * 40 * 40
    assert peak(75) <= 4.5 * sums  # the sums, the answer, rows that wait, a few chunks


def endless(chunks: int) -> Source:
    """Rows that are nowhere."""

    def generate() -> Iterator[Chunk]:
        for seed in range(chunks):
            rng = np.random.default_rng(seed)
            yield Chunk(rng.normal(size=(2000, 20)), rng.normal(size=2000), None, ())

    return Source(tuple(f"x{j}" for j in range(20)), None, generate)


@pytest.mark.parametrize("workers", [1, 2])
def test_memory_does_not_grow_with_the_rows(workers: int) -> None:
    def peak(chunks: int) -> int:
        tracemalloc.start()
        how = Passing(workers=workers)
        stream_statistics(endless(chunks), features(d=20, L=50), lam=LAM, how=how)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(5)
    assert peak(120) <= 2.0 * peak(15)  # as many blocks wait as threads are slow


def test_progress_counts_rows() -> None:
    seen: list[int] = []
    source = open_arrays(X, Y, chunk=64)
    names, _, _ = stream_statistics(source, features(), lam=LAM, how=Passing(progress=seen.append))
    assert seen == [64, 128, 192, 200]
    assert source.rows == 200
    assert names == ("0",)


def test_rows_with_missing_values_are_left_out_or_refused() -> None:
    holes, y = X.copy(), Y.copy()
    holes[3, 1], holes[150, 2], y[70] = np.nan, np.inf, np.nan
    where = SITES.astype(object)
    where[8] = None
    source, phi = open_arrays(holes, y, where, chunk=64), features()
    plain = Scaling.none(D)
    risk = stream_statistics(source, phi, lam=LAM, how=Passing("double", missing="drop")).risk
    wanted = expected(phi, plain, np.setdiff1d(np.arange(200), [3, 8, 70, 150]))
    assert_allclose(risk.A, wanted.A, atol=1e-13)
    assert_array_equal(risk.T, wanted.T)
    with pytest.raises(DataError, match=r"rows 1 to 64: .*x1 \(1\)"):
        list(complete(source))
    with pytest.raises(DataError, match=r"rows 65 to 128: .*the target \(1\)"):
        list(complete(open_arrays(X, y, chunk=64)))
    with pytest.raises(DataError, match="1 rows have no site"):
        list(complete(open_arrays(X, Y, where)))
    with pytest.raises(DataError, match="no rows left of 2"):
        list(complete(open_arrays(np.full((2, 1), np.nan), [1, 2]), Passing(missing="drop")))


def test_a_site_that_is_no_number_is_missing() -> None:
    table = pa.table({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0], "s": [7.0, np.nan, 8.0]})
    source = open_table(table, "y", site="s")
    with pytest.raises(DataError, match="1 rows have no site"):
        list(complete(source))
    how = Passing(missing="drop")
    assert stream_statistics(source, features(d=1), lam=LAM, how=how).names == ("7.0", "8.0")


def test_without_numba_compiled_loops_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "available", lambda: False)
    with pytest.raises(InputError, match=r"coke-learn\[fast\]"):
        stream_statistics(open_arrays(X, Y), features(), lam=LAM, how=Passing(fast=True))


def test_settings_that_cannot_be_used_are_refused() -> None:
    source = open_arrays(X, Y)
    for how, said in (
        (Passing("half"), "unknown precision 'half'"),
        (Passing(workers=0), "workers=0"),
        (Passing(missing="guess"), "unknown treatment"),
    ):
        with pytest.raises(InputError, match=said):
            stream_statistics(source, features(), lam=LAM, how=how)
    with pytest.raises(InputError, match="features for 4 inputs: expected 3"):
        stream_statistics(source, features(d=4), lam=LAM)
    with pytest.raises(DataError, match="beyond 1e150"):
        stream_statistics(open_arrays(np.full((5, D), 1.7e308), np.ones(5)), features(), lam=LAM)
    with pytest.raises(DataError, match="beyond 1e150"):
        stream_statistics(open_arrays(X, Y * 1e200), features(), lam=LAM)
