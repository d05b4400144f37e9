"""Java is started ahead of the session that will run in it, and only once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from headgate.embedded import find_java

pytestmark = pytest.mark.spark

# A process of its own: this one may have a Java already, and has only one in its life.
_PROGRAM = """
import json, logging, os, sys, threading
from pathlib import Path

import psutil
from headgate.embedded import find_java
from headgate.pipeline.prestart import prestart_workers
from headgate.pipeline.session import SparkOptions, close_session, open_session, start_java
from headgate.runtime.worker_log import VARIABLE

directory = Path(sys.argv[1])
java_home = Path(os.environ.get("TEST_JAVA_HOME") or find_java(directory / "java").home)
options = SparkOptions(java_home=java_home, log_dir=directory / "logs")
ahead = threading.Thread(target=start_java, args=[options])
ahead.start()
session = open_session(options)  # waits for the one that is under way
ahead.join()
javas = [child.pid for child in psutil.Process().children() if "java" in child.name()]

def told(batches):
    logging.getLogger("headgate.test").warning("from a worker")
    yield from batches

class Heard(logging.Handler):
    heard = threading.Event()
    def emit(self, record):
        if record.getMessage() == "from a worker":
            self.heard.set()

logging.getLogger("headgate.test").addHandler(Heard())
def homes(batches):
    import pyarrow, pyspark
    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"home": [pyspark.__file__]})

prestart_workers(session).join()
count = session.range(10).mapInArrow(told, "id bigint").count()
home = session.range(1).mapInArrow(homes, "home string").first().home
has_heard = Heard.heard.wait(60)
close_session(session)
leaks = [name for name in (VARIABLE, "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET") if name in os.environ]
print(json.dumps({"javas": len(javas), "count": count, "heard": has_heard, "leaks": leaks, "home": home}))
"""
_EXPECTED = {"javas": 1, "count": 10, "heard": True, "leaks": []}


def _run(directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(directory)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_the_session_runs_in_the_java_that_was_started_ahead(tmp_path: Path) -> None:
    done = _run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == _EXPECTED | {"home": pyspark.__file__}  # the installed one, compiled already
    assert (tmp_path / "logs" / "spark-start.log").exists()


def test_a_spark_of_somebody_s_own_brings_its_own_pyspark(tmp_path: Path) -> None:
    home = Path(pyspark.__file__).parent
    done = _run(tmp_path, SPARK_HOME=str(home))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said == _EXPECTED | {"home": said["home"]}
    assert said["home"].startswith(str(home / "python" / "lib" / "pyspark.zip"))


def test_spark_submit_starts_java_where_the_launcher_fails(tmp_path: Path) -> None:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    real = find_java(tmp_path / "java").home / "bin" / "java"
    first_fails = f'if ! [ -e "{java}.asked" ]; then touch "{java}.asked"; exit 1; fi'
    java.write_text(f'#!/bin/sh\n{first_fails}\nexec "{real}" "$@"\n')
    java.chmod(0o755)
    done = _run(tmp_path, TEST_JAVA_HOME=str(tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said == _EXPECTED | {"home": said["home"]}


def test_a_java_that_does_not_start_is_told_by_the_session(tmp_path: Path) -> None:
    done = _run(tmp_path, TEST_JAVA_HOME=str(tmp_path))
    assert done.returncode != 0
    assert "ConnectError" in done.stderr
    assert "Spark did not start" in done.stderr
