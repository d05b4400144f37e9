"""Codecs of single values: text, numbers, booleans, bytes, JSON.

`TEXT` serves every type whose text is its value: text-like types, numeric (an exact decimal string, with NaN and
Infinity), uuid, network addresses, money, bit strings, ranges, geometry, enums, intervals, and whatever is unknown.

Specification: PostgreSQL manual, Data Types.
"""

from __future__ import annotations

import base64
import binascii
import math
import re

from headgate.wire.pgtypes.codec import Codec, Value, malformed, quote, unfit

__all__ = ["BOOL", "BYTEA", "FLOAT", "INT", "JSON", "TEXT", "json_base64", "spliced_text"]

_INT = re.compile(r"0|-?[1-9][0-9]{0,18}")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-][0-9]+)?")
# Data Types, "Numeric Types", Floating-Point Types.
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INT64 = range(-(2**63), 2**63)


def _same(text: str) -> str:
    return text


def _text_back(value: Value) -> str:
    if not isinstance(value, str):
        raise unfit("text", value)
    return value


def _bool(text: str) -> bool:
    if text not in ("t", "f"):
        raise malformed("bool")
    return text == "t"


def _bool_json(text: str) -> str:
    return "true" if _bool(text) else "false"


def _bool_back(value: Value) -> str:
    if not isinstance(value, bool):
        raise unfit("bool", value)
    return "t" if value else "f"


def _int(text: str) -> int:
    if _INT.fullmatch(text) is None or (value := int(text)) not in _INT64:
        raise malformed("int")
    return value


def _int_json(text: str) -> str:
    _int(text)
    return text


def _int_back(value: Value) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        raise unfit("int", value)
    return str(value)


def _float(text: str) -> float:
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    if _FLOAT.fullmatch(text) is None or math.isinf(value := float(text)):
        raise malformed("float")
    return value


def _float_json(text: str) -> str:
    """PostgreSQL's digits; what JSON has no number for is a string.

    A whole number gets `.0`, or readers would take it for an integer and lose the sign of -0.
    """
    if not math.isfinite(_float(text)):
        return f'"{text}"'
    return text if "." in text or "e" in text else f"{text}.0"


def _float_back(value: Value) -> str:
    if not isinstance(value, float):
        raise unfit("float", value)
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def _bytea(text: str) -> bytes:
    """Data Types, "Binary Data Types", bytea Hex Format."""
    if not text.startswith("\\x"):
        raise malformed("bytea")
    try:
        return binascii.unhexlify(text[2:])
    except ValueError:
        raise malformed("bytea") from None


def json_base64(data: bytes) -> str:
    """Bytes as JSON carries them: a string in base64, standard alphabet, padded (RFC 4648 section 4)."""
    return f'"{base64.b64encode(data).decode()}"'


def _bytea_json(text: str) -> str:
    return json_base64(_bytea(text))


def _bytea_back(value: Value) -> str:
    if not isinstance(value, bytes):
        raise unfit("bytea", value)
    return "\\x" + value.hex()


# Control characters can only stand between the tokens of JSON (RFC 8259, 2 and 7). An event is one line, so line breaks
# are written as other white space, which says the same to every reader of JSON, and to one that looks closely what was
# there.
_ON_ONE_LINE = str.maketrans({"\t": "\t\t", "\n": "\t  ", "\r": "\t \t"})
_AS_IT_WAS = {"\t\t": "\t", "\t  ": "\n", "\t \t": "\r"}
_WRITTEN = re.compile("\t\t|\t  |\t \t")


def _spliced(text: str) -> str:
    """The JSON text itself, on one line, and behind a space: so its `null` is not NULL, nor its `[` a dimension."""
    return " " + text.translate(_ON_ONE_LINE)


def spliced_text(raw: str) -> str:
    """The JSON text that stands in an event, with the white space around it. An older bridge put no space before it."""
    return _WRITTEN.sub(lambda match: _AS_IT_WAS[match[0]], raw[1:]) if raw.startswith(" ") else raw


TEXT = Codec("text", _same, quote, _text_back)
BOOL = Codec("bool", _bool, _bool_json, _bool_back)
INT = Codec("int", _int, _int_json, _int_back)
FLOAT = Codec("float", _float, _float_json, _float_back)
BYTEA = Codec("bytea", _bytea, _bytea_json, _bytea_back)
# The value of a JSON column is its text: parsing it would lose duplicate keys, key order and long numbers.
JSON = Codec("json", _same, _spliced, _text_back)
