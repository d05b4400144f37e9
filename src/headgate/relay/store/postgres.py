"""The store in PostgreSQL. A connection that broke is opened again by the next call."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from headgate.model import ConnectError
from headgate.postgres import open_connection
from headgate.postgres.migrations import Plan, migrate, numbered_steps
from headgate.relay.store.backend import account_of, folder, host_of_row, parameters, statements
from headgate.relay.store.rows import AccountRow, HostRow

__all__ = ["PostgresBackend"]

_PARAMETER = re.compile(r":(\w+)")

T = TypeVar("T")


class PostgresBackend:
    """See `Backend`."""

    def __init__(self, url: str, schema_name: str) -> None:
        self._url, self._schema = url, schema_name
        self._plan = Plan(schema_name, numbered_steps(folder("postgres")), f"headgate relay {schema_name}")
        self._statements = {name: _PARAMETER.sub(r"%(\1)s", text).encode() for name, text in statements().items()}
        self._connection: psycopg.Connection | None = None
        self._run(lambda connection: None)

    def accounts(self, dids: Sequence[str]) -> list[AccountRow]:
        return [account_of(columns) for columns in self._fetch("accounts", dids=list(dids))]

    def list_accounts(self, after: str, count: int, *, taken_down: bool) -> list[AccountRow]:
        name = "list_taken_down" if taken_down else "list_accounts"
        return [account_of(columns) for columns in self._fetch(name, after=after, count=count)]

    def count_accounts(self) -> dict[str, int]:
        return dict(self._fetch("count_accounts"))

    def hosts(self) -> list[HostRow]:
        return [host_of_row(columns) for columns in self._fetch("hosts")]

    def domain_bans(self) -> list[str]:
        return [domain for (domain,) in self._fetch("domain_bans")]

    def write(self, accounts: Iterable[AccountRow], hosts: Iterable[HostRow]) -> None:
        account_values, host_values = list(map(parameters, accounts)), list(map(parameters, hosts))

        def put(connection: psycopg.Connection) -> None:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany(self._statements["put_account"], account_values)
                cursor.executemany(self._statements["put_host"], host_values)

        self._run(put)

    def ban_domain(self, domain: str, *, banned: bool) -> None:
        statement = self._statements["ban_domain" if banned else "unban_domain"]
        self._run(lambda connection: connection.execute(statement, {"domain": domain}))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _fetch(self, name: str, **values: Any) -> list[Any]:
        return self._run(lambda connection: connection.execute(self._statements[name], values).fetchall())

    def _run(self, work: Callable[[psycopg.Connection], T]) -> T:
        """Do it; once more when only the connection was broken. Every statement here may be run twice."""
        try:
            try:
                return work(self._connected())
            except (psycopg.OperationalError, psycopg.InterfaceError):
                self.close()
                return work(self._connected())
        except psycopg.Error as error:
            raise ConnectError(
                f"PostgreSQL does not do its part: {error}", where="relay store", remedy="check the address and rights"
            ) from None

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            connection = open_connection(self._url, "headgate relay")
            try:
                migrate(connection, self._plan)
                path = sql.SQL("set search_path = {}, pg_temp").format(sql.Identifier(self._schema))
                connection.execute(path)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection
