"""Options of the `atproto` source, as Spark hands them over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from headgate.model import UsageError
from headgate.sources.options import parse_options

__all__ = ["AtprotoSourceOptions"]

_WHERE = 'format("atproto")'
_LEAST_SPOOL_BYTES = 64 << 20  # room for several groups of the largest events


@dataclass(frozen=True, slots=True)
class AtprotoSourceOptions:
    """What `spark.readStream.format("atproto").option(...)` accepts."""

    url: str = ""  # a relay, or a host: wss://relay.example
    spool: str = ""  # with it: where events are kept until they are delivered
    path: str = ""  # or the directory of the event log of a relay of headgate's
    starting_offsets: str = "latest"  # or earliest: the oldest that the relay still has
    max_offsets_per_trigger: int = 10_000  # events; each has a row per op
    max_spool_bytes: int = 1 << 30
    min_partitions: int = 1  # tasks that read a batch; above 1, order is per task
    fail_on_data_loss: bool = True  # whether events that are gone before they were read stop the stream
    confirm: str = "commit"  # `pipeline`: somebody else fills the spool, and says what is delivered

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        parsed = parse_options(cls, options, source="atproto")
        if bool(parsed.url) == bool(parsed.path):
            raise UsageError("there must be a url or a path", where=_WHERE, remedy="set one of the two")
        if parsed.url and not parsed.spool:
            remedy = "set spool to a directory that outlives the query"
            raise UsageError("events of a url need a place to wait in", where=_WHERE, remedy=remedy)
        if parsed.url and urlsplit(parsed.url).scheme not in ("ws", "wss"):
            raise UsageError("url is no ws:// or wss:// address", where=_WHERE, remedy="give wss://relay.example")
        if parsed.max_spool_bytes < _LEAST_SPOOL_BYTES:
            raise UsageError("the spool is too small", where=_WHERE, remedy="let maxSpoolBytes be 64 MiB at least")
        if parsed.starting_offsets not in ("latest", "earliest"):
            raise UsageError(
                f"startingOffsets is {parsed.starting_offsets!r}", where=_WHERE, remedy="give latest or earliest"
            )
        if not parsed.max_offsets_per_trigger or not parsed.min_partitions:
            remedy = "let maxOffsetsPerTrigger and minPartitions be 1 at least"
            raise UsageError("a batch needs an event and a task", where=_WHERE, remedy=remedy)
        return parsed

    @property
    def directory(self) -> Path:
        """Where events are read from."""
        return Path(self.spool or self.path)

    @property
    def stream_url(self) -> str:
        """The address of the event stream, without a cursor."""
        parts = urlsplit(self.url)
        path = parts.path.rstrip("/")
        return parts._replace(path=path if "/xrpc/" in path else f"{path}/xrpc/{_METHOD}", query="").geturl()


_METHOD = "com.atproto.sync.subscribeRepos"
