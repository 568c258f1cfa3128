"""The same choice in one process, on ranks, in memory and out of core."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coke.learning.choice import Choice
from coke.learning.model import load_model
from coke.learning.open import open_ready
from coke.settings.declaration import Settings
from coke.settings.reading import checked_settings
from kit.commands import coke
from kit.jobs import commands_on_ranks

SITES = 4


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Dealt rows, not as many to each, and rows whose sites have a range of targets each.

    Their order is mixed. Three of five columns say nothing, so that of dealt rows no judge is
    needed.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5))
    y = np.sin(2 * X[:, 0]) + np.exp(X[:, 1]) + 0.1 * rng.normal(size=600)
    for name, where in {
        "dealt": np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 3])[np.arange(600) % 10],
        "sorted": np.argsort(np.argsort(y)) * SITES // 600,
    }.items():
        table = pa.table({**{f"x{j}": X[:, j] for j in range(5)}, "y": y, "where": where})
        pa.parquet.write_table(table, tmp_path / f"{name}.parquet", row_group_size=50)
    return tmp_path


@pytest.mark.processes
def test_ranks_choose_as_one_process(files: Path) -> None:
    """Model, θ and bytes, those of the intervals included: bit for bit."""
    (files / "few.toml").write_text("rounds = 5\n[features]\nn_features = 8\n")
    how = ["run", "few.toml", "--target", "y", "--site", "where", "--json", "--data"]
    runs = {name: [*how, f"{name}.parquet", "--out"] for name in ("dealt", "sorted")}
    ranks = [(files, [*run, f"ranks {name}", "--engine", "mpi"]) for name, run in runs.items()]
    for (name, run), text in zip(runs.items(), commands_on_ranks(2, *ranks), strict=True):
        alone, found = json.loads(coke(*run, name, cwd=files).stdout), json.loads(text)
        for key in ("bytes", "wire_bytes", "transmissions", "rounds"):
            assert found[key] == alone[key]
        one, two = ((files / out / "model.coke").read_bytes() for out in (name, f"ranks {name}"))
        assert one == two
        misses = load_model(files / f"ranks {name}/model.coke").closed.misses
        assert misses is not None
        assert misses.counts.sum() > 200


def config(files: Path, name: str, **data: Any) -> Settings:
    where = {"file": str(files / f"{name}.parquet"), "target": "y", "site": "where", **data}
    return checked_settings({"data": where, "features": {"n_features": 8}, "whitening": "gram"})


@pytest.mark.parametrize("name", ["dealt", "sorted"])
def test_out_of_core_the_same_is_chosen(files: Path, name: str) -> None:
    """Of sites no larger than a sample: from the same rows, whatever chunks they come in."""
    ready = [open_ready(config(files, name, out_of_core=out)) for out in (False, True)]
    one, two = (one.agreement.choice for one in ready)
    assert isinstance(one, Choice)
    assert isinstance(two, Choice)
    assert bool(one.judged) == (name == "sorted")
    assert (one.best.name, one.best.ridge, one.apart) == (two.best.name, two.best.ridge, two.apart)
    assert_array_equal(one.bandwidths, two.bandwidths)
    assert_array_equal(one.best.features.omega, two.best.features.omega)
    assert_array_equal(one.best.knots, two.best.knots)
    assert_allclose([*one.judged.values()], [*two.judged.values()], rtol=0.1)
    assert_array_equal(ready[0].spent[:, 0], ready[1].spent[:, 0])
    assert_allclose(ready[0].spent[:, 1], ready[1].spent[:, 1], rtol=0.01)
