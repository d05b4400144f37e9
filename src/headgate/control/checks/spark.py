"""Is there a Java that Spark can use, and can Spark's workers import what they need?"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pyarrow

from headgate.config.models import SparkSection
from headgate.control.checks.verdict import Check, Outcome, failed
from headgate.embedded import find_java
from headgate.model import HeadgateError
from headgate.pipeline.session import SparkOptions, check_worker_python, try_session

__all__ = ["check_spark"]


def check_spark(section: SparkSection, data_dir: Path, *, start: bool) -> Iterator[Check]:
    """Java, the workers' Python and, with `start`, a real job on the configured master."""
    try:
        java = find_java(data_dir / "java")
    except HeadgateError as error:
        yield failed("java", error)
        return
    yield Check("java", Outcome.OK, f"{java.version} from {java.origin} ({java.home})")
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    try:
        check_worker_python(python)
        yield Check("spark worker python", Outcome.OK, f"{python}, pyarrow {pyarrow.__version__}")
        yield Check("spark", Outcome.OK, f"{metadata.version('pyspark')}, master {section.master}")
        if start:
            options = SparkOptions(
                java.home, data_dir / "logs", section.master, section.driver_memory, conf=dict(section.conf)
            )
            yield _job(options)
    except HeadgateError as error:
        yield failed("spark worker python" if "PYSPARK_PYTHON" in error.where else "spark job", error)


def _job(options: SparkOptions) -> Check:
    return Check("spark job", Outcome.OK, f"{try_session(options)} rows through a Python worker on {options.master}")
