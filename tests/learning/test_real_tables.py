"""Raw files as people have them go through with no option but the target and the site."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from kit.commands import coke

RAW = Path(os.environ.get("COKE_DATA", "absent")) / "raw"
pytestmark = pytest.mark.skipif(not RAW.is_dir(), reason="COKE_DATA names no folder with raw files")


@pytest.mark.parametrize(
    ("options", "least"),
    [
        (["penguins.csv", "--target", "species", "--site", "island"], 0.95),
        (["bank-full.csv.gz", "--target", "y"], 0.9),
        (["heart_disease", "--target", "last", "--loss", "classes"], 0.5),
        (["heart_disease", "--target", "last"], None),
    ],
)
def test_raw_files_go_through(options: list[str], least: float | None, tmp_path: Path) -> None:
    file, *rest = options
    found = json.loads(coke("run", "--data", RAW / file, *rest, "--json", cwd=tmp_path).stdout)
    if least is None:
        assert found["global_test_mse"] < 0.7  # of the target's variance
    else:
        assert found["test_accuracy"] >= least


def test_adults_test_rows_score_the_model_of_its_training_rows(tmp_path: Path) -> None:
    """With gaps, levels that are rare, and labels that end with a dot."""
    train, test = RAW / "adult.data.gz", RAW / "adult.test.gz"
    coke("run", "--data", train, "--target", "last", "--out", "o", cwd=tmp_path)
    done = coke("predict", "o/model.coke", test, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["gaps"] == {"c2": 963, "c7": 966, "c14": 274}
    found = pa.csv.read_csv(tmp_path / "predictions.csv")["prediction"].to_numpy()
    lines = gzip.decompress(test.read_bytes()).decode().splitlines()
    labels = [line.rstrip(".").rsplit(", ", 1)[1] for line in lines if line.count(",") == 14]
    assert np.mean(found == np.array(labels)) > 0.85
