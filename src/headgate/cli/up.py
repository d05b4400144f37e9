"""`headgate up`: keeps the embedded servers running and says how to reach them."""

from __future__ import annotations

import signal
import threading
from dataclasses import asdict

from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_json
from headgate.config import DEFAULT_FILE, Config, load
from headgate.control.stack import open_stack
from headgate.embedded import Endpoints
from headgate.model import ConnectError

__all__ = ["up"]


def up(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Start the embedded PostgreSQL and NATS, print their addresses, and keep them running until Ctrl-C.

    `headgate run` in the same project uses them instead of starting its own.
    """
    loaded = load(config) if config or DEFAULT_FILE.exists() else Config()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    stack, endpoints = open_stack(loaded)
    _show(endpoints, as_json)
    if stack is None:
        note("these servers belong to another process, which keeps them running")
        return
    try:
        while not stop.wait(0.5):
            if dead := stack.dead():
                raise ConnectError(
                    f"{', '.join(dead)} ended by itself", remedy="read its log in the data directory, then start again"
                )
    finally:
        note("stopping")
        stack.stop()


def _show(endpoints: Endpoints, as_json: bool) -> None:
    if as_json:
        print_json(asdict(endpoints))
        return
    addresses = {
        "PostgreSQL": endpoints.postgres_url,
        "PostgreSQL, TCP": endpoints.postgres_tcp_url,
        "NATS": endpoints.nats_url,
    }
    for name, url in addresses.items():
        if url:
            data_console.print(f"{name:<16} {url}", soft_wrap=True, markup=False)
    note(f'try: psql "{endpoints.postgres_url}"')
    note("Ctrl-C stops them; the data stays")
