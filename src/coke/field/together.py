"""All agents of a network in threads of one process, over a network in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coke.errors import ConvergenceError
from coke.field.agent import Agent
from coke.field.carriers import CARRIERS
from coke.field.mission import Mission
from coke.field.phases import Pace
from coke.field.results import keep
from coke.field.store import Store
from coke.maths.algorithms.algorithm import Algorithm
from coke.settings.declaration import SiteSettings


class Threads:
    """All agents of a network in this process; what stops one stops all."""

    def __init__(
        self, configs: Sequence[SiteSettings], timeout: float, own: Algorithm | None = None
    ):
        self._until, self._timeout = time.monotonic() + timeout, timeout
        self._agents = [_agent(config, own) for config in configs]
        self._errors: list[Exception] = []

    def run(self) -> list[dict[str, Any]]:
        """What each came to."""
        # Daemons: a second Ctrl-C may come before all are stopped, and nobody waits for the rest.
        live, agents = self._live, self._agents
        threads = [threading.Thread(target=live, args=(own,), daemon=True) for own in agents]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads) and not self._errors:
                if time.monotonic() > self._until:
                    raise late(self._timeout, "give them more time, or fewer rounds")
                time.sleep(0.01)
        finally:
            for agent in self._agents:
                agent.stop()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        if self._errors:
            raise self._errors[0]
        return [keep(agent) for agent in self._agents]

    def _live(self, agent: Agent) -> None:
        try:
            with agent.carrier, agent.store.claimed():
                for _ in agent.run():
                    pass
        except Exception as error:
            self._errors.append(error)


def _agent(config: SiteSettings, own: Algorithm | None) -> Agent:
    opened = CARRIERS[config.site.carrier].opener(config.site)
    store = Store(Path(config.site.state), flushed=False)  # gone with this process, if it goes
    return Agent(Mission(config, own=own), opened(), store, Pace.of(config.site.patience))


def late(timeout: float, advice: str) -> ConvergenceError:
    """For agents that did not end in time, and what to do."""
    return ConvergenceError(f"the agents did not end within {timeout:g} s: {advice}")
