"""What the paper's theorems say about a configuration, beside what is measured."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coke.engines.process import simulate
from coke.learning.ready import Ready
from coke.maths.algorithms.coke import dkla
from coke.maths.features.features import gram
from coke.maths.theory import Assumptions, Constants, degrees_of_freedom, features_needed
from coke.settings.declaration import Settings

SAMPLE = 1000  # rows whose kernel matrix stands for that of all
MEASURED = 400  # rounds of DKLA to measure its pace in

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


def summary(settings: Settings, ready: Ready) -> dict[str, Any]:
    """Everything as numbers."""
    problem, graph, N, rows = ready.problem, ready.graph, len(ready.names), ready.rows
    risk = problem.train.sums
    assert risk is not None  # other losses are refused with the settings
    c, T = Constants.of(risk, graph), float(risk.T.sum())
    rate, rho = c.rate(settings.rho), c.best_rho()
    pace = _measured_factor(ready, settings.rho)
    assert rows is not None  # settings that keep none are refused
    X = np.concatenate(rows.X)
    some = X[np.random.default_rng(settings.seed).permutation(len(X))[:SAMPLE]]
    K = gram(settings.features.kernel, some, some, ready.agreement.sigma)
    lam = ready.agreement.lam
    wide = degrees_of_freedom(K, 1 / math.sqrt(T))
    return {
        "assumptions_hold": Assumptions.of(risk, graph).hold,
        "m": c.m,
        "M": c.M,
        "condition": c.condition,
        "network": c.spread,
        "rho": settings.rho,
        "guaranteed_factor": rate.factor,
        "measured_factor": pace,
        "guaranteed_rounds_per_digit": rate.rounds(10.0),
        "measured_rounds_per_digit": math.log(10) / -math.log(pace) if 0 < pace < 1 else None,
        "best_rho": rho,
        "best_guaranteed_factor": c.rate(rho).factor,
        "lambda": lam,
        "lambda_theory": N / math.sqrt(T),
        "degrees_of_freedom": degrees_of_freedom(K, lam / N) if lam else None,
        "features": settings.features.n_features,
        "features_theory": features_needed(wide, 1 / math.sqrt(T)),
    }


def _measured_factor(ready: Ready, rho: float) -> float:
    """By what the distance to θ* shrinks a round: the later half of the rounds before rounding."""
    gaps = [float(np.linalg.norm(ready.optimum))]
    floor = 1e-9 * gaps[0]  # below it only rounding is left
    for r in simulate(ready.problem, ready.graph, dkla(rho), rounds=MEASURED, scored=()):
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
