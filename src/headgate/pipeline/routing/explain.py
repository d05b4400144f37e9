"""Says of a sample row where it would go and why, without sending it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.destinations.base import Destination as Target
from headgate.model import HeadgateError, record
from headgate.model.destination import Destination
from headgate.pipeline.routing.admission import Reason
from headgate.pipeline.routing.router import key_bytes, key_number
from headgate.pipeline.routing.rules import Keys
from headgate.pipeline.routing.settings import KeyPaths, RoutingSettings
from headgate.pipeline.routing.table import DestinationTable

__all__ = ["Explanation", "Verdict", "explain_row", "row_keys"]

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What would become of a row at one of the destinations it wants."""

    destination: str
    partition: str
    admission: str  # `admitted`, or the reason and what happens then
    creates: tuple[str, ...] = ()  # what would have to be made first

    def as_dict(self) -> dict[str, Any]:
        return {
            "destination": self.destination,
            "partition": self.partition,
            "admission": self.admission,
            "creates": list(self.creates),
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """One row's way."""

    row: dict[str, Any]
    rule: str
    looked_at: dict[str, str | None]
    verdicts: tuple[Verdict, ...]
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "row": self.row,
            "looked_at": self.looked_at,
            "rule": self.rule,
            "verdicts": [verdict.as_dict() for verdict in self.verdicts],
            "note": self.note,
        }


def explain_row(
    row: Row,
    settings: RoutingSettings,
    targets: Sequence[Target] = (),
    table: DestinationTable | None = None,
    seen: set[Destination] | None = None,
) -> Explanation:
    """Follow one row. `table` is that of the running pipeline; without one, `seen` counts towards the limit."""
    keys, looked_at = row_keys(row, settings.paths)
    choice = settings.rules.choose(keys)
    key = _text(_at(row, settings.paths.partition_key.split("."))) if settings.paths.partition_key else None
    verdicts = tuple(
        Verdict(
            str(wanted) if wanted.stream else wanted.topic,
            _partition(key, settings),
            *_admission(wanted, key, settings, targets, table, seen if seen is not None else set()),
        )
        for wanted in choice.destinations
    )
    note = "" if verdicts else f"no destination: {settings.on_missing}"
    return Explanation(dict(row), choice.rule, looked_at, verdicts, note)


def row_keys(row: Row, paths: KeyPaths) -> tuple[Keys, dict[str, str | None]]:
    """What the rules see of a row given as names and values, and the same for people."""
    looked_at: dict[str, str | None] = {}

    def value(path: str | None) -> str | None:
        if path is None:
            return None
        looked_at[path] = _text(_at(row, path.split(".")))
        return looked_at[path]

    lookups = []
    for parts in paths.lookups:
        values = [value(path) for path in parts]
        lookups.append(None if None in values else "/".join(str(each) for each in values))
    schema, table = (value(record.SCHEMA), value(record.TABLE)) if paths.tables else (None, None)
    return Keys(schema, table, value(paths.stream), value(paths.topic), tuple(lookups)), looked_at


def _admission(
    wanted: Destination,
    key: str | None,
    settings: RoutingSettings,
    targets: Sequence[Target],
    table: DestinationTable | None,
    seen: set[Destination],
) -> tuple[str, tuple[str, ...]]:
    reason = table.refusal(wanted) if table else settings.admission.refusal(wanted)
    if reason is None and table is None and wanted not in seen and len(seen) >= settings.admission.max_destinations:
        reason = Reason.CAP
    if reason is None and _is_beyond(key, settings):
        reason = Reason.PARTITION_OUT_OF_RANGE
    if reason is not None:
        return f"refused: {reason.value} -> {settings.on_refusal}", ()
    seen.add(wanted)
    return "admitted", tuple(_created(wanted, targets))


def _created(wanted: Destination, targets: Sequence[Target]) -> list[str]:
    """What the destinations would have to make."""
    made = []
    for target in targets:
        try:
            missing = target.missing(wanted.stream or None, wanted.topic)
        except HeadgateError as error:
            missing = f"unknown, {error.message}"
        if missing:
            made.append(f"{target.name}: {missing}")
    return made


def _partition(key: str | None, settings: RoutingSettings) -> str:
    count = settings.defaults.partitions
    if settings.paths.partition_key is None:
        return "any"
    if key is None:
        return "any (the key is NULL)"
    if settings.rules.encoding == "partition_id":
        return "any (the key is no number)" if key_number(key) is None else f"{key_number(key)} of {count}"
    data = key_bytes(key, settings.rules.encoding)
    if data is None:
        return "any (the key is no number)"
    crc = f", partition {zlib.crc32(data) % count} of {count} in NATS" if count > 1 else ""
    return f"by key {key!r}{crc}"


def _is_beyond(key: str | None, settings: RoutingSettings) -> bool:
    number = key_number(key) if settings.rules.encoding == "partition_id" and key is not None else None
    return number is not None and not 0 <= number < settings.defaults.partitions


def _at(value: Any, path: list[str]) -> Any:
    """A value inside objects, and inside JSON that stands in text."""
    if isinstance(value, Mapping) and ".".join(path) in value:
        return value[".".join(path)]
    for name in path:
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return None
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float, Mapping, list)):
        return json.dumps(value, separators=(",", ":"), default=str)
    return str(value)  # of a table's row: numbers of any length, dates, UUIDs
