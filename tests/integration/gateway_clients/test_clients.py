"""The same scenarios over every stock client: nothing is changed but the bootstrap address."""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.embedded import Endpoints
from tests.gateway.clients import CODECS, Client, Message
from tests.gateway.clients.aio import AioKafka
from tests.gateway.clients.confluent import Confluent
from tests.gateway.clients.kcat import Kcat
from tests.gateway.clients.node import KafkaJs
from tests.gateway.clients.python import KafkaPython
from tests.gateway.servers import GatewayThread, new_database, running

pytestmark = pytest.mark.timeout(120)

PARTITIONS = 3
LATELY = int(time.time() * 1000) - 3_600_000  # what is much older goes at once: that is retention
NAMES = ("confluent-kafka", "aiokafka", "kafka-python", "kcat", "kafkajs")
Make = Callable[..., str]


@pytest.fixture(scope="module")
def gateway(endpoints: Endpoints) -> Iterator[GatewayThread]:
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url, running(url) as started:
        yield started


@pytest.fixture(scope="module")
def node_directory(tmp_path_factory: pytest.TempPathFactory) -> Path | str:
    directory = tmp_path_factory.mktemp("kafkajs")
    return KafkaJs.install(directory) or directory


@pytest.fixture(params=NAMES)
def client(request: pytest.FixtureRequest, gateway: GatewayThread) -> Client:
    return make_client(request.param, request, gateway.bootstrap)


def make_client(name: str, request: pytest.FixtureRequest, servers: str) -> Client:
    match name:
        case "kcat":
            if not shutil.which("kcat"):
                pytest.skip("kcat is not installed: apt-get install kcat")
            return Kcat(servers)
        case "kafkajs":
            directory = request.getfixturevalue("node_directory")
            if isinstance(directory, str):
                pytest.skip(directory)
            return KafkaJs(servers, directory)
        case _:
            kinds = {kind.name: kind for kind in (Confluent, AioKafka, KafkaPython)}
            return kinds[name](servers)


@pytest.fixture
def make_topic(gateway: GatewayThread) -> Make:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})

    def make(partitions: int = PARTITIONS, **config: str) -> str:
        name = f"topic-{uuid.uuid4().hex[:10]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, config=settings)])[name].result(10)
        return name

    return make


def samples(client: Client, count: int = 30) -> list[Message]:
    """Values of several lengths in all partitions, some with headers, a deletion among them."""
    pairs: tuple[tuple[str, bytes | None], ...] = (("a", b"1"), ("b", b""), ("a", b"2"))
    if client.null_headers:
        pairs += (("c", None),)
    found = [
        Message(f"v{n}-".encode() * (n + 1), f"k{n}".encode(), pairs if n % 3 == 0 else (), n % PARTITIONS, LATELY + n)
        for n in range(count)
    ]
    found[4] = Message(None, b"gone", (), 1, LATELY + 4)
    return found


def content(messages: list[Message]) -> list[tuple[object, ...]]:
    """What must arrive as it was sent. Headers of one key keep their order; kafkajs has no order between keys."""
    return sorted((each.partition, each.key, each.value, tuple(sorted(each.headers, key=key))) for each in messages)


def key(header: tuple[str, bytes | None]) -> str:
    return header[0]


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_sent_arrives(client: Client, make_topic: Make, codec: str, gateway: GatewayThread) -> None:
    if codec not in client.codecs:
        pytest.skip(f"{client.name} has no {codec} of its own")
    topic, sent = make_topic(), samples(client)
    client.produce(topic, sent, codec=codec)
    got = client.consume(topic, PARTITIONS, len(sent))
    assert content(got) == content(sent)
    for partition in range(PARTITIONS):
        assert [each.offset for each in got if each.partition == partition] == list(range(10))
    # And librdkafka reads what others wrote: bytes are kept as they came.
    assert content(Confluent(gateway.bootstrap).consume(topic, PARTITIONS, len(sent))) == content(sent)


def test_what_others_send_is_read(client: Client, make_topic: Make, gateway: GatewayThread) -> None:
    for codec in client.codecs:
        topic, sent = make_topic(), samples(client)
        Confluent(gateway.bootstrap).produce(topic, sent, codec=codec)
        assert content(client.consume(topic, PARTITIONS, len(sent))) == content(sent)


def test_idempotent_producers(client: Client, make_topic: Make) -> None:
    topic, sent = make_topic(), samples(client)
    client.produce(topic, sent, idempotent=True)
    client.produce(topic, sent, idempotent=True)
    assert content(client.consume(topic, PARTITIONS, 2 * len(sent))) == content([*sent, *sent])


def test_a_group_goes_on_where_it_stopped(client: Client, make_topic: Make, gateway: GatewayThread) -> None:
    topic, group = make_topic(1), f"group-{uuid.uuid4().hex[:8]}"
    Confluent(gateway.bootstrap).produce(topic, [Message(f"{n}".encode()) for n in range(10)])
    first = client.consume_group(topic, group, 4)
    second = client.consume_group(topic, group, 6)
    assert [each.value for each in (*first, *second)] == [f"{n}".encode() for n in range(10)]


def test_two_members_share_a_topic(client: Client, make_topic: Make, gateway: GatewayThread) -> None:
    """Together they read everything; each alone ends when there is enough for it, and leaves the rest to the other."""
    topic, group = make_topic(4), f"group-{uuid.uuid4().hex[:8]}"
    sent = [Message(f"{n}".encode(), partition=n % 4) for n in range(40)]
    Confluent(gateway.bootstrap).produce(topic, sent)
    found: list[Message] = []
    failures: list[BaseException] = []

    def member() -> None:
        try:
            found.extend(client.consume_group(topic, group, 10))
        except BaseException as error:
            failures.append(error)

    members = [threading.Thread(target=member) for _ in range(2)]
    for each in members:
        each.start()
    for each in members:
        each.join()
    assert not failures
    found += client.consume_group(topic, group, 40 - len({each.value for each in found}))
    assert {each.value for each in found} == {each.value for each in sent}


def test_offsets_by_time(client: Client, make_topic: Make, gateway: GatewayThread) -> None:
    topic = make_topic(1)
    sent = [Message(f"{n}".encode(), timestamp=LATELY + 10 * n) for n in range(50)]
    Confluent(gateway.bootstrap).produce(topic, sent[:25])
    Confluent(gateway.bootstrap).produce(topic, sent[25:], codec="gzip")
    found = [client.offset_at(topic, 0, LATELY + after) for after in (-1000, 0, 95, 401, 490)]
    assert found == [0, 0, 10, 41, 49]
    assert client.offset_at(topic, 0, LATELY + 491) is None


def test_large_messages(client: Client, make_topic: Make, gateway: GatewayThread) -> None:
    topic = make_topic(1, max_message_bytes="6000000")
    client.produce(topic, [Message(b"x" * 5_000_000), Message(b"y")])
    got = client.consume(topic, 1, 2)
    assert [len(each.value or b"") for each in got] == [5_000_000, 1]
    with pytest.raises(Exception, match=r"(?i)too.?large|too big|larger than|MESSAGE_SIZE|size"):
        client.produce(topic, [Message(b"x" * 7_000_000)])


def test_a_topic_is_made_when_it_is_written_to(client: Client) -> None:
    topic = f"new-{uuid.uuid4().hex[:8]}"
    client.produce(topic, [Message(b"first")])
    assert topic in client.topics()
    assert [each.value for each in client.consume(topic, 1, 1)] == [b"first"]


def test_sql_sees_the_same_messages(client: Client, make_topic: Make, gateway: GatewayThread) -> None:
    topic, sent = make_topic(), samples(client)
    for codec in client.codecs:
        client.produce(topic, sent, codec=codec)
    read = client.consume(topic, PARTITIONS, len(client.codecs) * len(sent))
    query = 'SELECT partition, "offset", key, value FROM kafka.messages WHERE topic = %s ORDER BY 1, 2'
    with psycopg.connect(gateway.gateway.options.postgres_url) as connection:
        rows = connection.execute(query, (topic,)).fetchall()
    assert rows == [(each.partition, each.offset, each.key, each.value) for each in read]
