"""`make bench-protocol`: the edge protocol under every fault, and all orders of small cases.

The long versions of tests/laws/test_interleavings.py and tests/field/test_node*.py. Prints what
each schedule costs to come within 1e-9 of the optimum on one problem (10 sites, 40 numbers, 19
edges, Coarse messages, h(s) = 0.3 · 0.9ˢ), steps and bytes relative to lockstep on five, and what
was searched. Ends must agree to the last bit after every tick. Arguments choose parts by name;
exits non-zero where a rule or a bound is broken.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy loads

import math
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np

from coke.maths.algorithms.coke import Geometric
from coke.maths.algorithms.stopping import NEVER
from coke.maths.arrays import Array
from kit.events import GOING_ON, Faults, Problem, World, invariants, whitened
from kit.exhaustive import Search
from kit.machines import NOTHING_OUTSTANDING, ONE_WORD, RECOMPUTES, SENDS_FIRST, Model
from kit.partings import PAIR, PATH, TRIANGLE_OF_EDGES, Partings, mute

GOAL, SEEDS = 1e-9, 3
MODELS = {
    "2 sites, 4 steps, 2 in flight": Model(4, 2),
    "2 sites, 2 steps, 3 in flight": Model(2, 3),
    "2 sites, 2 steps, 2 in flight, news or silence": Model(2, 2, silence=True),
    "and 1 reset": Model(2, 2, resets=1),
    "1 in flight, 2 resets": Model(2, 1, resets=2),
    "closed and opened, 3 in all": Model(2, 1, closings=3),
    "in reserve, opened, closed or shut, 3 in all": Model(2, 1, closings=3, spare=True),
    "a disk that is empty again": Model(2, 2, rollbacks=1),
    "after 1 and 2 orders of a descent": Model(2, 2, begins=(1, 2)),
    "and 1 reset, 1 in flight": Model(2, 1, begins=(1, 2), resets=1),
    "3 sites on a path, 2 steps, no doubles": Model(2, 1, sites=3, double=False),
}
TRIANGLE = Model(3, 2, sites=3, ring=True, resets=2)
MUTANTS = {
    "sends before the image is on disk": Model(2, 2, silence=True, machine=SENDS_FIRST),
    "writes its word anew": Model(2, 2, silence=True, machine=RECOMPUTES),
    "keeps one word only": Model(2, 2, machine=ONE_WORD),
    "nothing outstanding": Model(2, 1, rollbacks=1, machine=NOTHING_OUTSTANDING),
}
PARTINGS = {
    "2 sites part": Partings(PAIR),
    "3 sites on a path": Partings(PATH),
    "triangle": Partings(TRIANGLE_OF_EDGES),
    "2 sites, loss, doubles, 3 kills": Partings(PAIR, calm=False, kills=3),
    "path, loss, doubles, 1 kill, 1 in flight": Partings(PATH, calm=False, kills=1, flight=1),
    "triangle, in order, 1 kill": Partings(TRIANGLE_OF_EDGES, kills=1),
}
# Faults, the most ticks as a multiple of lockstep, and whether all sites are alike.
SCHEDULES: dict[str, tuple[Faults, float, bool]] = {
    "lockstep": (Faults(), 1, True),
    "awake 50 %, going on": (GOING_ON._replace(awake=0.5), 4, True),
    "awake 50 %, waiting": (Faults(awake=0.5), 8, True),
    "awake 20 %, going on": (GOING_ON._replace(awake=0.2), 10, True),
    "awake 5 %, going on": (GOING_ON._replace(awake=0.05), 40, True),
    "one 10 × slower, going on": (Faults(1, slow=10), 12, False),
    "one 10 × slower, patience 3": (Faults(3, slow=10), 12, False),
    "one 10 × slower, waiting": (Faults(slow=10), 12, False),
    "loss 20 %, doubles, late 1": (GOING_ON._replace(loss=0.2, double=0.1, late=1), 6, True),
    "loss 20 %, doubles, waiting": (Faults(loss=0.2, double=0.1), 14, True),
    "loss 50 %, doubles, late 1": (GOING_ON._replace(loss=0.5, double=0.1, late=1), 30, False),
    "kills 1 % at 3 points": (GOING_ON._replace(kill=0.01), 3, True),
    "kills 5 %": (GOING_ON._replace(kill=0.05), 4, True),
    "kills 20 %": (GOING_ON._replace(kill=0.2), 20, True),
    "all of it, awake 50 %": (Faults(1, 1, 0.2, 0.1, 0.02, 0.5), 16, True),
}
FIVE = [name for name, (_, _, alike) in SCHEDULES.items() if alike and "waiting" not in name]


def searched() -> bool:
    print("every interleaving: states, violations, dead, seconds")
    fine = True
    for name, model in MODELS.items():
        t = time.perf_counter()
        found = Search(model).run()
        print(f"  {name:50} {found.states:>9} {found.violations:>3} {found.dead:>3}"
              f" {time.perf_counter() - t:7.1f}", flush=True)  # fmt: skip
        fine &= found.violations == found.dead == 0 and found.states < model.most
    walked = Search(TRIANGLE).walk(1000, 200, seed=0)
    print(f"  {'triangle, 3 steps, 2 resets: 1000 random walks':50} {walked.states:>9} "
          f"{walked.violations:>3} {walked.dead:>3}", flush=True)  # fmt: skip
    fine &= walked.violations == walked.dead == 0
    print("what does not work: states until a rule is broken, or dead states")
    for name, model in MUTANTS.items():
        found = Search(model).run(first=True)
        seen = "a rule is broken" if found.violations else f"{found.dead} dead"
        print(f"  {name:50} {found.states:>9} {seen}", flush=True)
        fine &= bool(found.violations or found.dead)
    return fine


def partings() -> bool:
    print("every order of the last letters: states; gone early, left waiting, dead")
    fine = True
    for name, model in PARTINGS.items():
        found = model.run()
        calm = model.calm and not model.kills
        print(f"  {name:50} {found.states:>9} {found.early:>3} {found.stranded:>5} {found.dead:>3}",
              flush=True)  # fmt: skip
        fine &= found.early == found.dead == 0 and not (calm and found.stranded)
    silent = Partings(PAIR, hear=mute).run().stranded
    print(f"  {'leaving without a last letter: left waiting':50} {silent:>9}")
    return fine and bool(silent)


def schedules() -> bool:
    print("schedules: ticks, median steps, kB, × lockstep")
    fine, problem, base = True, whitened(), 1
    for name, (faults, most, _) in SCHEDULES.items():
        world = World(problem, faults)
        ticks = world.until(GOAL, math.ceil(most * base) if base > 1 else 1000, invariants)
        base = ticks if base == 1 else base
        shown = ticks if ticks > 0 else f"{world.distance():.0e}"
        print(f"  {name:50} {shown:>7} {world.steps():7.1f} {world.sent / 1e3:7.0f}"
              f" {ticks / base:5.1f}", flush=True)  # fmt: skip
        fine &= ticks > 0
    return fine


def five() -> bool:
    print(f"five problems, means of {SEEDS} runs: steps, bytes × lockstep; most steps of one run")
    problems = [(whitened(seed=seed), seed) for seed in range(5)]
    calm = [_ratios(problem, Faults(), seed) for problem, seed in problems]
    fine = True
    for name in FIVE:
        faults = SCHEDULES[name][0]
        runs = np.array([
            [_ratios(problem, faults, seed + 100 * more) / base for more in range(SEEDS)]
            for (problem, seed), base in zip(problems, calm, strict=True)
        ])  # fmt: skip
        means = runs.mean(axis=1)
        low, high = means.min(axis=0), means.max(axis=0)
        print(f"  {name:50} {low[0]:5.2f} … {high[0]:4.2f} {low[1]:6.2f} … {high[1]:4.2f}"
              f" {runs[:, :, 0].max():6.2f}", flush=True)  # fmt: skip
        fine &= bool(high[0] <= 1.15)  # false for NaN: not within reach of the optimum
    return fine


def _ratios(problem: Problem, faults: Faults, seed: int) -> Array:
    """(2,) median steps and bytes until all are within reach of the optimum."""
    world = World(problem, faults, seed)
    there = world.until(GOAL, 12000, invariants) > 0
    return np.array([world.steps(), float(world.sent)]) if there else np.full(2, np.nan)


def kills() -> bool:
    """Waiting sites under kills hold the undisturbed run's bits."""
    calm, wild = World(whitened(), Faults()), World(whitened(), Faults(kill=0.05))
    thetas: dict[tuple[str, int], bytes] = {}
    for _ in range(200):
        calm.tick()
        thetas |= {(n, s.k): s.theta.tobytes() for n, s in calm.nodes.items()}
    seen: dict[tuple[str, int], bytes] = {}
    while len(seen) < 10 * 150:
        wild.tick()
        invariants(wild)
        seen |= {(n, a.disk.k): a.disk.theta.tobytes() for n, a in wild.agents.items() if a.disk.k}
    differ = sum(thetas[at] != theta for at, theta in seen.items())
    print(f"{wild.kills} kills, waiting: {differ} of {len(seen)} states (site, round) differ")
    return differ == 0


def endings() -> bool:
    print("ends: declared at (max-norm distance / tol), runs, not ended")
    names = ["lockstep", "awake 50 %, going on", "one 10 × slower, patience 3", "kills 5 %",
             "loss 20 %, doubles, late 1", "all of it, awake 50 %"]  # fmt: skip
    fine = True
    for name in names:
        worst, stuck = 0.0, 0
        for seed in range(3):
            for tol in (1e-2, 1e-4):
                away, ended = ending(name, seed, tol)
                worst, stuck = max(worst, away / tol), stuck + (not ended)
        print(f"  {name:50} {worst:7.2f} {6:>3} {stuck:>3}", flush=True)
        fine &= worst <= 3 and not stuck
    return fine


def ending(name: str, seed: int, tol: float) -> tuple[float, bool]:
    """The distance when the first declares, and whether all end."""
    problem, away = whitened(seed=seed), None
    world, best = World(problem, SCHEDULES[name][0], seed, tol), problem.optimum(range(10))
    for _ in range(20_000):
        world.tick()
        nodes = world.nodes.values()
        if away is None and any(node.countdown < NEVER for node in nodes):
            away = max(float(np.abs(node.theta - best).max()) for node in nodes)
        if all(node.done for node in nodes):
            return away or 0.0, True
    return away or math.inf, False


def thresholds() -> bool:
    """What other settings cost in lockstep."""
    print("lockstep with other settings: ticks, kB")
    problem = whitened()
    for name, h in {"no censoring": Geometric(0.0), "μ = 0.95": Geometric(0.3, 0.95)}.items():
        other = problem._replace(algorithm=replace(problem.algorithm, threshold=h))
        world = World(other, Faults())
        print(f"  {name:50} {world.until(GOAL, 1000):>7} {world.sent / 1e3:7.0f}", flush=True)
    return True


if __name__ == "__main__":
    parts = {
        p.__name__: p for p in (schedules, thresholds, kills, endings, partings, five, searched)
    }
    results = [parts[name]() for name in sys.argv[1:] or parts]
    sys.exit(not all(results))
