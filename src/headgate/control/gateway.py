"""The gateway beside the pipelines."""

from __future__ import annotations

from typing import ClassVar

from headgate.gateway.options import GatewayOptions
from headgate.runtime.server_process import ServerProcess

__all__ = ["GatewayProcess"]


class GatewayProcess(ServerProcess):
    """A gateway, started and watched."""

    facts: ClassVar[tuple[str, ...]] = ("advertised", "node_id")

    def __init__(self, options: GatewayOptions) -> None:
        super().__init__("gateway", "headgate.gateway", options, stop_s=options.drain_timeout_s)
