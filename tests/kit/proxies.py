"""Wires between processes that one can cut, stall and slow down, below whatever they speak."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from coke.field.local import _free_ports

CHUNK = 2**16


class Wire:
    """A port of its own in front of another; all bytes pass through here."""

    def __init__(self, port: int, target: int):
        self.port, self.target = port, target
        self.cut = False  # connections are closed, and no new ones made
        self.stalled = False  # bytes wait, connections stay
        self.late = 0.0  # seconds that bytes take
        self._pairs: set[asyncio.StreamWriter] = set()

    async def serve(self) -> None:
        """Until the loop ends."""
        server = await asyncio.start_server(self._joined, "127.0.0.1", self.port)
        async with server:
            await server.serve_forever()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        with contextlib.suppress(OSError):
            if not self.cut:
                there, back = await asyncio.open_connection("127.0.0.1", self.target)
                ends.append(back)
                self._pairs |= {*ends}
                await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        for end in ends:
            self._pairs.discard(end)
            end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await asyncio.sleep(self.late)
                while self.stalled:
                    await asyncio.sleep(0.02)
                writer.write(data)
                await writer.drain()
        writer.close()

    def hang_up(self) -> None:
        """Everybody; called in the loop."""
        for end in self._pairs:
            end.transport.abort()


class Wires:
    """In front of every address that the sites' files call."""

    def __init__(self, files: Sequence[Path]):
        self.wires: list[Wire] = []
        for path in files:
            text = path.read_text("utf-8")
            head, _, calls = text.partition("[site.neighbours]")
            path.write_text(head + "[site.neighbours]" + re.sub(
                r"tls/127\.0\.0\.1:(\d+)", lambda m: self._before(int(m[1])), calls
            ), "utf-8")  # fmt: skip
        self._loop = asyncio.new_event_loop()

    def _before(self, target: int) -> str:
        self.wires.append(Wire(_free_ports(1)[0], target))
        return f"tls/127.0.0.1:{self.wires[-1].port}"

    def cut(self, wire: Wire) -> None:
        """Until `cut` is set back."""
        wire.cut = True
        self._loop.call_soon_threadsafe(wire.hang_up)

    @contextlib.contextmanager
    def up(self) -> Iterator[None]:
        """In a thread of their own."""
        tasks = [self._loop.create_task(wire.serve()) for wire in self.wires]
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._end, tasks)
            thread.join(60)
            self._loop.close()

    def _end(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        for wire in self.wires:
            wire.hang_up()
        self._loop.call_later(0.05, self._loop.stop)
