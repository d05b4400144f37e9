"""The time of a commit as ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from headgate.kernels.changes.layout import Bytes
from headgate.kernels.jit import inlined, part

__all__ = ["EARLIEST_US", "ISO_BYTES", "LATEST_US", "put_iso_time"]

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# The ends of Python's calendar, which are those of the reference.
EARLIEST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
LATEST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)

ISO_BYTES = 27  # `2025-12-12T12:00:34.338547Z`
SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
CYCLE_DAYS = 146_097  # of 400 years; leap days come again after that many
DAYS_BEFORE_2000 = 730_425  # from 0000-03-01

ZERO, DASH, COLON, POINT, T, Z = b"0-:.TZ"


@inlined
def date_of(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day counted from 2000-01-01.

    Years begin in March here, so that a leap day is the last of its year. From March on, five months have 153 days.
    """
    cycle, day = divmod(days + DAYS_BEFORE_2000, CYCLE_DAYS)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    return 400 * cycle + year + month // 10, (month + 2) % 12 + 1, day + 1


@inlined
def put_number(out: Bytes, at: int, value: int, width: int, behind: int) -> int:
    """Digits with leading zeros, and one character."""
    for i in range(width - 1, -1, -1):
        out[at + i] = ZERO + value % 10
        value //= 10
    out[at + width] = behind
    return at + width + 1


@part
def put_iso_time(out: Bytes, at: int, pg_time: int) -> int:
    """Microseconds since 2000, within the calendar."""
    days, micros = divmod(pg_time, DAY_US)
    seconds = micros // SECOND_US
    year, month, day = date_of(days)
    at = put_number(out, at, year, 4, DASH)
    at = put_number(out, at, month, 2, DASH)
    at = put_number(out, at, day, 2, T)
    at = put_number(out, at, seconds // 3600, 2, COLON)
    at = put_number(out, at, seconds // 60 % 60, 2, COLON)
    at = put_number(out, at, seconds % 60, 2, POINT)
    return put_number(out, at, micros % SECOND_US, 6, Z)
