"""The replication connection: PostgreSQL's streaming protocol on `psycopg.pq`, without anything of ours in it."""

from __future__ import annotations

import select
import time
from dataclasses import dataclass
from typing import NoReturn

import psycopg
from psycopg import conninfo, pq, sql

from headgate.model import AuthError, ConnectError, HeadgateError, OccupiedError, StateError
from headgate.wire.pgoutput import PG_EPOCH_UNIX_US, StandbyStatus, encode_status
from headgate.wire.pgtypes import SESSION

__all__ = ["ReplicationConnection", "ServerIdentity", "connect_error"]

_CONNECT_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """Which server this is. A restored or promoted server has another system id or timeline."""

    system_id: str
    timeline: int
    database: str
    version: int


class ReplicationConnection:
    """One connection in logical replication mode. Use it from one thread."""

    def __init__(self, url: str, slot: str) -> None:
        self._slot = slot
        settings = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
        text = conninfo.make_conninfo(
            url,
            replication="database",
            application_name=f"headgate {slot}",
            connect_timeout=_CONNECT_TIMEOUT_S,
            options=settings,
            # A dead network is noticed in half a minute, not in the hours that TCP takes by default.
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
        )
        self._pg = pq.PGconn.connect(text.encode())
        if self._pg.status != pq.ConnStatus.OK:
            message = self._pg.get_error_message()
            self._pg.finish()
            raise connect_error(message, "postgres")

    def identify(self) -> ServerIdentity:
        result = self._execute(b"IDENTIFY_SYSTEM")
        values = [(result.get_value(0, column) or b"").decode() for column in range(4)]
        return ServerIdentity(values[0], int(values[1]), values[3], self._pg.server_version)

    def start(self, publications: tuple[str, ...], *, protocol: int) -> None:
        """Begin to stream from the slot's own position: `0/0` means "where the slot stands", never "now"."""
        names = ",".join(sql.Identifier(name).as_string(None) for name in publications)
        options = f"proto_version '{protocol}', publication_names {sql.Literal(names).as_string(None)}, messages 'true'"
        if protocol >= 2:
            options += ", streaming 'on'"
        slot = sql.Identifier(self._slot).as_string(None)
        result = self._pg.exec_(f"START_REPLICATION SLOT {slot} LOGICAL 0/0 ({options})".encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            self._fail(result)

    def receive(self) -> memoryview | bytes | None:
        """One frame that has already arrived, or None. Raises when the server has ended the stream."""
        try:
            size, data = self._pg.get_copy_data(1)
        except psycopg.Error as error:
            raise connect_error(str(error), "postgres") from None
        if size > 0:
            return data
        if size < 0:
            self._fail(self._pg.get_result())
        return None

    def wait(self, timeout_s: float) -> None:
        """Wait for more bytes, or for the time to pass."""
        ready, _, _ = select.select([self._pg.socket], [], [], timeout_s)
        if ready:
            try:
                self._pg.consume_input()
            except psycopg.Error as error:
                raise connect_error(str(error), "postgres") from None

    def send_status(self, written: int, flushed: int, *, reply: bool) -> None:
        """Tell the server how far we are; `flushed` is what the slot forgets. `reply` asks how far the server is."""
        now = time.time_ns() // 1000 - PG_EPOCH_UNIX_US
        try:
            self._pg.put_copy_data(encode_status(StandbyStatus(written, flushed, flushed, now, reply)))
            self._pg.flush()
        except psycopg.Error as error:
            raise connect_error(str(error), "postgres") from None

    def close(self) -> None:
        self._pg.finish()

    def _execute(self, command: bytes) -> pq.abc.PGresult:
        result = self._pg.exec_(command)
        if result.status != pq.ExecStatus.TUPLES_OK:
            self._fail(result)
        return result

    def _fail(self, result: pq.abc.PGresult | None) -> NoReturn:
        message = result.get_error_message() if result is not None else self._pg.get_error_message()
        raise connect_error(message or "the server ended the stream", f"slot {self._slot}")


def connect_error(text: str, where: str) -> HeadgateError:
    """PostgreSQL's words, sorted by what has to happen next."""
    message = text.strip().splitlines()[-1] if text.strip() else "no answer from PostgreSQL"
    lower = text.lower()
    if "is active for pid" in lower:
        return ConnectError(message, where=where, remedy="another reader holds the slot; waiting for it to let go")
    if "does not exist" in lower and "slot" in lower:
        return StateError(
            message, where=where, remedy="the slot was dropped: changes since then are lost; see docs/cdc.md"
        )
    if "can no longer" in lower or "invalidated" in lower or "requested wal segment" in lower:
        return StateError(message, where=where, remedy="the slot is lost; drop it, reset the pipeline and start anew")
    if "password" in lower or "authentication" in lower or "pg_hba" in lower or "role" in lower:
        return AuthError(message, where=where, remedy="check user, password and pg_hba.conf; see: headgate check")
    if "permission denied" in lower or "must be superuser or replication" in lower:
        return AuthError(message, where=where, remedy="ALTER ROLE your_role REPLICATION; see: headgate check")
    if "all replication slots are in use" in lower:
        return OccupiedError(message, where=where, remedy="raise max_replication_slots, or drop an unused slot")
    if "logical decoding requires" in lower or "wal_level" in lower:
        return StateError(
            message, where=where, remedy="ALTER SYSTEM SET wal_level = 'logical'; then restart PostgreSQL"
        )
    return ConnectError(message, where=where, remedy="trying again; is PostgreSQL up and reachable?")
