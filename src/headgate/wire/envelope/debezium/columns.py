"""How Debezium writes a column: as what JSON, under which schema, and what stands for a value that nobody sent.

`rule` and `param` say the same to a compiled decoder; "slow" is whatever has no rule there.

Specification: Debezium documentation, PostgreSQL connector, "Data type mappings".
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headgate.model import HeadgateError
from headgate.wire.envelope.debezium import values
from headgate.wire.envelope.debezium.options import DebeziumOptions
from headgate.wire.envelope.debezium.values import UNAVAILABLE
from headgate.wire.pgtypes import Codec, TypeCatalog, TypeInfo, TypeKind, json_base64, quote
from headgate.wire.pgtypes.arrays import array_codec
from headgate.wire.pgtypes.hstore import HSTORE
from headgate.wire.pgtypes.scalars import BOOL, BYTEA, FLOAT, INT, TEXT

__all__ = ["ColumnForm", "ColumnForms", "default_json", "field_schema", "typmod_of"]

Json = Callable[[str], str]
Schema = dict[str, Any]

_ENUM = "io.debezium.data.Enum"
_MOST_PRECISION = 6
_MILLIS_PRECISION = 3  # up to this one, a time is in milliseconds
_NUMERIC_HEADER = 4
_NO_LENGTH = 2147483647
_UNAVAILABLE_JSON = quote(UNAVAILABLE)
_BYTES_OF_UNAVAILABLE = json.dumps(list(UNAVAILABLE.encode()), separators=(",", ":"))
# Java's UUID.nameUUIDFromBytes: of the bytes alone, without a name space.
_UUID_OF_UNAVAILABLE = str(uuid.UUID(bytes=hashlib.md5(UNAVAILABLE.encode()).digest(), version=3))  # noqa: S324
_INTEGERS = {"int2": "int16", "int4": "int32", "int8": "int64", "oid": "int64"}
_FLOATS = {"float4": "float", "float8": "double"}
_NAMED_STRINGS = {
    "json": "io.debezium.data.Json",
    "jsonb": "io.debezium.data.Json",
    "uuid": "io.debezium.data.Uuid",
    "xml": "io.debezium.data.Xml",
    "tsvector": "io.debezium.data.Tsvector",
    "ltree": "io.debezium.data.Ltree",
}
_VARIABLE_DECIMAL: Schema = {
    "type": "struct",
    "fields": [
        {"type": "int32", "optional": False, "field": "scale"},
        {"type": "bytes", "optional": False, "field": "value"},
    ],
    "name": "io.debezium.data.VariableScaleDecimal",
    "version": 1,
    "doc": "Variable scaled decimal",
}
_POINT: Schema = {
    "type": "struct",
    "fields": [
        {"type": "double", "optional": False, "field": "x"},
        {"type": "double", "optional": False, "field": "y"},
        {"type": "bytes", "optional": True, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
    ],
    "name": "io.debezium.data.geometry.Point",
    "version": 1,
    "doc": "Geometry (POINT)",
}


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """`zero` stands for a value that was not sent in a column that is NOT NULL, `unavailable` for one left out of line.

    `schema` is Kafka Connect's, without `optional` and `field`.
    """

    rule: str
    json: Json
    schema: Schema
    zero: str
    unavailable: str = "null"
    param: int = 0


_STRING = ColumnForm("text", TEXT.json, {"type": "string"}, '""', _UNAVAILABLE_JSON)


def _named(type_: str, name: str, **more: Any) -> Schema:
    return {"type": type_, "name": name, "version": 1, **more}


class ColumnForms:
    """The forms of columns by their types, under one set of options."""

    def __init__(self, types: TypeCatalog, options: DebeziumOptions) -> None:
        self._types = types
        self._options = options

    def of(self, type_id: int, typmod: int, labels: tuple[str, ...] = ()) -> ColumnForm:
        """The form of a column. `labels` are those of an enum, where they are known."""
        return self._of(type_id, typmod, labels, frozenset())

    def _of(self, type_id: int, typmod: int, labels: tuple[str, ...], inside: frozenset[int]) -> ColumnForm:
        info = self._types.info(type_id)
        if info is None or type_id in inside:
            return _STRING
        within = inside | {type_id}
        if info.kind is TypeKind.DOMAIN:
            return self._of(info.base, typmod, labels, within)
        if info.kind is TypeKind.ARRAY:
            return self._array(info, self._of(info.element, typmod, labels, within))
        if info.kind is TypeKind.ENUM and labels:
            allowed = {"allowed": ",".join(labels)}
            return replace(_STRING, schema=_named("string", _ENUM, parameters=allowed))
        return self._base(info.name, typmod) if info.kind is TypeKind.BASE else _STRING

    def _base(self, name: str, typmod: int) -> ColumnForm:
        if name in _INTEGERS:
            return ColumnForm("int", INT.json, {"type": _INTEGERS[name]}, "0")
        if name in _FLOATS:
            return ColumnForm("float", FLOAT.json, {"type": _FLOATS[name]}, "0.0")
        if name in _NAMED_STRINGS:
            return replace(_STRING, schema=_named("string", _NAMED_STRINGS[name]))
        if name in ("bit", "varbit"):
            return _bit_form(typmod)
        makers: dict[str, Callable[[int], ColumnForm]] = {
            "bool": lambda _: ColumnForm("bool", BOOL.json, {"type": "boolean"}, "false"),
            "bytea": lambda _: self._bytes(),
            "numeric": self._numeric,
            "money": lambda _: self._money(),
            "date": lambda _: self._date(),
            "time": self._time,
            "timestamp": self._timestamp,
            "timestamptz": _zoned_timestamp,
            "timetz": lambda _: _zoned_time(),
            "interval": lambda _: self._interval(),
            "point": lambda _: ColumnForm("slow", values.point, _POINT, '{"x":0.0,"y":0.0,"wkb":null,"srid":null}'),
            "hstore": lambda _: self._hstore(),
        }
        return makers[name](typmod) if name in makers else _STRING

    def _bytes(self) -> ColumnForm:
        mode = self._options.binary_handling_mode
        write = values.written_bytes(BYTEA, mode)
        is_plain = mode in ("bytes", "base64")
        schema: Schema = {"type": "bytes" if mode == "bytes" else "string"}
        unavailable = json_base64(UNAVAILABLE.encode()) if mode == "bytes" else _UNAVAILABLE_JSON
        return ColumnForm("bytea" if is_plain else "slow", write, schema, '""', unavailable)

    def _numeric(self, typmod: int) -> ColumnForm:
        mode = self._options.decimal_handling_mode
        if mode == "double":
            return ColumnForm("float", values.double, {"type": "double"}, "0.0")
        scale = _scale(typmod)
        if mode == "string":
            return replace(_STRING, zero=f'"{0:.{max(scale or 0, 0)}f}"')
        if scale is None:
            return ColumnForm(
                "variable", values.variable_decimal, _VARIABLE_DECIMAL, '{"scale":0,"value":"AA=="}', "null"
            )
        precision = (typmod - _NUMERIC_HEADER) >> 16
        return ColumnForm("decimal", values.decimal(scale), _decimal_schema(scale, precision), '"AA=="', param=scale)

    def _money(self) -> ColumnForm:
        mode = self._options.decimal_handling_mode
        schema = {"precise": _decimal_schema(2), "double": {"type": "double"}, "string": {"type": "string"}}[mode]
        zero = {"precise": '"AA=="', "double": "0.0", "string": '"0.00"'}[mode]
        return ColumnForm("slow", values.money(mode), schema, zero)

    def _date(self) -> ColumnForm:
        if self._options.time_precision_mode == "isostring":
            return _iso("iso_date", values.iso_date, "io.debezium.time.IsoDate", "1970-01-01Z")
        is_connect = self._options.time_precision_mode == "connect"
        name = "org.apache.kafka.connect.data.Date" if is_connect else "io.debezium.time.Date"
        return ColumnForm("days", values.days, _named("int32", name), "0")

    def _time(self, typmod: int) -> ColumnForm:
        mode = self._options.time_precision_mode
        if mode == "isostring":
            return _iso("iso_time", values.iso_time, "io.debezium.time.IsoTime", "00:00:00Z")
        if mode == "connect" or 0 <= typmod <= _MILLIS_PRECISION:
            name = "org.apache.kafka.connect.data.Time" if mode == "connect" else "io.debezium.time.Time"
            write: Json = lambda text: str(values.time_micros(text) // 1000)  # noqa: E731
            return ColumnForm("time_millis", write, _named("int32", name), "0")
        write = lambda text: str(values.time_micros(text))  # noqa: E731
        return ColumnForm("time_micros", write, _named("int64", "io.debezium.time.MicroTime"), "0")

    def _timestamp(self, typmod: int) -> ColumnForm:
        mode = self._options.time_precision_mode
        if mode == "isostring":
            return _iso("iso_timestamp", values.iso_timestamp, "io.debezium.time.IsoTimestamp", "1970-01-01T00:00:00Z")
        if mode == "connect" or 0 <= typmod <= _MILLIS_PRECISION:
            name = "org.apache.kafka.connect.data.Timestamp" if mode == "connect" else "io.debezium.time.Timestamp"
            write: Json = lambda text: str(values.micros(text) // 1000)  # noqa: E731
            return ColumnForm("millis", write, _named("int64", name), "0")
        write = lambda text: str(values.micros(text))  # noqa: E731
        return ColumnForm("micros", write, _named("int64", "io.debezium.time.MicroTimestamp"), "0")

    def _interval(self) -> ColumnForm:
        if self._options.interval_handling_mode == "numeric":
            return ColumnForm("slow", values.duration, _named("int64", "io.debezium.time.MicroDuration"), "0")
        zero = '"P0Y0M0DT0H0M0S"'
        return ColumnForm("slow", values.duration_text, _named("string", "io.debezium.time.Interval"), zero)

    def _hstore(self) -> ColumnForm:
        if self._options.hstore_handling_mode == "json":
            schema = _named("string", "io.debezium.data.Json")
            return ColumnForm("slow", values.hstore_text, schema, '"{}"', _UNAVAILABLE_JSON)
        text: Schema = {"type": "string", "optional": True}
        schema = {"type": "map", "keys": {"type": "string", "optional": False}, "values": text}
        both = f"{{{_UNAVAILABLE_JSON}:{_UNAVAILABLE_JSON}}}"
        return ColumnForm("slow", HSTORE.json, schema, "{}", both)

    def _array(self, info: TypeInfo, element: ColumnForm) -> ColumnForm:
        of_element = self._types.info(info.element)
        delimiter = of_element.delimiter if of_element else ","
        write = array_codec(Codec("element", TEXT.decode, element.json, TEXT.encode), delimiter).json
        items = {**element.schema, "optional": element.schema.get("name") != _ENUM}
        return ColumnForm("slow", write, {"type": "array", "items": _ordered(items)}, "[]", _unavailable_array(element))


def _scale(typmod: int) -> int | None:
    """The digits behind the point of a numeric; None if they are not fixed."""
    if typmod < _NUMERIC_HEADER:
        return None
    scale = (typmod - _NUMERIC_HEADER) & 0x7FF
    return scale - ((scale & 0x400) << 1)  # eleven bits with a sign


def _unavailable_array(element: ColumnForm) -> str:
    """Debezium's placeholder for an array that was left out of line."""
    if element.schema.get("type") in ("int32", "int64") and "name" not in element.schema:
        return _BYTES_OF_UNAVAILABLE
    if element.schema.get("name") == "io.debezium.data.Uuid":
        return f'["{_UUID_OF_UNAVAILABLE}"]'
    return f"[{element.unavailable}]" if element.unavailable != "null" else "[]"


def _iso(rule: str, write: Json, name: str, zero: str) -> ColumnForm:
    return ColumnForm(rule, write, _named("string", name), f'"{zero}"')


def _zoned_timestamp(typmod: int) -> ColumnForm:
    precision = typmod if 0 <= typmod <= _MOST_PRECISION else _MOST_PRECISION
    schema = _named("string", "io.debezium.time.ZonedTimestamp")
    return ColumnForm("zoned", values.zoned_timestamp(precision), schema, '"1970-01-01T00:00:00Z"', param=precision)


def _zoned_time() -> ColumnForm:
    return ColumnForm("slow", values.zoned_time, _named("string", "io.debezium.time.ZonedTime"), '"00:00:00Z"')


def _bit_form(length: int) -> ColumnForm:
    if length == 1:
        return ColumnForm("slow", values.bits(1), {"type": "boolean"}, "false")
    parameters = {"length": str(length if length > 0 else _NO_LENGTH)}
    schema = _named("bytes", "io.debezium.data.Bits", parameters=parameters)
    return ColumnForm("slow", values.bits(length), schema, '""', json_base64(UNAVAILABLE.encode()))


def _decimal_schema(scale: int, precision: int | None = None) -> Schema:
    parameters = {"scale": str(scale)} | ({} if precision is None else {"connect.decimal.precision": str(precision)})
    return _named("bytes", "org.apache.kafka.connect.data.Decimal", parameters=parameters)


_ORDER = ("type", "fields", "items", "keys", "values", "optional", "name", "version", "doc", "parameters", "default")


def _ordered(schema: Mapping[str, Any]) -> Schema:
    """The keys in the order in which Kafka Connect writes them."""
    return {key: schema[key] for key in (*_ORDER, "field") if key in schema}


def field_schema(form: ColumnForm, name: str, *, optional: bool, default: str | None) -> Schema:
    """A column's schema, complete."""
    schema = {**form.schema, "optional": optional, "field": name}
    if default is not None:
        schema["default"] = json.loads(default)
    return _ordered(schema)


def typmod_of(base_type: str | None) -> int:
    """The modifier of a domain's own type, as the catalog prints it: `numeric(10,2)`, `time(3) without time zone`."""
    match = re.search(r"\((\d+)(?:,(-?\d+))?\)", base_type or "")
    if match is None or base_type is None:
        return -1
    if base_type.startswith("numeric"):
        return (int(match[1]) << 16 | int(match[2] or 0) & 0x7FF) + _NUMERIC_HEADER
    return int(match[1])


def default_json(form: ColumnForm, expression: str | None) -> str | None:
    """A column's DEFAULT as JSON, if it is a plain value; what a function would return is known to the server alone."""
    literal = _literal(expression or "")
    if literal is None:
        return None
    try:
        return form.json(literal)
    except HeadgateError:
        return None


def _literal(expression: str) -> str | None:
    """`'a'::text`, `-5`, `true`: the text that PostgreSQL would print of it."""
    value, _, cast = expression.partition("::")
    if value.startswith("'"):
        quoted, _, rest = expression[1:].rpartition("'")
        is_whole = "'" not in quoted.replace("''", "") and (not rest or rest.startswith("::"))
        return quoted.replace("''", "'") if is_whole else None
    value = value.strip("()") if cast or value.startswith("(-") else value
    if value in ("true", "false"):
        return value[0]
    return value if value.lstrip("-").replace(".", "", 1).isdecimal() else None
