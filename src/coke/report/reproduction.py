"""Tables as Markdown and figures as PNG: the paper's numbers and ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from coke.report.plots import COLOURS, STYLE
from coke.studies.reproduce.experiments import Result
from coke.studies.reproduce.published import (
    ETA,
    FIGURE_SETTINGS,
    FIGURES,
    MARKS,
    METHODS,
    RANDOM,
    RHO,
    SETTINGS,
    Setting,
)
from coke.studies.reproduce.summary import of

LABELS = {"cta": "CTA", "dkla": "DKLA", "coke": "COKE"}
HUES = {"coke": COLOURS[0], "dkla": COLOURS[1], "cta": COLOURS[2]}


def extent(results: Sequence[Result]) -> str:
    """How many seeds and rounds there were, in one line."""
    splits: dict[str, set[int]] = {}
    rounds: dict[int, list[str]] = {}
    for job in (result.job for result in results):
        splits.setdefault(job.split, set()).add(job.seed)
        titles = rounds.setdefault(job.rounds, [])
        titles += [] if SETTINGS[job.setting].title in titles else [SETTINGS[job.setting].title]
    names = {"iid": "i.i.d.", "sorted": "sorted"}
    seeds = [f"{_counted(len(s), 'seed')} of {names[split]} splits" for split, s in splits.items()]
    lengths = [f"{_counted(n, 'round')} ({', '.join(titles)})" for n, titles in rounds.items()]
    others = {(job.rho, job.graph) for job in (result.job for result in results)} - {(RHO, RANDOM)}
    instead = [f" Not the captions': ρ = {rho:g}, {graph} graphs." for rho, graph in sorted(others)]
    return f"{', '.join(seeds)}; {', '.join(lengths)}.{''.join(instead)}"


def _counted(n: int, what: str) -> str:
    """1 seed, 2 seeds."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def _caption(s: Setting) -> str:
    """The settings of a run in one line."""
    return (
        f"σ = {s.sigma:g}, L = {s.n_features} ({s.mapping}), λ = {s.lam:g}, ρ = {RHO:g}, "
        f"η = {ETA:g}, h(k) = {s.v:g} · {s.mu:g}ᵏ, {s.agents} agents, {s.edges} edges"
    )


def marks_markdown(name: str, found: dict[str, Any]) -> str:
    """A table at iteration marks: paper → ours ± spread (difference)."""
    unit, agents = MARKS[name].unit, SETTINGS[MARKS[name].setting].agents
    lines = [f"## {name}: {found['data']}", "", _caption(SETTINGS[MARKS[name].setting]), ""]
    for part, title in (("train", "Training"), ("test", "Test")):
        lines += [f"{title} MSE, × {unit:g}: paper → ours ± spread over seeds (difference)", ""]
        lines += ["| k | CTA | DKLA | COKE |", "|---:|---|---|---|"]
        for row in found["rows"]:
            cells = (_cell(row[method][part], unit) for method in METHODS)
            lines.append(f"| {row['k']} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += [f"Transmissions of COKE (DKLA and CTA send {agents} a round)", ""]
    lines += ["| k | paper | ours | DKLA |", "|---:|---:|---:|---:|"]
    for row in found["rows"]:
        sent = row["coke"]["transmissions"]
        ours = f"{sent['mean']:.0f} ± {sent['spread']:.0f}"
        lines.append(f"| {row['k']} | {sent['paper']:.0f} | {ours} | {agents * row['k']} |")
    return "\n".join([*lines, "", *_hidden(found["behind_the_metric"], unit)])


def _cell(s: dict[str, Any], unit: float) -> str:
    mean, spread = s["mean"] / unit, s["spread"] / unit
    return f"{s['paper'] / unit:g} → {mean:.3g} ± {spread:.2g} ({100 * s['relative']:+.1f} %)"


def _hidden(rows: Sequence[dict[str, Any]], unit: float) -> list[str]:
    lines = ["What the paper's metric hides (end of the run; global: on everybody's rows)", ""]
    lines += ["| split | method | train | test | global train | global test |"]
    lines += ["|---|---|---:|---:|---:|---:|"]
    for row in rows:
        keys = ("train", "test", "global_train", "global_test")
        cells = (f"{row[key]['mean'] / unit:.3g}" for key in keys)
        lines.append(f"| {row['split']} | {row['method']} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def levels_markdown(name: str, found: dict[str, Any]) -> str:
    """Transmissions until a training MSE is first reached: paper → ours, and COKE's saving."""
    lines = [f"## {name}: transmissions to reach a training MSE", ""]
    for part in found["parts"]:
        lines += [f"{part['data']}: paper → ours (mean over the seeds that reach it)", ""]
        lines += [
            "| MSE | CTA | DKLA | COKE | saved of DKLA: paper → ours |",
            "|---:|---|---|---|---|",
        ]
        for row in part["rows"]:
            cells = (_sent(row[method]) for method in METHODS)
            saved = f"{_percent(row['saving_paper'])} → {_percent(row['saving'])}"
            lines.append(f"| {row['level']:.4g} | " + " | ".join(cells) + f" | {saved} |")
        lines.append("")
    return "\n".join(lines)


def _sent(cell: dict[str, Any]) -> str:
    paper = "–" if cell["paper"] is None else str(cell["paper"])
    if cell["mean"] is None:
        return f"{paper} → –"
    some = "" if cell["reached"] == cell["seeds"] else f" ({cell['reached']} of {cell['seeds']})"
    return f"{paper} → {cell['mean']:.0f}{some}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def figure(name: str, results: Sequence[Result]) -> Figure:
    """One of the paper's figures: the synthetic problem on the left, Twitter on the right."""
    draw = {"figure1": _functionals, "figure2": _against_rounds, "figure3": _against_sent}[name]
    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=(10, 4.1), layout="constrained")
        for axes, setting in zip(drawn.subplots(1, 2), FIGURE_SETTINGS, strict=True):
            runs = of(results, setting)
            draw(axes, runs)
            axes.set_title(f"{SETTINGS[setting].title} data", fontsize=10)
        drawn.suptitle(FIGURES[name], fontsize=11)
    return drawn


def _functionals(axes: Any, runs: Sequence[Result]) -> None:
    run = runs[0]
    curve = run.methods["coke"]
    agents = np.array(curve.agents)
    axes.plot(curve.k, agents, color=HUES["coke"], linewidth=0.8, alpha=0.6)
    axes.plot([], [], color=HUES["coke"], label=f"the {agents.shape[1]} agents (seed 0)")
    axes.axhline(run.optimal_prediction, color="black", ls="--", label="centralised optimum")
    axes.set(xscale="log", xlabel="round", ylabel="prediction for one row (target in [0, 1])")
    axes.legend()


def _against_rounds(axes: Any, runs: Sequence[Result]) -> None:
    for name in METHODS:
        _band(axes, runs, name, runs[0].methods[name].k)
    _finish(axes, runs, "round")


def _against_sent(axes: Any, runs: Sequence[Result]) -> None:
    for name in ("dkla", "coke"):
        for run in runs:
            curve = run.methods[name]
            first = run is runs[0]
            label = f"{LABELS[name]} ({_counted(len(runs), 'seed')})" if first else None
            at = np.array(curve.sent) > 0
            sent, train = np.array(curve.sent)[at], np.array(curve.train)[at]
            axes.plot(sent, train, color=HUES[name], linewidth=0.9, label=label)
    _finish(axes, runs, "transmissions")


def _band(axes: Any, runs: Sequence[Result], name: str, at: Sequence[int]) -> None:
    train = np.array([run.methods[name].train for run in runs])
    axes.plot(at, train.mean(axis=0), color=HUES[name], label=LABELS[name])
    axes.fill_between(at, train.min(axis=0), train.max(axis=0), color=HUES[name], alpha=0.2, lw=0)


def _finish(axes: Any, runs: Sequence[Result], x: str) -> None:
    best = float(np.mean([run.optimum["train"] for run in runs]))
    axes.axhline(best, color="black", linewidth=1, ls="--", label="centralised optimum")
    axes.set(xscale="log", yscale="log", xlabel=x, ylabel="training MSE")
    axes.legend()
