"""A whole network of agents on one machine: its folders, and its processes or threads."""

from __future__ import annotations

import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet

from coke.data.files import atomically, make_folder, write_file
from coke.data.raw import raw_numbers
from coke.data.split import Index
from coke.data.tables import Rows
from coke.errors import ConvergenceError, GraphError, InputError
from coke.field.carriers import CARRIERS
from coke.field.identity import found as founded
from coke.field.identity import issue
from coke.field.kept import keep_model
from coke.field.together import Threads, late
from coke.interrupts import held
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.graph import Graph
from coke.settings.sites import read_site
from coke.talk.names import by_id, site_id
from coke.threads import OneThread

LOG, ERRORS = "log.jsonl", "errors.txt"  # what an agent says, and what it could not say there
_BARE = re.compile("[A-Za-z0-9_-]+")  # keys that TOML takes without quotes
OFTEN = 0.05  # seconds between two looks at the agents
START = """#!/bin/sh
# Starts every agent of this network and waits for all; logs are beside the sites' files.
cd "$(dirname "$0")"
# A shell has what it starts with & ignore Ctrl-C, and an agent hears it only after a while.
agents=
trap 'kill $agents $! 2> /dev/null; wait; exit 143' INT TERM
for site in sites/*/site.toml; do
  folder="$(dirname "$site")"
  rm -f "$folder/log.jsonl" "$folder/log.jsonl.1"
  "{python}" -m coke agent "$site" --log "$folder/log.jsonl" > "$folder/errors.txt" 2>&1 &
  agents="$agents $!"
done
wait
"""


class NetworkPlan(NamedTuple):
    """A network to be written."""

    network: str
    graph: Graph  # on the positions of the sites
    rows: Rows
    parts: Mapping[Any, Index]  # whose rows are whose
    settings: dict[str, Any]  # of every site's file, but for [data] file and [site]
    patience: float | str = "auto"
    carrier: str = "tls"


def write_network(folder: Path, plan: NetworkPlan) -> list[Path]:
    """Rows and a file for every site; for processes certificates, too, and a script for all."""
    names, together = _site_names(list(plan.parts)), CARRIERS[plan.carrier].together
    if len(names) != len(plan.graph):
        raise GraphError(f"{len(names)} sites on a graph of {len(plan.graph)}: expected as many")
    make_folder(folder)
    others = [[names[n] for n in sorted(plan.graph[i])] for i in range(len(names))]
    tables = _apart(others) if together else _reachable(folder, plan.network, names, others)
    paths = []
    for name, part, table in zip(names, plan.parts.values(), tables, strict=True):
        place = folder / "sites" / site_id(name)
        make_folder(place)
        _write_rows(place / "rows.parquet", plan.rows, part)
        site = {
            "name": name, "network": plan.network, "carrier": plan.carrier,
            "patience": plan.patience, **table,
        }  # fmt: skip
        data = {**plan.settings.get("data", {}), "file": "rows.parquet"}
        data["target"] = (
            list(plan.rows.targets) if len(plan.rows.targets) > 1 else plan.rows.targets[0]
        )
        if plan.rows.weights is not None:
            data["weight"] = _weight(plan.rows)
        write_file(place / "site.toml", toml({**plan.settings, "data": data, "site": site}))
        paths.append(place / "site.toml")
    if not together:
        script = folder / "start.sh"
        write_file(script, START.format(python=sys.executable).encode())
        script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return paths


def _apart(others: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """The [site] of threads: whom they know is all there is to say."""
    return [{"neighbours": dict.fromkeys(friends, "")} for friends in others]


def _reachable(
    folder: Path, network: str, names: Sequence[str], others: Sequence[Sequence[str]]
) -> list[dict[str, Any]]:
    """The [site] of processes: an identity and a port for each; the lower name calls the higher."""
    now, authority = datetime.now(UTC), folder / "authority"
    founded(authority, network, now)
    tables, ports = list[dict[str, Any]](), dict(zip(names, _free_ports(len(names)), strict=True))
    for name, friends in zip(names, others, strict=True):
        own = folder / "sites" / site_id(name) / "identity"
        make_folder(own)
        made = issue(authority, name, now).path
        for file in (authority / "ca.crt", made, made.with_suffix(".key")):
            _moved(file, own / file.name)
        later = names[names.index(name) :]
        calls = {n: f"tls/127.0.0.1:{ports[n]}" if n in later else "" for n in friends}
        listen = [f"tls/127.0.0.1:{ports[name]}"]
        tables.append({"listen": listen, "identity": "identity", "neighbours": calls})
    return tables


def _site_names(labels: Sequence[Any]) -> list[str]:
    """What the sites are called, in the order of the labels."""
    width = len(str(len(labels) - 1))
    if all(isinstance(label, int) for label in labels):
        return [f"site-{label:0{width}d}" for label in labels]
    return list(by_id(map(str, labels)).values())


def _free_ports(n: int) -> list[int]:
    """Ports of this machine that nobody listens on now."""
    sockets = [socket.socket() for _ in range(n)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def toml(settings: Mapping[str, Any]) -> bytes:
    """Settings as a file: plain values first, then tables."""
    return ("\n".join(_toml(settings, "")) + "\n").encode()


def _toml(settings: Mapping[str, Any], above: str) -> list[str]:
    plain = {k: v for k, v in settings.items() if not isinstance(v, Mapping) and v is not None}
    lines = [f"{_key(k)} = {_text(v)}" for k, v in plain.items()]
    for key, value in settings.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{above}{_key(key)}]", *_toml(value, f"{above}{_key(key)}.")]
    return lines


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: Any) -> str:
    """As JSON, which TOML reads the same way but for one character."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def _weight(rows: Rows) -> str:
    """The column of the weights: a name that no other has."""
    taken, name = {*rows.columns, *rows.targets}, "weight"
    while name in taken:
        name += "_"
    return name


def _write_rows(path: Path, rows: Rows, part: Index) -> None:
    kinds = rows.kinds or raw_numbers(len(rows.columns))
    each = zip(rows.columns, rows.X[part].T, kinds, strict=True)
    columns = {name: kind.values(x) for name, x, kind in each}
    several = rows.y[part] if rows.y.ndim == 2 else rows.y[part][:, None]
    columns |= {t: pa.array(several[:, k].tolist()) for k, t in enumerate(rows.targets)}
    if rows.weights is not None:
        columns[_weight(rows)] = pa.array(rows.weights[part])
    table = pa.table(columns)
    atomically(path, lambda file: pa.parquet.write_table(table, file))


def _moved(source: Path, target: Path) -> None:
    """A copy with the source's mode, for keys are private; keys are not left behind."""
    data = source.read_bytes()
    mode = 0o600 if source.suffix == ".key" else 0o644
    with os.fdopen(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
    if source.suffix == ".key":
        source.unlink()


def run_network(
    paths: Sequence[Path], timeout: float, own: Algorithm | None = None, *, page: bool = False
) -> list[dict[str, Any]]:
    """Every site's agent, as its carrier wants it: a process of its own, or a thread of this one.

    Processes have a page each, if asked. What each came to, in the order of the files. An own
    algorithm is known to this process alone.
    """
    configs = [read_site(path) for path in paths]
    if all(CARRIERS[config.site.carrier].together for config in configs):
        with OneThread().limit():  # here: threads that each limit BLAS would undo each other's
            found = Threads(configs, timeout, own).run()
            for config, one in zip(configs, found, strict=True):
                site = config.site
                keep_model(Path(site.models), site.run, Path(one["model"]), site.last_models)
            return found
    if own is not None:
        raise InputError(
            f"{own} on agents that are processes: they know algorithms by name only; expected the "
            'carrier "memory", or an algorithm of the house'
        )
    return _processes(paths, timeout, ("--page",) if page else ())


def _processes(
    paths: Sequence[Path], timeout: float, options: Sequence[str] = ()
) -> list[dict[str, Any]]:
    processes: list[subprocess.Popen[bytes]] = []
    with held() as came:
        try:
            for path in paths:
                processes.append(_started(path, options))
            if not _ended(processes, timeout, came):
                raise late(timeout, f"see {paths[0].parent.parent}/*/{LOG}")
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.wait()
    return [_result(path.parent / LOG) for path in paths]


def _started(site: Path, options: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    log = site.parent / LOG
    for old in (log, log.with_name(f"{LOG}.1")):
        old.unlink(missing_ok=True)
    command = [sys.executable, "-m", "coke", "agent", str(site), "--log", str(log), *options]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    number = os.open(site.parent / ERRORS, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(number, "wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)


def _ended(
    processes: Sequence[subprocess.Popen[bytes]], timeout: float, came: Sequence[int]
) -> bool:
    """Whether all have ended in time; Ctrl-C is raised as soon as it has come."""
    until = time.monotonic() + timeout
    while any(process.poll() is None for process in processes):
        if came:
            raise KeyboardInterrupt
        if time.monotonic() > until:
            return False
        time.sleep(OFTEN)
    return True


def _result(log: Path) -> dict[str, Any]:
    last = _last(log)
    if last.get("phase") == "result":
        return last
    errors = log.with_name(ERRORS)
    text = errors.read_bytes() if errors.exists() else b""
    said = _last(errors).get("error") or b" ".join(text.splitlines()[-6:]).decode(errors="replace")
    raise ConvergenceError(f"an agent ended early, see {log} and {ERRORS}: {said[:500]}")


def _last(log: Path) -> dict[str, Any]:
    """The last line, if it is a document."""
    try:
        return msgspec.json.decode(log.read_bytes().splitlines()[-1], type=dict[str, Any])
    except (OSError, IndexError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
