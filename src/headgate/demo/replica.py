"""The demo's replica: the shop in a SQLite file, kept by `headgate replica run` and compared with the shop."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from headgate.consume.link import Link
from headgate.model import HeadgateError
from headgate.replica import TableReport, open_target, verify
from headgate.replica.lag import has_applied
from headgate.replica.verify import Source

__all__ = ["DemoReplica"]

_EVERY_S = 3.0
_STREAM_EVERY_S = 0.5
_WAIT_S = 10.0
_END_S = 10.0


class DemoReplica:
    """A process that keeps the copy, and a thread that verifies it. `state` says in words how it stands."""

    def __init__(self, directory: Path, nats_url: str, postgres_url: str, stream: str, slot: str) -> None:
        self.path = directory / "replica.db"
        self.state = "waiting for the first snapshot"
        self.exact: bool | None = None  # None while nothing can be said
        self.rows = 0
        self._nats_url, self._postgres_url, self._stream, self._slot = nats_url, postgres_url, stream, slot
        self._log = directory / "logs" / "replica.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()
        self._judged = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="verify replica", daemon=True)

    def __enter__(self) -> Self:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_WAIT_S + _END_S)
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
            if self._process.poll() is None:
                self._process.kill()

    def await_verdict(self, timeout_s: float) -> None:
        """Until something can be said of the copy."""
        self._judged.wait(timeout_s)

    def _watch(self) -> None:
        while not asyncio.run(self._has_stream()):
            if self._stop.wait(_STREAM_EVERY_S):
                return
        self._start()
        while not self._stop.wait(_EVERY_S):
            if self._process is not None and self._process.poll() is not None:
                self.exact, self.state = False, f"ended with {self._process.returncode}; see {self._log}"
                self._judged.set()
                return
            if not self.path.exists():
                continue
            try:
                self._judge(asyncio.run(self._verify()))
            except HeadgateError as error:
                self.state = error.message

    async def _has_stream(self) -> bool:
        """Whether the pipeline has made the stream, which it does when it starts."""
        try:
            link = await Link.open(self._nats_url, name="headgate-demo-replica")
        except HeadgateError:
            return False
        try:
            await link.state(self._stream)
        except HeadgateError:
            return False
        finally:
            await link.close()
        return True

    def _start(self) -> None:
        command = [sys.executable, "-m", "headgate", "replica", "run", "--target", f"sqlite:///{self.path}"]
        command += ["--nats", self._nats_url, "--stream", self._stream]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    async def _verify(self) -> list[TableReport]:
        target, source = open_target(f"sqlite:///{self.path}"), Source(self._postgres_url, self._slot)
        link = await Link.open(self._nats_url, name="headgate-demo-verify")
        try:
            return await verify(source, target, lambda: has_applied(link, target, self._stream), wait_s=_WAIT_S)
        finally:
            await link.close()
            source.close()
            target.close()

    def _judge(self, reports: list[TableReport]) -> None:
        self.rows = sum(report.row_count for report in reports)
        different = sum(len(report.differences) for report in reports)
        self.exact = not different
        self._judged.set()
        self.state = (
            f"{different:,} rows differ" if different else f"exact: {self.rows:,} rows in {len(reports)} tables"
        )
