"""The Spark session, set up once, with settings that suit small machines and short batches."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headgate.model import ConnectError, DependencyError
from headgate.pipeline.java_process import ensure_java
from headgate.pipeline.jvm import java_options

__all__ = [
    "SparkOptions",
    "SparkSession",
    "check_worker_python",
    "close_session",
    "open_session",
    "start_java",
    "try_session",
]

# Measured on two cores with batches of 100 rows, median of a warm micro-batch; see docs/performance.md.
_SETTINGS = {
    # Hadoop's default manager forks helper processes for every small file on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # The state file is written atomically by ourselves; a checksum beside every offset file guards nothing more.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    # Adaptive planning costs more than it can win on batches this small, and streaming refuses it anyway.
    "spark.sql.adaptive.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # How often an idle query asks its source for news: a trade of idle CPU against latency.
    "spark.sql.streaming.pollingDelay": "25ms",
    # A source that does not answer must not keep a stop waiting for ever, which is Spark's default.
    "spark.sql.streaming.stopTimeout": "20s",
    # A send that failed is judged by the supervisor; Spark itself must not send again.
    "spark.task.maxFailures": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}

# What Spark says of a value that an expression cannot take is said without the value: between the name of the error
# and its SQLSTATE, which is of class 22.
_LOG4J = """\
status = off
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {directory}/spark.log
appender.file.filePattern = {directory}/spark.%i.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %replace{{%d{{ISO8601}} %p %c{{1}}: %m%n%ex}}{{{values}}}{{$1 (without the value) $2}}
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""
_VALUES = r"(\\[[A-Z_.]+\\]) (?s:.*?) (SQLSTATE: 22)"  # as a file of properties has it


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """What the configuration says about Spark."""

    java_home: Path
    log_dir: Path
    master: str = "local[4]"  # snapshots and batches run side by side
    driver_memory: str = "1g"
    ui: bool = False
    conf: dict[str, str] = field(default_factory=dict)
    java_options: str = ""  # in place of those that suit a quick start
    has_sql: bool = False  # rows pass through the JVM


def start_java(options: SparkOptions) -> None:
    """Start the process that a session will run in, which takes seconds; without effect if there is one."""
    os.environ["JAVA_HOME"] = str(options.java_home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1" if options.master.startswith("local") else "")
    ensure_java(_settings(options), options.master, options.log_dir / "spark-start.log")


def open_session(options: SparkOptions, app_name: str = "headgate") -> SparkSession:
    """Start Spark (or join the session this process already has)."""
    check_worker_python(os.environ.get("PYSPARK_PYTHON", sys.executable))
    _quiet_loggers()
    builder = SparkSession.builder.appName(app_name).master(options.master)
    for key, value in _settings(options).items():
        builder = builder.config(key, value)
    try:
        with _own_interrupt_handler():
            start_java(options)
            session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise ConnectError(
            f"Spark did not start on {options.master}: {_first_line(error)}",
            where="spark",
            remedy=f"read {options.log_dir / 'spark-start.log'}; try: headgate check",
        ) from error
    assert isinstance(session, SparkSession)
    return session


def close_session(session: SparkSession) -> None:
    """Stop Spark. A signal to the whole process group may have ended Java already; then there is nothing to stop."""
    with suppress(Py4JError, OSError):
        session.stop()


def try_session(options: SparkOptions) -> int:
    """Start Spark, send some rows through a Python worker, and stop: the number of rows that came back."""
    session = open_session(options, "headgate-check")
    try:
        return session.range(1000).mapInArrow(lambda batches: batches, "id bigint").count()
    finally:
        close_session(session)


def _quiet_loggers() -> None:
    """Both print whole Java stack traces for what headgate reports in one line."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


def _settings(options: SparkOptions) -> dict[str, str]:
    log4j = options.log_dir / "log4j2.properties"
    options.log_dir.mkdir(parents=True, exist_ok=True)
    log4j.write_text(_LOG4J.format(directory=options.log_dir, values=_VALUES), encoding="utf-8")
    java = options.java_options or java_options(options.java_home, has_sql=options.has_sql)
    return (
        _SETTINGS
        | {
            "spark.driver.memory": options.driver_memory,
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()} {java}",
            "spark.ui.enabled": str(options.ui).lower(),
            "spark.sql.warehouse.dir": (options.log_dir.parent / "warehouse").as_uri(),
        }
        | options.conf
    )


@contextmanager
def _own_interrupt_handler() -> Iterator[None]:
    """PySpark makes Ctrl-C cancel the running jobs and raise; ours lets the running batch finish first."""
    ours = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, ours)


def check_worker_python(python: str) -> None:
    """Without these modules in the workers' Python, Spark only says that a worker failed to connect back."""
    if Path(python) == Path(sys.executable):
        return
    try:
        done = subprocess.run(
            [python, "-c", "import pyarrow, pandas, headgate"], capture_output=True, text=True, timeout=60, check=False
        )
        problem = done.stderr.strip().splitlines()[-1] if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        raise DependencyError(
            f"the Python of Spark's workers cannot be used: {problem}",
            where=f"PYSPARK_PYTHON={python}",
            remedy=f"unset PYSPARK_PYTHON, or install headgate there: {python} -m pip install headgate",
        )


def _first_line(error: BaseException) -> str:
    text = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0][:300]
