"""The ordered list of transforms, as DataFrame expressions. Whatever they do, `_position` stays with its row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from headgate.config.routing import RouteTransform
from headgate.config.transforms import (
    DropTransform,
    FilterTransform,
    RenameTransform,
    SelectTransform,
    SqlTransform,
    TransformSection,
)
from headgate.model import ConfigError, record
from headgate.pipeline.failures import short
from headgate.pipeline.routing.columns import path_value
from headgate.pipeline.routing.router import lookup_column

__all__ = ["apply_transforms", "reserved_columns"]

PlainTransform = FilterTransform | SelectTransform | RenameTransform | DropTransform | SqlTransform


def apply_transforms(frame: DataFrame, transforms: Sequence[TransformSection], *, where: str) -> DataFrame:
    """Apply each transform in order; a mistake in one is a `ConfigError` that names it."""
    routes = 0
    for index, transform in enumerate(transforms):
        place = f"{where}.transforms[{index}] ({transform.type})"
        try:
            if isinstance(transform, RouteTransform):
                frame = _add_lookup(frame, transform, routes, place)
                routes += 1
            else:
                frame = _apply(frame, transform)
        except (AnalysisException, ParseException) as error:
            raise ConfigError(short(error), where=place, remedy=f"columns here: {', '.join(frame.columns)}") from None
        except ConfigError as error:
            raise error.at(place) from None
        if record.POSITION not in frame.columns:
            raise ConfigError(
                f"the column {record.POSITION} is gone",
                where=place,
                remedy=f"keep it: write `select *, ...` or add {record.POSITION} to the columns",
            )
    return frame


def _apply(frame: DataFrame, transform: PlainTransform) -> DataFrame:
    match transform:
        case FilterTransform():
            return frame.where(transform.where)
        case SelectTransform():
            kept = [name for name in reserved_columns(frame) if name not in transform.columns]
            return frame.selectExpr(*transform.columns, *(f"`{name}`" for name in kept))
        case RenameTransform():
            _must_exist(frame, transform.columns)
            return frame.withColumnsRenamed(dict(transform.columns))
        case DropTransform():
            _must_exist(frame, transform.columns)
            return frame.drop(*transform.columns)
        case SqlTransform():
            frame.createOrReplaceTempView("batch")
            return frame.sparkSession.sql(transform.query)
        case _:
            assert_never(transform)


def _add_lookup(frame: DataFrame, transform: RouteTransform, number: int, place: str) -> DataFrame:
    """The value that a route looks up, as it is at this point of the list."""
    values = [path_value(frame, path, place) for path in transform.field]
    value = values[0] if len(values) == 1 else f.concat(*_joined(values))
    return frame.withColumn(lookup_column(number), value)


def _joined(values: list[Column]) -> list[Column]:
    parts: list[Column] = []
    for value in values:
        parts += [value] if not parts else [f.lit("/"), value]
    return parts


def _must_exist(frame: DataFrame, columns: Sequence[str] | dict[str, str]) -> None:
    """Spark ignores a wrong name here; a typing error deserves better."""
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise ConfigError(
            f"there is no column {', '.join(missing)}", remedy=f"columns here: {', '.join(frame.columns)}"
        )


def reserved_columns(frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if name.startswith(record.RESERVED_PREFIX)]
