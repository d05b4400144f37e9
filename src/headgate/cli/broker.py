"""`headgate broker`: the message broker in a database. Install it, publish, follow topics, look after groups."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated
from uuid import uuid4

import typer
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from headgate import broker as made_of_sql
from headgate.broker import BrokerClient, Event
from headgate.cli.broker_care import conditions, dead_letters, pause, recurring, resume, top
from headgate.cli.broker_database import (
    SchemaOption,
    UrlOption,
    add_listing,
    connected,
    database_of,
    installed_broker,
    subscription_to,
)
from headgate.cli.broker_http import serve, webhooks
from headgate.cli.output import ConfigOption, JsonOption, note, print_json
from headgate.model import UsageError

__all__ = ["broker"]

broker = typer.Typer(
    help="A message broker made of SQL, in your database: install it, publish, follow topics, look after groups.",
    no_args_is_help=True,
)

_DEFAULT = made_of_sql.DEFAULT_SCHEMA
_TAIL_EXPIRY = timedelta(minutes=1)


@broker.command()
def install(config: ConfigOption = None, postgres: UrlOption = None, schema: SchemaOption = _DEFAULT) -> None:
    """Make the broker's schema, or bring it up to date. May be repeated at any time.

    Example: headgate broker install --postgres postgres://localhost/shop
    """
    with connected(config, postgres) as connection:
        done = made_of_sql.install(connection, schema)
    note(f"{schema}: {len(done)} steps" if done else f"{schema}: nothing to do")


broker.command("upgrade", help="Bring the broker's schema up to date; `install` does it, too.")(install)


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
    with connected(config, postgres) as connection:
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
    with installed_broker(config, postgres, schema) as connection:
        row = connection.execute("select publish(%s, %s)", [topic, Jsonb(event)]).fetchone()
    assert row is not None
    typer.echo(row[0])


@broker.command()
def tail(
    topics: Annotated[list[str], typer.Argument(help="Topics to follow, or patterns: order.*, user.>")],
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = _DEFAULT,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="End after so many events; 0: never.")] = 0,
) -> None:
    """Print the events of some topics as they come, one JSON object a line, until Ctrl-C.

    It is a group of its own, and forgotten a minute after it ends.

    Example: headgate broker tail user.created 'order.*'
    """
    with database_of(config, postgres) as url:
        with installed_broker(config, url, schema):
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
        wanted = subscription_to(topics, _TAIL_EXPIRY)
        await client.register_reliable_handler(wanted, show, name="tail")
        note(f"following {', '.join(topics)}; Ctrl-C ends it")
        work = asyncio.create_task(client.run())
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
        for task in (work, waiting):
            task.cancel()
        await asyncio.gather(work, waiting, return_exceptions=True)


_GROUPS = 'select group_id, subscriptions, "cursor", behind, owner, overrun_at from group_status order by 1'
add_listing(
    broker, "groups", "Show the groups: how far each has read, how far it is behind, and who reads for it.", _GROUPS
)
add_listing(broker, "lag", "The same as groups.", _GROUPS)
add_listing(
    broker,
    "subscriptions",
    "Show the subscriptions: conditions, when they were last active, and conditions that fail.",
    "select id, group_id, conditions_sql, params, last_active_at, expired_at, parked_error"
    " from subscription_status order by group_id, id",
)
add_listing(
    broker,
    "status",
    "Show the broker in one row: what there is, what is parked, failing or set aside, and the first problem.",
    "select * from broker_status()",
)


@broker.command()
def unsubscribe(
    subscription: Annotated[int, typer.Argument(help="Its id: see `headgate broker subscriptions`.")],
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = _DEFAULT,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a subscription for good, and with it what waits for its handlers. Its group goes on without it.

    Example: headgate broker unsubscribe 12 --yes
    """
    with installed_broker(config, postgres, schema) as connection:
        query = "select group_id from subscriptions where id = %s"
        row = connection.execute(query, [subscription]).fetchone()
        if row is None:
            raise UsageError(f"there is no subscription {subscription}", remedy="headgate broker subscriptions")
        if not yes:
            typer.confirm(f"Remove the subscription {subscription} of {row[0]} with what waits for it?", abort=True)
        connection.execute("select unsubscribe(%s)", [subscription])
    note(f"{row[0]}: subscription {subscription} removed")


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
    with installed_broker(config, postgres, schema) as connection:
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
    with installed_broker(config, postgres, schema) as connection, connection.cursor(row_factory=dict_row) as cursor:
        done = cursor.execute("select * from maintain()").fetchone() or {}
    if as_json:
        print_json(done)
    else:
        note(", ".join(f"{key} {value}" for key, value in done.items()))


broker.command()(pause)
broker.command()(resume)
broker.command()(top)
broker.add_typer(dead_letters, name="dead-letters")
broker.add_typer(conditions, name="conditions")
broker.add_typer(recurring, name="recurring")
broker.command()(serve)
broker.add_typer(webhooks, name="webhooks")
