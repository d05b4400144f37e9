"""How the driver and a task that follows its source talk: small files in the pipeline's directory.

<pipeline>/following/run       which run of the query may follow; emptied when following is to end
<pipeline>/following/progress  how far the task has come, with everything up to there acknowledged

A task that follows does not end when its planned range is sent, so what it has delivered must be known without its end.
The driver records it in the state while the task goes on. What a task says counts for the batch it belongs to and for
no other; a task that outlived its driver finds another run, or none, and ends.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from headgate.destinations.base import SendResult
from headgate.pipeline.acks import Acks, Moments
from headgate.runtime.files import replace_file
from headgate.sources.base import Offset, Stretch

__all__ = ["NOTHING", "Following", "Progress", "Sums", "Tracker"]

_TELL_S = 0.1
_LOOK_S = 1.0  # for whoever could not wake the task: its driver has died
_TURN_S = 30.0  # a batch that has brought rows ends after this, so that Spark's own record does not stay far behind
_SHORT_TURN_S = 1.0  # where the driver must soon look again, or a destination learns from what its senders report


class Progress(msgspec.Struct, frozen=True):
    """What a task has delivered so far, beyond what its batch was planned for."""

    run: str
    batch_id: int
    attempt: int  # Spark's number of the task, different in each attempt at a batch
    rows: int
    payload_bytes: int
    duplicates: int
    end: dict[str, Any]
    acks: Acks = msgspec.field(default_factory=Acks)
    committed_at: float | None = None  # of the oldest transaction among the last rows
    moments: Moments | None = None  # of the last rows

    def since(self, before: Progress) -> Progress:
        """What has come since then; all of it, if that was of another attempt."""
        if before.attempt != self.attempt:
            return self
        return msgspec.structs.replace(
            self,
            rows=self.rows - before.rows,
            payload_bytes=self.payload_bytes - before.payload_bytes,
            duplicates=self.duplicates - before.duplicates,
            acks=self.acks.since(before.acks),
        )


NOTHING = Progress("", -1, -1, 0, 0, 0, {})


class Following:
    """The driver's end. Travels to the executors with the plan, where `track` makes the other one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._run = secrets.token_hex(8)
        self._read: tuple[tuple[int, int], Progress] = (0, 0), NOTHING  # the file that was read last, and what it says

    def allow(self) -> None:
        """Let tasks of this run follow."""
        replace_file(self._directory / "run", self._run.encode(), durable=False)

    def halt(self) -> None:
        """Have the task end as soon as what it is sending is acknowledged."""
        replace_file(self._directory / "run", b"", durable=False)

    def progress(self, batch_id: int) -> Progress | None:
        """What the task of a batch has told last; None if it has not come to follow yet."""
        path = self._directory / "progress"
        try:
            seen = os.stat(path)  # noqa: PTH116 - asked four times a second, for each pipeline
            file = seen.st_ino, seen.st_mtime_ns
            if file != self._read[0]:
                self._read = file, msgspec.json.decode(path.read_bytes(), type=Progress)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        told = self._read[1]
        return told if (told.run, told.batch_id) == (self._run, batch_id) else None

    def is_allowed(self) -> bool:
        try:
            return (self._directory / "run").read_bytes() == self._run.encode()
        except FileNotFoundError:
            return False

    def tell(
        self,
        batch_id: int,
        attempt: int,
        sums: Sums,
        end: Offset,
        committed_at: float | None = None,
        moments: Moments | None = None,
    ) -> None:
        counts = (sums.rows, sums.payload_bytes, sums.duplicates)
        told = Progress(self._run, batch_id, attempt, *counts, end, sums.acks, committed_at, moments)
        replace_file(self._directory / "progress", msgspec.json.encode(told), durable=False)


class Sums:
    """What became of the rows of many stretches, in one result for each destination."""

    def __init__(self) -> None:
        self.rows = 0
        self.acks = Acks()
        self._results: dict[str, SendResult] = {}

    def add(self, rows: int, results: list[SendResult]) -> None:
        self.rows += rows
        for each in results:
            known = self._results.get(each.destination)
            self._results[each.destination] = each if known is None else known.plus(each)

    @property
    def results(self) -> list[SendResult]:
        return list(self._results.values())

    @property
    def payload_bytes(self) -> int:
        return sum(each.payload_bytes for each in self._results.values())

    @property
    def duplicates(self) -> int:
        return sum(each.duplicates for each in self._results.values())

    @property
    def reports(self) -> int:
        return sum(len(each.reports) for each in self._results.values())


class Tracker:
    """The task's end: whether to go on, and what to tell."""

    def __init__(self, following: Following, batch_id: int, attempt: int, *, is_short: bool = False) -> None:
        self._is_short = is_short
        self._following = following
        self._batch_id = batch_id
        self._attempt = attempt
        self._began = time.monotonic()
        self._told_at = 0.0
        self._untold: Callable[[], None] | None = None
        self.sums = Sums()
        self._last: tuple[float | None, Moments | None] = (None, None)
        self.end: Offset | None = None  # behind the last row that is acknowledged

    def add(self, rows: int, results: list[SendResult], stretch: Stretch, moments: Moments | None = None) -> None:
        """The rows of a stretch are acknowledged."""
        end = stretch.end
        self.sums.add(rows, results)
        if rows:
            self.sums.acks.observe(stretch.committed_at, time.time())
            self._last = stretch.committed_at, moments
        self.end = end
        self._untold = lambda: self._following.tell(self._batch_id, self._attempt, self.sums, end, *self._last)

    def goes_on(self) -> float:
        """Tell what is due, and return for how many seconds nothing else will be; 0 to end."""
        now = time.monotonic()
        if self._untold is not None and now - self._told_at >= _TELL_S:
            self._untold()
            self._untold, self._told_at = None, now
        left_s = self._turn_s - (now - self._began)
        if left_s <= 0 or not self._following.is_allowed():
            return 0.0
        return min(left_s, _LOOK_S if self._untold is None else _TELL_S)

    @property
    def _turn_s(self) -> float:
        if self._is_short or self.sums.reports:
            return _SHORT_TURN_S
        return _TURN_S if self.sums.rows else math.inf
