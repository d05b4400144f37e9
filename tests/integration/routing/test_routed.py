"""Rows that say where they go, through Spark to real destinations. Names begin with the check they make."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from typing import Any

import pytest
from pydantic import ValidationError

from headgate.destinations.memory import MemoryDestination
from headgate.destinations.nats import JetStream, NatsDestination
from headgate.destinations.webhook import WebhookDestination, WebhookOptions
from headgate.model import ConfigError, DeliveryError, Kind, Status
from headgate.model.address import Address
from headgate.pipeline.routing.replay import replay
from headgate.pipeline.spec import PipelineSpec
from headgate.sources.base import CDC, DESTRUCTIVE_POLLING, OPAQUE, POLLING, Mode, Offset
from headgate.sources.random.source import RandomSource
from tests.streams import read_stream

from .conftest import MakeSpec, Receive, Run, Serve, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def test_a_topic_column_makes_a_topic_of_each_kind(make_spec: MakeSpec, run: Run, memory: MemoryDestination) -> None:
    supervisor = run(make_spec(memory, routing={"topic_column": "kind", "default_topic": "other"}))
    assert supervisor.join(90)
    assert supervisor.report.error is None
    assert len(memory.messages) == 250
    for message in memory.messages:
        assert json.loads(message.payload)["kind"] == message.topic
    assert len({message.topic for message in memory.messages}) >= 3
    assert [m.message_id for m in memory.messages] == sorted(m.message_id for m in memory.messages)
    assert supervisor.report.routing["routed_total"] == 250
    assert supervisor.report.status is Status.STOPPED


def test_streams_and_topics_in_nats(make_spec: MakeSpec, run: Run, nats: NatsDestination) -> None:
    prefix = nats.options.stream
    spec = make_spec(
        nats,
        transforms=[{"type": "select", "columns": ["*", f"concat('{prefix}-', kind) as tenant", "kind as what"]}],
        routing={
            "stream_column": "tenant",
            "default_stream": f"{prefix}-rest",
            "topic_column": "what",
            "default_topic": "rest",
            "strip_routing_columns": True,
        },
    )
    supervisor = run(spec)
    assert supervisor.join(90)
    assert supervisor.report.error is None
    counted: Counter[str] = Counter()
    with JetStream.open(nats.options) as jetstream:
        for entry in supervisor.routing.table.describe() if supervisor.routing else ():
            info = jetstream.stream_info(entry["stream"])
            assert info is not None
            assert info.config["subjects"] == [f"{entry['stream']}.>"]
            message = jetstream.last_message(entry["stream"])
            assert message is not None
            assert message.subject == f"{entry['stream']}.{entry['topic']}"
            row = json.loads(message.payload)
            assert row["kind"] == entry["topic"]
            assert "tenant" not in row
            assert ("Headgate-Epoch", "1") in message.headers.fields
            counted[entry["topic"]] = info.messages
            assert entry["rows_total"] == info.messages
            jetstream.delete_stream(entry["stream"])
    assert counted.total() == 250
    assert len(counted) >= 3


def test_a_pipeline_without_routing_is_as_it_was(make_spec: MakeSpec, run: Run, memory: MemoryDestination) -> None:
    spec = dataclasses.replace(make_spec(memory, routing=BY_KIND), routing=None, topic="t.{kind}")
    supervisor = run(spec)
    assert supervisor.join(90)
    assert supervisor.routing is None
    assert {message.topic.split(".")[0] for message in memory.messages} == {"t"}
    assert supervisor.report.routing == {}


BY_KIND = {"topic_column": "kind", "default_topic": "other"}
KINDS = "case id % 4 when 0 then 'a' when 1 then 'b' when 2 then 'c' end"  # and NULL


def by_letter(**routing: Any) -> dict[str, Any]:
    """Rows 0, 4, 8 ... to `a`, and so on; every fourth row says nothing."""
    return {
        "transforms": [{"type": "select", "columns": ["id", f"{KINDS} as letter"]}],
        "routing": {"topic_column": "letter", "default_topic": "rest", **routing},
    }


def topics(memory: MemoryDestination) -> Counter[str]:
    return Counter(message.topic for message in memory.messages)


def test_null_goes_to_the_default(make_spec: MakeSpec, run: Run, memory: MemoryDestination) -> None:
    supervisor = run(make_spec(memory, rows=40, **by_letter()))
    assert supervisor.join(90)
    assert topics(memory) == {"a": 10, "b": 10, "c": 10, "rest": 10}
    assert supervisor.report.routing["unmatched_total"] == {"default": 10}


@pytest.mark.parametrize(("action", "arrive", "dead"), [("drop", 30, 0), ("dlq", 30, 10)])
def test_rows_without_a_destination_are_treated_as_configured(
    make_spec: MakeSpec, run: Run, memory: MemoryDestination, action: str, arrive: int, dead: int
) -> None:
    supervisor = run(make_spec(memory, rows=40, **by_letter(admission={"on_missing_destination": action})))
    assert supervisor.join(90)
    assert topics(memory).total() == arrive
    assert supervisor.report.routing["unmatched_total"] == {action: 10}
    assert supervisor.routing is not None
    letters = supervisor.routing.dead_letters.list()
    assert len(letters) == dead
    if letters:
        assert letters[0].reason == "missing_destination"
        assert json.loads(letters[0].payload or b"") == {"id": 3, "letter": None}
        assert letters[0].position == "0000000000000003-00000000"


@pytest.mark.parametrize(
    ("mode", "action"), [(CDC, "error"), (DESTRUCTIVE_POLLING, "error"), (POLLING, "drop"), (OPAQUE, "drop")]
)
def test_the_default_action_depends_on_the_source(make_spec: MakeSpec, mode: Mode, action: str) -> None:
    spec = make_spec(MemoryDestination("m"), mode=mode, routing=BY_KIND)
    assert spec.routing is not None
    assert spec.routing.on_refusal == action


@pytest.mark.parametrize(
    ("admission", "reason", "kept"),
    [
        ({"max_destinations": 2}, "cap", {"a", "b"}),
        ({"mode": "denylist", "denylist": [{"topic": "c"}, {"topic": "rest"}]}, "denylist", {"a", "b"}),
        ({"mode": "allowlist", "allowlist": [{"topic": "a"}, {"topic": "b"}]}, "unknown", {"a", "b"}),
    ],
)
def test_refused_rows_become_dead_letters_and_can_be_replayed(
    make_spec: MakeSpec, run: Run, memory: MemoryDestination, admission: dict[str, Any], reason: str, kept: set[str]
) -> None:
    spec = make_spec(memory, rows=40, **by_letter(admission={**admission, "on_admission_failure": "dlq"}))
    supervisor = run(spec)
    assert supervisor.join(90)
    assert set(topics(memory)) == kept
    assert supervisor.routing is not None
    assert supervisor.report.routing["refused_total"] == {reason: 20}
    store = supervisor.routing.dead_letters
    assert store.counts() == {reason: 20}
    letter = store.list(topic="c")[0]
    assert (letter.wanted, letter.reason, letter.epoch) == (Address("", "c"), reason, 1)
    open_settings = make_spec(memory, routing=BY_KIND).routing
    assert open_settings is not None
    result = replay(store.list(), store, (memory,), open_settings)
    assert (result.delivered, result.kept, store.counts()) == (20, {}, {})
    assert set(topics(memory)) == {"a", "b", "c", "rest"}


def test_topics_that_are_no_names_become_dead_letters_and_others_go_on(
    make_spec: MakeSpec, run: Run, nats: NatsDestination, memory: MemoryDestination
) -> None:
    """One of the topics has a blank, which no subject can."""
    stream = nats.options.stream
    odd = f"case when id % 10 = 3 then 'no subject' else '{stream}.good' end as place"
    section = {
        "transforms": [{"type": "select", "columns": ["id", odd]}],
        "routing": {"topic_column": "place", "default_topic": "rest", "admission": {"on_admission_failure": "dlq"}},
    }
    supervisor = run(make_spec(nats, memory, rows=40, **section))
    assert supervisor.join(120)
    assert supervisor.report.error is None
    assert len(memory.messages) == 36
    assert supervisor.routing is not None
    letters = supervisor.routing.dead_letters.list()
    assert [json.loads(letter.payload or b"")["id"] for letter in letters] == [3, 13, 23, 33]
    assert {letter.reason for letter in letters} == {"invalid_name"}
    with JetStream.open(nats.options) as jetstream:
        info = jetstream.stream_info(stream)
    assert info is not None
    assert info.last_sequence == 36


def test_as_errors_nothing_is_sent_and_a_reload_mends_it(
    make_spec: MakeSpec, run: Run, memory: MemoryDestination
) -> None:
    narrow = by_letter(admission={"max_destinations": 2, "on_admission_failure": "error"})
    supervisor = run(make_spec(memory, rows=40, failure_threshold=3, **narrow))
    assert supervisor.reporter.wait_for(Status.DEGRADED, timeout_s=60)
    assert memory.messages == []
    error = supervisor.report.error
    assert error is not None
    assert "cap" in error["message"]
    assert "max_destinations" in error["remedy"]
    assert supervisor.routing is not None
    wide = make_spec(memory, **by_letter(admission={"on_admission_failure": "error"})).routing
    assert wide is not None
    assert supervisor.routing.reload(wide) == 1  # the routes are the same
    supervisor.failing_batch.wake()
    assert supervisor.join(90)
    assert topics(memory).total() == 40
    assert supervisor.report.routing["epoch"] == 1


def test_a_reload_forgets_nothing_that_was_acknowledged(make_spec: MakeSpec, run: Run, receive: Receive) -> None:
    """Of a batch of which one topic fails, the rows of the others are sent once, whatever the routes become."""
    url, received, refused = receive()
    refused.add("c")
    hook = WebhookDestination("hook", WebhookOptions(url=url, retry_for_s=0))
    spec = make_spec(hook, rows=80, **by_letter(circuit_breaker={"failure_threshold": 1000}))
    supervisor = run(spec)
    wait_until(lambda: supervisor.report.failures_in_row >= 2)
    assert supervisor.routing is not None
    other = make_spec(hook, **by_letter(default_topic="others", circuit_breaker={"failure_threshold": 1000})).routing
    assert other is not None
    assert supervisor.routing.reload(other) == 2
    failures = supervisor.report.failures_in_row
    wait_until(lambda: supervisor.report.failures_in_row > failures + 1)
    refused.clear()
    supervisor.failing_batch.wake()
    assert supervisor.join(90)
    assert Counter(topic for topic, _ in received) == Counter(dict.fromkeys(("a", "b", "c", "rest"), 20))
    assert sorted(row["id"] for _, row in received) == list(range(80))
    again = run(dataclasses.replace(spec, routing=make_spec(hook, **by_letter()).routing))
    assert again.join(90)
    assert again.report.routing["epoch"] == 3, "it rises across restarts, too"


def test_trouble_is_told_by_its_first_cause_until_a_success(
    make_spec: MakeSpec, run: Run, nats: NatsDestination
) -> None:
    """Through restarts of the query, which prove nothing."""

    def spec(action: str) -> PipelineSpec:
        breaker = {"failure_threshold": 2, "cool_down": "10m"}
        routing = by_letter(admission={"on_admission_failure": action}, circuit_breaker=breaker)
        return make_spec(nats, rows=40, until_caught_up=False, failure_threshold=3, **routing)

    supervisor = run(spec("error"))
    wait_until(lambda: supervisor.report.failures_in_row > 0)

    def goes_on_failing() -> bool:
        report = supervisor.report
        assert report.error is not None
        assert f"the stream {nats.options.stream} keeps {nats.options.stream}.>, not a" in report.error["message"]
        assert report.rows_total == 0
        return report.restarts_total >= 1 and report.failures_in_row > 6

    wait_until(goes_on_failing, timeout_s=120)
    assert [change.status for change in supervisor.report.history] == [Status.RUNNING, Status.DEGRADED]
    mended = spec("drop").routing
    assert supervisor.routing is not None
    assert mended is not None
    supervisor.routing.reload(mended)
    supervisor.failing_batch.wake()
    wait_until(lambda: supervisor.report.batches_total > 0)
    report = supervisor.report
    assert (report.status, report.error, report.failures_in_row) == (Status.RUNNING, None, 0)


def test_one_destination_that_refuses_trips_its_breaker_alone(
    make_spec: MakeSpec, run: Run, nats: NatsDestination
) -> None:
    """The stream of `c` is full: its rows are refused by the server, those of the others are not."""
    prefix = nats.options.stream
    with JetStream.open(nats.options) as jetstream:
        jetstream.create_stream(
            {"name": f"{prefix}-c", "subjects": [f"{prefix}-c.>"], "max_msgs": 1, "discard": "new", "storage": "memory"}
        )
        spec = make_spec(
            nats,
            rows=40,
            options={"maxOffsetsPerTrigger": "20"},
            transforms=[{"type": "select", "columns": ["id", f"concat('{prefix}-', {KINDS}) as s"]}],
            routing={
                "stream_column": "s",
                "default_stream": f"{prefix}-rest",
                "default_topic": "t",
                "admission": {"on_admission_failure": "dlq"},
                "circuit_breaker": {"failure_threshold": 3, "cool_down": "60s"},
            },
        )
        supervisor = run(spec)
        assert supervisor.join(90)
        found = {entry["stream"]: entry for entry in supervisor.routing.table.describe()} if supervisor.routing else {}
        assert {stream: entry["circuit"] for stream, entry in found.items()} == {
            f"{prefix}-a": "closed",
            f"{prefix}-b": "closed",
            f"{prefix}-c": "open",
            f"{prefix}-rest": "closed",
        }
        assert found[f"{prefix}-c"]["failures_total"] == 3
        assert "maximum messages" in found[f"{prefix}-c"]["error"]["message"]
        assert supervisor.report.routing["refused_total"] == {"circuit_open": 10}
        # The one row that the full stream took came again in two attempts; nothing of the others did.
        assert supervisor.report.duplicates_total == 2
        for stream in (f"{prefix}-a", f"{prefix}-b", f"{prefix}-rest"):
            info = jetstream.stream_info(stream)
            assert info is not None
            assert info.last_sequence == 10  # and none of them twice
        assert supervisor.routing is not None
        letters = supervisor.routing.dead_letters.list()
        assert {letter.destination for letter in letters} == {"nats"}
        for stream in found:
            jetstream.delete_stream(stream)


def test_a_breaker_closes_after_its_cool_down(make_spec: MakeSpec, run: Run, nats: NatsDestination) -> None:
    prefix = nats.options.stream
    with JetStream.open(nats.options) as jetstream:
        config = {"name": f"{prefix}-c", "subjects": [f"{prefix}-c.>"], "max_msgs": 1, "discard": "new"}
        jetstream.create_stream({**config, "storage": "memory"})
        spec = make_spec(
            nats,
            rows=1_000_000,
            options={"rowsPerSecond": "40", "maxOffsetsPerTrigger": "100"},
            until_caught_up=False,
            transforms=[{"type": "select", "columns": ["id", f"concat('{prefix}-', {KINDS}) as s"]}],
            routing={
                "stream_column": "s",
                "default_stream": f"{prefix}-rest",
                "default_topic": "t",
                "admission": {"on_admission_failure": "drop"},
                "circuit_breaker": {"failure_threshold": 2, "cool_down": "1s"},
            },
        )
        supervisor = run(spec)

        def circuit() -> str | None:
            table = supervisor.routing.table.describe() if supervisor.routing else []
            return next((entry["circuit"] for entry in table if entry["stream"] == f"{prefix}-c"), None)

        wait_until(lambda: circuit() in ("open", "half-open"))
        jetstream.purge_stream(f"{prefix}-c")
        jetstream.update_stream({**config, "storage": "memory", "max_msgs": -1})
        wait_until(lambda: circuit() == "closed")
        supervisor.stop()
        assert supervisor.join(60)
        for entry in supervisor.routing.table.describe() if supervisor.routing else []:
            jetstream.delete_stream(entry["stream"])


def test_rows_choose_the_partition_of_their_topic(make_spec: MakeSpec, run: Run, nats: NatsDestination) -> None:
    """Ids 0 to 3 are there, 99 is not, and NULL goes anywhere without being counted."""
    name = nats.options.stream
    part = "case id % 6 when 4 then 99 when 5 then null else id % 6 end"
    spec = make_spec(
        nats,
        rows=60,
        transforms=[
            {"type": "select", "columns": ["id", f"'{name}.t' as topic", f"{part} as part"]},
        ],
        routing={
            "topic_column": "topic",
            "default_topic": f"{name}.t",
            "partition_key_column": "part",
            "partition_key_encoding": "partition_id",
            "topic_defaults": {"partitions_count": 4},
        },
    )  # fmt: skip
    supervisor = run(spec)
    assert supervisor.join(90)
    assert supervisor.report.error is None
    assert supervisor.report.routing["refused_total"] == {"partition_id_out_of_range": 10}
    table = supervisor.routing.table.describe() if supervisor.routing else []
    assert [(entry["circuit"], entry["failures_total"]) for entry in table] == [("closed", 0)]
    messages = read_stream(nats.options.url, name, 50)
    for message in messages:
        part = json.loads(message.data)["part"]
        assert part is None or message.subject == f"{name}.t.{part}"
    assert len(messages) == 50


def test_a_batch_is_abandoned(make_spec: MakeSpec, run: Run, memory: MemoryDestination) -> None:
    committed: list[Offset] = []

    class Noting(RandomSource):
        def mode(self) -> Mode:
            return CDC

        def commit(self, end: Offset) -> None:
            committed.append(end)

    class Refusing(MemoryDestination):
        refuses = True

        def accept(self, rows: Any) -> None:
            if self.refuses:
                raise DeliveryError("refused", remedy="none")
            super().accept(rows)

    refusing = Refusing("memory", max_rows=1000)
    texts = {"rowsPerSecond": "0", "numRows": "250", "maxOffsetsPerTrigger": "100"}
    source = Noting("orders", texts, "test-orders")
    supervisor = run(make_spec(refusing, source=source, failure_threshold=2, routing=BY_KIND))
    assert supervisor.reporter.wait_for(Status.DEGRADED, timeout_s=60)
    assert committed == []
    refusing.refuses = False
    # The first batch is given up; whether it was about to succeed does not matter.
    refusing.refuses = True
    assert supervisor.abandon() == 0
    wait_until(lambda: supervisor.report.last_abandon_at is not None)
    refusing.refuses = False
    assert supervisor.join(90)
    assert committed[0] == {"row": 100}
    assert len(refusing.messages) == 150
    assert supervisor.report.abandoned_total == 1
    assert supervisor.report.status is Status.STOPPED
    assert supervisor.abandon() is None


def test_a_stop_ends_the_waiting(make_spec: MakeSpec, run: Run) -> None:
    class Refusing(MemoryDestination):
        def accept(self, rows: Any) -> None:
            raise DeliveryError("refused", remedy="none")

    supervisor = run(make_spec(Refusing("memory"), failure_threshold=5, routing=BY_KIND))
    assert supervisor.reporter.wait_for(Status.DEGRADED, timeout_s=60)
    began = time.monotonic()
    supervisor.stop()
    assert supervisor.join(30)
    assert time.monotonic() - began < 10
    assert supervisor.report.status is Status.STOPPED
    assert not supervisor.spec.state_path.exists()


def test_a_polling_source_makes_up_for_a_commit(make_spec: MakeSpec, run: Run, memory: MemoryDestination) -> None:
    committed: list[int] = []

    class Forgetful(RandomSource):
        failures = 2

        def commit(self, end: Offset) -> None:
            if self.failures:
                self.failures -= 1
                raise DeliveryError("cannot commit", remedy="wait")
            committed.append(end["row"])

    texts = {"rowsPerSecond": "0", "numRows": "250", "maxOffsetsPerTrigger": "100"}
    spec = make_spec(memory, source=Forgetful("orders", texts, "test-orders"), until_caught_up=False, routing=BY_KIND)
    supervisor = run(spec)
    wait_until(lambda: bool(committed) and committed[-1] == 250)
    assert len(memory.messages) == 250
    assert supervisor.report.status is Status.RUNNING


def test_an_opaque_source_stops(make_spec: MakeSpec, run: Run, memory: MemoryDestination) -> None:
    class Opaque(RandomSource):
        def mode(self) -> Mode:
            return OPAQUE

        def commit(self, end: Offset) -> None:
            raise DeliveryError("cannot commit", remedy="wait")

    texts = {"rowsPerSecond": "0", "numRows": "250", "maxOffsetsPerTrigger": "100"}
    supervisor = run(make_spec(memory, source=Opaque("orders", texts, "test-orders"), routing=BY_KIND))
    assert supervisor.join(90)
    assert supervisor.report.status is Status.ERROR
    assert supervisor.report.error is not None
    assert supervisor.report.error["kind"] == Kind.STATE


def test_one_row_goes_to_several_destinations(make_spec: MakeSpec, run: Run, memory: MemoryDestination) -> None:
    routes = [
        {"type": "route", "field": "letter", "match": "all", "mapping": {"a": ["x", "y"], "b": "x"}},
        {"type": "route", "field": ["letter", "id"], "mapping": {"a/0": "z", "c/2": "z"}, "default_topic": "rest"},
    ]
    select = {"type": "select", "columns": ["id", f"{KINDS} as letter"]}
    supervisor = run(make_spec(memory, rows=8, transforms=[select, *routes]))
    assert supervisor.join(90)
    assert topics(memory) == {"x": 4, "y": 2, "z": 2, "rest": 3}
    ids = [message.message_id for message in memory.messages]
    assert len(set(ids)) == len(ids)
    assert ids.count("test-orders-0000000000000000-00000000") == 1


def test_pause_resume_and_restart(make_spec: MakeSpec, run: Run, memory: MemoryDestination) -> None:
    spec = make_spec(memory, rows=1_000_000, options={"rowsPerSecond": "200"}, until_caught_up=False, routing=BY_KIND)
    supervisor = run(spec)
    assert memory.wait_for(10, timeout_s=60)
    supervisor.pause()
    assert supervisor.reporter.wait_for(Status.PAUSED, timeout_s=30)
    seen = len(memory.messages)
    supervisor.resume()
    assert memory.wait_for(seen + 10, timeout_s=60)
    supervisor.restart()
    assert memory.wait_for(len(memory.messages) + 50, timeout_s=60)
    ids = [message.message_id for message in memory.messages]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize(
    ("section", "what"),
    [
        ({"routing": {"topic_column": "kind"}}, "default_topic"),
        ({"routing": {"stream_column": "kind", "topic_column": "x", "default_topic": "t"}}, "default_stream"),
        ({"routing": BY_KIND, "topic": "t"}, "topic and routing"),
        ({"routing": {"default_topic": "t"}}, "nothing that says where a row goes"),
        ({"routing": {**BY_KIND, "partition_key_encoding": "partition_id"}}, "partition_key_column"),
        (
            {"routing": {**BY_KIND, "partition_key_column": "k", "partition_key_encoding": "partition_id"}},
            "partitions_count above 1",
        ),
        ({"routing": {**BY_KIND, "admission": {"mode": "allowlist"}}}, "empty list"),
        ({"routing": {**BY_KIND, "admission": {"mode": "denylist", "denylist": [{}]}}}, "matches everything"),
        ({"routing": {**BY_KIND, "admission": {"mode": "allowlist", "allowlist": [{"topic": "a*"}]}}}, "pattern"),
        (
            {"routing": {**BY_KIND, "admission": {"mode": "allowlist", "max_destinations": 1, "allowlist": [
                {"stream": "s", "topic": "a"}, {"stream": "s", "topic": "b"}]}}},
            "max_destinations is 1",
        ),
        (
            {"routing": BY_KIND, "transforms": [{"type": "route", "field": "a", "mapping": {"x": "y"}}]},
            "exclude one another",
        ),
        ({"transforms": [{"type": "route", "field": "a[0].b", "mapping": {"x": "y"}}]}, "objects only"),
        ({"transforms": [{"type": "route", "field": "a"}]}, "mapping or mapping_url"),
        ({"transforms": [{"type": "route", "field": "a", "mapping": {"x": "y z"}}]}, "pattern"),
        ({"routing": {**BY_KIND, "max_in_flight_batches": 2}}, "max_in_flight_batches"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused_at_once(make_spec: MakeSpec, section: dict[str, Any], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        make_spec(MemoryDestination("m"), **section)


def test_a_route_may_have_admission(make_spec: MakeSpec) -> None:
    route = {"type": "route", "field": "a", "mapping": {"x": "y"}}
    spec = make_spec(MemoryDestination("m"), transforms=[route], routing={"admission": {"max_destinations": 3}})
    assert spec.routing is not None
    assert spec.routing.admission.max_destinations == 3


@pytest.mark.parametrize(
    ("status", "body", "what"),
    [
        (500, b"it broke", "500 Internal Server Error: it broke"),
        (404, b"", "404 Not Found"),
        (200, b"{", "not JSON"),
        (200, b"[1]", "valid dictionary"),
        (200, b'{"a": 1}', "a"),
        (302, b"", "302"),
    ],
)
def test_a_mapping_that_cannot_be_had(make_spec: MakeSpec, serve: Serve, status: int, body: bytes, what: str) -> None:
    url = serve(status, body)
    with pytest.raises(ConfigError) as caught:
        make_spec(MemoryDestination("m"), transforms=[{"type": "route", "field": "a", "mapping_url": url}])
    assert what in caught.value.message
    assert url in caught.value.message + caught.value.remedy


def test_a_mapping_is_fetched_with_its_token(make_spec: MakeSpec, serve: Serve) -> None:
    url = serve(200, b'{"order.created": "orders", "order.paid": ["orders", {"stream": "s", "topic": "t"}]}', "secret")
    route = {"type": "route", "field": "event.type", "mapping_url": url, "mapping_token": "secret"}
    spec = make_spec(MemoryDestination("m"), transforms=[route])
    assert spec.routing is not None
    assert spec.routing.rules.lookups[0].mapping["order.paid"] == (Address("", "orders"), Address("s", "t"))
    with pytest.raises(ConfigError, match="401"):
        make_spec(MemoryDestination("m"), transforms=[route | {"mapping_token": "wrong"}])
