"""Messages as people see them, and those of the Kafka log: the beginning of each, read by SQL."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

import psycopg

from headgate.control.dashboard.shown import MOST_PARSED, Value, shown_value

__all__ = ["Message", "legible", "log_messages"]

_MOST_BYTES = MOST_PARSED + 1  # of a key, a value, or all headers: a little more than is looked into


@dataclass(frozen=True, slots=True)
class Message:
    """One message as people see it."""

    position: str
    topic: str
    at: str
    value: Value
    key: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def has(self, text: str) -> bool:
        """Whether a text is somewhere in it, in either case of letters."""
        fields = (self.topic, self.key, self.value.text, *(part for header in self.headers for part in header))
        return any(text.lower() in each.lower() for each in fields)


def log_messages(
    connection: psycopg.Connection,
    topic: str,
    count: int,
    *,
    partition: int | None = None,
    offset: int | None = None,
    form: str = "",
) -> list[Message]:
    """Return the newest messages of a topic or of one of its partitions, or those from an offset of a partition on.

    `form` is how keys and values are shown: `text`, `hex`, or empty for what each seems to be.
    """
    name = "messages.sql" if offset is None else "messages_from.sql"
    asked = {"topic": topic, "count": count, "partition": partition, "offset": offset, "most": _MOST_BYTES}
    rows = connection.execute(resources.files(__package__).joinpath(name).read_bytes(), asked)
    return [_message(topic, row, form) for row in rows]


def _message(topic: str, row: tuple[Any, ...], form: str) -> Message:
    partition, offset, key, key_bytes, value, value_bytes, headers, at = row
    shown = [("headers", "too many to be shown")] if headers is None else [_header(*each) for each in headers]
    return Message(
        f"{partition}:{offset}",
        topic,
        f"{at:%Y-%m-%d %H:%M:%S.%f}"[:23] if at else "",
        shown_value(value, value_bytes, form),
        shown_value(key, key_bytes, form).text if key is not None else "",
        tuple(shown),
    )


def _header(name: Any, value: Any) -> tuple[str, str]:
    """A header as the log's functions give it: a text, or an object with what is none in base64."""
    return legible(str(name)), legible(json.dumps(value) if isinstance(value, dict) else str(value or ""))


def legible(text: str) -> str:
    """Without what stands for bytes that are no text: a page cannot be sent with it."""
    return text.encode(errors="surrogateescape").decode(errors="replace")
