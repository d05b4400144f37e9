"""PostgreSQL's errors as ours. The SQLSTATE decides; without one nothing is known but that it may pass."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
from psycopg import pq

from headgate.model import AuthError, ConfigError, ConnectError, HeadgateError, OccupiedError, StateError

__all__ = ["postgres_error", "server_error", "sqlstate_of"]

_Make = Callable[..., HeadgateError]

_RETRIED = "trying again; is PostgreSQL up and reachable?"

# PgBouncer has one SQLSTATE for most of its errors, and says them in English alone.
_PROTOCOL_VIOLATION = "08P01"
_OF_A_POOLER = "unsupported startup parameter"
_NO_POOLER = (
    "name PostgreSQL itself in the address, not PgBouncer: replication and snapshots need sessions of their own, "
    "which a pooler does not pass on"
)

# By SQLSTATE, then by its class. What is not here may pass by itself, so it is tried again.
_KINDS: dict[str, tuple[_Make, str]] = {
    "28000": (AuthError, "check user, password and pg_hba.conf; see: headgate check"),
    "28P01": (AuthError, "check user, password and pg_hba.conf; see: headgate check"),
    "42501": (AuthError, "the role lacks a right; to read changes it needs: ALTER ROLE your_role REPLICATION;"),
    "3D000": (ConnectError, "trying again; create the database, or correct its name in the address"),
    "53300": (ConnectError, "trying again; raise max_connections, max_wal_senders or the role's CONNECTION LIMIT"),
    "53400": (OccupiedError, "raise max_replication_slots, or drop an unused slot"),
    "55P03": (
        ConnectError,
        "trying again; end the ALTER TABLE or VACUUM FULL that holds the table or waits for it",
    ),
    "55006": (ConnectError, "another reader holds the slot; waiting for it to let go"),
    "25006": (ConnectError, "trying again; this server is a standby: waiting until it, or another one, is the primary"),
    "58P01": (StateError, "the slot's WAL is gone; drop the slot, then: headgate reset PIPELINE"),
    "22P05": (StateError, "the database holds text that UTF-8 has no character for; convert it to UTF-8"),
    "22021": (StateError, "the database holds bytes that are no UTF-8; mend these values"),
}


def postgres_error(error: psycopg.Error, where: str) -> HeadgateError:
    """An error of psycopg as ours."""
    return server_error(error.diag.sqlstate or "", error.diag.message_primary or str(error), where)


def sqlstate_of(result: pq.abc.PGresult | None) -> str:
    """The SQLSTATE of a result; empty if there is none."""
    return ((result.error_field(pq.DiagnosticField.SQLSTATE) if result is not None else None) or b"").decode()


def server_error(sqlstate: str, text: str, where: str, *, remedy: str = "") -> HeadgateError:
    """What a server answered, as the error whose kind says what happens next."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    message = "; ".join(lines[-2:]) if lines else "no answer from PostgreSQL"
    if sqlstate == _PROTOCOL_VIOLATION and _OF_A_POOLER in message:
        return ConfigError(f"a connection pooler answers: {message}", where=where, remedy=_NO_POOLER)
    make, known = _KINDS.get(sqlstate, (ConnectError, _RETRIED))
    return make(message, where=where, remedy=remedy or known)
