"""From `headgate.toml` to the two polling sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headgate.config import Config
from headgate.model import UsageError
from headgate.pipeline.assemble import assemble
from headgate.sources.base import DESTRUCTIVE_POLLING, POLLING, Source
from headgate.sources.files.source import FilesSource
from headgate.sources.postgres_poll.options import PollOptions
from headgate.sources.postgres_poll.source import PostgresPollSource

POLL = {"type": "postgres-poll", "table": "jobs", "tracking_column": "at"}
FILES = {"type": "files", "path": "/in", "format": "jsonl", "row_schema": "id int"}


def assembled(source: dict[str, Any], data_dir: Path) -> Source:
    config = Config.model_validate(
        {
            "project": {"name": "shop", "data_dir": data_dir},
            "sources": {"s": source},
            "destinations": {"d": {"type": "memory"}},
            "pipelines": {"p": {"source": "s", "destinations": ["d"], "topic": "t"}},
        }
    )
    (spec,) = assemble(config, nats_url=None, postgres_url="postgres://user:secret@db/shop")
    return spec.source


def test_a_polled_table(tmp_path: Path) -> None:
    more = {"poll_interval": "500ms", "key_columns": ["a", "b"], "processed_column": "done"}
    source = assembled(POLL | more, tmp_path)
    assert isinstance(source, PostgresPollSource)
    options = PollOptions.from_spark(source.options())
    assert (options.poll_interval_ms, options.key_columns, options.processed_column) == (500, "a,b", "done")
    assert options.book_dir == tmp_path / "pipelines" / "p" / "poll"
    assert (source.mode(), source.origin()) == (DESTRUCTIVE_POLLING, "shop-s")
    assert "secret" not in repr(options) + str(source.describe())


def test_files(tmp_path: Path) -> None:
    source = assembled(FILES | {"finished_after": "1m", "delete_after_read": True}, tmp_path)
    assert isinstance(source, FilesSource)
    assert source.options()["finishedAfterMs"] == "60000"
    assert (source.format, source.mode()) == ("filelines", DESTRUCTIVE_POLLING)
    parquet = assembled(FILES | {"format": "parquet"}, tmp_path)
    assert (parquet.format, parquet.mode()) == ("parquet", POLLING)
    assert parquet.options() == {"maxFilesPerTrigger": "200"}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (POLL | {"destructive": False, "delete_after_read": True}, "destructive = false forbids"),
        (POLL | {"processed_column": "done", "delete_after_read": True}, "exclude one another"),
        (POLL | {"columns": ["a,b"]}, "comma"),
        (FILES | {"row_schema": ""}, "needs row_schema"),
        (FILES | {"header": True}, "is for format"),
        (FILES | {"delete_after_read": True}, "needs finished_after"),
        (FILES | {"mode": "LAX"}, "PERMISSIVE"),
    ],
)
def test_what_does_not_fit_together(tmp_path: Path, section: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        assembled(section, tmp_path)


@pytest.mark.parametrize(
    "options", [{"maxOffsetsPerTrigger": "0"}, {"deleteAfterRead": "true", "processedColumn": "x"}, {"tabel": "x"}]
)
def test_bad_options(options: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        PollOptions.from_spark({"url": "u", "table": "t", "trackingColumn": "c", "directory": "d"} | options)
    assert caught.value.remedy
