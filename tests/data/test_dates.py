"""Text that is dates, whatever Arrow calls text."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest

from coke.data.dates import moments


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("text", ["2024-01-02 9:30", "2.1.2024 09:30", "2024/1/2 09:30:00"])
def test_every_type_of_text_holds_dates(kind: pa.DataType, text: str) -> None:
    """Files that data frames wrote have long text."""
    found = moments("day", pa.chunked_array([pa.array([text, None], kind)]))
    assert found.to_pylist() == [datetime(2024, 1, 2, 9, 30), None]
