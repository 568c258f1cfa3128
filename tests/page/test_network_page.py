"""The page of a whole network on one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from coke.page.access import read_access
from coke.page.network import network_page
from coke.settings.sites import read_site
from kit.asking import ask
from kit.field import Field, made_rows

pytestmark = pytest.mark.processes


def test_it_shows_every_site_and_where_its_page_is(tmp_path: Path) -> None:
    field = Field(tmp_path, made_rows(200), 3, 3, carrier="memory")
    settings = [read_site(path) for path in field.paths]
    (Path(settings[0].site.state)).mkdir()
    (Path(settings[0].site.state) / "model.coke").write_bytes(b"")
    with network_page(settings, tmp_path, 0):
        access = read_access(tmp_path)
        assert access is not None
        assert ask(access).status == 200
        told = ask(access, "state").body.decode()
        assert all(name in told for name in field.names)
        figures = ask(access, "metrics").body.decode()
        assert 'coke_site{site="site-0",state="finished"} 1' in figures
        assert 'coke_site{site="site-1",state="new"} 1' in figures
    with pytest.raises(OSError, match="refused"):
        ask(access)
