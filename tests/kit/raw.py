"""A table of everything that a raw file has: text, a category, truth, dates, gaps and an id."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


def raw_table(T: int = 400, seed: int = 0) -> tuple[pd.DataFrame, Any]:
    """Rows, and numbers that follow from all columns but the id; wind blows at some hours."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=T),
            "wind": rng.choice(["NE", "S", "W"], T),
            "kind": pd.Categorical(rng.choice(["new", "old"], T)),
            "open": rng.random(T) > 0.5,
            "when": pd.date_range("2020-01-01", periods=T, freq="37h"),
            "id": [f"no. {i}" for i in range(T)],
        }
    )
    hours = np.sin(2 * np.pi * frame["when"].dt.hour / 24)
    y = frame["size"] + 2.0 * (frame["wind"] == "S") + frame["open"] + hours
    y += 0.5 * (frame["kind"] == "old")
    frame.loc[rng.random(T) < 0.1, "size"] = np.nan
    frame.loc[rng.random(T) < 0.02, "wind"] = None
    return frame, y.to_numpy()
