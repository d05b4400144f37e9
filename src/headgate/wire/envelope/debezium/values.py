"""PostgreSQL's text of a value -> JSON as Debezium has it, for the types that it does not leave as they are.

Times are integers since 1970, decimals are base64 of their unscaled two's complement. The session settings of
`headgate.wire.pgtypes.SESSION` are in force: times are UTC, intervals are ISO 8601.

Specification: Debezium documentation, PostgreSQL connector, "Data type mappings".
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal

from headgate.wire.pgtypes import Codec, json_base64, quote
from headgate.wire.pgtypes.codec import malformed
from headgate.wire.pgtypes.hstore import HSTORE

__all__ = [
    "UNAVAILABLE",
    "bits",
    "days",
    "decimal",
    "double",
    "duration",
    "duration_text",
    "hstore_text",
    "iso_date",
    "iso_time",
    "iso_timestamp",
    "micros",
    "money",
    "point",
    "time_micros",
    "variable_decimal",
    "written_bytes",
    "zoned_time",
    "zoned_timestamp",
]

UNAVAILABLE = "__debezium_unavailable_value"

Json = Callable[[str], str]

_DATE = r"(\d{4,7})-(\d\d)-(\d\d)"
_CLOCK = r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"
_OFFSET = r"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?"
_PG_DATE = re.compile(rf"{_DATE}( BC)?", re.ASCII)
_PG_TIME = re.compile(_CLOCK, re.ASCII)
_PG_TIMESTAMP = re.compile(rf"{_DATE} {_CLOCK}( BC)?", re.ASCII)
_PG_TIMESTAMPTZ = re.compile(rf"{_DATE} {_CLOCK}{_OFFSET}( BC)?", re.ASCII)
_PG_TIMETZ = re.compile(rf"{_CLOCK}{_OFFSET}", re.ASCII)
_PG_NUMERIC = re.compile(r"(-?)(\d+)(?:\.(\d+))?", re.ASCII)
_PG_POINT = re.compile(r"\(([^,()]+),([^,()]+)\)")
_NUMBER = r"(-?\d+)"
_PG_INTERVAL = re.compile(
    rf"P(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}D)?"
    rf"(?:T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:(-?)(\d+)(?:\.(\d{{1,6}}))?S)?)?",
    re.ASCII,
)
_NOT_A_NUMBER = ("NaN", "Infinity", "-Infinity")

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
MONTH_US = 2_629_800 * SECOND_US  # 30.4375 days, Debezium's average

# What Debezium makes of them: the ends of its own types, cut off on the way.
_DAYS = {"infinity": -2147472692, "-infinity": -2147472691}
_MICROS = {"infinity": 9223372036825200000, "-infinity": -9223372036832400000}


def _days(year: int, month: int, day: int) -> int:
    """Since 1970. Years begin in March here, so that a leap day is the last of its year."""
    year -= month <= 2
    cycle, of_cycle = divmod(year, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return cycle * 146_097 + of_cycle * 365 + of_cycle // 4 - of_cycle // 100 + of_year - 719_468


def _year(digits: str, era: str | None) -> int:
    return 1 - int(digits) if era else int(digits)


def _clock(hours: str, minutes: str, seconds: str, fraction: str | None) -> int:
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * SECOND_US + int((fraction or "").ljust(6, "0"))


def _offset(sign: str, hours: str, minutes: str | None, seconds: str | None) -> int:
    seconds_east = (int(hours) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    return (-seconds_east if sign == "-" else seconds_east) * SECOND_US


def _match(pattern: re.Pattern[str], text: str, rule: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise malformed(rule)
    return match


def days(text: str) -> str:
    """A date as days."""
    if text in _DAYS:
        return str(_DAYS[text])
    year, month, day, era = _match(_PG_DATE, text, "date").groups()
    return str(_days(_year(year, era), int(month), int(day)))


def micros(text: str) -> int:
    """A timestamp as microseconds."""
    if text in _MICROS:
        return _MICROS[text]
    year, month, day, *clock, era = _match(_PG_TIMESTAMP, text, "timestamp").groups()
    return _days(_year(year, era), int(month), int(day)) * DAY_US + _clock(*clock)


def time_micros(text: str) -> int:
    """A time of day as microseconds."""
    return _clock(*_match(_PG_TIME, text, "time").groups())


def _iso_year(digits: str, era: str | None) -> str:
    year = _year(digits, era)
    if year < 0:
        return f"-{-year:04}"
    return f"{year:04}" if year <= 9999 else f"+{year}"


def iso_date(text: str) -> str:
    if text in _DAYS:
        return f'"{text}"'
    year, month, day, era = _match(_PG_DATE, text, "date").groups()
    return f'"{_iso_year(year, era)}-{month}-{day}Z"'


def iso_time(text: str) -> str:
    _match(_PG_TIME, text, "time")
    return f'"{text}Z"'


def iso_timestamp(text: str) -> str:
    if text in _MICROS:
        return f'"{text}"'
    match = _match(_PG_TIMESTAMP, text, "timestamp")
    return f'"{_iso_year(match[1], match[8])}-{match[2]}-{match[3]}T{text.split()[1]}Z"'


def _in_utc(match: re.Match[str], offset: int) -> str:
    """A timestamptz of another time zone, as PostgreSQL would print it in UTC."""
    year, month, day, *clock = match.groups()[:7]
    moment = _days(_year(year, match[12]), int(month), int(day)) * DAY_US + _clock(*clock) - offset
    number, rest = divmod(moment, DAY_US)
    seconds, fraction = divmod(rest, SECOND_US)
    shown = f".{fraction:06}".rstrip("0") if fraction else ""
    years, months, days_ = _date(number)
    era, years = (" BC", 1 - years) if years <= 0 else ("", years)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{years:04}-{months:02}-{days_:02} {hours:02}:{minutes:02}:{seconds % 60:02}{shown}+00{era}"


def _date(number: int) -> tuple[int, int, int]:
    """Year, month and day of a day since 1970."""
    cycle, day = divmod(number + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    return 400 * cycle + year + month // 10, (month + 2) % 12 + 1, day + 1


def zoned_timestamp(precision: int) -> Json:
    """A timestamptz in UTC, with as many decimals as its type has."""

    def write(text: str) -> str:
        if text in _MICROS:
            return f'"{text}"'
        match = _match(_PG_TIMESTAMPTZ, text, "timestamptz")
        offset = _offset(*match.groups()[7:11])
        if offset:  # the session's time zone is UTC, so this is rare
            match = _match(_PG_TIMESTAMPTZ, _in_utc(match, offset), "timestamptz")
        fraction = (match[7] or "").ljust(precision, "0")
        clock = f"{match[4]}:{match[5]}:{match[6]}" + (f".{fraction}" if fraction else "")
        return f'"{_iso_year(match[1], match[12])}-{match[2]}-{match[3]}T{clock}Z"'

    return write


def zoned_time(text: str) -> str:
    """A timetz in UTC."""
    match = _match(_PG_TIMETZ, text, "timetz")
    groups = match.groups()
    seconds, fraction = divmod((_clock(*groups[:4]) - _offset(*groups[4:])) % DAY_US, SECOND_US)
    shown = f".{fraction:06}".rstrip("0") if fraction else ""
    return f'"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{shown}Z"'


def _interval(text: str) -> tuple[int, int, int, int, int, int]:
    """Years, months, days, hours, minutes, and microseconds."""
    *fields, sign, seconds, fraction = _match(_PG_INTERVAL, text, "interval").groups()
    part = int(seconds or 0) * SECOND_US + int((fraction or "").ljust(6, "0"))
    years, months, days_, hours, minutes = (int(field or 0) for field in fields)
    return years, months, days_, hours, minutes, -part if sign else part


def duration(text: str) -> str:
    """An interval as microseconds, with months of average length."""
    years, months, days_, hours, minutes, rest = _interval(text)
    clock = (hours * 60 + minutes) * 60 * SECOND_US + rest
    return str((years * 12 + months) * MONTH_US + days_ * DAY_US + clock)


def duration_text(text: str) -> str:
    years, months, days_, hours, minutes, rest = _interval(text)
    whole, fraction = divmod(abs(rest), SECOND_US)
    shown = f".{fraction:06}".rstrip("0") if fraction else ""
    sign = "-" if rest < 0 else ""
    return f'"P{years}Y{months}M{days_}DT{hours}H{minutes}M{sign}{whole}{shown}S"'


def _unscaled(value: int) -> str:
    """Two's complement in as few bytes as hold the sign."""
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return base64.b64encode(value.to_bytes(size, "big", signed=True)).decode()


def _numeric(text: str) -> tuple[int, int]:
    """A number without its point, and how many digits stood behind that."""
    sign, whole, fraction = _match(_PG_NUMERIC, text, "numeric").groups()
    value = int(Decimal(whole + (fraction or "")))  # by way of Decimal: Python's own limit is 4300 digits
    return -value if sign else value, len(fraction or "")


def decimal(scale: int) -> Json:
    """A numeric of a fixed scale. What is no number has no place in it."""

    def write(text: str) -> str:
        if text in _NOT_A_NUMBER:
            return "null"
        value, decimals = _numeric(text)
        if decimals > max(scale, 0):
            raise malformed("numeric")
        value = value * 10 ** (scale - decimals) if scale >= decimals else value // 10 ** (decimals - scale)
        return f'"{_unscaled(value)}"'

    return write


def variable_decimal(text: str) -> str:
    """A numeric without a scale of its own: each value has one, without zeros at its end."""
    if text in _NOT_A_NUMBER:
        return "null"
    value, scale = _numeric(text)
    while scale and value % 10 == 0:
        value, scale = value // 10, scale - 1
    return f'{{"scale":{scale},"value":"{_unscaled(value)}"}}'


def double(text: str) -> str:
    """A numeric as a double: its own digits, which every reader rounds alike. What is too large is infinite."""
    if text in _NOT_A_NUMBER:
        return f'"{text}"'
    _match(_PG_NUMERIC, text, "numeric")
    if math.isinf(float(text)):
        return '"-Infinity"' if text.startswith("-") else '"Infinity"'
    return text if "." in text else f"{text}.0"


def money(mode: str) -> Json:
    """An amount, whatever the server's currency looks like; two decimals as Debezium expects them."""

    def write(text: str) -> str:
        digits = re.sub(r"\D", "", text)
        if not digits:
            raise malformed("money")
        cents = int(digits) if re.search(r"[.,]\d\d\D*$", text) else int(digits) * 100
        cents = -cents if "-" in text or "(" in text else cents
        if mode == "precise":
            return f'"{_unscaled(cents)}"'
        amount = f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02}"
        return amount if mode == "double" else f'"{amount}"'

    return write


def bits(length: int) -> Json:
    """A bit string: a boolean if it has one bit, else bytes with the last bit first."""

    def write(text: str) -> str:
        if text.strip("01"):
            raise malformed("bit")
        if length == 1:
            return "true" if text == "1" else "false"
        value = int(text or "0", 2)
        size = -(-max(length, 0) // 8) or -(-len(text) // 8)
        return json_base64(value.to_bytes(size, "little"))

    return write


def point(text: str) -> str:
    match = _match(_PG_POINT, text, "point")
    try:
        x, y = float(match[1]), float(match[2])
    except ValueError:
        raise malformed("point") from None
    shape = json_base64(struct.pack("<BIdd", 1, 1, x, y))
    return f'{{"x":{_double(x)},"y":{_double(y)},"wkb":{shape},"srid":null}}'


def _double(value: float) -> str:
    if value - value == 0:
        return repr(value)
    return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'


def hstore_text(text: str) -> str:
    """An hstore as a string of JSON."""
    return quote(json.dumps(HSTORE.decode(text), ensure_ascii=False, separators=(",", ":")))


def written_bytes(codec: Codec, mode: str) -> Json:
    """A bytea in one of the forms that a JSON string can have."""
    if mode in ("bytes", "base64"):
        return codec.json

    def write(text: str) -> str:
        data = codec.decode(text)
        assert isinstance(data, bytes)
        return f'"{data.hex()}"' if mode == "hex" else f'"{base64.urlsafe_b64encode(data).decode()}"'

    return write
