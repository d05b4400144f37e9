"""The contract of a codec: one PostgreSQL type's text form, read and written.

Values are read in text format, PostgreSQL's own canonical rendering, the same in the replication stream and in COPY.
It is canonical only under these session settings, which every connection that reads rows must pin (`SESSION`):

- `datestyle = ISO`, `timezone = UTC`, `intervalstyle = iso_8601` (so that an interval is already ISO 8601 when it
  arrives and is copied, not converted: PostgreSQL prints every field with its own sign, which loses nothing);
- `extra_float_digits = 3` (shortest text that gives the same float back), `bytea_output = hex`,
  `client_encoding = UTF8`.

A codec has three functions. `decode` gives the neutral value, which MessagePack carries as it is. `json` gives the
JSON text directly from PostgreSQL's text, so that no number is reformatted on its way. `encode` goes back to text
that PostgreSQL reads as the same value.

Specification: PostgreSQL manual, Server Configuration, "Client Connection Defaults", for these settings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from json.encoder import encode_basestring as quote
from typing import TypeAlias

from headgate.model import DataError, ProtocolError

__all__ = ["SESSION", "Codec", "Rule", "Value", "malformed", "quote", "unfit"]

SESSION = {
    "datestyle": "ISO",
    "timezone": "UTC",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
}

Value: TypeAlias = "bool | int | float | str | bytes | list[Value] | dict[str, Value] | None"
Rule: TypeAlias = "str | list[Rule] | dict[str, Rule]"


@dataclass(frozen=True, slots=True)
class Codec:
    """One type's text form. `name` is the rule by which it is read; a compiled decoder switches on it.

    `parts` are the rules of what is inside: of an array a list of one, of a composite those of its attributes.
    """

    name: str
    decode: Callable[[str], Value]
    json: Callable[[str], str]
    encode: Callable[[Value], str]
    parts: Rule = ""

    @property
    def rule(self) -> Rule:
        """How the value is read, down to what it is made of."""
        return self.parts or self.name


def malformed(rule: str) -> ProtocolError:
    """The server sent text that this type cannot have. The text itself is a row value and stays out of the error."""
    return ProtocolError(
        f"a value is not in the text form of {rule}",
        remedy="Pin the session settings of headgate.wire.pgtypes.SESSION on the connection, "
        "and read the type catalog again.",
    )


def unfit(rule: str, value: object) -> DataError:
    """A Python value that cannot become this type's text."""
    return DataError(f"a {type(value).__name__} cannot be written as {rule}")
