"""`coke audit`: the attacks on one's own rows, in plain mode and with privacy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from coke.cli.main import main
from coke.studies.audit_tree import audited_descent
from kit.field import made_rows
from kit.hard import hard_cases


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    made = made_rows(1200)
    columns = {f"x{j}": made.X[:, j] for j in range(4)}
    pa.parquet.write_table(pa.table({**columns, "y": made.y / 8}), tmp_path / "rows.parquet")
    return tmp_path


def audit(folder: Path, monkeypatch: Any, capsys: Any, *arguments: Any) -> dict[str, Any]:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["coke", "audit", *map(str, arguments), "--json"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    return dict(json.loads(capsys.readouterr().out))


SOURCE = ["--data", "rows.parquet", "--target", "y", "--agents", 5, "--graph", "star",
          "--model", "plain", "--features", 8, "--sigma", 2, "--scale", "none"]  # fmt: skip


def test_an_only_neighbour_of_plain_coke_learns_all(
    rows: Path, monkeypatch: Any, capsys: Any
) -> None:
    """At a leaf of a star the hub hears everything: the Gram matrix to many digits."""
    paper = ["--algorithm", "coke-paper", "--mu", 0.98]
    found = audit(rows, monkeypatch, capsys, *SOURCE, *paper, "--out", "o", "--no-probes")
    full, near = found["findings"][:2]
    assert full["value"] < 1e-6
    assert near["value"] == pytest.approx(full["value"], abs=1e-9)
    assert any("one neighbour" in line for line in found["warnings"])
    page = (rows / "o" / "audit.html").read_text()
    assert "data:image/png;base64," in page
    assert "Gram matrix is known" in page


def test_with_privacy_the_attack_finds_noise(rows: Path, monkeypatch: Any, capsys: Any) -> None:
    """What is reconstructed is the noised statistics, not the rows'."""
    lines = ['privacy = "dp"', "epsilon = 1.0", 'whitening = "range"', "[data]",
             'file = "rows.parquet"', 'target = "y"', 'scale = "public"', "agents = 5",
             "[data.ranges]", *(f"x{j} = [-4, 4]" for j in range(4)), "y = [-1, 1]",
             "[graph]", 'kind = "star"', "[features]", "n_features = 8", "sigma = 1.0"]  # fmt: skip
    (rows / "c.toml").write_text("\n".join(lines))
    found = audit(rows, monkeypatch, capsys, "c.toml", "--no-probes")
    assert found["privacy"] == "dp"
    assert len(found["findings"]) == 2  # no raw row is in reach to compare with
    assert found["warnings"] == []
    assert all(np.isfinite(one["value"]) for one in found["findings"])


def test_a_parent_on_the_tree_hears_too_few_gradients_but_may_ask_for_all(
    rows: Path, monkeypatch: Any, capsys: Any
) -> None:
    """The default: coarse gradients tell next to nothing, an order that is made up everything."""
    found = audit(rows, monkeypatch, capsys, *SOURCE, "--out", "o")
    assert found["algorithm"] == "tree-newton"
    assert found["neighbour"] == "0"  # the hub
    heard, lied, *_ = found["findings"]
    assert "17 tell all" in heard["meaning"]
    assert heard["value"] > 0.5 * heard["guessing"]
    assert (heard["learns"], lied["learns"]) == (False, True)
    assert lied["value"] == 0.0
    assert "orders of the root" in (rows / "o" / "audit.html").read_text()


def test_once_gram_matrices_are_asked_for_a_parent_has_its_leafs() -> None:
    """Where nothing else helps the root asks for them; the rows of a small leaf follow."""
    case = next(hard_cases(1, seed=7))
    ready = case.ready()
    found = audited_descent(ready, ready.case("tree-newton"), probes=False)
    heard, told, rows = found.findings
    assert "asked for" in told.attack
    assert told.value == 0.0
    assert heard.value > told.value
    assert rows.value == 1.0
    alone = case.ready(sums=False)
    assert not alone.case("auto").descends


def test_without_sums_rounds_are_attacked(rows: Path, monkeypatch: Any, capsys: Any) -> None:
    found = audit(rows, monkeypatch, capsys, *SOURCE, "--no-sums", "--no-probes", "--rounds", 30)
    assert (found["algorithm"], found["overheard"]) == ("coke", "30 rounds")
    assert "neighbour" in found["findings"][1]["attack"]
