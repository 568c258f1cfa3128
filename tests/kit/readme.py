"""The README's first example; as a program, it prints it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def example() -> str:
    """The first block of Python in README.md."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


if __name__ == "__main__":
    sys.stdout.write(example())
