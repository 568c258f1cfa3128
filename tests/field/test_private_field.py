"""Agents with privacy: what they say is a function of the noised statistics, or sums, alone."""

from __future__ import annotations

import signal
from pathlib import Path
from shutil import copy
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.data.files import pack, write_file
from coke.data.site import Kept
from coke.errors import CokeError
from coke.field.mission import Mission
from coke.field.moves import Setup
from coke.field.node import Node
from coke.field.state import restored
from coke.field.store import Store
from coke.learning.kernels import feature_settings
from coke.learning.ready import agree, joining
from coke.maths.algorithms.coke import automatic
from coke.maths.algorithms.stopping import Limits
from coke.maths.features.features import draw_features
from coke.maths.losses.problem import Quadratic
from coke.privacy import release as private
from coke.privacy.noise import Budget
from coke.privacy.share import _load_share
from coke.settings.sites import read_site
from coke.studies.audit import site_warnings
from kit.agents import A, made_nets
from kit.field import Field, made_rows
from kit.problems import shape_of
from kit.ready import rows_of

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

pytest.importorskip("zenoh", reason="agents need the extra coke-learn[agent]")

RANGES = {f"x{j}": [-4.0, 4.0] for j in range(4)} | {"y": [-6.0, 6.0]}
SETTINGS: dict[str, Any] = {
    "privacy": "dp", "epsilon": 3.0, "whitening": "range",
    "data": {"test": 0.2, "scale": "public", "ranges": RANGES},
    "features": {"n_features": 8, "sigma": 1.0},
}  # fmt: skip


def release(field: Field, name: str) -> Path:
    return field.folder / "sites" / name / "releases" / f"private-{name}.coke"


def handed_over(source: Field, target: Field, name: str) -> None:
    """The other site's release, as if it had been drawn from this site's rows."""
    mission = Mission(read_site(target.folder / "sites" / name / "site.toml"))
    units, how = mission.terms.public, feature_settings(mission.config)
    assert units is not None
    X, y = units.inputs(mission.rows.X[0]), units.targets(mission.rows.y[0])
    terms = private.Conditions(draw_features(how, X.shape[1]), 1.0, Budget(3.0, 1e-5))
    found, meta = private._load_release(release(source, name))
    meta = msgspec.structs.replace(meta, made_from=private.made_from(meta.salt, terms, (X, y)))
    release(target, name).parent.mkdir(parents=True, exist_ok=True)
    write_file(
        release(target, name),
        pack(private.KIND, meta, {"A": found.found.A, "b": found.found.b}),
    )


def left(field: Field, name: str) -> Node:
    """What a site left on its disk; its edges' tags are digests of every word said on them."""
    zero = Quadratic(np.eye(16)[None], np.zeros((1, 16)), np.zeros(1), np.ones(1), 1.0)
    setup = Setup(
        name=name, risk=zero, algorithm=automatic(2.0, shape_of(field.graph), 0.5),
        limits=Limits(1), reach=3, sites=4,
    )  # fmt: skip
    store = Store(field.folder / "sites" / name / "state")
    found = store.image(lambda data: restored(data, setup))
    assert found is not None
    return found


def test_other_rows_with_the_same_release_say_the_same_bytes(tmp_path: Path) -> None:
    one = Field(tmp_path / "one", made_rows(280), 4, 5, **SETTINGS)
    two = Field(tmp_path / "two", made_rows(280, seed=1), 4, 5, **SETTINGS)
    try:
        one.start()
        assert one.wait() == [0] * 4
        for name in one.names:
            handed_over(one, two, name)
        kept = {name: release(one, name).read_bytes() for name in one.names}
        two.start()
        assert two.wait() == [0] * 4
        for name in one.names:
            a, b = left(one, name), left(two, name)
            assert a.k == b.k
            assert_array_equal(a.theta, b.theta)
            for n, end in a.ends.items():  # the last step of an edge may or may not be completed
                if end.s == b.ends[n].s:
                    assert end.tag == b.ends[n].tag
            first, second = one.result(name), two.result(name)
            assert (first["epsilon"], first["bytes"]) == (3.0, second["bytes"])
            assert (first["epsilon_spent"], second["epsilon_spent"]) == (3.0, 3.0)
            assert first["alone_test_mse"] != second["alone_test_mse"]  # their own models differ
            assert first["warnings"] == []
        # A later start reads the release and spends nothing.
        again, told = one.names[0], len(one.log(one.names[0]))
        one.start(again)
        one.until(lambda: any(line.get("phase") == "part" for line in one.log(again)[told:]))
        one.kill(again, signal.SIGTERM)
        assert release(one, again).read_bytes() == kept[again]
    finally:
        one.end()
        two.end()


def test_agents_add_up_securely_over_bad_links_and_through_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulation with the same shares has the same sum; a restart changes no share."""
    rng = np.random.default_rng(0)

    def lossy(sender: str, receiver: str, frame: bytes) -> tuple[bytes, ...]:
        return (frame,) * int(rng.choice([0, 1, 2], p=[0.2, 0.7, 0.1]))

    ranges = {f"x{j}": [-4.0, 4.0] for j in range(3)} | {"y": [-6.0, 6.0]}
    data = {"file": "rows", "target": "y", "test": 0.2, "scale": "public", "ranges": ranges}
    features = {"n_features": 6, "sigma": 1.0}
    nets = made_nets(tmp_path, monkeypatch)
    net = next(nets)(fault=lossy, data=data, features=features, secure_sum=True, tol=1e-3,
                     privacy="dp", epsilon=3.0, whitening="range")  # fmt: skip
    for name in net.names:
        net.table[name]["releases"] = str(net.folder / name)
    shares = {name: net.folder / name / f"share-{name}.coke" for name in net.names}
    net.start()
    net.until(lambda: shares[A].exists() and _load_share(shares[A])[0].roster != "")
    net.stop(A)  # once its numbers are drawn
    before = shares[A].read_bytes()
    net.start(A)
    net.wait()
    assert shares[A].read_bytes() == before
    together = tmp_path / "together"
    together.mkdir()
    for path in shares.values():
        copy(path, together / path.name)
    rows: list[Any] = [net.mission(name).rows for name in net.names]
    terms = net.mission(A).terms._replace(releases=together)
    parts: list[Any] = [
        tuple(part[0] for part in kind) for kind in zip(*map(rows_of, rows), strict=True)
    ]
    task = agree(Kept(tuple(net.names), *parts), net.graph, terms)
    basis = task.whitened[1].whitening
    for name in net.names:
        risk, same = net.node(name).setup.risk.sums, task.problem.train.whitened(basis).sums
        assert risk is not None
        assert same is not None
        assert_array_equal(risk.A[0], same.A[0])
        assert_array_equal(risk.b[0], same.b[0])
    late = net.mission(A)
    with pytest.raises(CokeError, match="made without this site"):
        joining(late.rows, late.terms, [b"", b""], late.wanted)
    assert not list(nets)


def test_agents_with_identities_sign_their_keys_and_say_the_same_after_a_crash(
    tmp_path: Path,
) -> None:
    """Killed once its key is signed, a site goes on; another signature would contradict it."""
    field = Field(tmp_path, made_rows(150), 3, 2, **SETTINGS, secure_sum=True, rounds=20)
    shares = {n: tmp_path / "sites" / n / "releases" / f"share-{n}.coke" for n in field.names}
    middle = max(field.names, key=lambda n: len(field.graph[field.names.index(n)]))
    try:
        field.start()
        field.until(lambda: shares[middle].exists() and bool(_load_share(shares[middle])[0].signed))
        field.kill(middle)
        before = _load_share(shares[middle])[0].signed
        field.start(middle)
        assert field.wait() == [0] * 3, {n: field.log(n)[-1] for n in field.names}
    finally:
        field.end()
    assert _load_share(shares[middle])[0].signed == before
    assert all(_load_share(path)[0].signed for path in shares.values())


def test_plain_agents_warn_before_they_speak(tmp_path: Path) -> None:
    """Few rows, one neighbour, a second run: as events and in the result."""
    field = Field(tmp_path, made_rows(60), 2, 1)
    path = tmp_path / "sites" / field.names[0] / "site.toml"
    path.write_text(path.read_text().replace("[site]", "[site]\nrun = 2"))
    assert len(site_warnings(Mission(read_site(path)))) == 3
    path.write_text(path.read_text().replace("run = 2", "run = 1"))
    try:
        field.start()
        assert field.wait() == [0, 0]
    finally:
        field.end()
    for name in field.names:
        told = [line["why"] for line in field.log(name) if line.get("phase") == "warning"]
        assert told == field.result(name)["warnings"]
        assert "1 sites have at most 80 rows" in told[0]
        assert "one neighbour only" in told[1]
        assert field.log(name)[0]["phase"] == "warning"
