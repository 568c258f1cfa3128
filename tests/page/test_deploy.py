"""The files in deploy/ as text: they name what is there. No container and no unit is run here.

Where the machine has `systemd-analyze` it reads the units, and says how much they can reach.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest
from test_board import NOBODY, made, status
from typer.main import get_command

from coke.cli.agent import app
from coke.page.metrics import metrics
from coke.settings.declaration import KNOBS

DEPLOY = Path(__file__).parents[2] / "deploy"


def unit(name: str) -> ConfigParser:
    found = ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string((DEPLOY / name).read_text("utf-8"))
    return found


def test_the_dashboard_asks_for_figures_that_there_are() -> None:
    board = made("a", "b", ends=lambda: 1.0)
    board.take(status(1, events=()), NOBODY)
    names = set(re.findall(r"^# TYPE (\w+)", metrics(board.document(), {}), re.MULTILINE))
    names |= {"coke_events_total", "coke_certificate_share", "coke_frames_total"}
    board_ = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))
    asked = {name for p in board_["panels"] for t in p["targets"]
             for name in re.findall(r"coke_\w+", t["expr"])}  # fmt: skip
    assert asked
    assert asked <= names
    assert len({p["id"] for p in board_["panels"]}) == len(board_["panels"])


@pytest.mark.parametrize("name", ["coke.service", "coke-identity.service"])
def test_units_are_confined_and_start_commands_that_there_are(name: str) -> None:
    service = unit(name)["Service"]
    assert service["User"] == "coke"
    assert service["NoNewPrivileges"] == service["PrivateTmp"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert re.match(r"/opt/coke/bin/coke (agent|identity verify) ", service["ExecStart"])


def test_an_agent_is_not_started_again_where_a_person_must_look() -> None:
    service = unit("coke.service")["Service"]
    assert service["RestartPreventExitStatus"].split() == ["2", "3"]
    assert service["SuccessExitStatus"] == "143"
    assert unit("coke-identity.timer")["Timer"]["OnCalendar"] == "daily"


ANALYSE = shutil.which("systemd-analyze")
ANALYSED = pytest.mark.skipif(ANALYSE is None, reason="no systemd-analyze on this machine")
MOST = {"coke.service": 2.0, "coke-identity.service": 1.0}  # exposure, of 10


def _placed(folder: Path) -> list[str]:
    """The units with a program that there is, for the one they start is not."""
    for path in (path for path in DEPLOY.iterdir() if path.suffix in (".service", ".timer")):
        text = path.read_text("utf-8").replace("/opt/coke/bin/coke", "/bin/true")
        (folder / path.name).write_text(text, "utf-8")
    return sorted(str(path) for path in folder.iterdir())


@ANALYSED
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    command = [str(ANALYSE), "verify", "--man=no", *_placed(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (found.returncode, found.stderr) == (0, "")


@ANALYSED
@pytest.mark.parametrize("name", MOST)
def test_units_reach_little(tmp_path: Path, name: str) -> None:
    _placed(tmp_path)
    command = [str(ANALYSE), "security", "--offline=true", "--no-pager", str(tmp_path / name)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    level = re.search(r"exposure level for \S+: ([\d.]+)", found.stdout)
    if level is None:
        pytest.skip(f"this systemd-analyze cannot judge a file: {found.stderr[:200]}")
    assert float(level[1]) <= MOST[name], found.stdout


def test_the_image_runs_as_nobody_much_and_looks_at_its_health() -> None:
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    assert text.count("\nFROM ") == 2  # what builds is not in the image
    assert re.search(r"^USER 10001$", text, re.MULTILINE)
    (health,) = re.findall(r"^HEALTHCHECK .*CMD (\[.*\])$", text, re.MULTILINE)
    assert json.loads(health)[:3] == ["coke", "agent", "health"]
    assert "health" in get_command(app).commands  # type: ignore[attr-defined]
    assert text.index("USER 10001") < text.index("ENTRYPOINT")


def test_the_image_is_small_and_its_lines_are_in_order() -> None:
    """What linters of such files ask for: pins, no cache, no ADD, JSON commands."""
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    lines = text.replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "STOPSIGNAL",
             "HEALTHCHECK", "ENTRYPOINT", "CMD"}  # fmt: skip
    assert {step for step, _ in steps} <= known
    bases = [rest for step, rest in steps if step == "FROM"]
    assert all(re.match(r"docker\.io/library/python:\d\.\d+-slim-\w+( AS \w+)?$", b) for b in bases)
    last = text[text.rindex("\nFROM ") :]
    assert "pip" not in last  # nothing is installed where it runs
    assert "--no-cache-dir" in text
    assert all(json.loads(rest) for step, rest in steps if step in ("ENTRYPOINT", "CMD"))
    copied = [rest.split() for step, rest in steps if step == "COPY" and "--from" not in rest]
    for path in (path for each in copied for path in each[:-1]):
        assert (DEPLOY.parent / path).exists()
    assert re.search(r"install -d -o 10001 .*/var/lib/coke", text)  # else a volume is root's


def test_three_sites_have_a_root_that_cannot_be_written_and_a_volume_each() -> None:
    yaml = pytest.importorskip("yaml", reason="compose files are YAML")
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    found = yaml.safe_load(text)
    sites = ("aachen", "bonn", "koeln")
    assert tuple(found["services"]) == tuple(found["volumes"]) == sites
    for name, site in found["services"].items():
        assert site["read_only"] is True
        assert site["cap_drop"] == ["ALL"]
        assert site["security_opt"] == ["no-new-privileges:true"]
        assert site["user"] == "10001"
        assert site["volumes"] == [f"./{name}:/srv/coke:ro", f"{name}:/var/lib/coke"]
        assert (DEPLOY / site["build"]["context"] / site["build"]["dockerfile"]).exists()
        assert site["logging"]["options"] == {"max-size": "8m", "max-file": "2"}  # bounded
        assert not {"ports", "privileged", "network_mode"} & site.keys()  # closed to the world


def test_all_that_a_site_in_a_container_writes_is_on_its_volume() -> None:
    """The comment says which settings to make; these are all folders that an agent writes to."""
    said = (DEPLOY / "compose.yaml").read_text("utf-8").partition("x-site")[0]
    settings = dict(re.findall(r'(\w+) = "(/var/lib/coke/\w+)"', said))
    written = {key.removeprefix("site.") for key, one in KNOBS.items()
               if key.startswith("site.") and one.knob.path} - {"identity"}  # fmt: skip
    assert settings.keys() == written
