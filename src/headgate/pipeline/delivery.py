"""From a row to a message: topic, message id and payload, as Spark expressions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from headgate.model import ConfigError, record
from headgate.pipeline.routing.columns import absent, row_value
from headgate.pipeline.routing.router import ABSENT, KEY, KEY_STREAM, KEY_TOPIC, lookup_column
from headgate.pipeline.routing.settings import RoutingSettings
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.transforms import apply_transforms, reserved_columns

__all__ = ["delivery_frame", "delivery_of", "routing_columns"]

PayloadFormat = Literal["json", "raw", "envelope"]

# Times as events of PostgreSQL have them: with microseconds, which Spark by itself would cut off.
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def delivery_frame(
    frame: DataFrame,
    *,
    topic: str | None,
    origin: str,
    payload_format: PayloadFormat,
    payload_column: str | None,
    where: str,
    routed: Mapping[str, Column] | None = None,
    hidden: Sequence[str] = (),
) -> DataFrame:
    """The columns that a destination takes, or with `routed` those that the router takes, and no others."""
    columns = routed or {record.TOPIC: _topic(frame, topic, where)}
    return frame.select(
        *(column.alias(name) for name, column in columns.items()),
        f.concat(f.lit(f"{origin}-"), f.col(record.POSITION)).alias(record.MESSAGE_ID),
        _payload(frame, payload_format, payload_column, where, hidden).cast("binary").alias(record.PAYLOAD),
    )


def delivery_of(frame: DataFrame, spec: PipelineSpec, origin: str) -> DataFrame:
    """The rows of a pipeline's source as it delivers them: behind its transforms, with what its routes look at."""
    frame = apply_transforms(frame, spec.transforms, where=spec.where)
    return delivery_frame(
        frame,
        topic=spec.topic,
        origin=origin,
        payload_format=spec.payload_format,
        payload_column=spec.payload_column,
        where=spec.where,
        routed=routing_columns(frame, spec.routing, where=spec.where) if spec.routing else {},
        hidden=spec.routing.paths.columns if spec.routing and spec.routing.paths.strip else (),
    )


def routing_columns(frame: DataFrame, routing: RoutingSettings, *, where: str) -> dict[str, Column]:
    """What the router looks at."""
    paths = routing.paths
    place = f"{where}.routing"
    columns = {lookup_column(number): f.col(lookup_column(number)) for number in range(len(paths.lookups))}
    named = {KEY_STREAM: paths.stream, KEY_TOPIC: paths.topic, KEY: paths.partition_key}
    columns |= {name: row_value(frame, column, place) for name, column in named.items() if column}
    if paths.tables:
        for name in (record.SCHEMA, record.TABLE):
            _require(frame, name, f"{place}.by_table")
            columns[name] = f.col(name)
    if record.OP in frame.columns:
        columns[record.OP] = f.col(record.OP)
    if paths.columns:
        columns[ABSENT] = absent(frame, paths.columns)
    return columns


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


def _payload(
    frame: DataFrame, payload_format: PayloadFormat, column: str | None, where: str, hidden: Sequence[str]
) -> Column:
    if payload_format == "envelope":
        _require(frame, record.PAYLOAD, f"{where}.format")
        return f.col(record.PAYLOAD)
    if payload_format == "raw":
        assert column is not None
        _require(frame, column, f"{where}.payload_column")
        return f.col(f"`{column}`")
    reserved = [*reserved_columns(frame), *hidden]
    visible = [f.col(f"`{name}`") for name in frame.columns if name not in reserved]
    return f.to_json(f.struct(*visible), _JSON)


def _require(frame: DataFrame, column: str, where: str) -> None:
    if column not in frame.columns:
        raise ConfigError(
            f"there is no column {column!r}", where=where, remedy=f"columns here: {', '.join(frame.columns)}"
        )
