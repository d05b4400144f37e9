"""Spark as the configuration wants it."""

from __future__ import annotations

from headgate.config import Config
from headgate.embedded import find_java
from headgate.pipeline.session import SparkOptions, SparkSession, open_session

__all__ = ["open_spark"]


def open_spark(config: Config, *, master: str | None = None) -> SparkSession:
    """Start Spark; `master` in place of the configured one."""
    data_dir = config.project.data_dir
    options = SparkOptions(
        java_home=find_java(data_dir / "java").home,
        log_dir=data_dir / "logs",
        master=master or config.spark.master,
        driver_memory=config.spark.driver_memory,
        ui=config.spark.ui and master is None,
        conf=dict(config.spark.conf),
        has_sql=_has_sql(config),
    )
    return open_session(options, config.project.name)


def _has_sql(config: Config) -> bool:
    """Whether rows of a pipeline pass through expressions of Spark, not only through Python's workers."""
    enabled = (pipeline for pipeline in config.pipelines.values() if pipeline.enabled)
    return any(transform.type != "route" for pipeline in enabled for transform in pipeline.transforms)
