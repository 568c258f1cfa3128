"""Real agents over TLS, killed, frozen and stopped, on wires that are cut, stalled and slow."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kit import frail
from kit.field import Field, antisymmetric, are_the_simulation, made_rows
from kit.proxies import Wires

METHODS = ("tree-newton", "auto", "coke")
STOPPED = 143
LONG = 1800.0  # seconds: whoever has not ended by then never does


def troubled(seed: int, folder: Path) -> tuple[str, Counter[str], str]:
    """What was tried, what happened, and what is wrong."""
    draw, hit = random.Random(f"{seed} processes"), Counter[str]()
    sites, method = draw.randint(3, 4), draw.choice(METHODS)
    edges = draw.randint(sites - 1, sites * (sites - 1) // 2)
    kills, loss = draw.randint(0, 2), draw.choice([0.0, 0.1])
    field = Field(folder, made_rows(150 * sites), sites, edges, algorithm=method)
    wires = Wires(field.paths)
    about = f"seed {seed}: {sites} processes over TLS, {edges} edges, {method}, {loss:.0%} lost"
    field.frailty = frail.frail(seed, kills, loss)
    with wires.up():
        try:
            field.start()
            wrong = _shake(field, wires, draw, hit)
        finally:
            field.end()
    hit["kill"] += sum(map(frail.deaths, field.paths))
    if not wrong:
        try:
            antisymmetric(field, field.names)
            are_the_simulation(field)
        except AssertionError as error:
            wrong = str(error)[:2000]
    return about, hit, wrong


def _shake(field: Field, wires: Wires, draw: random.Random, hit: Counter[str]) -> str:
    """Until all have ended; why not, if they do not."""
    end, then, blows = time.monotonic() + LONG, 0.0, draw.randint(2, 6)
    undo: list[tuple[float, Callable[[], None]]] = []
    while time.monotonic() < end:
        now = time.monotonic()
        for at, back in [one for one in undo if one[0] <= now or not blows]:
            undo.remove((at, back))
            back()
        for name, process in field.processes.items():
            if process.poll() in (-signal.SIGKILL, -signal.SIGTERM, STOPPED):
                field.start(name)
        codes = {name: process.poll() for name, process in field.processes.items()}
        if all(code is not None for code in codes.values()):
            bad = {name: field.log(name)[-2:] for name, code in codes.items() if code}
            return str(bad) if bad else ""
        if blows and now >= then:
            blows, then = blows - 1, now + draw.uniform(0.3, 2.0)
            at = now + draw.uniform(0.1, 2.0)
            undo.append((at, _blow(field, wires, draw, hit)))
        time.sleep(0.05)
    return f"not ended in {LONG:g} s: { {name: field.log(name)[-1:] for name in field.names} }"


def _blow(field: Field, wires: Wires, draw: random.Random, hit: Counter[str]) -> Callable[[], None]:
    """Something happens; how it is undone."""
    kind = draw.choice(["freeze", "stop", "cut", "stall", "slow"])
    name, wire = draw.choice(field.names), draw.choice(wires.wires)
    process = field.processes[name]
    hit[f"{kind} of a {'process' if kind in ('freeze', 'stop') else 'wire'}"] += 1
    if kind == "freeze":
        process.send_signal(signal.SIGSTOP)
        return lambda: process.send_signal(signal.SIGCONT)
    if kind == "stop":
        process.send_signal(signal.SIGTERM)
    elif kind == "cut":
        wires.cut(wire)
        return lambda: setattr(wire, "cut", False)
    elif kind == "stall":
        wire.stalled = True
        return lambda: setattr(wire, "stalled", False)
    else:
        wire.late = draw.uniform(0.005, 0.05)
    return lambda: None
