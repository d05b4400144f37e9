"""Routing rules: from the values of a row to its destinations. Pure, picklable, and asked once per distinct value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from headgate.model.address import Address

__all__ = ["Choice", "Encoding", "Keys", "Lookup", "Rules"]

Encoding = Literal["bytes", "key_u32", "partition_id"]


@dataclass(frozen=True, slots=True)
class Keys:
    """The values of one row that routing looks at; None where a row has none."""

    schema: str | None = None
    table: str | None = None
    stream: str | None = None
    topic: str | None = None
    values: tuple[str | None, ...] = ()  # one for each lookup


@dataclass(frozen=True, slots=True)
class Lookup:
    """One `route`: a value -> destinations, found in one step however many there are."""

    mapping: Mapping[str, tuple[Address, ...]]
    stops: bool = True  # a match ends the search
    field: str = ""  # what it looks at, for people


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a row goes, and the rule that said so. No destinations: nobody said."""

    destinations: tuple[Address, ...]
    rule: str
    by_default: bool = False

    @property
    def is_missing(self) -> bool:
        return not self.destinations


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of a pipeline at one epoch."""

    lookups: tuple[Lookup, ...] = ()
    by_table: Mapping[str, Address] = field(default_factory=dict)
    by_stream_column: str | None = None
    by_topic_column: str | None = None
    default_stream: str | None = None
    default_topic: str | None = None
    use_default: bool = True  # on_missing_destination = "default"
    partition_key_column: str | None = None
    encoding: Encoding = "bytes"
    epoch: int = 1

    def choose(self, keys: Keys) -> Choice:
        """The destinations of a row with these values, in a fixed order and each once."""
        choice = self._by_lookups(keys) if self.lookups else self._by_columns(keys)
        if choice.is_missing and self.use_default and self.default_topic:
            return Choice((Address(self.default_stream or "", self.default_topic),), "default", by_default=True)
        return choice

    def _by_lookups(self, keys: Keys) -> Choice:
        found: set[Address] = set()
        rules: list[str] = []
        for lookup, value in zip(self.lookups, keys.values, strict=True):
            targets = lookup.mapping.get(value) if value is not None else None
            if targets:
                found.update(targets)
                rules.append(f"route {lookup.field} = {value}")
                if lookup.stops:
                    break
        return Choice(tuple(sorted(found)), ", ".join(rules) or "no route matches")

    def _by_columns(self, keys: Keys) -> Choice:
        """A column of the row, else the row's table, else the default of that column."""
        table = self.by_table.get(f"{keys.schema}.{keys.table}") or self.by_table.get(keys.table or "")
        stream, topic, rule = keys.stream, keys.topic, "columns"
        if table is not None:
            rule = "columns, by_table" if stream or topic else "by_table"
            stream, topic = stream or table.stream, topic or table.topic
        if not (stream or topic or table):
            return Choice((), "no value and no table")
        by_default = not topic
        if not topic:
            topic = self.default_topic if self.use_default else None
            rule += ", default_topic"
        if not stream:
            stream = self.default_stream
        return Choice((Address(stream or "", topic),) if topic else (), rule, by_default)
