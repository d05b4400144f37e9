"""`headgate broker serve` and `headgate broker webhooks`: events for those who do not speak SQL."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer
from psycopg.types.json import Jsonb
from pydantic import ValidationError

from headgate.broker import DEFAULT_SCHEMA, Subscription
from headgate.broker.http.posting import Endpoint
from headgate.broker.http.server import BrokerServer
from headgate.broker.http.server import serve as serve_doors
from headgate.cli.broker_database import (
    SchemaOption,
    UrlOption,
    add_listing,
    database_of,
    installed_broker,
    subscription_to,
)
from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_json
from headgate.config import DEFAULT_FILE, Config, load
from headgate.config.broker import BrokerSection
from headgate.control.logs import configure_logs
from headgate.model import UsageError

__all__ = ["serve", "webhooks"]

webhooks = typer.Typer(help="Where events are posted to: add, list, remove.", no_args_is_help=True)

_REGISTER = (
    "select register_webhook_v2(%s, %s, %s, %s, %s, %s, coalesce(%s::float8[], '{1,10,60,300,1800}'), %s, %s, %s)"
)


def serve(
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: Annotated[
        str | None, typer.Option("--schema", help="The broker's schema.", show_default="headgate")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="0 picks a free one.", show_default="8720")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="HEADGATE_BROKER_TOKEN", help="What requests must carry, if not loopback."),
    ] = None,
    allow_private: Annotated[
        bool | None, typer.Option("--allow-private", help="Webhooks may go to private and loopback addresses.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve events over HTTP, deliver to webhooks, dispatch and maintain, until Ctrl-C. Installs what is missing.

    The table `broker` of the configuration has the rest. Anything but loopback needs a token.

    \b
    Try it:
      headgate broker serve
      curl -N 'http://127.0.0.1:8720/events?topic=user.created'
      headgate broker publish user.created '{"name": "ann"}'
    """
    loaded = load(config) if config or DEFAULT_FILE.exists() else Config()
    section = _overridden(
        loaded.broker, host=host, port=port, token=token, broker_schema=schema, allow_private=allow_private
    )
    configure_logs(loaded.logging.level, loaded.logging.format)
    with database_of(config, postgres) as url:
        options = section.model_copy(update={"url": None}).options(url)  # the database has been chosen
        serve_doors(options, ready=lambda doors: _show(doors, as_json))
    note("stopped; the events stay")


def _overridden(section: BrokerSection, **overrides: Any) -> BrokerSection:
    given = {name: value for name, value in overrides.items() if value is not None}
    fields = {name: getattr(section, name) for name in section.model_fields_set if not name.endswith("_file")} | given
    try:
        return BrokerSection(**fields)
    except ValidationError as error:
        problem = error.errors()[0]
        text = str(problem["msg"]).removeprefix("Value error, ")
        place = ".".join(["broker", *map(str, problem["loc"])])
        raise UsageError(text, where=place, remedy="see: headgate broker serve --help") from None


def _show(doors: BrokerServer, as_json: bool) -> None:
    if as_json:
        print_json({"url": doors.url})
        return
    data_console.print(doors.url, markup=False)
    note(f"listen:  curl -N '{doors.url}/events?topic=user.created'")
    note("""publish: headgate broker publish user.created '{"name": "ann"}'""")
    note("Ctrl-C stops it; requests under way are finished first")


@webhooks.command("add")
def add(
    name: Annotated[str, typer.Argument(help="Its name; one that exists is changed, and goes on where it was.")],
    url: Annotated[str, typer.Argument(help="Where to: https://host/path")],
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="A topic or a pattern (order.*); repeatable.")
    ] = None,
    condition: Annotated[str | None, typer.Option("--condition", help="Or a condition over e and s.")] = None,
    params: Annotated[str, typer.Option("--params", help="s.params of the condition, as JSON.")] = "{}",
    secret_file: Annotated[
        Path | None, typer.Option("--secret-file", help="The secret that signs.", show_default="a new one is printed")
    ] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="'Name: value'; repeatable.")] = None,
    retry: Annotated[
        list[float] | None,
        typer.Option(
            "--retry", min=0, help="Seconds until the next attempt; repeatable.", show_default="1 10 60 300 1800"
        ),
    ] = None,
    max_items: Annotated[int, typer.Option("--max-items", min=1, max=1000, help="Events in one request.")] = 100,
    ordered: Annotated[bool, typer.Option("--ordered", help="Later events wait for what fails.")] = False,
    order_by: Annotated[
        str | None, typer.Option("--order-by", help="Only those wait that have the same key, as in customer.id.")
    ] = None,
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = DEFAULT_SCHEMA,
) -> None:
    """Have events posted to an address, signed the way of Standard Webhooks. `headgate broker serve` delivers.

    Example: headgate broker webhooks add crm https://crm.example/events --topic user.created
    """
    if ordered and order_by:
        raise UsageError("order of all is order of each key, too", remedy="give --ordered or --order-by")
    if bool(topic) == bool(condition):
        raise UsageError("what is to be posted?", remedy="give --topic, once or more, or --condition")
    wanted = subscription_to(topic) if topic else Subscription(condition or "", _json(params))
    secret = _secret(secret_file)
    headers = _headers(header or [])
    Endpoint(url, secret, headers)  # complains if it cannot be used
    order = [ordered, order_by]
    values = [name, wanted.condition, Jsonb(wanted.params), url, secret, Jsonb(headers), retry, max_items, *order]
    with installed_broker(config, postgres, schema) as connection:
        _register(connection, values)
    if secret_file is None:
        note("the secret that signs, which is not shown again:")
        typer.echo(secret)
    note(f"{name}: events are posted while this runs: headgate broker serve")


def _register(connection: psycopg.Connection, values: Sequence[object]) -> None:
    try:
        connection.execute(_REGISTER, values)
    except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError) as error:
        raise UsageError(
            f"the webhook is refused: {error.diag.message_primary}", remedy="see: headgate broker webhooks add --help"
        ) from None


add_listing(
    webhooks,
    "list",
    "Show the webhooks: how far each is behind, what is tried again, what was given up. Never their secrets.",
    "select name, address, conditions_sql, params, enabled, behind, retrying, dead_letters"
    " from webhook_status order by name",
)


@webhooks.command("remove")
def remove(
    name: Annotated[str, typer.Argument(help="Its name.")],
    config: ConfigOption = None,
    postgres: UrlOption = None,
    schema: SchemaOption = DEFAULT_SCHEMA,
) -> None:
    """Remove a webhook with what waits for it. Its dead letters stay."""
    with installed_broker(config, postgres, schema) as connection:
        row = connection.execute("select remove_webhook_v1(%s)", [name]).fetchone()
    if row != (True,):
        raise UsageError(f"there is no webhook {name}", remedy="headgate broker webhooks list")
    note(f"{name}: removed")


def _secret(file: Path | None) -> str:
    if file is None:
        return f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the secret: {error}", remedy="give the path of a file with it") from None


def _headers(given: list[str]) -> dict[str, str]:
    pairs = [text.partition(":")[::2] for text in given]
    return {name.strip(): value.strip() for name, value in pairs}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"--params is not JSON: {error}", remedy="quote it: '{}'") from None
