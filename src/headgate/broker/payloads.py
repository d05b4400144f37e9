"""Payloads as objects: what is published may be one, and handlers may ask for a type.

A type is a msgspec Struct, a dataclass, a TypedDict or anything else that msgspec knows, or a pydantic model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic

from headgate.model import DataError

__all__ = ["Unreadable", "as_json", "check_readable", "decoder", "loads"]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for JSON that PostgreSQL takes and Python does not: too deep, or a number of too many digits."""

    reason: str


def loads(data: str | bytes) -> Any:
    """Decode JSON; what cannot be decoded is `Unreadable` instead of an error, lest one event stops all others."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        return Unreadable(str(error))


def check_readable(*values: Any) -> None:
    """Raise DataError if one of the values could not be decoded."""
    for value in values:
        if isinstance(value, Unreadable):
            raise DataError(
                f"Python cannot read the JSON: {value.reason}", remedy="publish less deep objects, and shorter numbers"
            )


def as_json(value: Any, what: str) -> str:
    """The JSON of an object."""
    try:
        return json.dumps(value, default=_plain, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{what} is not JSON: {error}", remedy="publish what JSON can hold") from None


def decoder(wanted: Any) -> Callable[[Any], Any]:
    """What makes an object of a type from a decoded payload, or raises DataError."""
    if isinstance(wanted, type) and issubclass(wanted, pydantic.BaseModel):
        convert: Callable[[Any], Any] = wanted.model_validate
    else:

        def convert(payload: Any) -> Any:
            return msgspec.convert(payload, wanted)

    name = getattr(wanted, "__name__", str(wanted))

    def decode(payload: Any) -> Any:
        try:
            return convert(payload)
        except (msgspec.ValidationError, pydantic.ValidationError) as error:
            raise DataError(
                f"the payload does not fit {name}: {_reason(error)}",
                remedy="publish what the handler expects, or let it expect what is published; then redrive",
            ) from None

    return decode


def _plain(value: Any) -> Any:
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    return msgspec.to_builtins(value, enc_hook=_plain_inside)


def _plain_inside(value: Any) -> Any:
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"it has a {type(value).__name__}")


def _reason(error: msgspec.ValidationError | pydantic.ValidationError) -> str:
    """Where it is wrong and why, without the values: they are in the dead letter itself."""
    if isinstance(error, pydantic.ValidationError):
        return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False)[:5])
    return str(error)
