"""`headgate broker`: dead letters, conditions, pauses, recurring events, and groups as they come and go."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import psycopg
import typer
from psycopg.rows import dict_row
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.broker import DEFAULT_SCHEMA
from headgate.cli.broker_database import SchemaOption, UrlOption, add_listing, installed_broker, show_rows
from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_fields, print_json
from headgate.model import UsageError

__all__ = ["conditions", "dead_letters", "pause", "recurring", "resume", "top"]

GroupOption = Annotated[str | None, typer.Option("--group", help="Only dead letters of this group.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_NAMED = "Their ids, as `list` shows them; or name a --group."

dead_letters = typer.Typer(help="Events that handlers gave up on: look, try again, throw away.", no_args_is_help=True)
conditions = typer.Typer(help="Conditions of subscriptions, and those that are parked.", no_args_is_help=True)
recurring = typer.Typer(help="Events that come again and again, by a cron expression.", no_args_is_help=True)


@dead_letters.command("list")
def list_dead_letters(
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = DEFAULT_SCHEMA,
    group: GroupOption = None,
    limit: LimitOption = 100,
    as_json: JsonOption = False,
) -> None:
    """Show the newest dead letters: whose they are, of which event, and why."""
    query = (
        "select id, at, group_id, handler, attempts, topic, event_id, error from dead_letters"
        " where %(group)s::text is null or group_id = %(group)s order by id desc limit %(limit)s"
    )
    show_rows(config, postgres, schema, query, as_json, {"group": group, "limit": limit})


@dead_letters.command("show")
def show_dead_letter(
    letter: Annotated[int, typer.Argument(help="Id of the dead letter.")],
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = DEFAULT_SCHEMA,
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter with its payload and metadata."""
    with installed_broker(config, postgres, schema) as connection, connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute("select * from dead_letters where id = %s", [letter]).fetchone()
    if row is None:
        raise UsageError(f"there is no dead letter {letter}", remedy="headgate broker dead-letters list")
    (print_json if as_json else print_fields)(row)


@dead_letters.command("redrive")
def redrive_dead_letters(
    letters: Annotated[list[int] | None, typer.Argument(help=_NAMED)] = None,
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = DEFAULT_SCHEMA,
    group: GroupOption = None,
) -> None:
    """Give dead letters to their handlers again, as if it were the first time.

    Example: headgate broker dead-letters redrive --group mailer
    """
    with installed_broker(config, postgres, schema) as connection:
        found = _chosen(connection, letters, group)
        connection.execute("select redrive(%s::bigint[])", [found])
    note(f"{len(found)} dead letters are tried again")


@dead_letters.command("purge")
def purge_dead_letters(
    letters: Annotated[list[int] | None, typer.Argument(help=_NAMED)] = None,
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = DEFAULT_SCHEMA,
    group: GroupOption = None,
    yes: YesOption = False,
) -> None:
    """Throw dead letters away, for good.

    Example: headgate broker dead-letters purge 17 18
    """
    with installed_broker(config, postgres, schema) as connection:
        found = _chosen(connection, letters, group)
        if not yes:
            typer.confirm(f"Throw {len(found)} dead letters away?", abort=True)
        connection.execute("delete from dead_letters where id = any (%s)", [found])
    note(f"{len(found)} dead letters thrown away")


def _chosen(connection: psycopg.Connection, letters: list[int] | None, group: str | None) -> list[int]:
    """Return the ids to act on; refuse a call that names neither ids nor a group."""
    if not letters and group is None:
        raise UsageError("which dead letters?", remedy="give their ids, or --group NAME")
    query = (
        "select id from dead_letters where (%s::text is null or group_id = %s)"
        " and (%s::bigint[] is null or id = any (%s)) order by id"
    )
    found = [row[0] for row in connection.execute(query, [group, group, letters or None, letters or None])]
    missing = sorted(set(letters or ()) - set(found))
    if missing:
        raise UsageError(
            f"there is no dead letter {missing[0]}{f' of {group}' if group else ''}",
            remedy="headgate broker dead-letters list",
        )
    return found


add_listing(
    conditions,
    "list",
    "Show the conditions, how many subscriptions have each, and how many of those are parked.",
    "select c.id, c.source, count(s.id) as subscriptions, count(p.subscription_id) as parked"
    " from conditions as c left join subscriptions as s on s.cond_id = c.id and s.expired_at is null"
    " left join parked as p on p.subscription_id = s.id group by c.id order by 4 desc, c.id",
)


add_listing(
    conditions,
    "parked",
    "Show subscriptions that are not matched for now, because they are too slow or fail too often, and why.",
    "select subscription_id, group_id, conditions_sql, at, event_id, error, resuming, behind from parked order by at",
)


@conditions.command("resume")
def resume_subscription(
    subscription: Annotated[int, typer.Argument(help="Its id: see `headgate broker conditions parked`.")],
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = DEFAULT_SCHEMA,
    skip: Annotated[bool, typer.Option("--skip", help="Leave out the event that it is parked for.")] = False,
) -> None:
    """Match a parked subscription again, with all that it has missed.

    Example: headgate broker conditions resume 12 --skip
    """
    with installed_broker(config, postgres, schema) as connection:
        row = connection.execute("select resume_subscription(%s, %s)", [subscription, skip]).fetchone()
    if row != (True,):
        raise UsageError(f"the subscription {subscription} is not parked", remedy="headgate broker conditions parked")
    note(f"subscription {subscription} goes on; `headgate broker conditions parked` shows how far it is")


def pause(
    group: Annotated[str, typer.Argument(help="The group.")],
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = DEFAULT_SCHEMA,
) -> None:
    """Let nobody read for a group until it is resumed. What comes for it waits, within the limits of `max_lag`."""
    done = _ask_group(config, postgres, schema, "select pause_group(%s)", group)
    note(f"{group} is paused" if done else f"{group} was paused already")


def resume(
    group: Annotated[str, typer.Argument(help="The group.")],
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = DEFAULT_SCHEMA,
) -> None:
    """Let a paused group be read again."""
    done = _ask_group(config, postgres, schema, "select resume_group(%s)", group)
    note(f"{group} goes on" if done else f"{group} was not paused")


def _ask_group(config: Any, postgres: str | None, schema: str, query: str, group: str) -> bool:
    with installed_broker(config, postgres, schema) as connection:
        try:
            row = connection.execute(query.encode(), [group]).fetchone()
        except psycopg.errors.UndefinedObject:
            raise UsageError(f"there is no group {group}", remedy="headgate broker groups") from None
    return row == (True,)


add_listing(
    recurring,
    "list",
    "Show the recurring events, and when each comes next.",
    "select r.name, r.cron, r.timezone, r.topic, s.due_at as next from recurring as r"
    " left join scheduled as s on s.recurring = r.name order by r.name",
)


@recurring.command("set")
def set_recurring(
    name: Annotated[str, typer.Argument(help="Name of the recurring event; one that exists is replaced.")],
    cron: Annotated[str, typer.Argument(help="Minute, hour, day of the month, month, day of the week.")],
    topic: Annotated[str, typer.Argument(help="Topic of each event.")],
    payload: Annotated[str, typer.Argument(help="Payload of each event, as JSON.")] = "{}",
    timezone: Annotated[str, typer.Option("--timezone", help="Time zone of the expression.")] = "UTC",
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = DEFAULT_SCHEMA,
) -> None:
    """Publish an event again and again; prints when it comes next.

    Example: headgate broker recurring set nightly '0 3 * * *' report.due --timezone Europe/Berlin
    """
    try:
        json.loads(payload)
    except ValueError as error:
        raise UsageError(f"the payload is not JSON: {error}", remedy='quote it: \'{"name": "ann"}\'') from None
    with installed_broker(config, postgres, schema) as connection:
        try:
            query = "select recur(%s, %s, %s, %s::jsonb, timezone => %s)"
            row = connection.execute(query, [name, cron, topic, payload, timezone]).fetchone()
        except psycopg.errors.InvalidParameterValue as error:
            raise UsageError(
                error.diag.message_primary or str(error), remedy=error.diag.message_hint or "see: man 5 crontab"
            ) from None
    assert row is not None
    typer.echo(row[0].isoformat())


@recurring.command("cancel")
def cancel_recurring(
    name: Annotated[str, typer.Argument(help="Its name.")],
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = DEFAULT_SCHEMA,
) -> None:
    """Let a recurring event come no more."""
    with installed_broker(config, postgres, schema) as connection:
        row = connection.execute("select cancel_recurring(%s)", [name]).fetchone()
    if row != (True,):
        raise UsageError(f"there is no recurring event {name}", remedy="headgate broker recurring list")
    note(f"{name} comes no more")


def top(
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = DEFAULT_SCHEMA,
    interval: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between two looks.")] = 2.0,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="End after so many looks; 0: never.")] = 0,
) -> None:
    """Watch the groups: what comes and goes, who is behind, and what needs somebody. Ctrl-C ends it."""
    with (
        installed_broker(config, postgres, schema) as connection,
        Live(console=data_console, auto_refresh=False) as live,
    ):
        before: dict[str, int] = {}
        looks = 0
        while True:
            found = _look(connection)
            live.update(_shown(found, before, interval), refresh=True)
            before = {row["group_id"]: row["cursor"] or 0 for row in found["groups"]}
            looks += 1
            if looks == count:
                return
            time.sleep(interval)


_LOOK = """
select (select coalesce(json_agg(g order by g.behind desc, g.group_id), '[]') from (
    select s.group_id, s."cursor", s.behind, s.owner, g.paused_at is not null as paused,
      s.overrun_at is not null as overrun,
      (select count(*) from dead_letters as d where d.group_id = s.group_id) as dead
    from group_status as s join subscription_groups as g on g.id = s.group_id) as g) as groups,
  (select count(*) from scheduled) as scheduled,
  (select count(*) from parked) as parked,
  (select count(*) from clients where last_active_at > now() - interval '15 seconds') as clients
"""


def _look(connection: psycopg.Connection) -> dict[str, Any]:
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(_LOOK).fetchone()
    assert found is not None
    return found


def _shown(found: dict[str, Any], before: dict[str, int], interval: float) -> Table:
    title = f"{found['clients']} clients, {found['scheduled']} scheduled, {found['parked']} subscriptions parked"
    table = Table(
        "group", "positions/s", "behind", "dead letters", "reader", box=None, title=title, title_justify="left"
    )
    for row in found["groups"]:
        name = row["group_id"]
        rate = f"{max(row['cursor'] - before[name], 0) / interval:,.0f}" if name in before and row["cursor"] else ""
        state = "paused" if row["paused"] else "overrun" if row["overrun"] else row["owner"] or "nobody"
        table.add_row(*(Text(str(cell)) for cell in (name, rate, row["behind"], row["dead"] or "", state)))
    return table
