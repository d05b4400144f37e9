"""Whatever is written in whatever pieces: every whole line comes once, in order, at the place it has in its file."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadMaxBytes

from headgate.model import StateError
from headgate.sources.files import lines as lines_module
from headgate.sources.files.datasource import FileLinesStreamReader
from headgate.sources.files.index import Index, Point, Range
from headgate.sources.files.options import FileLinesOptions

PIECES = st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=40)), max_size=12)


@settings(max_examples=40)
@given(PIECES, st.integers(1, 60), st.integers(1, 16))
def test_lines_of_growing_files(pieces: list[tuple[str, bytes]], max_bytes: int, chunk: int) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        patched.setattr(lines_module, "_CHUNK", chunk)
        root = Path(name)
        (root / "in").mkdir()
        found: dict[str, list[tuple[int, str]]] = {}
        positions: list[str] = []
        options = {"path": str(root / "in"), "directory": str(root / "index"), "pollIntervalMs": "0"}
        reader = FileLinesStreamReader(FileLinesOptions.from_spark(options))
        at = reader.initialOffset()
        for file, data in [*pieces, ("a", b"")]:
            with (root / "in" / file).open("ab") as opened:
                opened.write(data)
            while (end := reader.latestOffset(at, ReadMaxBytes(max_bytes))) != at:
                parts = [batch for part in reader.partitions(at, end) for batch in reader.read(part)]
                for row in pa.Table.from_batches(parts).to_pylist():
                    found.setdefault(Path(row["_file"]).name, []).append((row["_offset"], row["value"]))
                    positions.append(row["_position"])
                at = end
        for file in "abc":
            written = b"".join(data for each, data in pieces if each == file)
            assert found.get(file, []) == _expected(written)
        assert positions == sorted(set(positions))


def _expected(written: bytes) -> list[tuple[int, str]]:
    expected, at = [], 0
    for line in written.split(b"\n")[:-1]:
        expected.append((at, line.decode(errors="replace").removesuffix("\r")))
        at += len(line) + 1
    return expected


RANGES = st.lists(
    st.builds(
        Range,
        path=st.text(),
        device=st.integers(0, 2**63),
        inode=st.integers(0, 2**63),
        start=st.integers(0, 2**50),
        end=st.integers(0, 2**50),
        base=st.integers(0, 2**63),
        head_bytes=st.integers(0, 256),
        head=st.integers(0, 2**32 - 1),
        is_finished=st.booleans(),
    ),
    max_size=5,
)


@settings(max_examples=40)
@given(RANGES, st.integers(0, 2**40))
def test_offsets_and_index_survive_their_text(ranges: list[Range], batch: int) -> None:
    point = Point(batch, 2**62, tuple(ranges))
    assert Point.from_offset(point.to_offset()) == point
    index = Index(1).advance(point)
    with tempfile.TemporaryDirectory() as name:
        index.save(Path(name) / "index")
        assert Index.load(Path(name) / "index") == index


@given(st.dictionaries(st.sampled_from(["batch", "place", "ranges"]), st.integers() | st.text() | st.none()))
def test_foreign_offsets_are_refused(offset: dict[str, object]) -> None:
    with pytest.raises(StateError):
        Point.from_offset(offset)
