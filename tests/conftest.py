"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

# The same examples every time: a failure in CI is a failure here.
hypothesis.settings.register_profile("coke", derandomize=True, deadline=None, max_examples=40)
hypothesis.settings.load_profile("coke")


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
