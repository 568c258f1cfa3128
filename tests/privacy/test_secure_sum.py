"""The secure sum: masks that cancel, shares that serve once, a total with one site's noise."""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import kstest
from test_attacks import rows

from coke.errors import CokeError, ConfigError, DataError, FileError, MessageError
from coke.maths.features.features import FeatureSettings, draw_features
from coke.maths.ledger import Ledger
from coke.privacy import share as shares
from coke.privacy.masks import Words, _stream, masked, unmasked
from coke.privacy.noise import Budget, Noise, Statistics, draws, shared, steps, unpacked
from coke.privacy.release import AllSites, Conditions, Release
from coke.privacy.secure_sum import MOST, _decode_roster, _decode_words, secure_sum
from coke.privacy.share import Member, Share, _load_share
from coke.talk import sums
from coke.talk.conversation import Talk, together
from coke.talk.place import Place
from coke.talk.sums import Sweep, swept
from kit.forging import forgeries
from kit.problems import GRAPHS, Array, placed
from kit.releases import DELTA

NAMES = tuple("abcdef")
FEATURES = draw_features(FeatureSettings(4, sigma=1.5, seed=0), 5)  # D = 8
TERMS = Conditions(FEATURES, 1.0, Budget(1.0, DELTA))
SIZE = 8 * draws(8)  # bytes of a message under masks


def pairs(names: tuple[str, ...]) -> dict[str, dict[str, bytes]]:
    """A secret for every two of these."""
    return {
        me: {other: repr(sorted((me, other))).encode() for other in names if other != me}
        for me in names
    }


@given(st.integers(1, 7), st.lists(st.integers(-(2**52), 2**52), min_size=1, max_size=5))
def test_masks_cancel_to_the_last_bit(n: int, first: list[int]) -> None:
    """Σ m_i = Σ v_i modulo 2⁶⁴, whatever the numbers."""
    names, rng = (*NAMES[: n - 1], "z"), np.random.default_rng(n)
    v = [np.array(first, np.float64)]
    v += [np.rint(rng.normal(scale=2**49, size=len(first))) for _ in names[1:]]
    words = [masked(x, me, pairs(names)[me]) for x, me in zip(v, names, strict=True)]
    total = sum(words[1:], words[0])
    exact = [sum(int(x[j]) for x in v) for j in range(len(first))]
    assert total.tolist() == [number % 2**64 for number in exact]
    assert unmasked(total).tolist() == [float(number) for number in exact]


def test_one_sites_words_are_uniform_and_so_is_every_partial_sum() -> None:
    """Whoever lacks one pair's secret sees numbers uniform on 0 … 2⁶⁴ − 1, whatever v is."""
    n = 50_000
    for v in (np.zeros(n), np.full(n, 12345.0), np.linspace(-1e15, 1e15, n).round()):
        words = [masked(v, me, pairs(NAMES)[me]) for me in NAMES]
        for part in (words[0], words[5], words[0] + words[1], sum(words[1:5], words[0])):
            assert kstest(part.astype(np.float64) / 2.0**64, "uniform").pvalue > 1e-4
            ones = np.unpackbits(part.view(np.uint8)).reshape(n, 64).mean(axis=0)
            assert np.abs(ones - 0.5).max() < 5 / (2 * math.sqrt(n))
    assert len(np.intersect1d(_stream(b"a", 1000), _stream(b"b", 1000))) == 0


def test_the_total_has_the_noise_of_one_site() -> None:
    """N = 9, t = 1: T·mean has s/√8·√9/9, within 1 % of 200 000 draws; without one site s still."""
    N, s, T = 9, 2.0, 7
    noise, rng = Noise(shared(s, N, 1), 2.0**-20), np.random.default_rng(0)
    zero = Statistics(np.zeros((2, 2)), np.zeros(2))
    parts = np.stack([
        steps(zero, T, noise, rng.normal(size=(200_000, draws(2)))) for _ in range(N)
    ])  # fmt: skip
    total = unpacked(parts.sum(axis=0) * noise.grid, 2)
    assert total.A[:, 0, 0].std() == pytest.approx(s * math.sqrt(9 / 8), rel=0.01)
    assert total.A[:, 1, 0].std() == pytest.approx(s * math.sqrt(9 / 16), rel=0.01)
    seen = unpacked(parts[1:].sum(axis=0) * noise.grid, 2)  # by a site, which knows its own
    assert seen.b[:, 1].std() == pytest.approx(s, rel=0.01)


def share(folder: Path, i: int, **changes: Any) -> Share:
    path = folder / f"share-{NAMES[i]}.coke"
    return Share(path, NAMES[i], TERMS, rows(i, 50 + 10 * i), 1, again=False)._replace(**changes)


def spied(own: Talk[Any], heard: list[bytes]) -> Talk[Any]:
    """The same conversation, and all that it says."""
    turn = next(own)
    while True:
        heard.extend(turn.tell.values())
        try:
            turn = own.send((yield turn))
        except StopIteration as stop:
            return stop.value


def summed(
    folder: Path, net: dict[str, Place], **changes: dict[str, Any]
) -> tuple[list[tuple[Release, AllSites]], Ledger, dict[str, list[bytes]]]:
    """All sites' results, the ledger, and what each said; changes by site."""
    said: dict[str, list[bytes]] = {name: [] for name in NAMES}
    talks = {}
    for i, name in enumerate(NAMES):
        own = share(folder, i, **changes.get(name, {}))
        talks[name] = spied(secure_sum(partial(swept, net[name], []), len(NAMES), own), said[name])
    found, ledgers = together(talks)
    total = Ledger(*map(sum, zip(*ledgers.values(), strict=True)))
    return [found[name] for name in NAMES], total, said


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_everybody_gets_the_same_total_and_nobody_a_part(graph: nx.Graph, tmp_path: Path) -> None:
    """On every graph: (1/N) Σ_i (A_i, b_i) and noise; in messages of D(D + 3)/2 words.

    All but the root say one, and those with children the total; so too when they made themselves
    known.
    """
    net = placed(graph, NAMES)
    found, ledger, said = summed(tmp_path, net)
    A = np.mean([TERMS.exact(*rows(i, 50 + 10 * i)).A for i in range(6)], axis=0)
    b = np.mean([TERMS.exact(*rows(i, 50 + 10 * i)).b for i in range(6)], axis=0)
    for release, everyone in found:
        assert_array_equal(release.found.A, found[0][0].found.A)
        assert_array_equal(release.found.b, found[0][0].found.b)
        assert everyone == (6, 1 / 50**2)
        assert release.s == pytest.approx(TERMS.noise.s * math.sqrt(6 / 5))
        assert release.spent == (TERMS.budget,)
        noise = release.s / (6 * 50)
        assert_allclose(release.found.b, b, atol=5 * noise)
        assert np.linalg.norm(release.found.A - A, 2) < 2 * noise * math.sqrt(2 * 8)
    messages = net["a"].shape.messages
    assert ledger.transmissions == 2 * messages
    assert ledger.bytes >= messages * SIZE
    for name in NAMES:  # every partial sum that goes up is far from the numbers it hides
        up = [_decode_words(m, draws(8)) for m in said[name] if len(m) == SIZE]
        if net[name].parent is not None:
            v = _load_share(tmp_path / f"share-{name}.coke")[1]
            assert np.abs(up[0].astype(np.float64) - v).min() > 2.0**36


@pytest.mark.parametrize("graph", [GRAPHS["ring"]], ids=["ring"])
def test_a_restart_says_the_same_and_spends_nothing(
    graph: nx.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = placed(graph, NAMES)
    first, _, said = summed(tmp_path, net)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def refuse(n: int) -> Array:
        raise AssertionError(f"{n} numbers drawn after a restart")

    monkeypatch.setattr(shares, "entropy_normals", refuse)
    again, _, repeated = summed(tmp_path, net)
    assert repeated == said
    assert again[0][0].found.A.tobytes() == first[0][0].found.A.tobytes()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept


def test_a_crash_between_the_key_and_the_sum_keeps_the_key(tmp_path: Path) -> None:
    """Nothing is spent before the roster is known, and the key that was told is the one used."""
    own = share(tmp_path, 0)
    assert own.member == share(tmp_path, 0).member
    assert _load_share(own.path)[0].spent == []
    changed = own._replace(rows=rows(7, 50))
    assert changed.member != own.member  # rows that were in no sum may change, with a new key


def test_a_share_serves_one_sum(tmp_path: Path) -> None:
    """Other rows, other sites, other keys: refused, for two totals would show what they differ by.

    With a new budget at all sites there are new shares under new masks, and budgets add up.
    """
    net = placed(GRAPHS["ring"], NAMES)
    first, _, said = summed(tmp_path, net)
    with pytest.raises(DataError, match="epsilon=1 was spent"):
        summed(tmp_path, net, c={"rows": rows(9, 70)})
    (tmp_path / "share-b.coke").rename(tmp_path / "share-b.lost")
    with pytest.raises(DataError, match="a second sum would show it"):
        summed(tmp_path, net)
    with pytest.raises(DataError, match="a second sum would show it"):
        summed(tmp_path, net, a={"colluding": 2})
    more = TERMS._replace(budget=Budget(2.0, DELTA))
    everybody = {name: {"again": True, "terms": more} for name in NAMES}
    second, _, other = summed(tmp_path, net, **everybody)
    assert second[0][0].total.epsilon == 3.0
    assert np.abs(second[0][0].found.b - first[0][0].found.b).max() < 1  # the masks cancelled
    assert not np.array_equal(second[0][0].found.b, first[0][0].found.b)
    before, after = (
        {message for one in all_.values() for message in one if len(message) == SIZE}
        for all_ in (said, other)
    )
    assert before
    assert not before & after


def test_masks_are_never_used_twice(tmp_path: Path) -> None:
    """Changed rows mean a new key, another roster other masks: no two messages share a stream."""
    own, other = share(tmp_path, 0), share(tmp_path, 1).member
    words = own.words({"a": own.member, "b": other})
    allowed = own._replace(again=True)
    again = allowed.words({"a": own.member, "b": other._replace(T=70)})
    new = allowed._replace(rows=rows(8, 50))
    changed = new.words({"a": new.member, "b": other})
    v = _load_share(own.path)[1]
    for one, two in ((words, again), (words, changed)):
        apart = (one - two).view(np.int64).astype(np.float64)
        assert kstest(apart / 2.0**64 + 0.5, "uniform").pvalue > 1e-4
    assert np.abs(v).max() < 2.0**36


def test_wrong_rosters_and_keys_are_refused(tmp_path: Path) -> None:
    own = share(tmp_path, 0)
    good = {"a": own.member, "b": share(tmp_path, 1).member}
    with pytest.raises(MessageError, match="b's key is of no use"):
        own.words(good | {"b": Member(bytes(32), 5)})  # a point of low order

    def told(roster: dict[str, Member]) -> Sweep:
        return sums.given([msgspec.msgpack.encode(roster)])

    for wrong in (good, {**dict.fromkeys(NAMES, own.member), "a": good["b"]}):
        with pytest.raises(MessageError, match="expected one of each site"):
            next(secure_sum(told(wrong), 6, own))
    with pytest.raises(ConfigError, match="at most 2047"):
        next(secure_sum(told(good), MOST + 1, own))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_roster_or_refused(data: bytes) -> None:
    try:
        roster = _decode_roster(data)
    except MessageError:
        return
    assert all(len(member.key) == 32 and member.T > 0 for member in roster.values())


@given(st.binary(max_size=40))
def test_words_have_their_number_or_are_refused(data: bytes) -> None:
    try:
        words: Words = _decode_words(data, 3)
    except MessageError:
        assert len(data) != 24
        return
    assert words.tobytes() == data


@given(data=st.data())
def test_forged_shares_are_refused_or_make_sense(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    own = share(folder, 0, path=folder / "good.coke")
    if not own.path.exists():
        own.words({"a": own.member, "b": share(folder, 1).member})
    path = folder / "forged.coke"
    path.write_bytes(data.draw(forgeries(own.path.read_bytes()) | st.binary(max_size=60)))
    try:
        kept, whole = _load_share(path)
    except FileError:
        return
    assert len(kept.secret) == 32
    assert bool(kept.roster) == bool(len(whole))


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    with pytest.raises(CokeError, match=r"coke-learn\[agent\]"):
        _ = share(tmp_path, 0).member
