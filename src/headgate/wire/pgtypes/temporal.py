"""Codecs of dates and times: PostgreSQL's ISO style <-> ISO 8601.

What changes: a `T` between date and time, `Z` for the offset +00, minutes in every other offset, and the year of
dates before Christ or after 9999, which ISO 8601 writes with a sign (44 BC is -0043, since there is a year 0000).
What stays: the digits, `infinity`, `-infinity` and 24:00:00. `time` and `interval` need no change at all and use
`TEXT`. Every change can be undone exactly.

Specification: PostgreSQL manual, Data Types, "Date/Time Types".
"""

from __future__ import annotations

import re
from collections.abc import Callable

from headgate.wire.pgtypes.codec import Codec, Value, malformed, unfit

__all__ = ["DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMETZ"]

_UNBOUNDED = ("infinity", "-infinity")  # "Date/Time Types", Special Values
_TIME = r"(\d\d:\d\d:\d\d(?:\.\d{1,6})?)"
_PG_OFFSET = r"([+-]\d\d(?::\d\d(?::\d\d)?)?)"
_ISO_OFFSET = r"(Z|[+-]\d\d:\d\d(?::\d\d)?)"
_PG_TIMETZ = re.compile(_TIME + _PG_OFFSET, re.ASCII)
_ISO_TIMETZ = re.compile(_TIME + _ISO_OFFSET, re.ASCII)


def _iso_offset(offset: str) -> str:
    if offset == "+00":
        return "Z"
    return f"{offset}:00" if len(offset) == 3 else offset


def _pg_offset(offset: str) -> str:
    if offset == "Z":
        return "+00"
    return offset[:3] if len(offset) == 6 and offset.endswith(":00") else offset


def _iso_year(digits: str, is_bc: bool) -> str:
    if is_bc:
        year = 1 - int(digits)
        return f"-{-year:04}" if year else "0000"
    return digits if len(digits) == 4 else f"+{digits}"


def _pg_year(iso: str) -> tuple[str, str]:
    year = int(iso)
    return (f"{year:04}", "") if year > 0 else (f"{1 - year:04}", " BC")


def _dated(rule: str, pg_clock: str, iso_clock: str) -> Codec:
    """A codec for a date with what follows it: two groups, the time of day and the offset, both perhaps empty."""
    pg = re.compile(rf"(\d{{4,7}})(-\d\d-\d\d){pg_clock}( BC)?", re.ASCII)
    iso = re.compile(rf"(-?\d{{4}}|[+-]\d{{5,7}})(-\d\d-\d\d){iso_clock}", re.ASCII)

    def to_iso(text: str) -> str:
        if text in _UNBOUNDED:
            return text
        match = pg.fullmatch(text)
        if match is None:
            raise malformed(rule)
        digits, day, time, offset, era = match.groups()
        clock = f"T{time}" if time else ""
        return _iso_year(digits, era is not None) + day + clock + (_iso_offset(offset) if offset else "")

    def from_iso(value: Value) -> str:
        if value in _UNBOUNDED:
            return str(value)
        match = iso.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise unfit(rule, value)
        year, era = _pg_year(match[1])
        clock = f" {match[3]}" if match[3] else ""
        return year + match[2] + clock + (_pg_offset(match[4]) if match[4] else "") + era

    return _codec(rule, to_iso, from_iso)


def _timetz_to_iso(text: str) -> str:
    match = _PG_TIMETZ.fullmatch(text)
    if match is None:
        raise malformed("timetz")
    return match[1] + _iso_offset(match[2])


def _timetz_from_iso(value: Value) -> str:
    match = _ISO_TIMETZ.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise unfit("timetz", value)
    return match[1] + _pg_offset(match[2])


def _codec(rule: str, to_iso: Callable[[str], str], from_iso: Callable[[Value], str]) -> Codec:
    # ISO 8601 text has no character that JSON would escape.
    return Codec(rule, to_iso, lambda text: f'"{to_iso(text)}"', from_iso)


DATE = _dated("date", "()()", "()()")
TIMESTAMP = _dated("timestamp", f" {_TIME}()", f"T{_TIME}()")
TIMESTAMPTZ = _dated("timestamptz", f" {_TIME}{_PG_OFFSET}", f"T{_TIME}{_ISO_OFFSET}")
TIMETZ = _codec("timetz", _timetz_to_iso, _timetz_from_iso)
