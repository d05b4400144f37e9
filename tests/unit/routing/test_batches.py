"""Send, record, commit: in this order, each until it is done, and what a failure means for each kind of source."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from pyspark.sql import DataFrame

from headgate.model import ConnectError, DataError, DeliveryError, HeadgateError, InternalError, StateError, Status
from headgate.pipeline import batches as module
from headgate.pipeline.acks import Acks
from headgate.pipeline.batches import Batches, FailingBatch
from headgate.pipeline.dispatch import BatchResult
from headgate.pipeline.following import Progress
from headgate.pipeline.report import Reporter
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.state import State, StateFile
from headgate.sources.base import CDC, DESTRUCTIVE_POLLING, OPAQUE, POLLING, Mode, Offset, Source

FRAME = cast(DataFrame, None)  # whoever sends would look at it


class Steps(Source):
    """A source that notes its commits among the other steps, and fails as often as it is told."""

    name = "s"
    format = "none"

    def __init__(self, mode: Mode, steps: list[str]) -> None:
        self._mode = mode
        self.steps = steps
        self.failures: list[Exception] = []
        self.asked: list[Offset | None] = []
        self.known: float | None = None  # when the oldest row was committed

    def mode(self) -> Mode:
        return self._mode

    def options(self) -> dict[str, str]:
        return {}

    def origin(self) -> str:
        return "o"

    def committed_at(self, after: Offset | None) -> float | None:
        self.asked.append(after)
        return self.known

    def commit(self, end: Offset) -> None:
        self.steps.append(f"commit {end['row']}")
        if self.failures:
            raise self.failures.pop(0)


class Bench:
    """One run of a query, without the query."""

    def __init__(self, directory: Path, mode: Mode = CDC, batch_id: int = -1) -> None:
        self.steps: list[str] = []
        self.source = Steps(mode, self.steps)
        self.reporter = Reporter("p", "s", ("d",), failure_threshold=3)
        self.reporter.status(Status.RUNNING)
        self.failing_batch = FailingBatch()
        self.send_errors: list[Exception] = []
        self.result = BatchResult(rows=10, payload_bytes=100, duplicates=1)
        self.on_send: Callable[[], None] = lambda: None
        self.file = StateFile(directory / "state.json")
        spec = PipelineSpec(
            name="p", source=self.source, destinations=(), state_path=self.file.path, checkpoint="",
            before_batch=lambda: self.steps.append("before"),
        )  # fmt: skip
        self.batches = Batches(
            spec,
            self.reporter,
            State("p", "s", "q", batch_id),
            self.failing_batch,
            send=self._send,
            end_offset=self._end,
        )

    def _send(self, frame: DataFrame, batch_id: int) -> BatchResult:
        self.steps.append(f"send {batch_id}")
        self.on_send()
        if self.send_errors:
            raise self.send_errors.pop(0)
        return self.result

    def _end(self, batch_id: int) -> Offset | None:
        saved = self.file.read()
        self.steps.append(f"recorded {saved.batch_id if saved else None}")
        return {"row": batch_id * 10} if batch_id < 90 else None

    def deliver(self, batch_id: int) -> None:
        self.batches.deliver(FRAME, batch_id)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE_FIRST_S", 0.001)


@pytest.mark.parametrize("mode", [CDC, POLLING, DESTRUCTIVE_POLLING, OPAQUE])
def test_a_batch_is_sent_then_recorded_then_committed(tmp_path: Path, mode: Mode) -> None:
    bench = Bench(tmp_path, mode)
    bench.deliver(0)
    assert bench.steps == ["before", "send 0", "recorded 0", "commit 0"]
    report = bench.reporter.report
    assert (report.rows_total, report.bytes_total, report.duplicates_total, report.batches_total) == (10, 100, 1, 1)
    assert bench.file.read() == State("p", "s", "q", 0, 10)


def test_a_batch_that_the_state_covers_is_only_committed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, batch_id=4)
    bench.deliver(4)
    assert bench.steps == ["recorded None", "commit 40"]
    bench.deliver(5)
    assert "send 5" in bench.steps


def test_a_batch_without_an_offset_commits_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.deliver(90)
    assert bench.steps == ["before", "send 90", "recorded None", "recorded 90"]


def test_sending_is_tried_again_and_nothing_is_recorded_before_it_succeeds(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.send_errors = [DeliveryError("no"), RuntimeError("spark"), ConnectError("away")]
    seen: list[State | None] = []
    bench.on_send = lambda: seen.append(bench.file.read())
    bench.deliver(0)
    assert bench.steps.count("send 0") == 4
    assert seen == [None] * 4
    report = bench.reporter.report
    assert (report.errors_total, report.failures_in_row, report.status, report.error) == (3, 0, Status.RUNNING, None)
    assert [change.status for change in report.history][-2:] == [Status.DEGRADED, Status.RUNNING], "at the third"
    assert bench.failing_batch.batch_id is None


def test_after_some_attempts_the_query_is_given_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.send_errors = [DeliveryError("no") for _ in range(50)]
    with pytest.raises(DeliveryError, match=r"pipelines\.p: no"):
        bench.deliver(0)
    assert bench.steps.count("send 0") == module._ATTEMPTS_IN_PLACE
    assert bench.batches.told
    assert bench.failing_batch.batch_id == 0
    assert bench.file.read() is None


def test_what_trying_again_cannot_mend_is_raised_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.send_errors = [DataError("bad row")]
    with pytest.raises(DataError):
        bench.deliver(0)
    assert bench.steps == ["before", "send 0"]


def test_a_cdc_commit_is_tried_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CDC)
    bench.source.failures = [ConnectError("away"), ConnectError("away"), ConnectError("away")]
    bench.deliver(0)
    assert bench.steps[-4:] == ["commit 0"] * 4
    assert bench.steps.count("send 0") == 1
    assert Status.DEGRADED in [change.status for change in bench.reporter.report.history]


def test_a_commit_made_up_for_after_a_restart_ends_the_failing_batch(tmp_path: Path) -> None:
    """The batch is recorded and its commit fails to the end; in the next run only the commit is left."""
    bench = Bench(tmp_path, CDC)
    bench.source.failures = [ConnectError("away") for _ in range(module._ATTEMPTS_IN_PLACE)]
    with pytest.raises(ConnectError):
        bench.deliver(0)
    assert bench.failing_batch.batch_id == 0
    bench.deliver(0)
    assert bench.steps.count("send 0") == 1
    assert bench.failing_batch.abandon() is None, "there is nothing left to give up"


def test_a_polling_commit_waits_for_its_next_turn(tmp_path: Path) -> None:
    bench = Bench(tmp_path, POLLING)
    bench.source.failures = [ConnectError("away"), OSError("disk")]
    bench.deliver(0)
    assert bench.reporter.report.errors_total == 1
    bench.batches.settle()
    assert bench.steps[-2:] == ["commit 0", "commit 0"]
    bench.deliver(1)
    assert bench.steps[-1] == "commit 10"
    count = len(bench.steps)
    bench.batches.settle()
    assert len(bench.steps) == count, "nothing is owed"


def test_an_opaque_commit_stops_the_pipeline(tmp_path: Path) -> None:
    bench = Bench(tmp_path, OPAQUE)
    bench.source.failures = [ConnectError("away", remedy="x")]
    with pytest.raises(StateError, match="cannot let go of what was delivered: away") as caught:
        bench.deliver(0)
    assert caught.value.where == "sources.s"
    assert bench.steps.count("commit 0") == 1


def test_an_abandoned_batch_is_recorded_and_committed_without_being_sent(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.send_errors = [DeliveryError("no") for _ in range(50)]

    def give_up_at_the_third() -> None:
        if bench.steps.count("send 0") == 3:
            assert bench.failing_batch.abandon() == 0

    bench.on_send = give_up_at_the_third
    bench.deliver(0)
    assert bench.steps.count("send 0") == 3
    assert bench.steps[-2:] == ["recorded 0", "commit 0"]
    report = bench.reporter.report
    assert (report.abandoned_total, report.rows_total, report.failures_in_row) == (1, 0, 0)
    assert report.last_abandon_at is not None
    assert report.status is Status.RUNNING
    bench.send_errors, bench.on_send = [], lambda: None
    bench.deliver(1)
    assert bench.reporter.report.rows_total == 10


@pytest.mark.parametrize("mode", [CDC, POLLING, OPAQUE])
def test_a_stop_while_a_batch_is_sent_lets_it_be_recorded(tmp_path: Path, mode: Mode) -> None:
    """Else the rows that just arrived would come again after the next start."""
    bench = Bench(tmp_path, mode)
    bench.on_send = bench.batches.stop
    bench.deliver(0)
    assert [step.split()[0] for step in bench.steps] == ["before", "send", "recorded", "commit"]
    saved = bench.file.read()
    assert saved is not None
    assert saved.batch_id == 0


def test_a_stop_ends_the_attempts(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.send_errors = [DeliveryError("no") for _ in range(50)]
    bench.on_send = bench.batches.stop
    with pytest.raises(InternalError, match="stopping"):
        bench.deliver(0)
    assert bench.steps.count("send 0") == 1


def pausing(failing_batch: FailingBatch, seconds: float = 30.0) -> Callable[[], float]:
    """A thread in a pause; what is returned waits for its end, and says how long it took."""
    took: list[float] = []

    def pause() -> None:
        began = time.monotonic()
        failing_batch.pause(seconds, 7)
        took.append(time.monotonic() - began)

    thread = threading.Thread(target=pause)
    thread.start()

    def end() -> float:
        thread.join(20)
        return took[0]

    return end


@pytest.mark.parametrize("how", ["wake", "abandon"])
def test_an_order_ends_a_pause(how: str) -> None:
    failing_batch = FailingBatch()
    failing_batch.failing(7)
    end = pausing(failing_batch)
    getattr(failing_batch, how)()
    assert end() < 10
    assert failing_batch.is_abandoned(7) == (how == "abandon")


def test_abandoning_another_batch_does_not_end_a_pause() -> None:
    failing_batch = FailingBatch()
    failing_batch.failing(6)
    end = pausing(failing_batch, 0.2)
    assert failing_batch.abandon() == 6
    assert end() >= 0.2
    assert not failing_batch.is_abandoned(7)


def test_a_batch_that_does_not_fail_cannot_be_abandoned() -> None:
    failing_batch = FailingBatch()
    assert failing_batch.abandon() is None
    failing_batch.failing(3)
    failing_batch.over()
    assert (failing_batch.abandon(), failing_batch.batch_id, failing_batch.is_abandoned(3)) == (None, None, False)


def test_the_errors_of_a_run_are_ours(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    errors: list[Any] = [ValueError("odd")] * 50
    bench.send_errors = errors
    with pytest.raises(HeadgateError, match="odd"):
        bench.deliver(0)


def told(rows: int, row: int, *, batch_id: int = 0, attempt: int = 1) -> Progress:
    return Progress("r", batch_id, attempt, rows, rows * 10, 0, {"row": row})


def test_a_batch_that_goes_on_is_recorded_then_committed_meanwhile(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    def follow() -> None:
        bench.batches.record(told(4, 4))
        saved = bench.file.read()
        assert saved is not None
        assert (saved.batch_id, saved.rows, saved.end) == (-1, 4, {"row": 4})
        bench.batches.record(told(4, 4))  # nothing new
        bench.batches.record(told(7, 7))
        assert bench.reporter.report.rows_total == 7

    bench.on_send = follow
    bench.deliver(0)
    assert [step for step in bench.steps if "commit" in step] == ["commit 4", "commit 7", "commit 0", "commit 7"]
    report = bench.reporter.report
    assert (report.rows_total, report.bytes_total, report.batches_total) == (10, 100, 1)
    assert bench.file.read() == State("p", "s", "q", 0, 10, {"row": 7})


def test_what_is_told_of_another_batch_is_not_recorded(tmp_path: Path) -> None:
    """A task of before, or one that tells when its batch is over: the state would go back."""
    bench = Bench(tmp_path)
    bench.on_send = lambda: bench.batches.record(told(4, 4, batch_id=7))
    bench.deliver(0)
    bench.batches.record(told(4, 4))
    assert bench.file.read() == State("p", "s", "q", 0, 10)
    assert "commit 4" not in bench.steps


def test_a_commit_that_fails_meanwhile_is_made_up_for_and_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    def follow() -> None:
        bench.source.failures = [ConnectError("away"), ConnectError("away")]
        for _ in range(2):
            with pytest.raises(ConnectError):
                bench.batches.record(told(4, 4))
        bench.batches.record(told(4, 4))
        assert bench.steps[-1] == "commit 4"
        saved = bench.file.read()
        assert saved is not None
        assert saved.rows == 4  # once

    bench.on_send = follow
    bench.deliver(0)
    assert bench.reporter.report.rows_total == 10


def test_another_attempt_at_a_batch_counts_anew(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    attempts = iter([1, 2])

    def follow() -> None:
        attempt = next(attempts)
        bench.batches.record(told(3 * attempt, 3 * attempt, attempt=attempt))
        if attempt == 1:
            raise DeliveryError("what senders reported could not be learnt")

    bench.on_send = follow
    bench.deliver(0)
    saved = bench.file.read()
    assert saved is not None
    assert saved.end == {"row": 6}
    assert saved.batch_id == 0


def test_the_time_from_commit_to_acknowledgement_is_that_of_the_oldest_row(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.source.known = time.time() - 40
    bench.deliver(0)
    bench.source.known = time.time() + 3600  # the clock of the server is ahead
    bench.deliver(1)
    assert bench.source.asked == [None, {"row": 0}]
    told = bench.reporter.report.commit_to_ack
    counts = dict(zip(told["limits"], told["counts"], strict=False))
    assert (counts[60.0], counts[0.001], sum(told["counts"])) == (1, 1, 2)
    assert 40 <= told["sum"] < 60


def test_a_restart_asks_behind_the_batch_before(tmp_path: Path) -> None:
    bench = Bench(tmp_path, batch_id=4)
    bench.deliver(5)
    assert bench.source.asked == [{"row": 40}]
    assert bench.reporter.report.commit_to_ack == {}


@pytest.mark.parametrize("mode", [POLLING, OPAQUE])
def test_only_cdc_knows_when_rows_were_committed(tmp_path: Path, mode: Mode) -> None:
    bench = Bench(tmp_path, mode)
    bench.deliver(0)
    assert bench.source.asked == []


def test_steps_of_a_batch_that_goes_on_are_counted_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    acks = Acks()
    bench.result = BatchResult(rows=10, payload_bytes=100, duplicates=1, end={"row": 9}, acks=acks)

    def follow() -> None:
        for rows in (4, 7):
            acks.observe(0.0, 0.02)
            bench.batches.record(msgspec.structs.replace(told(rows, rows), acks=acks.copy()))
        acks.observe(0.0, 0.02)  # behind the last that was told

    bench.on_send = follow
    bench.deliver(0)
    assert sum(bench.reporter.report.commit_to_ack["counts"]) == 3
    assert bench.source.asked == []
