"""The store in a file: SQLite with a write-ahead log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from headgate.model import CapacityError, StateError
from headgate.relay.store.backend import account_of, host_of_row, parameters, scripts, statements
from headgate.relay.store.rows import AccountRow, HostRow
from headgate.runtime.sqlite import bring_up_to_date

__all__ = ["SqliteBackend"]

# With WAL, NORMAL loses at most the last transactions when the machine dies, never the file. What is lost then is
# read again from the hosts, since their cursors are in the same file and are lost with it.
_PRAGMAS = ("journal_mode=wal", "synchronous=normal", "busy_timeout=10000", "cache_size=-65536")


class SqliteBackend:
    """See `Backend`. The connection is handed from thread to thread, but used by one at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            for pragma in _PRAGMAS:
                self._connection.execute(f"pragma {pragma}")
            bring_up_to_date(
                self._connection, scripts("sqlite"), what="the relay's accounts and hosts", where=str(path)
            )
        except sqlite3.DatabaseError as error:
            self.close()
            raise StateError(f"{path} is no store of a relay: {error}", remedy="give another path") from error
        except StateError:
            self.close()
            raise

    def accounts(self, dids: Sequence[str]) -> list[AccountRow]:
        found = (self._connection.execute(statements()["account"], {"did": did}).fetchone() for did in dids)
        return [account_of(columns) for columns in found if columns is not None]

    def list_accounts(self, after: str, count: int, *, taken_down: bool) -> list[AccountRow]:
        statement = statements()["list_taken_down" if taken_down else "list_accounts"]
        found = self._connection.execute(statement, {"after": after, "count": count})
        return [account_of(columns) for columns in found]

    def count_accounts(self) -> dict[str, int]:
        return dict(self._connection.execute(statements()["count_accounts"]).fetchall())

    def hosts(self) -> list[HostRow]:
        return [host_of_row(columns) for columns in self._connection.execute(statements()["hosts"])]

    def domain_bans(self) -> list[str]:
        return [domain for (domain,) in self._connection.execute(statements()["domain_bans"])]

    def write(self, accounts: Iterable[AccountRow], hosts: Iterable[HostRow]) -> None:
        try:
            with self._connection:
                self._connection.execute("begin immediate")
                self._connection.executemany(statements()["put_account"], map(parameters, accounts))
                self._connection.executemany(statements()["put_host"], map(parameters, hosts))
        except sqlite3.OperationalError as error:
            raise CapacityError(f"SQLite cannot write: {error}", remedy="make room on the disk") from error

    def ban_domain(self, domain: str, *, banned: bool) -> None:
        self._connection.execute(statements()["ban_domain" if banned else "unban_domain"], {"domain": domain})

    def close(self) -> None:
        self._connection.close()
