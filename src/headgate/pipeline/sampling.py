"""Sample rows as a pipeline makes them: with the source's columns, through its transforms, by Spark."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StructType

from headgate.model import HeadgateError, UsageError, record
from headgate.pipeline.delivery import delivery_of
from headgate.pipeline.failures import short
from headgate.pipeline.routing.columns import AFTER, BODY
from headgate.pipeline.routing.explain import ORIGIN, Explanation, explain_batch, sample_id
from headgate.pipeline.routing.settings import RoutingSettings
from headgate.pipeline.routing.table import DestinationTable
from headgate.pipeline.spec import PipelineSpec

__all__ = ["explain_samples"]

Row = dict[str, Any]
_LINE = "line"


def explain_samples(
    spark: SparkSession,
    spec: PipelineSpec,
    rows: Sequence[Row],
    settings: RoutingSettings,
    table: DestinationTable | None = None,
) -> tuple[list[Explanation], list[str]]:
    """Where rows would go, and what to know besides. `settings` are those in use now."""
    if not rows:
        return [], []
    try:
        frame, remarks = _frame(spark.newSession(), spec, rows)
        made = delivery_of(frame, spec, ORIGIN).toArrow()
    except PySparkException as error:  # such as an expression that cannot take a row's value
        raise UsageError(f"the samples do not pass the transforms: {short(error)}", where=spec.where) from None
    batches = made.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=made.schema)]
    return explain_batch(rows, batches[0], settings, spec.destinations, table), remarks


def _frame(session: SparkSession, spec: PipelineSpec, rows: Sequence[Row]) -> tuple[DataFrame, list[str]]:
    """The samples as the source would give them."""
    schema = _schema(session, spec)
    given = [_as_source(row, schema) for row in rows] if schema else list(rows)
    lines = session.createDataFrame(
        [(sample_id(number), json.dumps(row, default=str)) for number, row in enumerate(given)],
        f"{record.POSITION} string, {_LINE} string",
    )
    if schema is None:
        schema = session.read.json(lines.rdd.map(lambda line: str(line[1]))).schema
        remarks = ["the source cannot be asked for its columns now: they are taken from the samples"]
    else:
        unknown = sorted({name for row in given for name in row} - set(schema.names))
        remarks = [f"the source has no column {', '.join(unknown)}: left out"] if unknown else []
    parsed = f.from_json(_LINE, schema).alias("row")
    columns = [f.col(f"row.`{name}`") for name in schema.names if name != record.POSITION]
    return lines.select(parsed, record.POSITION).select(*columns, record.POSITION), remarks


def _schema(session: SparkSession, spec: PipelineSpec) -> StructType | None:
    """The columns of the source, of changes with their rows; None if it cannot be asked."""
    source, stream = spec.source, session.readStream
    try:
        frame: DataFrame
        if source.has_envelope:
            frame = stream.format(source.format).options(**source.options() | {"images": "true"}).load()
        else:
            frame = source.load(stream)
    except (HeadgateError, AnalysisException):
        return None
    return frame.schema


def _as_source(row: Row, schema: StructType) -> Row:
    """A row of a table is the new row of a change, and an event is the body of a request, unless it says otherwise."""
    names = set(schema.names)
    if AFTER in names and AFTER not in row:
        own = {name: value for name, value in row.items() if name in names}
        image = {name: value for name, value in row.items() if name not in names}
        return {record.OP: "insert", **own, AFTER: json.dumps(image, default=str)}
    if BODY in names and not names & row.keys():
        row = {BODY: json.dumps(row, default=str)}
    return {name: _as_text(value) if _is_binary(schema, name) else value for name, value in row.items()}


def _is_binary(schema: StructType, name: str) -> bool:
    return name in schema.names and isinstance(schema[name].dataType, BinaryType)


def _as_text(value: Any) -> str | None:
    """Bytes are written in base64, which is what Spark reads of JSON; a text stands for its own bytes."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise UsageError("a column of bytes is given as text", remedy="write it as a JSON string")
    return base64.b64encode(value.encode()).decode()
