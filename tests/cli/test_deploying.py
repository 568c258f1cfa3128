"""The deployment guide's files and commands do what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coke.field.carriers.address import Endpoint
from coke.field.phases import Pace
from coke.settings.declaration import SiteSettings, SiteTable
from coke.settings.sites import checked_site

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

GUIDE = (Path(__file__).parents[2] / "docs/deploying.md").read_text("utf-8")


def blocks(kind: str, text: str = GUIDE) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


def section(title: str) -> str:
    """From a heading to the next."""
    return GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def sites(text: str = GUIDE) -> dict[str, SiteSettings]:
    found = [checked_site(tomllib.loads(block)) for block in blocks("toml", text)]
    return {config.site.name: config for config in found}


def common(config: SiteSettings) -> dict[str, Any]:
    return {key: value for key, value in config.plain().items() if key != "site"}


def test_the_guides_sites_fit_together() -> None:
    """One network and one set of settings; names as the certificates issued; patience is fine."""
    found = sites()
    assert len(blocks("toml")) == len(found) == 4
    issued = re.findall(r"coke identity issue (\w+)$", GUIDE, re.MULTILINE)
    assert sorted(sites(section("Three machines"))) == sorted(issued)
    (network,) = re.findall(r"identity init --network (\w+)", GUIDE)
    assert {config.site.network for config in found.values()} == {network}
    assert all(common(config) == common(found["aachen"]) for config in found.values())
    assert all(Pace.of(config.site.patience).patience is None for config in found.values())


def test_every_edge_has_two_ends_and_one_caller() -> None:
    """a names b and b names a; one calls, at the other's port, and the other listens."""
    found = sites(section("Three machines"))
    for name, config in found.items():
        for other, address in config.site.neighbours.items():
            there = found[other].site
            assert (address == "") != (there.neighbours[name] == "")
            if address:
                (listening,) = map(Endpoint.parse, there.listen)
                assert Endpoint.parse(address).port == listening.port
                assert Endpoint.parse(address).host.startswith(other)


def test_the_newcomer_joins_a_site_that_listens() -> None:
    (newcomer,) = sites(section("Sites come and go")).values()
    assert newcomer.site.joins
    first = sites(section("Three machines"))
    assert all(first[name].site.listen for name in newcomer.site.neighbours)


def test_every_key_of_site_is_explained_with_its_default() -> None:
    table = section("The keys of `[site]`")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE))
    fields = {field.name: field for field in msgspec.structs.fields(SiteTable)}
    assert rows.keys() == fields.keys()
    for name in ("run", "patience", "joins", "plaintext_loopback", "state", "listen"):
        field = fields[name]
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        assert rows[name] == f"`{msgspec.json.encode(default).decode()}`"


def test_the_trial_on_one_machine_runs(tmp_path: Path) -> None:
    """The section's commands, one after the other, with fewer rows and features."""
    pytest.importorskip("zenoh", reason="agents need the extra coke-learn[agent]")
    (script,) = blocks("sh", section("Try it on one machine"))
    small = "[data]\nsize_range = [200, 300]\n[features]\nn_features = 20\n"
    (tmp_path / "small.toml").write_text(small)
    ran = []
    for line in script.splitlines():
        words = shlex.split(line, comments=True)
        assert words.pop(0) == "coke"
        more = ["--config", "small.toml"] if words[:2] == ["network", "init"] else []
        command = [sys.executable, "-m", "coke", *words, *more]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        ran.append(done.stderr + done.stdout)
    assert len(re.findall(r"^site-\d: \d+ rounds", ran[1], re.MULTILINE)) == 3
    assert (tmp_path / "predictions.csv").read_text().count("\n") > 200
