"""Options of the `filelines` source, as Spark hands them over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from headgate.model import UsageError
from headgate.sources.options import parse_options

__all__ = ["FileLinesOptions"]

_WHERE = 'format("filelines")'


@dataclass(frozen=True, slots=True)
class FileLinesOptions:
    """What `spark.readStream.format("filelines").option(...)` accepts."""

    path: str  # a directory, a pattern such as /var/log/*.log, or a file
    directory: str  # a local directory that only this stream uses: which files are known, and how far they are read
    start_at: str = "beginning"  # or `end`: of the files that are there when the stream begins
    skip_header: bool = False  # the first line of every file is no row
    max_bytes_per_trigger: int = 64 << 20
    max_files_per_trigger: int = 200
    max_line_bytes: int = 16 << 20
    min_partitions: int = 1
    poll_interval_ms: int = 200  # milliseconds between two looks at files that had nothing new
    finished_after_ms: int = 0  # milliseconds without a change that make a file finished; 0: none ever is
    delete_after_read: bool = False  # removes finished files once they are delivered
    fail_on_data_loss: bool = True  # whether lines that are gone before they were read stop the stream

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        parsed = parse_options(cls, options, source="filelines")
        if parsed.start_at not in ("beginning", "end"):
            raise UsageError(
                f"the option startAt is {parsed.start_at!r}", where=_WHERE, remedy="one of: beginning, end"
            )
        limits = (parsed.max_bytes_per_trigger, parsed.max_files_per_trigger, parsed.max_line_bytes)
        if not all((*limits, parsed.min_partitions)):
            raise UsageError("a batch needs a byte, a file and a task", where=_WHERE, remedy="let limits be 1 at least")
        if parsed.delete_after_read and not parsed.finished_after_ms:
            raise UsageError(
                "deleteAfterRead needs to know when a file is finished",
                where=_WHERE,
                remedy="set finishedAfterMs",
            )
        return parsed

    @property
    def index_path(self) -> Path:
        return Path(self.directory) / "files.json"
