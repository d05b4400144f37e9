"""Options of the `pgpoll` source, as Spark hands them over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from headgate.model import UsageError
from headgate.sources.options import parse_options

__all__ = ["PollOptions"]

_WHERE = 'format("pgpoll")'


@dataclass(frozen=True, slots=True)
class PollOptions:
    """What `spark.readStream.format("pgpoll").option(...)` accepts. Lists are separated by commas."""

    url: str = field(repr=False)
    table: str  # without a schema: public
    tracking_column: str  # grows with every row that is new or changed
    directory: str  # a local directory that only this stream uses: what is planned and not yet committed
    key_columns: str = ""  # the primary key
    columns: str = ""  # all
    text_columns: str = ""  # to read as PostgreSQL's text
    filter: str = ""  # SQL
    max_offsets_per_trigger: int = 100_000
    min_partitions: int = 1
    overlap_ms: int = 600_000  # milliseconds behind the last row in which late ones are looked for; of times and dates
    overlap_values: int = 10_000  # the same of whole numbers
    future_rows: str = "wait"  # of times and dates: rows after now() wait for it, or `read`
    poll_interval_ms: int = 1000  # milliseconds between two looks at a table that had nothing new
    delete_after_read: bool = False
    processed_column: str = ""  # a boolean that is set once a row is delivered

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        parsed = parse_options(cls, options, source="pgpoll")
        if not parsed.max_offsets_per_trigger or not parsed.min_partitions:
            raise UsageError(
                "a batch needs a row and a task", where=_WHERE, remedy="let maxOffsetsPerTrigger and minPartitions be 1"
            )
        if parsed.future_rows not in ("wait", "read"):
            raise UsageError("futureRows is wait or read", where=_WHERE, remedy="set one of them")
        if parsed.delete_after_read and parsed.processed_column:
            raise UsageError(
                "deleteAfterRead and processedColumn exclude one another", where=_WHERE, remedy="set one of them"
            )
        return parsed

    @property
    def is_destructive(self) -> bool:
        return self.delete_after_read or bool(self.processed_column)

    @property
    def book_dir(self) -> Path:
        return Path(self.directory)
