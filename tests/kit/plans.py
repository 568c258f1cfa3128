"""What a seed of trouble means: which sites, how they train, what befalls them, which lie."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx

from coke.maths.graph import build_graph
from kit.agents import Net
from kit.liars import LIES
from kit.shaken import Weather
from kit.troubles import JOINS, LEAVES, RETURNS
from kit.untrue import UNTRUE

TOL = 1e-6
WAITS, GOES_ON = math.inf, 0.5  # patience in seconds of the world's clock
COKE = "coke"
METHODS: dict[str, dict[str, Any]] = {
    COKE: {"algorithm": "coke", "tol": TOL},
    "coke, roughly": {"algorithm": "coke", "tol": 1e-3},
    "tree-newton": {"algorithm": "tree-newton", "tol": None},
    "auto": {"algorithm": "auto", "tol": None},
    "coke, logistic": {"algorithm": "coke", "loss": "logistic", "tol": 1e-3},
    "a chosen model": {
        "algorithm": "auto",
        "tol": None,
        "model": "auto",
        "lambda": "auto",
        "features": {"n_features": 6},
    },
    "tree-newton, logistic": {"algorithm": "tree-newton", "loss": "logistic", "tol": None},
}
GRAPHS: dict[str, Callable[[int, int, int], Any]] = {
    "random": lambda n, edges, seed: build_graph("random", n, edges=edges, seed=seed),
    "ring": lambda n, *_: nx.cycle_graph(n),
    "path": lambda n, *_: nx.path_graph(n),
    "star": lambda n, *_: nx.star_graph(n - 1),
}
NEAR_ONLY = (COKE, "tree-newton")  # whose answer is known also where it is not the simulation's
LYING = 150  # rounds with a liar


class Plan(NamedTuple):
    """What a seed means."""

    seed: int
    sites: int
    graph: str
    method: str
    patience: float
    weather: Weather
    blows: int  # how often something happens
    backups: int  # of these, restarts with old ones, at most
    member: str  # how the network changes; nothing where it does not
    lie: str  # what one of them tells; nothing where all are honest

    def __str__(self) -> str:
        waits = "waits" if self.patience == WAITS else "goes on"
        loss, twice, late = self.weather
        more = [f"one {self.member}" if self.member else "", f"a liar: {self.lie}"]
        return ", ".join([
            f"seed {self.seed}: {self.sites} sites, {self.graph}, {self.method}, {waits}",
            f"{loss:.0%} lost, {twice:.0%} twice, up to {late:.2f} s late",
            *filter(None, more[: 1 + bool(self.lie)]),
        ])  # fmt: skip


def planned(seed: int) -> Plan:
    """Every other one has a liar."""
    draw = random.Random(f"{seed} plan")
    lie = draw.choice([*LIES, *UNTRUE]) if seed % 2 else ""
    member = "" if lie or draw.random() < 0.7 else draw.choice([LEAVES, JOINS, RETURNS])
    method = COKE if lie else draw.choice(NEAR_ONLY if member else list(METHODS))
    near = method in NEAR_ONLY
    return Plan(
        seed=seed, method=method, lie=lie, member=member,
        sites=draw.randint(6, 8) if lie else draw.randint(3, 6),
        graph=draw.choice(["random", "ring"] if lie or member else list(GRAPHS)),
        patience=GOES_ON if lie or member else draw.choice([WAITS, GOES_ON]) if near else WAITS,
        weather=Weather(
            draw.choice([0, 0.05, 0.2]), draw.choice([0, 0.1]), draw.choice([0.01, 0.03, 0.2])
        ),
        blows=draw.randint(3, 20), backups=draw.choice([0, 1, 2]) if near else 0,
    )  # fmt: skip


def made(plan: Plan, folder: Path) -> Net:
    """The sites."""
    edges = min(plan.sites * (plan.sites - 1) // 2, plan.sites + 1 + plan.seed % 3)
    settings: dict[str, Any] = {
        "rounds": 3000, "features": {"n_features": 8, "sigma": 2.0},
        "data": {"file": "rows", "target": "y", "test": 0.0, "scale": "standard"},
        **METHODS[plan.method],
    }  # fmt: skip
    if plan.member or (plan.method == "tree-newton" and plan.patience != WAITS):
        settings["tol"] = TOL
    if plan.lie:
        settings |= {"guard": True, "rounds": LYING, "tol": 1e-3}
    net = Net(folder, plan.sites, plan.sites, rows=80 * plan.sites, **settings)
    if settings.get("loss") == "logistic":
        net.rows = net.rows._replace(y=(net.rows.y > 0).astype(float))
    net.graph = GRAPHS[plan.graph](plan.sites, edges, plan.seed)
    net.friends = {n: {net.names[j] for j in net.graph[i]} for i, n in enumerate(net.names)}
    return net
