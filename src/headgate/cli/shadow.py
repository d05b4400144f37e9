"""`headgate shadow`: topics mirrored to another Kafka."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import psycopg
import typer
from rich.filesize import decimal
from rich.table import Table

from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_json
from headgate.cli.shadow_cutover import cutover, plan, rollback
from headgate.config import DEFAULT_FILE, Config, load
from headgate.config.needs import Needs
from headgate.control.stack import open_stack
from headgate.model import ConnectError
from headgate.postgres import open_connection, server_address
from headgate.shadow.status import link_statuses

__all__ = ["shadow"]

shadow = typer.Typer(help="Topics mirrored to another Kafka: see how far, and move over.", no_args_is_help=True)

shadow.command()(plan)
shadow.command()(cutover)
shadow.command()(rollback)

LinkArgument = Annotated[
    str | None, typer.Argument(help="A link: the name of a shadow destination.", show_default="all")
]


@shadow.command()
def status(link: LinkArgument = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show links, topics and their lag, offsets of groups on both sides, and the last error.

    It asks PostgreSQL alone, so it works also while no pipeline runs. Exits with 1 if a link has trouble.

    Example: headgate shadow status mirror --json
    """
    found = _statuses(load(config) if config or DEFAULT_FILE.exists() else Config(), link)
    if as_json:
        print_json({"links": [_plain(each) for each in found]})
    elif not found:
        note("there are no links; a pipeline with a shadow destination makes one")
    else:
        for each in found:
            _show(each)
    if any(_troubles(each) for each in found):
        raise typer.Exit(1)


def _statuses(loaded: Config, link: str | None) -> list[dict[str, Any]]:
    stack, endpoints = open_stack(loaded, Needs(nats=False))
    url = endpoints.postgres_url or loaded.postgres.url.get_secret_value()
    try:
        with open_connection(url, "headgate shadow") as connection:
            return link_statuses(connection, link)
    except psycopg.Error as error:
        message = error.diag.message_primary or str(error)
        raise ConnectError(message, where=server_address(url), remedy="check that PostgreSQL runs") from None
    finally:
        if stack is not None:
            stack.stop()


def _troubles(link: dict[str, Any]) -> list[str]:
    """What is wrong with a link, the most general first."""
    topics = [f"{each['topic']}: {each['last_error']}" for each in link["topics"] if each["last_error"]]
    rejected = [
        f"{each['topic']}: {each['rejected']} batches were refused: see kafka.shadow_rejected"
        for each in link["topics"]
        if each["rejected"]
    ]
    groups = [f"groups: {link['groups_error']}"] if link["groups_error"] else []
    return [*([link["last_error"]] if link["last_error"] else []), *groups, *topics, *rejected]


def _show(link: dict[str, Any]) -> None:
    arrow = "to" if link["direction"] == "out" else "from"
    title = f"{link['name']}: {arrow} {link['servers']}, cluster {link['cluster_id']}"
    if link["percent"] != 100:
        title += f", {link['percent']} % of the keys"
    data_console.print(title, markup=False, soft_wrap=True)
    topics = Table("topic", "there", "partitions", "mirrored", "lag", "bytes", "seconds", "refused", box=None)
    for each in link["topics"]:
        topics.add_row(
            each["topic"],
            each["ext_topic"],
            str(each["partitions"]),
            f"{each['mirrored_records']:,}",
            _known(each["lag_records"]),
            "-" if each["lag_bytes"] is None else decimal(each["lag_bytes"]),
            "-" if each["lag_seconds"] is None else f"{each['lag_seconds']:.1f}",
            str(each["rejected"]),
        )
    data_console.print(topics)
    if link["group_offsets"]:
        groups = Table("group", "topic", "partition", "offset here", "belongs at", "pushed", "state", box=None)
        for each in link["group_offsets"]:
            numbers = [_known(each[name]) for name in ("committed_offset", "belongs_at", "ext_offset")]
            groups.add_row(each["group"], each["topic"], str(each["partition"]), *numbers, each["state"] or "-")
        data_console.print(groups)
    for trouble in _troubles(link):
        data_console.print(f"  {trouble}", style="red", markup=False, soft_wrap=True)


def _known(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _plain(value: Any) -> Any:
    """For JSON."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, datetime) else value
