"""Messages over a socket that nobody waits for: a kind, a length, so many bytes; TLS or not.

FRAME    what the carrier is for
PING     nothing to say, but there
AGAIN    call me again: I have a new certificate
WELCOME  network and id of the sender, which has seen our certificate and takes it
REFUSED  why not, in words
REVOKED  the network's list of keys that are not to be believed any more
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from coke.errors import MessageError

FRAME, PING, AGAIN, WELCOME, REFUSED, REVOKED, OVERSIZED = range(7)  # the last is never sent
_HEAD = struct.Struct(">BI")
_LONGEST = {PING: 0, AGAIN: 0, WELCOME: 512, REFUSED: 512, REVOKED: 1 << 20}  # bytes of each kind
_CHUNK = 1 << 16  # bytes read or written at once
_RECORD = 1 << 14  # bytes of a record of TLS, at most
_TURN = 16  # chunks read before others have their turn
_LATER = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)


def packed(kind: int, data: bytes = b"") -> bytes:
    """A message as it is sent."""
    return _HEAD.pack(kind, len(data)) + data


class Reader:
    """Bytes as they come ↦ messages; a frame that is too long is skipped, never kept."""

    def __init__(self, frame: int) -> None:
        self._most, self._held, self._skip = {FRAME: frame, **_LONGEST}, bytearray(), 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """What is complete now; `MessageError` for what nobody who keeps the rules would send."""
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self._held += memoryview(data)[skipped:]
        while len(self._held) >= _HEAD.size:
            kind, size = _HEAD.unpack_from(self._held)
            if kind not in self._most or (kind != FRAME and size > self._most[kind]):
                raise MessageError(f"a message of kind {kind} and {size} bytes: expected another")
            whole = _HEAD.size + size
            if size > self._most[kind]:
                yield OVERSIZED, b""
                self._skip = max(0, whole - len(self._held))
            elif len(self._held) < whole:
                return
            else:
                yield kind, bytes(memoryview(self._held)[_HEAD.size : whole])
            del self._held[:whole]


class Plug:
    """Bytes over a connected socket, by one thread at a time: TLS must not be used by two."""

    def __init__(
        self, plain: socket.socket, tls: ssl.SSLContext | None, *, server: bool, wait: float = 0.0
    ) -> None:
        plain.settimeout(wait)
        with suppress(OSError):  # gone meanwhile: whoever reads will see
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fd, self.socket = plain.fileno(), plain
        if tls is not None:
            self.socket = tls.wrap_socket(plain, server_side=server, do_handshake_on_connect=False)
        self._lock, self._out = threading.RLock(), bytearray()  # the lock alone is cheaper to take
        self._room, self._writers = threading.Condition(self._lock), 0  # … who wait for room

    def shake(self) -> bool:
        """Whether hands are shaken; else later."""
        if isinstance(self.socket, ssl.SSLSocket):
            try:
                self.socket.do_handshake()
            except _LATER:
                return False
        return True

    def read(self) -> bytes:
        """What has come, a part of it if it is much; `ConnectionError` at the end."""
        found = b""
        with self._lock:
            try:
                for _ in range(_TURN):
                    # As long as a record of TLS, or longer: a selector sees all that is left.
                    data = self.socket.recv(_CHUNK)
                    if not data and not found:
                        raise ConnectionResetError("hung up")
                    found += data
                    if len(data) < _RECORD:
                        break  # most often that was all: the selector tells if it was not
            except _LATER:
                pass
        return found

    def write(self, data: bytes, most: int, patience: float) -> bool:
        """Sends what can be sent, and keeps the rest; waits only if more than `most` waits already.

        False where that has not become less in time.
        """
        with self._lock:
            if len(self._out) > most and not self._lessens(most, patience):
                return False
            self._out += data
            self._send()
        return True

    def _lessens(self, most: int, patience: float) -> bool:
        self._writers += 1
        try:
            return self._room.wait_for(lambda: len(self._out) <= most, patience)
        finally:
            self._writers -= 1

    def flush(self) -> None:
        """Goes on with what was kept."""
        with self._lock:
            if self._out:
                self._send()
            if self._writers:
                self._room.notify_all()

    @property
    def waiting(self) -> int:
        """Bytes that were not sent yet."""
        return len(self._out)

    def _send(self) -> None:
        # What TLS could not send it wants to have again, in its place: only full chunks, or all.
        try:
            while self._out:
                sent = self.socket.send(self._out[:_CHUNK])  # a copy: an error would keep a view
                del self._out[:sent]
        except _LATER:
            pass

    def end(self) -> None:
        """Nothing more will be said; what was said arrives even if the other end says more."""
        with self._lock, suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_WR)  # TLS goes on reading

    def finish(self, until: float) -> None:
        """Sends what waits and hangs up, once the other end does or the time has come."""
        try:
            self.socket.settimeout(max(0.01, until - time.monotonic()))
            with self._lock:
                self._send()
                socket.socket.shutdown(self.socket, socket.SHUT_WR)
            while self.socket.recv(_CHUNK) and time.monotonic() < until:
                pass
        except OSError:
            pass
        self.close()

    def close(self) -> None:
        """Gone, and whoever waits to write, too."""
        with self._lock:
            self._out.clear()
            self._room.notify_all()
            with suppress(OSError):
                self.socket.close()
