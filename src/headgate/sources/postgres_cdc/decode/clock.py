"""The time of a commit in ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from headgate.sources.postgres_cdc.decode.jit import leaf, part
from headgate.sources.postgres_cdc.decode.layout import Bytes

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# What Python's calendar can hold, and so the reference.
EARLIEST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
LATEST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
DAY_US = 86_400_000_000
# Years are counted from March, so that a leap day is the last of its year, and from a year that leap cycles start at.
DAYS_BEFORE_2000 = 730_425  # 0000-03-01 to 2000-01-01
CYCLE_DAYS, CENTURY_DAYS, FOUR_YEARS_DAYS = 146_097, 36_524, 1_461

ISO_BYTES = 27


@leaf
def put_number(out: Bytes, at: int, value: int, width: int, behind: int) -> int:
    """Digits with leading zeros, and one character."""
    for i in range(width - 1, -1, -1):
        out[at + i] = 48 + value % 10
        value //= 10
    out[at + width] = behind
    return at + width + 1


@part
def date_of(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day counted from 2000-01-01."""
    days += DAYS_BEFORE_2000
    cycle, day = divmod(days, CYCLE_DAYS)
    year = (day - day // (FOUR_YEARS_DAYS - 1) + day // CENTURY_DAYS - day // (CYCLE_DAYS - 1)) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153  # months from March have 31 30 31 30 31 days, twice
    day -= (153 * month + 2) // 5
    year += 400 * cycle + month // 10
    return year, month - 9 if month >= 10 else month + 3, day + 1


@part
def put_iso_time(out: Bytes, at: int, pg_time: int) -> int:
    """`2025-12-12T12:00:34.338547Z` for microseconds since 2000, within the calendar."""
    days, micros = divmod(pg_time, DAY_US)
    year, month, day = date_of(days)
    seconds = micros // 1_000_000
    at = put_number(out, at, year, 4, 45)
    at = put_number(out, at, month, 2, 45)
    at = put_number(out, at, day, 2, 84)
    at = put_number(out, at, seconds // 3600, 2, 58)
    at = put_number(out, at, seconds // 60 % 60, 2, 58)
    at = put_number(out, at, seconds % 60, 2, 46)
    return put_number(out, at, micros % 1_000_000, 6, 90)
