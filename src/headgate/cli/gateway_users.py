"""`headgate gateway users`: those whom the gateway lets in, beside the users of the configuration."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, TypeVar

import psycopg
import typer

from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_json
from headgate.commitlog.install import install
from headgate.config import DEFAULT_FILE, Config, load
from headgate.config.needs import Needs
from headgate.control.stack import open_stack
from headgate.gateway.login import store
from headgate.gateway.login.keys import ALGORITHMS, LEAST_ITERATIONS, MOST_ITERATIONS, USUAL_ITERATIONS, derive
from headgate.gateway.login.store import Edit, Stored
from headgate.model import ConnectError, UsageError
from headgate.postgres import PromptConnection, open_connection
from headgate.postgres.connect import open_async

__all__ = ["users"]

_T = TypeVar("_T")
_NAME = "headgate gateway users"
_VARIABLE = "HEADGATE_GATEWAY_PASSWORD"
_LEAST_CHARACTERS = 8

users = typer.Typer(
    help="Users of the gateway that are kept in PostgreSQL: list them, set a password, remove one.",
    no_args_is_help=True,
)

NameArgument = Annotated[str, typer.Argument(help="The user's name, as clients send it.")]
MechanismOption = Annotated[
    list[str] | None,
    typer.Option("--mechanism", help="SCRAM-SHA-256 or SCRAM-SHA-512; repeatable.", show_default="both"),
]


@users.command("list")
def list_users(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the users and how each may log in; nobody can read a password there.

    Those of the table `gateway.users` of the configuration are shown, too. They can be changed only in the file.

    Example: headgate gateway users list
    """
    loaded, rows = _with_database(config, store.everybody)
    configured = sorted(loaded.gateway.users)
    if as_json:
        print_json([*({"name": name, "where": "configuration"} for name in configured), *map(_as_json, rows)])
        return
    for name in configured:
        data_console.print(f"{name}  configuration", soft_wrap=True, markup=False)
    for row in rows:
        data_console.print(_as_line(row), soft_wrap=True, markup=False)
    if not configured and not rows:
        note("there are no users; make one with: headgate gateway users set NAME")


@users.command("set")
def set_password(
    name: NameArgument,
    config: ConfigOption = None,
    mechanism: MechanismOption = None,
    iterations: Annotated[
        int, typer.Option("--iterations", min=LEAST_ITERATIONS, max=MOST_ITERATIONS, help="More make guessing slower.")
    ] = USUAL_ITERATIONS,
) -> None:
    """Make a user, or give it another password; every gateway of the database knows it at once.

    The password is the first line of standard input, or HEADGATE_GATEWAY_PASSWORD. It is not kept: the table
    kafka.users has salted keys from which it cannot be read. The user may log in with PLAIN and with the mechanisms.
    Clients that are connected stay.

    \b
    Examples:
      headgate gateway users set alice            # asks for it
      pass show alice | headgate gateway users set alice
    """
    mechanisms = _mechanisms(mechanism)
    _check_name(name)
    password = _password(name)
    edit = Edit(keys=[derive(each, password, iterations) for each in mechanisms])
    _alter(config, name, edit)
    note(f"{name} may log in with PLAIN, {', '.join(mechanisms)}")


@users.command()
def remove(name: NameArgument, config: ConfigOption = None, mechanism: MechanismOption = None) -> None:
    """Remove a user; its connections end at once.

    Example: headgate gateway users remove alice
    """
    if not mechanism:
        _, rows = _with_database(config, lambda connection: store.everybody(connection, [name]))
        mechanism = [row.mechanism for row in rows]
    if not mechanism or _alter(config, name, Edit(removed=mechanism)):
        raise UsageError(f"there is no such user: {name}", remedy="see: headgate gateway users list")
    note(f"{name} was removed")


def _alter(config: ConfigOption, name: str, edit: Edit) -> set[str]:
    loaded, missing = _with_database(config, lambda connection: store.alter(connection, {name: edit}, _by()))
    if name in loaded.gateway.users:
        note(f"{name} is in the configuration, too, and that password counts")
    return missing


def _by() -> str:
    return f"headgate gateway users ({os.environ.get('USER', 'unknown')})"[:200]


def _check_name(name: str) -> None:
    if not name or len(name.encode()) > 255 or re.search(r"[\x00-\x1f\x7f]", name):
        raise UsageError("a name has 1 to 255 bytes and no control characters", remedy="choose another name")


def _mechanisms(given: list[str] | None) -> list[str]:
    chosen = list(dict.fromkeys(each.upper() for each in given or ALGORITHMS))
    if unknown := set(chosen) - ALGORITHMS.keys():
        raise UsageError(f"there is no mechanism {unknown.pop()}", remedy=f"use {' or '.join(ALGORITHMS)}")
    return chosen


def _password(name: str) -> str:
    password = os.environ.get(_VARIABLE)
    if password is None:
        password = _asked(name) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if len(password) < _LEAST_CHARACTERS:
        raise UsageError(
            f"a password has at least {_LEAST_CHARACTERS} characters",
            remedy=f"write it to standard input, or set {_VARIABLE}",
        )
    return password


def _asked(name: str) -> str:
    return str(typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True))


def _with_database(config: ConfigOption, work: Callable[[psycopg.AsyncConnection], Awaitable[_T]]) -> tuple[Config, _T]:
    loaded = load(config) if config or DEFAULT_FILE.exists() else Config()
    with _database(loaded) as url:
        return loaded, asyncio.run(_work(url, work))


@contextmanager
def _database(loaded: Config) -> Iterator[str]:
    stack, endpoints = open_stack(loaded, Needs(nats=False))
    try:
        url = endpoints.postgres_url or loaded.postgres.url.get_secret_value()
        with open_connection(url, _NAME) as connection:
            install(connection)
        yield url
    except psycopg.OperationalError as error:
        raise ConnectError(
            f"PostgreSQL does not answer: {error}", where="postgres", remedy="check the address, and that it runs"
        ) from error
    finally:
        if stack is not None:
            stack.stop()


async def _work(url: str, work: Callable[[psycopg.AsyncConnection], Awaitable[_T]]) -> _T:
    async with await open_async(PromptConnection, url, _NAME) as connection:
        return await work(connection)


def _as_json(row: Stored) -> dict[str, object]:
    iterations = row.keys.iterations if row.keys else None
    return {
        "name": row.name,
        "where": "PostgreSQL",
        "mechanism": row.mechanism,
        "iterations": iterations,
        "is_damaged": row.keys is None,
        "changed_at": row.changed_at.isoformat(),
        "changed_by": row.changed_by,
    }


def _as_line(row: Stored) -> str:
    state = f"{row.keys.iterations} iterations" if row.keys else "damaged: set the password anew"
    return f"{row.name}  {row.mechanism}, {state}, changed {row.changed_at:%Y-%m-%d %H:%M} by {row.changed_by}"
