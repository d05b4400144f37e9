"""A target by its URL."""

from __future__ import annotations

from headgate.model import UsageError
from headgate.replica.target import Target

__all__ = ["open_target"]

_EXAMPLES = "sqlite:///shop.db, duckdb:///shop.duckdb or postgresql://user@host/database"


def open_target(url: str) -> Target:
    """`sqlite:///shop.db` is a file here, `sqlite:////var/shop.db` one with an absolute path; so for DuckDB."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme in ("sqlite", "duckdb"):
        path = rest.removeprefix("/")
        if not path:
            raise UsageError(f"{url} names no file", where="--target", remedy=f"write {_EXAMPLES}")
        if scheme == "sqlite":
            from headgate.replica.sqlite import SqliteTarget

            return SqliteTarget(path)
        from headgate.replica.duckdb import DuckdbTarget

        return DuckdbTarget(path)
    if separator and scheme in ("postgres", "postgresql"):
        from headgate.replica.postgres import PostgresTarget

        return PostgresTarget(url)
    raise UsageError(f"no target of the kind {scheme!r}", where="--target", remedy=f"write {_EXAMPLES}")
