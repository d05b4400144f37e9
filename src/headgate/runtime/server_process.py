"""A server beside the pipelines: a process of its own, so that Spark's driver cannot hold it up; watched here."""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import threading
import time
from typing import Any, ClassVar

from headgate.model import HeadgateError, InternalError, Retry, Status
from headgate.runtime.backoff import Backoff
from headgate.runtime.child import end_child, log_told, start_child

__all__ = ["ServerProcess"]

_START_TIMEOUT_S = 60.0
_BACKOFF_S = (0.2, 10.0)  # the first pause, and the longest
_STOP_MARGIN_S = 5.0
_SILENT_S = 15.0  # a child tells its metrics every second


class ServerProcess:
    """Starts a server, starts it again when it dies, and knows how it is doing.

    `module` speaks as `headgate.runtime.child` does; `options` has a port, which a restart keeps.
    """

    facts: ClassVar[tuple[str, ...]] = ("url",)  # of what it says when it is ready, for `status`

    def __init__(self, name: str, module: str, options: Any, *, stop_s: float) -> None:
        self._name = name
        self._module = module
        self._options = options
        self._stop_s = stop_s
        self._log = logging.getLogger(module)
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: threading.Thread | None = None
        self._settled = threading.Event()  # it runs, or it cannot
        self._stop = threading.Event()
        self._status = Status.STARTING
        self._ready: dict[str, Any] = {}
        self._metrics: dict[str, Any] = {}
        self._error: HeadgateError | None = None
        self._restarts = 0
        self._backoff = Backoff(*_BACKOFF_S)
        self._heard_at = time.monotonic()

    def start(self) -> None:
        """Start it, and wait until it serves; an error at the first start is raised."""
        self._watcher = threading.Thread(target=self._watch, name=f"{self._name} watcher", daemon=True)
        self._watcher.start()
        is_settled = self._settled.wait(_START_TIMEOUT_S)
        if self._status is not Status.RUNNING:
            error = self._error
            self.stop()
            text = "it ended without a word" if is_settled else f"it did not start within {_START_TIMEOUT_S:.0f} s"
            raise error or InternalError(f"the {self._name} cannot start: {text}", remedy="read the log above")

    def stop(self) -> None:
        """Let it finish what it has accepted. Idempotent."""
        self._stop.set()
        process = self._process
        if process is not None:
            end_child(process, self._stop_s + _STOP_MARGIN_S)
        if self._watcher is not None:
            self._watcher.join()
        self._status = Status.STOPPED

    def status(self) -> dict[str, Any]:
        """What `/status` shows of it. It is degraded while a part of it does not work, or it says nothing."""
        troubles = self._troubles()
        is_degraded = self._status is Status.RUNNING and bool(troubles)
        return {
            "status": (Status.DEGRADED if is_degraded else self._status).value,
            **{name: self._ready.get(name) for name in (*self.facts, "pid")},
            "connections": self._metrics.get("connections", 0),
            "restarts_total": self._restarts,
            "troubles": troubles,
            "error": self._error.as_dict() if self._error else None,
        }

    def metrics(self) -> dict[str, Any]:
        """The counters of the running process; empty until it has told them."""
        return self._metrics | {"restarts_total": self._restarts, "up": int(self._status is Status.RUNNING)}

    def _troubles(self) -> dict[str, str]:
        """What does not work, by its part, and the first cause."""
        if self._status is not Status.RUNNING:
            return {}
        troubles = {part: str(each["why"]) for part, each in self._metrics.get("troubles", {}).items()}
        silent_s = time.monotonic() - self._heard_at
        if silent_s > _SILENT_S:
            troubles["process"] = f"it has said nothing for {silent_s:.0f} s"
        return troubles

    def _watch(self) -> None:
        while not self._stop.is_set():
            self._run_once()
            if self._stop.is_set():
                return
            is_hopeless = self._error is not None and self._error.retry is not Retry.BACKOFF
            self._status = Status.ERROR if is_hopeless else Status.DEGRADED
            if not self._ready:  # never served: whoever started it is told, and nothing is tried again
                self._settled.set()
                return
            delay_s = self._backoff.next_s()
            self._log.error("the %s ended; it is started again", self._name, extra={"after_seconds": delay_s})
            self._stop.wait(delay_s)
            self._restarts += 1

    def _run_once(self) -> None:
        with start_child(self._module, self._options) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            self._process = process
            if self._stop.is_set():
                process.stdin.close()
            for line in process.stdout:
                self._hear(json.loads(line))

    def _hear(self, line: dict[str, Any]) -> None:
        self._heard_at = time.monotonic()
        if ready := line.get("ready"):
            self._ready, self._error, self._status = ready, None, Status.RUNNING
            self._backoff.reset()
            self._options = dataclasses.replace(
                self._options, port=ready["port"]
            )  # a restart keeps the port that was picked
            self._settled.set()
        elif error := line.get("error"):
            self._error = HeadgateError.from_dict(error)
        elif "metrics" in line:
            self._metrics = line["metrics"]
        else:
            log_told(line)
