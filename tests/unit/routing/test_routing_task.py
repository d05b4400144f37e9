"""What a task does with its rows, without Spark: destinations are in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest

from headgate.destinations.base import OWN_LANE, Lane, Sender, SendResult
from headgate.model import (
    ConfigError,
    ConnectError,
    DataError,
    DeliveryError,
    HeadgateError,
    OccupiedError,
    StateError,
    record,
)
from headgate.model.address import Address
from headgate.pipeline.acks import Moments
from headgate.pipeline.following import Sums, Tracker
from headgate.pipeline.routing import task as module
from headgate.pipeline.routing.admission import Admission, Patterns
from headgate.pipeline.routing.job import Earlier, Job, Report
from headgate.pipeline.routing.refusals import DEAD_SCHEMA
from headgate.pipeline.routing.router import ABSENT, KEY, KEY_STREAM, KEY_TOPIC
from headgate.pipeline.routing.rules import Lookup, Rules
from headgate.pipeline.routing.table import Known
from headgate.pipeline.routing.task import follow_task, run_task
from headgate.sources.base import Stretch
from tests.unit.routing.routing_fakes import FakeDestination, FakeSender, FlakyDestination

RULES = Rules(by_stream_column="s", by_topic_column="t", default_topic="rest", use_default=False)


def batch(*rows: tuple[str | None, str | None], first: int = 0, **columns: pa.Array) -> pa.RecordBatch:
    """Rows of stream and topic; their ids are m0, m1, ..."""
    given = {
        record.MESSAGE_ID: pa.array([f"m{first + number}" for number in range(len(rows))], pa.string()),
        record.PAYLOAD: pa.array([b"xyz"] * len(rows), pa.binary()),
        KEY_STREAM: pa.array([stream for stream, _ in rows], pa.string()),
        KEY_TOPIC: pa.array([topic for _, topic in rows], pa.string()),
        **columns,
    }
    return pa.RecordBatch.from_arrays(list(given.values()), names=list(given))


def known(*topics: str, partitions: int = 1, names: Sequence[str] = ("fake",), **more: Any) -> Known:
    listed: Mapping[Address, Mapping[str, int]] = {
        Address(*topic.split("/")): dict.fromkeys(names, partitions) for topic in topics
    }
    return Known(listed, **more)


def make_job(target: FakeDestination, *topics: str, **changes: Any) -> Job:
    fields: dict[str, Any] = {
        "targets": (target,),
        "rules": RULES,
        "admission": Admission(),
        "known": known(*topics),
        "on_missing": "drop",
        "on_refusal": "drop",
        "batch_id": 7,
    }
    return Job(**fields | changes)


@dataclass
class Done:
    report: Report
    rows: list[dict[str, Any]] = field(default_factory=list)
    dead: list[dict[str, Any]] = field(default_factory=list)


def run(job: Job, *batches: pa.RecordBatch, task: int = 3) -> Done:
    *parts, report = run_task(job, iter(batches), task)
    assert isinstance(report, Report)
    text = msgspec.json.encode(report)
    assert msgspec.json.decode(text, type=Report) == report, "it survives its way to the driver"
    done = Done(report)
    for part in parts:
        assert not isinstance(part, Report)
        kind, rows = part
        if kind == "dead":
            assert rows.schema == DEAD_SCHEMA
        (done.dead if kind == "dead" else done.rows).extend(rows.to_pylist())
    return done


@pytest.fixture
def target() -> FakeDestination:
    return FakeDestination()


def test_rows_go_in_one_lane_for_each_stream(target: FakeDestination) -> None:
    rows = batch(("s", "a"), ("u", "a"), ("s", "b"), (None, "c"))
    done = run(make_job(target, "s/a", "s/b", "u/a", "/c"), rows)
    assert {lane.stream for lane, _ in target.sent} == {"s", "u", None}
    assert all((lane.batch_id, lane.task, lane.epoch) == (7, 3, 1) for lane, _ in target.sent)
    lane = next(lane for lane, _ in target.sent if lane.stream == "s")
    assert lane.partitions == {"a": 1, "b": 1}
    assert sorted(target.rows) == [("", "c", "m3"), ("s", "a", "m0"), ("s", "b", "m2"), ("u", "a", "m1")]
    assert sorted(done.report.sent) == [
        (3, "fake", "", "c", 1), (3, "fake", "s", "a", 1), (3, "fake", "s", "b", 1), (3, "fake", "u", "a", 1),
    ]  # fmt: skip
    assert (done.report.rows, done.report.failed) == (4, [])


def test_an_unknown_destination_sends_nothing(target: FakeDestination) -> None:
    done = run(make_job(target, "s/a", echo=True), batch(("s", "a"), ("s", "new"), ("x", "new"), ("s", "new")))
    assert done.report.unknown == [("s", "new"), ("x", "new")]
    assert (target.sent, done.rows, done.report.sent) == ([], [], [])


def test_a_full_table_refuses_what_is_new(target: FakeDestination) -> None:
    job = make_job(target, on_refusal="dlq", known=known("s/a", is_full=True))
    done = run(job, batch(("s", "a"), ("s", "new")))
    assert done.report.refused == {"cap": 1}
    assert [(row["reason"], row[record.TOPIC], row[record.MESSAGE_ID]) for row in done.dead] == [("cap", "new", "m1")]
    assert target.rows == [("s", "a", "m0")]


@pytest.mark.parametrize(
    ("admission", "reason"),
    [
        (Admission("denylist", denied=Patterns.of([("*", "b")])), "denylist"),
        (Admission("allowlist", allowed=Patterns.of([("s", "a")])), "unknown"),
    ],
)
@pytest.mark.parametrize("action", ["drop", "dlq", "error"])
def test_lists(target: FakeDestination, admission: Admission, reason: str, action: Any) -> None:
    job = make_job(target, "s/a", "s/b", admission=admission, on_refusal=action)
    rows = batch(("s", "a"), ("s", "b"))
    if action == "error":
        with pytest.raises(DeliveryError, match=f"1 rows may not go to s/b: {reason}") as caught:
            run(job, rows)
        assert "on_admission_failure" in caught.value.remedy
        assert target.sent == []
        return
    done = run(job, rows)
    assert target.rows == [("s", "a", "m0")]
    assert done.report.refused == {reason: 1}
    assert [row["reason"] for row in done.dead] == ([reason] if action == "dlq" else [])


def test_hostile_names_are_refused_before_anybody_hears_of_them(target: FakeDestination) -> None:
    names = ["*", ">", "a b", "a\n", "..", "x" * 250, "ä", "a.", "$JS.API"]
    done = run(make_job(target, on_refusal="dlq"), batch(*(("s", name) for name in names), ("s>", "a")))
    assert (done.report.unknown, target.sent) == ([], [])
    assert done.report.refused == {"invalid_name": len(names) + 1}
    assert sorted(row[record.TOPIC] for row in done.dead) == sorted([*names, "a"])


@pytest.mark.parametrize("action", ["drop", "dlq", "error"])
def test_rows_without_a_destination(target: FakeDestination, action: Any) -> None:
    rows = batch(("s", "a"), (None, None), ("s", None))
    job = make_job(target, "s/a", on_missing=action)
    if action == "error":
        with pytest.raises(DeliveryError, match="2 rows have no destination, such as message m1"):
            run(job, rows)
        assert target.sent == []
        return
    done = run(job, rows)
    assert (done.report.missing, done.report.samples) == (2, ["None/None", "s/None"])
    assert [row["reason"] for row in done.dead] == (["missing_destination"] * 2 if action == "dlq" else [])


def test_what_was_acknowledged_is_not_sent_again(target: FakeDestination) -> None:
    done_before = frozenset({(3, ("fake", "s", "a")), (4, ("fake", "s", "b"))})
    done = run(make_job(target, "s/a", "s/b", done=done_before), batch(("s", "a"), ("s", "b"), ("s", "a")))
    assert target.rows == [("s", "b", "m1")]  # that of task 4 concerns another task
    assert done.report.sent == [(3, "fake", "s", "b", 1)]


def test_an_open_circuit_refuses_at_one_target_alone() -> None:
    one, two = FakeDestination("one"), FakeDestination("two")
    given = known("s/a", names=("one", "two"), open=frozenset({("one", Address("s", "a"))}))
    done = run(make_job(one, targets=(one, two), known=given, on_refusal="dlq"), batch(("s", "a")))
    assert (one.rows, two.rows) == ([], [("s", "a", "m0")])
    assert [(row["destination"], row["reason"]) for row in done.dead] == [("one", "circuit_open")]


def test_an_open_circuit_as_an_error_comes_before_any_send(target: FakeDestination) -> None:
    given = known("s/a", "s/b", open=frozenset({("fake", Address("s", "b"))}))
    with pytest.raises(DeliveryError, match="circuit_open"):
        run(make_job(target, known=given, on_refusal="error"), batch(("s", "a"), ("s", "b")))
    assert target.sent == []


def test_a_destination_that_could_not_be_created_is_a_failure(target: FakeDestination) -> None:
    given = Known({Address("s", "a"): {"fake": 0}, Address("s", "b"): {"fake": 1}})
    done = run(make_job(target, known=given), batch(("s", "a"), ("s", "b")))
    assert target.rows == [("s", "b", "m1")]
    ((name, stream, topic, error),) = done.report.failed
    assert (name, stream, topic, error["kind"]) == ("fake", "s", "a", "delivery")


def test_failed_topics_and_failed_lanes(target: FakeDestination) -> None:
    target.errors["b"] = DeliveryError("full", remedy="wait")
    done = run(make_job(target, "s/a", "s/b"), batch(("s", "a"), ("s", "b")))
    assert done.report.sent == [(3, "fake", "s", "a", 1)]
    assert [(each[2], each[3]["message"]) for each in done.report.failed] == [("b", "full")]
    assert done.report.results[0].rows == 1
    target.error_of_lane = ConnectError("gone", remedy="wait")
    done = run(make_job(target, "s/a", "s/b"), batch(("s", "a"), ("s", "b")))
    assert done.report.sent == []
    assert [(each[2], each[3]["where"]) for each in done.report.failed] == [
        ("a", "destinations.fake"), ("b", "destinations.fake"),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [ConfigError, DataError, OccupiedError, StateError])
@pytest.mark.parametrize("by_topic", [True, False])
def test_what_trying_again_cannot_mend_is_raised(
    target: FakeDestination, kind: type[HeadgateError], by_topic: bool
) -> None:
    error = kind("no server would take it", remedy="correct it")
    target.errors, target.error_of_lane = ({"a": error}, None) if by_topic else ({}, error)
    with pytest.raises(kind, match="no server would take it"):
        run(make_job(target, "s/a"), batch(("s", "a")))


def test_one_at_a_time_keeps_the_order_across_streams(target: FakeDestination) -> None:
    job = make_job(target, "s/a", "u/a", admission=Admission(max_concurrent=1))
    first = batch(("s", "a"), ("s", "a"), ("u", "a"), ("s", "a"))
    run(job, first, batch(("s", "a"), ("u", "a"), first=4))
    assert [message_id for *_, message_id in target.rows] == ["m0", "m1", "m2", "m3", "m4", "m5"]
    assert [lane.stream for lane, _ in target.sent] == ["s", "u", "s", "s", "u"]


def test_what_follows_a_failed_row_waits_for_it(target: FakeDestination) -> None:
    """Runs of one topic are sent one by one: after a failure the rest stays, and none of it counts as sent."""
    job = make_job(target, "s/a", "u/a", admission=Admission(max_concurrent=1))
    rows = batch(("s", "a"), ("u", "a"), ("s", "a"), ("u", "a"))
    failing = FlakyDestination("fake", good_lanes=2)
    done = run(replace(job, targets=(failing,)), rows)
    assert failing.rows == [("s", "a", "m0"), ("u", "a", "m1")]
    assert done.report.sent == []
    assert sorted(each[1] for each in done.report.failed) == ["s", "u"]
    again = run(job, rows)
    assert len(again.report.failed) == 0
    assert [message_id for *_, message_id in target.rows] == ["m0", "m1", "m2", "m3"]


def test_events_that_describe_a_table_need_no_destination(target: FakeDestination) -> None:
    rows = batch((None, None), ("s", "a"), (None, None), **{record.OP: pa.array(["schema", "insert", None])})
    done = run(make_job(target, "s/a", on_missing="dlq"), rows)
    assert [row[record.MESSAGE_ID] for row in done.dead] == ["m2"]
    assert done.report.missing == 1


def test_side_by_side_the_order_within_a_topic_stays(target: FakeDestination) -> None:
    rows = [batch(*[("s", "a"), ("u", "a")] * 20, first=40 * number) for number in range(3)]
    run(make_job(target, "s/a", "u/a"), *rows)
    for stream in ("s", "u"):
        ids = [int(message_id[1:]) for name, _, message_id in target.rows if name == stream]
        assert ids == sorted(ids)
        assert len(ids) == 60


def test_rounds_are_checked_one_by_one(target: FakeDestination, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first round is sent before the second is looked at; what is unknown there stops the rest."""
    monkeypatch.setattr(module, "ROUND_BYTES", 1)
    batches = [batch(("s", "a")), batch(("s", "new"), first=1), batch(("s", "later"), first=2)]
    done = run(make_job(target, "s/a"), *batches)
    assert target.rows == [("s", "a", "m0")]
    assert (done.report.unknown, done.report.sent) == ([("s", "new")], [(3, "fake", "s", "a", 1)])


def test_within_a_round_nothing_is_sent_before_all_is_checked(target: FakeDestination) -> None:
    job = make_job(target, "s/a", admission=Admission("denylist", denied=Patterns.of([("s", "b")])), on_refusal="error")
    with pytest.raises(DeliveryError):
        run(job, batch(("s", "a")), batch(("s", "b"), first=1))
    assert target.sent == []


def test_no_rows_at_all(target: FakeDestination) -> None:
    assert run(make_job(target)).report == Report()
    assert run(make_job(target), batch()).report == Report()
    assert target.sent == []


def test_partitions_out_of_range(target: FakeDestination) -> None:
    rules = Rules(by_topic_column="t", default_topic="rest", partition_key_column="p", encoding="partition_id")
    keys = pa.array(["0", "3", "4", "-1", "99", None, "abc"], pa.string())
    rows = batch(*[(None, "a")] * 7, **{KEY: keys})
    job = make_job(target, rules=rules, known=known("/a", partitions=4), on_refusal="dlq")
    done = run(job, rows)
    assert [message_id for *_, message_id in target.rows] == ["m0", "m1", "m5", "m6"]
    assert done.report.refused == {"partition_id_out_of_range": 3}
    assert [(row[record.PARTITION], row["destination"]) for row in done.dead] == [
        (4, "fake"),
        (-1, "fake"),
        (99, "fake"),
    ]
    assert done.report.failed == []


def test_bounds_are_those_of_each_target() -> None:
    small, large = FakeDestination("small"), FakeDestination("large")
    rules = Rules(by_topic_column="t", default_topic="rest", partition_key_column="p", encoding="partition_id")
    given = Known({Address("", "a"): {"small": 2, "large": 8}})
    job = make_job(small, targets=(small, large), rules=rules, known=given)
    run(job, batch((None, "a"), (None, "a"), **{KEY: pa.array(["1", "5"])}))
    assert (len(small.rows), len(large.rows)) == (1, 2)


def test_echo_hands_the_rows_back(target: FakeDestination) -> None:
    done = run(make_job(target, "s/a", "/b", targets=(), echo=True), batch(("s", "a"), (None, "b")))
    assert [(row[record.STREAM], row[record.TOPIC], row[record.MESSAGE_ID]) for row in done.rows] == [
        ("s", "a", "m0"), (None, "b", "m1"),
    ]  # fmt: skip


def test_copies_have_ids_of_their_own(target: FakeDestination) -> None:
    lookup = Lookup({"k": (Address("", "x"), Address("", "y"))})
    rows = batch((None, None), _route_0=pa.array(["k"]))
    run(make_job(target, "/x", "/y", rules=Rules(lookups=(lookup,))), rows)
    assert target.rows == [("", "x", "m0"), ("", "y", "m0~1")]


def test_changes_without_the_routing_column_are_counted(target: FakeDestination) -> None:
    rows = batch(("s", "a"), ("s", "a"), **{ABSENT: pa.array([True, False])})
    assert run(make_job(target, "s/a"), rows).report.absent == 1


def lookup(**routes: str) -> Rules:
    """Routes of the value of a column, to topics: `a="x y"`."""
    mapping = {value: tuple(Address("", topic) for topic in topics.split()) for value, topics in routes.items()}
    return Rules(lookups=(Lookup(mapping),), use_default=False)


def test_what_was_acknowledged_by_the_routes_of_before_is_not_sent_again() -> None:
    """A reload in the middle of a batch: each row goes where it has not been, and nowhere twice."""
    target = FakeDestination()
    old, new = lookup(a="x", b="y", c="x y", d="y"), replace(lookup(a="x", b="x", c="x z", d="x y"), epoch=2)
    rows = batch(*[(None, None)] * 4, _route_0=pa.array(["a", "b", "c", "d"]))
    topics = known("/x", "/y", "/z")
    target.errors["y"] = DeliveryError("no", remedy="wait")
    first = run(make_job(target, rules=old, known=topics), rows)
    assert target.rows == [("", "x", "m0"), ("", "x", "m2")]
    done = frozenset((each[0], each[1:4]) for each in first.report.sent)
    target.errors.clear()
    target.sent.clear()
    second = run(make_job(target, rules=new, known=topics, earlier=(Earlier(old, done),)), rows)
    # b and d were for y alone, where they are not; c is at x, and goes to z with an id that no copy of it had.
    assert sorted(target.rows) == [
        ("", "x", "m1~e2"),
        ("", "x", "m3~e2"),
        ("", "y", "m3~1"),
        ("", "z", "m2~1~e2"),
    ]
    again = run(make_job(target, rules=new, known=topics, earlier=(Earlier(old, frozenset()),)), rows)
    assert (len(second.report.sent), len(again.report.sent)) == (3, 3)


def test_a_row_that_was_delivered_wherever_it_had_to_go_is_done() -> None:
    target = FakeDestination()
    old, new = lookup(a="x"), replace(lookup(a="z"), epoch=2)
    done = frozenset({(3, ("fake", "", "x"))})
    job = make_job(target, rules=new, known=known("/x", "/z"), earlier=(Earlier(old, done),))
    assert run(job, batch((None, None), _route_0=pa.array(["a"]))).report.sent == []
    elsewhere = replace(job, earlier=(Earlier(old, frozenset({(4, ("fake", "", "x"))})),))
    assert len(run(elsewhere, batch((None, None), _route_0=pa.array(["a"]))).report.sent) == 1


def test_a_partition_that_is_not_there_is_told_in_every_attempt() -> None:
    """Only what the last attempt refuses becomes a dead letter, so a group that is done must refuse it again."""
    target = FakeDestination()
    rules = replace(RULES, partition_key_column="p", encoding="partition_id")
    rows = batch((None, "x"), (None, "x"), **{KEY: pa.array(["0", "9"])})
    job = make_job(target, rules=rules, known=known("/x", partitions=2), on_refusal="dlq")
    first = run(job, rows)
    again = run(replace(job, done=frozenset({(3, ("fake", "", "x"))})), rows)
    assert len(target.rows) == 1
    assert [row[record.MESSAGE_ID] for row in again.dead] == [row[record.MESSAGE_ID] for row in first.dead] == ["m1"]


class Picky(FakeDestination):
    """Takes everything but some rows, for which it can say no more than that there are some."""

    def __init__(self, *bad: str, by_topic: bool = False) -> None:
        super().__init__()
        self.bad, self.by_topic = set(bad), by_topic
        self.sends = 0

    @contextmanager
    def open(self, lane: Lane = OWN_LANE) -> Iterator[Sender]:
        picky = self

        class PickySender(FakeSender):
            def finish(self) -> SendResult:
                picky.sends += 1
                bad = {row[record.TOPIC] for row in self._rows if row[record.MESSAGE_ID] in picky.bad}
                if bad and not picky.by_topic:
                    raise DataError("too large", remedy="send less")
                picky.errors = {topic: DataError("too large", remedy="send less") for topic in bad}
                return super().finish()

        yield PickySender(self, lane)


@pytest.mark.parametrize("by_topic", [False, True])
def test_a_row_that_cannot_be_served_is_a_dead_letter_and_the_others_go_on(by_topic: bool) -> None:
    target = Picky("m3", "m64", by_topic=by_topic)
    rows = batch(*[(None, "x" if n % 2 else "y") for n in range(100)])
    done = run(make_job(target, "/x", "/y", on_refusal="dlq"), rows)
    assert {row[record.MESSAGE_ID] for row in done.dead} == {"m3", "m64"}
    assert {(row["reason"], row["destination"], row["error"]) for row in done.dead} == {
        ("unservable", "fake", "too large")
    }
    assert {message_id for _, _, message_id in target.rows} == {f"m{n}" for n in range(100)} - {"m3", "m64"}
    assert done.report.failed == []
    assert done.report.sent == [], "they come again with the batch, or their dead letters would be lost"
    assert target.sends < 40
    with pytest.raises(DataError):
        run(make_job(Picky("m3"), "/x", "/y", on_refusal="drop"), rows)


def test_a_target_that_cannot_be_is_refused_as_a_whole() -> None:
    target = FakeDestination()
    target.error_of_lane = ConfigError("it needs a stream", remedy="name one")
    done = run(make_job(target, "/x", on_refusal="dlq"), batch(*[(None, "x")] * 5))
    assert [row["error"] for row in done.dead] == ["it needs a stream"] * 5


class Track:
    """What the driver would hear while the task goes on."""

    def __init__(self) -> None:
        self.ends: list[dict[str, Any]] = []
        self.sums = Sums()

    def add(self, rows: int, results: list[SendResult], stretch: Stretch, moments: Moments | None = None) -> None:
        self.ends.append(stretch.end)


def follow(job: Job, *batches: pa.RecordBatch) -> tuple[Done, Track]:
    """The first batch is planned, the others come behind it."""
    track = Track()
    stretches = (Stretch(iter([each]), {"at": number}, is_planned=not number) for number, each in enumerate(batches))
    *parts, report = follow_task(job, stretches, cast(Tracker, track), 3)
    assert isinstance(report, Report)
    done = Done(msgspec.json.decode(msgspec.json.encode(report), type=Report))
    for part in parts:
        assert not isinstance(part, Report)
        done.dead.extend(part[1].to_pylist())
    return done, track


def test_a_task_that_follows_sums_up_what_it_sent(target: FakeDestination) -> None:
    job = make_job(target, "s/a", "s/b")
    done, track = follow(job, batch(("s", "a")), batch(("s", "b"), first=1), batch(("s", "a"), first=2))
    assert [row[2] for row in target.rows] == ["m0", "m1", "m2"]
    assert [lane.goes_on for lane, _ in target.sent] == [False, True, True]
    assert (done.report.rows, done.report.end) == (3, {"at": 2})
    assert track.ends == [{"at": 0}, {"at": 1}, {"at": 2}]


def test_what_an_earlier_attempt_delivered_says_nothing_of_what_comes_behind(target: FakeDestination) -> None:
    job = make_job(target, "s/a", done=frozenset({(3, ("fake", "s", "a"))}))
    follow(job, batch(("s", "a")), batch(("s", "a"), first=1))
    assert [row[2] for row in target.rows] == ["m1"]


def test_a_new_destination_ends_following_before_anything_of_its_stretch(target: FakeDestination) -> None:
    job = make_job(target, "s/a")
    done, track = follow(job, batch(("s", "a")), batch(("s", "a"), ("s", "new"), first=1), batch(("s", "a"), first=3))
    assert [row[2] for row in target.rows] == ["m0"]
    assert (done.report.unknown, done.report.end, track.ends) == ([], {"at": 0}, [{"at": 0}])


def test_a_new_destination_in_what_was_planned_is_told(target: FakeDestination) -> None:
    done, track = follow(make_job(target, "s/a"), batch(("s", "new")), batch(("s", "a"), first=1))
    assert (done.report.unknown, target.rows, track.ends) == ([("s", "new")], [], [])


def test_dead_letters_end_following_and_count_once_the_driver_has_them(target: FakeDestination) -> None:
    job = make_job(target, "s/a", on_missing="dlq")
    done, track = follow(job, batch(("s", "a")), batch(("s", None), first=1), batch(("s", "a"), first=2))
    assert [row[2] for row in target.rows] == ["m0"]
    assert [letter[record.MESSAGE_ID] for letter in done.dead] == ["m1"]
    assert (done.report.end, track.ends) == ({"at": 1}, [{"at": 0}])


def test_a_long_report_is_summed_up() -> None:
    total = Report()
    for _ in range(6_000):
        result = SendResult("fake", 1, 3)
        total.add(Report(rows=1, sent=[(3, "fake", "s", "a", 1)], results=[result]))
    assert len(total.sent) + len(total.results) < 12_000
    assert sum(rows for *_, rows in total.sent) == sum(result.rows for result in total.results) == total.rows == 6_000
