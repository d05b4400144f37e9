"""The broker's HTTP server as a child process."""

from __future__ import annotations

import msgspec

from headgate.broker.http.options import BrokerServerOptions
from headgate.broker.http.server import BrokerServer, serve
from headgate.runtime.child import ready, run_child, until_closed


def _ready(doors: BrokerServer) -> None:
    ready(doors.metrics, url=doors.url, port=int(doors.url.rpartition(":")[2]))


def _work(line: bytes) -> None:
    serve(msgspec.json.decode(line, type=BrokerServerOptions), ready=_ready, until=until_closed)


if __name__ == "__main__":
    run_child(_work)
