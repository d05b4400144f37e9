"""A gateway as a child process."""

from __future__ import annotations

import msgspec

from headgate.gateway.options import GatewayOptions
from headgate.gateway.server import Gateway, serve
from headgate.runtime.child import ready, run_child, until_closed


def _ready(gateway: Gateway) -> None:
    cluster = gateway.services.cluster
    ready(
        gateway.told,
        port=gateway.options.port,
        advertised=str(gateway.advertised),
        node_id=cluster.node_id,
        cluster_id=cluster.id,
    )


def _work(line: bytes) -> None:
    options = msgspec.json.decode(line, type=GatewayOptions, dec_hook=lambda kind, value: kind(value))
    serve(options, ready=_ready, until=until_closed)


if __name__ == "__main__":
    run_child(_work)
