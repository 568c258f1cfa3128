"""Zenoh between sites: what is refused before any socket opens, and who gets no link after."""

from __future__ import annotations

import contextlib
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.errors import ConfigError, InputError
from coke.field import feeding
from coke.field.carriers.address import Endpoint, Spot
from coke.field.carriers.base import Allowance, Event
from coke.field.carriers.zenoh import ZenohCarrier, _access_control
from coke.field.feeding import open_inflow
from kit.certificates import Authority
from kit.sessions import LONG, PLAIN, address, heard, identity, outsider, site, until

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

PAST = timedelta(days=-1)

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


@pytest.mark.parametrize(
    ("site", "complaint"),
    [
        (PLAIN._replace(allow_plaintext_loopback=False), "is plaintext"),
        (PLAIN._replace(listen=("tcp/0.0.0.0:7447",)), "is plaintext"),
        (PLAIN._replace(neighbours={"b": "tcp/10.0.0.1:7447"}), "is plaintext"),
        (PLAIN._replace(listen=("tls/127.0.0.1:7447",)), "and an identity"),
        (PLAIN._replace(listen=()), "listens nowhere"),
        (PLAIN._replace(listen=("udp/127.0.0.1:7447",)), "expected tls/HOST:PORT"),
        (PLAIN._replace(neighbours={"b\x00": None}), "no character to read"),
        (PLAIN._replace(network=""), "expected 1 to 255"),
        (PLAIN._replace(neighbours={"a": None}), "own neighbour"),
    ],
)
def test_a_site_that_would_be_open_or_alone_is_refused(site: Spot, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        ZenohCarrier(site)


def test_identities_of_others_and_broken_files_are_refused(tmp_path: Path, ca: Authority) -> None:
    site = Spot("a", "net", ("tls/127.0.0.1:7447",), {"b": None}, identity(ca, "b"))
    with pytest.raises(ConfigError, match="the identity of 'b'"):
        ZenohCarrier(site)
    own, other = identity(ca, "a"), identity(ca, "b")
    with pytest.raises(ConfigError, match="cannot be used"):
        ZenohCarrier(site._replace(identity=own._replace(key=other.key)))
    with pytest.raises(ConfigError, match="without ';'"):
        ZenohCarrier(site._replace(identity=own._replace(ca=tmp_path / "a;b" / "ca.pem")))


def test_everything_is_denied_but_a_neighbours_own_two_keys() -> None:
    rules = _access_control(PLAIN._replace(neighbours={"b": None, "c": None}))
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
    with pytest.raises(ConfigError, match=r"pip install 'coke-learn\[agent\]'"):
        ZenohCarrier(PLAIN)


# Real sessions on this machine

zenoh: Any = pytest.importorskip("zenoh", reason="coke-learn[agent] is not installed")
BLOCK = zenoh.CongestionControl.BLOCK


def test_neighbours_exchange_frames_in_order_and_drop_what_is_too_long(ca: Authority) -> None:
    at = address()
    before = threading.active_count()
    small = site(identity(ca, "a"), at, {"b": None})._replace(allowance=Allowance(frame=1000))
    with ZenohCarrier(small) as a, ZenohCarrier(site(identity(ca, "b"), None, {"a": at})) as b:
        assert until(lambda: a.alive() == {"b"} and b.alive() == {"a"})
        for number in range(1000):
            a.send("b", number.to_bytes(500, "big"))
            b.send("a", number.to_bytes(4, "big"))
        expected = [number.to_bytes(500, "big") for number in range(1000)]
        assert [b.receive(LONG) for _ in range(1000)] == [("a", frame) for frame in expected]
        assert [a.receive(LONG) for _ in range(1000)] == [("b", frame[-4:]) for frame in expected]
        for size in (1001, 100_000, 1000):  # counted; never put together; fits
            b.send("a", bytes(size))
        with pytest.raises(InputError, match="at most 1000"):
            a.send("b", bytes(1001))
        assert a.receive(LONG) == ("b", bytes(1000))
        assert b.receive(0.1) is None
        assert (a.counts()["b"].oversized, a.counts()["b"].received) == (1, 1001)
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
        assert a.receive(LONG) == ("c", f"c from {c.zid()}".encode())
        assert a.receive(0.2) is None
        for name in "bc":
            a.send(name, name.encode())
        assert b.receive(LONG) == ("a", b"b")
        assert until(lambda: heard(ears[-1]) == [b"c"])  # so c has heard all it ever will
        of_c, of_d = ({f for ear in pair for f in heard(ear)} for pair in (ears[:2], ears[2:4]))
        assert b"b" not in of_c
        assert not {b"b", b"c"} & of_d
        assert ("refused", "d") in [(event.kind, event.who) for event in a.events()]
        assert a.refusals() == 1


@pytest.mark.parametrize("flaw", ["no certificate", "foreign", "expired", "plaintext"])
def test_whoever_cannot_prove_its_name_gets_no_link(
    flaw: str, ca: Authority, foreign_ca: Authority
) -> None:
    """And a good neighbour that comes after it is welcome."""
    at = address()
    good = identity(ca, "b")
    own = {
        "foreign": identity(foreign_ca, "b")._replace(ca=good.ca),
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


def test_a_missing_neighbour_is_asked_why(ca: Authority, foreign_ca: Authority) -> None:
    """Where nobody, a stranger or somebody else answers, there is no link, and the site says so."""
    at = {name: address() for name in ("foreign", "expired", "wrong", "absent", "deaf")}
    at["localhost"] = address().replace("127.0.0.1", "localhost")
    with (
        outsider(identity(foreign_ca, "foreign"), at=at["foreign"]),
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


def test_rows_on_a_key_come_in_order_and_what_is_no_row_is_counted() -> None:
    """By a router on loopback, as `[data] file = "zenoh://HOST:PORT/KEY"` follows it."""
    where = address().removeprefix("tls/")
    config = zenoh.Config()
    for path, value in (
        ("mode", '"router"'), ("listen/endpoints", f'["tcp/{where}"]'),
        ("scouting/multicast/enabled", "false"),
    ):  # fmt: skip
        config.insert_json5(path, value)
    found, news = list[Any](), list[Event]()
    with zenoh.open(config) as router:
        inflow = feeding._Key(f"zenoh://{where}/plant/north")

        def came() -> bool:
            table, _, events = inflow.read({})
            found.extend([] if table is None else table.to_pylist())
            news.extend(events)
            return bool(found)

        def told() -> bool:
            """Until the router knows of the subscriber, nobody hears what is put."""
            router.put("plant/north", b'{"t": 1, "y": 0.5}', congestion_control=BLOCK)
            return came()

        assert until(told)
        router.put("plant/north", b"no row", congestion_control=BLOCK)
        router.put("plant/south", b'{"t": 9, "y": 9.0}', congestion_control=BLOCK)
        router.put("plant/north", b'{"t": 2, "y": null}', congestion_control=BLOCK)
        router.put("plant/north", b'{"t": 3, "y": 1.5}', congestion_control=BLOCK)
        assert until(lambda: came() and found[-1]["t"] == 3)
        inflow.close()
    assert [row for row in found if row["t"] > 1] == [{"t": 2, "y": None}, {"t": 3, "y": 1.5}]
    assert [(event.kind, event.who) for event in news] == [("odd", "plant/north")]


def test_a_key_without_a_router_is_refused_by_its_address() -> None:
    where = address().removeprefix("tls/")
    with pytest.raises(ConfigError, match="no router there"):
        open_inflow(f"zenoh://{where}/plant/north")
