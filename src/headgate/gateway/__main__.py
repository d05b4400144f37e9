"""A gateway as a child process: its options come on standard input, what it has to say leaves on standard output.

One JSON object per line: `{"ready": ...}` once, `{"metrics": ...}` every second, `{"log": ...}`, `{"error": ...}`. It
ends when its standard input is closed, so it cannot outlive whoever started it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import Any

import msgspec

from headgate.gateway.options import GatewayOptions
from headgate.gateway.server import Gateway, serve
from headgate.model import HeadgateError

_METRICS_S = 1.0
_PLAIN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _say(**line: Any) -> None:
    # One write per line: the log's threads speak, too.
    os.write(sys.stdout.fileno(), json.dumps(line, default=str).encode() + b"\n")


class _LogLines(logging.Handler):
    """Log records as lines for the parent, which writes them in its own form."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        extra = {name: value for name, value in vars(record).items() if name not in _PLAIN_FIELDS}
        _say(log={"name": record.name, "level": record.levelno, "text": text, "extra": extra})


def _ready(gateway: Gateway) -> None:
    cluster = gateway.services.cluster
    _say(
        ready={
            "port": gateway.options.port,
            "advertised": str(gateway.advertised),
            "node_id": cluster.node_id,
            "cluster_id": cluster.id,
            "pid": os.getpid(),
        }
    )
    loop = asyncio.get_running_loop()

    def tell() -> None:
        _say(metrics=gateway.metrics.as_dict())
        loop.call_later(_METRICS_S, tell)

    tell()


def _until_closed(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stop.set()

    loop.add_reader(0, read)


def main() -> None:
    """Serve until standard input is closed, or a signal comes."""
    logging.basicConfig(handlers=[_LogLines()], level=logging.INFO)
    options = msgspec.json.decode(
        sys.stdin.buffer.readline(), type=GatewayOptions, dec_hook=lambda kind, value: kind(value)
    )
    try:
        serve(options, ready=_ready, until=_until_closed)
    except HeadgateError as error:
        _say(error=error.as_dict())
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
