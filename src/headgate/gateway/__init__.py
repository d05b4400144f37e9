"""A Kafka broker whose log is PostgreSQL.

    serve(GatewayOptions(postgres_url=url), ready=lambda gateway: print(gateway.advertised))

`server` listens, `connection` reads frames, `handlers` answer requests, `store` is the log, `groups` coordinates
consumers, `cluster` knows the other gateways of the same database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.runtime.lazy import lazily

if TYPE_CHECKING:
    from headgate.gateway.options import GatewayOptions, HostPort
    from headgate.gateway.server import Gateway, serve
else:
    __getattr__ = lazily(__name__, HostPort="options", GatewayOptions="options", Gateway="server", serve="server")

__all__ = ["Gateway", "GatewayOptions", "HostPort", "serve"]
