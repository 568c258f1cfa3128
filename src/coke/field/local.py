"""A whole network of agents on one machine: its folders, and its processes or threads."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet

from coke.data.files import atomically, make_folder, write_file
from coke.data.sites import Index
from coke.data.tables import Rows
from coke.errors import ConfigError, ConvergenceError, GraphError
from coke.field.agent import Agent
from coke.field.carriers import CARRIERS
from coke.field.identity import found, issue, site_name
from coke.field.mission import Mission, SiteConfig, read_site
from coke.field.phases import Pace
from coke.field.results import keep
from coke.field.store import Store
from coke.learning.model import Model, load_model
from coke.maths.graph import Graph
from coke.maths.ledger import Ledger
from coke.settings import Config
from coke.threads import OneThread

START = """#!/bin/sh
# Starts every agent of this network and waits for all; logs are beside the sites' files.
cd "$(dirname "$0")"
for site in sites/*/site.toml; do
  "{python}" -m coke agent "$site" --json > "$(dirname "$site")/log.jsonl" 2>&1 &
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
    carrier: str = "zenoh"


def write_network(folder: Path, plan: NetworkPlan) -> list[Path]:
    """Rows and a file for every site; for processes certificates, too, and a script for all."""
    names, together = site_names(list(plan.parts)), CARRIERS[plan.carrier].together
    if len(names) != len(plan.graph):
        raise GraphError(f"{len(names)} sites on a graph of {len(plan.graph)}: expected as many")
    make_folder(folder)
    others = [[names[n] for n in sorted(plan.graph[i])] for i in range(len(names))]
    tables = _apart(others) if together else _reachable(folder, plan.network, names, others)
    paths = []
    for name, part, table in zip(names, plan.parts.values(), tables, strict=True):
        place = folder / "sites" / name
        make_folder(place)
        _write_rows(place / "rows.parquet", plan.rows, part)
        site = {
            "name": name, "network": plan.network, "carrier": plan.carrier,
            "patience": plan.patience, **table,
        }  # fmt: skip
        data = {**plan.settings.get("data", {}), "file": "rows.parquet", "target": "y"}
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
    found(authority, network, now)
    tables, ports = list[dict[str, Any]](), dict(zip(names, free_ports(len(names)), strict=True))
    for name, friends in zip(names, others, strict=True):
        own = folder / "sites" / name / "identity"
        make_folder(own)
        issue(authority, name, now)
        for file in ("ca.crt", f"{name}.crt", f"{name}.key"):
            _moved(authority / file, own / file)
        later = names[names.index(name) :]
        calls = {n: f"tls/127.0.0.1:{ports[n]}" if n in later else "" for n in friends}
        listen = [f"tls/127.0.0.1:{ports[name]}"]
        tables.append({"listen": listen, "identity": "identity", "neighbours": calls})
    return tables


def site_names(labels: Sequence[Any]) -> list[str]:
    """Names that certificates can carry, in the order of the labels."""
    width = len(str(len(labels) - 1))
    if all(isinstance(label, int) for label in labels):
        return [f"site-{label:0{width}d}" for label in labels]
    names = [str(label).strip().lower().replace(" ", "-").replace("_", "-") for label in labels]
    if len(set(names)) != len(names):
        raise ConfigError(f"sites {labels[:8]}: expected labels that differ in letters and digits")
    return [site_name(name) for name in names]


def free_ports(n: int) -> list[int]:
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
    lines = [f"{_key(k)} = {msgspec.json.encode(v).decode()}" for k, v in plain.items()]
    for key, value in settings.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{above}{_key(key)}]", *_toml(value, f"{above}{_key(key)}.")]
    return lines


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() else f'"{name}"'


def _write_rows(path: Path, rows: Rows, part: Index) -> None:
    columns = {name: rows.X[part, j] for j, name in enumerate(rows.columns)}
    table = pa.table({**columns, "y": pa.array(rows.y[part].tolist())})
    atomically(path, lambda file: pa.parquet.write_table(table, file))


def _moved(source: Path, target: Path) -> None:
    """A copy with the source's mode, for keys are private; keys are not left behind."""
    data = source.read_bytes()
    mode = 0o600 if source.suffix == ".key" else 0o644
    with os.fdopen(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
    if source.suffix == ".key":
        source.unlink()


class Found(NamedTuple):
    """What a network of agents came to."""

    models: list[Model]  # one a site
    history: list[list[dict[str, Any]]]  # one list of rounds a site
    rounds: int
    converged: bool
    ledger: Ledger


def train_on_agents(
    config: Config, rows: Rows, parts: Mapping[Any, Index], graph: Graph, carrier: str = "zenoh"
) -> Found:
    """Writes a network to a temporary folder, runs it, and reads what its sites came to."""
    settings = config.shared() | {"sample": None}
    if config.sample is not None:
        raise ConfigError(
            'whitening = "sample" with agents: write a network, and name a file there'
        )
    with TemporaryDirectory(prefix="coke-") as folder:
        name = Path(folder).name.replace("_", "-")  # no other network of this process has it
        plan = NetworkPlan(
            network=f"local-{name}x", graph=graph, rows=rows, parts=parts, settings=settings,
            patience="wait", carrier=carrier,
        )  # fmt: skip
        paths = write_network(Path(folder), plan)
        results = run_network(paths, timeout=60.0 + config.rounds)
        models = [load_model(result["model"]) for result in results]
        history = [
            pa.parquet.read_table(path.parent / "state" / "history.parquet").to_pylist()
            for path in paths
        ]
    total = Ledger(*(sum(result[name] for result in results) for name in Ledger._fields))
    converged = all(result["converged"] for result in results)
    return Found(models, history, max(r["rounds"] for r in results), converged, total)


def run_network(paths: Sequence[Path], timeout: float) -> list[dict[str, Any]]:
    """Every site's agent, as its carrier wants it: a process of its own, or a thread of this one.

    What each came to, in the order of the files.
    """
    configs = [read_site(path) for path in paths]
    if all(CARRIERS[config.site.carrier].together for config in configs):
        with OneThread().limit():  # here: threads that each limit BLAS would undo each other's
            return _Threads(configs, timeout).run()
    return _processes(paths, timeout)


def _processes(paths: Sequence[Path], timeout: float) -> list[dict[str, Any]]:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    logs = [path.parent / "log.jsonl" for path in paths]
    processes = []
    try:
        for path, log in zip(paths, logs, strict=True):
            with log.open("wb") as out:
                command = [sys.executable, "-m", "coke", "agent", str(path), "--json"]
                processes.append(
                    subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
                )
        for process in processes:
            process.wait(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise _late(timeout, f"see {logs[0].parent.parent}/*/log.jsonl") from error
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [_result(log) for log in logs]


def _late(timeout: float, advice: str) -> ConvergenceError:
    return ConvergenceError(f"the agents did not end within {timeout:g} s: {advice}")


def _result(log: Path) -> dict[str, Any]:
    lines = log.read_bytes().splitlines()
    try:
        last = msgspec.json.decode(lines[-1], type=dict[str, Any])
        if last.get("phase") == "result":
            return last
    except (IndexError, msgspec.DecodeError):
        last = {}
    said = last.get("error") or b" ".join(lines[-6:]).decode(errors="replace")[:500]
    raise ConvergenceError(f"an agent ended early, see {log}: {said}")


class _Threads:
    """All agents of a network in this process; what stops one stops all."""

    def __init__(self, configs: Sequence[SiteConfig], timeout: float):
        self._until, self._timeout = time.monotonic() + timeout, timeout
        self._agents = [_agent(config) for config in configs]
        self._errors: list[Exception] = []

    def run(self) -> list[dict[str, Any]]:
        """Runs all agents to their end; what each came to."""
        threads = [threading.Thread(target=self._live, args=(agent,)) for agent in self._agents]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads) and not self._errors:
                if time.monotonic() > self._until:
                    raise _late(self._timeout, "give them more time, or fewer rounds")
                time.sleep(0.01)
        finally:
            for agent in self._agents:
                agent.stop()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        if self._errors:
            raise self._errors[0]
        return [keep(agent) for agent in self._agents]

    def _live(self, agent: Agent) -> None:
        try:
            with agent.carrier, agent.store.claimed():
                for _ in agent.run():
                    pass
        except Exception as error:
            self._errors.append(error)


def _agent(config: SiteConfig) -> Agent:
    opened = CARRIERS[config.site.carrier].opener(config.site)
    store = Store(Path(config.site.state), flushed=False)  # gone with this process, if it goes
    return Agent(Mission(config), opened(), store, Pace.of(config.site.patience))
