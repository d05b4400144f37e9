"""The replication connection: PostgreSQL's streaming protocol on `psycopg.pq`, without anything of ours in it."""

from __future__ import annotations

import select
import time
from dataclasses import dataclass
from typing import NoReturn

import psycopg
from psycopg import pq, sql

from headgate.model import ConnectError, Kind, StateError
from headgate.postgres.connect import connect_raw, connection_string
from headgate.postgres.continuity import BEGIN_ANEW, TimelineHistory, read_history
from headgate.postgres.errors import server_error, sqlstate_of
from headgate.wire.pgoutput import PG_EPOCH_UNIX_US, StandbyStatus, encode_status, parse_lsn
from headgate.wire.pgtypes import SESSION

__all__ = ["PublicationAway", "ReplicationConnection", "ServerIdentity"]

# Warnings carry what PostgreSQL 18 says of a publication that is not there; a role may have turned them off.
_SETTINGS = SESSION | {"client_min_messages": "warning"}
_UNDEFINED_OBJECT = "42704"
_NOT_IN_STATE = "55000"


class PublicationAway(StateError, kind=Kind.STATE):  # noqa: N818 - a fact about the stream; the reader acts on it
    """A publication does not exist where the stream stands: what it would have published is skipped."""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """Which server this is. A restored or promoted server has another system id or timeline, or has written less."""

    system_id: str
    timeline: int
    flush_lsn: int
    database: str
    database_oid: int
    version: int

    def origin(self, slot: str) -> str:
        """The first part of message ids: two slots, databases or servers never share one."""
        return f"{self.system_id}.{self.database_oid}.{slot}"


class ReplicationConnection:
    """One connection in logical replication mode. Use it from one thread."""

    def __init__(self, url: str, slot: str) -> None:
        self._slot = slot
        self._where = f"slot {slot}"
        self._pg = connect_raw(connection_string(url, f"headgate {slot}", _SETTINGS, replication="database"))
        self._pg.notice_handler = self._note
        self.skipped = ""  # what the server said of a publication that it leaves out, until somebody has read it

    @property
    def pid(self) -> int:
        """The walsender's process, as `pg_replication_slots` shows it while it streams."""
        return self._pg.backend_pid

    def identify(self) -> ServerIdentity:
        result = self._execute(b"IDENTIFY_SYSTEM")
        values = [(result.get_value(0, column) or b"").decode() for column in range(4)]
        found = self._execute(b"select oid from pg_catalog.pg_database where datname = pg_catalog.current_database()")
        oid = int((found.get_value(0, 0) or b"0").decode())
        return ServerIdentity(values[0], int(values[1]), parse_lsn(values[2]), values[3], oid, self._pg.server_version)

    def history(self, timeline: int) -> TimelineHistory:
        """The timelines that led to the server's own. The first one has none before it."""
        if timeline <= 1:
            return TimelineHistory(timeline)
        result = self._execute(b"TIMELINE_HISTORY %d" % timeline)
        return read_history(timeline, result.get_value(0, 1) or b"")

    def turn_failover_on(self) -> None:
        """For a slot that was made without it; PostgreSQL 17 and newer."""
        slot = sql.Identifier(self._slot).as_string(None)
        result = self._pg.exec_(f"ALTER_REPLICATION_SLOT {slot} (FAILOVER true)".encode())
        if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            self._fail(result)

    def start(self, publications: tuple[str, ...], *, protocol: int) -> None:
        """Begin to stream from the slot's own position: `0/0` means "where the slot stands", never "now"."""
        names = ",".join(sql.Identifier(name).as_string(None) for name in publications)
        options = f"proto_version '{protocol}', publication_names {sql.Literal(names).as_string(None)}, messages 'true'"
        if protocol >= 2:
            options += ", streaming 'on'"
        slot = sql.Identifier(self._slot).as_string(None)
        result = self._pg.exec_(f"START_REPLICATION SLOT {slot} LOGICAL 0/0 ({options})".encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            self._fail_to_start(result)

    def receive(self) -> memoryview | bytes | None:
        """One frame that has already arrived, or None. Raises when the server has ended the stream."""
        try:
            size, data = self._pg.get_copy_data(1)
        except psycopg.Error as error:
            raise self._broken(error) from None
        if size > 0:
            return data
        if size < 0:
            self._fail_while_streaming(self._pg.get_result())
        return None

    def wait(self, timeout_s: float, *others: int) -> None:
        """Wait for more bytes, for the time to pass, or until one of the other descriptors can be read."""
        ready, _, _ = select.select([self._pg.socket, *others], [], [], timeout_s)
        if self._pg.socket in ready:
            try:
                self._pg.consume_input()
            except psycopg.Error as error:
                raise self._broken(error) from None

    def send_status(self, written: int, flushed: int, *, reply: bool) -> None:
        """Tell the server how far we are; `flushed` is what the slot forgets. `reply` asks how far the server is."""
        now = time.time_ns() // 1000 - PG_EPOCH_UNIX_US
        try:
            self._pg.put_copy_data(encode_status(StandbyStatus(written, flushed, flushed, now, reply)))
            self._pg.flush()
        except psycopg.Error as error:
            raise self._broken(error) from None

    def close(self) -> None:
        self._pg.finish()

    def _note(self, notice: pq.abc.PGresult) -> None:
        """A warning in the stream. This one PostgreSQL 18 has where older versions end the stream with an error."""
        if sqlstate_of(notice) == _NOT_IN_STATE:
            self.skipped = (notice.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode("utf-8", "replace")

    def _execute(self, command: bytes) -> pq.abc.PGresult:
        result = self._pg.exec_(command)
        if result.status != pq.ExecStatus.TUPLES_OK:
            self._fail(result)
        return result

    def _broken(self, error: psycopg.Error) -> ConnectError:
        return ConnectError(
            str(error).strip() or "the connection broke", where="postgres", remedy="trying again; is PostgreSQL up?"
        )

    def _fail(self, result: pq.abc.PGresult | None) -> NoReturn:
        message = result.get_error_message() if result is not None else self._pg.get_error_message()
        raise server_error(sqlstate_of(result), message or "the server ended the stream", self._where)

    def _fail_to_start(self, result: pq.abc.PGresult) -> NoReturn:
        state = sqlstate_of(result)
        if state in (_UNDEFINED_OBJECT, _NOT_IN_STATE):
            drop = f"SELECT pg_drop_replication_slot('{self._slot}'); then {BEGIN_ANEW}"
            look = f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{self._slot}';"  # noqa: S608 - for people
            raise StateError(
                result.get_error_message().strip(),
                where=self._where,
                # A server with another wal_level, and one in recovery, say 55000 as well: the slot is good there.
                remedy=f"{look} if it is 'lost': {drop}; otherwise do what the server asks for"
                if state == _NOT_IN_STATE
                else f"the slot cannot be read any more: {drop}",
            )
        self._fail(result)

    def _fail_while_streaming(self, result: pq.abc.PGresult | None) -> NoReturn:
        """The slot is ours by now, so an object that does not exist is a publication."""
        if result is not None and sqlstate_of(result) == _UNDEFINED_OBJECT:
            raise PublicationAway(
                result.get_error_message().strip().removeprefix("ERROR:").strip().splitlines()[0],
                where=self._where,
                remedy="create it again if it is missing; before version 18, PostgreSQL cannot read what was written "
                f"while it was away: SELECT pg_drop_replication_slot('{self._slot}'); then {BEGIN_ANEW}",
            )
        self._fail(result)
