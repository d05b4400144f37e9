"""The subject of an event: `cdc.{schema}.{table}.{op}`, with every name made safe.

A subject's tokens are parted by dots, may not be empty, and may not contain white space, `*` or `>` (NATS, ADR-6). Such
characters are written as `%` and two hexadecimal digits for each byte of UTF-8, and so is `%` itself: two tables never
share a subject. An empty name, which only a logical message's prefix can be, is a lone `%`.

A logical message has no table: its prefix takes the table's place, and `message` the place of schema and operation.
"""

from __future__ import annotations

import re
from functools import lru_cache

from headgate.wire.envelope.event import Event

__all__ = [
    "DEFAULT_SUBJECT",
    "GAP_PREFIX",
    "HEARTBEAT_PREFIX",
    "TABLE_SUBJECT",
    "fill_subject",
    "key_token",
    "subject_of",
    "subject_token",
]

GAP_PREFIX = "headgate.gap"  # of the logical message which says that changes before it are missing
HEARTBEAT_PREFIX = "headgate.heartbeat"  # of the one that becomes a heartbeat in Debezium's format
DEFAULT_SUBJECT = "cdc.{schema}.{table}.{op}"
TABLE_SUBJECT = "cdc.{table}.{op}"  # the shorter form; tables of one name in two schemas share it

_UNSAFE = re.compile(r"[\x00-\x20\x7f.*>%\s]")


def subject_token(name: str) -> str:
    """A name as one token of a subject."""
    return _UNSAFE.sub(_escaped, name) or "%"


def key_token(name: str) -> str:
    """A name as one token of a key in a bucket, whose characters are fewer: `=` and two digits for each other byte."""
    return re.sub(r"[^-_A-Za-z0-9]", lambda match: "".join(f"={byte:02X}" for byte in match[0].encode()), name)


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def subject_of(event: Event, template: str = DEFAULT_SUBJECT) -> str:
    """The subject of an event; `template` may name `{schema}`, `{table}` and `{op}`."""
    if event.relation is not None:
        schema, table = event.relation.schema, event.relation.name
    else:
        schema, table = "message", str((event.detail or {}).get("prefix", ""))
    return fill_subject(template, schema, table, event.operation.lower())


@lru_cache(maxsize=4096)  # a database has few tables and many events
def fill_subject(template: str, schema: str, table: str, op: str) -> str:
    """A template with its names filled in, each made safe."""
    names = {"schema": subject_token(schema), "table": subject_token(table), "op": op}
    return re.sub(r"\{(schema|table|op)\}", lambda name: names[name[1]], template)
