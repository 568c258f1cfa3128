"""Names that are taken out of a site's file while its agent runs."""

from __future__ import annotations

from pathlib import Path

from coke.field.carriers.memory import Memory
from coke.field.named import StillNamed
from kit.agents import GOAL, A, B, Nets

FILE = """
[data]
file = "rows.csv"
target = "y"
[site]
name = "a"
network = "net"
carrier = "memory"
[site.neighbours]
"""


def test_only_a_whole_file_without_the_name_forgets(tmp_path: Path) -> None:
    carrier, path = Memory().join("a", ["b", "c"]), tmp_path / "site.toml"
    path.write_text(f'{FILE}b = ""\nc = ""\n')
    named = StillNamed(path, carrier)
    assert named() == []
    path.write_text("[site")  # half of it is written
    assert [event.kind for event in named()] == ["spoilt"]
    assert named() == []  # told once
    path.unlink()
    assert [event.kind for event in named()] == ["spoilt"]
    assert carrier.neighbours == {"b", "c"}
    path.write_text(f'{FILE}b = ""\nd = ""\n')
    assert [(event.kind, event.who) for event in named()] == [("forgotten", "c")]
    assert carrier.neighbours == {"b"}  # d counts from the next start


def test_an_edge_that_both_ends_forget_is_closed_and_the_rest_goes_on(nets: Nets) -> None:
    """The graph stays connected, so the model is that of all sites."""
    net = nets()
    assert B in net.friends[A]
    net.start()
    net.until(lambda: net.rounds() >= 5)
    for one, other in ((A, B), (B, A)):
        net.agents[one].carrier.forget(other)
    net.until(lambda: net.end(A, B).closed and net.end(B, A).closed)
    net.wait()
    assert net.distance() <= GOAL
    assert B in net.agents[A].outcome().lost
