"""What the tests do to the servers, and a process of its own that owns a stack."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import nats
import psutil
import psycopg
from nats.js import JetStreamContext

from headgate.embedded import Endpoints

T = TypeVar("T")


def query(url: str | None, statement: str) -> list[tuple[Any, ...]]:
    """Run one statement on a new connection."""
    assert url is not None
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def _with_jetstream(url: str | None, act: Callable[[JetStreamContext], Awaitable[T]]) -> T:
    async def run() -> T:
        assert url is not None
        client = await nats.connect(url, allow_reconnect=False)
        try:
            return await act(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(run())


def publish(url: str | None, payload: bytes) -> None:
    """Store a message in the stream `kept`."""

    async def act(jetstream: JetStreamContext) -> None:
        await jetstream.add_stream(name="kept", subjects=["kept.>"])
        await jetstream.publish("kept.one", payload)

    _with_jetstream(url, act)


def last_message(url: str | None) -> bytes | None:
    """The last message of the stream `kept`."""

    async def act(jetstream: JetStreamContext) -> bytes | None:
        return (await jetstream.get_last_msg("kept", "kept.one")).data

    return _with_jetstream(url, act)


_OWNER = """
import dataclasses, json, sys
from headgate.embedded import Stack
with Stack(sys.argv[1], **json.loads(sys.argv[2])) as endpoints:
    print(json.dumps(dataclasses.asdict(endpoints), default=str), flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def owner(data_dir: Path, *, prefix: Sequence[str] = (), **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Another process that starts a stack, prints its endpoints and stops it when its input ends."""
    command = [*prefix, sys.executable, "-c", _OWNER, str(data_dir), json.dumps({"durable": False, **options})]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        yield process


def runs(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has collected does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def announced(process: subprocess.Popen[str]) -> Endpoints:
    """The endpoints that an owner printed."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    fields = json.loads(line)
    return Endpoints(**{**fields, "data_dir": Path(fields["data_dir"])})
