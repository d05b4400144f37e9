"""Topics of a cluster into the log: to copy them, or to come back after a cut-over."""

from __future__ import annotations

import threading
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer

from headgate.embedded import Endpoints
from headgate.model import OccupiedError, StateError
from tests.apache_kafka import ApacheKafka
from tests.gateway.servers import GatewayThread, new_database, running
from tests.integration.shadow.mirroring import Mirror, WayBack, consumed
from tests.integration.shadow.test_shadow_mirror import CODECS, create, messages, write


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4().hex[:10]}"


def sources(url: str, topic: str, offsets: list[int], link: str = "back") -> list[int | None]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select kafka.shadow_source_offset(%s, %s, 0, o) from unnest(%s::bigint[]) with ordinality as u(o, n)"
            " order by n",
            [link, topic, offsets],
        ).fetchall()
    return [offset for (offset,) in rows]


def test_a_topic_is_copied_into_the_log(gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str) -> None:
    """With transactions, and whatever the compression; exactly once, also by two at the same time."""
    create(kafka.servers, topic, 2)
    for codec in CODECS:
        write(kafka.servers, topic, messages(20, 0, codec), **{"compression.type": codec})
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        for row in messages(5, 0, f"t{number}"):
            producer.produce(topic, **row)
        producer.flush(30)
        (producer.abort_transaction if number == 1 else producer.commit_transaction)(30)
    backs = [WayBack(url, kafka.servers, topic) for _ in range(2)]
    backs[0].destination.ensure()
    both = [threading.Thread(target=back.to_the_end) for back in backs]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    there, here = consumed(kafka.servers, topic, 2), consumed(gateway.bootstrap, topic, 2)
    assert [[each[1:] for each in part] for part in here] == [[each[1:] for each in part] for part in there]
    assert len(here[0]) == 20 * len(CODECS) + 15
    assert sources(url, topic, [each[0] for each in there[0]]) == [each[0] for each in here[0]]
    assert backs[0].to_the_end().rows == 0
    write(kafka.servers, topic, messages(3, 1, "more"))
    assert backs[0].to_the_end().rows == 3


def test_messages_that_were_written_there_since_come_back(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    """And none of those that went there from here."""
    create(gateway.bootstrap, topic, 1)
    write(gateway.bootstrap, topic, messages(10, 0))
    Mirror(url, kafka.servers).ensure().to_the_end()
    write(kafka.servers, topic, messages(7, 0, "there"))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select kafka.move_topics('mirror', array[%s], 'moved')", [topic])
    back = WayBack(url, kafka.servers, topic)
    assert back.to_the_end().rows == 7
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select kafka.move_topics('mirror', array[%s], null)", [topic])
    (there,), (here,) = consumed(kafka.servers, topic, 1), consumed(gateway.bootstrap, topic, 1)
    assert [each[1:] for each in here] == [each[1:] for each in there]
    assert sources(url, topic, list(range(10, 18))) == list(range(10, 18))
    assert back.to_the_end().rows == 0


def test_a_topic_of_others_is_left_alone(gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str) -> None:
    create(gateway.bootstrap, topic, 1)
    create(kafka.servers, topic, 1)
    write(gateway.bootstrap, topic, messages(1, 0))
    write(kafka.servers, topic, messages(1, 0))
    with pytest.raises(OccupiedError, match="has messages here"):
        WayBack(url, kafka.servers, topic).run()


def test_a_link_there_is_no_link_back(gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str) -> None:
    create(kafka.servers, topic, 1)
    Mirror(url, kafka.servers, name="back").ensure()
    with pytest.raises(StateError, match="is one to headgateTest"):
        WayBack(url, kafka.servers, topic).run()


def test_a_batch_that_the_log_refuses_is_set_aside(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    create(kafka.servers, topic, 1)
    create(gateway.bootstrap, topic, 1, max_message_bytes="5000")
    for rows in (messages(2, 0), [{"value": b"x" * 9000, "partition": 0}], messages(2, 0, "b")):
        write(kafka.servers, topic, rows)
    assert WayBack(url, kafka.servers, topic).to_the_end().rows == 4
    with psycopg.connect(url) as connection:
        row = connection.execute("select base_offset, end_offset, reason from kafka.shadow_rejected").fetchone()
    assert row is not None
    assert row[:2] == (2, 3)
    assert "MESSAGE_TOO_LARGE" in row[2]
    assert sources(url, topic, [0, 1, 2, 3, 4, 5]) == [0, 1, 2, 2, 3, 4]


def test_from_one_log_into_another(endpoints: Endpoints, gateway: GatewayThread, url: str, topic: str) -> None:
    """A gateway is a cluster, too."""
    assert endpoints.postgres_url is not None
    create(gateway.bootstrap, topic, 1)
    write(gateway.bootstrap, topic, messages(10, 0))
    with new_database(endpoints.postgres_url) as other, running(other) as second:
        back = WayBack(other, gateway.bootstrap, topic)
        assert back.to_the_end().rows == 10
        assert consumed(second.bootstrap, topic, 1) == consumed(gateway.bootstrap, topic, 1)
