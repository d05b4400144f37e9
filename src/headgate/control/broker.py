"""The broker beside the pipelines."""

from __future__ import annotations

from typing import Any

from headgate.broker.http.options import BrokerServerOptions
from headgate.runtime.server_process import ServerProcess

__all__ = ["BrokerProcess"]

_STOP_S = 10.0


class BrokerProcess(ServerProcess):
    """The doors of a broker, started and watched."""

    def __init__(self, options: BrokerServerOptions) -> None:
        super().__init__("broker", "headgate.broker.http", options, stop_s=_STOP_S)

    def status(self) -> dict[str, Any]:
        """With the first problem there is: of one tenant mostly, so the broker itself is not degraded by it."""
        return super().status() | {"problem": self.metrics().get("problem")}
