"""The registry's HTTP server as a child process."""

from __future__ import annotations

import msgspec

from headgate.registry.http.server import RegistryServer, serve
from headgate.registry.options import RegistryOptions
from headgate.runtime.child import ready, run_child, until_closed


def _ready(registry: RegistryServer) -> None:
    ready(registry.metrics, url=registry.url, port=int(registry.url.rpartition(":")[2]))


def _work(line: bytes) -> None:
    options = msgspec.json.decode(line, type=RegistryOptions, dec_hook=lambda kind, value: kind(value))
    serve(options, ready=_ready, until=until_closed)


if __name__ == "__main__":
    run_child(_work)
