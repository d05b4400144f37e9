"""Streams and topics as names of directories: nothing a row says can leave the table's own.

The form is Hive's, which Spark, DuckDB and pyarrow read back: `stream=shop/topic=orders`, with special characters as
percent codes. Where no row can have a stream the level is left out: readers that find nothing but NULL in it cannot
say what type it has. Else a row without one is in `stream=__HIVE_DEFAULT_PARTITION__`, which readers show as NULL.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from headgate.model import DataError

__all__ = ["NO_STREAM", "partition_dir", "read_partition_dir"]

NO_STREAM = "__HIVE_DEFAULT_PARTITION__"

# What Hive escapes, and blanks, which not every file system keeps.
_SPECIAL = re.compile(r"""[\x00-\x20"#%'*/:=?\\\x7f{}\[\]^<>|+&]""")
_MAX_NAME_BYTES = 255


def partition_dir(stream: str | None, topic: str, *, has_streams: bool = True) -> str:
    """The directory of a topic, relative to the table."""
    if stream is None and not has_streams:
        return _level("topic", topic)
    return f"{_level('stream', stream)}/{_level('topic', topic)}"


def read_partition_dir(path: str) -> tuple[str | None, str]:
    """The stream and the topic of a directory that `partition_dir` named."""
    levels = dict(level.split("=", 1) for level in path.split("/")[:2] if "=" in level)
    stream = levels.get("stream", NO_STREAM)
    return None if stream == NO_STREAM else unquote(stream), unquote(levels["topic"])


def _level(key: str, value: str | None) -> str:
    if value is None:
        return f"{key}={NO_STREAM}"
    name = f"{key}={_SPECIAL.sub(lambda match: f'%{ord(match[0]):02X}', value)}"
    if not value or value == NO_STREAM or len(name.encode()) > _MAX_NAME_BYTES:
        raise DataError(
            f"not a name for a {key} in a table: {value[:200]!r}",
            remedy="use 1 to about 240 characters; correct the routes or filter such rows out",
        )
    return name
