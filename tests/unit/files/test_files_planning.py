"""Files that grow, rotate, shrink and go: the reader's methods are called as Spark calls them, on real files."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from headgate.model import DataError, HeadgateError, StateError, UsageError
from headgate.sources.base import DESTRUCTIVE_POLLING, POLLING
from headgate.sources.files.datasource import FileLinesStreamReader
from headgate.sources.files.options import FileLinesOptions
from headgate.sources.files.scan import scan
from headgate.sources.files.source import FileRows, FilesSource

Offset = dict[str, Any]


class Logs:
    """A directory of files and a stream of their lines, which a test drives batch by batch."""

    def __init__(self, root: Path, **more: str) -> None:
        self.root = root / "logs"
        self.root.mkdir(exist_ok=True)
        self.more = {"path": str(self.root), "directory": str(root / "index"), "pollIntervalMs": "0"} | more
        self.restart()
        self.at = self.reader.initialOffset()

    def restart(self) -> None:
        self.reader = FileLinesStreamReader(FileLinesOptions.from_spark(self.more))

    def write(self, name: str, text: str | bytes, mode: str = "ab") -> Path:
        path = self.root / name
        with path.open(mode) as file:
            file.write(text.encode() if isinstance(text, str) else text)
        return path

    def plan(self, max_bytes: int = 1 << 20) -> Offset:
        return self.reader.latestOffset(self.at, ReadMaxBytes(max_bytes))

    def rows(self, start: Offset, end: Offset) -> list[dict[str, Any]]:
        found = [batch for part in self.reader.partitions(start, end) for batch in self.reader.read(part)]
        return pa.Table.from_batches(found).to_pylist() if found else []

    def batch(self, max_bytes: int = 1 << 20) -> list[str]:
        end = self.plan(max_bytes)
        rows = self.rows(self.at, end)
        self.at = end
        return [row["value"] for row in rows]

    def drain(self, max_bytes: int = 1 << 20) -> list[str]:
        lines: list[str] = []
        while (end := self.plan(max_bytes)) != self.at:
            lines += [row["value"] for row in self.rows(self.at, end)]
            self.at = end
        return lines


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def age(path: Path, seconds: float = 3600) -> None:
    info = path.stat()
    os.utime(path, (info.st_atime, info.st_mtime - seconds))


def test_a_partial_line_waits_for_its_newline(logs: Logs) -> None:
    logs.write("a.log", "one\ntw")
    assert logs.batch() == ["one"]
    assert logs.plan() == logs.at
    logs.write("a.log", "o\nthree")
    assert logs.batch() == ["two"]
    logs.write("a.log", "\n")
    assert logs.batch() == ["three"]


def test_new_files_come_by_name_and_positions_sort(logs: Logs) -> None:
    for name in ("b.log", "a.log", ".hidden", "_SUCCESS"):
        logs.write(name, f"{name} 1\n{name} 2\n")
    (logs.root / "folder").mkdir()
    end = logs.plan()
    rows = logs.rows(logs.at, end)
    assert [row["value"] for row in rows] == ["a.log 1", "a.log 2", "b.log 1", "b.log 2"]
    assert [row["_position"] for row in rows] == sorted({row["_position"] for row in rows})
    assert [(Path(row["_file"]).name, row["_offset"], row["_op"]) for row in rows][1] == ("a.log", 8, "read")
    logs.at = end
    logs.write("a.log", "a.log 3\n")
    later = logs.rows(logs.at, logs.plan())
    assert later[0]["_position"] > rows[-1]["_position"]


def test_a_replay_after_growth_and_restart(logs: Logs) -> None:
    logs.write("a.log", "1\n2\n")
    end = logs.plan()
    before = logs.rows(logs.at, end)
    logs.write("a.log", "3\n")
    logs.write("0.log", "new\n")
    logs.restart()
    assert logs.reader.initialOffset() == logs.at
    assert logs.rows(logs.at, end) == before
    logs.at = end
    assert logs.drain() == ["3", "new"]


def test_rotation_by_rename_finishes_the_old_file_first(tmp_path: Path) -> None:
    logs = Logs(tmp_path, path=str(tmp_path / "logs" / "app.log"))
    logs.write("app.log", "1\n")
    assert logs.batch() == ["1"]
    logs.write("app.log", "2\n")
    (logs.root / "app.log").rename(logs.root / "app.log.1")
    logs.write("app.log", "3\n")
    logs.write("app.log.1", "2b\n")  # the writer has not noticed yet
    assert logs.batch() == ["2", "2b", "3"]
    assert logs.drain() == []


def test_rotation_between_plan_and_read(logs: Logs) -> None:
    logs.write("app.log", "1\n")
    end = logs.plan()
    (logs.root / "app.log").rename(logs.root / "app.log.1")
    logs.write("app.log", "2\n")
    assert [row["value"] for row in logs.rows(logs.at, end)] == ["1"]
    logs.at = end
    assert logs.drain() == ["2"]


def test_rotation_between_look_and_open(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file at the path is another than the one that was seen there."""
    logs.write("app.log", "1\n")
    stale = scan(str(logs.root))
    (logs.root / "app.log").rename(logs.root / "app.log.1")
    logs.write("app.log", "second\n")
    with monkeypatch.context() as patched:
        patched.setattr("headgate.sources.files.planner.scan", lambda *_: stale)
        assert logs.plan() == logs.at
    assert logs.drain() == ["second", "1"]  # both new to the stream, so by name


@pytest.mark.parametrize("after", ["x\n", "a new line that is longer than all before\n"])
def test_copytruncate_starts_at_the_begin(logs: Logs, after: str, caplog: pytest.LogCaptureFixture) -> None:
    """Also when the file has grown past the old position by the next look."""
    logs.write("app.log", "old 1\nold 2\n")
    assert logs.batch() == ["old 1", "old 2"]
    shutil.copy(logs.root / "app.log", logs.root / ".copy")
    logs.write("app.log", "", mode="wb")
    assert logs.drain() == []
    assert caplog.records == []
    logs.write("app.log", after)
    assert logs.drain() == [after.strip()]
    assert "truncated" in caplog.text


def test_an_inode_that_is_used_again(logs: Logs) -> None:
    path = logs.write("a.log", "first file\n")
    assert logs.batch() == ["first file"]
    logs.write("a.log", "", mode="wb")
    path.rename(logs.root / "b.log")
    logs.write("b.log", "another file\nwith two lines\n")
    assert logs.drain() == ["another file", "with two lines"]


def test_the_read_limit_holds(logs: Logs) -> None:
    logs.write("a.log", "".join(f"line {i:03}\n" for i in range(100)))
    sizes = []
    while (end := logs.plan(95)) != logs.at:
        sizes.append(len(logs.rows(logs.at, end)))
        logs.at = end
    assert sizes == [10] * 10


def test_everything_at_once_ignores_the_limits(tmp_path: Path) -> None:
    logs = Logs(tmp_path, maxFilesPerTrigger="1", maxBytesPerTrigger="1")
    for name in "abc":
        logs.write(name, f"{name}\n{name}\n")
    end = logs.reader.latestOffset(logs.at, ReadAllAvailable())
    assert len(logs.rows(logs.at, end)) == 6
    assert logs.batch() == ["a", "a"]  # one file


def test_a_run_that_ends_reads_nothing_later(logs: Logs) -> None:
    logs.write("a.log", "1\n")
    logs.reader.prepareForTriggerAvailableNow()
    logs.write("a.log", "2\n")
    logs.write("b.log", "3\n")
    assert logs.drain() == ["1"]
    logs.restart()
    assert logs.drain() == ["2", "3"]


def test_a_line_longer_than_a_batch_and_one_that_is_too_long(tmp_path: Path) -> None:
    logs = Logs(tmp_path, maxLineBytes="100000")
    logs.write("a.log", "x" * 70_000 + "\nshort\n")
    assert [len(line) for line in logs.batch(10)] == [70_000]
    logs.write("a.log", "y" * 200_000)
    assert logs.batch(10) == ["short"]
    with pytest.raises(DataError, match="longer than 100000"):
        logs.batch(10)


def test_hostile_bytes(logs: Logs) -> None:
    logs.write("a.log", b"\xff\xfe broken\n\x00nul\r\n\n\xe2\x82\nschoen \xc3\xb6\n")
    assert logs.batch() == ["\ufffd\ufffd broken", "\x00nul", "", "\ufffd", "schoen ö"]


def test_many_files_and_a_small_offset(logs: Logs) -> None:
    for i in range(100):
        logs.write(f"{i:03}.log", f"{i}\n")
    assert logs.drain(max_bytes=64) == [str(i) for i in range(100)]
    assert len(str(logs.at)) < 5000
    for path in logs.root.iterdir():
        path.unlink()
    logs.write("z.log", "last\n")
    assert logs.batch() == ["last"]
    assert logs.plan() == logs.at
    assert (Path(logs.more["directory"]) / "files.json").stat().st_size < 400  # files that are gone are forgotten


def test_gzip_files_are_read_whole(logs: Logs) -> None:
    text = "".join(f"line {i}\n" for i in range(1000)) + "no newline"
    logs.write("a.gz", gzip.compress(text.encode()))
    logs.write("b.log", "plain\n")
    end = logs.plan()
    rows = logs.rows(logs.at, end)
    assert [row["value"] for row in rows] == [*text.split("\n"), "plain"]
    assert [row["_position"] for row in rows] == sorted({row["_position"] for row in rows})
    logs.at = end
    assert logs.drain() == []


@pytest.mark.parametrize(
    "data",
    [gzip.compress(b"x\n" * 1000, mtime=0)[:-9], b"no gzip at all", b"\x1f\x8b\x08" + b"\xff" * 50],
    ids=["cut off", "no gzip", "noise"],
)
def test_a_damaged_gzip_file_is_named(logs: Logs, data: bytes) -> None:
    logs.write("a.gz", data)
    with pytest.raises(DataError, match="damaged") as caught:
        logs.batch()
    assert caught.value.where.endswith("a.gz")


def test_header_lines_are_no_rows(tmp_path: Path) -> None:
    logs = Logs(tmp_path, skipHeader="true")
    logs.write("a.csv", "name\nx\n")
    logs.write("b.csv", "name\n")
    logs.write("c.csv.gz", gzip.compress(b"name\nz\n"))
    assert logs.drain() == ["x", "z"]
    logs.write("b.csv", "y\n")
    assert logs.drain() == ["y"]


def test_start_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("old\npart")
    logs = Logs(tmp_path, startAt="end")
    assert logs.drain() == []
    logs.write("a.log", "ial\n")
    logs.write("b.log", "new\n")
    logs.restart()
    assert logs.drain() == ["partial", "new"]


def test_finished_files_and_their_last_line(tmp_path: Path) -> None:
    logs = Logs(tmp_path, finishedAfterMs="60000")
    age(logs.write("a.log", "1\nlast"))
    logs.write("b.log", "1\npartial")
    assert logs.drain() == ["1", "last", "1"]


def test_finished_files_are_removed_after_delivery_only(tmp_path: Path) -> None:
    logs = Logs(tmp_path, finishedAfterMs="60000", deleteAfterRead="true")
    old = logs.write("a.log", "1\n")
    age(old)
    young = logs.write("b.log", "2\n")
    end = logs.plan()
    logs.rows(logs.at, end)
    assert old.exists()
    source = FilesSource("logs", FileRows("text"), logs.more, "o")
    assert source.mode() == DESTRUCTIVE_POLLING
    source.commit(end)
    source.commit(end)
    assert not old.exists()
    logs.at = end
    age(young)
    logs.drain()  # a batch without rows that marks the end, then the removal
    assert not young.exists()


def test_a_file_that_grew_after_it_was_finished_stays(tmp_path: Path) -> None:
    logs = Logs(tmp_path, finishedAfterMs="60000", deleteAfterRead="true")
    path = logs.write("a.log", "1\n")
    age(path)
    assert logs.batch() == ["1"]
    logs.write("a.log", "2\n")
    assert logs.batch() == ["2"]
    assert path.exists()


def test_lost_lines_stop_the_stream_or_not(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    path = logs.write("a.log", "1\n")
    end = logs.plan()
    path.unlink()
    with pytest.raises(StateError, match="is gone"):
        logs.rows(logs.at, end)
    logs.write("a.log", "x\n")
    with pytest.raises(StateError, match=r"is gone|replaced"):
        logs.rows(logs.at, end)
    logs.more["failOnDataLoss"] = "false"
    logs.restart()
    assert logs.rows(logs.at, end) == []


def test_parts_keep_the_order(tmp_path: Path) -> None:
    logs = Logs(tmp_path, minPartitions="3")
    for i in range(9):
        logs.write(f"{i}.log", f"{i}\n")
    end = logs.plan()
    assert len(logs.reader.partitions(logs.at, end)) == 3
    assert [row["value"] for row in logs.rows(logs.at, end)] == [str(i) for i in range(9)]


@pytest.mark.parametrize("damage", [b"", b"{", b'{"first_place": 1, "version": 9}'])
def test_a_damaged_index_is_an_error(logs: Logs, damage: bytes) -> None:
    (Path(logs.more["directory"]) / "files.json").write_bytes(damage)
    with pytest.raises(StateError, match="cannot be read"):
        logs.plan()


def test_an_index_of_another_time_is_an_error(logs: Logs) -> None:
    for i in range(3):
        logs.write("a.log", f"{i}\n")
        logs.batch()
    (Path(logs.more["directory"]) / "files.json").unlink()
    with pytest.raises(StateError, match="batch 0, the checkpoint at batch 3"):
        logs.plan()


@pytest.mark.parametrize(
    "options",
    [{"startAt": "middle"}, {"maxBytesPerTrigger": "0"}, {"deleteAfterRead": "true"}, {"pth": "x"}],
)
def test_bad_options(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        FileLinesOptions.from_spark({"path": "x", "directory": "y"} | options)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "rows",
    [FileRows("jsonl"), FileRows("csv"), FileRows("text", header=True), FileRows("xml")],  # type: ignore[arg-type]
)
def test_a_source_that_makes_no_sense(rows: FileRows) -> None:
    with pytest.raises(HeadgateError) as caught:
        FilesSource("logs", rows, {"path": "x", "directory": "y"}, "o")
    assert caught.value.remedy


def test_mode() -> None:
    assert FilesSource("logs", FileRows("text"), {"path": "x", "directory": "y"}, "o").mode() == POLLING
