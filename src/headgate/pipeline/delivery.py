"""From a row to a message: topic, message id and payload, as Spark expressions."""

from __future__ import annotations

import re
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from headgate.model import ConfigError, record
from headgate.pipeline.transforms import reserved_columns

__all__ = ["delivery_frame"]

PayloadFormat = Literal["json", "raw", "envelope"]

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def delivery_frame(
    frame: DataFrame,
    *,
    topic: str | None,
    origin: str,
    payload_format: PayloadFormat,
    payload_column: str | None,
    where: str,
) -> DataFrame:
    """The columns that a destination takes, and no others."""
    return frame.select(
        _topic(frame, topic, where).alias(record.TOPIC),
        f.concat(f.lit(f"{origin}-"), f.col(record.POSITION)).alias(record.MESSAGE_ID),
        _payload(frame, payload_format, payload_column, where).cast("binary").alias(record.PAYLOAD),
    )


def _topic(frame: DataFrame, template: str | None, where: str) -> Column:
    """`orders.{kind}`: the text between braces names a column. A NULL there makes the topic NULL."""
    if template is None:
        _require(frame, record.TOPIC, f"{where}.topic")
        return f.col(record.TOPIC)
    parts: list[Column] = []
    end = 0
    for match in _PLACEHOLDER.finditer(template):
        _require(frame, match[1], f"{where}.topic")
        parts += [f.lit(template[end : match.start()]), f.col(f"`{match[1]}`").cast("string")]
        end = match.end()
    return f.concat(*parts, f.lit(template[end:]))


def _payload(frame: DataFrame, payload_format: PayloadFormat, column: str | None, where: str) -> Column:
    if payload_format == "envelope":
        _require(frame, record.PAYLOAD, f"{where}.format")
        return f.col(record.PAYLOAD)
    if payload_format == "raw":
        assert column is not None
        _require(frame, column, f"{where}.payload_column")
        return f.col(f"`{column}`")
    reserved = reserved_columns(frame)
    visible = [f.col(f"`{name}`") for name in frame.columns if name not in reserved]
    return f.to_json(f.struct(*visible), {"ignoreNullFields": "false"})


def _require(frame: DataFrame, column: str, where: str) -> None:
    if column not in frame.columns:
        raise ConfigError(
            f"there is no column {column!r}", where=where, remedy=f"columns here: {', '.join(frame.columns)}"
        )
