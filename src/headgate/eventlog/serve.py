"""Serves events with topics out of a directory, in one process or in several that share a port.

Each process follows the directory by itself, so there may be any number of them, beside any writer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvloop

from headgate.eventlog.fanout import FanOut, FanOutOptions
from headgate.eventlog.inspection import Inspection
from headgate.eventlog.reader import LogReader
from headgate.eventlog.topics import TopicDoor
from headgate.runtime.child import await_ready, end_child, log_told, run_child, start_child, until_closed
from headgate.runtime.child import ready as tell_ready
from headgate.runtime.ending import end, stopped_by_signals
from headgate.runtime.listening import listen

__all__ = ["ServeOptions", "serve"]

_log = logging.getLogger(__name__)

_BACKLOG = 1024
_STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Where the log is, and where to listen."""

    path: str
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = field(default=None, repr=False)
    processes: int = 1
    connections: int = 1000  # of each process

    def url(self, port: int) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{port}"


def serve(
    options: ServeOptions,
    *,
    ready: Callable[[str], None],
    until: Callable[[asyncio.Event], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, or until `until` sets the event. `ready` is told the address."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options, ready, until))


async def _serve(
    options: ServeOptions, ready: Callable[[str], None], until: Callable[[asyncio.Event], None] | None
) -> None:
    stop = stopped_by_signals()
    if until:
        until(stop)
    listener = listen(options.host, options.port, backlog=_BACKLOG, where="port", is_shared=options.processes > 1)
    limits = FanOutOptions(connections=options.connections, token=options.token)
    door = TopicDoor()
    with LogReader(Path(options.path)) as reader:
        fan_out = FanOut(reader, {"/subscribe": door}, {"/events": door}, limits)
        port = listener.getsockname()[1]
        await fan_out.start(listener)
        # One process looks for damage, for all of them.
        looking = (
            [asyncio.create_task(Inspection(Path(options.path)).run(), name="inspection")] if until is None else []
        )
        try:
            with _siblings(replace(options, port=port), options.processes - 1, until is None):
                ready(options.url(port))
                await stop.wait()
        finally:
            await end(*looking)
            await fan_out.close()


@contextmanager
def _siblings(options: ServeOptions, count: int, is_first: bool) -> Iterator[None]:
    """The other processes, started by the first. They end when it does, however it ends."""
    children = [start_child("headgate.eventlog.serve", options) for _ in range(count if is_first else 0)]
    listeners = [threading.Thread(target=_pass_on, args=[child], daemon=True) for child in children]
    try:
        for child, listener in zip(children, listeners, strict=True):
            await_ready(child, "a process of the event log's server")
            listener.start()
        yield
    finally:
        for child in children:
            assert child.stdin is not None
            child.stdin.close()  # all at once, so that they end side by side
        for child, listener in zip(children, listeners, strict=True):
            end_child(child, _STOP_S)
            if listener.is_alive():
                listener.join()
            assert child.stdout is not None
            child.stdout.close()


def _pass_on(child: subprocess.Popen[bytes]) -> None:
    """What a child logs is logged here, and what it says besides is read, or it would wait for ever to say it."""
    assert child.stdout is not None
    for line in child.stdout:
        log_told(json.loads(line))
    _log.info("a process of the event log's server ended", extra={"process": child.pid})


def _work(line: bytes) -> None:
    serve(ServeOptions(**json.loads(line)), ready=lambda url: tell_ready(dict, url=url), until=until_closed)


if __name__ == "__main__":
    run_child(_work)
