"""What commands show: JSON and tables on stdout; messages on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coke.report.tables import Row, by_name, lines
from coke.talk.names import controls

if TYPE_CHECKING:
    from coke.learning.verdict import Verdict


class Screen(Console):
    """A terminal on which text stays text: whoever made it up, it moves no cursor."""

    def render_str(self, text: str, **how: Any) -> Text:
        """With signs for what would control the terminal."""
        return super().render_str(legible(text), **how)


def legible(text: str) -> str:
    """The text, its controls but for ends of lines and tabs in hexadecimal."""
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or not controls(c) else ascii(c)[1:-1] for c in text)


console = Screen(stderr=True)
# what a run says beside its numbers
APART = (
    "beside", "failed", "yardsticks", "interrupted", "model", "report", "warnings",
    "choice", "importance", "coverage", "targets", "verdict", "kernels",
)  # fmt: skip


# What JSON lets through and terminals obey, as JSON has it, too.
_TURNING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029)
_UNSEEN = {c: f"\\u{c:04x}" for c in (*range(0x7F, 0xA0), *_TURNING)}


def say(line: str) -> None:
    """What was found out about a file, and what else is to be known."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def warn(line: str) -> None:
    """What a user should know before the work begins."""
    say(f"warning: {line}")


def print_json(document: dict[str, Any], *, line: bool = False) -> None:
    """The one document of a `--json` run; as one line for commands that write lines."""
    sys.stdout.write(as_json(document, line=line) + "\n")


def as_json(document: dict[str, Any], *, line: bool = True) -> str:
    """A document as text in which no control character is left."""
    encoded = msgspec.json.encode(document, enc_hook=lambda number: number.item())  # NumPy's
    text = encoded if line else msgspec.json.format(encoded, indent=2)
    return text.decode().translate(_UNSEEN)


def run_rows(document: dict[str, Any]) -> list[Row]:
    """A run's algorithms and yardsticks, one after the other."""
    rows = [document, *document["beside"], *document["yardsticks"]]
    return [{key: row[key] for key in row if key not in APART} | by_name(row) for row in rows]


def run_words(document: dict[str, Any]) -> list[str]:
    """What the sites chose, what kernels weigh, and what intervals hold."""
    said = list(document["choice"]["words"]) if document["choice"] else []
    if document["kernels"]:
        weights = sorted(document["kernels"].items(), key=lambda one: -one[1])
        said.append("weights of kernels: " + ", ".join(f"{name} {v:.3g}" for name, v in weights))
    held = [share for share in (document["coverage"] or {}).values() if share is not None]
    if held:
        ends = dict.fromkeys(f"{100 * share:.0f} %" for share in (min(held), max(held)))
        said.append(f"90 % intervals hold {' to '.join(ends)} of a site's test rows")
    return said


def show_run(document: dict[str, Any], as_json: bool, verdict: Verdict | None) -> None:
    """A run's outcome on stdout: the verdict, then a column per algorithm, in 80 characters."""
    if as_json:
        print_json(document)
        return
    out = Screen(highlight=False, soft_wrap=True)
    if verdict is None:
        out.print("no verdict: no rows were held out; keep some with --test")
    else:
        out.print(str(verdict), style="bold", markup=False)
        for line in verdict.notes:
            out.print(f"  {line}", markup=False)
    rows = run_rows(document)
    title = f"{document['agents']} agents, {document['edges']} edges"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", min_width=13)
    for row in rows:
        table.add_column(row["algorithm"].replace("-", "\n"), justify="right", no_wrap=True)
    for name, values in lines(rows):
        if name not in ("agents", "edges", "why") and not name.startswith("optimum"):
            table.add_row(name, *values)
    Screen().print(table, crop=False)  # of many algorithms: a file has all columns
    if document["why"]:
        out.print(f"{document['algorithm']}: {document['why']}", markup=False)
    for other in document["failed"]:
        console.print(f"{other['algorithm']} failed: {other['error']}", markup=False)
    for line in run_words(document):
        Screen().print(line, markup=False, highlight=False, soft_wrap=True)
    if "report" in document:
        sys.stdout.write(f"model:  {document['model']}\nreport: {document['report']}\n")
