"""Compiles what executors decode with while Spark starts."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial

from headgate.config import Config
from headgate.config.sources import PostgresCdcSourceSection

__all__ = ["compile_all", "compile_decoders"]

_KERNELS = "headgate.kernels.changes"


def compile_all() -> None:
    """Compile the kernels of every format that keeps rows as they are; what was compiled before is found on disk."""
    for arguments in (["msgpack", "picks"], ["json", "picks"], ["debezium", "picks", "keys"]):
        subprocess.run([sys.executable, "-m", _KERNELS, *arguments], check=True)
    subprocess.run([sys.executable, "-m", "headgate.kernels.log.positions"], check=True)


def compile_decoders(config: Config) -> None:
    """Compile in the background what the executors will decode with: seconds on a new machine, and nothing later.

    A process of its own, because the compiler would keep this one busy and large. If it fails, so will the first
    batch, and that one says why.
    """
    enabled = [pipeline for pipeline in config.pipelines.values() if pipeline.enabled]
    routed = {pipeline.source for pipeline in enabled if pipeline.routed}
    for name in {pipeline.source for pipeline in enabled}:
        section = config.sources[name]
        if isinstance(section, PostgresCdcSourceSection):
            command = [sys.executable, "-m", _KERNELS, section.format]
            command += ["images"] if section.images else []
            command += ["picks"] if name in routed else []
            command += ["keys"] if section.format == "debezium" and section.debezium.message_keys else []
            run = partial(subprocess.run, command, capture_output=True, check=False)
            threading.Thread(target=run, name=f"compile {name}", daemon=True).start()
