"""Messages made from their definitions: at random, and one with every field set."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from headgate.wire.kafka import APIS, Api, Body
from headgate.wire.kafka.schema import STRING, UUID_KIND, Field, Kind, fields_of

__all__ = ["EVERY_API", "EVERY_VERSION", "busy", "message_class", "messages"]

EVERY_API = list(APIS.values())
EVERY_VERSION = [(api, version) for api in EVERY_API for version in range(api.first, api.last + 1)]

# kio turns these into enums, durations and dates, which cannot hold every number.
_KNOWN_ERRORS = st.sampled_from([0, 1, 3, 16, 25, 27, 35, 42, 87])
_TAME_TIMES = st.integers(0, 2**31 - 1)


def message_class(api: Api[Any, Any], *, is_request: bool) -> type[Body]:
    return api.request if is_request else api.response


@cache
def messages(cls: type[Body], version: int, *, tame: bool = False) -> st.SearchStrategy[Body]:
    """Messages of one version; fields that it does not have keep their defaults."""
    here = {field.name: _values(field, version, tame) for field in fields_of(cls) if field.exists(version)}
    return st.builds(cls, **here)


def _values(field: Field, version: int, tame: bool) -> st.SearchStrategy[Any]:
    one = _tame(field.name) if tame else None
    if one is None:
        one = messages(field.kind, version, tame=tame) if not isinstance(field.kind, Kind) else _scalars(field.kind)
    values = st.lists(one, max_size=3).map(tuple) if field.is_array else one
    return st.none() | values if field.may_be_null(version) else values


def _tame(name: str) -> st.SearchStrategy[Any] | None:
    if name.endswith("error_code"):
        return _KNOWN_ERRORS
    return _TAME_TIMES if name.endswith(("_ms", "timestamp")) else None


def _scalars(kind: Kind) -> st.SearchStrategy[Any]:
    if kind.name == "bool":
        return st.booleans()
    if kind.code == "d":
        return st.floats(allow_nan=False)
    if kind.code:
        bits = kind.size * 8 - 1
        return st.integers(0, 2 ** (bits + 1) - 1) if kind.code.isupper() else st.integers(-(2**bits), 2**bits - 1)
    if kind is STRING:
        return st.text(max_size=20) | st.just("x" * 200)  # a compact length of one byte, and of two
    return st.uuids() if kind is UUID_KIND else st.binary(max_size=20)


def busy(cls: type[Body], version: int) -> Body:
    """A message in which every field differs from its default and from every other, as far as its type allows."""
    return _busy(cls, version, count(1))


def _busy(cls: type[Body], version: int, numbers: Iterator[int]) -> Body:
    return cls(
        **{field.name: _busy_value(field, version, numbers) for field in fields_of(cls) if field.exists(version)}
    )


def _busy_value(field: Field, version: int, numbers: Iterator[int]) -> Any:
    if field.is_array:
        return tuple(_busy_item(field, version, numbers) for _ in range(2))
    return _busy_item(field, version, numbers)


def _busy_item(field: Field, version: int, numbers: Iterator[int]) -> Any:
    if not isinstance(field.kind, Kind):
        return _busy(field.kind, version, numbers)
    number = next(numbers)
    if field.kind.name == "bool":
        return not field.default
    if field.kind.code:
        return number % 100 + 1  # an int8, and an error code that kio knows
    if field.kind is STRING:
        return f"text {number}"
    return UUID(int=number) if field.kind is UUID_KIND else b"bytes %d" % number
