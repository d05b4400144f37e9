"""What a pipeline says of itself."""

from __future__ import annotations

import threading

from headgate.cli.output import lag_text
from headgate.model import ConnectError, Status
from headgate.pipeline.report import Reporter
from headgate.sources.base import Lag


def reporter() -> Reporter:
    return Reporter("p", "s", ("d",))


def test_totals_add_up() -> None:
    one = reporter()
    one.batch(rows=10, payload_bytes=100, duplicates=1, seconds=0.1)
    one.batch(rows=5, payload_bytes=50, duplicates=0, seconds=0.3)
    report = one.report
    assert (report.rows_total, report.bytes_total, report.duplicates_total, report.batches_total) == (15, 150, 1, 2)
    assert report.last_batch_rows == 5
    assert report.rows_per_second > 0


def test_an_error_is_shown_until_the_next_state() -> None:
    one = reporter()
    one.status(Status.DEGRADED, ConnectError("gone", remedy="wait"))
    failed = one.report
    assert failed.error is not None
    assert failed.error["remedy"] == "wait"
    one.status(Status.RUNNING)
    assert (one.report.error, one.report.errors_total) == (None, 1)


def test_waiting_wakes_up() -> None:
    one = reporter()
    woken: list[bool] = []
    waiter = threading.Thread(target=lambda: woken.append(one.wait_for(Status.STOPPED, timeout_s=10)))
    waiter.start()
    one.status(Status.STOPPED)
    waiter.join(10)
    assert woken == [True]
    assert not one.wait_for_rows(1, timeout_s=0.01)


def test_the_first_cause_stays_until_a_success() -> None:
    one = reporter()
    one.started()
    one.failed(ConnectError("the cause", remedy="mend it"))
    one.failed(ConnectError("its consequence", remedy="wait"))
    one.started()  # a new run of the query proves nothing
    one.status(Status.DEGRADED, ConnectError("another consequence", remedy="wait"))
    report = one.report
    assert report.error is not None
    assert report.last_error is not None
    assert (report.error["message"], report.last_error["message"]) == ("the cause", "another consequence")
    assert (report.failures_in_row, report.status) == (2, Status.DEGRADED)
    one.batch(rows=1, payload_bytes=1, duplicates=0, seconds=0.1)
    assert (one.report.error, one.report.last_error, one.report.status) == (None, None, Status.RUNNING)
    one.failed(ConnectError("something else", remedy="wait"))
    again = one.report
    assert again.error is not None
    assert (again.error["message"], again.last_error) == ("something else", None)
    one.recovered()
    after = one.report
    assert (after.error, after.failures_in_row) == (None, 0)


def test_a_start_that_fails_counts_and_is_degraded_at_once() -> None:
    one = reporter()
    for times in (1, 2):
        one.failed(ConnectError("gone", remedy="wait"), at_once=True)
        assert (one.report.failures_in_row, one.report.status) == (times, Status.DEGRADED)
    one.recovered()
    assert (one.report.failures_in_row, one.report.status) == (0, Status.RUNNING)


def test_the_lag_is_what_the_source_can_tell() -> None:
    one = reporter()
    one.lag(Lag(rows=1234, seconds=12.4))
    assert lag_text(one.report.as_dict()) == "1,234 rows, 12 s"
    one.lag(Lag(bytes=2_500_000))
    assert lag_text(one.report.as_dict()) == "2.5 MB"
    one.lag(None)
    assert lag_text(one.report.as_dict()) == "-"
