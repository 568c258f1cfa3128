"""Carriers: frames from the neighbour they name, in order, bounded; and from nobody else."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certificates import Authority
from coke.agents.carriers import OVERHEAD, Bucket, Carrier, Inbox, Limits, Memory, lossy
from coke.agents.identity import Identity
from coke.agents.place import Endpoint, Place, access_control, zenoh_settings
from coke.agents.zenoh_carrier import ZenohCarrier
from coke.errors import ConfigError, InputError

PAST = timedelta(days=-1)
SMALL = Limits(frame=100, backlog=500, rate=10.0, burst=20)


# What both carriers share


GAPS = st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.01, 0.1, 3.0]), max_size=60)


@given(GAPS, st.floats(0.1, 50), st.integers(1, 5))
def test_any_t_seconds_admit_at_most_burst_plus_rate_t_frames(
    gaps: list[float], rate: float, burst: int
) -> None:
    now = 0.0
    bucket = Bucket(Limits(rate=rate, burst=burst), lambda: now)
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
    bucket = Bucket(Limits(rate=1.0, burst=5), lambda: now)
    assert sum(bucket.take() for _ in range(9)) == 5
    now = 100.0
    assert sum(bucket.take() for _ in range(9)) == 5


FRAMES = st.builds(bytes, st.sampled_from([0, 1, 60, 99, 100, 101]))
STEPS = st.lists(st.none() | st.tuples(st.sampled_from("ab"), FRAMES), min_size=30, max_size=80)


@given(STEPS)
def test_an_inbox_keeps_order_and_bounds_and_accounts_for_every_frame(
    steps: list[tuple[str, bytes] | None],
) -> None:
    """None is a receive. What comes out of one neighbour is what was kept, in order."""
    inbox = Inbox("ab", SMALL, lambda: 0.0)
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
    inbox = Inbox("ab", Limits(), lambda: 0.0)
    for _ in range(100):
        inbox.offer("a", b"loud")
    inbox.offer("b", b"quiet")
    assert ("b", b"quiet") in [inbox.take(0), inbox.take(0)]


@pytest.mark.parametrize(
    "limits",
    [Limits(frame=0), Limits(frame=100, backlog=150), Limits(rate=0.0), Limits(burst=0)],
)
def test_limits_under_which_nothing_could_pass_are_refused(limits: Limits) -> None:
    with pytest.raises(InputError, match="; raise the"):
        Memory().join("a", ["b"], limits)


# The network in one process


def drain(carrier: Carrier) -> list[tuple[str, bytes]]:
    return list(iter(lambda: carrier.receive(0), None))


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
        assert 0.04 < time.monotonic() - begin < 5
        threading.Timer(0.05, a.close).start()
        assert a.receive(30) is None
        assert time.monotonic() - begin < 5
    a.send("b", b"nothing happens")
    assert (a.receive(30), a.alive()) == (None, frozenset())


# Configuration: what is refused before any socket opens


TAILS = st.sampled_from(["", "#", "#enable_mtls=false", "?prio=1", ";x", "/", "\n", " ", "0", "٣"])
ADDRESSES = st.from_regex(
    r"(tls|tcp)/(\[[0-9a-f:]{1,9}\]|[a-z.#:/]{1,9}):[0-9]{1,5}", fullmatch=True
)


@given(st.text(max_size=40) | st.builds("{}{}".format, ADDRESSES, TAILS))
def test_an_address_is_protocol_host_port_and_nothing_more(text: str) -> None:
    """An option such as #enable_mtls=false must never reach zenoh."""
    with contextlib.suppress(ConfigError):
        at = Endpoint.parse(text)
        port = text.removeprefix(f"{at.protocol}/{at.host}:")
        assert port.isascii()
        assert port.isdigit()
        assert 0 < int(port) == at.port < 65536
        assert at.protocol in ("tls", "tcp")
        assert not {*"#?;/"} & {*at.host}


PLAIN = Place("a", "net", ("tcp/127.0.0.1:7447",), {"b": None}, allow_plaintext_loopback=True)


@pytest.mark.parametrize(
    ("site", "complaint"),
    [
        (PLAIN._replace(allow_plaintext_loopback=False), "is plaintext"),
        (PLAIN._replace(listen=("tcp/0.0.0.0:7447",)), "is plaintext"),
        (PLAIN._replace(neighbours={"b": "tcp/10.0.0.1:7447"}), "is plaintext"),
        (PLAIN._replace(listen=("tls/127.0.0.1:7447",)), "and an identity"),
        (PLAIN._replace(listen=()), "listens nowhere"),
        (PLAIN._replace(listen=("udp/127.0.0.1:7447",)), "expected tls/HOST:PORT"),
        (PLAIN._replace(neighbours={"b/*": None}), "name 'b/\\*'"),
        (PLAIN._replace(network="*"), "name '\\*'"),
        (PLAIN._replace(neighbours={"a": None}), "own neighbour"),
    ],
)
def test_a_site_that_would_be_open_or_alone_is_refused(site: Place, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        ZenohCarrier(site)


def test_identities_of_others_and_broken_files_are_refused(folder: Path, ca: Authority) -> None:
    site = Place("a", "net", ("tls/127.0.0.1:7447",), {"b": None}, identity(ca, "b"))
    with pytest.raises(ConfigError, match="the identity of 'b'"):
        ZenohCarrier(site)
    own, other = identity(ca, "a"), identity(ca, "b")
    with pytest.raises(ConfigError, match="cannot be used"):
        ZenohCarrier(site._replace(identity=own._replace(key=other.key)))
    with pytest.raises(ConfigError, match="without ';'"):
        ZenohCarrier(site._replace(identity=own._replace(ca=folder / "a;b" / "ca.pem")))


def test_everything_is_denied_but_a_neighbours_own_two_keys() -> None:
    rules = access_control(PLAIN._replace(neighbours={"b": None, "c": None}))
    assert (rules["enabled"], rules["default_permission"]) == (True, "deny")
    assert [s["cert_common_names"] for s in rules["subjects"]] == [["b"], ["c"]]
    keys = {r["id"]: (r["flows"], r["messages"], r["key_exprs"]) for r in rules["rules"]}
    for policy in rules["policies"]:
        (n,) = policy["subjects"]
        assert [keys[r] for r in policy["rules"]] == [
            (["ingress"], ["put"], [f"coke/net/{n}/a"]),
            (["egress"], ["put"], [f"coke/net/a/{n}"]),
            (["ingress"], ["declare_subscriber"], [f"coke/net/*/{n}"]),
            (["egress"], ["declare_subscriber"], ["coke/net/*/a"]),
        ]


def test_without_zenoh_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zenoh", None)
    with pytest.raises(ConfigError, match=r"pip install 'coke\[agent\]'"):
        ZenohCarrier(PLAIN)


# Real sessions on this machine

zenoh: Any = pytest.importorskip("zenoh", reason="coke[agent] is not installed")
BLOCK = zenoh.CongestionControl.BLOCK


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def ca(folder: Path) -> Authority:
    return Authority(folder / "ours")


@pytest.fixture(scope="module")
def foreign(folder: Path) -> Authority:
    return Authority(folder / "theirs")


def identity(ca: Authority, name: str, expires: timedelta = timedelta(days=1)) -> Identity:
    return Identity(name, *ca.issue(name, expires=expires), datetime.now(UTC) + expires)


def address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"tls/127.0.0.1:{free.getsockname()[1]}"


def site(own: Identity, listen: str | None, neighbours: Mapping[str, str | None]) -> Place:
    return Place(own.name, "net", (listen,) if listen else (), neighbours, own)


@contextlib.contextmanager
def outsider(
    own: Identity, *, at: str | None = None, to: str | None = None, mtls: bool = True
) -> Iterator[Any]:
    """Zenoh as someone may run it who keeps to none of our rules."""
    wanted = site(own, at or "tls/127.0.0.1:1", {"x": to})
    settings = zenoh_settings(wanted) | {"listen/endpoints": [at] if at else []}
    settings["access_control"] = {"enabled": False}
    settings["transport/link/protocols"] = ["tcp", "tls"]
    settings["transport/link/tls"]["enable_mtls"] = mtls
    config = zenoh.Config()
    for path, value in settings.items():
        config.insert_json5(path, json.dumps(value))
    with zenoh.open(config) as session:
        yield session


def until(condition: Callable[[], object], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not (done := bool(condition())) and time.monotonic() < end:
        time.sleep(0.005)
    return done


def test_neighbours_exchange_frames_in_order_and_drop_what_is_too_long(ca: Authority) -> None:
    at = address()
    before = threading.active_count()
    small = site(identity(ca, "a"), at, {"b": None})._replace(limits=Limits(frame=1000))
    with ZenohCarrier(small) as a, ZenohCarrier(site(identity(ca, "b"), None, {"a": at})) as b:
        assert until(lambda: a.alive() == {"b"} and b.alive() == {"a"})
        for number in range(1000):
            a.send("b", number.to_bytes(500, "big"))
            b.send("a", number.to_bytes(4, "big"))
        expected = [number.to_bytes(500, "big") for number in range(1000)]
        assert [b.receive(5) for _ in range(1000)] == [("a", frame) for frame in expected]
        assert [a.receive(5) for _ in range(1000)] == [("b", frame[-4:]) for frame in expected]
        for size in (1001, 100_000, 1000):  # counted; never put together; fits
            b.send("a", bytes(size))
        a.send("b", bytes(1001))
        assert a.receive(5) == ("b", bytes(1000))
        assert b.receive(0.1) is None
        assert (a.counts()["b"].oversized, a.counts()["b"].received) == (2, 1001)
        assert [(event.kind, event.who) for event in a.events()] == [("up", "b")]
        assert a.refusals() == b.refusals() == 0
        with pytest.raises(ConfigError, match="free port"):
            ZenohCarrier(site(identity(ca, "c"), at, {"b": None}))
    assert threading.active_count() == before


def test_a_site_of_the_same_ca_says_and_hears_nothing_but_its_own(ca: Authority) -> None:
    """c is a neighbour and plays b; d is none and plays b, c and itself."""
    at = address()
    hub = site(identity(ca, "a"), at, {"b": None, "c": None})
    with (
        ZenohCarrier(hub) as a,
        ZenohCarrier(site(identity(ca, "b"), None, {"a": at})) as b,
        outsider(identity(ca, "c"), to=at) as c,
        outsider(identity(ca, "d"), to=at) as d,
    ):
        ears = [who.declare_subscriber(key) for who in (c, d) for key in ("**", "coke/net/*/b")]
        ears.append(c.declare_subscriber("coke/net/*/c"))
        assert until(lambda: a.alive() == {"b", "c"} and b.alive() == {"a"} and d.info.links())
        for who in (d, c):
            for sender in "bdc":
                frame = f"{sender} from {who.zid()}".encode()
                who.put(f"coke/net/{sender}/a", frame, congestion_control=BLOCK)
        assert a.receive(5) == ("c", f"c from {c.zid()}".encode())
        assert a.receive(0.2) is None
        for name in "bc":
            a.send(name, name.encode())
        assert b.receive(5) == ("a", b"b")
        assert until(lambda: heard(ears[-1]) == [b"c"])  # so c has heard all it ever will
        of_c, of_d = ({f for ear in pair for f in heard(ear)} for pair in (ears[:2], ears[2:4]))
        assert b"b" not in of_c
        assert not {b"b", b"c"} & of_d
        assert ("refused", "d") in [(event.kind, event.who) for event in a.events()]
        assert a.refusals() == 1


def heard(ear: Any) -> list[bytes]:
    return [bytes(sample.payload) for sample in iter(ear.try_recv, None)]


@pytest.mark.parametrize("flaw", ["no certificate", "foreign", "expired", "plaintext"])
def test_whoever_cannot_prove_its_name_gets_no_link(
    flaw: str, ca: Authority, foreign: Authority
) -> None:
    """And a good neighbour that comes after it is welcome."""
    at = address()
    good = identity(ca, "b")
    own = {
        "foreign": identity(foreign, "b")._replace(ca=good.ca),
        "expired": identity(ca, "b", PAST),
    }.get(flaw, good)
    to = at.replace("tls", "tcp") if flaw == "plaintext" else at
    with ZenohCarrier(site(identity(ca, "a"), at, {"b": None})) as a:
        with outsider(own, to=to, mtls=flaw != "no certificate") as bad:
            bad.declare_subscriber("**")
            bad.put("coke/net/b/a", b"x", congestion_control=BLOCK)
            assert a.receive(0.5) is None
            assert (bad.info.links(), a.alive()) == ([], frozenset())
        with ZenohCarrier(site(identity(ca, "b"), None, {"a": at})) as b:
            assert until(lambda: b.alive() and a.alive() == {"b"})


def test_a_missing_neighbour_is_asked_why(ca: Authority, foreign: Authority) -> None:
    """Where nobody, a stranger or somebody else answers, there is no link, and the site says so."""
    at = {name: address() for name in ("foreign", "expired", "wrong", "absent", "deaf")}
    at["localhost"] = address().replace("127.0.0.1", "localhost")
    with (
        outsider(identity(foreign, "foreign"), at=at["foreign"]),
        outsider(identity(ca, "expired", PAST), at=at["expired"]),
        outsider(identity(ca, "carol"), at=at["wrong"]) as carol,
        outsider(identity(ca, "dave"), at=at["localhost"]) as dave,
        ZenohCarrier(site(identity(ca, "deaf"), at["deaf"], {"x": None})) as deaf,
        ZenohCarrier(site(identity(ca, "a"), None, at)) as a,
    ):
        said: dict[str, str] = {}

        def told() -> bool:
            said.update({event.who: f"{event.kind} {event.why}" for event in a.events()})
            return said.keys() == at.keys() | {"carol"}

        assert until(told), said
        assert "refused" in said["foreign"]
        assert "expired" in said["expired"]
        assert "mismatch" in said["wrong"]
        assert "mismatch" in said["localhost"]
        assert "unreachable" in said["absent"]
        assert "does it name us" in said["deaf"]
        assert "no neighbour" in said["carol"]
        # By the address alone zenoh cannot know the name; by the host's name it refuses the link.
        assert (len(carol.info.links()), dave.info.links()) == (1, [])
        assert a.alive() == frozenset()
        assert ("refused", "a") in [(event.kind, event.who) for event in deaf.events()]


def test_a_site_whose_own_certificate_has_run_out_says_so(ca: Authority) -> None:
    at = address()
    with (
        ZenohCarrier(site(identity(ca, "b"), at, {"a": None})) as b,
        ZenohCarrier(site(identity(ca, "a", PAST), None, {"b": at})) as a,
    ):
        assert until(lambda: a.refusals() == 1)
        assert "EXPIRED" in a.events()[0].why
        assert a.alive() == b.alive() == frozenset()


ECHO = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from coke.agents.identity import Identity
from coke.agents.place import Place
from coke.agents.zenoh_carrier import ZenohCarrier
at, how, *paths = sys.argv[1:]
own = Identity("b", *map(Path, paths), datetime.now(UTC))
carrier = ZenohCarrier(Place("b", "net", (), {"a": at}, own))
while (got := carrier.receive(30)) != ("a", b"end"):
    carrier.send(*got)
if how == "close":
    carrier.close()
"""


@contextlib.contextmanager
def echo(own: Identity, at: str, how: str = "close") -> Iterator[subprocess.Popen[bytes]]:
    """A neighbour in another process, which says what it hears until it hears "end"."""
    paths = map(str, (own.ca, own.certificate, own.key))
    process = subprocess.Popen([sys.executable, "-c", ECHO, at, how, *paths])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def answered(a: Carrier, frame: bytes) -> bool:
    a.send("b", frame)
    return a.receive(5) == ("b", frame)


def test_a_neighbour_that_dies_or_freezes_is_missed_and_comes_back(ca: Authority) -> None:
    at, own = address(), identity(ca, "b")
    with ZenohCarrier(site(identity(ca, "a"), at, {"b": None})) as a:
        with echo(own, at) as first:
            assert until(lambda: a.alive() == {"b"})
            assert answered(a, b"one")
            first.send_signal(signal.SIGSTOP)
            assert until(lambda: not a.alive(), 5)
            a.send("b", b"into the void")
            first.send_signal(signal.SIGCONT)
            assert until(lambda: a.alive() == {"b"})
            assert answered(a, b"two")
            first.kill()
            assert until(lambda: not a.alive(), 2)
        with echo(own, at) as second:
            assert until(lambda: a.alive() == {"b"})
            assert answered(a, b"three")
            a.send("b", b"end")
            assert second.wait(timeout=10) == 0
        assert until(lambda: not a.alive(), 2)
        assert [event.kind for event in a.events()] == 3 * ["up", "down"]


def test_a_caller_waits_for_its_neighbour_however_often_it_goes(ca: Authority) -> None:
    at = address()
    with ZenohCarrier(site(identity(ca, "b"), None, {"a": at})) as b:
        for _ in range(2):
            assert until(lambda: "unreachable" in {event.kind for event in b.events()})
            with ZenohCarrier(site(identity(ca, "a"), at, {"b": None})) as a:
                assert until(lambda: a.alive() == {"b"} and b.alive() == {"a"})


def test_a_process_ends_even_if_it_forgets_to_close(ca: Authority) -> None:
    at = address()
    with (
        ZenohCarrier(site(identity(ca, "a"), at, {"b": None})) as a,
        echo(identity(ca, "b"), at, "forget") as process,
    ):
        assert until(lambda: a.alive() == {"b"})
        a.send("b", b"end")
        while process.poll() is None:  # so that it is in the middle of hearing when it ends
            a.send("b", b"and another thing")
        assert process.returncode == 0


def test_a_send_to_a_frozen_neighbour_waits_no_longer_than_the_patience(ca: Authority) -> None:
    at = address()
    hasty = site(identity(ca, "a"), at, {"b": None})._replace(patience_ms=200, lease_ms=20_000)
    with ZenohCarrier(hasty) as a, echo(identity(ca, "b"), at) as process:
        assert until(lambda: a.alive() == {"b"})
        process.send_signal(signal.SIGSTOP)
        longest, begin = 0.0, time.monotonic()
        while a.alive() and time.monotonic() < begin + 5:
            then = time.monotonic()
            a.send("b", bytes(100_000))
            longest = max(longest, time.monotonic() - then)
        assert 0.1 < longest < 3
        assert a.alive() == frozenset()


def test_a_flood_is_cut_down_to_the_burst_and_counted() -> None:
    """In plaintext, which a site must ask for."""
    at = address().replace("tls", "tcp")
    plain = PLAIN._replace(listen=(at,), limits=Limits(burst=10))
    caller = PLAIN._replace(name="b", listen=(), neighbours={"a": at})
    with ZenohCarrier(plain, clock=lambda: 0.0) as a, ZenohCarrier(caller) as b:
        assert until(lambda: b.alive() and a.alive())
        for number in range(100):
            b.send("a", bytes([number]))
        assert until(lambda: a.counts()["b"].hurried == 90)
        assert drain(a) == [("b", bytes([number])) for number in range(10)]
