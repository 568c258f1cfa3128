"""Tables as people have them: text, dates and gaps become inputs, the same on every face."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from numpy.testing import assert_allclose, assert_array_equal

from coke import DP, Agents, Coke, COKEClassifier, COKERegressor, Features
from coke.data.site import Kept
from coke.data.tables import read_rows
from coke.errors import DataError, FileError, InputError
from coke.learning.case import Wanted
from coke.learning.model import Model, load_model
from coke.learning.open import open_ready
from coke.learning.ready import joining, site_talk
from coke.learning.terms import Terms
from coke.settings.reading import checked_settings
from coke.talk.conversation import outcome
from kit.commands import coke
from kit.forging import forgeries
from kit.raw import raw_table

FRAME, Y = raw_table()
SITES = np.array(["a", "b", "c"])[np.arange(len(Y)) % 3]
HIGH = np.where(Y > 1, 1, 0)


def fitted(**given: Any) -> Any:
    return COKERegressor(graph="ring", **given).fit(FRAME, Y, SITES)


@pytest.fixture(scope="module")
def simulated() -> Any:
    return fitted()


def test_a_frame_as_it_is_is_learnt_from_and_predicted(simulated: Any) -> None:
    """Names and importance are of the frame's own columns; what says nothing is left out."""
    assert simulated.score(FRAME, Y) > 0.9
    assert list(simulated.feature_names_in_) == list(FRAME)
    share = dict(zip(FRAME, simulated.importance_, strict=True))
    assert share["id"] == 0.0
    assert share["wind"] > share["kind"] > 0.0
    assert_allclose(simulated.importance_.sum(), 1.0)
    assert any("id (each of its levels is rare)" in line for line in simulated.model_.coding.words)


def test_pandas_and_polars_are_alike(simulated: Any) -> None:
    frame = pl.from_pandas(FRAME)
    again = COKERegressor(graph="ring").fit(frame, Y, SITES)
    assert_array_equal(again.thetas_, simulated.thetas_)
    assert_array_equal(again.predict(frame), simulated.predict(FRAME))


@pytest.mark.parametrize("N", [3, 10])
@pytest.mark.parametrize("kind", [COKERegressor, COKEClassifier])
def test_agents_and_the_simulation_agree_bit_for_bit(kind: Any, N: int) -> None:
    """θ, and every byte that was sent."""
    y, sites = HIGH if kind is COKEClassifier else Y, [f"s{i % N}" for i in range(len(Y))]
    here = kind(graph="random").fit(FRAME, y, sites)
    there = kind(graph="random", engine=Agents(carrier="memory")).fit(FRAME, y, sites)
    assert_array_equal(there.thetas_, here.thetas_)
    assert (there.bytes_, there.wire_bytes_) == (here.bytes_, here.wire_bytes_)
    assert_array_equal(there.predict(FRAME), here.predict(FRAME))


def test_gaps_of_an_array_are_filled() -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = X[:, 0].copy()
    X[::7, 1] = np.nan
    found = COKERegressor(n_agents=3).fit(X, y)
    assert found.score(X, y) > 0.95
    assert found.model_.made == ("x0", "x1", "x1 missing")


@pytest.mark.parametrize("where", [0, 1, 2])
def test_a_gap_at_one_site_only_makes_a_coding_for_all(where: int) -> None:
    """Wherever in the tree: the others tell their numbers in vain, and all bytes are alike."""
    X = np.random.default_rng(0).normal(size=(300, 2))
    y, sites = X[:, 1].copy(), np.repeat(["a", "b", "c"], 100)
    X[100 * where : 100 * where + 5, 0] = np.nan
    one, other = (
        COKERegressor(graph="ring", model="plain", engine=engine).fit(X, y, sites)
        for engine in ("simulation", Agents(carrier="memory"))
    )
    assert one.model_.coding == other.model_.coding
    assert one.model_.coding is not None
    assert one.model_.coding.codes[0].fill == pytest.approx(np.nanmedian(X[:, 0]), abs=0.05)
    assert_array_equal(one.thetas_, other.thetas_)
    assert one.bytes_ == other.bytes_


@pytest.mark.parametrize("held", ["dealt", "sorted"])
@pytest.mark.parametrize("name", ["skewed", "far", "days"])
def test_a_gap_is_about_the_median_of_all_sites_rows(name: str, held: str) -> None:
    """Between the 45th and the 55th of a hundred, whoever holds which rows and however far out."""
    rng = np.random.default_rng(3)
    x = np.exp(rng.normal(size=4000))
    x[:80] = 1e6 if name == "far" else x[:80]
    x = np.sort(x) if held == "sorted" else x
    sites = np.repeat(np.arange(8), 500)
    frame = pd.DataFrame({"x": x, "z": rng.normal(size=4000)})
    if name == "days":
        frame["x"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(x, "D")
    gone = rng.random(4000) < 0.2
    frame.loc[gone, "x"] = None
    model: Any = COKERegressor(model="plain").fit(frame, frame["z"], sites).model_
    fill = model.coding.codes[0].fill
    fill -= 18262 if name == "days" else 0  # days from 1970 to 2020
    assert 0.45 < np.mean(x[~gone] < fill) < 0.55


def test_a_median_costs_few_bytes() -> None:
    """Of each column with gaps and each site, on its way up; and nothing of others."""
    X = np.random.default_rng(0).normal(size=(900, 6))
    y, sites = X[:, 0].copy(), np.repeat(list("abcdefghi"), 100)
    costs = []
    for columns in (1, 5):
        X[::7, 1 : 1 + columns] = np.nan
        costs.append(COKERegressor(graph="ring", model="plain").fit(X, y, sites).agreement_bytes_)
    indicator = 4 * (2 * 8) * (2 * 8)  # a mean and a spread, up and down, of each of four more
    assert costs[1] - costs[0] <= indicator + 4 * 8 * 160


def test_numbers_without_gaps_cost_no_message_more() -> None:
    """And a gap costs three more sums: what the columns are, medians, and moments once more."""
    X = np.random.default_rng(0).normal(size=(90, 2))
    sites = np.repeat(["a", "b", "c"], 30)
    plain = COKERegressor(graph="ring", model="plain").fit(X, X[:, 0], sites)
    assert plain.model_.coding is None
    X[0, 1] = np.nan
    found = COKERegressor(graph="ring", model="plain").fit(X, X[:, 0], sites)
    assert found.agreement_bytes_ > plain.agreement_bytes_


def table(folder: Path, frame: pd.DataFrame = FRAME, name: str = "rows.csv") -> Path:
    """A text file, with sites."""
    rows = pa.Table.from_pandas(frame.assign(y=Y, where=SITES), preserve_index=False)
    pa.csv.write_csv(rows, folder / name)
    return folder / name


RUN = ["run", "--data", "rows.csv", "--target", "y", "--site", "where"]


def test_a_model_file_predicts_from_the_raw_table_in_a_fresh_process(tmp_path: Path) -> None:
    """Gaps and levels that nobody saw are counted."""
    table(tmp_path)
    assert coke(*RUN, "--out", "o", cwd=tmp_path).returncode == 0
    new = FRAME.assign(wind=FRAME["wind"].replace({"W": "calm"}))
    table(tmp_path, new, "new.csv")
    done = coke("predict", "o/model.coke", "new.csv", "--out", "p.parquet", "--json", cwd=tmp_path)
    said = json.loads(done.stdout)
    assert said["other_levels"] == {"wind": int((new["wind"] == "calm").sum()), "id": len(new)}
    assert said["gaps"] == {name: int(n) for name, n in new.isna().sum().items() if n}
    found = pa.parquet.read_table(tmp_path / "p.parquet")["prediction"].to_numpy()
    here = load_model(tmp_path / "o/model.coke").predict(new)
    assert_allclose(found, here, rtol=0, atol=1e-9)


@pytest.mark.parametrize("out_of_core", [False, True])
def test_a_folder_and_a_file_are_the_same_table(tmp_path: Path, out_of_core: bool) -> None:
    """In memory, and passed over: the same coding, and the same inputs."""
    path, folder = table(tmp_path), tmp_path / "sites"
    folder.mkdir()
    for site in "abc":
        rows = pa.Table.from_pandas(FRAME.assign(y=Y)[site == SITES], preserve_index=False)
        pa.csv.write_csv(rows, folder / f"{site}.csv")
    whitening = {"whitening": "gram"} if out_of_core else {}
    one, other = (
        open_ready(checked_settings({"data": {"target": "y", **data}, "model": "plain", **more}))
        for data, more in (
            ({"file": str(path), "site": "where"}, {}),
            ({"file": str(folder), "out_of_core": out_of_core}, whitening),
        )
    )
    assert one.agreement.coding is not None
    assert other.agreement.coding is not None
    for a, b in zip(one.agreement.coding.codes, other.agreement.coding.codes, strict=True):
        assert (a.column, a.levels, a.gaps, a.periods) == (b.column, b.levels, b.gaps, b.periods)
    assert_allclose(other.problem.optimum, one.problem.optimum, rtol=0, atol=1e-4)


def test_what_is_numbers_in_one_file_and_text_in_another_is_refused(tmp_path: Path) -> None:
    for name, value in (("a", "1"), ("b", "one")):
        lines = "\n".join(f"{value},{i}.5" for i in range(9))
        (tmp_path / f"{name}.csv").write_text(f"x,y\n{lines}\n")
    with pytest.raises(DataError, match="column 'x' holds texts such as 'one' where it held num"):
        open_ready(checked_settings({"data": {"file": str(tmp_path), "target": "y"}}))


DP_GIVEN: dict[str, Any] = {
    "privacy": DP(epsilon=1.0), "scale": "public", "features": Features(sigma=1.0),
    "algorithm": Coke(whitening="range"), "ranges": dict.fromkeys((*FRAME, "y"), (0, 1)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (DP_GIVEN, "one more release"),
        ({"model": "plain", "scale": "none", "features": Features(sigma=1.0)}, "nothing is agreed"),
    ],
)
def test_where_no_coding_can_be_agreed_on_the_reason_is_given(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        fitted(**given)


def test_a_site_that_joins_makes_the_same_of_its_columns() -> None:
    """From the totals alone; with text where the others have numbers only it is refused."""
    rows = read_rows(pa.table({**FRAME, "y": Y}), "y", missing="fill")
    terms = Terms(checked_settings({"model": "plain", "loss": "quadratic"}), rows.columns)
    sites = Kept(("a",), (rows.X,), (rows.y,), (rows.X[:0],), (rows.y[:0],), kinds=rows.kinds)
    want = Wanted(basis=False, spread=False)
    first = outcome(site_talk(sites, [], terms, want))
    assert first.agreement.coding is not None
    assert joining(sites, terms, first.totals, want).agreement.coding == first.agreement.coding
    coding = first.agreement.coding
    as_numbers = terms._replace(columns=coding.names)
    numbers = outcome(site_talk(sites.coded(coding), [], as_numbers, want))
    assert numbers.agreement.coding is None
    with pytest.raises(DataError, match="the others agreed on numbers without gaps"):
        joining(sites, terms, numbers.totals, want)


RAW = fitted(model="plain").model_.to_bytes()


@settings(max_examples=200)
@given(forgeries(RAW))
def test_a_forged_coding_is_refused_or_predicts(data: bytes) -> None:
    try:
        model = Model.from_bytes(data)
    except FileError:
        return
    try:
        found = model.predict(pa.table(dict.fromkeys(model.columns, FRAME.iloc[:20, 0])))
    except DataError:
        return  # it is of text or dates
    assert len(found) == 20
