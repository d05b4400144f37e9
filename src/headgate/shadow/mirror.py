"""Batches of one partition to the other cluster: each exactly once, whatever is cut off.

The sequence number of a batch is how many records went before it (ADR 11). So a batch that is sent again, by this
process or by one that was thought dead, has the number that it had, and the brokers know it.

What is about to be sent is written down before. So after a crash the messages behind the end of the map can be told:
they are the first of those, unless somebody else writes there, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec
import psycopg

from headgate.commitlog.read import Isolation, Stored
from headgate.model import DeliveryError, OccupiedError, ProtocolError, StateError
from headgate.postgres.statements import named_statements
from headgate.runtime.failpoints import failpoint
from headgate.shadow.batches import Outgoing, outgoing
from headgate.shadow.client import IN_FLIGHT, Client, ExtTopic, batches_of
from headgate.shadow.digest import chained, digest_of_batch
from headgate.shadow.errors import OUT_OF_SEQUENCE, REFUSALS, code_name, kafka_error
from headgate.shadow.links import Link, Planned, Rejected, Row, State, Step, as_planned, topic_here
from headgate.shadow.topics import await_topic, make_topic
from headgate.wire.kafka.batch import read_batch_header, stamped
from headgate.wire.kafka.messages.produce import ProducedPartition

__all__ = ["PartitionMirror"]

_SQL = named_statements("headgate.shadow")


class PartitionMirror:
    """Sends batches of one partition. After an error open another, which finds out what is there."""

    def __init__(
        self, connection: psycopg.Connection, client: Client, link: Link, topic: str, partition: int, replicas: int = -1
    ) -> None:
        self.rows = self.sent_bytes = self.skipped = 0
        self._connection, self._client, self._link = connection, client, link
        self._topic, self._partition, self._replicas = topic, partition, replicas
        self._row = Row(connection, link.name, topic, partition)
        self._step = Step()
        self._is_known = False  # whether the brokers certainly know our last sequence number
        self._intruder = False
        self._ext: ExtTopic
        self._state: State

    @property
    def where(self) -> str:
        return f"{self._topic}/{self._partition}"

    @property
    def mirrored_to(self) -> int:
        return self._state.mirrored_to

    def open(self, at: int) -> None:
        """Look at both sides, and complete the map. A partition that is new begins at an offset of the log."""
        here = topic_here(self._connection, self._topic)
        name = f"{self._link.topic_prefix}{self._topic}"
        state = self._row.load()
        ext = self._client.topic(name)
        self._check_cluster()
        if ext is None and state is not None and state.records:
            raise self._changed(f"the topic {name} is gone there")
        if ext is not None and state is None:
            ext = await_topic(self._client, name)  # another task may have made it just now
        elif ext is None:
            ext = make_topic(self._client, name, here.partitions, here.configs, self._replicas)
        if len(ext.leaders) != here.partitions:
            raise StateError(
                f"the topic {name} has {len(ext.leaders)} partitions there and {here.partitions} here",
                where=self.where,
                remedy="give both as many: kafka-topics.sh --alter --partitions",
            )
        self._ext = ext
        if state is None:
            self._row.begin(here, name, ext.uuid, at, self._empty_end())
            state = self._row.load()
            assert state is not None
        self._state = state
        if state.topic_uuid != here.uuid:
            raise self._changed(f"the topic {self._topic} was deleted here and made anew")
        if state.ext_uuid != ext.uuid:
            raise self._changed(f"the topic {name} was deleted there and made anew")
        self._recover()

    def send(self, batches: Iterable[bytes], mark: int) -> None:
        """Send batches, in their order; all before the offset `mark` is done then. Durable after `finish`."""
        plan = []
        for batch in batches:
            out = self._outgoing(batch)
            if out is None:
                continue
            if out.mark <= self._state.mirrored_to:
                self.skipped += out.count
                continue
            plan.append(out)
        if plan:
            self._save(plan)
            failpoint("shadow.planned")
            self._produce(deque(plan))
            failpoint("shadow.sent")
        if mark > self._state.mirrored_to:
            self._state = msgspec.structs.replace(self._state, mirrored_to=mark)

    def _outgoing(self, batch: bytes) -> Outgoing | None:
        """What is sent for a batch; one that cannot be read is set aside, so that others go on."""
        try:
            return outgoing(batch, self._link.percent)
        except ProtocolError as error:
            header = read_batch_header(batch)
            if header.last_offset >= self._state.mirrored_to:
                self._step.rejected.append(Rejected(header.base_offset, header.last_offset + 1, error.message))
            return None

    def finish(self) -> None:
        """Write down what was done, after what is to be tried again; raises `OccupiedError` if others write there."""
        for found in self._row.retries():
            self._retry(*found)
        self._save([])
        failpoint("shadow.mapped")
        if self._intruder:
            raise self._occupied("messages of somebody else lie between ours")

    def trouble(self, message: str) -> None:
        """Note in PostgreSQL what went wrong."""
        self._row.trouble(message)

    def _check_cluster(self) -> None:
        seen = self._client.seen_cluster_id
        if self._link.cluster_id and seen != self._link.cluster_id:
            raise StateError(
                f"{self._client.cluster.servers} is the cluster {seen}, and this link is to {self._link.cluster_id}",
                where=self._link.name,
                remedy="correct servers; for another cluster give the destination another name",
            )

    def _changed(self, what: str) -> StateError:
        link, topic = self._link.name, self._topic
        return StateError(
            what,
            where=self.where,
            remedy=f"to begin anew, delete the topic there, select kafka.shadow_forget('{link}', '{topic}') here, and "
            "run headgate reset with the pipeline: what is mirrored of other topics is not sent again",
        )

    def _occupied(self, what: str) -> OccupiedError:
        return OccupiedError(
            f"somebody else writes to the topic {self._ext.name} there: {what}",
            where=self.where,
            remedy=f"end that; then delete the topic there, select kafka.shadow_forget('{self._link.name}', "
            f"'{self._topic}') here, and run headgate reset with the pipeline",
        )

    def _empty_end(self) -> int:
        """Where a topic that we begin to write to ends: nothing may be in it."""
        first, end = self._client.bounds(self._ext, self._partition)
        if first != end:
            raise self._occupied(f"it has {end - first} messages already")
        return end

    def _recover(self) -> None:
        """Complete the map by what lies behind its end."""
        state = self._state
        end = self._client.end_offset(self._ext, self._partition)
        if end < state.ext_next:
            raise self._changed(f"{state.ext_next - end} messages that were acknowledged are gone there")
        coming = deque(state.planned)
        while state.ext_next < end:
            batches = batches_of(self._client.fetch(self._ext, self._partition, state.ext_next))
            if not batches:
                raise DeliveryError(f"no messages of {self.where} come from there", remedy="it is tried again")
            for header, batch in batches:
                planned = coming.popleft() if coming else None
                ours = (header.producer_id, header.base_sequence) == (self._link.producer_id, state.sequence)
                if not ours or planned is None or header.count != planned.count or header.base_offset != state.ext_next:
                    raise self._occupied(f"at {state.ext_next} lies what this link has not sent")
                digest = chained(state.digest, header, batch)
                state = self._acknowledged(state, planned, header.base_offset, len(batch), digest)
        if state is not self._state or state.planned:
            self._state = self._row.save(state, self._step, [])
            self._step = Step()

    def _acknowledged(self, state: State, batch: Planned, base: int, size: int, digest: bytes) -> State:
        """The state behind a batch that lies at the other cluster from `base` on."""
        at = base
        for first, stop in batch.runs:
            self._step.runs.append((first, stop, at))
            at += stop - first
        if batch.mark < 0:
            self._step.resent.append(-batch.mark)
        return msgspec.structs.replace(
            state,
            mirrored_to=max(state.mirrored_to, batch.mark),
            ext_next=base + batch.count,
            records=state.records + batch.count,
            size=state.size + size,
            digest=digest,
        )

    def _save(self, plan: Sequence[Outgoing]) -> None:
        self._state = self._row.save(self._state, self._step, [as_planned(each) for each in plan])
        self._step = Step()

    def _produce(self, queue: deque[Outgoing]) -> None:
        while queue:
            refused = self._produce_some(queue)
            if refused is not None:
                self._reject(queue.popleft(), refused)
                self._save(queue)  # those behind it get other sequence numbers than were planned

    def _produce_some(self, queue: deque[Outgoing]) -> ProducedPartition | None:
        """Send batches until all are acknowledged, or the first of the queue is refused for what it is."""
        posted, sequence = 0, self._state.sequence
        while queue:
            # The first alone: a broker that knows nothing of us takes any number, and must not take the second first.
            while posted < min(IN_FLIGHT if self._is_known else 1, len(queue)):
                batch = queue[posted]
                data = stamped(batch.data, self._producer_id, self._state.producer_epoch, sequence)
                self._client.post_batch(self._ext, self._partition, data)
                sequence = (sequence + batch.count) % 2**31
                posted += 1
            told = self._client.take_batch(self._ext, self._partition)
            posted -= 1
            if told.error_code:
                for _ in range(posted):  # out of order, all of them
                    self._client.take_batch(self._ext, self._partition)
                return self._failed(told)
            failpoint("shadow.accepted")
            self._accept(queue.popleft(), told.base_offset)
        return None

    @property
    def _producer_id(self) -> int:
        assert self._link.producer_id is not None
        return self._link.producer_id

    def _accept(self, batch: Outgoing, base: int) -> None:
        if base < self._state.ext_next:
            raise DeliveryError(f"{self.where}: a batch lies there already", remedy="it is tried again")
        self._intruder = self._intruder or base != self._state.ext_next
        self._is_known = True
        self.rows += batch.count
        self.sent_bytes += len(batch.data)
        digest = digest_of_batch(self._state.digest, batch.data)
        self._state = self._acknowledged(self._state, as_planned(batch), base, len(batch.data), digest)

    def _failed(self, told: ProducedPartition) -> ProducedPartition:
        if told.error_code in REFUSALS:
            return told
        is_numbered_wrong = told.error_code in OUT_OF_SEQUENCE and not self._is_known
        # If more has arrived meanwhile, somebody else sends the same: what that is, is found out by the next attempt.
        if is_numbered_wrong and self._client.end_offset(self._ext, self._partition) == self._state.ext_next:
            # All that lies there is ours and is counted, and still the broker wants another number: it gets an epoch
            # in which the first is 0. Whoever still sends by the old one is refused.
            epoch = self._state.producer_epoch + 1
            self._row.save(
                msgspec.structs.replace(self._state, producer_epoch=epoch, epoch_records=self._state.records),
                self._step,
                [],
            )
        raise kafka_error(told.error_code, f"topic {self._ext.name}", told.error_message)

    def _reject(self, batch: Outgoing, told: ProducedPartition) -> None:
        reason = f"{code_name(told.error_code)}{f': {told.error_message}' if told.error_message else ''}"
        if batch.mark < 0:
            self._step.refused_again.append((reason, -batch.mark))
        else:
            self._step.rejected.append(Rejected(batch.runs[0][0], batch.mark, reason))
        self._state = msgspec.structs.replace(self._state, mirrored_to=max(self._state.mirrored_to, batch.mark))

    def _retry(self, rejected_id: int, base: int, end: int) -> None:
        """Send what was refused once more, behind all else and outside the map."""
        found = self._connection.execute(_SQL["stored"], [base, 1, 1, self._topic, self._partition]).fetchall()
        isolation = Isolation(pair for row in found if row[3] is not None for pair in zip(row[3], row[4], strict=True))
        for row in found:
            if row[2] is None or row[1] >= end:
                continue
            stored = Stored(*row[:3])
            out = outgoing(stored.placed(), self._link.percent) if isolation.shows(stored) else None
            if out is not None:
                again = msgspec.structs.replace(out, runs=(), mark=-rejected_id)
                self._save([again])
                self._produce(deque([again]))
