"""What a page shows of a site: escaped, bounded, and nothing that the site does not know."""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import count
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.field.agent import Agent, Status
from coke.field.carriers.base import Event
from coke.maths.ledger import Ledger
from coke.page.board import EVENTS, MOST, Board, Facts
from coke.page.metrics import metrics
from coke.page.parts import parts, warnings
from coke.page.pictures import known, spoken

NASTY = '<img src=x onerror="alert(1)">\x1b[31m\u202e"&\\'
TAGS = {
    "ol", "li", "dl", "div", "dt", "dd", "p", "figure", "figcaption", "svg", "title", "g", "rect",
    "path", "polyline", "circle", "text", "table", "thead", "tbody", "tr", "th", "td", "details",
    "summary",
}  # fmt: skip


def made(name: str = "a", *others: str, **more: Any) -> Board:
    clock = count(1_700_000_000)
    told = Facts(
        site=name, network=name, run=1, version="1", neighbours=others or ("b",),
        settings={name: name}, digest="d", warnings=(name,), **more,
    )  # fmt: skip
    return Board(told, lambda: float(next(clock)))


def status(k: int = 0, **more: Any) -> Status:
    whole = Status(
        phase="train", round=k, alive=(), missing=(), spoke=False, loss=1.0, countdown=None,
        ledger=Ledger(k, 10 * k, 20 * k), away=2.0, events=(), refused=0,
    )  # fmt: skip
    return whole._replace(**more)


NOBODY = cast(
    Agent,
    SimpleNamespace(node=SimpleNamespace(ends={}, k=1), agreed=None, certificate=None, sweeps=[]),
)


class Elements(HTMLParser):
    """All elements and attributes of a text."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_names_with_markup_are_text_everywhere() -> None:
    board = made(NASTY, NASTY + "b")
    for k in range(4):
        event = Event(NASTY, NASTY + "b", NASTY)
        board.take(status(k, spoke=True, missing=(NASTY,), events=(event,), refused=1), NOBODY)
    board.finish({"verdict": None, "model": NASTY, "report": NASTY, "warnings": [NASTY]})
    for part in parts(board).values():
        found = Elements(part)
        assert found.tags <= TAGS
        assert not {name for name in found.attributes if name.startswith("on") or name == "style"}
        assert "\x1b" not in part
        assert "\u202e" not in part
    told = metrics(board.document(), {NASTY: {"sent": 1}})
    assert "\x1b" not in told


def test_metrics_are_what_prometheus_reads() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    board = made(NASTY, "b", ends=lambda: 1.8e9)
    event = Event("up", "b", "has a live link")
    board.take(status(7, alive=("b",), events=(event,)), NOBODY)
    text = metrics(board.document(), {"b": {"sent": 3}})
    families = {f.name: f for f in parser.text_string_to_metric_families(text)}
    samples = {(s.name, *s.labels.values()): s.value for f in families.values() for s in f.samples}
    assert samples[("coke_round",)] == 7
    assert samples[("coke_sent_bytes_total", "told")] == 70
    assert samples[("coke_sent_bytes_total", "wire")] == 140
    assert samples[("coke_neighbour_up", "b")] == 1
    assert samples[("coke_frames_total", "b", "sent")] == 3
    assert samples[("coke_phase", "train")] == 1
    assert samples[("coke_identity_expiry_timestamp_seconds",)] == 1.8e9
    (info,) = families["coke_info"].samples
    assert info.labels["site"].replace("\ufffd", "") == NASTY.replace("\x1b", "").replace(
        "\u202e", ""
    )
    assert {f.type for f in families.values()} == {"gauge", "counter"}
    assert "coke_certificate_share" not in families  # it is not known


def test_what_is_kept_is_bounded() -> None:
    board = made()
    for k in range(5 * MOST):
        board.take(status(k, events=(Event("up", "b", ""),)), NOBODY)
    assert MOST <= len(board.moments) < 2 * MOST
    assert len(board.events) == EVENTS
    assert board.document()["counts"] == {"up": 5 * MOST}
    assert board.events[-1]["number"] == 5 * MOST
    assert board.moments[0].round == 0
    gaps = {b.round - a.round for a, b in zip(board.moments, board.moments[1:], strict=False)}
    assert len(gaps) == 1  # evenly thinned


def test_a_neighbour_is_alive_silent_or_away() -> None:
    board = made("a", "b")
    states = []
    for told in (
        status(),
        status(alive=("b",)),
        status(alive=("b",), missing=("b",)),
        status(alive=("b",), missing=("b",)),
        status(alive=("b",), missing=("b",)),
        status(alive=("b",), missing=("b",)),
        status(alive=("b",)),
    ):
        board.take(told, NOBODY)
        states.append(board.document()["neighbours"][0]["state"])
    assert states == ["away", "alive", "alive", "alive", "alive", "silent", "alive"]


def test_nothing_is_claimed_of_what_is_not_known() -> None:
    told = made().document()
    for key in ("sites", "edges", "root_loss", "certificate", "privacy", "identity_ends"):
        assert told[key] is None
    assert "none yet" in parts(made())["lead"]
    assert "not agreed yet" in parts(made())["near"]


def test_of_neighbours_in_a_descent_it_is_not_said_that_they_were_silent() -> None:
    """Sweeps tell who spoke here, and nothing of the others."""
    line = {"round": 1, "spoke": True, "loss": 1.0, "away": 1.0, "bytes": 1, "wire_bytes": 2}
    descending = cast(
        Agent, SimpleNamespace(node=None, agreed=None, certificate=None, sweeps=[line])
    )
    board = made("here", "there")
    board.take(status(1), descending)
    assert ">here</text>" in parts(board)["curves"]
    assert ">there</text>" not in parts(board)["curves"]
    board.take(status(2, spoke=True), NOBODY)
    assert ">there</text>" in parts(board)["curves"]


def test_an_identity_that_ends_is_warned_of() -> None:
    from time import time

    assert not any("ends in" in line for line in warnings(made().document()))
    for days, said in ((31, False), (29, True), (-1, True)):
        board = made("a", "b", ends=lambda days=days: time() + days * 86400)
        assert any("ends in" in line for line in warnings(board.document())) is said


@given(
    st.lists(st.text(max_size=30), max_size=30),
    st.none() | st.integers(1, 10**6),
    st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), max_size=20),
)
def test_every_picture_is_one(names: list[str], sites: int | None, said: list[Any]) -> None:
    """XML that can be read, whatever the sites are called and however many there are."""
    plain = ["".join(c for c in name if c.isprintable()) for name in names]
    near = [{"name": name, "state": "alive", "tree": ""} for name in plain]
    ElementTree.fromstring(known("<own>", near, sites))
    rounds = [(k, frozenset(plain if all_ else ())) for k, all_ in sorted(said)]
    if rounds:
        ElementTree.fromstring(spoken(plain, rounds, rounds[-1][0]))
