"""What Spark's Python workers log, brought to the log that people read: that of the driver.

Planners of sources, readers and senders run in processes that Java starts. They inherit Java's environment, and find
there the socket on which the driver listens. On other machines there is none, and Spark keeps their output as it does.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

__all__ = ["VARIABLE", "WorkerLog", "log_to_driver", "own_fields"]

VARIABLE = "HEADGATE_WORKER_LOG"
_PLAIN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MOST_BYTES = 60_000  # of one record
_MOST_CHARACTERS = 4000  # of one of its fields


class WorkerLog:
    """The driver's end: a socket that only this user can reach, and a thread that logs what comes."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="headgate-log-")) / "socket"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))
        threading.Thread(target=self._listen, name="worker-log", daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                line = self._socket.recv(_MOST_BYTES)
            except OSError:
                return  # closed
            try:
                told = json.loads(line)
                logger = logging.getLogger(str(told["name"]))
                if logger.isEnabledFor(told["level"]):
                    logger.log(told["level"], "%s", told["text"], extra=told["extra"])
            except (ValueError, KeyError, TypeError):
                logging.getLogger(__name__).debug("a worker's log record makes no sense")

    def close(self) -> None:
        """Listen no more. What workers say from now on is lost."""
        self._socket.close()
        self.path.unlink(missing_ok=True)
        self.path.parent.rmdir()


def log_to_driver() -> None:
    """The worker's end: send what is logged to the driver that is named in the environment, if there is one."""
    path = os.environ.get(VARIABLE)
    root = logging.getLogger()
    if path and not any(isinstance(each, _ToDriver) for each in root.handlers):
        root.addHandler(_ToDriver(path))
        logging.getLogger("headgate").setLevel(logging.INFO)


class _ToDriver(logging.Handler):
    """Sends records as datagrams. Whatever is wrong with that must not stop a worker."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._socket: socket.socket | None = None
        self._owner = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._connected().send(_line(record))
        except (OSError, ValueError):
            self._owner = 0  # the driver is gone, or has not kept up

    def _connected(self) -> socket.socket:
        if self._socket is None or self._owner != os.getpid():  # a forked worker has a socket of its own
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.connect(self._path)
            self._owner = os.getpid()
        return self._socket


def own_fields(record: logging.LogRecord) -> dict[str, Any]:
    """What a record carries beside its text: the fields of `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _PLAIN_FIELDS}


def _short(value: Any) -> Any:
    return value if isinstance(value, int | float | None) else str(value)[:_MOST_CHARACTERS]


def _line(record: logging.LogRecord) -> bytes:
    text = record.getMessage()
    if record.exc_info:
        text += "\n" + logging.Formatter().formatException(record.exc_info)
    extra = {name: _short(value) for name, value in own_fields(record).items()}
    line = {"name": record.name, "level": record.levelno, "text": text[:_MOST_CHARACTERS], "extra": extra}
    return json.dumps(line, default=str).encode()
