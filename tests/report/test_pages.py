"""Pages: what is on them can be read, each has its own words, and names are text."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from coke.learning.tally import Shown
from coke.learning.verdict import Ended, Verdict
from coke.learning.verdict import Figure as Score
from coke.maths.ledger import Ledger
from coke.report.audit import audit_plot, audit_report
from coke.report.plots import plainly
from coke.report.tables import html_grid
from coke.report.verdict import verdict_html
from coke.report.verdict_plots import predictions_plot
from coke.studies.findings import GRAM, Finding, verdict_of

NEAR = Finding("is one neighbour", GRAM, 0.7398, 0.744, "no better than guessing", False)
ALL = Finding("hears all", GRAM, 6e-14, 0.26, "the site's Gram matrix is known", True)
ROWS = Finding("inverts the features", "share of rows found", 0.0, 0.0, "0 of 9 rows", False)
AUDIT = {
    "site": "<Köln>", "neighbour": "Bonn", "algorithm": "coke", "privacy": "none",
    "overheard": "10 rounds", "warnings": ["<one> neighbour only"],
}  # fmt: skip


def readable(figure: Figure) -> list[str]:
    """The ticks of a drawn picture; no two beside each other touch."""
    figure.draw_without_rendering()
    found = []
    for axes in figure.axes:
        texts = [text for text in axes.get_xticklabels() if _within(axes, text)]
        boxes = [text.get_window_extent() for text in texts]
        assert all(one.x1 < two.x0 for one, two in pairwise(boxes))
        found += [text.get_text() for text in texts]
    return found


def _within(axes: Any, text: Any) -> bool:
    low, high = axes.get_xlim()
    return bool(low <= text.get_position()[0] <= high and text.get_text())


def audit(*found: Finding) -> str:
    return audit_report({**AUDIT, "verdict": verdict_of("<Köln>", found)}, found)


@given(st.floats(1e-9, 1e9))
def test_a_tick_has_no_exponent(x: float) -> None:
    """And says the number, to ten decimals."""
    assert not set(plainly(x)) & set("e×^")
    assert float(plainly(x).replace(",", "")) == pytest.approx(x, abs=1e-10, rel=1e-9)


@pytest.mark.parametrize("found", [[NEAR], [NEAR, ALL], [ROWS], [NEAR, ALL, ROWS]])
def test_ticks_of_an_audit_are_plain_and_apart(found: list[Finding]) -> None:
    """However near the results are to guessing, or far from it."""
    ticks = readable(audit_plot(found))
    assert len(ticks) >= 2
    assert not any("10^" in tick or "e-" in tick for tick in ticks)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 2e4, 3e7])
def test_numbers_below_predictions_do_not_touch(scale: float) -> None:
    points = np.random.default_rng(0).normal(size=(50, 3)) * scale - scale
    shown, figure = Shown("Köln", None, points), Score(0.5, 1.0)
    verdict = Verdict(True, 50, "held", figure, figure, Ended(3, True, Ledger()))
    assert readable(predictions_plot(verdict, shown, []))


def test_an_audit_has_its_own_words_and_one_verdict() -> None:
    page = audit(NEAR, ALL)
    assert page.count('class="verdict"') == 1
    assert "1 of 2 attacks learn more of site &lt;Köln&gt; than everybody knows" in page
    for word in ("local-only", "optimum", "train,", "coke run", "<Köln>", "<one>"):
        assert word not in page
    assert page.index("&lt;one&gt; neighbour only") < page.index("<img")  # seen without a click


def test_a_verdict_of_an_audit_counts_what_learns() -> None:
    assert verdict_of("A", [NEAR, ROWS]).startswith("none of 2 attacks")
    assert verdict_of("A", [NEAR, ALL]).endswith(f"such as whoever {ALL.attack}: {ALL.meaning}")


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    said = verdict_html({"text": "R² 0.9; 274 kB sent", "warnings": [], "notes": ["<i>"]})
    assert "274\u00a0kB" in said
    assert "<i>" not in said


def test_cells_are_text() -> None:
    said = html_grid(["<a>", "<b>"], [["<c>", "<d>"]], words=1)
    assert not any(f"<{x}>" in said for x in "abcd")
