"""Spark as the configuration wants it."""

from __future__ import annotations

import os
import re

from headgate.config import Config
from headgate.embedded import find_java
from headgate.pipeline.session import SparkOptions, SparkSession, open_session

__all__ = ["open_spark", "with_slots"]


def open_spark(config: Config, *, master: str | None = None, following: int = 0) -> SparkSession:
    """Start Spark; `master` in place of the configured one. `following`: tasks that never end, each with a slot."""
    data_dir = config.project.data_dir
    options = SparkOptions(
        java_home=find_java(data_dir / "java").home,
        log_dir=data_dir / "logs",
        master=with_slots(master or config.spark.master, following),
        driver_memory=config.spark.driver_memory,
        ui=config.spark.ui and master is None,
        conf=dict(config.spark.conf),
        has_sql=_has_sql(config),
    )
    return open_session(options, config.project.name)


def with_slots(master: str, more: int) -> str:
    """`local[4]` with so many slots more. A master with retries (`local[4,2]`) or of all cores has them added, too."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(,\d+)?\])?", master)
    if not found or not more:
        return master
    slots = os.cpu_count() or 1 if found[1] == "*" else int(found[1] or 1)
    return f"local[{slots + more}{found[2] or ''}]"


def _has_sql(config: Config) -> bool:
    """Whether rows of a pipeline pass through expressions of Spark, not only through Python's workers."""
    enabled = (pipeline for pipeline in config.pipelines.values() if pipeline.enabled)
    return any(transform.type != "route" for pipeline in enabled for transform in pipeline.transforms)
