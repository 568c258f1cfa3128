"""Means and spreads over seeds, beside the paper's numbers: plain dictionaries for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coke.studies.reproduce.experiments import Curve, Result
from coke.studies.reproduce.published import (
    FIGURE_SETTINGS,
    LEVELS,
    MARKS,
    METHODS,
    SETTINGS,
    Levels,
    Marks,
)


def _statistics(values: Sequence[float], paper: float | None = None) -> dict[str, Any]:
    """Mean and standard deviation over seeds; and how far the mean is from the paper's number."""
    mean, spread = float(np.mean(values)), float(np.std(values))
    found: dict[str, Any] = {"mean": mean, "spread": spread}
    if paper is not None:
        found |= {"paper": paper, "relative": mean / paper - 1.0 if paper else None}
    return found


def of(results: Sequence[Result], setting: str, split: str = "iid") -> list[Result]:
    """The results of one setting and split, one per seed."""
    return [r for r in results if r.job.setting == setting and r.job.split == split]


def _marks_table(table: Marks, results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row per iteration mark."""
    rows = []
    for j, k in enumerate(table.k):
        row: dict[str, Any] = {"k": k}
        everybody = float(k * SETTINGS[table.setting].agents)
        for name in METHODS:
            curves = [r.methods[name] for r in of(results, table.setting)]
            sent = float(table.sent[j]) if name == "coke" else everybody
            row[name] = {
                "train": _statistics(_at(curves, "train", k), table.train[name][j] * table.unit),
                "test": _statistics(_at(curves, "test", k), table.test[name][j] * table.unit),
                "transmissions": _statistics(_at(curves, "sent", k), sent),
            }
        rows.append(row)
    return rows


def _at(curves: Sequence[Curve], column: str, k: int) -> list[float]:
    return [float(getattr(curve, column)[curve.k.index(k)]) for curve in curves]


def _levels_table(table: Levels, results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row per MSE level: transmissions to reach it, and what COKE saves of DKLA's."""
    rows, runs = [], of(results, table.setting)
    for j, level in enumerate(table.level):
        row: dict[str, Any] = {"level": level * table.unit}
        key = str(level * table.unit)
        for name in METHODS:
            sent = [r.methods[name].levels[key] for r in runs]
            reached = [float(n) for n in sent if n is not None]
            paper = table.sent[name][j]
            row[name] = {"paper": paper, "reached": len(reached), "seeds": len(sent)}
            row[name] |= _statistics(reached) if reached else {"mean": None, "spread": None}
        row["saving"] = _mean_saving(runs, key)
        row["saving_paper"] = _saving(row["dkla"]["paper"], row["coke"]["paper"])
        rows.append(row)
    return rows


def _mean_saving(runs: Sequence[Result], key: str) -> float | None:
    """COKE's saving in the mean over the seeds where both methods reach the level."""
    pairs = [(r.methods["dkla"].levels[key], r.methods["coke"].levels[key]) for r in runs]
    both = [(dkla, coke) for dkla, coke in pairs if dkla is not None and coke is not None]
    return _saving(sum(dkla for dkla, _ in both), sum(coke for _, coke in both))


def _saving(dkla: float | None, coke: float | None) -> float | None:
    return None if not dkla or coke is None else 1.0 - coke / dkla


def behind_the_metric(setting: str, results: Sequence[Result]) -> list[dict[str, Any]]:
    """The end of the run on the paper's metric and on everybody's rows, i.i.d. and sorted."""
    rows = []
    for split in ("iid", "sorted"):
        runs = of(results, setting, split)
        scores: dict[str, list[dict[str, float]]] = {"local-only": [r.local_only for r in runs]}
        for name in METHODS:
            scores[name] = [_last(r.methods[name]) for r in runs]
        scores["optimum"] = [r.optimum for r in runs]
        for name, values in scores.items():
            row: dict[str, Any] = {"split": split, "method": name}
            for key in ("train", "test", "global_train", "global_test"):
                row[key] = _statistics([value[key] for value in values])
            rows.append(row)
    return rows


def _last(curve: Curve) -> dict[str, float]:
    return {
        "train": curve.train[-1],
        "test": curve.test[-1],
        "global_train": curve.global_train[-1],
        "global_test": curve.global_test[-1],
    }


def document(names: Sequence[str], results: Sequence[Result]) -> dict[str, Any]:
    """Everything asked for, by name."""
    found: dict[str, Any] = {}
    for name in names:
        if name in MARKS:
            table = MARKS[name]
            found[name] = {
                "data": SETTINGS[table.setting].title,
                "setting": SETTINGS[table.setting]._asdict(),
                "rows": _marks_table(table, results),
                "behind_the_metric": behind_the_metric(table.setting, results),
            }
        elif name in LEVELS:
            found[name] = {
                "parts": [
                    {"data": SETTINGS[part.setting].title, "rows": _levels_table(part, results)}
                    for part in LEVELS[name]
                ]
            }
        else:
            found[name] = {"rows": [row for s in FIGURE_SETTINGS for row in _ends(s, results)]}
    return found


def _ends(setting: str, results: Sequence[Result]) -> list[dict[str, Any]]:
    """Where the curves of a figure end."""
    rows = []
    for name in METHODS:
        curves = [r.methods[name] for r in of(results, setting)]
        rows.append(
            {
                "data": SETTINGS[setting].title,
                "method": name,
                "k": curves[0].k[-1],
                "train": _statistics([curve.train[-1] for curve in curves]),
                "transmissions": _statistics([float(curve.sent[-1]) for curve in curves]),
            }
        )
    return rows
