"""`headgate broker`: the message broker in a database. Install it, publish, follow topics, look after groups."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any
from uuid import uuid4

import psycopg
import typer
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from rich.table import Table
from rich.text import Text

from headgate import broker as made_of_sql
from headgate.broker import BrokerClient, Event, Subscription
from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_json
from headgate.config import DEFAULT_FILE, Config, load
from headgate.control.service import open_stack
from headgate.model import ConnectError, StateError, UsageError

__all__ = ["broker"]

broker = typer.Typer(
    help="A message broker made of SQL, in your database: install it, publish, follow topics, look after groups.",
    no_args_is_help=True,
)

UrlOption = Annotated[
    str | None, typer.Option("--postgres", help="The database.", show_default="that of the configuration")
]
SchemaOption = Annotated[str, typer.Option("--schema", help="The broker's schema.")]
_DEFAULT = made_of_sql.DEFAULT_SCHEMA
_TAIL_EXPIRY = timedelta(minutes=1)


@broker.command()
def install(config: ConfigOption = None, postgres: UrlOption = None, schema: SchemaOption = _DEFAULT) -> None:
    """Make the broker's schema, or bring it up to date. May be repeated at any time.

    Example: headgate broker install --postgres postgres://localhost/shop
    """
    with _connected(config, postgres) as connection:
        done = made_of_sql.install(connection, schema)
    note(f"{schema}: {len(done)} steps" if done else f"{schema}: nothing to do")


broker.command("upgrade", help="The same as install.")(install)


@broker.command()
def uninstall(
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = _DEFAULT,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove the broker with all its events."""
    if not yes:
        typer.confirm(f"Remove the schema {schema} with all events?", abort=True)
    with _connected(config, postgres) as connection:
        was_there = made_of_sql.uninstall(connection, schema)
    note(f"{schema}: removed" if was_there else f"{schema}: there is no broker")


@broker.command()
def publish(
    topic: Annotated[str, typer.Argument(help="The event's topic.")],
    payload: Annotated[str, typer.Argument(help="The event, as JSON.")] = "{}",
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = _DEFAULT,
) -> None:
    """Publish one event; prints its id.

    Example: headgate broker publish user.created '{"name": "ann"}'
    """
    try:
        event = json.loads(payload)
    except ValueError as error:
        raise UsageError(f"the payload is not JSON: {error}", remedy='quote it: \'{"name": "ann"}\'') from None
    with _installed(config, postgres, schema) as connection:
        row = connection.execute("select publish(%s, %s)", [topic, Jsonb(event)]).fetchone()
    assert row is not None
    typer.echo(row[0])


@broker.command()
def tail(
    topics: Annotated[list[str], typer.Argument(help="Topics to follow.")],
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = _DEFAULT,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="End after so many events; 0: never.")] = 0,
) -> None:
    """Print the events of some topics as they come, one JSON object a line, until Ctrl-C.

    It is a group of its own, and forgotten a minute after it ends.

    Example: headgate broker tail user.created user.deleted
    """
    with _database(config, postgres) as url:
        with _installed(config, url, schema):
            pass
        asyncio.run(_follow(url, schema, topics, count))


async def _follow(url: str, schema: str, topics: Sequence[str], count: int) -> None:
    ended = asyncio.Event()
    seen = 0

    async def show(events: Sequence[Event]) -> None:
        nonlocal seen
        for event in events:
            if count and seen >= count:
                return
            shown = {"id": event.id, "topic": event.topic, "at": event.at, "payload": event.payload}
            typer.echo(json.dumps(shown, default=str))
            seen += 1
        if count and seen >= count:
            ended.set()

    async with BrokerClient(url, group=f"tail-{uuid4().hex[:12]}", schema=schema) as client:
        wanted = Subscription.to_topics(*topics, expiry=_TAIL_EXPIRY)
        await client.register_reliable_handler(wanted, show, name="tail")
        note(f"following {', '.join(topics)}; Ctrl-C ends it")
        work = asyncio.create_task(client.run())
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
        for task in (work, waiting):
            task.cancel()
        await asyncio.gather(work, waiting, return_exceptions=True)


@broker.command()
def groups(
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = _DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show the groups: how far each has read, how far it is behind, and who reads for it."""
    query = 'select group_id, subscriptions, "cursor", behind, owner, overrun_at from group_status order by 1'
    _show(config, postgres, schema, query, as_json)


broker.command("lag", help="The same as groups.")(groups)


@broker.command()
def subscriptions(
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = _DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show the subscriptions: conditions, when they were last active, and conditions that fail."""
    query = (
        "select id, group_id, conditions_sql, params, last_active_at, expired_at, parked_error"
        " from subscription_status order by group_id, id"
    )
    _show(config, postgres, schema, query, as_json)


@broker.command()
def replay(
    group: Annotated[str, typer.Argument(help="The group.")],
    cursor: Annotated[int, typer.Argument(help="The position after which it is to read on; 0 is the beginning.")],
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = _DEFAULT,
) -> None:
    """Set a group back, or forward, to a position; what is still kept after it is delivered again.

    Example: headgate broker replay mailer 0
    """
    with _installed(config, postgres, schema) as connection:
        known = connection.execute("select 1 from subscription_groups where id = %s", [group]).fetchone()
        if known is None:
            raise UsageError(f"there is no group {group}", remedy="headgate broker groups")
        connection.execute("select seek(%s, %s)", [group, cursor])
    note(f"{group} reads on after {cursor}")


@broker.command()
def maintain(
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = _DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Make and drop partitions, and let go of what has expired. Running clients do this by themselves."""
    with _installed(config, postgres, schema) as connection, connection.cursor(row_factory=dict_row) as cursor:
        done = cursor.execute("select * from maintain()").fetchone() or {}
    if as_json:
        print_json(done)
    else:
        note(", ".join(f"{key} {value}" for key, value in done.items()))


def _show(config: Any, postgres: str | None, schema: str, query: str, as_json: bool) -> None:
    with _installed(config, postgres, schema) as connection, connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(query.encode()).fetchall()
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


@contextmanager
def _database(config: Any, postgres: str | None) -> Iterator[str]:
    """The database that was named, or that of the configuration; the embedded one is started if it does not run."""
    if postgres is not None:
        yield postgres
        return
    loaded = load(config) if config or DEFAULT_FILE.exists() else Config()
    stack, endpoints = open_stack(loaded)
    try:
        yield endpoints.postgres_url or loaded.postgres.url.get_secret_value()
    finally:
        if stack is not None:
            stack.stop()


@contextmanager
def _connected(config: Any, postgres: str | None) -> Iterator[psycopg.Connection]:
    with _database(config, postgres) as url:
        try:
            with psycopg.connect(url, autocommit=True, application_name="headgate broker") as connection:
                yield connection
        except psycopg.OperationalError as error:
            raise ConnectError(
                f"PostgreSQL does not answer: {error}", where="postgres", remedy="check the address, and that it runs"
            ) from None


@contextmanager
def _installed(config: Any, postgres: str | None, schema: str) -> Iterator[psycopg.Connection]:
    with _connected(config, postgres) as connection:
        if not made_of_sql.installed(connection, schema):
            raise StateError(f"there is no broker in the schema {schema}", remedy="headgate broker install")
        connection.execute(sql.SQL("set search_path = {}, pg_temp").format(sql.Identifier(schema)))
        yield connection
