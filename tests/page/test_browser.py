"""The page of a real training, in a browser: live, whole after a loss, usable by everybody."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from coke.page.access import read_access
from kit.browser import Tab, browser
from kit.field import Field, made_rows

pytestmark = pytest.mark.processes

A, B = "site-0", "site-1"
SCREENS = [(1200, False), (1200, True), (390, False), (390, True)]


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    with browser(tmp_path / "profile") as found:
        yield found


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    """Three agents that do not end by themselves, each with a page."""
    made = Field(tmp_path / "net", made_rows(), 3, 3, algorithm="coke", tol=0.0, rounds=10**6)
    for path in made.paths:
        path.write_text(path.read_text().replace("[site]\n", "[site]\npage = 0\n"))
    try:
        yield made
    finally:
        made.end()


def address(field: Field, name: str) -> str:
    found = read_access(field.folder / "sites" / name / "state")
    assert found is not None
    return found.url


def shown_round(tab: Tab) -> int:
    found = re.search(r"round(\d+)", tab.text("#lead dl"))
    return int(found[1]) if found else 0


def state_of(tab: Tab, name: str) -> str:
    script = (
        f"[...document.querySelectorAll('#near tbody tr')]"
        f".find(r => r.cells[0].textContent === {json.dumps(name)})?.cells[1].textContent"
    )
    return str(tab.run(script))


def test_a_page_in_a_browser(field: Field, tab: Tab) -> None:
    """Updates live; shows a killed neighbour and its return; comes back with its own agent."""
    field.start()
    field.until(lambda: field.rounds(A) > 3)
    tab.look(1200, 900, dark=False)
    tab.open(address(field, A))
    tab.until(lambda: shown_round(tab) > 3)
    first = shown_round(tab)
    tab.until(lambda: shown_round(tab) > first)
    assert tab.text("#link") == "live"
    tab.until(lambda: state_of(tab, B) == "alive")
    field.kill(B)
    tab.until(lambda: state_of(tab, B) == "away")
    assert "has no live link" in tab.text("#events")
    stands = shown_round(tab)
    field.start(B)
    tab.until(lambda: state_of(tab, B) == "alive")
    tab.until(lambda: shown_round(tab) > stands)
    _looks_right(tab)
    _is_usable(tab)
    assert tab.complaints == []
    field.kill(A)
    tab.until(lambda: "no connection" in tab.text("#link"))
    before = shown_round(tab)
    field.start(A)
    tab.until(lambda: tab.text("#link") == "live" and shown_round(tab) > before)
    own = address(field, A)
    assert {url for url in tab.requests if not url.startswith(own)} == set()


def _looks_right(tab: Tab) -> None:
    """Nothing is wider than the screen, every chart is drawn, and dark is dark."""
    for wide, dark in SCREENS:
        tab.look(wide, 900, dark=dark)
        assert tab.run("document.documentElement.scrollWidth") <= wide
        assert tab.run("document.querySelectorAll('#curves svg').length") >= 3
        paper = tab.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", paper))) < 200) is dark
    tab.look(1200, 900, dark=False)


def _is_usable(tab: Tab) -> None:
    """axe-core finds nothing, in light and in dark."""
    axe = pytest.importorskip("axe_core_python")
    script = resources.files(axe).joinpath("axe.min.js").read_text("utf-8")
    tab.run(script + ";null")
    for dark in (False, True):
        tab.look(1200, 900, dark=dark)
        found = tab.run("axe.run().then(r => r.violations.map(v => [v.id, v.nodes[0].html]))")
        assert found == []
