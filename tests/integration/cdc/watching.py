"""What a reader has spooled and confirmed, as a test sees it from outside."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable
from pathlib import Path

from headgate.kernels.frames import COUNT_AT
from headgate.postgres.continuity import WalPosition
from headgate.sources.postgres_cdc.control import SpoolControl
from headgate.sources.postgres_cdc.process import ReaderProcess
from headgate.sources.postgres_cdc.spool import SpoolIndex
from headgate.wire.pgoutput import Decoder, Insert, Message, parse_lsn
from tests.integration.cdc.conftest import Admin

__all__ = ["Start", "confirm_all", "ids", "messages", "rows", "slot_lsn", "status", "wait_until"]

Start = Callable[..., ReaderProcess]


def wait_until(condition: Callable[[], bool], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def messages(spool: Path, start: int = 0) -> list[Message]:
    """Everything in the spool behind `start`, decoded. Read again if a reader that connects anew has emptied it."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            return _messages(spool, start)


def _messages(spool: Path, start: int) -> list[Message]:
    index = SpoolIndex(spool)
    index.refresh()
    decoder = Decoder()
    found: list[Message] = []
    for part in index.slices(start, index.end_lsn):
        data = Path(part.path).read_bytes()[part.offset : part.offset + part.length]
        while data:
            (length,) = struct.unpack_from("<I", data)
            message, data = data[4 : 4 + length], data[4 + length :]
            if message[:1] != b"H":
                found.append(decoder.decode(message[:COUNT_AT] if message[:1] == b"B" else message))
    return found


def ids(spool: Path) -> list[int]:
    return [int(bytes(m.new[0])) for m in messages(spool) if isinstance(m, Insert) and isinstance(m.new[0], bytes)]


def rows(spool: Path) -> int:
    index = SpoolIndex(spool)
    index.refresh()
    return index.rows_after(0)


def status(control: SpoolControl) -> str:
    state = control.read_state()
    return state.status if state is not None else "none"


def slot_lsn(admin: Admin, column: str = "confirmed_flush_lsn") -> int:
    row = admin.execute(f"select {column}::text from pg_replication_slots where slot_name = 's'".encode()).fetchone()
    assert row is not None
    return parse_lsn(row[0])


def confirm_all(admin: Admin, spool: Path) -> None:
    """Say that everything in the spool is delivered, and wait until PostgreSQL knows."""
    index = SpoolIndex(spool)
    index.refresh()
    state = SpoolControl(spool).read_state()
    assert state is not None
    SpoolControl(spool).confirm(WalPosition(state.timeline, index.end_lsn))
    wait_until(lambda: slot_lsn(admin) >= index.end_lsn)
