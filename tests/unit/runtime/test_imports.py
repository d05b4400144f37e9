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
