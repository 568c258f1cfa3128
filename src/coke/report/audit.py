"""A page for a site's owner: what others could learn of it, beside guessing."""

from __future__ import annotations

import html
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from coke.report.plots import COLOURS, STYLE, plain_ticks, plainly, png
from coke.report.shell import figures, image, note, page, section, warning
from coke.report.tables import Row, html_grid
from coke.studies.findings import Finding

CAPTION = (
    "Each attack's result beside guessing. Errors of the Gram matrix: the lower the worse for the "
    "site. Shares of rows found or ranked right: the higher the worse."
)
WORDS = (
    "A Gram matrix is the sums of products of a site's features: with as many rows as features or "
    "fewer it is nearly the rows. guessing: the same figure for whoever heard no more than what "
    "all sites agreed on. The attacks ran here, on rows of yours: keep this page to yourself. "
    "docs/privacy.md says what helps."
)
LEAST, MOST = 1e-6, 1e3  # what a picture tells apart


def audit_report(document: Row, found: Sequence[Finding]) -> str:
    """The verdict, the attacks in a picture and a table, and what they were run on."""
    heads = ["who", "found", "guessing", "measure", "which means"]
    rows = [
        [one.attack, f"{one.value:.3g}", f"{one.guessing:.3g}", one.measure, one.meaning]
        for one in found
    ]
    overheard = (
        f"{document['algorithm']}, privacy {document['privacy']}: {document['overheard']} "
        f"overheard. The neighbour is {document['neighbour']}."
    )
    return page(
        f"What others could learn of {document['site']}",
        f'<p class="verdict">{html.escape(document["verdict"])}.</p>',
        *map(warning, document["warnings"]),
        note(overheard),
        figures([image(png(audit_plot(found)), CAPTION)]),
        section("Every attack", html_grid(heads, rows, words=2), note(WORDS)),
    )


def audit_plot(found: Sequence[Finding]) -> Figure:
    """Every attack's result beside guessing, on a log scale of a decade or more."""
    both = np.clip([(one.value, one.guessing) for one in found], LEAST, MOST)
    values, guesses = both.T
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.1 + 0.55 * len(found)), layout="constrained")
        axes, at = figure.subplots(), np.arange(len(found))
        axes.hlines(at, values, guesses, color="#bbbbbb", lw=2, zorder=1)
        axes.scatter(values, at, color=COLOURS[1], label="attack", zorder=3)
        axes.scatter(guesses, at, color=COLOURS[0], marker="|", s=120, label="guessing", zorder=3)
        names = [f"{one.attack}\n{one.measure}" for one in found]
        axes.set_yticks(at, names, fontsize=8, parse_math=False)
        axes.set(xscale="log", ylim=(len(found) - 0.5, -0.5))
        axes.set_xlim(both.min() / 3, both.max() * 3)
        plain_ticks(axes.xaxis, plainly)
        axes.legend(fontsize=8, loc="lower left", ncols=2, bbox_to_anchor=(0, 1))
    return figure
