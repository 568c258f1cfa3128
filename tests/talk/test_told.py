"""What sites tell of their columns: about two bytes a number, and ranges that hold all rows."""

from __future__ import annotations

from functools import partial, reduce

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.data.units import Columns, columns_of, fit_scaling
from coke.errors import MessageError
from coke.maths.arrays import Array
from coke.maths.ledger import LETTERHEAD, Ledger
from coke.talk.conversation import together
from coke.talk.sums import swept
from coke.talk.told import Told, tell
from kit.problems import GRAPHS, placed

NAMES = tuple("abcdef")
RNG = np.random.default_rng(0)
SITES = [RNG.normal(0.5 * i, 1 + i, size=(40, 3)) for i in range(6)]
FINE = 2.0**-8
UNITS = st.sampled_from([1e-140, 1e-9, 1.0, 3.086e16, 1e140])


def same(a: Columns, b: Columns) -> None:
    assert a.T == b.T
    for x, y in zip(a[1:], b[1:], strict=True):
        assert_allclose(x, y, rtol=1e-12)


def near(told: Columns, whole: Columns, times: int = 1) -> None:
    """Rounded so many times at most."""
    assert told.T == whole.T
    assert (np.abs(told.mean - whole.mean) <= times * FINE * whole.sd).all()
    assert_allclose(told.sd, whole.sd, rtol=times * FINE)
    wide = whole.high - whole.low
    assert (told.low <= whole.low).all()
    assert (told.high >= whole.high).all()
    assert (told.high - told.low <= (1 + times * 2.0**-10) * wide).all()


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_told_numbers_are_nearly_those_of_all_rows_together(graph: nx.Graph) -> None:
    """On every tree, to the bit the same at all sites; a rounding for each step to the root."""
    net, totals = placed(graph, NAMES), list[bytes]()
    own = {name: Told(columns_of(SITES[i]), (f"c{i % 3}",)) for i, name in enumerate(NAMES)}
    talks = {name: tell(partial(swept, net[name], totals), told) for name, told in own.items()}
    found, ledgers = together(talks)
    for told in found.values():
        assert told is not None  # of a site whose columns are no numbers
        assert told.labels == ("c0", "c1", "c2")
        near(told.columns, columns_of(np.concatenate(SITES)), times=6)
    assert len({*totals}) == 1
    ledger = Ledger(*map(sum, zip(*ledgers.values(), strict=True)))
    messages = net["a"].shape.messages
    assert ledger.transmissions == messages
    more = (10 - messages) * len(totals[0])  # a broadcast's other copies
    assert ledger.wire_bytes == ledger.bytes + more + 10 * LETTERHEAD


def test_merging_moments_is_pooling_rows() -> None:
    parts = reduce(Columns.merged, map(columns_of, SITES))
    same(parts, columns_of(np.concatenate(SITES)))


def through(columns: Columns) -> Columns:
    data = Told(columns).encode()
    return Told.decode(data, [len(part) for part in columns[1:]]).columns


@given(seed=st.integers(0, 10_000), unit=UNITS, far=st.sampled_from([0.0, 1.0, 700.0, 1e8]))
def test_a_column_is_told_as_well_in_any_units(seed: int, unit: float, far: float) -> None:
    """Years around 2015 as well as nanometres: what counts is how much a column varies."""
    rng = np.random.default_rng(seed)
    columns = columns_of(unit * (far + rng.normal(size=(30, 4)) * rng.uniform(0.01, 9, 4)))
    found = through(columns)
    near(found, columns)
    near(through(found), columns, times=2)


def test_two_bytes_a_number() -> None:
    """Of nine columns in units of their own, means and deviations or ranges; float64 took eight."""
    Z = (RNG.normal(size=(500, 9)) + 3 * RNG.normal(size=9)) * 10.0 ** RNG.uniform(-3, 3, 9)
    columns = columns_of(Z)
    for moments, most in ((True, 50), (False, 70)):
        part = columns.needed(moments=moments, ranges=not moments)
        assert len(Told(part).encode()) <= most


@given(value=st.integers(-(2**50), 2**50), other=st.integers(-(2**50), 2**50), unit=UNITS)
def test_a_column_that_does_not_vary_is_exact(value: int, other: int, unit: float) -> None:
    """So it still is flat once merged, and its rows are at zero in the common units."""
    rest = unit * RNG.normal(size=3)

    def site(last: int) -> Array:
        return np.column_stack([np.full(3, float(value)), np.full(3, float(last)), rest])

    a, b = (through(columns_of(site(last))) for last in (value, other))
    found = through(a.merged(b))
    assert found.mean[0] == value
    assert found.sd[0] == 0
    assert found.low[0] == found.high[0] == value
    units = fit_scaling("standard", 3, found.needed(moments=True, ranges=False))
    assert_array_equal(units.inputs(site(other))[:, 0], 0)


@given(data=st.binary(max_size=200), d=st.integers(0, 3))
def test_any_bytes_tell_of_columns_or_are_refused(data: bytes, d: int) -> None:
    try:
        told = Told.decode(data, [d] * 4)
    except MessageError:
        return
    assert all(np.isfinite(part).all() for part in told.columns[1:])
    assert Told.decode(told.encode(), [d] * 4).labels == told.labels


@given(at=st.integers(0, 100), byte=st.integers(0, 255), flat=st.booleans())
def test_altered_bytes_tell_of_columns_or_are_refused(at: int, byte: int, flat: bool) -> None:
    Z = np.column_stack([SITES[0], np.full(40, 3.7 if flat else 0.0)])
    data = bytearray(Told(columns_of(Z)).encode())
    data[at % len(data)] = byte
    try:
        told = Told.decode(bytes(data), [4] * 4)
    except MessageError:
        return
    assert (told.columns.sd >= 0).all()
    assert (told.columns.low <= told.columns.high).all()


def test_what_nobody_needs_is_not_told() -> None:
    columns = columns_of(SITES[0])
    short = Told(columns.needed(moments=False, ranges=True)).encode()
    assert len(short) < len(Told(columns).encode())
    with pytest.raises(MessageError, match="where 3 were expected"):
        Told.decode(short, [3, 3, 3, 3])
