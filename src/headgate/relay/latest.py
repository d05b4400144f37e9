"""The last events of the log, in a line each, for those who watch."""

from __future__ import annotations

from typing import Any

from headgate.eventlog.reader import LogReader
from headgate.wire.atproto import Account, AtprotoError, Commit, Frame, Identity, Sync, read_event, read_frame
from headgate.wire.atproto.logged import frame_of

__all__ = ["latest_events"]


def latest_events(reader: LogReader, count: int = 8) -> list[dict[str, Any]]:
    """The newest first."""
    records = [record for batch in reader.read(max(0, reader.head_seq - count)) for record in batch]
    frames = [read_frame(frame_of(record.payload)) for record in reversed(records)]
    return [{"seq": frame.seq, "did": frame.did, "says": _gist(frame)} for frame in frames]


def _gist(frame: Frame) -> str:
    try:
        event = read_event(frame)
    except AtprotoError as error:  # of an older version of the relay, which was less strict
        return error.message
    match event:
        case Commit():
            return ", ".join(f"{op.action} {op.path}" for op in event.ops[:3]) or "an empty commit"
        case Account():
            return "is active" if event.active else f"is {event.status or 'not active'}"
        case Identity():
            return f"is {event.handle}" if event.handle else "has changed"
        case Sync():
            return f"is at {event.rev}"
        case _:
            return ""
