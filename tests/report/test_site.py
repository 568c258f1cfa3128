"""The page that an agent leaves: drawn without a library, whatever its rounds were."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from coke.report.chart import LARGEST
from coke.report.site import MOST, _picture, site_report

NUMBERS = st.none() | st.floats(allow_nan=True, allow_infinity=True)
ROUNDS = st.lists(st.tuples(NUMBERS, NUMBERS, st.booleans()), min_size=1, max_size=30)


def _rounds(told: list[tuple[float | None, float | None, bool]]) -> list[dict[str, object]]:
    return [
        {"round": k, "loss": loss, "away": away, "spoke": spoke}
        for k, (loss, away, spoke) in enumerate(told, start=1)
    ]


@given(ROUNDS)
def test_every_point_of_a_picture_is_in_it(
    told: list[tuple[float | None, float | None, bool]],
) -> None:
    """A point for every finite number, none outside the picture, and XML that can be read."""
    picture = ElementTree.fromstring(_picture(_rounds(told)))
    _, _, wide, high = map(float, picture.attrib["viewBox"].split())
    lines = [line.attrib["points"].split() for line in picture.iter("polyline")]
    losses = [x for x, _, _ in told if x is not None and abs(x) < LARGEST]
    gaps = [x for _, x, _ in told if x is not None and 0 < x < LARGEST]
    assert [len(line) for line in lines] == [len(x) for x in (losses, gaps) if x]
    for x, y in (map(float, point.split(",")) for line in lines for point in line):
        assert 0 <= x <= wide
        assert 0 <= y <= high


def test_a_long_run_is_thinned() -> None:
    picture = ElementTree.fromstring(_picture(_rounds([(1.0, 2.0, True)] * (3 * MOST + 1))))
    assert all(len(line.attrib["points"].split()) <= MOST for line in picture.iter("polyline"))


def test_names_are_text() -> None:
    page = site_report({"site": "<b>", "agents": 2, "asymmetry": {"<i>": None}}, [])
    assert "<b>" not in page
    assert "<i>" not in page


def test_an_agent_loads_no_plots_and_no_tables_it_does_not_read() -> None:
    """What takes long to load and an agent does not need."""
    code = (
        "import sys, coke.cli.agent, coke.field.agent, coke.field.results, coke.report.site;"
        "import coke.studies.audit, coke.field.carriers.zenoh;"
        "print(*{'matplotlib', 'sklearn', 'pandas', 'pyarrow.compute', 'pyarrow.dataset'}"
        ".intersection(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == []
