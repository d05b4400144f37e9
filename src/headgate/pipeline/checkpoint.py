"""Reads what Spark keeps in a checkpoint, wherever it lies: local disk, HDFS, an object store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from headgate.model import StateError

__all__ = ["batch_end_offset", "checkpoint_has_batches", "checkpoint_query_id"]


def checkpoint_query_id(spark: SparkSession, checkpoint: str) -> str | None:
    """The id of the query that the checkpoint belongs to; None when there is no checkpoint."""
    text = _read(spark, f"{checkpoint}/metadata")
    if text is None:
        return None
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError):
        raise StateError(
            "the checkpoint's metadata cannot be read",
            where=checkpoint,
            remedy="restore the checkpoint, or start anew with: headgate reset PIPELINE",
        ) from None


def checkpoint_has_batches(spark: SparkSession, checkpoint: str) -> bool:
    """Whether a batch was ever finished."""
    path, file_system = _hadoop(spark, f"{checkpoint}/commits")
    return bool(file_system.exists(path)) and len(file_system.listStatus(path)) > 0


def batch_end_offset(spark: SparkSession | None, checkpoint: str, batch_id: int) -> dict[str, Any] | None:
    """Where a batch ends. Spark writes this before it hands the batch out: version, metadata, one line per source.

    Without a session only a checkpoint on the local disk can be read.
    """
    text = _read(spark, f"{checkpoint}/offsets/{batch_id}")
    lines = (text or "").splitlines()
    try:
        offset = json.loads(lines[2])
    except (IndexError, ValueError):
        return None
    return offset if isinstance(offset, dict) else None


def _read(spark: SparkSession | None, location: str) -> str | None:
    """A small file; on the local disk without a round trip through Java."""
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        try:
            return Path(unquote(parts.path)).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
    if spark is None:
        return None
    path, file_system = _hadoop(spark, location)
    if not file_system.exists(path):
        return None
    stream = file_system.open(path)
    try:
        return str(spark._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))  # type: ignore[union-attr]
    finally:
        stream.close()


def _hadoop(spark: SparkSession, location: str) -> tuple[Any, Any]:
    path = spark._jvm.org.apache.hadoop.fs.Path(location)  # type: ignore[union-attr]
    return path, path.getFileSystem(spark._jsc.hadoopConfiguration())
