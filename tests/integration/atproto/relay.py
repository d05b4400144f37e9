"""A small relay for tests: it sends the frames it has, from a cursor on, and then what is added."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from headgate.wire.atproto import error_frame, info_frame, read_frame


class SmallRelay:
    """Frames with rising numbers; everybody who is connected gets the new ones, too."""

    def __init__(self) -> None:
        self.url = ""
        self.cursors: list[int | None] = []
        self.note: bytes | None = None  # is sent first to who comes with a cursor
        self._frames: list[bytes] = []
        self._changed = threading.Condition()
        self._is_over = False
        self._cut = 0

    def add(self, *frames: bytes) -> None:
        with self._changed:
            self._frames += frames
            self._changed.notify_all()

    def cut(self) -> None:
        """End every connection."""
        with self._changed:
            self._cut += 1
            self._changed.notify_all()

    def outdated(self) -> None:
        self.note = info_frame("OutdatedCursor")

    def future(self) -> None:
        self.note = error_frame("FutureCursor", "Cursor in the future.")

    def wait_for_visits(self, count: int, timeout: float = 20) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self.cursors) >= count, timeout)

    def end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def handle(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        text = parse_qs(urlsplit(connection.request.path).query).get("cursor")
        cursor = int(text[0]) if text else None
        with self._changed:
            at = len(self._frames) if cursor is None else self._first(cursor)
            epoch = self._cut
            self.cursors.append(cursor)
            self._changed.notify_all()
        try:
            if cursor is not None and self.note is not None:
                connection.send(self.note)
            while (frames := self._next(at, epoch)) is not None:
                at += len(frames)
                for frame in frames:
                    connection.send(frame)
        except ConnectionClosed:
            return

    def _first(self, cursor: int) -> int:
        return next((n for n, frame in enumerate(self._frames) if read_frame(frame).seq >= cursor), len(self._frames))

    def _next(self, at: int, epoch: int) -> list[bytes] | None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._frames) > at or self._is_over or self._cut != epoch)
            return None if self._is_over or self._cut != epoch else self._frames[at:]


@contextmanager
def small_relay() -> Iterator[SmallRelay]:
    relay = SmallRelay()
    with serve(relay.handle, "127.0.0.1", 0, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        relay.url = f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        try:
            yield relay
        finally:
            relay.end()
            server.shutdown()
            thread.join()
