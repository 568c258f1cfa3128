"""Figures of a running site in Prometheus' text form (version 0.0.4)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from coke.page.board import Document
from coke.page.parts import PHASES
from coke.talk.names import readable

FIGURES = "text/plain; version=0.0.4; charset=utf-8"  # what the form is called
Samples = Iterable[tuple[Mapping[str, Any], Any]]
"""(labels, value); a value that is not known is None."""
Family = tuple[str, str, str, Samples]
"""(name, kind, what it is, samples)."""


def metrics(told: Document, frames: Mapping[str, Mapping[str, int]]) -> str:
    """Of a board's document, and what became of the frames to and from each neighbour."""
    return exposed(_families(told, frames))


def exposed(families: Iterable[Family]) -> str:
    """Families of samples as text; what is not known is left out."""
    lines: list[str] = []
    for name, kind, about, samples in families:
        known = [f"{name}{_labels(by)} {_number(x)}" for by, x in samples if x is not None]
        if known:
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *known]
    return "\n".join(lines) + "\n"


def _families(told: Document, frames: Mapping[str, Mapping[str, int]]) -> Iterator[Family]:
    who = {key: told[key] for key in ("site", "network", "run", "version", "digest")}
    ledger, near = told.get("ledger") or {}, told["neighbours"]
    private, proven = told["privacy"] or {}, told["certificate"] or {}

    def gauge(name: str, about: str, value: Any) -> Family:
        return f"coke_{name}", "gauge", about, [({}, value)]

    def count(name: str, about: str, value: Any) -> Family:
        return f"coke_{name}_total", "counter", about, [({}, value)]

    yield "coke_info", "gauge", "What runs here.", [(who, 1)]
    phases = [({"phase": name}, told["phase"] == name) for name in PHASES]
    yield "coke_phase", "gauge", "1 in the phase that the site is in.", phases
    yield gauge("round", "Rounds, or sweeps over the tree.", told.get("round"))
    yield gauge("loss", "Mean loss on the site's own training rows.", told.get("loss"))
    yield gauge(
        "tolerance_distance", "What is left to do, in parts of what may be.", told.get("away")
    )
    yield gauge("certificate_share", "Proven share above the optimum.", proven.get("share"))
    yield gauge("last_status_timestamp_seconds", "When the agent last said anything.", told["time"])
    yield gauge("start_timestamp_seconds", "When the agent began.", told["began"])
    yield gauge("identity_expiry_timestamp_seconds", "When the site's certificate ends.",
                told["identity_ends"])  # fmt: skip
    yield gauge("privacy_epsilon_spent", "ε spent on the rows.", private.get("epsilon"))
    yield gauge("sites", "Sites of the agreement.", told["sites"])
    yield gauge("missing_neighbours", "Neighbours that are waited for.", _many(told.get("missing")))
    states = [({"neighbour": n["name"], "state": n["state"]}, 1) for n in near]
    yield "coke_neighbour", "gauge", "Every neighbour, in its state.", states
    alive = [({"neighbour": n["name"]}, n["state"] in ("alive", "silent")) for n in near]
    yield "coke_neighbour_up", "gauge", "1 where a neighbour has a live link.", alive
    sent = [({"account": "told"}, ledger.get("bytes")),
            ({"account": "wire"}, ledger.get("wire_bytes"))]  # fmt: skip
    yield "coke_sent_bytes_total", "counter", "Bytes sent, in both accounts.", sent
    yield count("transmissions", "Messages with news.", ledger.get("transmissions"))
    yield count("refused_frames", "Frames that made no sense.", told.get("refused"))
    kinds = [({"kind": kind}, n) for kind, n in told["counts"].items()]
    yield "coke_events_total", "counter", "Events, by kind.", kinds
    each = [({"neighbour": n, "what": k}, x) for n, of in frames.items() for k, x in of.items()]
    yield "coke_frames_total", "counter", "What became of frames.", each
    yield count("page_cpu_seconds", "CPU time of the page's own thread.", time.thread_time())


def _many(names: Iterable[str] | None) -> int | None:
    return None if names is None else len(list(names))


def _labels(by: Mapping[str, Any]) -> str:
    each = ",".join(f'{key}="{_escaped(str(value))}"' for key, value in by.items())
    return f"{{{each}}}" if each else ""


def _escaped(text: str) -> str:
    return readable(text).replace("\\", r"\\").replace('"', r"\"")


def _number(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else repr(value)
