"""A method that diverges or fails is a row that says so; no other row is lost with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.data.site import Kept
from coke.errors import ConvergenceError
from coke.maths.ledger import Ledger
from coke.report.cost_plot import cost_plot
from coke.report.plots import png
from coke.studies.compare.compare import METHODS, Comparison
from coke.studies.compare.goal import Trace, advice
from kit.commands import coke
from kit.problems import GRAPHS, case
from kit.ready import ready


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    c = case(L=20, lam=0.01)
    empty = tuple(np.empty((0, X.shape[1])) for X in c.X)
    sites = Kept(tuple("abcdef"), tuple(c.X), tuple(c.y), empty, tuple(yi[:0] for yi in c.y))
    how: Any = {"features": {"n_features": 20, "sigma": 2.0}, "data": {"scale": "none"}}
    return Comparison(ready(sites, GRAPHS["random"], lam=0.01, eta=80.0, **how), 1.01, 60)


def test_a_method_that_diverges_has_a_row_with_what_it_spent(comparison: Comparison) -> None:
    row = comparison.row("cta")
    assert not row.reached
    assert "diverges" in str(row.failed)
    assert row.bytes > 0
    assert row.rounds == len(row.curve)


@pytest.mark.parametrize(
    "error", [np.linalg.LinAlgError("singular"), MemoryError("8 TB"), KeyError("a")]
)
def test_whatever_a_method_raises_is_the_reason_in_its_row(
    comparison: Comparison, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> Any:
        raise error

    monkeypatch.setitem(comparison._calls, "tree-cg", fails)
    row = comparison.row("tree-cg")
    assert type(error).__name__ in str(row.failed)
    assert (row.reached, row.rounds, row.bytes, row.curve) == (False, 0, 0, ())


def test_numbers_that_are_no_longer_finite_are_a_failure(comparison: Comparison) -> None:
    """Also where the method itself does not notice, and in the first round."""
    theta = comparison.ready.problem.everywhere(comparison.ready.problem.optimum)

    def traces(*values: float) -> Iterator[Trace]:
        for k, value in enumerate(values, start=1):
            yield Trace(k, value, Ledger(k, k, k), lambda: theta)

    def ends() -> Iterator[Trace]:
        yield from ()
        raise ConvergenceError("round 1: too large")

    settle = comparison.goal.settle
    assert "round 2" in str(settle("x", traces(1e6, nan)).failed)
    assert "round 1" in str(settle("x", traces(inf)).failed)
    assert settle("x", ends()).failed == "round 1: too large"
    assert settle("x", traces(1e6)).failed is None


def test_advice_is_by_the_account_of_the_links(comparison: Comparison) -> None:
    """A copy for each neighbour, or one message for all."""
    ours = comparison.row("coke")._replace(reached=True, bytes=10_000, wire_bytes=90_000)
    tree = ours._replace(method="tree-newton", bytes=20_000, wire_bytes=30_000)
    assert advice([ours, tree], "r2").startswith("Take tree-newton: 30 kB on the wire")
    assert advice([ours, tree], "r2", broadcast=True).startswith("Take coke: 10 kB by broadcasts")


def test_the_picture_and_the_advice_bear_failures(comparison: Comparison) -> None:
    """The same picture as without the rows that have nothing to show; no warning of overflow."""
    ours, bad = comparison.row("coke"), comparison.row("cta")
    none = ours.of_failure("tree-cg", "no memory")
    assert advice([ours, bad, none], "r2") == advice([ours], "r2")
    assert advice([none], "r2").startswith("No method")
    for rows in ([ours, bad, none], [bad], [none], [bad._replace(value=nan)]):
        figure = cost_plot(rows, comparison.goal)
        assert png(figure).startswith(b"\x89PNG")
        (axes,) = figure.axes
        assert all(isfinite(y) and y > 0 for y in axes.get_ylim())
        assert axes.get_ylim()[1] < 1e6
    with_none, without = (cost_plot(rows, comparison.goal) for rows in ([ours, none], [ours]))
    assert_array_equal(with_none.axes[0].lines[0].get_ydata(), without.axes[0].lines[0].get_ydata())


SMALL = """
model = "plain"
lambda = 0.01
eta = 50.0
[data]
agents = 5
size_range = [60, 90]
[features]
n_features = 10
"""


def test_the_command_shows_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.toml").write_text(SMALL)

    def fails(self: Comparison) -> Any:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(Comparison, "tree_pcg", fails)
    said = coke("compare", "c.toml", "--out", "out", "--json", cwd=tmp_path)
    document = json.loads(said.stdout)
    rows = {row["method"]: row for row in document["rows"]}
    assert list(rows) == list(METHODS)
    failed = {name: row["failed"] for name, row in rows.items() if row["failed"]}
    assert set(failed) == {"cta", "tree-pcg"}
    assert failed["tree-pcg"] == "RuntimeError: out of luck"
    assert rows["tree-pcg"]["global_train_mse"] is None
    assert document["advice"].startswith("Take ")
    assert (tmp_path / "out/compare.png").exists()
    text = coke("compare", "c.toml", "--method", "coke", "--method", "tree-pcg", cwd=tmp_path)
    assert "tree-pcg failed: RuntimeError: out of luck" in text.stdout
    assert "Take coke" in text.stdout


def test_a_misspelt_method_is_refused_before_any_row_is_read(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('[data]\nfile = "nowhere.csv"\ntarget = "y"\n')
    run = coke("compare", "c.toml", "--method", "cok", cwd=tmp_path, code=2)
    assert "Did you mean 'coke'" in run.stderr
