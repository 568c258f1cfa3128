"""Ten agents with privacy: what they say is a function of the noised statistics alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coke.agents.edge import Setup
from coke.agents.site import Site, restored
from coke.agents.store import Store
from coke.data import private
from coke.data.files import pack, write_file
from coke.field import FieldMission, read_site
from coke.maths.features import draw_features
from coke.maths.privacy import Budget
from coke.maths.quadratic import Quadratic
from field import Field, made_rows

pytest.importorskip("zenoh", reason="agents need the extra coke[agent]")

RANGES = {f"x{j}": [-4.0, 4.0] for j in range(4)} | {"y": [-6.0, 6.0]}
SETTINGS: dict[str, Any] = {
    "privacy": "dp", "epsilon": 3.0, "whitening": "range",
    "data": {"test": 0.2, "scale": "public", "ranges": RANGES},
    "features": {"n_features": 8, "sigma": 1.0},
}  # fmt: skip


def release(field: Field, name: str) -> Path:
    return field.folder / "sites" / name / "state" / f"private-{name}.coke"


def handed_over(source: Field, target: Field, name: str) -> None:
    """The other site's release, as if it had been drawn from this site's rows."""
    mission = FieldMission(read_site(target.folder / "sites" / name / "site.toml"))
    units, how = mission.choices.public, mission.choices
    assert units is not None
    X, y = units.inputs(mission.rows.X[0]), units.targets(mission.rows.y[0])
    terms = private.Terms(draw_features(how.features, X.shape[1]), 1.0, Budget(3.0, 1e-5))
    found, meta = private.load_release(release(source, name))
    digest = private._digest(meta.salt, terms, X, y)
    meta = private.Meta(found.T, found.s, list(found.spent), meta.salt, digest)
    release(target, name).parent.mkdir(parents=True, exist_ok=True)
    write_file(
        release(target, name),
        pack(private.KIND, meta, {"A": found.found.A, "b": found.found.b}),
    )


def left(field: Field, name: str) -> Site:
    """What a site left on its disk; its edges' tags are digests of every word said on them."""
    zero = Quadratic(np.eye(16)[None], np.zeros((1, 16)), np.zeros(1), np.ones(1), 1.0)
    algorithm = FieldMission(read_site(field.folder / "sites" / name / "site.toml"))
    how = algorithm.config.algorithms()["coke"]
    assert how is None
    from coke.maths.automatic import automatic

    setup = Setup(name, zero, automatic("mse", field.graph, 0.5), 3, None)
    store = Store(field.folder / "sites" / name / "state")
    found = store.image(lambda data: restored(data, setup))
    assert found is not None
    return found


def test_other_rows_with_the_same_release_say_the_same_bytes(tmp_path: Path) -> None:
    one = Field(tmp_path / "one", made_rows(700), 10, 20, **SETTINGS)
    two = Field(tmp_path / "two", made_rows(700, seed=1), 10, 20, **SETTINGS)
    try:
        one.start()
        assert one.wait(120) == [0] * 10
        for name in one.names:
            handed_over(one, two, name)
        kept = {name: release(one, name).read_bytes() for name in one.names}
        two.start()
        assert two.wait(120) == [0] * 10
        for name in one.names:
            a, b = left(one, name), left(two, name)
            assert a.k == b.k
            assert_array_equal(a.theta, b.theta)
            for n, end in a.ends.items():  # the last step of an edge may or may not be completed
                if end.s == b.ends[n].s:
                    assert end.tag == b.ends[n].tag
            first, second = one.result(name), two.result(name)
            assert (first["epsilon"], first["bytes"]) == (3.0, second["bytes"])
            assert first["alone_test_mse"] != second["alone_test_mse"]  # their own models differ
        # A later start reads the release and spends nothing.
        again = one.names[0]
        one.processes.clear()
        one.start(again)
        assert one.wait(60) == [0]
        assert release(one, again).read_bytes() == kept[again]
        assert one.result(again)["epsilon"] == 3.0
    finally:
        one.end()
        two.end()
