"""Sites of any name on agents: files, certificates and the wire have ids, people read names."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke import Agents, COKERegressor, Features, Until
from coke.errors import InputError
from coke.field.local import toml
from coke.settings.sites import checked_site
from coke.talk.names import site_id
from kit.commands import coke

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

NAMES = ["Köln", "Bonn/Ost", "../[red]", 'KÖLN "Süd"']


def rows(T: int = 160) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(T, 3))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=T), np.resize(NAMES, T)


def test_agents_of_such_names_learn_what_the_simulation_does() -> None:
    """To the last bit and byte: the names are the same, and so is the order of sums."""
    X, y, sites = rows()
    how: dict[str, Any] = {
        "model": "plain",
        "features": Features(n_features=10),
        "limits": Until(rounds=60),
    }
    here = COKERegressor(**how).fit(X, y, sites=sites)
    there = COKERegressor(**how, engine=Agents(carrier="memory")).fit(X, y, sites=sites)
    assert_array_equal(there.thetas_, here.thetas_)
    assert (there.bytes_, there.n_iter_) == (here.bytes_, here.n_iter_)
    assert_array_equal(there.sites_, sorted(NAMES))


def test_a_network_of_such_names_over_tls(tmp_path: Path) -> None:
    """Folders and certificates by id; every site's result, events and page by name."""
    pytest.importorskip("zenoh", reason="agents need the extra coke-learn[agent]")
    X, y, sites = rows()
    with (tmp_path / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["a", "b", "c", "y", "site"], *(
            [*x, t, s] for x, t, s in zip(X.tolist(), y.tolist(), sites, strict=True)
        )])  # fmt: skip
    given = ["--data", "rows.csv", "--target", "y", "--site", "site", "--model", "plain"]
    coke("network", "init", "net", *given, "--features", 10, "--rounds", 60, cwd=tmp_path)
    folders = {path.name: path for path in (tmp_path / "net/sites").iterdir()}
    assert set(folders) == {site_id(name) for name in NAMES}
    for own, path in folders.items():
        names = {file.name for file in (path / "identity").iterdir()}
        assert names == {"ca.crt", f"{own}.crt", f"{own}.key"}
    ran = coke("network", "run", "net", "--json", cwd=tmp_path)
    results = json.loads(ran.stdout)["sites"]
    assert {result["site"] for result in results} == set(NAMES)
    log = (folders[site_id("Köln")] / "log.jsonl").read_text("utf-8")
    logs = [json.loads(line) for line in log.splitlines()]
    events = [event for line in logs for event in line.get("events", [])]
    assert {event["who"] for event in events if event["kind"] == "up"} <= set(NAMES) - {"Köln"}
    assert any(event["kind"] == "up" for event in events)
    page = (folders[site_id("../[red]")] / "state/report.html").read_text("utf-8")
    assert "../[red] among 4 sites" in page


@pytest.mark.parametrize("name", ["", "a\x1b[2J", "x" * 10_000])
def test_names_nobody_can_read_are_refused_before_any_file(name: str, tmp_path: Path) -> None:
    X, y, sites = rows(40)
    labels = np.where(sites == "Köln", name, sites)
    with pytest.raises(InputError, match="rename it"):
        COKERegressor(model="plain", engine="agents").fit(X, y, sites=labels)


@pytest.mark.parametrize("name", [*NAMES, "größe", 'a"b', "a.b", "", "\\", "\x7f", "[site]"])
def test_any_name_is_a_key_and_a_value_of_a_sites_file(name: str) -> None:
    table = {"site": {"name": name, "neighbours": {name: "", "b": name}}, "plain": [name]}
    assert tomllib.loads(toml(table).decode()) == table


def test_a_sites_file_may_hold_such_names() -> None:
    site = {"name": "Köln", "network": "Rhein/Ruhr", "neighbours": dict.fromkeys(NAMES[1:], "")}
    settings = checked_site({"data": {"file": "rows.csv", "target": "y"}, "site": site})
    assert settings.site.neighbours == site["neighbours"]
