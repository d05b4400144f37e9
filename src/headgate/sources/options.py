"""Spark options to dataclasses. Spark lower-cases option names, so the table of proper names is kept here."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from headgate.model import UsageError

__all__ = ["camel_case", "names", "parse_options"]

T = TypeVar("T")

_BOOLEANS = {"true": True, "false": False}


def camel_case(name: str) -> str:
    """`max_offsets_per_trigger` -> `maxOffsetsPerTrigger`, the way Spark users write options."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def names(text: str) -> tuple[str, ...]:
    """`a, b` -> the names."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_options(cls: type[T], options: Mapping[str, str], *, source: str) -> T:
    """Build the options dataclass `cls`; an unknown name or a bad value is refused, never ignored."""
    fields = {camel_case(f.name).lower(): f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, text in options.items():
        field = fields.get(name.lower())
        if field is None:
            raise _unknown(name, [camel_case(f.name) for f in fields.values()], source)
        values[field.name] = _parse(text, str(field.type), camel_case(field.name), source)
    missing = [
        camel_case(f.name)
        for f in fields.values()
        if f.name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise UsageError(
            f"the option {missing[0]} is required",
            where=f'format("{source}")',
            remedy=f'add .option("{missing[0]}", ...)',
        )
    return cls(**values)


def _parse(text: str, kind: str, name: str, source: str) -> object:
    try:
        if kind == "int":
            value = int(text)
            if value < 0:
                raise ValueError
            return value
        if kind == "bool":
            return _BOOLEANS[text.lower()]
    except (ValueError, KeyError):
        wanted = "a whole number, 0 or more" if kind == "int" else "true or false"
        raise UsageError(
            f"the option {name} is {text!r}",
            where=f'format("{source}")',
            remedy=f"give {wanted}",
        ) from None
    return text


def _unknown(name: str, known: list[str], source: str) -> UsageError:
    nearest = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1)
    proper = next((k for k in known if nearest and k.lower() == nearest[0]), None)
    remedy = f"did you mean {proper}?" if proper else f"known options: {', '.join(sorted(known))}"
    return UsageError(f"unknown option {name}", where=f'format("{source}")', remedy=remedy)
