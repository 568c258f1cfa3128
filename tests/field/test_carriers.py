"""Carriers: frames from the neighbour they name, in order, bounded; and from nobody else."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.errors import InputError
from coke.field.carriers.base import OVERHEAD, Allowance, Bucket, _Inbox
from coke.field.carriers.memory import Memory, lossy
from kit.sessions import drain

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

SMALL = Allowance(frame=100, backlog=500, rate=10.0, burst=20)

# What both carriers share


GAPS = st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.01, 0.1, 3.0]), max_size=60)


@given(GAPS, st.floats(0.1, 50), st.integers(1, 5))
def test_any_t_seconds_admit_at_most_burst_plus_rate_t_frames(
    gaps: list[float], rate: float, burst: int
) -> None:
    now = 0.0
    bucket = Bucket(rate, burst, lambda: now)
    admitted: list[float] = []
    for gap in gaps:
        now += gap
        if bucket.take():
            admitted.append(now)
    for first, begin in enumerate(admitted):
        for last, end in enumerate(admitted[first:], first):
            assert last - first + 1 <= burst + rate * (end - begin) + 1e-6


def test_a_silent_neighbour_earns_its_burst_back() -> None:
    now = 0.0
    bucket = Bucket(1.0, 5, lambda: now)
    assert sum(bucket.take() for _ in range(9)) == 5
    now = 100.0
    assert sum(bucket.take() for _ in range(9)) == 5


LONG = 300.0  # seconds: a condition that does not come true by then never does
FRAMES = st.builds(bytes, st.sampled_from([0, 1, 60, 99, 100, 101]))
STEPS = st.lists(st.none() | st.tuples(st.sampled_from("ab"), FRAMES), min_size=30, max_size=80)


@given(STEPS)
def test_an_inbox_keeps_order_and_bounds_and_accounts_for_every_frame(
    steps: list[tuple[str, bytes] | None],
) -> None:
    """None is a receive. What comes out of one neighbour is what was kept, in order."""
    inbox = _Inbox("ab", SMALL, lambda: 0.0)
    kept: dict[str, list[bytes]] = {"a": [], "b": []}
    offered = dict.fromkeys("ab", 0)
    for step in steps:
        if step is None:
            got = inbox.take(0)
            assert (got is None) == (not any(kept.values()))
            if got is not None:
                assert got[1] == kept[got[0]].pop(0)
            continue
        sender, frame = step
        offered[sender] += 1
        held = sum(len(waiting) + OVERHEAD for waiting in kept[sender])
        fits = held + len(frame) + OVERHEAD <= SMALL.backlog
        expected = "received" if fits else "overflowed"
        expected = expected if len(frame) <= SMALL.frame else "oversized"
        expected = expected if offered[sender] <= SMALL.burst else "hurried"
        assert inbox.offer(sender, frame) == expected
        if expected == "received":
            kept[sender].append(frame)


def test_a_loud_neighbour_starves_nobody() -> None:
    inbox = _Inbox("ab", Allowance(), lambda: 0.0)
    for _ in range(100):
        inbox.offer("a", b"loud")
    inbox.offer("b", b"quiet")
    assert ("b", b"quiet") in [inbox.take(0), inbox.take(0)]


@given(st.sets(st.sampled_from("abc")), st.sets(st.sampled_from("abc")))
def test_frames_that_are_of_use_together_are_waited_for_together(
    sent: set[str], together: set[str]
) -> None:
    """At once where all are there, however long it may take; in the end, whatever there is."""
    inbox = _Inbox("abc", Allowance(), lambda: 0.0)
    for name in sorted(sent):
        inbox.offer(name, name.encode())
    whole = bool(sent) and together <= sent
    got = inbox.take(LONG if whole else 0.0, together)
    assert (got is None) == (not sent)
    assert got is None or (got[0] in sent and got[1] == got[0].encode())


def test_the_last_of_them_wakes_whoever_waits() -> None:
    inbox, got = _Inbox("abc", Allowance(), lambda: 0.0), list[object]()
    waiter = threading.Thread(target=lambda: got.append(inbox.take(LONG, "ab")))
    waiter.start()
    for name in "cab":
        assert not got
        inbox.offer(name, b"x")
    waiter.join(LONG)
    assert len(got) == 1


@pytest.mark.parametrize(
    "allowance",
    [
        Allowance(frame=0),
        Allowance(frame=100, backlog=150),
        Allowance(rate=0.0),
        Allowance(burst=0),
    ],
)
def test_allowances_under_which_nothing_could_pass_are_refused(allowance: Allowance) -> None:
    with pytest.raises(InputError, match="; raise the"):
        Memory().join("a", ["b"], allowance)


def test_memory_delivers_in_order_between_neighbours_only() -> None:
    network = Memory()
    a, b, c = network.join("a", ["b"]), network.join("b", "ac"), network.join("c", "ab")
    for number in range(10):
        a.send("b", bytes([number]))
    c.send("a", b"not mutual")
    assert drain(b) == [("a", bytes([number])) for number in range(10)]
    assert drain(a) == []
    assert a.alive() == {"b"} == c.alive()
    assert b.alive() == {"a", "c"}
    assert c.counts()["a"].unsent == 1
    with pytest.raises(InputError, match="unknown neighbour 'c'"):
        a.send("c", b"")
    with pytest.raises(InputError, match="own neighbour"):
        network.join("d", ["d"])


def test_faults_are_those_of_the_seed_and_below_the_protocol() -> None:
    def arrived(seed: int) -> list[tuple[str, bytes]]:
        network = Memory(lossy(seed, loss=0.2, twice=0.1))
        a, b = network.join("a", "b"), network.join("b", "a")
        for number in range(1000):
            a.send("b", number.to_bytes(2, "big"))
        assert a.counts()["b"].sent == 1000  # the sender cannot tell
        return drain(b)

    numbers = [int.from_bytes(frame, "big") for _, frame in arrived(1)]
    assert arrived(1) == arrived(1) != arrived(2)
    assert numbers == sorted(numbers)
    assert 740 < len(set(numbers)) < 860
    assert 40 < len(numbers) - len(set(numbers)) < 130


def test_a_cut_separates_until_healed_and_is_an_event() -> None:
    network = Memory()
    a, b = network.join("a", "b"), network.join("b", "a")
    assert [event.kind for event in a.events()] == ["up"]
    network.cut("b", "a")
    b.send("a", b"lost")
    assert a.alive() == frozenset()
    network.heal("a", "b")
    b.send("a", b"kept")
    assert drain(a) == [("b", b"kept")]
    network.cut("a", "b")
    assert [(event.kind, event.who) for event in a.events()] == [("down", "b")]
    assert a.events() == []


def test_a_restart_takes_the_place_of_the_old_carrier() -> None:
    network = Memory()
    a, old = network.join("a", "b"), network.join("b", "a")
    new = network.join("b", "a")
    old.close()  # late, as a dying process may be
    a.send("b", b"x")
    assert (drain(old), drain(new)) == ([], [("a", b"x")])
    new.close()
    a.send("b", b"x")
    assert (a.alive(), a.counts()["b"].unsent) == (frozenset(), 1)


def test_receive_ends_in_time_and_when_the_carrier_is_closed() -> None:
    with Memory().join("a", "b") as a:
        begin = time.monotonic()
        assert a.receive(0.05) is None
        assert time.monotonic() - begin > 0.04
        threading.Timer(0.05, a.close).start()
        assert a.receive(300) is None
        assert time.monotonic() - begin < 200
    a.send("b", b"nothing happens")
    assert (a.receive(300), a.alive()) == (None, frozenset())
