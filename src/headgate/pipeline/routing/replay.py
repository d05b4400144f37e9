"""Sends dead letters on, to where they wanted to go or somewhere else. Runs on the driver, between two batches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headgate.destinations.base import Destination, Lane, LocalDestination
from headgate.model import HeadgateError, record
from headgate.model.address import Address
from headgate.model.dead_letter import UNREADABLE, DeadLetter
from headgate.pipeline.routing.admission import Admission
from headgate.pipeline.routing.job import error_of
from headgate.pipeline.routing.settings import RoutingSettings
from headgate.spool.dead_letters import DeadLetters

__all__ = ["ReplayResult", "replay"]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """How many letters are delivered, and why the others are not."""

    delivered: int
    kept: dict[str, int]  # reason -> letters

    def as_dict(self) -> dict[str, Any]:
        return {"delivered": self.delivered, "kept": self.kept}


def replay(
    letters: Sequence[DeadLetter],
    store: DeadLetters,
    targets: Sequence[Destination],
    settings: RoutingSettings,
    to: Address | None = None,
) -> ReplayResult:
    """Deliver letters; each is forgotten once every destination it was for has acknowledged it."""
    kept: dict[str, int] = {}
    delivered = 0
    wanted = [replace(letter, wanted=to) if to else letter for letter in letters]
    for group in _groups(wanted):
        reason = _refusal(group[0], settings.admission) or _deliver(group, targets, settings)
        if reason:
            kept[reason] = kept.get(reason, 0) + len(group)
        else:
            delivered += store.remove(letter.number for letter in group)
    return ReplayResult(delivered, kept)


def _groups(letters: Sequence[DeadLetter]) -> list[list[DeadLetter]]:
    groups: dict[tuple[str, Address, bool], list[DeadLetter]] = {}
    for letter in letters:
        key = (letter.destination, letter.wanted, letter.reason == UNREADABLE)
        groups.setdefault(key, []).append(letter)
    return list(groups.values())


def _refusal(letter: DeadLetter, admission: Admission) -> str:
    wanted = letter.wanted
    if letter.reason == UNREADABLE:
        return "unreadable: it was never an event; mend the row in its table, then purge this"
    if not wanted.topic:
        return "missing_destination"
    refused = admission.refusal(wanted)
    return refused.value if refused else ""


def _deliver(letters: list[DeadLetter], targets: Sequence[Destination], settings: RoutingSettings) -> str:
    """Empty when all is well, else what is wrong."""
    wanted = letters[0].wanted
    batch_id = -time.time_ns() // 1000  # of no query's batches, and of no other replay
    for target in targets:
        if letters[0].destination not in ("", target.name):
            continue
        try:
            partitions = target.ensure_topic(wanted.stream or None, wanted.topic, settings.defaults)
            rows = _rows(letters, partitions)
            if isinstance(target, LocalDestination):
                target.accept(pa.Table.from_batches([target.fit(rows)]))
                continue
            lane = Lane(
                wanted.stream or None,
                batch_id,
                epoch=settings.rules.epoch,
                partitions={wanted.topic: partitions},
                is_late=True,
            )
            with target.open(lane) as sender:
                sender.send(target.fit(rows))
                result = sender.finish()
            if result.failures:
                return error_of(result.failures[0]["error"]).message
            target.complete(batch_id, result.reports)
        except HeadgateError as error:
            return error.message
    return ""


def _rows(letters: list[DeadLetter], partitions: int) -> pa.RecordBatch:
    """A letter for a partition that there is goes there; one for another was put aside for that, and goes anywhere."""
    columns: dict[str, pa.Array] = {
        record.TOPIC: pa.array([letter.wanted.topic for letter in letters], pa.string()),
        record.MESSAGE_ID: pa.array([letter.message_id for letter in letters], pa.string()),
        record.PAYLOAD: pa.array([letter.payload for letter in letters], pa.binary()),
    }
    if any(letter.partition_key is not None for letter in letters):
        columns[record.PARTITION_KEY] = pa.array([letter.partition_key for letter in letters], pa.binary())
    explicit = [each.partition if each.partition in range(partitions) else None for each in letters]
    if any(partition is not None for partition in explicit):
        columns[record.PARTITION] = pa.array(explicit, pa.int64())
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
