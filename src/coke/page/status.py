"""How a site is, from outside: its folder, and its agent if it has a page. Without NumPy.

new       nothing has begun
running   an agent is at work; waiting, if its page says for whom
stopped   it has begun, and no agent is at work
finished  there is a model
"""

from __future__ import annotations

import http.client
import time
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from coke.field.kept import kept_models
from coke.field.lock import worker
from coke.page.access import LOOPBACK, Access, read_access
from coke.settings.declaration import SiteSettings

PATIENCE = 2.0  # seconds for an agent's page to answer
STUCK = 60.0  # seconds without a word from an agent, which has one every fraction of a second
_LAST = 1 << 16  # bytes at the end of a history
_MOST = 1 << 24  # of what a page tells
HEALTHY = ("running", "waiting", "finished")


def site_status(settings: SiteSettings) -> dict[str, Any]:
    """Of one site, for machines; what is not known is null."""
    site, folder = settings.site, Path(settings.site.state)
    pid, access = worker(folder), read_access(folder)
    if access is not None and access.pid != pid:
        access = None  # of an earlier run: by now anybody may have its port
    live = None if access is None else _asked(access)
    finished, models = (folder / "model.coke").exists(), kept_models(Path(site.models))
    begun = (folder / "agreement.coke").exists()
    kept = _last(folder / "history.jsonl") | _known(live)
    state = "running" if pid is not None else "finished" if finished else "stopped"
    if live is not None:
        state = _of_live(live)
    elif state == "stopped" and not (begun or kept):
        state = "new"
    return {
        "site": site.name, "network": site.network, "run": site.run, "state": state, "pid": pid,
        "phase": None if live is None else live["phase"],
        **{key: kept.get(key) for key in ("round", "loss", "away", "bytes", "wire_bytes")},
        "missing": None if live is None else live.get("missing"),
        "neighbours": None if live is None
        else {one["name"]: one["state"] for one in live["neighbours"]},
        "identity_ends": None if live is None else live["identity_ends"],
        "model": str(folder / "model.coke") if finished else None,
        "models": {"kept": models.runs, "used": models.used},
        "page": None if access is None else access.url,
    }  # fmt: skip


def healthy(status: dict[str, Any]) -> bool:
    """Whether nobody needs to look: at work, waiting for others, or done."""
    return status["state"] in HEALTHY


def _of_live(live: dict[str, Any]) -> str:
    if time.time() - live["time"] > STUCK:
        return "stuck"
    near = {one["name"]: one["state"] for one in live["neighbours"]}
    # Between two words of a round everybody is waited for; what counts is who does not come.
    absent = [name for name in live.get("missing") or () if near.get(name) != "alive"]
    return "waiting" if absent else "running"


def _known(live: dict[str, Any] | None) -> dict[str, Any]:
    if live is None or live.get("round") is None:
        return {}
    sent = live["ledger"]
    told = {key: live[key] for key in ("round", "loss", "away")}
    return told | {key: sent[key] for key in ("bytes", "wire_bytes")}


def _asked(access: Access) -> dict[str, Any] | None:
    """What an agent's page tells; None where it does not answer in time."""
    link = http.client.HTTPConnection(LOOPBACK, access.port, timeout=PATIENCE)
    try:
        link.request("GET", f"/{access.token}/state")
        reply = link.getresponse()
        told = msgspec.json.decode(reply.read(_MOST), type=dict[str, Any])
        return (
            told if reply.status == 200 and {"phase", "time", "neighbours"} <= told.keys() else None
        )
    except (OSError, http.client.HTTPException, msgspec.DecodeError):
        return None
    finally:
        link.close()


def _last(history: Path) -> dict[str, Any]:
    """The last whole line of a history."""
    try:
        with history.open("rb") as file:
            file.seek(max(0, history.stat().st_size - _LAST))
            lines = file.read().split(b"\n")[:-1]
        line = msgspec.json.decode(lines[-1], type=dict[str, Any])
    except (OSError, IndexError, msgspec.DecodeError):
        return {}
    odd = [k for k, v in line.items() if isinstance(v, float) and not isfinite(v)]
    return line | dict.fromkeys(odd)
