"""Keys that are written to options: one declaration has a key, its limits, its unit and the option that it sets.

The default is the option's own, so that `[sources]` and `spark.readStream` cannot differ in it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic import Field

from headgate.config.base import Section
from headgate.sources.options import camel_case, names

__all__ = ["Option", "default_of", "option", "spark_options"]


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """The field of an options dataclass that a key is written to, and how."""

    options: type
    field: str  # Spark's name for it is the same in camel case
    in_milliseconds: bool = False  # a key is in seconds
    is_list: bool = False  # as text separated by commas


def option(options: type, field: str, *, in_milliseconds: bool = False, is_list: bool = False, **details: Any) -> Any:
    """Declare a key that is written to `field` of the dataclass `options` and has its default.

    `details` are limits and the description, as pydantic's `Field` takes them.
    """
    default = default_of(options, field)
    if in_milliseconds and default is not ...:
        default /= 1000
    if is_list and default is not ...:
        default = names(default)
    info = Field(default, **details)
    info.metadata.append(Option(options, field, in_milliseconds, is_list))
    return info


def default_of(options: type, field: str) -> Any:
    """Return the default of a field of a dataclass; `...` if it has none and so must be given."""
    found = next(each for each in dataclasses.fields(options) if each.name == field)
    return ... if found.default is dataclasses.MISSING else found.default


def spark_options(section: Section) -> dict[str, str]:
    """Return the options of a Spark data source that the keys of `section` set, in the option's name, unit and text."""
    written = {
        camel_case(each.field): (each, getattr(section, key))
        for key, info in type(section).model_fields.items()
        for each in info.metadata
        if isinstance(each, Option)
    }
    return {name: _text(each, value) for name, (each, value) in written.items()}


def _text(option: Option, value: Any) -> str:
    if option.in_milliseconds:
        return str(round(value * 1000))
    if option.is_list:
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
