"""A Kafka broker whose log is PostgreSQL.

    serve(GatewayOptions(postgres_url=url), ready=lambda gateway: print(gateway.advertised))

`server` listens, `connection` reads frames, `handlers` answer requests, `store` is the log, `groups` coordinates
consumers, `cluster` knows the other gateways of the same database.
"""

from __future__ import annotations

from headgate.gateway.options import Address, GatewayOptions
from headgate.gateway.server import Gateway, serve

__all__ = ["Address", "Gateway", "GatewayOptions", "serve"]
