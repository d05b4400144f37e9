"""Whatever a row calls its stream and topic, its directory lies in the table and can be read back."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from headgate.destinations.table.names import NO_STREAM, partition_dir, read_partition_dir
from headgate.model import DataError

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(st.none() | _TEXT, _TEXT)
@example("..", "../../etc/passwd")
@example(None, "a=b/c=d%2f\x00\n")
def test_names_stay_in_the_table_and_come_back(stream: str | None, topic: str) -> None:
    assume(NO_STREAM not in (stream, topic))
    assert read_partition_dir(f"{partition_dir(stream, topic, has_streams=False)}/x") == (stream, topic)
    directory = partition_dir(stream, topic)
    parts = PurePosixPath(directory).parts
    assert len(parts) == 2
    assert parts[0].startswith("stream=")
    assert parts[1].startswith("topic=")
    assert all(character.isprintable() or ord(character) > 127 for character in directory)
    assert read_partition_dir(directory) == (stream, topic)


@pytest.mark.parametrize("name", ["", NO_STREAM, "x" * 250, "ü" * 130, "/" * 84])
def test_names_that_cannot_be_directories(name: str) -> None:
    with pytest.raises(DataError, match="not a name"):
        partition_dir(None, name)
