"""A bridge from Spark's StreamingQueryListener: what Spark reports of a query, told by Spark and never asked for.

Spark calls once for a batch, so nobody has to ask it now and then, which would keep both sides awake while a batch
follows its source. PySpark's own listener asks Java for each field of a report, some sixty calls; this one asks once,
for all of it as JSON.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from headgate.pipeline.spark_sums import SparkSums

__all__ = ["SparkReports"]

_log = logging.getLogger(__name__)

_KEPT = 100  # as many as Spark itself keeps


class SparkReports(StreamingQueryListener):
    """Listens to the queries of one session, until the first of them ends: a pipeline's session has one."""

    def __init__(
        self,
        sums: SparkSums,
        *,
        follows: bool,
        on_batch: Callable[[dict[str, Any]], None],
        on_end: Callable[[], None],
    ) -> None:
        self._sums = sums
        self._follows = follows
        self._on_batch, self._on_end = on_batch, on_end
        self._latest: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._session: SparkSession | None = None

    def listen(self, session: SparkSession) -> None:
        """Begin; before the query starts, so that nothing is missed."""
        self._session = session
        session.streams.addListener(self)

    def latest(self) -> list[dict[str, Any]]:
        """Return the reports of the last batches, the oldest first."""
        return list(self._latest)

    def told(self, report: dict[str, Any]) -> None:
        """Take in the report of a batch."""
        self._latest.append(report)
        self._sums.add(report, follows=self._follows)
        self._on_batch(report)

    def over(self, *, failed: bool) -> None:
        """Take in the end of the query, and listen no more: Java keeps a session for as long as it lives."""
        self._on_end()
        self._sums.ended("failed" if failed else "stopped")
        if self._session is not None:
            try:
                self._session.streams.removeListener(self)
            except (Py4JError, OSError):  # Java ends just now
                _log.debug("a listener is left behind", exc_info=True)

    @property
    def _jlistener(self) -> JavaObject:
        """What PySpark registers: our end of the Java interface in place of its own."""
        if not hasattr(self, "_registered"):
            jvm: Any = SparkContext._jvm
            self._registered: JavaObject = jvm.PythonStreamingQueryListenerWrapper(_JavaEnd(self))
        return self._registered

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: Java calls its own end."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: Java calls its own end."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: Java calls its own end."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: Java calls its own end."""


class _JavaEnd:
    """What Java calls. An error here would only be written into Spark's log, so none leaves unseen."""

    def __init__(self, reports: SparkReports) -> None:
        self._reports = reports

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Java's name
        """That it has started is known to whoever started it."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Java's name
        """Every ten seconds in which nothing came."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Java's name
        try:
            self._reports.told(json.loads(event.progress().json()))
        except Exception:
            _log.exception("a report of Spark cannot be read")

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Java's name
        try:
            self._reports.over(failed=bool(event.exception().isDefined()))
        except Exception:
            _log.exception("the end of a query cannot be read")

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
