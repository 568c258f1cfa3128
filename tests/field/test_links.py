"""Links of our own: who gets one, who loses it, and what a stranger cannot stop."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coke.errors import ConfigError, FileError, InputError, MessageError
from coke.field import identity as papers
from coke.field.carriers import door, stream
from coke.field.carriers.base import Allowance, Carrier, Event
from coke.field.carriers.stream import FRAME, REFUSED, WELCOME, Reader, packed
from coke.field.carriers.tls import TlsCarrier
from coke.field.revoking import LIST, revoke
from kit.certificates import Authority
from kit.floods import flood
from kit.sessions import LONG, PLAIN, address, identity, site, stranger, told, until

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

PAST = timedelta(days=-1)
HELLO = packed(WELCOME, b"net\nb")


def met(*pair: Carrier) -> bool:
    return until(lambda: all(one.alive() for one in pair))


def said(carrier: Carrier, seen: list[Event]) -> list[tuple[str, str]]:
    seen += carrier.events()
    return [(event.kind, event.who) for event in seen]


def refused(carrier: Carrier, who: str, seen: list[Event]) -> bool:
    return ("refused", who) in said(carrier, seen)


# The words on a link.


@given(
    st.lists(st.tuples(st.sampled_from([stream.PING, FRAME, REFUSED]), st.binary(max_size=60))),
    st.lists(st.integers(0, 300)),
)
@example([(FRAME, bytes(41)), (FRAME, b"x"), (FRAME, bytes(40))], [3, 20, 46])
def test_messages_are_the_same_however_they_are_cut(
    messages: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    """Frames of more than 40 bytes are skipped, and nothing after them is lost."""
    messages = [(kind, b"" if kind == stream.PING else data) for kind, data in messages]
    whole, reader = b"".join(packed(*one) for one in messages), Reader(40)
    found: list[tuple[int, bytes]] = []
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    for start, end in pairwise(places):
        found += reader.feed(whole[start:end])
    long = (stream.OVERSIZED, b"")
    expected = [
        long if kind == FRAME and len(data) > 40 else (kind, data) for kind, data in messages
    ]
    assert found == expected


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_any_bytes_are_messages_or_refused_and_take_bounded_memory(parts: list[bytes]) -> None:
    reader = Reader(40)
    try:
        for part in parts:
            assert all(len(data) <= 1 << 20 for _, data in reader.feed(part))
    except MessageError:
        pass
    assert len(reader._held) <= 40 + 5 + 50 or reader._held[0] == stream.REVOKED


# Who gets a link.


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_neighbours_exchange_frames_in_order_and_drop_what_is_too_long(
    ca: Authority, host: str
) -> None:
    at = address(host)
    before = threading.active_count()
    small = site(identity(ca, "a"), at, {"b": None})._replace(allowance=Allowance(frame=1000))
    with TlsCarrier(small) as a, TlsCarrier(site(identity(ca, "b"), None, {"a": at})) as b:
        assert met(a, b)
        for number in range(1000):
            a.send("b", number.to_bytes(500, "big"))
            b.send("a", number.to_bytes(4, "big"))
        expected = [number.to_bytes(500, "big") for number in range(1000)]
        assert [b.receive(LONG) for _ in range(1000)] == [("a", frame) for frame in expected]
        assert [a.receive(LONG) for _ in range(1000)] == [("b", frame[-4:]) for frame in expected]
        for size in (1001, 10_000_000, 1000):  # counted; never put together; fits
            b.send("a", bytes(size))
        with pytest.raises(InputError, match="at most 1000"):
            a.send("b", bytes(1001))
        assert a.receive(LONG) == ("b", bytes(1000))
        assert b.receive(0.1) is None
        assert (a.counts()["b"].oversized, a.counts()["b"].received) == (2, 1001)
        assert [(event.kind, event.who) for event in a.events()] == [("up", "b")]
        assert a.refusals() == b.refusals() == 0
        with pytest.raises(ConfigError, match="free port"):
            TlsCarrier(site(identity(ca, "c"), at, {"b": None}))
    assert until(lambda: threading.active_count() == before)


def test_what_is_said_last_arrives_although_the_link_is_closed_at_once(ca: Authority) -> None:
    at = address()
    with TlsCarrier(site(identity(ca, "a"), at, {"b": None})) as a:
        with TlsCarrier(site(identity(ca, "b"), None, {"a": at})) as b:
            assert met(a, b)
            a.send("b", bytes(100_000))  # it is still on its way when b hangs up
            for number in range(200):
                b.send("a", number.to_bytes(2000, "big"))
        heard = [a.receive(LONG) for _ in range(200)]
        assert heard == [("b", number.to_bytes(2000, "big")) for number in range(200)]


def test_both_may_call_and_keep_one_link(ca: Authority) -> None:
    at = {name: address() for name in "ab"}
    with (
        TlsCarrier(site(identity(ca, "a"), at["a"], {"b": at["b"]})) as a,
        TlsCarrier(site(identity(ca, "b"), at["b"], {"a": at["a"]})) as b,
    ):
        assert met(a, b)
        for _ in range(50):
            a.send("b", b"x")
            b.send("a", b"y")
            assert (a.receive(LONG), b.receive(LONG)) == (("b", b"y"), ("a", b"x"))
        assert until(lambda: len(a._links.all()) == len(b._links.all()) == 1)


@pytest.mark.parametrize(
    ("flaw", "why"),
    [
        ("no certificate", "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        ("foreign", "certificate"),
        ("expired", "expired"),
        ("no TLS", "speaks no TLS"),
        ("another protocol", "does not speak coke/1"),
    ],
)
def test_whoever_cannot_prove_its_name_gets_no_link_and_the_called_site_says_so(
    flaw: str, why: str, ca: Authority, foreign_ca: Authority
) -> None:
    """And a good neighbour that comes after it is welcome."""
    at, seen = address(), list[Event]()
    authority = foreign_ca if flaw == "foreign" else ca
    own = identity(authority, "b", PAST if flaw == "expired" else -PAST)
    with TlsCarrier(site(identity(ca, "a"), at, {"b": None})) as a:
        if flaw == "no TLS":
            with flood(at, 1, "junk"):
                assert until(lambda: ("refused", "127.0.0.1") in said(a, seen))
        else:
            shown = None if flaw == "no certificate" else own
            plug = stranger(at, shown, "zenoh" if flaw == "another protocol" else "coke/1")
            plug.send(HELLO + packed(FRAME, b"x"))
            assert WELCOME not in dict(told(plug))
        assert until(lambda: ("refused", "127.0.0.1") in said(a, seen)), seen
        assert any(why in event.why for event in seen), seen
        assert a.receive(0.1) is None
        with TlsCarrier(site(identity(ca, "b"), None, {"a": at})) as b:
            assert met(a, b)


def test_a_site_of_the_same_ca_says_nothing_but_its_own(ca: Authority) -> None:
    """c is a neighbour and plays b; d is none and plays b."""
    at, seen = address(), list[Event]()
    with TlsCarrier(site(identity(ca, "a"), at, {"b": None, "c": None})) as a:
        for name in "cd":
            plug = stranger(at, identity(ca, name))
            plug.send(HELLO + packed(FRAME, b"x"))
            assert REFUSED in dict(told(plug))
            assert until(partial(refused, a, name, seen))
        assert a.receive(0.1) is None
        assert (a.alive(), a.refusals()) == (frozenset(), 2)


def test_a_link_without_a_welcome_or_of_another_network_is_none(ca: Authority) -> None:
    at = address()
    with TlsCarrier(site(identity(ca, "a"), at, {"b": None})) as a:
        silent, other = stranger(at, identity(ca, "b")), stranger(at, identity(ca, "b"))
        silent.send(packed(FRAME, b"too early"))
        other.send(packed(WELCOME, b"elsewhere\nb") + packed(FRAME, b"x"))
        assert REFUSED in dict(told(other))
        assert a.receive(0.1) is None
        assert a.alive() == frozenset()
        silent.close()


def test_a_missing_neighbour_is_asked_why(ca: Authority, foreign_ca: Authority) -> None:
    """Where nobody, a stranger or somebody else answers, there is no link, and the site says so."""
    at = {name: address() for name in ("foreign", "expired", "wrong", "absent", "deaf")}
    with (
        TlsCarrier(site(identity(foreign_ca, "foreign"), at["foreign"], {"a": None})) as foreign,
        TlsCarrier(site(identity(ca, "expired", PAST), at["expired"], {"a": None})),
        TlsCarrier(site(identity(ca, "carol"), at["wrong"], {"a": None})),
        TlsCarrier(site(identity(ca, "deaf"), at["deaf"], {"x": None})) as deaf,
        TlsCarrier(site(identity(ca, "a"), None, at)) as a,
    ):
        found: dict[str, str] = {}

        def known() -> bool:
            found.update({event.who: f"{event.kind} {event.why}" for event in a.events()})
            return found.keys() >= at.keys()

        assert until(known), found
        assert "refused" in found["foreign"]
        assert "expired" in found["expired"]
        assert "mismatch" in found["wrong"]
        assert "unreachable" in found["absent"]
        assert "no neighbour of deaf" in found["deaf"]
        assert a.alive() == frozenset()
        assert ("refused", "a") in [(event.kind, event.who) for event in deaf.events()]
        assert "ALERT" in " ".join(event.why for event in foreign.events())


def test_plaintext_is_for_those_who_ask_for_it() -> None:
    with pytest.raises(ConfigError, match="is plaintext"):
        TlsCarrier(PLAIN._replace(listen=("tcp/0.0.0.0:7447",)))


# Who loses a link.


@pytest.mark.parametrize("who", ["a", "b"])
def test_a_certificate_that_runs_out_ends_its_open_link_at_both_ends(
    ca: Authority, who: str
) -> None:
    """Whether its owner has called or was called."""
    at, soon = address(), timedelta(seconds=6)
    own = {name: identity(ca, name, soon if name == who else 60 * -PAST) for name in "ab"}
    with (
        TlsCarrier(site(own["a"], at, {"b": None})) as a,
        TlsCarrier(site(own["b"], None, {"a": at})) as b,
    ):
        assert until(lambda: "up" in {event.kind for event in a.events()})
        seen = {name: list[Event]() for name in "ab"}
        assert until(lambda: not a.alive() and not b.alive())
        assert datetime.now(UTC) >= own[who].ends.replace(microsecond=0)  # as certificates have it
        assert until(lambda: "refused" in dict(said(a, seen["a"])))
        assert until(lambda: "refused" in dict(said(b, seen["b"])))
        assert any("expired" in event.why for event in seen["a"] + seen["b"])
        a.send("b", b"x")
        assert b.receive(0.2) is None


def test_a_name_that_is_taken_out_loses_its_link_at_both_ends(ca: Authority) -> None:
    at, seen = address(), list[Event]()
    with (
        TlsCarrier(site(identity(ca, "a"), at, {"b": None, "c": None})) as a,
        TlsCarrier(site(identity(ca, "b"), None, {"a": at})) as b,
        TlsCarrier(site(identity(ca, "c"), None, {"a": at})) as c,
    ):
        assert until(lambda: a.alive() == {"b", "c"} and b.alive() and c.alive())
        a.forget("b")
        assert a.neighbours == {"c"}
        assert until(lambda: not b.alive())
        assert a.alive() == {"c"}
        assert until(lambda: ("refused", "a") in said(b, seen))
        assert any("no neighbour" in event.why for event in seen)
        b.send("a", b"x")
        c.send("a", b"y")
        assert a.receive(LONG) == ("c", b"y")
        assert c.alive() == {"a"}


class Sites:
    """Real identities of a few sites, each in its own folder, and their keeper's."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.keeper, now = folder / "keeper", datetime.now(UTC)
        papers.found(self.keeper, "net", now)
        for name in names:
            papers.issue(self.keeper, name, now)
            (folder / name).mkdir()
            for file in ("ca.crt", f"{name}.crt", f"{name}.key"):
                shutil.copy(self.keeper / file, folder / name)
        self.folder = folder

    def own(self, name: str) -> papers.Identity:
        return papers.load(self.folder / name, name, datetime.now(UTC))

    def renew(self, name: str) -> None:
        papers.renew(self.keeper, name, datetime.now(UTC), days=300)
        made = self.folder / name / "new"
        shutil.copy(self.keeper / f"{name}.crt", made)
        made.rename(self.folder / name / f"{name}.crt")


def test_a_revoked_identity_loses_its_links_at_both_ends_wherever_the_list_is(
    tmp_path: Path,
) -> None:
    """The list is given to c alone; a hears of it from c, and b is cut off by a."""
    sites, at, seen = Sites(tmp_path, "a", "b", "c"), address(), list[Event]()
    with (
        TlsCarrier(site(sites.own("a"), at, {"b": None, "c": None})) as a,
        TlsCarrier(site(sites.own("b"), None, {"a": at})) as b,
        TlsCarrier(site(sites.own("c"), None, {"a": at})) as c,
    ):
        assert until(lambda: a.alive() == {"b", "c"} and b.alive() and c.alive())
        revoke(sites.keeper, "b", datetime.now(UTC))
        shutil.copy(sites.keeper / LIST, tmp_path / "c" / LIST)
        assert until(lambda: a.alive() == {"c"} and not b.alive())
        assert (tmp_path / "a" / LIST).read_bytes() == (sites.keeper / LIST).read_bytes()
        assert until(lambda: ("refused", "a") in said(b, seen))
        assert any("revoked" in event.why for event in seen), seen
        assert c.alive() == {"a"}
    with (  # and at the next handshake
        TlsCarrier(site(sites.own("a"), at, {"b": None})) as a,
        TlsCarrier(site(sites.own("b"), None, {"a": at})) as b,
    ):
        seen.clear()
        assert until(lambda: ("refused", "b") in said(a, seen))
        assert any("revoked" in event.why for event in seen), seen
        assert a.alive() == b.alive() == frozenset()


@pytest.mark.parametrize("who", ["a", "b"])
def test_a_renewed_certificate_is_shown_without_a_frame_lost(tmp_path: Path, who: str) -> None:
    sites, at = Sites(tmp_path, "a", "b"), address()
    with (
        TlsCarrier(site(sites.own("a"), at, {"b": None})) as a,
        TlsCarrier(site(sites.own("b"), None, {"a": at})) as b,
    ):
        assert met(a, b)
        other, other_name = (b, "a") if who == "a" else (a, "b")
        before = _shown(other, who)
        sites.renew(who)
        sent = 0
        while _shown(other, who) == before:
            sent += 1
            a.send("b", sent.to_bytes(4, "big"))
            b.send("a", sent.to_bytes(4, "big"))
            time.sleep(0.002)
        for carrier, name in ((b, "a"), (a, "b")):
            got = [carrier.receive(LONG) for _ in range(sent)]
            assert sorted(filter(None, got)) == [
                (name, k.to_bytes(4, "big")) for k in range(1, sent + 1)
            ]
        assert _shown(other, who) > before
        kinds = sorted(event.kind for event in a.events() + b.events())
        assert kinds == ["renewed", "up", "up"]  # none was down
        assert other.alive() == {who}, other_name


def _shown(carrier: Carrier, name: str) -> float:
    """When the certificate ends that the neighbour has shown."""
    assert isinstance(carrier, TlsCarrier)
    link = carrier._links.used[name]
    assert link.peer is not None
    return link.peer.ends


def test_files_that_cannot_be_used_are_told_and_change_nothing(tmp_path: Path) -> None:
    sites, at, seen = Sites(tmp_path, "a", "b"), address(), list[Event]()
    with (
        TlsCarrier(site(sites.own("a"), at, {"b": None})) as a,
        TlsCarrier(site(sites.own("b"), None, {"a": at})) as b,
    ):
        assert met(a, b)
        (tmp_path / "a" / LIST).write_bytes(b"{}\n")
        assert until(lambda: "spoilt" in dict(said(a, seen)))
        assert a.alive() == {"b"}
        seen.clear()
        (tmp_path / "a" / "a.crt").write_bytes(b"no certificate")
        assert until(lambda: "spoilt" in dict(said(a, seen)))
        assert a.alive() == {"b"}
    with pytest.raises(FileError, match="no list of revoked keys"):
        TlsCarrier(site(sites.own("b"), at, {"a": None})._replace(identity=_with_list(sites, "b")))


def _with_list(sites: Sites, name: str) -> papers.Identity:
    (sites.folder / name / LIST).write_bytes(b"no list")
    return sites.own(name)


# What a stranger cannot stop.


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_neighbours_meet_while_strangers_call_as_fast_as_they_can(ca: Authority) -> None:
    """Of every kind: silent, junk, half a hello, a hello and nothing more, a garbled one."""
    at, seen = address(), list[Event]()
    with TlsCarrier(site(identity(ca, "a"), at, {"b": None})) as a:
        before = resident()
        with flood(at, 1500):
            assert until(lambda: a.refusals() > 100)
            with TlsCarrier(site(identity(ca, "b"), None, {"a": at})) as b:
                assert met(a, b)
                for number in range(200):
                    a.send("b", number.to_bytes(4, "big"))
                    assert b.receive(LONG) == ("a", number.to_bytes(4, "big"))
                assert len(a._door) <= door.PLACES
                assert resident() - before < 50e6
                said(a, seen)
                assert sum(event.kind == "refused" for event in seen) < 40  # of thousands
        assert until(lambda: len(a._door) == 0)


def test_whoever_fills_the_door_takes_places_from_himself_first(
    monkeypatch: pytest.MonkeyPatch, ca: Authority
) -> None:
    """A silent caller of another source stays, however many come of one."""
    monkeypatch.setattr(door, "PLACES", 8)
    sources: Callable[[str], str] = {"127.0.0.1": "many", "127.0.0.2": "one"}.__getitem__
    monkeypatch.setattr(door, "_source", sources)
    at = address()
    port = int(at.rpartition(":")[2])
    with TlsCarrier(site(identity(ca, "a"), at, {"b": None})) as a, socket.socket() as lone:
        lone.bind(("127.0.0.2", 0))
        lone.connect(("127.0.0.1", port))
        assert until(lambda: len(a._door) == 1)
        with flood(at, 100, "silent"):
            assert until(lambda: a.refusals() >= 90)
            lone.settimeout(0.1)
            with pytest.raises(TimeoutError):
                lone.recv(1)  # it was not hung up on


def test_a_plug_can_be_closed_while_its_last_failure_is_looked_at() -> None:
    """Whoever holds on to the error must not hold on to what was to be sent."""

    class Broken(socket.socket):
        def send(self, data: Any, flags: int = 0) -> int:  # as that of TLS: it is in the traceback
            raise BrokenPipeError(32, "pipe")

    plug = stream.Plug(Broken(), None, server=False)
    with pytest.raises(OSError, match="pipe") as failure:
        plug.write(b"x", 0, 0.0)
    plug.close()
    assert failure.value.errno
    assert plug.waiting == 0
