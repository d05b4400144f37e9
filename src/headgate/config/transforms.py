"""The tables of `transforms = [...]`: one class per kind, applied in the order of the file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headgate.config.base import Section
from headgate.config.routing import RouteTransform

__all__ = [
    "DropTransform",
    "FilterTransform",
    "RenameTransform",
    "SelectTransform",
    "SqlTransform",
    "TransformSection",
]


class FilterTransform(Section):
    """Keep the rows for which a Spark SQL condition holds."""

    type: Literal["filter"]
    where: str = Field(min_length=1, description="Such as `\"amount > 100 and kind = 'order'\"`.")


class SelectTransform(Section):
    """Keep or compute columns."""

    type: Literal["select"]
    columns: tuple[str, ...] = Field(min_length=1, description='Such as `["id", "amount * 1.2 as gross"]`.')


class RenameTransform(Section):
    """Rename columns."""

    type: Literal["rename"]
    columns: dict[str, str] = Field(min_length=1, description='Such as `{ note = "comment" }`.')


class DropTransform(Section):
    """Leave columns out."""

    type: Literal["drop"]
    columns: tuple[str, ...] = Field(min_length=1, description='Such as `["note"]`.')


class SqlTransform(Section):
    """A Spark SQL query over the table `batch`. It must keep the column `_position`, as `select *` does."""

    type: Literal["sql"]
    query: str = Field(min_length=1, description='Such as `"select *, upper(kind) as label from batch"`.')


TransformSection = Annotated[
    FilterTransform | SelectTransform | RenameTransform | DropTransform | SqlTransform | RouteTransform,
    Field(discriminator="type"),
]
