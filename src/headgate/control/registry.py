"""The schema registry beside the pipelines."""

from __future__ import annotations

from importlib.util import find_spec

from headgate.model.extras import missing_extra
from headgate.registry.options import RegistryOptions
from headgate.runtime.server_process import ServerProcess

__all__ = ["RegistryProcess"]

_STOP_S = 10.0


class RegistryProcess(ServerProcess):
    """A schema registry, started and watched. Raises DependencyError where its packages are missing."""

    def __init__(self, options: RegistryOptions) -> None:
        for package in ("fastavro", "grpc_tools"):  # its process imports them, and this one need not
            told = missing_extra(ModuleNotFoundError(name=package), "registry")
            if find_spec(package) is None and told is not None:
                raise told
        super().__init__("registry", "headgate.registry.http", options, stop_s=_STOP_S)
