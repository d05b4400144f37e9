"""The tables between the walk over the records of a batch and whoever asks for it: their rows, and the counters."""

from __future__ import annotations

__all__ = [
    "COLUMNS",
    "COMPILED_FROM",
    "COUNTERS",
    "GAPS",
    "GREATEST_TS",
    "KEYS",
    "KEY_AT",
    "KEY_LEN",
    "LEAST_TS",
    "LONG_FORMS",
    "MAX_INT",
    "NULL_KEYS",
    "ODD_HEADERS",
    "OFF_DELTA",
    "TS_DELTA",
    "VALUE_LEN",
]

MAX_INT = 2**31 - 1
KEY_AT, VALUE_LEN, KEY_LEN, TS_DELTA, OFF_DELTA = range(5)
COLUMNS = 5
KEYS, NULL_KEYS, GAPS, LONG_FORMS, ODD_HEADERS, LEAST_TS, GREATEST_TS, COMPILED_FROM = range(8)
COUNTERS = 8
