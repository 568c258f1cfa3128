"""The example of an own algorithm, for the tests: its message is twice as wide as θ."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from gradient_tracking import GradientTracking

__all__ = ["GradientTracking"]
