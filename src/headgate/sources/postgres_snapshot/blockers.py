"""What keeps a point from being taken: transactions that are writing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from headgate.model import ConnectError
from headgate.postgres import Connection

__all__ = ["RunningTransaction", "blocked", "running_transactions"]

_MOST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class RunningTransaction:
    """A transaction with an id. Ages are None where this role may not see them, and for a prepared transaction."""

    xid: str
    database: str | None
    pid: int | None
    prepared: str | None
    age_s: float | None
    query_age_s: float | None
    state: str | None

    def __str__(self) -> str:
        if self.prepared is not None:
            return f"prepared transaction {self.prepared!r}"
        age = "" if self.age_s is None else f", open for {self.age_s:.1f} s"
        query = "" if self.query_age_s is None else f", last query began {self.query_age_s:.1f} s ago"
        return f"pid {self.pid}{f' ({self.state})' if self.state else ''}{age}{query}"


def running_transactions(connection: Connection) -> list[RunningTransaction]:
    """All of the server, oldest first. Any role may see who they are."""
    query = resources.files("headgate.sources.postgres_snapshot").joinpath("running.sql").read_bytes()
    return [RunningTransaction(**row) for row in connection.execute(query)]


def blocked(running: Sequence[RunningTransaction], timeout_s: float) -> ConnectError:
    """The error, with names."""
    shown = "; ".join(str(each) for each in running[:_MOST_SHOWN]) or "unknown, they have just ended"
    more = f"; and {len(running) - _MOST_SHOWN} more" if len(running) > _MOST_SHOWN else ""
    pids = [each.pid for each in running if each.pid is not None]
    end = f": SELECT pg_terminate_backend({pids[0]});" if pids else ""
    return ConnectError(
        f"no consistent point within {timeout_s:g} s, because transactions stay open: {shown}{more}",
        where="snapshot",
        remedy=f"commit or end them{end} or allow more time",
    )
