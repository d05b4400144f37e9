"""How a batch becomes visible: replays, other pipelines, damaged records, and trouble with the disk."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.destinations.base import Lane
from headgate.destinations.table import TableDestination, open_table
from headgate.destinations.table.files import Files, shown_path
from headgate.model import (
    AuthError,
    CapacityError,
    ConfigError,
    DataError,
    DeliveryError,
    HeadgateError,
    Position,
    StateError,
)


@pytest.fixture
def table(tmp_path: Path) -> TableDestination:
    destination = TableDestination("t", str(tmp_path / "table"))
    destination.ensure()
    return destination


def rows(first: int, count: int, topic: str = "a") -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {
            "_topic": pa.array([topic] * count),
            "_message_id": pa.array([f"db-{Position(number)}" for number in numbers]),
            "_payload": pa.array([b"%d" % number for number in numbers], pa.binary()),
        }
    )


def stage(table: TableDestination, *batches: pa.RecordBatch, lane: Lane) -> list[dict[str, Any]]:
    with table.open(lane) as sender:
        for batch in batches:
            sender.send(batch)
        return list(sender.finish().reports)


def numbers(table: TableDestination) -> list[int]:
    return sorted(int(payload) for payload in open_table(table.path).to_table().column("payload").to_pylist())


def files(table: TableDestination) -> list[str]:
    """What a reader that ignores the records of batches would find."""
    return sorted(str(path.relative_to(table.path)) for path in Path(table.path).glob("stream=*/topic=*/*"))


def leftovers(table: TableDestination) -> list[Path]:
    root = Path(table.path)
    return [*root.glob("_staging/*"), *root.glob("_batches/*.intent"), *root.glob("_batches/*.new")]


def test_files_of_several_tasks_make_a_batch(table: TableDestination) -> None:
    reports = stage(table, rows(0, 5), rows(5, 5, "b"), lane=Lane(batch_id=3, task=0))
    reports += stage(table, rows(10, 5), lane=Lane("s", batch_id=3, task=1))
    assert files(table) == []
    table.complete(3, reports)
    assert numbers(table) == list(range(15))
    assert [name.rpartition("-")[0].rpartition("-")[0] for name in files(table)] == [
        "stream=__HIVE_DEFAULT_PARTITION__/topic=a/part-0000000003-00000",
        "stream=__HIVE_DEFAULT_PARTITION__/topic=b/part-0000000003-00000",
        "stream=s/topic=a/part-0000000003-00001",
    ]
    assert leftovers(table) == []


def test_what_an_attempt_left_behind_is_removed(table: TableDestination) -> None:
    stage(table, rows(0, 5), lane=Lane(batch_id=0))
    table.complete(0, stage(table, rows(0, 5), lane=Lane(batch_id=0)))
    assert numbers(table) == list(range(5))
    assert len(files(table)) == 1
    assert leftovers(table) == []


def test_completing_twice_changes_nothing(table: TableDestination) -> None:
    reports = stage(table, rows(0, 5), lane=Lane(batch_id=0))
    table.complete(0, reports)
    before = files(table)
    table.complete(0, reports)
    table.complete(0, stage(table, rows(0, 2), rows(2, 3), lane=Lane(batch_id=0)))
    assert files(table) == before


def test_a_replay_by_other_routes_replaces_the_batch(table: TableDestination) -> None:
    table.complete(0, stage(table, rows(0, 5), lane=Lane(batch_id=0)))
    table.complete(0, stage(table, rows(0, 2), rows(2, 3, "b"), lane=Lane(batch_id=0)))
    assert numbers(table) == list(range(5))
    assert [name.split("/")[1] for name in files(table)] == ["topic=a", "topic=b"]


def test_other_rows_under_the_same_number_are_refused(table: TableDestination) -> None:
    table.complete(0, stage(table, rows(0, 5), lane=Lane(batch_id=0)))
    with pytest.raises(StateError, match="other rows as batch 0") as raised:
        table.complete(0, stage(table, rows(5, 5), lane=Lane(batch_id=0)))
    assert "of its own" in raised.value.remedy
    assert numbers(table) == list(range(5))


def test_dead_letters_are_batches_of_their_own(table: TableDestination) -> None:
    table.complete(0, stage(table, rows(0, 5), lane=Lane(batch_id=0)))
    for first in (10, 20):
        staged = stage(table, rows(first, 1), lane=Lane(is_late=True))
        table.complete(-1, staged)
        table.complete(-1, staged)
    table.complete(-1, [])
    assert numbers(table) == [0, 1, 2, 3, 4, 10, 20]
    assert leftovers(table) == []


def test_an_empty_batch_leaves_nothing(table: TableDestination) -> None:
    table.complete(0, stage(table, rows(0, 0), lane=Lane(batch_id=0)))
    assert list(Path(table.path).glob("**/*.*")) == []
    assert numbers(table) == []


def test_a_file_that_is_gone(table: TableDestination) -> None:
    reports = stage(table, rows(0, 5), lane=Lane(batch_id=0))
    Path(table.path, reports[0]["staged"]).unlink()
    with pytest.raises(StateError, match="is gone"):
        table.complete(0, reports)
    table.complete(0, stage(table, rows(0, 5), lane=Lane(batch_id=0)))
    assert numbers(table) == list(range(5))


def test_completing_goes_on_where_it_failed(table: TableDestination, tmp_path: Path) -> None:
    reports = stage(table, rows(0, 5), rows(5, 5, "b"), lane=Lane(batch_id=0))
    second = Path(table.path, reports[1]["staged"])
    second.rename(tmp_path / "away")
    with pytest.raises(StateError):
        table.complete(0, reports)
    assert numbers(table) == []
    (tmp_path / "away").rename(second)
    table.complete(0, reports)
    assert numbers(table) == list(range(10))
    assert leftovers(table) == []


def test_a_lane_left_with_an_error_leaves_no_file(table: TableDestination) -> None:
    def leave() -> None:
        with table.open(Lane(batch_id=0)) as sender:
            sender.send(rows(0, 5))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert list(Path(table.path).glob("**/*.parquet")) == []


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"null", b'{"version": 2}', b'{"version": 1, "files": [{}]}', b"\xff", b"[" * 100_000],
    ids=range(7),
)
def test_a_damaged_record_is_refused(table: TableDestination, damage: bytes) -> None:
    Path(table.path, "_batches/0000000000.json").write_bytes(damage)
    with pytest.raises(StateError, match="not a record"):
        open_table(table.path)


def test_reports_of_somebody_else_are_refused(table: TableDestination) -> None:
    with pytest.raises(StateError, match="not a report"):
        table.complete(0, [{"dictionary": 1}])


def test_names_that_cannot_be_directories_are_refused_before_anything_is_written(table: TableDestination) -> None:
    with pytest.raises(DataError), table.open() as sender:
        sender.send(rows(0, 1, "x" * 300))
    assert list(Path(table.path).glob("**/*.parquet")) == []


def test_a_place_that_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeliveryError) as raised:
        TableDestination("t", str(tmp_path / "file" / "table")).ensure()
    assert raised.value.where == str(tmp_path / "file" / "table")


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, CapacityError), (errno.EACCES, AuthError), (errno.EIO, DeliveryError)]
)
def test_trouble_with_the_disk(tmp_path: Path, number: int, kind: type[HeadgateError]) -> None:
    with pytest.raises(kind) as raised, Files(str(tmp_path)).errors():
        raise OSError(number, "no")
    assert raised.value.remedy


def test_credentials_in_the_path_are_not_shown() -> None:
    assert shown_path("s3://key:secret@bucket/a?region=x") == "s3://bucket/a"
    assert "secret" not in repr(TableDestination("t", "s3://key:secret@bucket/a"))


def test_a_file_system_that_nobody_knows() -> None:
    with pytest.raises(ConfigError, match="no file system"):
        TableDestination("t", "nowhere://me:secret@host/a").ensure()


def test_a_url_of_a_local_directory(tmp_path: Path) -> None:
    table = TableDestination("t", (tmp_path / "table").as_uri())
    table.complete(0, stage(table, rows(0, 3), lane=Lane(batch_id=0)))
    assert numbers(table) == [0, 1, 2]
    assert json.loads((tmp_path / "table/_batches/0000000000.json").read_text())["rows"] == 3
