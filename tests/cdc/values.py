"""Random values in PostgreSQL's input text: ordinary ones, and those that change data capture tends to get wrong.

A maker takes the caller's random generator and nothing else, so that one seed gives one workload.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

__all__ = [
    "Maker",
    "boolean",
    "bytea",
    "date",
    "float8",
    "int_array",
    "interval",
    "json_text",
    "large_bytes",
    "large_text",
    "nullable",
    "numeric",
    "one_of",
    "text_array",
    "timestamptz",
    "whole",
    "word",
]

Maker: TypeAlias = Callable[[random.Random], str | None]

_WORDS = (
    "", "plain", "O'Brien", 'say "hi"', "back\\slash", "tab\there", "two\nlines", "null", "NULL", "größe", "日本語",
    "🎉 party", "{a,b}", "\\x00", "a,b;c", " padded ", "100% {x} %s", "t", "\\N", "\\.", "_unchanged",
)  # fmt: skip
_NUMERICS = (
    "0",
    "0.00",
    "NaN",
    "Infinity",
    "-Infinity",
    "-0.000001",
    "1.10",
    "123456789012345678901234567890.0123456789",
)
_FLOATS = ("NaN", "Infinity", "-Infinity", "-0", "0.1", "1e300", "5e-324", "37", "123456789.123456789")
_TIMES = (
    "infinity",
    "-infinity",
    "0044-03-15 12:00:00+00 BC",
    "12345-06-07 08:09:10.123456+00",
    "1999-12-31 23:59:59.5-11",
)
_DATES = ("infinity", "-infinity", "0001-01-01 BC", "20000-02-29", "2024-02-29")
_INTERVALS = ("0", "1 month -1 day", "-1 year 2 mons -3 days 04:05:06.789", "P1Y2M3DT4H5M6.5S", "-00:00:00.000001")
_JSON = (
    "null", "[]", '"text"', '{"b": 1, "a": [1, 2.50, null]}', '{"a": 1, "a": 2}', ' [1 ,\n 2]\n', "-0.0",
    "12345678901234567890.12345678901234567890", '{"key \\"q\\"": "\\u00e9 \\n"}', '{"🎉": {"deep": [[[]]]}}',
)  # fmt: skip
_INT_ARRAYS = ("{}", "{1,NULL,3}", "{{1,2},{3,4}}", "[0:1]={7,8}", "{-2147483648,2147483647}")
_TEXT_ARRAYS = ("{}", '{a,"b c",NULL,"NULL"}', '{"q\\"uote","back\\\\slash","{x}"}', '{"",","}', '{{"1","2"}}')


def one_of(*choices: str | None) -> Maker:
    """One of a few values, all equally often."""
    return lambda rng: rng.choice(choices)


def whole(low: int, high: int) -> Maker:
    """An integer, both ends included."""
    return lambda rng: str(rng.randint(low, high))


def nullable(maker: Maker, share: float = 0.15) -> Maker:
    """Sometimes NULL."""
    return lambda rng: None if rng.random() < share else maker(rng)


def _mostly(ordinary: Maker, special: tuple[str, ...]) -> Maker:
    return lambda rng: rng.choice(special) if rng.random() < 0.3 else ordinary(rng)


def _stamp(rng: random.Random) -> str:
    day = f"{rng.randint(1900, 2100)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    return f"{day} {rng.randint(0, 23):02}:{rng.randint(0, 59):02}:59.{rng.randint(0, 999999):06}+05:30"


def _hexadecimal(size: int) -> Callable[[random.Random], str]:
    return lambda rng: "\\x" + rng.randbytes(rng.randint(0, size)).hex()


boolean: Maker = one_of("t", "f")
word: Maker = _mostly(lambda rng: f"word {rng.randint(0, 10**6)}", _WORDS)
numeric: Maker = _mostly(lambda rng: f"{rng.randint(-(10**6), 10**6)}.{rng.randint(0, 99):02}", _NUMERICS)
float8: Maker = _mostly(lambda rng: repr(rng.uniform(-1e6, 1e6)), _FLOATS)
timestamptz: Maker = _mostly(_stamp, _TIMES)
date: Maker = _mostly(lambda rng: _stamp(rng)[:10], _DATES)
interval: Maker = _mostly(lambda rng: f"{rng.randint(-500, 500)} hours {rng.randint(0, 40)} days", _INTERVALS)
json_text: Maker = _mostly(lambda rng: f'{{"n": {rng.randint(0, 99)}, "w": [true, "x"]}}', _JSON)
int_array: Maker = _mostly(lambda rng: f"{{{rng.randint(-9, 9)},{rng.randint(0, 99)}}}", _INT_ARRAYS)
text_array: Maker = one_of(*_TEXT_ARRAYS)
bytea: Maker = _mostly(_hexadecimal(40), ("\\x", "\\x00", "\\x00ff5c6e"))


def large_text(rng: random.Random) -> str:
    """Long enough to be stored out of line nearly always; each one different."""
    return (f"{rng.random()} {rng.choice(_WORDS)}|" * 400)[: rng.randint(1500, 9000)]


def large_bytes(rng: random.Random) -> str:
    """The same as bytes."""
    return "\\x" + (rng.randbytes(16) * 400)[: rng.randint(1500, 6000)].hex()
