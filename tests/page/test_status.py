"""How a site is, from outside: new, waiting, running, stopped, finished; and what that means."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coke.cli.following import machines
from coke.field.lock import alone, worker
from coke.page.status import healthy, site_status
from coke.settings.declaration import SiteSettings
from coke.settings.sites import read_site
from kit.field import Field, made_rows

pytestmark = pytest.mark.processes

A, B = "site-0", "site-1"


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    """Two agents; the first has a page."""
    made = Field(tmp_path, made_rows(200), 2, 1, algorithm="coke", tol=0.0, rounds=10**6)
    path = made.paths[0]
    path.write_text(path.read_text().replace("[site]\n", "[site]\npage = 0\n"))
    try:
        yield made
    finally:
        made.end()


def settings(field: Field, name: str) -> SiteSettings:
    return read_site(field.folder / "sites" / name / "site.toml")


def status(field: Field, name: str) -> dict[str, Any]:
    return site_status(settings(field, name))


def state(field: Field, name: str) -> str:
    return str(status(field, name)["state"])


def test_a_site_from_its_beginning_to_its_end(field: Field) -> None:
    """Of an agent with a page it is known for whom it waits, of one without that it runs."""
    assert [state(field, name) for name in (A, B)] == ["new", "new"]
    assert not healthy(status(field, A))
    field.start(A)
    field.until(lambda: state(field, A) == "waiting")
    assert status(field, A)["missing"] == [B]
    assert status(field, A)["phase"] == "meet"
    field.start(B)
    field.until(lambda: (status(field, B)["round"] or 0) > 3)
    assert state(field, B) == "running"
    assert status(field, B)["pid"] == field.processes[B].pid
    field.until(lambda: (status(field, A)["round"] or 0) > 3)
    assert healthy(status(field, A))
    field.kill(B)
    assert state(field, B) == "stopped"
    assert status(field, B)["round"] > 3
    assert not healthy(status(field, B))
    field.until(lambda: status(field, A)["neighbours"] == {B: "away"})
    field.until(lambda: state(field, A) == "waiting")
    lines = field.log(A)
    stamps = {(line["site"], line["run"]) for line in lines}
    assert stamps == {(A, 1)}
    assert all(line["time"].endswith("+00:00") and line["version"] for line in lines)


def test_what_commands_say(field: Field) -> None:
    """Without NumPy; exit codes 0 and 1; JSON that is what the functions say."""
    model = field.folder / "sites" / A / "state" / "model.coke"
    model.parent.mkdir()
    model.write_bytes(b"")
    program = "import sys\nfrom coke.cli.main import main\ntry:\n main()\nfinally:\n"
    program += " assert not {'numpy', 'scipy', 'pyarrow'} & set(sys.modules)"

    def run(*line: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, *line]
        return subprocess.run(command, capture_output=True, text=True)

    site = str(field.paths[0])
    assert (run("agent", "health", site).stdout, run("agent", "health", site).returncode) == (
        "finished\n", 0,
    )  # fmt: skip
    told = run("network", "status", str(field.folder), "--json")
    assert told.returncode == 1  # the other has not begun
    assert json.loads(told.stdout)["sites"] == [status(field, A), status(field, B)]
    assert "finished" in run("agent", "status", site).stdout


def test_a_lock_tells_who_works_here_and_is_not_touched(tmp_path: Path) -> None:
    assert worker(tmp_path) is None
    with alone(tmp_path):
        assert worker(tmp_path) is not None
    assert worker(tmp_path) is None
    with alone(tmp_path):  # nobody was locked out by having been looked at
        pass


def test_nobody_is_asked_who_has_the_port_of_an_earlier_page(field: Field) -> None:
    """Nor given the token: the agent that works here has no page."""
    folder = Path(settings(field, A).site.state)
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as stranger, alone(folder):
        stranger.setblocking(False)
        old = {"port": stranger.getsockname()[1], "token": "t" * 22, "pid": 1}
        (folder / "page.json").write_text(json.dumps(old))
        assert status(field, A)["page"] is None
        with pytest.raises(BlockingIOError):
            stranger.accept()


@pytest.mark.parametrize("text", [b"", b"no number", b"99999999999999999999", b"-1", b"0"])
def test_any_lock_file_can_be_looked_at(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "lock").write_bytes(text)
    assert worker(tmp_path) is None


def test_a_history_that_was_cut_off_is_read_as_far_as_it_goes(field: Field) -> None:
    folder = Path(settings(field, A).site.state)
    folder.mkdir()
    (folder / "history.jsonl").write_bytes(b'{"round": 7, "loss": NaN}\n{"round": 8, "lo')
    assert status(field, A)["round"] is None
    (folder / "history.jsonl").write_bytes(b'{"round": 7, "loss": 1e999}\n{"round": 8, "lo')
    assert status(field, A)["state"] in ("new", "stopped")
    (folder / "history.jsonl").write_bytes(b'{"round": 7, "loss": 0.5}\n{"round": 8, "lo')
    assert (status(field, A)["round"], state(field, A)) == (7, "stopped")


def test_lines_for_machines_escape_what_controls_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    machines({"site": "a\x1b[31m"}, every_round=False).warn("\x07")
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert "\x1b" not in said
    assert "\x07" not in said
