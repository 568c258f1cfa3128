"""`coke theory`: what the paper's theorems say about a configuration, beside what is measured."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from coke.cli import options
from coke.cli.console import AsJson, console, print_json
from coke.data.sites import Sites
from coke.engines.process import simulate
from coke.errors import ConfigError
from coke.learning.loading import load_task
from coke.learning.task import Task
from coke.maths.algorithms.coke import dkla
from coke.maths.features.features import gram
from coke.maths.graph import Graph
from coke.maths.losses.problem import Problem
from coke.maths.losses.quadratic import Quadratic
from coke.maths.theory import Assumptions, Constants, degrees_of_freedom, features_needed
from coke.settings import Config

SAMPLE = 1000  # rows whose kernel matrix stands for that of all
MEASURED = 400  # rounds of DKLA to measure its pace in


def theory(
    config: options.ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Constants, guaranteed and measured rate, and the ρ, λ and L that follow."""
    wanted = options.config_from(config, {})
    if wanted.loss != "quadratic":
        raise ConfigError(
            f'loss = "{wanted.loss}": the theorems\' constants need the quadratic loss'
        )
    if wanted.data.stream:
        raise ConfigError("stream = true: the constants need rows in memory; use some of the rows")
    with console.status("reading rows, one pass over them"):
        task, graph, sites = load_task(wanted)
    with console.status(f"{MEASURED} rounds of DKLA, to measure its pace"):
        document = summary(wanted, task, graph, sites)
    if json:
        print_json(document)
        return
    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    for key, meaning in MEANINGS.items():
        table.add_row(key.replace("_", " "), _shown(document[key]), meaning)
    Console().print(table)
    sys.stdout.write(advice(document) + "\n")


def _shown(value: Any) -> str:
    if not isinstance(value, float):
        return "–" if value is None else str(value)
    close = 0 < 1 - value < 1e-3  # a factor just below one: say by how much
    return f"1 − {1 - value:.2g}" if close else f"{value:.4g}"


MEANINGS = {
    "assumptions_hold": "connected, strongly convex, sites of similar size",
    "m": "strong convexity, the smallest over the sites",
    "M": "Lipschitz constant of the gradients, the largest",
    "condition": "M/m: what random features make large",
    "network": "σmax(S+)/σmin(S-): one is best, a ring or a path is bad",
    "rho": "the step size of the configuration; every ρ > 0 converges",
    "guaranteed_factor": "Theorem 4: (ϑ, β) nears its limit by this a round, or faster",
    "measured_factor": f"DKLA: ‖θ − θ*‖ a round, the later half of at most {MEASURED}",
    "guaranteed_rounds_per_digit": "rounds for one more decimal digit, at most",
    "measured_rounds_per_digit": "the same, measured",
    "best_rho": "the ρ with the best guarantee (not the best in practice)",
    "best_guaranteed_factor": "the guarantee with it",
    "lambda": "regularisation of the sum over sites",
    "lambda_theory": "N/√T: Theorem 3's λ = 1/√T for the mean over rows",
    "degrees_of_freedom": f"effective, of the kernel at λ/N ({SAMPLE} rows)",
    "features": "random features L of the configuration",
    "features_theory": "L of Theorem 3 at λ = 1/√T, ε = 0.5, with probability 0.95",
}


def summary(config: Config, task: Task, graph: Graph, sites: Sites) -> dict[str, Any]:
    """Everything as numbers."""
    problem, N = task.problem, len(task.sites)
    risk = problem.train
    assert isinstance(risk, Quadratic)
    c, T = Constants.of(risk, graph), float(risk.T.sum())
    rate, rho = c.rate(config.rho), c.best_rho()
    pace = measured_factor(problem, graph, config.rho)
    X = task.scaling.inputs(np.concatenate(sites.X))
    some = X[np.random.default_rng(config.seed).permutation(len(X))[:SAMPLE]]
    K = gram(config.features.kernel, some, some, task.common.sigma)
    wide = degrees_of_freedom(K, 1 / math.sqrt(T))
    return {
        "assumptions_hold": Assumptions.of(risk, graph).hold,
        "m": c.m,
        "M": c.M,
        "condition": c.condition,
        "network": c.spread,
        "rho": config.rho,
        "guaranteed_factor": rate.factor,
        "measured_factor": pace,
        "guaranteed_rounds_per_digit": rate.rounds(10.0),
        "measured_rounds_per_digit": math.log(10) / -math.log(pace) if 0 < pace < 1 else None,
        "best_rho": rho,
        "best_guaranteed_factor": c.rate(rho).factor,
        "lambda": config.lam,
        "lambda_theory": N / math.sqrt(T),
        "degrees_of_freedom": degrees_of_freedom(K, config.lam / N) if config.lam else None,
        "features": config.features.n_features,
        "features_theory": features_needed(wide, 1 / math.sqrt(T)),
    }


def measured_factor(problem: Problem, graph: Graph, rho: float) -> float:
    """By what the distance to θ* shrinks a round: the later half of the rounds before rounding."""
    floor = 1e-9 * float(np.linalg.norm(problem.optimum))  # below it only rounding is left
    gaps = [float(np.linalg.norm(problem.optimum))]
    for r in simulate(problem, graph, dkla(rho), rounds=MEASURED, scored=()):
        if r.optimality_gap <= floor:
            break
        gaps.append(r.optimality_gap)
    half = len(gaps) // 2
    return float((gaps[-1] / gaps[half]) ** (1 / max(1, len(gaps) - 1 - half)))


def advice(d: dict[str, Any]) -> str:
    """One sentence on what to change."""
    digit = d["measured_rounds_per_digit"]
    if digit is None:
        return f"At ρ = {d['rho']:g} the agents come no nearer: try ρ near {d['best_rho']:.2g}."
    pace = f"About {digit:.0f} rounds per digit at ρ = {d['rho']:g}."
    if digit < 100:
        return pace
    if d["condition"] < 1000:
        return f"{pace} The problem is easy (condition {d['condition']:.0f}); change ρ."
    return (
        f"{pace} The risks' condition number {d['condition']:.0f} is why; a larger λ or fewer "
        "features lower it."
    )
