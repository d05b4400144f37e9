"""Topics: in memory for every request, in PostgreSQL for good.

A change is one transaction that raises the version of the catalogue and notifies all gateways. Whoever sees a version
that is not the one after its own reads everything again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool

from headgate.commitlog.configs import check_configs, is_compacted, retention_class
from headgate.commitlog.prepare import Rules, rules_of
from headgate.gateway.store.moves import Move, MovedGroup, read_move
from headgate.gateway.store.statements import sql
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

__all__ = ["CATALOG_CHANNEL", "Catalog", "NewTopic", "Topic"]

CATALOG_CHANNEL = "kafka_catalog"
MAX_PARTITIONS = 100_000
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

Pool = AsyncConnectionPool[psycopg.AsyncConnection]
_Row = tuple[int, UUID, str, dict[str, str], list[int], str | None, object]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. `configs` is what somebody set; what counts otherwise is in `headgate.commitlog.configs`."""

    id: int
    uuid: UUID
    name: str
    parts: tuple[int, ...]  # part_id by index
    configs: Mapping[str, str]
    move: Move | None = None  # to another cluster


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that somebody wants."""

    name: str
    partitions: int
    configs: Mapping[str, str]


class Catalog:
    """All topics. `get` and `by_id` look in memory only, which another gateway's change reaches a moment later."""

    def __init__(self, pool: Pool, on_gone: Callable[[Collection[int]], None]) -> None:
        self._pool = pool
        self._on_gone = on_gone
        self._version = -1
        self._by_name: dict[str, Topic] = {}
        self._by_uuid: dict[UUID, Topic] = {}
        self._rules: dict[UUID, tuple[Topic, Rules]] = {}
        self.compacted: frozenset[int] = frozenset()  # partitions whose records may be taken out of the middle
        self.moved_groups: Mapping[str, MovedGroup] = {}  # to another cluster

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, uuid: UUID) -> Topic | None:
        return self._by_uuid.get(uuid)

    async def find(self, name: str) -> Topic | None:
        """Return the topic `name`; ask PostgreSQL if it is not in memory. None if there is none."""
        return self.get(name) or await self._find(name)

    async def find_id(self, uuid: UUID) -> Topic | None:
        return self.by_id(uuid) or await self._find(uuid)

    async def all(self) -> list[Topic]:
        """Every topic, by name."""
        await self.refresh()
        return [self._by_name[name] for name in sorted(self._by_name)]

    def rules(self, topic: Topic) -> Rules:
        """What the topic asks of batches."""
        known = self._rules.get(topic.uuid)
        if known is None or known[0] is not topic:
            known = self._rules[topic.uuid] = topic, rules_of(topic.configs)
        return known[1]

    async def create(
        self, name: str, partitions: int, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> Topic:
        """A new topic. Raises `Refused`."""
        (made,) = await self.create_many([NewTopic(name, partitions, configs)], validate_only=validate_only)
        if isinstance(made, Refused):
            raise made
        return made

    async def create_many(self, wanted: Sequence[NewTopic], *, validate_only: bool = False) -> list[Topic | Refused]:
        """New topics, in as few transactions as there may be; what became of each. A wrong one does not stop others."""
        results: dict[int, Topic | Refused] = {}
        good: list[tuple[int, NewTopic]] = []
        for place, each in enumerate(wanted):
            try:
                _check_name(each.name)
                _check_partitions(each.partitions)
                check_configs(each.configs)
            except Refused as refused:
                results[place] = refused
            else:
                good.append((place, each))
        for group in _groups(good):
            made = await self._create([each for _, each in group], validate_only)
            results.update(zip((place for place, _ in group), made, strict=True))
        return [results[place] for place in range(len(wanted))]

    async def _create(self, wanted: Sequence[NewTopic], validate_only: bool) -> list[Topic | Refused]:
        version, made = await self._insert(wanted, validate_only)
        if made and not validate_only:
            await self._learn(version, *made.values())
        return [
            made.get(each.name) or Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{each.name}' already exists.")
            for each in wanted
        ]

    async def _insert(self, wanted: Sequence[NewTopic], validate_only: bool) -> tuple[int, dict[str, Topic]]:
        """The version of the catalogue from now on, and those that were made, by name."""
        by_name = {each.name: each for each in wanted}
        async with self._pool.connection() as connection, connection.transaction(force_rollback=validate_only):
            await connection.execute(sql("lock_catalog"))
            configs = [Jsonb(dict(each.configs)) for each in by_name.values()]
            cursor = await connection.execute(sql("create_topics"), [list(by_name), configs])
            rows = await cursor.fetchall()
            if not rows:
                return self._version, {}
            version = await self._change(connection, rows[0][2])
            counts = [by_name[name].partitions for _, _, name in rows]
            classes = await _classes(connection, [by_name[name].configs for _, _, name in rows])
            ids = [topic_id for topic_id, _, _ in rows]
            values = [ids, classes, [0] * len(ids), counts]
            parts: dict[int, list[int]] = dict(
                await (await connection.execute(sql("create_partitions"), values)).fetchall()
            )
        return version, {
            name: Topic(topic_id, uuid, name, tuple(parts[topic_id]), dict(by_name[name].configs))
            for topic_id, uuid, name in rows
        }

    async def delete(self, name_or_uuid: str | UUID) -> None:
        """Remove a topic; its records are out of reach at once. Raises `Refused`."""
        async with self._pool.connection() as connection, connection.transaction():
            topic = await self._locked(connection, name_or_uuid)
            version = await self._change(connection, topic.name)
            await connection.execute(sql("delete_topic"), [topic.id])
        await self._learn(version, topic, is_gone=True)

    async def add_partitions(self, name: str, total: int, validate_only: bool = False) -> Topic:
        """Let a topic have `total` partitions, which must be more than it has. Raises `Refused`."""
        _check_partitions(total)
        async with self._pool.connection() as connection, connection.transaction(force_rollback=validate_only):
            topic = await self._locked(connection, name)
            count = len(topic.parts)
            if total <= count:
                text = f"The topic {name} currently has {count} partition(s); {total} would not be an increase."
                raise Refused(ErrorCode.INVALID_PARTITIONS, text)
            version = await self._change(connection, name)
            added = [[topic.id], await _classes(connection, [topic.configs]), [count], [total]]
            await connection.execute(sql("create_partitions"), added)
            topic = await _read(connection, name) or topic
        if not validate_only:
            await self._learn(version, topic)
        return topic

    async def alter_configs(
        self,
        name: str,
        set: Mapping[str, str],  # noqa: A002
        delete: Collection[str],
        validate_only: bool = False,
    ) -> Topic:
        """Set some settings and take back others. Raises `Refused`."""
        check_configs(set)
        async with self._pool.connection() as connection, connection.transaction(force_rollback=validate_only):
            topic = await self._locked(connection, name)
            kept = {key: value for key, value in topic.configs.items() if key not in delete}
            configs = {**kept, **set}
            version = await self._change(connection, name)
            await connection.execute(sql("alter_topic"), [topic.id, Jsonb(configs), *retention_class(configs)])
            topic = await _read(connection, name) or topic
        if not validate_only:
            await self._learn(version, topic)
        return topic

    async def refresh(self) -> None:
        """Read everything again if anything has changed."""
        async with self._pool.connection() as connection:
            await self.refresh_on(connection)

    async def refresh_on(self, connection: psycopg.AsyncConnection) -> None:
        async with connection.transaction():
            version = await _value(connection, sql("catalog_version"))
            if version == self._version:
                return
            # The version was read first: topics that are newer than it will be read once more, and none is missed.
            cursor = await connection.execute(sql("topics"))
            topics = [_topic(row) for row in await cursor.fetchall()]
            groups = await (await connection.execute(sql("moved_groups"))).fetchall()
        assert isinstance(version, int)
        if version > self._version:
            self.moved_groups = {group: MovedGroup(*place) for group, *place in groups}
            self._replace(version, topics)

    def _replace(self, version: int, topics: list[Topic]) -> None:
        before = {part for topic in self._by_name.values() for part in topic.parts}
        # A topic that has not changed stays the same object.
        topics = [known if (known := self._by_uuid.get(topic.uuid)) == topic else topic for topic in topics]
        self._version = version
        self._by_name = {topic.name: topic for topic in topics}
        self._by_uuid = {topic.uuid: topic for topic in topics}
        self._rules = {uuid: rules for uuid, rules in self._rules.items() if uuid in self._by_uuid}
        self._on_gone(before.difference(part for topic in topics for part in topic.parts))
        self._note_compacted()

    async def _learn(self, version: int, *topics: Topic, is_gone: bool = False) -> None:
        """Take over an own change, if nobody else has made one in between."""
        if version != self._version + 1:
            await self.refresh()
            return
        self._version = version
        for topic in topics:
            if is_gone:
                self._by_name.pop(topic.name, None)
                self._by_uuid.pop(topic.uuid, None)
                self._rules.pop(topic.uuid, None)
                self._on_gone(topic.parts)
            else:
                self._by_name[topic.name] = self._by_uuid[topic.uuid] = topic
        self._note_compacted()

    def _note_compacted(self) -> None:
        """What memory has of partitions that are compacted from now on may come back no more."""
        topics = (topic for topic in self._by_uuid.values() if is_compacted(topic.configs))
        compacted = frozenset(part for topic in topics for part in topic.parts)
        self._on_gone(compacted - self.compacted)
        self.compacted = compacted

    async def _find(self, key: str | UUID) -> Topic | None:
        async with self._pool.connection() as connection:
            await self.refresh_on(connection)
        return self._by_name.get(key) if isinstance(key, str) else self._by_uuid.get(key)

    async def _locked(self, connection: psycopg.AsyncConnection, key: str | UUID) -> Topic:
        """A topic as it is in PostgreSQL, while nobody else changes any."""
        await connection.execute(sql("lock_catalog"))
        topic = await _read(connection, key)
        if topic is None:
            is_name = isinstance(key, str)
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_name else ErrorCode.UNKNOWN_TOPIC_ID)
        return topic

    async def _change(self, connection: psycopg.AsyncConnection, name: str) -> int:
        version = await _value(connection, sql("change_catalog"), [CATALOG_CHANNEL, name])
        assert isinstance(version, int)
        return version


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None or name in (".", ".."):
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name {name[:250]!r} is illegal: 1 to 249 of a-z A-Z 0-9 . _ -, and neither '.' nor '..'",
        )


def _check_partitions(count: int) -> None:
    if not 1 <= count <= MAX_PARTITIONS:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Number of partitions must be from 1 to {MAX_PARTITIONS}.")


def _groups(wanted: Sequence[tuple[int, NewTopic]]) -> Iterator[list[tuple[int, NewTopic]]]:
    """What goes into one transaction: as many partitions as one topic may have."""
    group: list[tuple[int, NewTopic]] = []
    count = 0
    for place, each in wanted:
        if count + each.partitions > MAX_PARTITIONS:
            yield group
            group, count = [], 0
        group.append((place, each))
        count += each.partitions
    if group:
        yield group


async def _classes(connection: psycopg.AsyncConnection, topics: Sequence[Mapping[str, str]]) -> list[object]:
    """Where topics with such settings have their segments. New ones are made, which locks the log until the commit."""
    wanted = [retention_class(configs) for configs in topics]
    ids = {each: await _value(connection, sql("class_of"), [*each]) for each in sorted(set(wanted), key=str)}
    return [ids[each] for each in wanted]


def _topic(row: _Row) -> Topic:
    topic_id, uuid, name, configs, parts, move_state, target = row
    return Topic(topic_id, uuid, name, tuple(parts), configs, read_move(name, move_state, target))


async def _read(connection: psycopg.AsyncConnection, key: str | UUID) -> Topic | None:
    statement = sql("topic_by_name" if isinstance(key, str) else "topic_by_uuid")
    row = await (await connection.execute(statement, [key])).fetchone()
    return None if row is None else _topic(row)


async def _value(connection: psycopg.AsyncConnection, statement: bytes, values: list[object] | None = None) -> object:
    row = await (await connection.execute(statement, values)).fetchone()
    return None if row is None else row[0]
