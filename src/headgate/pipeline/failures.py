"""What Spark reports, as headgate's own errors: one line that says what happened, never a Java stack trace."""

from __future__ import annotations

import re

from headgate.model import DataError, HeadgateError, InternalError
from headgate.runtime.disk import disk_error, disk_error_in

__all__ = ["from_spark", "short"]

_CLASS = re.compile(r"\[([A-Z_]+(?:\.[A-Z_]+)*)\]\s*")
# SQLSTATE class 22 is a value that an expression cannot take; P0001 is the user's own raise_error().
_BAD_VALUE = re.compile(r"SQLSTATE: (?:22\w{3}|P0001)")
_CONDITION = re.compile(r"\[([A-Z_]+(?:\.[A-Z_]+)*)\]")
_AROUND = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR")  # conditions that only pass another one on
_RAISED = "USER_RAISED_EXCEPTION"
# The only part of such a message that is surely of no row, at its end: names of types.
_TYPES = re.compile(r"of the type (\"[A-Z0-9(), ]+\") cannot be cast to (\"[A-Z0-9(), ]+\")[^'\"]*$")
_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception|Exit))(?:: (.*))?$", re.MULTILINE)


def from_spark(error: BaseException) -> HeadgateError:
    """The headgate error inside a Spark exception, or an `InternalError` with the one line that matters."""
    if isinstance(error, HeadgateError):
        return error
    text = str(error)
    of_disk = disk_error(error) if isinstance(error, OSError) else None
    found = HeadgateError.from_text(text) or of_disk or disk_error_in(text)
    if found is not None:
        return found
    value = _BAD_VALUE.search(text)
    if value is not None:
        return DataError(
            f"an expression cannot take a row's value: {_without_value(text[: value.start()])}",
            remedy="filter such rows out before, or use the forgiving form (try_cast, try_divide, coalesce)",
        )
    python = [m for m in _PYTHON_ERROR.finditer(text) if m[1] != "Py4JException"]
    message = f"{python[-1][1]}: {python[-1][2] or ''}" if python else short(error)
    return InternalError(
        f"the batch failed: {message[:500]}",
        remedy="it is tried again; the whole story is in logs/spark.log under the data directory",
    )


def _without_value(text: str) -> str:
    """What an expression has against a value, without the value. What `raise_error` says is its author's own text."""
    found = next((each for each in _CONDITION.finditer(text) if each[1] not in _AROUND), None)
    if found is None:
        return "see the SQL functions of the transform"
    if found[1] == _RAISED:
        return text[found.end() :].strip()[:300]
    types = _TYPES.search(text)
    return f"{found[1]}, {types[1]} cannot be cast to {types[2]}" if types else found[1]


def short(error: BaseException) -> str:
    """The first sentence of a Spark error, without its class tags and query plan."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return _CLASS.sub("", line).split(" SQLSTATE:")[0].strip()[:400]
