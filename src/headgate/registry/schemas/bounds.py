"""What a schema may be at most, whatever its kind, and JSON read strictly within that."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from headgate.registry.schemas.problems import invalid

__all__ = [
    "MOST_CHARS", "MOST_DEPTH", "MOST_NODES", "MOST_REFERENCES", "check_text", "compact", "read_json", "same_json",
]  # fmt: skip

MOST_CHARS = 512 * 1024
MOST_DEPTH = 64
MOST_NODES = 50_000
MOST_REFERENCES = 200  # with those that they refer to


def check_text(text: str) -> None:
    """Raise InvalidSchemaError for a text that is too long, or that PostgreSQL cannot keep."""
    if len(text) > MOST_CHARS:
        invalid(f"the schema has {len(text):,} characters", f"at most {MOST_CHARS:,} are taken: split it by references")
    if "\0" in text:
        invalid("the schema has a NUL character in it")
    try:
        text.encode()
    except UnicodeEncodeError:
        invalid("the schema has half of a surrogate pair in it")


def read_json(text: str) -> Any:
    """Read JSON as RFC 8259 has it, without names given twice and numbers that are none."""
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite, parse_int=_integer
        )
    except (ValueError, RecursionError) as error:
        invalid(f"the schema is no JSON: {error}")
    _check_size(value)
    try:
        compact(value).encode()
    except UnicodeEncodeError:
        invalid("the schema has half of a surrogate pair in it")
    return value


def compact(value: Any, *, is_sorted: bool = False) -> str:
    """Return JSON without white space; names sorted, if asked for."""
    return json.dumps(value, separators=(",", ":"), sort_keys=is_sorted, ensure_ascii=False)


def same_json(one: Any, other: Any) -> bool:
    """Return whether JSON Schema takes two values as equal: 1 is 1.0, and neither is true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a name twice")
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _integer(text: str) -> int:
    if len(text) > 40:
        raise ValueError("a number has more than 40 digits")
    return int(text)


def _check_size(value: Any) -> None:
    """Level by level, so that no depth of it can exhaust the stack."""
    level, count = [value], 0
    for _ in range(MOST_DEPTH + 1):
        count += len(level)
        if count > MOST_NODES:
            invalid(f"the schema has more than {MOST_NODES:,} values", "split it by references")
        level = [inner for outer in level for inner in _inner(outer)]
        if not level:
            return
    invalid(f"the schema is nested more than {MOST_DEPTH} deep")


def _inner(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()
