"""A network's agents on one machine end with whoever has started them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from coke.cli.agent import _exit
from coke.errors import ConvergenceError
from coke.field.local import _processes
from coke.interrupts import STOPPED, signals
from kit.field import Field, made_rows
from kit.processes import LONG, ctrl_c, group, hearing, wait_until

pytestmark = pytest.mark.processes  # it starts some, or opens sockets


class Sleeper(subprocess.Popen[bytes]):
    """Stands in for an agent that would not end; Ctrl-C comes as soon as it has started."""

    def __init__(self, command: list[str], **given: Any):
        super().__init__([sys.executable, "-c", "import time; time.sleep(600)"], **given)
        sleepers.append(self)
        signal.raise_signal(signal.SIGINT)


class Stubborn(Sleeper):
    """And again when it is ended."""

    def kill(self) -> None:
        signal.raise_signal(signal.SIGINT)
        super().kill()


sleepers: list[subprocess.Popen[bytes]] = []


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[list[Path]]:
    paths = [tmp_path / "sites" / name / "site.toml" for name in "abc"]
    for path in paths:
        path.parent.mkdir(parents=True)
    sleepers.clear()
    yield paths
    for process in sleepers:
        subprocess.Popen.kill(process)
        process.wait()


@pytest.mark.parametrize("kind", [Sleeper, Stubborn])
def test_ctrl_c_leaves_no_agent(sites: list[Path], monkeypatch: Any, kind: type[Sleeper]) -> None:
    monkeypatch.setattr("coke.field.local.subprocess.Popen", kind)
    with hearing(), pytest.raises(KeyboardInterrupt):
        _processes(sites, LONG)
    assert sleepers
    assert all(process.returncode == -signal.SIGKILL for process in sleepers)


def test_agents_that_do_not_end_in_time_are_ended(sites: list[Path], monkeypatch: Any) -> None:
    monkeypatch.setattr(signal, "raise_signal", lambda number: None)
    monkeypatch.setattr("coke.field.local.subprocess.Popen", Sleeper)
    with pytest.raises(ConvergenceError, match=r"did not end within 0\.1 s"):
        _processes(sites, 0.1)
    assert [process.returncode for process in sleepers] == [-signal.SIGKILL] * 3
    # What they say is for the owner alone; so is log.jsonl, which has the tokens of pages.
    assert {(path.parent / "errors.txt").stat().st_mode & 0o777 for path in sites} == {0o600}


@pytest.mark.parametrize("early", [True, False])
def test_ctrl_c_ends_the_start_script_and_its_agents(tmp_path: Path, early: bool) -> None:
    """While Python starts, when they do not hear it themselves, and when they train."""
    pytest.importorskip("zenoh", reason="agents need the extra coke-learn[agent]")
    field = Field(tmp_path, made_rows(), 2, 1, rounds=10**6, tol=0.0)
    logs = [path.parent / "log.jsonl" for path in field.paths]
    here, there = os.pipe()
    with os.fdopen(here) as alive, group([str(tmp_path / "start.sh")], pass_fds=[there]) as script:
        os.close(there)
        wait_until(lambda: all(log.exists() for log in logs), script)
        wait_until(lambda: early or min(map(field.rounds, field.names)) > 5, script)
        ctrl_c(script)
        assert script.wait(LONG) == STOPPED
        assert select.select([alive], [], [], LONG)[0]  # at its end: nobody is left to write


TWICE = """
import signal
from coke.cli.main import main
from coke.field.agent import Agent

Agent.stop = lambda agent: signal.raise_signal(signal.SIGINT)
main()
"""


def test_ctrl_c_twice_ends_agents_in_threads(tmp_path: Path) -> None:
    """The second comes before any of them is told of the first."""
    field = Field(tmp_path, made_rows(), 2, 1, rounds=10**6, tol=0.0, carrier="memory")
    command = [sys.executable, "-c", TWICE, "network", "run", str(tmp_path)]
    with group(command, stderr=subprocess.PIPE) as process:
        wait_until(lambda: min(map(field.rounds, field.names)) > 5, process)
        ctrl_c(process)
        process.communicate(timeout=LONG)
    assert process.returncode == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_was_lost_stops_what_comes_next(number: int) -> None:
    """Python drops an exception of a callback, such as that of a lock of an import."""
    stops = []
    with hearing(), signals(_exit):
        with suppress(SystemExit):  # stands in for the callback
            signal.raise_signal(number)
        with signals(lambda: stops.append(1)):
            assert stops == [1]
    with hearing(), signals(lambda: stops.append(2)):
        assert stops == [1]


def test_an_agent_ends_at_once_when_told_twice() -> None:
    """Once by Ctrl-C and once by SIGTERM is once: a start script and a terminal tell both."""
    stops = []
    with hearing(), signals(lambda: stops.append(1)):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert len(stops) == 2
        with pytest.raises(SystemExit) as stop:
            signal.raise_signal(signal.SIGINT)
    assert stop.value.code == STOPPED
