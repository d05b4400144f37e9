"""Starts the Python processes that the first batch will want, while Spark still plans it.

A batch needs five of them, one after the other: one to make the source, one that plans for it, one that reads, one that
sends. Each takes most of a second until it has imported what it needs, on one core, and Spark keeps it for a minute
afterwards, for every source that it finds by itself. So a row of one of them is sent ahead, beside the first pipeline's
own steps.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

__all__ = ["prestart_workers"]

_log = logging.getLogger(__name__)


def prestart_workers(spark: SparkSession) -> threading.Thread:
    """Let Spark start its Python workers, in the background; a failure is told by the first batch itself.

    Returns the thread, which ends when they have started.
    """

    def run() -> None:
        try:
            spark.range(1).mapInArrow(_imported, "id bigint").collect()
            spark.read.format("random").option("numRows", "1").load().collect()
        except (PySparkException, Py4JError, OSError) as error:
            _log.debug("workers were not started ahead", extra={"error": str(error)})

    thread = threading.Thread(target=run, name="prestart", daemon=True)
    thread.start()
    return thread


def _imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Import what senders of changes do: the compiled loops alone take half a second."""
    import headgate.kernels.changes
    import headgate.pipeline.dispatch  # noqa: F401

    yield from batches
