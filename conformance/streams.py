"""Kafka Streams against the gateway: words are counted, at least or exactly once, and the program is killed meanwhile.

Streams makes topics of its own, for repartitioning and for changelogs that are compacted, deletes what it has read of
them, and restores its tables from them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from conformance.gateways import gateway
from conformance.maven import jars

_VERSION = "4.1.0"
_TIMEOUT_S = 120.0
_WORDS = ("water", "gate", "canal")
_ROUNDS = 500

# Run from its source: `java` compiles it.
_PROGRAM = """
import java.time.Duration;
import java.util.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

public class Words {
  public static void main(String[] args) {
    Properties settings = new Properties();
    settings.put("application.id", "words-" + args[2]);
    settings.put("processing.guarantee", args[2]);
    settings.put("bootstrap.servers", args[0]);
    settings.put("state.dir", args[1]);
    settings.put("commit.interval.ms", "200");
    settings.put("statestore.cache.max.bytes", "0");
    settings.put("session.timeout.ms", "10000");
    settings.put("auto.offset.reset", "earliest");
    settings.put("default.key.serde", Serdes.String().getClass().getName());
    settings.put("default.value.serde", Serdes.String().getClass().getName());
    StreamsBuilder builder = new StreamsBuilder();
    builder.<String, String>stream("lines-" + args[2])
      .flatMapValues(line -> Arrays.asList(line.split(" ")))
      .groupBy((key, word) -> word)
      .count(Materialized.as("counts"))
      .toStream().mapValues(count -> count.toString()).to("counted-" + args[2]);
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
    streams.start();
  }
}
"""


def run(work: Path) -> int:
    """Returns the exit code."""
    classes = jars(work / "streams", f"org.apache.kafka:kafka-streams:{_VERSION}", "org.slf4j:slf4j-simple:1.7.36")
    failed = 0
    with TemporaryDirectory() as scratch, gateway(Path(scratch) / "gateway", default_partitions=2) as servers:
        for guarantee in ("at_least_once", "exactly_once_v2"):
            for name, passed in _checks(classes, Path(scratch), servers, guarantee):
                sys.stdout.write(f"{f'Streams, {guarantee}: {name}':80} {'passed' if passed else 'FAILED'}\n")
                sys.stdout.flush()
                failed += not passed
    return 1 if failed else 0


def _checks(classes: Path, scratch: Path, servers: str, guarantee: str) -> Iterator[tuple[str, bool]]:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for made in admin.create_topics(
        [NewTopic(name, 2) for name in (f"lines-{guarantee}", f"counted-{guarantee}")]
    ).values():
        made.result(30)
    counts = _Counts(servers, guarantee)
    _write(servers, guarantee)
    with _program(classes, scratch, servers, guarantee, "first"):
        yield "words are counted", counts.reach(_ROUNDS)
    _write(servers, guarantee)
    # Its tables are gone: they come back from their changelogs.
    with _program(classes, scratch, servers, guarantee, "second"):
        yield "counts go on after it was killed and lost its disk", counts.reach(2 * _ROUNDS)
        if guarantee == "exactly_once_v2":
            yield "no word is counted twice", counts.is_at(2 * _ROUNDS)
    topics = admin.list_topics(timeout=30).topics
    own = {f"words-{guarantee}-counts-changelog", f"words-{guarantee}-counts-repartition"}
    yield "its own topics are there", own <= set(topics)


@contextmanager
def _program(classes: Path, scratch: Path, servers: str, guarantee: str, name: str) -> Iterator[None]:
    """Killed in the end, as by a crash."""
    source = scratch / "Words.java"
    source.write_text(_PROGRAM)
    command = ["java", "-cp", f"{classes}/*", str(source), servers, str(scratch / f"{guarantee}-{name}"), guarantee]
    with (scratch / f"{guarantee}-{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def _write(servers: str, guarantee: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for number in range(_ROUNDS):
        producer.produce(f"lines-{guarantee}", " ".join(_WORDS).encode(), key=b"%d" % number)
    producer.flush(30)


class _Counts:
    """The last count of each word, from the topic that has them."""

    def __init__(self, servers: str, guarantee: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"judge-{guarantee}",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        self._consumer.subscribe([f"counted-{guarantee}"])
        self._last: dict[str, int] = {}

    def reach(self, count: int) -> bool:
        """At least once: a count may be above what was written, if a word came again after the crash."""
        return _until(lambda: self._read() and all(self._last.get(word, 0) >= count for word in _WORDS))

    def is_at(self, count: int) -> bool:
        """Whether every count is this one, and stays it."""
        self._read()
        return all(self._last.get(word) == count for word in _WORDS)

    def _read(self) -> bool:
        for message in self._consumer.consume(1000, 0.5):
            if message.error() is None:
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                self._last[key.decode()] = int(value)
        return True


def _until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        if condition():
            return True
    return False
