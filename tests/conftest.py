"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:  # a test that needs none of these loads none of them
    from kit.agents import Nets
    from kit.certificates import Authority

# Before NumPy loads, as `make test` does: the last bits of a product depend on the threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

pytest.register_assert_rewrite(
    "kit.coding", "kit.commands", "kit.pair"
)  # their failures show values, too

# The same examples every time: a failure in CI is a failure here.
hypothesis.settings.register_profile("coke", derandomize=True, deadline=None, max_examples=40)
hypothesis.settings.load_profile("coke")

SMALL = """
model = "plain"
rounds = 60
tol = 0
lambda = 1e-3
rho = 0.05
[data]
agents = 5
size_range = [60, 90]
scale = "minmax"
[features]
n_features = 10
"""


@pytest.fixture
def data_file() -> Callable[[str], Path]:
    """A real data set by name, from the folder COKE_DATA; skips where it is absent."""

    def find(name: str) -> Path:
        folder = os.environ.get("COKE_DATA")
        if not folder:
            pytest.skip("COKE_DATA is not set: it names the folder with the real data sets")
        path = Path(folder) / name
        if not path.exists():
            pytest.skip(f"{name} is not in the folder COKE_DATA names")
        return path

    return find


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a small configuration, small.toml."""
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nets]:
    """Makes networks of agents in threads, which end with the test."""
    from kit.agents import made_nets

    yield from made_nets(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom our sites trust."""
    from kit.certificates import Authority

    return Authority(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def foreign_ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom they do not."""
    from kit.certificates import Authority

    return Authority(tmp_path_factory.mktemp("theirs"))


@pytest.fixture
def clinics(tmp_path: Path) -> Path:
    """A network of two sites, and its authority."""
    from kit.clinics import network

    return network(tmp_path / "own", "a", "b")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Another network of the same name, with sites of the same names."""
    from kit.clinics import network

    return network(tmp_path / "foreign", "a", "b")
