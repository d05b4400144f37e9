"""The thread that writes the spool: requests that arrive together share one fsync."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future

from headgate.model import CapacityError, HeadgateError, InternalError
from headgate.spool.frames import Request
from headgate.spool.spool import Receipt, Spool

__all__ = ["Intake"]

_GROUP_REQUESTS = 1000
_GROUP_BYTES = 16 << 20
_TICK_S = 1.0  # how soon rows that another process has delivered are deleted

_Waiting = tuple[Request, "Future[Receipt]"]


class Intake:
    """Takes requests from any thread. Whoever submits one waits for its receipt, which means that it is durable."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._release = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="webhook-spool", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> Future[Receipt]:
        waiting: Future[Receipt] = Future()
        self._queue.put((request, waiting))
        return waiting

    def release(self) -> None:
        """Rows were delivered: delete what can be deleted, soon."""
        self._release.set()
        self._queue.put(None)

    def close(self) -> None:
        """Write what was submitted, then end."""
        self._closing = True
        self._queue.put(None)
        self._thread.join()
        self._spool.close()

    def _run(self) -> None:
        while True:
            group = self._next_group()
            if group:
                self._append(group)
            elif self._closing:
                return
            if self._release.is_set() or not group:
                self._release.clear()
                self._let_go()

    def _next_group(self) -> list[_Waiting]:
        """Everything that waits by now; nothing after a tick without a request."""
        group: list[_Waiting] = []
        size = 0
        try:
            item = self._queue.get(timeout=_TICK_S)
            while True:
                if item is not None and item[1].set_running_or_notify_cancel():
                    group.append(item)
                    size += sum(map(len, item[0].bodies))
                if len(group) >= _GROUP_REQUESTS or size >= _GROUP_BYTES:
                    break
                item = self._queue.get_nowait()
        except queue.Empty:
            pass
        return group

    def _append(self, group: list[_Waiting]) -> None:
        try:
            receipts = self._spool.append([request for request, _ in group])
        except Exception as error:  # whoever waits must hear of it
            failure = error if isinstance(error, HeadgateError) else InternalError(f"the spool failed: {error!r}")
            for _, waiting in group:
                waiting.set_exception(failure)
            return
        for (_, waiting), receipt in zip(group, receipts, strict=True):
            if receipt is None:
                waiting.set_exception(CapacityError("the spool is full", remedy="try again when rows are delivered"))
            else:
                waiting.set_result(receipt)

    def _let_go(self) -> None:
        try:
            self._spool.release()
        except OSError:
            return  # tried again at the next tick
