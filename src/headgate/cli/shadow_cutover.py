"""`headgate shadow plan`, `cutover` and `rollback`: topics and their clients move to the other cluster of a link."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import psycopg
import typer

from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_json
from headgate.config import DEFAULT_FILE, load
from headgate.config.needs import Needs
from headgate.control.stack import open_stack
from headgate.destinations.postgres import database_of, error_of
from headgate.destinations.shadow.build import cluster_of
from headgate.destinations.shadow.section import ShadowDestinationSection
from headgate.model import StateError, UsageError
from headgate.postgres import open_connection
from headgate.shadow.cutover import Patience, Plan, Target, cut_over, make_plan, roll_back

__all__ = ["cutover", "plan", "rollback"]

_PATIENCE = Patience()
_GRANT = "GRANT ALL ON SCHEMA kafka, its tables and functions"
_GONE = "start the mirror: headgate run"
LinkArgument = Annotated[str, typer.Argument(help="A destination of the kind shadow, by its name in headgate.toml.")]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="Only this topic; repeatable.", show_default="all that the link mirrors"),
]


def plan(
    link: LinkArgument, topics: TopicsOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show what a cut-over would move, and what stands against it. Changes nothing; exits with 1 if anything does."""
    with _opened(config, link) as (connection, target):
        made = make_plan(connection, target, link, topics or ())
    if as_json:
        print_json(made.as_dict())
    else:
        _show(made)
    if made.problems:
        raise typer.Exit(1)


def cutover(
    link: LinkArgument,
    topics: TopicsOption = None,
    config: ConfigOption = None,
    verify: Annotated[
        int, typer.Option("--verify", min=0, help="Compare so many of the newest messages of each partition.")
    ] = _PATIENCE.verify,
    rolling_hash: Annotated[
        bool,
        typer.Option("--hash/--no-hash", help="Read all that was mirrored back, and compare its rolling hash."),
    ] = _PATIENCE.hash,
    near: Annotated[
        int,
        typer.Option("--near", min=0, help="Let producers wait when no more messages than these are to be mirrored."),
    ] = _PATIENCE.near,
    drain_s: Annotated[
        float, typer.Option("--drain", min=0, help="Seconds in which the mirror must come to its end behind the fence.")
    ] = _PATIENCE.drain_s,
    groups_s: Annotated[
        float, typer.Option("--groups", min=0, help="Seconds for consumers to read and commit what is there.")
    ] = _PATIENCE.groups_s,
    members_s: Annotated[
        float, typer.Option("--members", min=0, help="Seconds for their members to join in the other cluster.")
    ] = _PATIENCE.members_s,
) -> None:
    """Move topics, their consumer groups and their running clients to the other cluster.

    Producers wait, without an error, from the fence to the flip: some seconds. Whatever fails before the groups are
    taken lifts the fence. Run it again if it was cut off: it goes on where it was.

    \b
    Try it:
      headgate shadow plan kafka
      headgate shadow cutover kafka --topic orders
      headgate shadow rollback kafka          # the way back
    """
    patience = Patience(
        near=near, drain_s=drain_s, groups_s=groups_s, members_s=members_s, verify=verify, hash=rolling_hash
    )
    with _opened(config, link) as (connection, target):
        moved = cut_over(connection, target, link, topics or (), patience=patience, tell=note)
    data_console.print(f"{', '.join(sorted(moved.topics))}: at {moved.servers}", soft_wrap=True, markup=False)
    for each in moved.notes:
        note(each)


def rollback(
    link: LinkArgument,
    config: ConfigOption = None,
    discard: Annotated[
        bool, typer.Option("--discard", help="Leave behind what was written to the other cluster since.")
    ] = False,
) -> None:
    """Bring a link's topics and groups back.

    Before clients were sent over this costs nothing. Afterwards, what was written to the other cluster must have been
    mirrored back, and clients that have gone over must be restarted with this cluster's servers.
    """
    with _opened(config, link) as (connection, target):
        topics = roll_back(connection, target, link, discard=discard, tell=note)
    data_console.print(", ".join(topics) or "nothing had moved", soft_wrap=True, markup=False)


@contextmanager
def _opened(config: ConfigOption, link: str) -> Iterator[tuple[psycopg.Connection, Target]]:
    """The log of a link, and the cluster that it leads to."""
    loaded = load(config or DEFAULT_FILE)
    section = loaded.destinations.get(link)
    if not isinstance(section, ShadowDestinationSection):
        known = [name for name, each in loaded.destinations.items() if isinstance(each, ShadowDestinationSection)]
        raise UsageError(
            f"there is no destination {link} of the kind shadow",
            where=str(config or DEFAULT_FILE),
            remedy=f"name one of {', '.join(known)}" if known else "add one: headgate init --recipe shadow",
        )
    stack, endpoints = open_stack(loaded, Needs(postgres=section.url is None, nats=False))
    own = section.url.get_secret_value() if section.url is not None else None
    url = own or endpoints.postgres_url or loaded.postgres.url.get_secret_value()
    try:
        with open_connection(url, "headgate shadow") as connection:
            if connection.execute("select to_regclass('kafka.moves')").fetchone() == (None,):
                raise StateError("there is no mirror yet", where="schema kafka", remedy="start it: headgate run")
            yield connection, Target(cluster_of(section))
    except psycopg.Error as error:
        raise error_of(error, database_of(url), grant=_GRANT, gone=_GONE) from None
    finally:
        if stack is not None:
            stack.stop()


def _show(made: Plan) -> None:
    data_console.print(f"to {made.servers}, cluster {made.cluster_id}", soft_wrap=True, markup=False)
    for topic, state in made.topics.items():
        data_console.print(f"topic {topic}  {state or 'here'}", soft_wrap=True, markup=False)
    for group in made.groups:
        told = f"group {group.group_id}  {group.members} members, {group.lag} messages to read"
        data_console.print(told, soft_wrap=True, markup=False)
    data_console.print(f"{made.lag} messages to mirror", soft_wrap=True, markup=False)
    for text in made.notes:
        data_console.print(f"note: {text}", soft_wrap=True, markup=False)
    for text in made.problems:
        data_console.print(f"problem: {text}", soft_wrap=True, markup=False)
    if not made.problems:
        data_console.print(f"ready: headgate shadow cutover {made.link}", soft_wrap=True, markup=False)
