"""What a database must do for the store, and the statements that all of them share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Protocol

from headgate.relay.store.rows import AccountRow, HostRow, HostStatus

__all__ = ["Backend", "account_of", "folder", "host_of_row", "parameters", "scripts", "statements"]

_SQL = resources.files(__package__).joinpath("sql")
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


class Backend(Protocol):
    """One database, used by one thread. Whatever breaks on the way there raises ConnectError."""

    def accounts(self, dids: Sequence[str]) -> list[AccountRow]: ...

    def list_accounts(self, after: str, count: int, *, taken_down: bool) -> list[AccountRow]: ...

    def count_accounts(self) -> dict[str, int]: ...

    def hosts(self) -> list[HostRow]: ...

    def domain_bans(self) -> list[str]: ...

    def write(self, accounts: Iterable[AccountRow], hosts: Iterable[HostRow]) -> None:
        """All of it in one transaction."""
        ...

    def ban_domain(self, domain: str, *, banned: bool) -> None: ...

    def close(self) -> None: ...


def folder(name: str) -> Traversable:
    """Where the steps are that make the tables in a database of this kind."""
    return _SQL.joinpath(name)


def scripts(name: str) -> list[str]:
    """Return the numbered steps of the schema, in order."""
    return [each.read_text("utf-8") for each in sorted(folder(name).iterdir(), key=lambda each: each.name)]


@cache
def statements() -> dict[str, str]:
    """The statements by name, as they are written in the file."""
    _, *parts = _NAME.split(_SQL.joinpath("queries.sql").read_text("utf-8"))
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def parameters(row: AccountRow | HostRow) -> dict[str, Any]:
    """The columns of a row; truth is a number in both databases."""
    return {name: int(value) if isinstance(value, bool) else value for name, value in asdict(row).items()}


def account_of(columns: Sequence[Any]) -> AccountRow:
    did, host, rev, data, head, active, status, local_status = columns
    return AccountRow(did, host, rev, data, head, bool(active), status, local_status)


def host_of_row(columns: Sequence[Any]) -> HostRow:
    hostname, status, cursor, count, limit, trusted, failures, last_seen, added_at = columns
    return HostRow(hostname, HostStatus(status), cursor, count, limit, bool(trusted), failures, last_seen, added_at)
