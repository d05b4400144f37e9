"""Topics: what may be done to them, and how other gateways learn of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import uuid4

import pytest

from headgate.gateway.store import NewTopic, Store, Topic
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused
from tests.integration.gateway_store.stores import QUIET, batch, in_loop, opened, query, read, until, values


async def code_of(call: Awaitable[object]) -> ErrorCode:
    with pytest.raises(Refused) as caught:
        await call
    return caught.value.code


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "a/b", "x" * 250, "a\n"])
@in_loop
async def test_names_that_are_refused(store_url: str, name: str) -> None:
    async with opened(store_url) as store:
        assert await code_of(store.catalog.create(name, 1, {})) is ErrorCode.INVALID_TOPIC_EXCEPTION


@in_loop
async def test_the_life_of_a_topic(store_url: str, topic: str) -> None:
    async with opened(store_url) as store:
        catalog = store.catalog
        assert await catalog.find(topic) is None
        checked = await catalog.create(topic, 3, {}, validate_only=True)
        assert len(checked.parts) == 3
        assert await catalog.find(topic) is None
        made = await catalog.create(topic, 3, {"retention.ms": "86400000"})
        assert catalog.get(topic) == made == catalog.by_id(made.uuid)
        assert made in await catalog.all()
        assert await code_of(catalog.create(topic, 1, {})) is ErrorCode.TOPIC_ALREADY_EXISTS
        assert await code_of(catalog.create(topic + "x", 0, {})) is ErrorCode.INVALID_PARTITIONS
        assert await code_of(catalog.create(topic + "x", 1, {"retention.ms": "x"})) is ErrorCode.INVALID_CONFIG
        assert await code_of(catalog.add_partitions(topic, 3)) is ErrorCode.INVALID_PARTITIONS
        more = await catalog.add_partitions(topic, 5)
        assert more.parts[:3] == made.parts
        assert len(set(more.parts)) == 5
        changed = await catalog.alter_configs(topic, {"max.message.bytes": "100"}, {"retention.ms"})
        assert changed.configs == {"max.message.bytes": "100"}
        assert await code_of(store.append(changed, 4, batch(bytes(100)))) is ErrorCode.MESSAGE_TOO_LARGE
        await catalog.delete(topic)
        assert await code_of(catalog.delete(topic)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await code_of(catalog.delete(uuid4())) is ErrorCode.UNKNOWN_TOPIC_ID
        assert catalog.get(topic) is None
        assert await code_of(store.append(made, 0, batch(b"a"))) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_a_name_used_again_is_another_topic(store_url: str, topic: str) -> None:
    async with opened(store_url) as store:
        old = await store.catalog.create(topic, 1, {})
        await store.append(old, 0, batch(b"old"))
        await store.catalog.delete(old.uuid)
        new = await store.catalog.create(topic, 1, {})
        assert (new.uuid, new.parts) != (old.uuid, old.parts)
        assert (await read(store, new)).high_watermark == 0
        assert (await read(store, old)).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_one_of_many_creates(store_url: str, topic: str) -> None:
    async with opened(store_url) as store, opened(store_url) as other:
        tries = [
            each.catalog.create(topic, 1, {"retention.ms": "77777777"}) for each in (store, other) for _ in range(3)
        ]
        made = await asyncio.gather(*tries, return_exceptions=True)
        assert len([each for each in made if isinstance(each, Topic)]) == 1
        assert {each.code for each in made if isinstance(each, Refused)} == {ErrorCode.TOPIC_ALREADY_EXISTS}


Change = Callable[[Store, str], Awaitable[object]]
CHANGES: dict[str, tuple[Change, Callable[[Topic | None], bool]]] = {
    "grown": (
        lambda store, name: store.catalog.add_partitions(name, 2),
        lambda topic: len(topic.parts) == 2 if topic else False,
    ),
    "altered": (
        lambda store, name: store.catalog.alter_configs(name, {"retention.ms": "9999999"}, set()),
        lambda topic: bool(topic and topic.configs),
    ),
    "deleted": (lambda store, name: store.catalog.delete(name), lambda topic: topic is None),
}


@pytest.mark.parametrize("change", list(CHANGES))
@in_loop
async def test_others_hear_of_it(store_url: str, topic: str, change: str) -> None:
    far = replace(QUIET, poll_interval_s=50)
    do, is_done = CHANGES[change]
    async with opened(store_url, far) as store, opened(store_url, far) as other:
        await store.catalog.create(topic, 1, {})

        async def has_heard() -> bool:
            return other.catalog.get(topic) is not None

        async def is_known() -> bool:
            return is_done(other.catalog.get(topic))

        await until(has_heard)
        await do(store, topic)
        await until(is_known)


@in_loop
async def test_a_thousand_are_one_change(own_url: str) -> None:
    """And what is wrong with some does not stop the others."""
    names = [f"many-{number}" for number in range(1000)]
    wanted = [NewTopic(name, 2, {"retention.ms": "1000"} if place % 2 else {}) for place, name in enumerate(names)]
    wrong = {
        "many 0": NewTopic("many 0", 1, {}),
        "there": NewTopic("there", 1, {}),
        "none": NewTopic("none", 0, {}),
        "nul": NewTopic("nul", 1, {"follower.replication.throttled.replicas": "\0"}),
    }
    async with opened(own_url) as store, opened(own_url) as other:
        await store.catalog.create("there", 1, {})
        before = await query(own_url, "select version from kafka.catalog")
        checked = await store.catalog.create_many(wanted, validate_only=True)
        assert all(isinstance(made, Topic) for made in checked)
        made = await store.catalog.create_many([*wanted, wrong["many 0"], wrong["there"], wrong["none"]])
        assert [each.code for each in made if isinstance(each, Refused)] == [
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.INVALID_PARTITIONS,
        ]
        topics = [each for each in made if isinstance(each, Topic)]
        assert [topic.name for topic in topics] == names
        assert await query(own_url, "select version - %s from kafka.catalog", before[0][0]) == [(1,)]
        assert [await other.catalog.find(name) for name in names] == topics
        assert await values(store, topics[7], 1) == []
        await store.append(topics[7], 1, batch(b"a"))
        assert await values(other, topics[7], 1) == [b"a"]
        good, bad = await store.catalog.create_many([NewTopic("good", 1, {}), wrong["nul"]])
        assert isinstance(good, Topic)
        assert isinstance(bad, Refused)
        assert bad.code is ErrorCode.INVALID_CONFIG
        assert await store.catalog.find("good") == good == await other.catalog.find("good")
