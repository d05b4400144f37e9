"""Payloads that the pipeline makes of rows."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from headgate.pipeline.delivery import delivery_frame


@pytest.mark.spark
def test_times_keep_their_microseconds(spark: SparkSession) -> None:
    """As PostgreSQL has them, and as its events write them."""
    moment, local = "timestamp'2025-01-02 03:04:05.678901Z'", "timestamp_ntz'2025-01-02 03:04:05.678901'"
    frame = spark.sql(
        f"select {moment} as at, {local} as local, array({moment}) as many, named_struct('at', {local}) as inside, "
        "timestamp'1969-12-31 23:59:59.000001Z' as before, date'2025-01-02' as day, '0' as _position"
    )
    sent = delivery_frame(
        frame, topic="t", origin="o", payload_format="json", payload_column=None, where="pipelines.p"
    ).collect()
    assert json.loads(bytes(sent[0]["_payload"])) == {
        "at": "2025-01-02T03:04:05.678901Z",
        "local": "2025-01-02T03:04:05.678901",
        "many": ["2025-01-02T03:04:05.678901Z"],
        "inside": {"at": "2025-01-02T03:04:05.678901"},
        "before": "1969-12-31T23:59:59.000001Z",
        "day": "2025-01-02",
    }
