"""Agents in threads whose pages are served while they train."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from coke.field.agent import Agent
from coke.page.access import Access, read_access
from coke.page.board import Board
from coke.page.site import facts, site_page
from kit.agents import Net


class PagedNet(Net):
    """A network each of whose sites has a page."""

    def __init__(self, *given: Any, **settings: Any):
        super().__init__(*given, **settings)
        self.boards: dict[str, Board] = {}

    def access(self, name: str) -> Access:
        found = read_access(self.folder / name)
        assert found is not None
        return found

    def _live(self, name: str, agent: Agent) -> None:
        board = self.boards[name] = Board(facts(agent.mission, ["mind the <gap>"]))
        with ExitStack() as open_:
            try:
                open_.enter_context(agent.store.claimed())
                open_.enter_context(site_page(board, agent.carrier, agent.store.folder, 0))
                for status in board.followed(agent):
                    self.status[name] = status
            except Exception as error:
                self.errors[name] = error
            finally:
                agent.carrier.close()
