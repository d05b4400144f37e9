"""What a program that uses only a part of headgate has to carry."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"pyspark", "pandas", "pyarrow", "numba", "numpy", "confluent_kafka", "starlette", "uvicorn", "httpx", "typer"}


@pytest.mark.parametrize("module", ["headgate", "headgate.model", "headgate.broker", "headgate.consume"])
def test_libraries_import_neither_spark_nor_servers(module: str) -> None:
    script = f"import sys, {module}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_workers_of_spark_carry_nothing_for_traces_and_metrics() -> None:
    """What a task sends along when it reports is noted without them."""
    parts = "headgate.pipeline.dispatch, headgate.pipeline.routing.spark_job, headgate.sources.postgres_cdc.follow"
    foreign = {"opentelemetry", "prometheus_client", "headgate.pipeline.traces", "headgate.pipeline.spark_reports"}
    script = f"import sys, {parts}; print(*sorted({foreign!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
