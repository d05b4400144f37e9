"""Finds the reader of a spool, or starts one. It ends with the process that started it.

A reader is a child as any other (`headgate.runtime.child`), but what it has to say is in the spool, not on its standard
output: a reader that somebody else started is as good as one's own, and only its files can be read then.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from headgate.model import ConnectError, HeadgateError, InternalError
from headgate.runtime.child import end_child, start_child
from headgate.runtime.file_lock import FileLock
from headgate.sources.postgres_cdc.control import ReaderState, SpoolControl
from headgate.sources.postgres_cdc.reader import ReaderOptions

__all__ = ["ReaderProcess"]

_START_TIMEOUT_S = 60.0
_ENDING_S = 10.0
_POLL_S = 0.02


class ReaderProcess:
    """The reader that fills a spool, whoever started it."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._directory = Path(options.spool)
        self._control = SpoolControl(self._directory)
        self._child: subprocess.Popen[bytes] | None = None

    def ensure(self) -> ReaderState:
        """A reader that streams: the one that is there, or a new one. Raises what keeps it from streaming."""
        self._let_go()
        if not self._alive():
            self._start()
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            state = self._control.read_state()
            if state is not None and state.status in ("streaming", "waiting") and self._alive():
                return state
            if state is not None and state.error and (state.status == "error" or time.monotonic() > deadline):
                raise _told(state.error)
            if self._child is not None and self._child.poll() is not None:
                raise InternalError("the reader process ended", remedy=f"read {self._directory / 'reader.log'}")
            if time.monotonic() > deadline:
                raise ConnectError("the reader does not stream yet", remedy="trying again; see: headgate status")
            time.sleep(_POLL_S)

    def _let_go(self) -> None:
        """A reader that gave up takes a moment to end; its last words are not those of the next one."""
        deadline = time.monotonic() + _ENDING_S
        while time.monotonic() < deadline and self._alive():
            state = self._control.read_state()
            if state is None or state.status not in ("error", "stopped"):
                return
            time.sleep(_POLL_S)

    def state(self) -> ReaderState:
        """What the reader does now. A dead one is replaced; one that gave up says why until `ensure`."""
        state = self._control.read_state()
        if state is not None and state.status == "error" and state.error:
            raise _told(state.error)
        if state is None or not self._alive():
            return self.ensure()
        return state

    def _alive(self) -> bool:
        """Whether a reader holds the spool's lock: the kernel frees it the moment a process dies, zombie or not."""
        return FileLock(self._directory / "lock").owner() is not None

    def _start(self) -> None:
        self.stop()
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "reader.json").unlink(missing_ok=True)
        with (self._directory / "reader.log").open("wb") as log:
            module = "headgate.sources.postgres_cdc.reader"
            self._child = start_child(module, self._options, stdout=log, stderr=log)

    def stop(self) -> None:
        """End the reader if it is ours."""
        child, self._child = self._child, None
        if child is not None:
            end_child(child, _ENDING_S)


def _told(fields: dict[str, str]) -> HeadgateError:
    """Rebuild the error that a reader has told; it may be of a version with other kinds."""
    try:
        return HeadgateError.from_dict(fields)
    except (KeyError, ValueError):
        return InternalError(fields.get("message", "unknown"))
