"""What a pipeline asks of Spark, done once so that Java loads the classes: `python -m headgate.pipeline.training`.

Arguments: Java's home, a directory for Spark's files, and the file for the archive that Java writes when it ends.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from headgate.pipeline.session import SparkOptions, SparkSession, open_session

__all__ = ["train"]

_PATIENCE_S = 300


def train(java_home: Path, scratch: Path, archive: Path) -> None:
    """Run a batch and a stream with Python workers, and let Java end by itself."""
    java_options = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={archive}"
    session = open_session(SparkOptions(java_home, scratch / "logs", java_options=java_options), "training")
    gateway: Any = session.sparkContext._gateway
    session.range(1000).mapInArrow(lambda batches: batches, "id bigint").count()
    _stream(session, scratch)
    session.stop()
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    process.wait(_PATIENCE_S)


def _stream(session: SparkSession, scratch: Path) -> None:
    rows = session.readStream.format("random").option("rowsPerSecond", 100).load()
    sent = rows.mapInArrow(lambda batches: batches, rows.schema)
    query = sent.writeStream.format("noop").option("checkpointLocation", str(scratch / "checkpoint")).start()
    try:
        while not query.recentProgress and query.isActive:
            query.awaitTermination(1)
    finally:
        query.stop()


if __name__ == "__main__":
    train(*map(Path, sys.argv[1:4]))
