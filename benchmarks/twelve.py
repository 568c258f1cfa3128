"""`make bench-stations`: Beijing's twelve stations in fast time, killed twenty times, two away.

Real processes, real disks, zenoh over TLS on loopback; every station's file grows hour by hour.
The agents die by kill -9 at random hours and are started again at once; two of them stay away for
100 hours. Promised, and exit code 1 where it does not hold:

    every row is counted once, and none is lost: what has no gap is learnt from, the rest counted
    g_ij = −g_ji on every edge, to the bit, hence Σγ = 0
    the others' squared error is within 1.005 of the same stream with nobody away (one process)

A thousand hours: two thirds of what the first 300 cost lies in one week of smog before there are
rows enough, where rows that come late cost others up to a tenth, however they learn
(`benchmarks/missing.py`).
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from coke.data.reading import PLAINLY
from coke.data.tables import checked_rows
from coke.field.local import NetworkPlan, write_network
from coke.learning.near import Arrived
from coke.learning.online import Replay, open_online
from coke.learning.streaming import Stream
from coke.maths.arrays import Array
from coke.maths.graph import build_graph
from coke.settings.reading import checked_settings
from streams import AIR, beijing

HOURS, STATIONS, KILLS, AWAY, AHEAD = 1000, 12, 20, 100, 6
NAMES = [f"station-{n:02d}" for n in range(STATIONS)]
LEAVE = (0.25, 0.6)  # of the hours, after which a station is away
START, FIRST = 60, 20  # hours that are there at first; whole rows to agree by
WITHIN, WAIT = 1.005, 60.0  # seconds without a row, after which a file has ended
SETTINGS: dict[str, Any] = {
    "model": "plain", "lambda": 1e-4, "loss": "quadratic", "memory": 500.0, "rounds": 100,
    "features": {"n_features": 50, "sigma": 5.0}, "data": {"scale": "none"},
}  # fmt: skip
LONG, LAST = 3000.0, 20_000  # seconds; bytes of a log that are looked at


def weather(hours: int) -> pd.DataFrame:
    """The first hours of all stations, in standard units; an hour with a gap has empty cells."""
    rows = beijing()
    X, y = rows.X[:hours], rows.y[:hours]
    return pd.DataFrame({
        "hour": np.repeat(np.arange(hours), STATIONS), "site": NAMES * hours,
        **{name: X[..., j].ravel() for j, name in enumerate(AIR)}, "y": y.ravel(),
    })  # fmt: skip


class Scene(NamedTuple):
    """What happens, and when."""

    kills: list[int]  # hours
    leave: dict[int, str]  # hour ↦ who is away from then on


def scene(hours: int, many: int, rng: np.random.Generator) -> Scene:
    """At random."""
    kills = sorted(rng.choice(np.arange(START, hours - 20), many, replace=False).tolist())
    gone = rng.choice(NAMES, len(LEAVE), replace=False).tolist()
    leave = {int(hours * share): who for share, who in zip(LEAVE, gone, strict=True)}
    return Scene(kills, leave)


class Place(NamedTuple):
    """A station on disk."""

    name: str
    folder: Path
    lines: list[str]  # of its file, the header first


class Stations:
    """The network, its processes, and who writes the files."""

    def __init__(self, folder: Path, rows: pd.DataFrame, patience: float):
        self.rows, self.folder = rows, folder
        names = sorted(set(rows["site"]))
        graph = build_graph("random", STATIONS, seed=0)
        parts = {name: np.flatnonzero(rows["site"] == name) for name in names}
        stream = {"time": "hour", "first": FIRST, "wait": WAIT}
        table = checked_rows(np.nan_to_num(rows[[*AIR]].to_numpy()), rows["y"].fillna(0).to_numpy())
        plan = NetworkPlan(
            "stations", graph, table, parts, {**SETTINGS, "stream": stream}, patience
        )
        self.places = {}
        for name, path in zip(names, write_network(folder, plan), strict=True):
            text = path.read_text().replace('"rows.parquet"', '"rows.csv"')
            path.write_text(text)
            own = rows[rows["site"] == name].drop(columns="site")
            lines = own.to_csv(index=False).splitlines(keepends=True)
            self.places[name] = Place(name, path.parent, lines)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.fed = 0

    def start(self, *names: str) -> None:
        """As anybody would."""
        for name in names or self.places:
            place = self.places[name]
            command = [sys.executable, "-m", "coke", "agent", str(place.folder / "site.toml")]
            with (place.folder / "log.jsonl").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    [*command, "--json", "--rounds-shown", "--finish"],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )

    def feed(self, upto: int) -> None:
        """Appends all rows before that hour."""
        for place in self.places.values():
            with (place.folder / "rows.csv").open("a") as file:
                if not self.fed:
                    file.write(place.lines[0])
                file.writelines(place.lines[1 + self.fed : 1 + upto])
        self.fed = upto

    def log(self, name: str) -> list[dict[str, Any]]:
        """Its last lines."""
        data = (self.places[name].folder / "log.jsonl").read_bytes()[-LAST:]
        found = []
        for line in data.decode(errors="replace").splitlines():  # cut anywhere, within a letter too
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                found.append({"text": line})
        return found

    def tick(self, name: str) -> int:
        """How far it is."""
        told = [one for one in self.log(name) if one.get("phase") == "stream"]
        return int(told[-1]["round"]) if told else 0

    def kill(self, name: str) -> None:
        """As a power cut does."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def end(self) -> None:
        """Whoever still runs."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()


def opened(rows: pd.DataFrame, folder: Path) -> Replay:
    """The same in one process, before its first row."""
    file = folder / "all.csv"
    rows.to_csv(file, index=False)
    data = {**SETTINGS["data"], "file": str(file), "target": "y", "site": "site"}
    settings = checked_settings({
        **SETTINGS, "stream": {"time": "hour", "first": FIRST}, "data": data,
        "graph": {"kind": "random"},
    })  # fmt: skip
    return open_online(settings, None, PLAINLY.say)


def scored(stream: Stream) -> Array:
    """(N, 2) losses and rows of every site, up to where the stream is."""
    paid, tick = np.zeros((STATIONS, 2)), stream.tick

    def seen(rows: Sequence[Arrived]) -> list[Array]:
        told = tick(rows)
        for own, f, one in zip(paid, told, rows, strict=True):
            own += float(((f - one.y) ** 2).sum()), len(one.y)
        return told

    stream.tick = seen  # type: ignore[method-assign]
    return paid


def replayed(net: Stations) -> dict[str, tuple[float, int]]:
    """Losses and rows of every station with nobody away."""
    replay = opened(net.rows, net.folder)
    assert isinstance(replay.feed.stream, Stream)
    paid = scored(replay.feed.stream)
    for _ in replay.run():
        pass
    return {name: (loss, int(n)) for name, (loss, n) in zip(net.places, paid, strict=True)}


def run(net: Stations, hours: int, many: int, rng: np.random.Generator) -> list[str]:
    """Feeds, kills, starts again; who was away."""
    names, away, back = list(net.places), dict[str, int](), list[str]()
    kills, leave = scene(hours, many, rng)
    until = time.monotonic() + LONG
    net.feed(START)
    net.start()
    while net.fed < hours:
        assert time.monotonic() < until, {
            name: (net.tick(name), net.log(name)[-1]) for name in names
        }
        here = [name for name in names if name not in away]
        dead = [n for n in here if net.processes[n].poll() not in (None,)]
        assert not dead, {name: net.log(name)[-3:] for name in dead}
        if min(net.tick(name) for name in here) < net.fed - AHEAD:
            time.sleep(0.05)
            continue
        net.feed(min(net.fed + 3, hours))
        while kills and kills[0] < net.fed:
            kills.pop(0)
            who = str(rng.choice(here))
            net.kill(who)
            net.start(who)
        for hour in [hour for hour in leave if hour < net.fed]:
            who = leave.pop(hour)
            net.kill(who)
            away[who] = net.fed
            print(f"{who} is away from hour {net.fed} on", flush=True)
        for who in [who for who, since in away.items() if net.fed >= since + AWAY]:
            del away[who]
            back.append(who)
            net.start(who)
    for who in away:  # the stream was shorter than the absence: at the end everybody is needed
        back.append(who)
        net.start(who)
    for name in names:
        net.processes[name].wait(timeout=LONG)
        print(f"{name} has ended", flush=True)
    return back


def judged(net: Stations, away: list[str], hours: int) -> list[tuple[bool, str]]:
    """Every promise, and whether it holds."""
    ends = {name: net.log(name)[-1] for name in net.places}
    bad = {name: net.log(name)[-4:] for name, end in ends.items() if end.get("phase") != "result"}
    assert not bad, bad
    came = {name: end["stream"]["arrivals"] for name, end in ends.items()}
    whole = net.rows.dropna().groupby("site").size()
    once = all(one["taken"] == whole[n] == hours - one["gaps"] for n, one in came.items())
    alike = [gap for end in ends.values() for gap in end["asymmetry"].values()]
    alone, others = replayed(net), [name for name in net.places if name not in away]
    clean = np.divide(*np.sum([alone[name] for name in others], axis=0))
    paid = [(ends[name]["stream"]["loss"], ends[name]["stream"]["rows"]) for name in others]
    error = np.divide(*np.sum(paid, axis=0))
    size = sum(end["bytes"] for end in ends.values()) / 1e3
    return [
        (once, f"rows learnt from, each once: {[one['taken'] for one in came.values()]}"),
        (
            set(alike) == {0.0},
            f"the duals of {len(alike)} ends cancel: {sorted(set(map(str, alike)))}",
        ),
        (
            error <= WITHIN * clean,
            f"the others' error {error:.5f}, {error / clean:.4f} of {clean:.5f} with nobody away",
        ),
        (True, f"{size:.1f} kB in all; away: {', '.join(away)}"),
    ]


def main() -> None:
    """One run."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the agents are ended, too
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=HOURS)
    parser.add_argument("--patience", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=KILLS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        net = Stations(Path(folder) / "net", weather(asked.hours), asked.patience)
        begin = time.monotonic()
        try:
            away = run(net, asked.hours, asked.kills, np.random.default_rng(asked.seed))
            said = judged(net, away, asked.hours)
        finally:
            net.end()
    for holds, text in said:
        print(f"{'kept' if holds else 'MISSED':7s}{text}")
    print(f"{asked.kills} × kill -9, {asked.hours} ticks, {time.monotonic() - begin:.0f} s")
    sys.exit(not all(holds for holds, _ in said))


if __name__ == "__main__":
    main()
