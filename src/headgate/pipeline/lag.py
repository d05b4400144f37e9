"""How far a pipeline is behind, asked of its source also while nothing moves: that is when somebody wants to know."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pyspark.sql import SparkSession

from headgate.model import HeadgateError
from headgate.pipeline.checkpoint import batch_end_offset
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.state import StateFile
from headgate.sources.base import Lag, Offset, Source

__all__ = ["LagWatch", "delivered_end"]

_log = logging.getLogger(__name__)

_EVERY_S = 5.0


def delivered_end(spec: PipelineSpec, spark: SparkSession | None) -> Offset | None:
    """The offset that is known to be delivered; None if none is, or its checkpoint does not say."""
    state = StateFile(spec.state_path).read()
    return None if state is None else state.end or batch_end_offset(spark, spec.checkpoint, state.batch_id)


class LagWatch:
    """A thread that looks every few seconds, for sources that can tell; a server that hangs holds up only this."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession, tell: Callable[[Lag | None], None]) -> None:
        self._spec = spec
        self._spark = spark
        self._tell = tell
        self._stop = threading.Event()

    def start(self) -> None:
        if type(self._spec.source).lag is Source.lag:
            return
        self._stop = threading.Event()  # that of this run: a thread of an earlier one may still hang
        name = f"lag-{self._spec.name}"
        threading.Thread(target=self._watch, args=(self._stop,), name=name, daemon=True).start()

    def stop(self) -> None:
        """Ask for the end; nobody waits for it."""
        self._stop.set()

    def _watch(self, stop: threading.Event) -> None:
        while not stop.is_set():
            lag = self._look()
            if not stop.is_set():
                self._tell(lag)
            stop.wait(_EVERY_S)

    def _look(self) -> Lag | None:
        """None if it cannot be told now; why, the pipeline itself will say."""
        try:
            state = StateFile(self._spec.state_path).read()
            if state is None or state.batch_id < 0:
                return self._spec.source.lag(None)
            end = delivered_end(self._spec, self._spark)
            return self._spec.source.lag(end) if end is not None else None
        except HeadgateError as error:
            _log.debug("the lag is not known", extra={"pipeline": self._spec.name, "error": error.as_dict()})
        except Exception:  # of a plugin, or of Spark that ends just now; a thread that died would show an old number
            _log.debug("the lag is not known", extra={"pipeline": self._spec.name}, exc_info=True)
        return None
