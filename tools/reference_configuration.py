"""The page of the configuration: every table and key with its type, default, limits and meaning."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import annotated_types
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from headgate.config.base import Duration, Name, PluginOptions, SecretText, Section, Size
from headgate.config.models import Config
from headgate.config.options import Option
from headgate.sources.options import camel_case
from tools.tables import code, page, table

__all__ = ["configuration_page", "tables_of"]

_INLINE = ("Target", "DestinationPattern")  # too small for a title: the description of the key explains them
_PLAIN: dict[Any, str] = {
    Duration: "duration",
    Size: "size",
    SecretText: "secret text",
    SecretStr: "secret text",
    PluginOptions: "table",
    Name: "name",
    Path: "path",
    str: "text",
    int: "integer",
    float: "number",
    bool: "`true` or `false`",
    Any: "any value",
}
_UNITS_S = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_UNITS_BYTES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_WORDS = {
    annotated_types.Ge: ("ge", "at least"),
    annotated_types.Gt: ("gt", "above"),
    annotated_types.Le: ("le", "at most"),
    annotated_types.Lt: ("lt", "below"),
}

_INTRODUCTION = """
Every key of `headgate.toml`. [The configuration](../configuration.md) explains where the file is looked for, secrets,
environment variables and how tables belong together; `headgate schema` prints the same as JSON Schema, for editors.

A *duration* is a number of seconds or text with a unit (`"500ms"`, `"30s"`, `"2m"`, `"1h"`, `"7d"`), a *size* a number
of bytes or text with a unit (`"64MB"`, `"1GiB"`). A *secret text* is masked wherever the configuration is shown; if the
key has a twin that ends in `_file`, that names a file to read it from. Where a key of a source sets an option of the
Spark data source, that is the name for `.option(...)`.
"""


def configuration_page() -> str:
    """Return the page of every table and key."""
    parts = [_part(*found) for found in tables_of(Config, "")]
    return page("Configuration reference", "the models of `headgate.config`", _INTRODUCTION, *parts)


def tables_of(section: type[Section], path: str) -> Iterator[tuple[str, type[Section]]]:
    """Yield the name and the model of every table below a model, in the order of their declaration."""
    hints = get_type_hints(section, include_extras=True)
    for key, info in section.model_fields.items():
        where = f"{path}.{key}" if path else key
        for model in _sections(hints[key]):
            kind = model.model_fields.get("type")
            name = f"{where}.NAME" if get_origin(info.annotation) is dict else where
            told = f"[{name}]" if kind is None else f'[{name}] type = "{get_args(kind.annotation)[0]}"'
            if model.__name__ not in _INLINE:
                yield told, model
                yield from tables_of(model, name)


def _sections(hint: Any) -> list[type[Section]]:
    if inspect.isclass(hint) and issubclass(hint, Section):
        return [hint]
    return [found for each in get_args(hint) for found in _sections(each)]


def _part(name: str, model: type[Section]) -> str:
    hints = get_type_hints(model, include_extras=True)
    shown = [key for key in model.model_fields if key != "type" and not _is_file_twin(model, key)]
    with_options = any(_option(model.model_fields[key]) for key in shown) and name.startswith("[sources")
    columns = ["key", "type", "default", "meaning", *(["Spark option"] if with_options else [])]
    rows = [_row(model, key, hints[key], with_options) for key in shown]
    return f"## {code(name)}\n\n{inspect.getdoc(model)}\n\n{table(columns, rows)}"


def _is_file_twin(model: type[Section], key: str) -> bool:
    return key.endswith("_file") and key.removesuffix("_file") in model.model_fields


def _row(model: type[Section], key: str, hint: Any, with_options: bool) -> list[str]:
    info = model.model_fields[key]
    twin = f", {code(key + '_file')}" if f"{key}_file" in model.model_fields else ""
    kind = ", ".join([_type(hint), *_limits(info, hint)])
    option = _option(info)
    spark = [code(camel_case(option.field)) if option else ""] if with_options else []
    return [code(key) + twin, kind, _default(info, hint), info.description or "", *spark]


def _option(info: FieldInfo) -> Option | None:
    return next((each for each in info.metadata if isinstance(each, Option)), None)


def _type(hint: Any) -> str:
    """Return a type in words of TOML."""
    for known, word in _PLAIN.items():
        if hint == known:
            return word
    if inspect.isclass(hint) and issubclass(hint, Section):
        return "table"
    origin, parts = get_origin(hint), [each for each in get_args(hint) if each is not Ellipsis]
    if origin is Annotated:
        return _type(parts[0])
    if origin is Literal:
        return ", ".join(code(json.dumps(each)) for each in parts)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_type(each) for each in parts if each is not NoneType))
    if origin in (tuple, list):
        return f"list of {_type(parts[0])}"
    if origin is dict:
        return f"table of {_type(parts[1])}"
    raise TypeError(f"say in {__name__} what {hint} is called")


def _limits(info: FieldInfo, hint: Any) -> Iterator[str]:
    for each in info.metadata:
        if type(each) in _WORDS:
            attribute, words = _WORDS[type(each)]
            limit = getattr(each, attribute)
            if not (attribute == "ge" and limit == 0):
                yield f"{words} {_value(limit, hint)}"


def _default(info: FieldInfo, hint: Any) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined or isinstance(value, Section) or value in ("", (), {}):
        return ""
    return code(_value(value, hint))


def _value(value: Any, hint: Any) -> str:
    if isinstance(value, SecretStr):
        return json.dumps(value.get_secret_value())
    if Duration in (hint, *get_args(hint)) and value:
        unit, seconds = next((each for each in _UNITS_S if value % each[1] == 0), ("ms", 0.001))
        return json.dumps(f"{value / seconds:g}{unit}")
    if Size in (hint, *get_args(hint)) and value:
        unit, size = next((each for each in _UNITS_BYTES if value % each[1] == 0), ("", 1))
        return json.dumps(f"{value // size}{unit}") if unit else str(value)
    if isinstance(value, (tuple, list)):
        return json.dumps(list(value))
    return (
        str(value) if isinstance(value, int | float) and not isinstance(value, bool) else json.dumps(value, default=str)
    )
