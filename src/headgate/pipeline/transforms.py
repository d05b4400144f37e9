"""The ordered list of transforms, as DataFrame expressions. Whatever they do, `_position` stays with its row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

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

__all__ = ["apply_transforms", "reserved_columns"]


def apply_transforms(frame: DataFrame, transforms: Sequence[TransformSection], *, where: str) -> DataFrame:
    """Apply each transform in order; a mistake in one is a `ConfigError` that names it."""
    for index, transform in enumerate(transforms):
        place = f"{where}.transforms[{index}] ({transform.type})"
        try:
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


def _apply(frame: DataFrame, transform: TransformSection) -> DataFrame:
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


def _must_exist(frame: DataFrame, columns: Sequence[str] | dict[str, str]) -> None:
    """Spark ignores a wrong name here; a typing error deserves better."""
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise ConfigError(
            f"there is no column {', '.join(missing)}", remedy=f"columns here: {', '.join(frame.columns)}"
        )


def reserved_columns(frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if name.startswith(record.RESERVED_PREFIX)]
