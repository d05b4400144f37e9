"""Spark as the configuration wants it."""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

from headgate.config import Config
from headgate.embedded import find_java
from headgate.pipeline.session import SparkOptions, SparkSession, open_session, start_java

__all__ = ["begin_java", "open_spark", "with_slots"]

_finding_java = threading.Lock()


def open_spark(config: Config, *, master: str | None = None, following: int = 0) -> SparkSession:
    """Start Spark; `master` in place of the configured one. `following`: tasks that never end, each with a slot."""
    return open_session(_options(config, master, following), config.project.name)


def begin_java(config: Config) -> None:
    """Start Spark's Java in the background. If that fails, opening Spark tries it again and says why."""

    def begin() -> None:
        with suppress(Exception):
            start_java(_options(config, None, 0))

    threading.Thread(target=begin, name="java", daemon=True).start()


def _options(config: Config, master: str | None, following: int) -> SparkOptions:
    data_dir = config.project.data_dir
    with _finding_java:  # who comes second need not ask each Java again
        java_home = _java_home(data_dir / "java")
    return SparkOptions(
        java_home=java_home,
        log_dir=data_dir / "logs",
        master=with_slots(master or config.spark.master, following),
        driver_memory=config.spark.driver_memory,
        ui=config.spark.ui and master is None,
        conf=dict(config.spark.conf),
        has_sql=_has_sql(config),
    )


def with_slots(master: str, more: int) -> str:
    """`local[4]` with so many slots more. A master with retries (`local[4,2]`) or of all cores has them added, too."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(,\d+)?\])?", master)
    if not found or not more:
        return master
    slots = os.cpu_count() or 1 if found[1] == "*" else int(found[1] or 1)
    return f"local[{slots + more}{found[2] or ''}]"


@cache
def _java_home(wrapper: Path) -> Path:
    return find_java(wrapper).home


def _has_sql(config: Config) -> bool:
    """Whether rows of a pipeline pass through expressions of Spark, not only through Python's workers."""
    enabled = (pipeline for pipeline in config.pipelines.values() if pipeline.enabled)
    return any(transform.type != "route" for pipeline in enabled for transform in pipeline.transforms)
