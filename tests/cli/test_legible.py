"""Foreign text on a terminal stays text."""

from __future__ import annotations

import io
import json

from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from coke.cli.console import Screen, legible, print_json
from coke.talk.names import controls

EVIL = "\x1b]0;owned\x07 \x9b2J \u202eabc\r\x08"


def test_controls_never_reach_a_terminal() -> None:
    """In lines, titles and cells of tables, and in JSON, which still says the same."""
    out = io.StringIO()
    screen = Screen(file=out, width=200)
    screen.print(EVIL, markup=False)
    table = Table(title=EVIL)
    table.add_column(EVIL)
    table.add_row(EVIL)
    screen.print(table)
    assert not [c for c in out.getvalue() if controls(c) and c != "\n"]
    assert "\\x1b]0;owned" in out.getvalue()


def test_nor_by_json(capsys: object) -> None:
    print_json({"who": EVIL + "\x7f\u2028"}, line=True)
    said = capsys.readouterr().out  # type: ignore[attr-defined]
    assert not [c for c in said if controls(c) and c != "\n"]
    assert json.loads(said) == {"who": EVIL + "\x7f\u2028"}


@given(st.text())
def test_what_is_legible_stays_as_it_is(text: str) -> None:
    assert not [c for c in legible(text) if controls(c) and c not in "\n\t"]
    if not any(map(controls, text)):
        assert legible(text) == text
