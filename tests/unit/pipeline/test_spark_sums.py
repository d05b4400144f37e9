"""What Spark reports of batches, summed up."""

from __future__ import annotations

import pytest

from headgate.control.metrics import render
from headgate.pipeline.report import Reporter
from headgate.pipeline.spark_sums import OUTCOMES, PARTS, SparkSums

REPORT = {
    "numInputRows": 100,
    "inputRowsPerSecond": 50.0,
    "processedRowsPerSecond": 80.0,
    "durationMs": {"addBatch": 400, "getBatch": 1, "triggerExecution": 450, "somethingNew": 7},
}


def test_rows_and_parts_add_up() -> None:
    sums = SparkSums()
    sums.add(REPORT)
    sums.add(REPORT | {"processedRowsPerSecond": 90.0})
    told = sums.as_dict()
    assert (told["input_rows_total"], told["input_rows_per_second"], told["processed_rows_per_second"]) == (200, 50, 90)
    assert told["parts"]["addBatch"]["sum"] == pytest.approx(0.8)
    assert sum(told["parts"]["addBatch"]["counts"]) == 2
    assert set(told["parts"]) == set(PARTS)  # whatever a later Spark reports: labels are bounded


def test_a_batch_that_follows_lasts_as_long_as_it_likes() -> None:
    sums = SparkSums()
    sums.add(REPORT, follows=True)
    counted = {part for part, seconds in sums.as_dict()["parts"].items() if sum(seconds["counts"])}
    assert counted == {"getBatch"}


@pytest.mark.parametrize("report", [{}, {"durationMs": None, "numInputRows": None}])
def test_a_report_without_numbers_counts_nothing(report: dict[str, None]) -> None:
    sums = SparkSums()
    sums.add(report)
    assert sums.as_dict()["input_rows_total"] == 0


def test_the_metrics_page_has_them() -> None:
    reporter = Reporter("orders", "random", ("events",))
    before = render([reporter.report]).decode()
    assert 'headgate_spark_input_rows_per_second{pipeline="orders"}' not in before  # nobody knows it yet
    reporter.spark.add(REPORT)
    for outcome in OUTCOMES:
        reporter.spark.ended(outcome)
    page = render([reporter.report]).decode()
    for line in (
        'headgate_spark_input_rows_total{pipeline="orders"} 100.0',
        'headgate_spark_processed_rows_per_second{pipeline="orders"} 80.0',
        'headgate_spark_terminations_total{outcome="failed",pipeline="orders"} 1.0',
        'headgate_spark_batch_part_seconds_bucket{le="0.5",part="addBatch",pipeline="orders"} 1.0',
        'headgate_spark_batch_part_seconds_count{part="walCommit",pipeline="orders"} 0.0',
    ):
        assert line in page, line
