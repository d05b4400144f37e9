"""The database of `headgate broker`: found, opened, looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any

import psycopg
import typer
from psycopg import sql
from psycopg.rows import dict_row
from rich.table import Table
from rich.text import Text

from headgate.broker import DEFAULT_SCHEMA, Subscription, installed
from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_json
from headgate.config import DEFAULT_FILE, Config, load
from headgate.config.needs import Needs
from headgate.control.stack import open_stack
from headgate.model import ConnectError, StateError
from headgate.postgres import open_connection

__all__ = [
    "SchemaOption",
    "UrlOption",
    "add_listing",
    "connected",
    "database_of",
    "installed_broker",
    "show_rows",
    "subscription_to",
]

UrlOption = Annotated[
    str | None, typer.Option("--postgres", help="The database.", show_default="that of the configuration")
]
SchemaOption = Annotated[str, typer.Option("--schema", help="The broker's schema.")]


def show_rows(
    config: Any, postgres: str | None, schema: str, query: str, as_json: bool, values: Mapping[str, Any] | None = None
) -> None:
    """What a query finds, as a table or as JSON."""
    with installed_broker(config, postgres, schema) as connection, connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(query.encode(), values).fetchall()
    if as_json:
        print_json(rows)
        return
    if not rows:
        note("there are none")
        return
    table = Table(*rows[0], box=None)
    for row in rows:
        # As text: conditions have square brackets, which would be taken for markup.
        table.add_row(*(Text("" if value is None else str(value)) for value in row.values()))
    data_console.print(table)


def add_listing(app: typer.Typer, name: str, text: str, query: str) -> None:
    """Add a command that shows what a query finds."""

    @app.command(name, help=text)
    def listing(
        config: ConfigOption = None,
        postgres: UrlOption = None,
        schema: SchemaOption = DEFAULT_SCHEMA,
        as_json: JsonOption = False,
    ) -> None:
        show_rows(config, postgres, schema, query, as_json)


def subscription_to(topics: Sequence[str], expiry: timedelta | None = None) -> Subscription:
    """To topics as a person writes them: some may be patterns."""
    if any(word in ("*", ">") for topic in topics for word in topic.split(".")):
        return Subscription.to_patterns(*topics, expiry=expiry)
    return Subscription.to_topics(*topics, expiry=expiry)


@contextmanager
def database_of(config: Any, postgres: str | None) -> Iterator[str]:
    """The database that was named, or that of the configuration; the embedded one is started if it does not run."""
    if postgres is not None:
        yield postgres
        return
    loaded = load(config) if config or DEFAULT_FILE.exists() else Config()
    stack, endpoints = open_stack(loaded, Needs(postgres=loaded.broker.url is None, nats=False))
    try:
        own = loaded.broker.url
        yield own.get_secret_value() if own else endpoints.postgres_url or loaded.postgres.url.get_secret_value()
    finally:
        if stack is not None:
            stack.stop()


@contextmanager
def connected(config: Any, postgres: str | None) -> Iterator[psycopg.Connection]:
    """Connect to the broker's database; raise `ConnectError` if it does not answer."""
    with database_of(config, postgres) as url:
        try:
            with open_connection(url, "headgate broker") as connection:
                yield connection
        except psycopg.OperationalError as error:
            raise ConnectError(
                f"PostgreSQL does not answer: {error}", where="postgres", remedy="check the address, and that it runs"
            ) from None


@contextmanager
def installed_broker(config: Any, postgres: str | None, schema: str) -> Iterator[psycopg.Connection]:
    """Connect with the broker's schema in `search_path`; raise if there is no broker in it."""
    with connected(config, postgres) as connection:
        if not installed(connection, schema):
            raise StateError(f"there is no broker in the schema {schema}", remedy="headgate broker install")
        connection.execute(sql.SQL("set search_path = {}, pg_temp").format(sql.Identifier(schema)))
        yield connection
