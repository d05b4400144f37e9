"""The schema registry beside the pipelines."""

from __future__ import annotations

from headgate.registry.options import RegistryOptions
from headgate.runtime.server_process import ServerProcess

__all__ = ["RegistryProcess"]

_STOP_S = 10.0


class RegistryProcess(ServerProcess):
    """A schema registry, started and watched."""

    def __init__(self, options: RegistryOptions) -> None:
        super().__init__("registry", "headgate.registry.http", options, stop_s=_STOP_S)
