"""Batches of one partition of another cluster into the log: each exactly once, as position and map are in one commit.

Where a link to that cluster has mirrored the same topic, the way back begins behind what it had sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec
import psycopg

from headgate.commitlog.append import append
from headgate.commitlog.prepare import Batch, prepare
from headgate.commitlog.topics import LogTopic, ensure_topic
from headgate.model import DeliveryError, OccupiedError, StateError
from headgate.postgres.statements import named_statements
from headgate.shadow.batches import Outgoing, outgoing
from headgate.shadow.digest import digest_of_batch
from headgate.shadow.links import Link, Rejected, Row, State, Step, find_link, save_link, topic_here
from headgate.wire.kafka.batch import read_batch_header, stamped
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

__all__ = ["PartitionReturn"]

_SQL = named_statements("headgate.shadow")
_NOBODY = -1


class PartitionReturn:
    """Appends batches of one partition."""

    def __init__(self, connection: psycopg.Connection, link: str, topic: str, partition: int) -> None:
        self.rows = self.size = self.skipped = 0
        self.ends: dict[int, tuple[int, int]] = {}  # by `part_id`: the offset behind the last message, and the first
        self._connection, self._link = connection, link
        self._topic, self._partition = topic, partition
        self._row = Row(connection, link, topic, partition)
        self._ours: frozenset[int] = frozenset()  # producer ids of links to that cluster: theirs came from here
        self._cluster_id = ""
        self._here: LogTopic

    def open(self, cluster_id: str, servers: str, ext_uuid: UUID | None, partitions: int, at: int) -> None:
        """Look at the topic here, and make what is missing. What is new begins at an offset of the other cluster."""
        self._cluster_id = cluster_id
        self._check_link(cluster_id, servers)
        self._here = ensure_topic(self._connection, self._topic, partitions)
        if len(self._here.parts) != partitions:
            raise StateError(
                f"the topic {self._topic} has {partitions} partitions there and {len(self._here.parts)} here",
                remedy="give both as many: kafka-topics.sh --alter --partitions",
            )
        here = topic_here(self._connection, self._topic)
        state = self._row.load()
        if state is None:
            end, begin = self._beginning(at)
            self._row.begin(here, self._topic, ext_uuid, end, begin)
            state = self._row.load()
            assert state is not None
        for what, before, now in (("here", state.topic_uuid, here.uuid), ("there", state.ext_uuid, ext_uuid)):
            if before != now:
                raise StateError(
                    f"the topic {self._topic} was deleted {what} and made anew",
                    remedy=f"to begin anew, select kafka.shadow_forget('{self._link}', '{self._topic}'), and run "
                    "headgate reset with the pipeline",
                )
        ours = self._connection.execute(_SQL["producers_to"], [cluster_id]).fetchall()
        self._ours = frozenset(producer_id for (producer_id,) in ours)

    def append(self, batches: Iterable[bytes], mark: int) -> None:
        """Append batches, in their order; all before the offset `mark` of the other cluster is done then."""
        with self._connection.transaction():
            self._connection.execute(_SQL["lock_partition"], [self._link, self._topic, self._partition])
            state = self._row.load()
            if state is None:
                raise DeliveryError(f"the link {self._link} was forgotten", remedy="it is tried again")
            if mark <= state.ext_next:
                return
            self._connection.execute(_SQL["pass_fence"], [self._topic, self._cluster_id])
            step = Step()
            coming = [made for batch in batches if (made := self._made(batch, state, step)) is not None]
            state = self._stored(coming, state, step)
            self._row.save(msgspec.structs.replace(state, ext_next=mark), step, [])

    def trouble(self, message: str) -> None:
        """Note in PostgreSQL what went wrong."""
        self._row.trouble(message)

    def _check_link(self, cluster_id: str, servers: str) -> None:
        known = find_link(self._connection, self._link)
        if known is not None and (known.cluster_id, known.direction) != (cluster_id, "in"):
            raise StateError(
                f"the link {self._link} is one {'to' if known.direction == 'out' else 'from'} {known.cluster_id}, "
                f"and this is one from {cluster_id}",
                remedy="give the destination another name: that is another link",
            )
        if known is None or known.servers != servers:
            save_link(self._connection, Link(self._link, "in", servers, cluster_id, None, "", 100, [], 5.0))

    def _beginning(self, at: int) -> tuple[int, int]:
        """Where a partition ends here, and where its messages begin that are not here: behind what we have sent."""
        row = self._connection.execute(
            _SQL["mirrored_there"], [self._topic, self._partition, self._cluster_id]
        ).fetchone()
        assert row is not None
        end, sent_to = row
        if sent_to is None and end:
            raise OccupiedError(
                f"{self._topic}/{self._partition} has messages here, which no link to {self._cluster_id} has sent",
                remedy="bring the topic into a log that has none of this name",
            )
        return end, at if sent_to is None else sent_to

    def _made(self, batch: bytes, state: State, step: Step) -> tuple[Outgoing, Batch] | None:
        """The batch as one of nobody's, ready for the log; None for one that is here, or cannot be."""
        header = read_batch_header(batch)
        out = outgoing(batch)
        if out is None or out.mark <= state.ext_next or header.producer_id in self._ours:
            self.skipped += header.count
            return None
        try:
            (prepared,) = prepare(stamped(out.data, _NOBODY, _NOBODY, _NOBODY), self._here.rules)
        except Refused as refused:
            step.rejected.append(Rejected(header.base_offset, out.mark, f"{refused.code.name}: {refused}"))
            return None
        return out, prepared

    def _stored(self, coming: Sequence[tuple[Outgoing, Batch]], state: State, step: Step) -> State:
        part = self._here.parts[self._partition]
        if not coming:
            return state
        outcomes = append(self._connection, [(part, batch) for _, batch in coming])
        digest, records, size, end = state.digest, state.records, state.size, state.mirrored_to
        for (out, batch), outcome in zip(coming, outcomes, strict=True):
            if outcome.error is not ErrorCode.NONE:
                raise DeliveryError(f"the log refused a batch: {outcome.error.name}", remedy="it is tried again")
            at = outcome.base_offset
            for first, stop in out.runs:
                step.runs.append((at, at + stop - first, first))
                at += stop - first
            digest, end = digest_of_batch(digest, out.data), at
            records, size = records + batch.count, size + len(out.data)
            self.ends[part] = at, outcome.log_start_offset
        self.rows += records - state.records
        self.size += size - state.size
        return msgspec.structs.replace(state, digest=digest, records=records, size=size, mirrored_to=end)
