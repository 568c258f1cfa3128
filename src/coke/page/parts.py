"""A running site as the parts of a page, each HTML; whatever comes from elsewhere is escaped."""

from __future__ import annotations

import html
from datetime import UTC, datetime
from typing import Any

from coke.maths.sizes import sized
from coke.page.board import Board, Document
from coke.page.pictures import known, spoken
from coke.report.chart import Panel, Size, drawn
from coke.report.shell import figure, note, warning
from coke.report.tables import html_grid
from coke.report.verdict import verdict_html
from coke.settings.sites import expiry_warning
from coke.talk.names import readable

PHASES = {
    "meet": "settings are compared",
    "agree": "units, model and basis are agreed on",
    "descend": "sums over the tree",
    "train": "rounds with the neighbours",
    "close": "errors are added up, the model is proven",
    "part": "everybody learns of the end",
    "over": "nothing is left to do",
}
DAY = 86400.0
_SMALL = Size(wide=330, high=120, left=64)
_SHOWN = 100  # events


def parts(board: Board) -> dict[str, str]:
    """By the ids of the page's sections."""
    told = board.document()
    found = {
        "lead": _phases(told) + _lead(told),
        "warned": "".join(map(warning, warnings(told))),
        "result": _result(told),
        "near": _near(told),
        "curves": _curves(board, told),
        "events": _events(told),
        "about": _about(told),
    }
    return {name: readable(part.replace("\n", " ")) for name, part in found.items()}


def warnings(told: Document) -> list[str]:
    """What somebody should look at."""
    left = _days_left(told)
    ends = expiry_warning(told["site"], None if left is None else left * DAY)
    found = [*told["warnings"], *filter(None, [ends])]
    if told.get("refused"):
        found.append(f"{told['refused']} frames made no sense and were refused")
    return found


def _days_left(told: Document) -> float | None:
    """Until the site's identity ends."""
    ends = told["identity_ends"]
    return None if ends is None else (ends - datetime.now(UTC).timestamp()) / DAY


def _when(seconds: float | None) -> str:
    """A time as people read it."""
    if seconds is None:
        return "–"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _clock(seconds: float) -> str:
    return _when(seconds).partition(" ")[2]


def _phases(told: Document) -> str:
    """Where it is among all phases."""
    now = told["phase"]
    each = "".join(
        f'<li{" aria-current=step" * (name == now)} title="{html.escape(about)}">{name}</li>'
        for name, about in PHASES.items()
    )
    return f'<ol class="phases">{each}</ol>'


def _lead(told: Document) -> str:
    """What one wants to know at first sight."""
    alive = [one["name"] for one in told["neighbours"] if one["state"] in ("alive", "silent")]
    figures = {
        "phase": f"{told['phase']}: {PHASES.get(told['phase'], 'rows are read')}",
        "round": told.get("round", "–"),
        "links": f"{len(alive)} of {len(told['neighbours'])} neighbours",
        "waits for": ", ".join(told.get("missing", ())) or "nobody",
        **_distance(told),
        **_sent(told),
    }
    return _pairs(figures)


def _distance(told: Document) -> Document:
    """To the end, as far as the site can tell."""
    found: Document = {}
    if told.get("away") is not None:
        found["left to do"] = f"{told['away']:.3g} × what may be left (at most 1 at the end)"
    if told.get("countdown") is not None:
        found["ends in"] = f"{told['countdown']} rounds"
    if told.get("loss") is not None:
        found["loss on own rows"] = f"{told['loss']:.4g}"
    if told["root_loss"] is not None:
        root = told["root_loss"]
        found[f"root mean square error of {root['target']}"] = (
            f"{root['rmse']:.4g}, in its unit, on own training rows"
        )
    found["certificate"] = (told["certificate"] or {"text": "none yet"})["text"]
    return found


def _sent(told: Document) -> Document:
    ledger = told.get("ledger")
    if ledger is None:
        return {}
    return {
        "sent": f"{sized(ledger['bytes'])} in {ledger['transmissions']} messages",
        "on the wire": f"{sized(ledger['wire_bytes'])}, with copies and headers",
    }


def _result(told: Document) -> str:
    """What it came to: the own model beside the common one, on rows that neither was trained on."""
    result = told["result"]
    if result is None:
        return note("How the common model compares with the site's own is known at the end.")
    verdict = verdict_html(result["verdict"]) if result.get("verdict") else ""
    keys = ("rounds", "converged", "settled", "model", "report")
    found = {key: result[key] for key in keys if result.get(key) is not None}
    return verdict + "".join(map(warning, result.get("warnings", ()))) + _pairs(found)


def _near(told: Document) -> str:
    """Whom the site knows of."""
    sites, edges = told["sites"], told["edges"]
    size = "The network's size is not agreed yet." if sites is None else (
        f"{sites} sites and {edges} edges took part in the agreement; of those that are no "
        "neighbours nothing more is known here."
    )  # fmt: skip
    heads = ["neighbour", "state", "in the tree", "edges", "spoke in round", "last event", "of it"]
    rows = [
        [
            one["name"], one["state"], one["tree"] or "–", str(one["edges"] or "–"),
            str(one["spoke"] or "–"), _when(one["since"]), one["why"] or "–",
        ]
        for one in told["neighbours"]
    ]  # fmt: skip
    picture = known(told["site"], told["neighbours"], sites)
    return f'<div class="side">{figure(picture, size)}{html_grid(heads, rows, words=6)}</div>'


def _curves(board: Board, told: Document) -> str:
    moments, rounds = list(board.moments), list(board.spoke)
    near = [one["name"] for one in told["neighbours"]] if board.rounded else []
    drawings = {
        "Mean loss on the site's own training rows, over rounds.": drawn(
            [Panel("loss on own rows", {"": [(m.round, m.loss) for m in moments]})],
            "loss on own rows over rounds", _SMALL),
        "What is left to do in parts of what may be left, over rounds; below the dashed "
        "line the site is content.": drawn(
            [Panel("left / allowed", {"": [(m.round, m.away) for m in moments]},
                   level=1.0, log=True)], "what is left over rounds", _SMALL),
        "What the site has sent, over time. Told: the paper's account, a broadcast counts once and "
        "silence is free. Wire: a copy for each neighbour, headers, silent words.": drawn(
            [Panel("bytes sent", {
                "wire": [(m.at, m.wire_bytes) for m in moments],
                "told": [(m.at, m.bytes) for m in moments],
            }, along=_clock, text=lambda n: sized(int(n)))], "bytes sent over time", _SMALL),
        "Who had news in which round; silence says that nothing has changed much.":
            spoken([told["site"], *near], rounds, told.get("round", 0)),
    }  # fmt: skip
    return "".join(figure(svg, caption) for caption, svg in drawings.items() if "<text" in svg)


def _events(told: Document) -> str:
    heads = ["number", "time (UTC)", "kind", "who", "what"]
    rows = [
        [str(e["number"]), _when(e["time"]), e["kind"], e["who"], e["why"]]
        for e in told["events"][:_SHOWN]
    ]
    return html_grid(heads, rows, words=4) if rows else note("Nothing has happened yet.")


def _about(told: Document) -> str:
    left, private = _days_left(told), told["privacy"]
    found = {
        "site": told["site"],
        "network": told["network"],
        "run": told["run"],
        "version": told["version"],
        "began (UTC)": _when(told["began"]),
        "settings digest": told["digest"],
        "identity": "none" if left is None
        else f"{left:.1f} days left, to {_when(told['identity_ends'])}",
        "privacy": "no noise" if private is None
        else f"ε = {private['epsilon']:g} spent, δ = {private['delta']:g}",
    }  # fmt: skip
    settings = [[key, value] for key, value in told["settings"].items()]
    common = html_grid(["setting", "value"], settings, words=1)
    return (
        _pairs(found)
        + f"<details><summary>Settings that all sites have in common</summary>{common}</details>"
    )


def _pairs(found: dict[str, Any]) -> str:
    each = "".join(
        f"<div><dt>{html.escape(str(key))}</dt><dd>{html.escape(_word(value))}</dd></div>"
        for key, value in found.items()
    )
    return f'<dl class="figures">{each}</dl>'


def _word(value: Any) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)
