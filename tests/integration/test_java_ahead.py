"""Java is started ahead of the session that will run in it, and only once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
options = SparkOptions(java_home=find_java(directory / "java").home, log_dir=directory / "logs")
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
prestart_workers(session).join()
count = session.range(10).mapInArrow(told, "id bigint").count()
has_heard = Heard.heard.wait(60)
close_session(session)
print(json.dumps({"javas": len(javas), "count": count, "heard": has_heard, "leaks": VARIABLE in os.environ}))
"""


def test_the_session_runs_in_the_java_that_was_started_ahead(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"javas": 1, "count": 10, "heard": True, "leaks": False}
    assert (tmp_path / "logs" / "spark-start.log").exists()


def test_a_java_that_does_not_start_is_told_by_the_session(tmp_path: Path) -> None:
    program = _PROGRAM.replace('find_java(directory / "java").home', "directory")
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode != 0
    assert "ConnectError" in done.stderr
    assert "Spark did not start" in done.stderr
