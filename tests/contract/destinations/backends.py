"""Every kind of destination with a real backend, and how to find what arrived there."""

from __future__ import annotations

import abc
import io
import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import psycopg
import pyarrow as pa

from headgate.destinations.base import OWN_LANE, Destination, Lane, LocalDestination, SendResult, TopicDefaults
from headgate.destinations.broker import BrokerDestination
from headgate.destinations.console import ConsoleDestination
from headgate.destinations.discard import DiscardDestination
from headgate.destinations.eventlog import EventLogDestination
from headgate.destinations.iggy import IggyDestination, IggyOptions
from headgate.destinations.iggy.client import shared_client
from headgate.destinations.iggy.options import sdk
from headgate.destinations.kafka import KafkaDestination, KafkaOptions
from headgate.destinations.log import LogDestination
from headgate.destinations.memory import MemoryDestination
from headgate.destinations.nats import JetStream, NatsDestination, NatsOptions
from headgate.destinations.table import TableDestination, open_table
from headgate.destinations.webhook import WebhookDestination, WebhookOptions
from headgate.eventlog import LogReader
from headgate.eventlog.topics import decode_event
from headgate.model import DataError
from tests.contract.destinations.arrivals import Arrival
from tests.contract.destinations.cluster import MockCluster, read_topic
from tests.contract.destinations.promises import PROMISES
from tests.contract.destinations.receiver import Receiver
from tests.streams import read_stream

SECRET = "s3cr3t-0f-th3-t3st"


class Backend(abc.ABC):
    """A server, or what stands for one, and a destination that writes to it."""

    destination: Destination

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.promises = PROMISES[kind]
        self.unique = f"c{uuid.uuid4().hex[:8]}"

    def stream(self, name: str) -> str:
        return f"{self.unique}{name}"

    def topic(self, name: str) -> str:
        """A topic that rows without a stream may have."""
        return f"{self.unique}.{name}"

    def prepare(self, stream: str | None, topics: set[str]) -> None:  # noqa: B027 - most have nothing to do
        """Before rows come, what only an administrator could do."""

    @abc.abstractmethod
    def arrived(self, stream: str | None, topic: str) -> list[Arrival]:
        """What a reader finds, in the order in which it is there."""

    def with_secret(self) -> Destination:
        """A destination that knows a secret."""
        return self.destination

    def deliver(self, *batches: pa.RecordBatch, lane: Lane = OWN_LANE, to: Destination | None = None) -> SendResult:
        """As a pipeline does."""
        destination = to or self.destination
        topics = {topic for batch in batches for topic in batch.column("_topic").to_pylist()}
        self.prepare(lane.stream, topics)
        if isinstance(destination, LocalDestination):
            destination.accept(pa.Table.from_batches(batches))
            return SendResult(destination.name, sum(batch.num_rows for batch in batches), 0)
        with destination.open(lane) as sender:
            for batch in batches:
                sender.send(batch)
            result = sender.finish()
        destination.complete(lane.batch_id, result.reports)
        return result


class _Memory(Backend):
    def __init__(self) -> None:
        super().__init__("memory")
        self.destination = self.memory = MemoryDestination("d")

    def arrived(self, stream: str | None, topic: str) -> list[Arrival]:
        return [Arrival(each.message_id, each.payload) for each in self.memory.messages if each.topic == topic]


class _Console(Backend):
    def __init__(self) -> None:
        super().__init__("console")
        self.output = io.StringIO()
        self.destination = ConsoleDestination("d", max_rows_per_batch=100_000, output=self.output)

    def arrived(self, stream: str | None, topic: str) -> list[Arrival]:
        lines = [line.rpartition("\t") for line in self.output.getvalue().split("\n")]
        return [Arrival("", payload.encode()) for written, _, payload in lines if written == topic]


class _Discard(Backend):
    def __init__(self) -> None:
        super().__init__("discard")
        self.destination = DiscardDestination("d")

    def arrived(self, stream: str | None, topic: str) -> list[Arrival]:
        return []


class _Table(Backend):
    def __init__(self, path: Path) -> None:
        super().__init__("table")
        self.path = str(path / "table")
        self.destination = TableDestination("d", self.path)
        self.destination.ensure()

    def deliver(self, *batches: pa.RecordBatch, lane: Lane = OWN_LANE, to: Destination | None = None) -> SendResult:
        """A batch has its number; the same rows come under the same one."""
        numbers = [batch.column("_message_id")[0].as_py() for batch in batches if batch.num_rows]
        number = int(min(numbers).split("-")[1], 16) if numbers else 0
        return super().deliver(*batches, lane=replace(lane, batch_id=number), to=to)

    def arrived(self, stream: str | None, topic: str) -> list[Arrival]:
        rows = open_table(self.path).to_table().to_pylist()
        rows = [row for row in rows if (row["stream"], row["topic"]) == (stream, topic)]
        return [Arrival(row["message_id"], row["payload"]) for row in rows]

    def with_secret(self) -> Destination:
        return TableDestination("d", f"s3://key:{SECRET}@bucket/table")


class NatsBackend(Backend):
    def __init__(self, kind: str, url: str) -> None:
        super().__init__(kind)
        self._url = url
        self._options = NatsOptions(
            url=url,
            stream=self.unique,
            subjects=(f"{self.unique}.>",),
            duplicate_window_s=60,
            ack_timeout_s=3,
            connect_timeout_s=2,
        )
        self.destination = NatsDestination("d", self._options, exclusive=kind == "nats exclusive")
        self.destination.ensure()

    def prepare(self, stream: str | None, topics: set[str]) -> None:
        if stream is not None:
            options = replace(self._options, stream=stream, subjects=(f"{stream}.>",))
            with JetStream.open(options) as jetstream:
                jetstream.ensure_stream(options)

    def arrived(self, stream: str | None, topic: str) -> list[Arrival]:
        subject = f"{stream}.{topic}" if stream else topic
        found: list[Arrival] = []
        for message in read_stream(self._url, stream or self.unique, 0):
            rest = message.subject.removeprefix(subject)
            if message.subject.startswith(subject) and (not rest or rest[1:].isdecimal()):
                message_id = (message.headers or {})["Nats-Msg-Id"]
                found.append(Arrival(message_id, message.data, int(rest[1:]) if rest else None))
        return found

    def with_secret(self) -> Destination:
        options = replace(self._options, url=f"nats://me:{SECRET}@127.0.0.1:1", user="me", password=SECRET)
        return NatsDestination("d", options)


class KafkaBackend(Backend):
    def __init__(self, kind: str, cluster: MockCluster) -> None:
        super().__init__(kind)
        self._cluster = cluster
        self._options = KafkaOptions(servers=cluster.servers, delivery_timeout_s=3, connect_timeout_s=2)
        self.destination = KafkaDestination("d", self._options, exclusive=kind == "kafka exclusive")

    def prepare(self, stream: str | None, topics: set[str]) -> None:
        for topic in topics:
            with suppress(DataError):  # a name that Kafka does not have
                self._cluster.create(self._options.topic_name(stream, topic))

    def arrived(self, stream: str | None, topic: str) -> list[Arrival]:
        return read_topic(self._cluster.servers, self._options.topic_name(stream, topic))

    def with_secret(self) -> Destination:
        options = replace(self._options, user="me", password=SECRET, settings=(("ssl.key.password", SECRET),))
        return KafkaDestination("d", options)


class WebhookBackend(Backend):
    def __init__(self, receiver: Receiver) -> None:
        super().__init__("webhook")
        self._receiver = receiver
        options = WebhookOptions(url=f"{receiver.url}/{{topic}}", timeout_s=2, retry_for_s=0)
        self.destination = WebhookDestination("d", options)
        self._streamed = WebhookDestination("d", replace(options, url=f"{receiver.url}/{{stream}}.{{topic}}"))

    def deliver(self, *batches: pa.RecordBatch, lane: Lane = OWN_LANE, to: Destination | None = None) -> SendResult:
        return super().deliver(*batches, lane=lane, to=to or (self._streamed if lane.stream else self.destination))

    def arrived(self, stream: str | None, topic: str) -> list[Arrival]:
        return self._receiver.arrived.get(f"{stream}.{topic}" if stream else topic, [])

    def with_secret(self) -> Destination:
        return WebhookDestination("d", WebhookOptions(url=f"http://host/{SECRET}", headers={"x-key": SECRET}))


class _Iggy(Backend):
    """`HEADGATE_TEST_IGGY=host:port`; the user and the password are the server's defaults."""

    def __init__(self, server: str) -> None:
        super().__init__("iggy")
        user = os.environ.get("HEADGATE_TEST_IGGY_USER", "iggy")
        password = os.environ.get("HEADGATE_TEST_IGGY_PASSWORD", "iggy")
        self._options = IggyOptions(server=server, stream=self.unique, user=user, password=password)
        self.destination = IggyDestination("d", self._options)

    def prepare(self, stream: str | None, topics: set[str]) -> None:
        for topic in topics:
            if 0 < len(topic.encode()) < 256:
                self.destination.ensure_topic(stream, topic, TopicDefaults(partitions=4))

    def arrived(self, stream: str | None, topic: str) -> list[Arrival]:
        client, sdk_ = shared_client(self._options), sdk()
        stream = stream or self.unique
        found: list[Arrival] = []
        for number in range(client.partitions(stream, topic) or 0):
            poll = partial(
                client._client.poll_messages,
                stream,
                topic,
                consumer=sdk_.Consumer.Single("test"),
                polling_strategy=sdk_.PollingStrategy.First(),
                count=100_000,
                auto_commit=False,
                partition_id=number,
            )
            for message in client._call(poll):
                headers = message.user_headers().to_scalar_dict()
                found.append(Arrival(headers["headgate-id"], message.payload(), number))
        return found

    def with_secret(self) -> Destination:
        return IggyDestination("d", replace(self._options, password=SECRET))


class LogBackend(Backend):
    def __init__(self, kind: str, url: str) -> None:
        super().__init__(kind)
        self._url = url
        self.destination = LogDestination("d", url, partitions=4, exclusive=kind == "log exclusive")
        self.destination.ensure()

    def arrived(self, stream: str | None, topic: str) -> list[Arrival]:
        name = f"{stream}.{topic}" if stream else topic
        query = 'select headers, value, partition from kafka.messages where topic = %s order by partition, "offset"'
        with psycopg.connect(self._url) as connection:
            found = connection.execute(query, [name]).fetchall()
        return [Arrival(dict(headers)["headgate-id"], value, partition) for headers, value, partition in found]

    def with_secret(self) -> Destination:
        return LogDestination("d", f"postgres://user:{SECRET}@host/database")


class BrokerBackend(Backend):
    def __init__(self, kind: str, url: str) -> None:
        super().__init__(kind)
        self._url = url
        self.destination = BrokerDestination("d", url, payload="text", exclusive=kind == "broker exclusive")
        self.destination.ensure()

    def arrived(self, stream: str | None, topic: str) -> list[Arrival]:
        name = f"{stream}.{topic}" if stream else topic
        query = "select metadata ->> 'message_id', payload #>> '{}' from headgate.events where topic = %s order by id"
        with psycopg.connect(self._url) as connection:
            found = connection.execute(query, [name]).fetchall()
        return [Arrival(message_id, payload.encode()) for message_id, payload in found]

    def with_secret(self) -> Destination:
        return BrokerDestination("d", f"postgres://user:{SECRET}@host/database")


class EventLogBackend(Backend):
    def __init__(self, kind: str, path: Path) -> None:
        super().__init__(kind)
        self._path = path / "events"
        self.destination = EventLogDestination("d", str(self._path), exclusive=kind == "eventlog exclusive")
        self.destination.ensure()

    def arrived(self, stream: str | None, topic: str) -> list[Arrival]:
        name = f"{stream}.{topic}" if stream else topic
        with LogReader(self._path) as reader:
            events = [decode_event(record.payload) for records in reader.read(0) for record in records]
        return [Arrival(event.message_id, event.payload) for event in events if event.topic == name]


@contextmanager
def open_backend(
    kind: str, path: Path, cluster: MockCluster | None, nats_url: str | None, postgres_url: str | None
) -> Iterator[Backend]:
    with ExitStack() as opened:
        match kind:
            case "memory":
                yield _Memory()
            case "console":
                yield _Console()
            case "discard":
                yield _Discard()
            case "table":
                yield _Table(path)
            case "nats" | "nats exclusive":
                assert nats_url is not None
                yield NatsBackend(kind, nats_url)
            case "kafka" | "kafka exclusive":
                assert cluster is not None
                yield KafkaBackend(kind, cluster)
            case "log" | "log exclusive":
                assert postgres_url is not None
                yield LogBackend(kind, postgres_url)
            case "broker" | "broker exclusive":
                assert postgres_url is not None
                yield BrokerBackend(kind, postgres_url)
            case "eventlog" | "eventlog exclusive":
                yield EventLogBackend(kind, path)
            case "webhook":
                yield WebhookBackend(opened.enter_context(Receiver()))
            case _:
                yield _Iggy(os.environ["HEADGATE_TEST_IGGY"])
