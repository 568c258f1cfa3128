"""A page never changes what is learnt, whoever asks it how often."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import numpy as np
import pytest

from kit.agents import A, Nets
from kit.asking import ask, send
from kit.paged import PagedNet

pytestmark = pytest.mark.processes

SETTINGS = {"algorithm": "coke", "tol": 1e-6}


@pytest.fixture
def paged(tmp_path: Path, nets: Nets) -> PagedNet:
    return PagedNet(tmp_path / "paged", **SETTINGS)  # `nets` sees to it that nothing is flushed


def test_the_bits_are_the_same_with_clients_that_hammer_the_page(
    nets: Nets, paged: PagedNet
) -> None:
    """θ, rounds and bytes of every site are those of agents without a page."""
    calm = nets(**SETTINGS)
    calm.start()
    calm.wait()
    over, statuses = threading.Event(), set[int]()

    def hammer() -> None:
        access = paged.access(A)
        while not over.is_set():
            with suppress(OSError, HTTPException):  # it has ended
                statuses.update(ask(access, path).status for path in ("", "state", "metrics"))
                send(access, b"\x00" * 10_000)

    paged.start()
    paged.until(lambda: (paged.folder / A / "page.json").exists())
    clients = [threading.Thread(target=hammer, daemon=True) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        paged.until(lambda: 429 in statuses or not paged.threads[A].is_alive())
        paged.wait()
    finally:
        over.set()
        for client in clients:
            client.join()
    assert 200 in statuses
    assert np.array_equal(paged.theta(), calm.theta())
    for name in paged.names:
        assert paged.node(name).ledger == calm.node(name).ledger
        assert paged.node(name).k == calm.node(name).k


def test_a_page_tells_what_the_site_knows(paged: PagedNet) -> None:
    """Phase, round, neighbours and bytes are the agent's own; the address is its owner's alone."""
    paged.start()
    paged.until(lambda: paged.rounds() > 5)
    told = json.loads(ask(paged.access(A), "state").body)
    assert told["site"] == A
    assert told["phase"] == "train"
    assert told["sites"] == len(paged.names)
    assert {one["name"] for one in told["neighbours"]} == paged.friends[A]
    assert {one["state"] for one in told["neighbours"]} == {"alive"}
    assert (paged.folder / A / "page.json").stat().st_mode & 0o777 == 0o600
    paged.wait()
    board, node = paged.boards[A], paged.node(A)
    assert board.moments[-1].bytes == node.spent.bytes
    assert [m.round for m in board.moments] == list(range(board.moments[0].round, node.k + 1))
    words = {k for k, who in board.spoke if A in who}
    assert len(words) <= node.ledger.transmissions


def test_an_address_stays_good_after_a_restart(paged: PagedNet) -> None:
    paged.start()
    paged.until(lambda: paged.rounds() > 2)
    before = paged.access(A).token
    paged.stop(A)
    paged.start(A)
    paged.until(lambda: paged.status.get(A) is not None)
    assert paged.access(A).token == before
    paged.stop()
