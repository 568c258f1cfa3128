"""The files in deploy/ as text: they name what is there. None of them is run here."""

from __future__ import annotations

import json
import re
from configparser import ConfigParser
from pathlib import Path

import pytest
from test_board import NOBODY, made, status
from typer.main import get_command

from coke.cli.agent import app
from coke.page.metrics import metrics

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


def test_the_image_runs_as_nobody_much_and_looks_at_its_health() -> None:
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    assert text.count("\nFROM ") == 2  # what builds is not in the image
    assert re.search(r"^USER 10001$", text, re.MULTILINE)
    (health,) = re.findall(r"^HEALTHCHECK .*CMD (\[.*\])$", text, re.MULTILINE)
    assert json.loads(health)[:3] == ["coke", "agent", "health"]
    assert "health" in get_command(app).commands  # type: ignore[attr-defined]
    assert text.index("USER 10001") < text.index("ENTRYPOINT")


def test_three_sites_have_a_root_that_cannot_be_written_and_a_volume_each() -> None:
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    for line in ("read_only: true", "cap_drop: [ALL]", "no-new-privileges:true"):
        assert line in text
    for site in ("aachen", "bonn", "koeln"):
        assert f'volumes: ["./{site}:/srv/coke:ro", "{site}:/var/lib/coke"]' in text
    assert "ports:" not in text  # nothing is open to the world
