"""The relay beside the pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.runtime.server_process import ServerProcess

if TYPE_CHECKING:
    from headgate.relay.service import RelaySettings

__all__ = ["RelayProcess"]

_STOP_S = 10.0
_OWN_PAGES = ("families", "overview")  # for `/metrics`, and for the dashboard


class RelayProcess(ServerProcess):
    """A relay, started and watched."""

    def __init__(self, settings: RelaySettings) -> None:
        super().__init__("relay", "headgate.relay", settings, stop_s=_STOP_S)

    def status(self) -> dict[str, Any]:
        counted = {name: value for name, value in self.metrics().items() if name not in _OWN_PAGES}
        return super().status() | {"counters": counted}
