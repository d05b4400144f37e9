"""The reader: one process per slot that holds START_REPLICATION, answers keepalives and fills the spool.

It does nothing else, so that neither Spark nor a slow destination can make PostgreSQL wait for an answer. It starts
where the slot stands, reconnects for ever, and tells the server only what the pipeline has confirmed. While nothing is
in flight it confirms the server's own position, so that an idle publication pins no WAL. Before it confirms anything,
server, timeline and slot are compared with what is remembered (`lineage`): a gap is refused or told, never passed.

Run as `python -m headgate.sources.postgres_cdc.reader`, with its options as JSON on standard input; it ends when
that input closes, so that it never outlives the process that started it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import psycopg

from headgate.model import HeadgateError, OccupiedError, Retry
from headgate.postgres import connect, postgres_error
from headgate.postgres.replication import PublicationAway, ReplicationConnection, ServerIdentity
from headgate.postgres.slot import emit_heartbeat
from headgate.runtime.failpoints import failpoint
from headgate.runtime.file_lock import FileLock
from headgate.sources.postgres_cdc.control import ReaderState, SpoolControl
from headgate.sources.postgres_cdc.intake import Intake
from headgate.sources.postgres_cdc.knowledge import Catalog, Knowledge
from headgate.sources.postgres_cdc.lineage import Lineage
from headgate.sources.postgres_cdc.serving import SpoolServer
from headgate.sources.postgres_cdc.spool import SpoolWriter
from headgate.spool.dead_letters import DeadLetters

__all__ = ["Reader", "ReaderOptions", "main"]

_XLOG_DATA = ord("w")
_COMMITS = b"Cc"  # where nothing is half received
_KEEPALIVE = struct.Struct("!cQqB")
_XLOG_HEAD = struct.Struct("!cQQq")
_HEAD = _XLOG_HEAD.size
_LSN = struct.Struct("!Q")

_STATUS_S = 1.0  # how often confirmed positions are passed on; keepalives are answered at once
_CONFIRM_S = 0.5
_LEAST_REST_S = 0.01
_FULL_S = 0.05  # between two looks at a spool that is full
_FRAMES_PER_TURN = 4096
_BACKOFF_FIRST_S = 0.2
_BACKOFF_MOST_S = 10.0


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """What a reader needs to know. Travels as JSON on standard input, never on the command line."""

    url: str
    slot: str
    publications: tuple[str, ...]
    spool: str
    max_spool_bytes: int = 1 << 30
    protocol: int = 2
    failover: bool = False
    create_publication_for: tuple[str, ...] = ()
    serve_on: str = ""  # an address to serve the spool on; empty: executors see its files
    dead_letters: str = ""  # where rows are kept that such executors hand over, and how many
    max_dead_letters: int = 0
    max_dead_letter_bytes: int = 0
    heartbeat_ms: int = 0  # how often to write a message into the WAL that comes back as a heartbeat; 0: never

    def __repr__(self) -> str:
        return f"ReaderOptions(slot={self.slot!r}, publications={self.publications!r})"


class Reader:
    """Streams one slot into one spool until told to stop."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._directory = Path(options.spool)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = _hold(self._directory)
        self._control = SpoolControl(self._directory)
        self._server = _served(options, self._directory) if options.serve_on else None
        self._state = ReaderState(pid=os.getpid(), served=self._server.served if self._server else None)
        self._lineage = Lineage(self._control, options.url, options.slot, options.publications)
        self._spool: SpoolWriter | None = None
        self._flushed = 0  # what PostgreSQL was told
        self._told_at = 0.0
        self._beat_at = time.monotonic()
        self.stopping = False

    def run(self) -> None:
        """Connect, stream, and on a lost connection do it again, for ever."""
        backoff_s = _BACKOFF_FIRST_S
        while not self.stopping:
            began = time.monotonic()
            try:
                self._try_stream()
            except HeadgateError as error:
                if not self._may_pass(error):
                    self._tell(status="error", error=error.as_dict())
                    raise
                self._tell(status="reconnecting", error=error.as_dict())
            if time.monotonic() - began > _BACKOFF_MOST_S:
                backoff_s = _BACKOFF_FIRST_S
            self._pause(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_MOST_S)
        self._tell(status="stopped", error=None)

    def _may_pass(self, error: HeadgateError) -> bool:
        """Whether to try again. A publication that was there before may come back, and nothing is confirmed till then.

        Before version 18 PostgreSQL cannot read what was written while it was away, so that waiting ends once it is
        back and all that came before it is delivered.
        """
        if isinstance(error, PublicationAway) and self._lineage.memory is not None:
            is_behind = self._spool is not None and self._spool.end_lsn > self._lineage.confirmed_lsn
            return self._state.server_version >= 180000 or is_behind or self._lineage.publication_is_away()
        return error.retry is Retry.BACKOFF

    def _try_stream(self) -> None:
        """What the server answers to a question about the slot or the catalog is an error like any other."""
        try:
            self._stream()
        except psycopg.Error as error:
            raise postgres_error(error, f"slot {self._options.slot}") from None

    def _stream(self) -> None:
        options = self._options
        link = ReplicationConnection(options.url, options.slot)
        knowledge = Knowledge(self._directory, Catalog(options.url, options.publications))
        try:
            server, slot_lsn = self._lineage.open(
                link,
                protocol=options.protocol,
                failover=options.failover,
                create_publication_for=options.create_publication_for,
            )
            knowledge.open(slot_lsn, self._lineage.forked_at)
            # PostgreSQL sends again from the slot's position, so the spool begins again there, too.
            self._spool = spool = SpoolWriter(self._directory)
            self._flushed = slot_lsn
            self._note_server(server, slot_lsn)
            try:
                beats = options.slot if options.heartbeat_ms else ""
                self._pump(link, Intake(spool, knowledge, self._lineage.see, beats))
            finally:
                spool.close()
        finally:
            knowledge.close()
            link.close()
            self._state = replace(self._state, reconnects_total=self._state.reconnects_total + 1)

    def _note_server(self, server: ServerIdentity, slot_lsn: int) -> None:
        memory, history = self._lineage.memory, self._lineage.history
        assert memory is not None
        self._tell(
            status="streaming",
            error=None,
            origin=server.origin(self._options.slot),
            database=server.database,
            server_version=server.version,
            timeline=history.current,
            timeline_ends=history.ends,
            began_lsn=memory.began_lsn,
            start_lsn=slot_lsn,
            received_lsn=slot_lsn,
            server_lsn=max(server.flush_lsn, slot_lsn),
        )

    def _pump(self, link: ReplicationConnection, intake: Intake) -> None:
        while not self.stopping:
            if self._full(intake):
                self._hold_back(link, intake)
                continue
            intake.look()
            self._beat()
            drained = self._take_frames(link, intake)
            now = time.monotonic()
            if drained or now - self._told_at >= _STATUS_S:
                assert self._spool is not None
                self._spool.flush()
                if intake.changes_total:
                    failpoint("reader.spooled")
                self._report(link, intake, force=now - self._told_at >= _STATUS_S)
            if drained:
                link.wait(self._rest_s(), sys.stdin.fileno())
                self._pause(0)
        self._report(link, intake, force=True)

    def _rest_s(self) -> float:
        """How long there is nothing to do unless something comes."""
        status_s = self._told_at + _STATUS_S - time.monotonic()
        return max(min(status_s, self._options.heartbeat_ms / 1000 or status_s), _LEAST_REST_S)

    def _beat(self) -> None:
        """A heartbeat comes through the stream like everything else: in order, once, and behind what was before it."""
        interval_s = self._options.heartbeat_ms / 1000
        if not interval_s or time.monotonic() - self._beat_at < interval_s:
            return
        self._beat_at = time.monotonic()
        with connect(self._options.url) as catalog:
            emit_heartbeat(catalog, self._options.slot)

    def _take_frames(self, link: ReplicationConnection, intake: Intake) -> bool:
        """Take what has arrived; True when there is no more for now."""
        receive, take = link.receive, intake.take
        for _ in range(_FRAMES_PER_TURN):
            frame = receive()
            if link.skipped:
                skipped, link.skipped = link.skipped, ""
                at = self._state.received_lsn if frame is None else _LSN.unpack_from(frame, 1)[0]
                self._lineage.publication_skipped(skipped, at)
            if frame is None:
                return True
            if frame[0] == _XLOG_DATA:
                take(frame[_HEAD:], _LSN.unpack_from(frame, 1)[0])
                if frame[_HEAD] in _COMMITS and self._full(intake):
                    return False
            else:
                self._keepalive(link, intake, frame)
        return False

    def _keepalive(self, link: ReplicationConnection, intake: Intake, frame: memoryview | bytes) -> None:
        _, wal_end, _, reply = _KEEPALIVE.unpack(frame)
        self._state = replace(self._state, server_lsn=wal_end)
        if intake.idle:
            self._state = replace(self._state, received_lsn=max(self._state.received_lsn, wal_end))
        if reply:
            assert self._spool is not None
            self._spool.flush()
            self._report(link, intake, force=True, replying=True)

    def _report(self, link: ReplicationConnection, intake: Intake, *, force: bool, replying: bool = False) -> None:
        """Pass confirmed positions on to PostgreSQL, free the spool, and write down how we are doing."""
        spool = self._spool
        assert spool is not None
        confirmed = self._lineage.confirmed_lsn
        if confirmed >= spool.end_lsn and intake.idle:
            # Nothing is in flight: what the server has sent without rows for us is done with, too.
            confirmed = max(confirmed, self._state.received_lsn)
        # What is confirmed must be on disk first, and a busy disk would hold up the rows that come meanwhile.
        is_due = force or time.monotonic() - self._told_at >= _CONFIRM_S
        moved = is_due and confirmed > self._flushed
        if not (moved or force):
            return
        if moved:
            failpoint("reader.confirming")
            self._lineage.confirm(confirmed)
            self._flushed = confirmed
            spool.release(confirmed)
        received = max(self._state.received_lsn, spool.end_lsn, self._flushed)
        link.send_status(received, self._flushed, reply=force and not replying)
        self._told_at = time.monotonic()
        self._tell(
            status="streaming",
            error=None,
            received_lsn=received,
            confirmed_lsn=self._flushed,
            transactions_total=intake.transactions_total,
            changes_total=intake.changes_total,
        )

    def _full(self, intake: Intake) -> bool:
        """Too much is waiting; but what is half received must be let in, or it would never end."""
        spool = self._spool
        assert spool is not None
        if spool.held_bytes <= self._options.max_spool_bytes or not intake.idle:
            return False
        return spool.end_lsn > self._lineage.confirmed_lsn

    def _hold_back(self, link: ReplicationConnection, intake: Intake) -> None:
        """Leave the rest in PostgreSQL until the pipeline confirms, and keep the connection alive meanwhile."""
        assert self._spool is not None
        self._spool.flush()  # the pipeline can confirm only what it sees
        self._report(link, intake, force=time.monotonic() - self._told_at >= _STATUS_S)
        self._tell(status="waiting", error=None)
        self._pause(_FULL_S)

    def _tell(self, **changes: object) -> None:
        spool = self._spool
        self._state = replace(
            self._state,
            updated_at=time.time(),
            spool_end_lsn=spool.end_lsn if spool else 0,
            spool_bytes=spool.held_bytes if spool else 0,
            **changes,  # type: ignore[arg-type]
        )
        self._control.write_state(self._state)

    def _pause(self, seconds: float) -> None:
        """Wait, but end at once when standard input closes: whoever started us is gone."""
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        if ready and not os.read(sys.stdin.fileno(), 4096):
            self.stopping = True


def _served(options: ReaderOptions, directory: Path) -> SpoolServer:
    letters = None
    if options.dead_letters:
        limits = {"max_rows": options.max_dead_letters, "max_bytes": options.max_dead_letter_bytes}
        letters = DeadLetters(Path(options.dead_letters), **limits)
    return SpoolServer(directory, options.serve_on, letters)


def _hold(directory: Path) -> FileLock:
    """The lock that says: this spool has a living reader."""
    lock = FileLock(directory / "lock")
    if not lock.acquire():
        raise OccupiedError(
            "another reader fills this spool", where=str(directory), remedy="stop it, or use another data directory"
        )
    return lock


def _first_line(descriptor: int) -> bytes:
    """Read unbuffered: whatever a buffer took from the pipe would hide its end from `select`."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            break
        line += byte
    return line


def main() -> None:
    """Entry point of the process: options as one JSON line, then run until that input closes or a signal comes."""
    fields = json.loads(_first_line(sys.stdin.fileno()))
    reader = Reader(msgspec.convert(fields, ReaderOptions))

    def stop(*_: object) -> None:
        reader.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pipeline, which stops us in its turn
    try:
        reader.run()
    except HeadgateError:
        sys.exit(1)  # the state file says why


if __name__ == "__main__":
    main()
