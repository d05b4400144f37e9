"""The subscription to a relay: a thread that keeps its events in a spool, durable and numbered, until delivered.

    <spool>/upstream   the relay's number of the last event kept; with the spool itself, where to go on
    <spool>/lost       written when the relay no longer had what was wanted: says so to whoever reads

When the spool is full, nothing more is read from the relay, until rows are delivered.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from contextlib import suppress
from pathlib import Path

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from headgate.model import StateError
from headgate.runtime.files import replace_file
from headgate.sources.atproto.options import AtprotoSourceOptions
from headgate.spool.frames import Request
from headgate.spool.segments import read_requests, segments
from headgate.spool.spool import Spool
from headgate.wire.atproto import MAX_FRAME_BYTES, AtprotoError, Frame, Kind, read_frame

__all__ = ["Subscription", "refuse_loss"]

_log = logging.getLogger(__name__)

_LOST = "lost"
_GROUP = 512
_GROUP_BYTES = 8 << 20
_TICK_S = 0.25
_LONGEST_PAUSE_S = 30.0


class Subscription:
    """Starts at once, connects again and again, and ends with `stop`."""

    def __init__(self, options: AtprotoSourceOptions) -> None:
        self._options = options
        self._spool = Spool(options.directory, max_bytes=options.max_spool_bytes, max_keys=0)
        (options.directory / _LOST).unlink(missing_ok=True)  # it may be there again, or no longer be wanted
        self._last = _last_seq(options.directory, self._spool.next_row)
        self._stopped = threading.Event()
        self._pause_s = 0.0
        self.state = "connecting"
        self.events = 0
        self._thread = threading.Thread(target=self._run, name="atproto-subscription", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def held_bytes(self) -> int:
        return self._spool.held_bytes

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopped.wait(self._pause_s):
                self._pause_s = min(max(0.5, self._pause_s * 2), _LONGEST_PAUSE_S)
                with suppress(_Ended):
                    self._follow()
        except StateError as error:
            self.state = "failed"
            _log.error("the subscription ends: %s", error.message)
            replace_file(self._options.directory / _LOST, error.message.encode())
        finally:
            self._spool.close()

    def _follow(self) -> None:
        cursor = self._last if self._last is not None else (0 if self._earliest else None)
        url = self._options.stream_url + ("" if cursor is None else f"?cursor={cursor}")
        try:
            with connect(url, max_size=MAX_FRAME_BYTES, compression=None, open_timeout=10) as connection:
                self.state = "connected"
                while not self._stopped.is_set():
                    self._take(_receive(connection))
        except (OSError, WebSocketException, AtprotoError) as error:
            _log.warning("the relay is gone: %s", str(error)[:200])
        finally:
            self.state = "stopped" if self._stopped.is_set() else "connecting"

    @property
    def _earliest(self) -> bool:
        return self._options.starting_offsets == "earliest"

    def _take(self, messages: list[bytes]) -> None:
        """Keep what is new; see what else is said."""
        kept: list[bytes] = []
        last = self._last
        for message in messages:
            frame = read_frame(message)
            if frame.kind in (Kind.INFO, Kind.ERROR):
                self._keep(kept, last)
                self._note(frame)
                kept = []
                continue
            # A cursor is inclusive, and relays differ even in that.
            if frame.kind is not Kind.UNKNOWN and (last is None or frame.seq > last):
                kept.append(message)
                last = frame.seq
        self._keep(kept, last)

    def _keep(self, messages: list[bytes], last: int | None) -> None:
        if not messages:
            self._spool.release()
            return
        group = Request(time.time_ns() // 1000, b"", None, str(last), None, {}, messages)
        while self._spool.append([group]) == [None]:
            self.state = "waiting: the spool is full"
            if self._stopped.wait(_TICK_S):
                raise _Ended
        self.state = "connected"
        self._last = last
        self._pause_s = 0.0
        self.events += len(messages)
        (self._options.directory / "upstream").write_text(json.dumps({"seq": last}))

    def _note(self, frame: Frame) -> None:
        name = str(frame.body.get("name") or frame.body.get("error") or "")[:80]
        lost = name == "OutdatedCursor" and self._last is not None
        if name == "FutureCursor" or (lost and self._options.fail_on_data_loss):
            what = "no longer has" if lost else "does not know"
            raise StateError(f"the relay {what} the events after {self._last} ({name})")
        _log.warning("the relay says %s", name)


class _Ended(Exception):  # noqa: N818 - the way out of waiting
    """The subscription is to stop."""


def _receive(connection: ClientConnection) -> list[bytes]:
    """What has come by now: they share one fsync. Nothing after a tick of silence."""
    messages: list[bytes] = []
    size = 0
    with suppress(TimeoutError):
        while len(messages) < _GROUP and size < _GROUP_BYTES:
            message = connection.recv(timeout=0 if messages else _TICK_S)
            if isinstance(message, bytes):
                messages.append(message)
                size += len(message)
    return messages


def _last_seq(directory: Path, next_row: int) -> int | None:
    """Where to go on: what the last group says, or, when it is delivered and gone, the mark beside it."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        seqs = [int(json.loads((directory / "upstream").read_text())["seq"])]
        return max(seqs + _spooled(directory, next_row))
    return max(_spooled(directory, next_row), default=None)


def _spooled(directory: Path, next_row: int) -> list[int]:
    numbers = segments(directory)
    first = next((number for number in reversed(numbers) if number < next_row), None)
    if first is None:
        return []
    return [int(group.path) for _, group in read_requests(directory, first, next_row)][-1:]


def refuse_loss(directory: Path) -> None:
    """Raise what the subscription ended with, if it did."""
    with suppress(FileNotFoundError):
        raise StateError(
            (directory / _LOST).read_text(),
            where=str(directory),
            remedy="to go on with what there is, set failOnDataLoss to false; if it is another relay, start anew",
        )
