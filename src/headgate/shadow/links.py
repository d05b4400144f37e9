"""What PostgreSQL knows of a mirror: the link to the other cluster, and how far each partition is.

Every change of a partition names the version that it is made of. So of two runs that mirror the same partition only one
gets on, and what the other believes is never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from psycopg.rows import class_row, dict_row

from headgate.model import DeliveryError, StateError
from headgate.postgres.statements import named_statements
from headgate.shadow.batches import Outgoing
from headgate.shadow.client import Client

__all__ = [
    "Link",
    "Planned",
    "Rejected",
    "Row",
    "State",
    "Step",
    "TopicHere",
    "as_planned",
    "find_link",
    "note_link",
    "prepare_link",
    "save_link",
    "topic_here",
]

_SQL = named_statements("headgate.shadow")


class Link(msgspec.Struct, frozen=True):
    """A row of `kafka.shadow_links`."""

    name: str
    direction: str
    servers: str
    cluster_id: str | None
    producer_id: int | None
    topic_prefix: str
    percent: int
    groups: list[str]
    group_interval_s: float


class TopicHere(msgspec.Struct, frozen=True):
    """A topic of the log, as far as a mirror must know it."""

    uuid: UUID
    partitions: int
    configs: dict[str, str]


class Planned(msgspec.Struct, frozen=True):
    """A batch that was about to be sent. `mark` below 0 is of a rejected batch that is sent again: minus its id."""

    count: int
    mark: int
    runs: tuple[tuple[int, int], ...]


class Rejected(msgspec.Struct, frozen=True):
    """A batch that the other side does not take."""

    base_offset: int
    end_offset: int
    reason: str


class State(msgspec.Struct, frozen=True):
    """How far a partition is: a row of `kafka.shadow_partitions`."""

    topic_uuid: UUID
    ext_topic: str
    ext_uuid: UUID | None
    mirrored_to: int
    ext_next: int
    records: int
    size: int
    producer_epoch: int
    epoch_records: int
    digest: bytes
    planned: tuple[Planned, ...]
    version: int

    @property
    def sequence(self) -> int:
        """The sequence number of the next batch: how many records went before it, since the epoch began."""
        return (self.records - self.epoch_records) % 2**31


class Step(msgspec.Struct):
    """What has been done since the last save: runs with the offsets they got, and what became of rejected batches."""

    runs: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    rejected: list[Rejected] = msgspec.field(default_factory=list)
    resent: list[int] = msgspec.field(default_factory=list)
    refused_again: list[tuple[str, int]] = msgspec.field(default_factory=list)  # why, and the id


class Row:
    """One partition of a link in PostgreSQL."""

    def __init__(self, connection: psycopg.Connection, link: str, topic: str, partition: int) -> None:
        self._connection = connection
        self._key: tuple[str, str, int] = (link, topic, partition)

    def load(self) -> State | None:
        with self._connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(_SQL["partition"], self._key).fetchone()
        return _state(row) if row else None

    def begin(self, here: TopicHere, ext_topic: str, ext_uuid: UUID | None, mirrored_to: int, ext_next: int) -> None:
        """Make the row if there is none."""
        self._connection.execute(_SQL["begin"], [*self._key, here.uuid, ext_topic, ext_uuid, mirrored_to, ext_next])

    def save(self, state: State, step: Step, plan: Sequence[Planned]) -> State:
        """Write what was done and what comes next, in one transaction; returns the state as it is then."""
        runs = [run for each in plan for run in each.runs]
        planned = [
            [each.count for each in plan],
            [each.mark for each in plan],
            [len(each.runs) for each in plan],
            [first for first, _ in runs],
            [stop for _, stop in runs],
        ]
        done = [state.mirrored_to, state.ext_next, state.records, state.size, state.producer_epoch]
        more = [state.epoch_records, state.digest]
        with self._connection.transaction():
            written = self._connection.execute(_SQL["advance"], [*done, *more, *planned, *self._key, state.version])
            if not written.rowcount:
                raise DeliveryError(
                    f"another run mirrors {self._key[1]}/{self._key[2]} at the same time",
                    remedy="it is tried again; run one pipeline for each destination",
                )
            if step.runs:
                self._connection.execute(
                    _SQL["map"], [*self._key, *(list(column) for column in zip(*step.runs, strict=True))]
                )
            for each in step.rejected:
                self._connection.execute(_SQL["reject"], [*self._key, each.base_offset, each.end_offset, each.reason])
            if step.resent:
                self._connection.execute(_SQL["resent"], [step.resent])
            for again in step.refused_again:
                self._connection.execute(_SQL["refused_again"], again)
        return msgspec.structs.replace(state, planned=tuple(plan), version=state.version + 1)

    def retries(self) -> list[tuple[int, int, int]]:
        """Return rejected batches that are to be sent again: id, first offset, end."""
        return self._connection.execute(_SQL["retries"], self._key).fetchall()

    def trouble(self, message: str) -> None:
        """Note what went wrong: with the link, if it could not begin."""
        if not self._connection.execute(_SQL["partition_trouble"], [message, *self._key]).rowcount:
            note_link(self._connection, self._key[0], message)


def _state(row: dict[str, Any]) -> State:
    runs = iter(zip(row.pop("planned_bases"), row.pop("planned_ends"), strict=True))
    facts = zip(row.pop("planned_counts"), row.pop("planned_marks"), row.pop("planned_runs"), strict=True)
    planned = tuple(Planned(count, mark, tuple(next(runs) for _ in range(n))) for count, mark, n in facts)
    return State(**row, planned=planned)


def as_planned(batch: Outgoing) -> Planned:
    """Return what is written down of a batch before it is sent."""
    return Planned(batch.count, batch.mark, batch.runs)


def find_link(connection: psycopg.Connection, name: str) -> Link | None:
    """Return a link by its name."""
    with connection.cursor(row_factory=class_row(Link)) as cursor:
        return cursor.execute(_SQL["link"], [name]).fetchone()


def save_link(connection: psycopg.Connection, link: Link) -> None:
    """Write a link. Its cluster and its producer id stay what they were, once they are known."""
    connection.execute(_SQL["save_link"], msgspec.structs.asdict(link))


def prepare_link(connection: psycopg.Connection, client: Client, wanted: Link) -> Link:
    """Write a link, with what only its cluster can say: who that is, and a producer id for good.

    Raises `StateError` if it is not the cluster, or the prefix, of before.
    """
    known = find_link(connection, wanted.name)
    cluster_id = client.cluster_id()
    for what, before, now in (
        ("the cluster", known and known.cluster_id, cluster_id),
        ("topic_prefix", known and known.topic_prefix, wanted.topic_prefix),
        ("percent", known and known.percent, wanted.percent),
        ("the direction", known and known.direction, wanted.direction),
    ):
        if before is not None and before != now:
            raise StateError(
                f"{what} of the link {wanted.name} is {now!r}, and was {before!r}",
                where="kafka.shadow_links",
                remedy="put it back, or give the destination another name: that is another link",
            )
    producer_id = known.producer_id if known else None
    if producer_id is None and wanted.direction == "out":
        producer_id = client.producer_id()
    save_link(connection, msgspec.structs.replace(wanted, cluster_id=cluster_id, producer_id=producer_id))
    saved = find_link(connection, wanted.name)
    assert saved is not None
    return saved


def note_link(connection: psycopg.Connection, name: str, trouble: str | None) -> None:
    """Note what keeps a link as a whole from working, or that it works."""
    if trouble is None:
        connection.execute(_SQL["link_well"], [name])
    else:
        connection.execute(_SQL["link_trouble"], [trouble, name])


def topic_here(connection: psycopg.Connection, name: str) -> TopicHere:
    """Return a topic of the log; raises `StateError` if there is none."""
    with connection.cursor(row_factory=class_row(TopicHere)) as cursor:
        found = cursor.execute(_SQL["topic"], [name]).fetchone()
    if found is None:
        raise StateError(
            f"there is no topic {name} in this log",
            remedy="let the destination have the database that the source reads: set url of both, or of neither",
        )
    return found
