"""The compiled walk against the reader in Python, record for record, on good bytes and bad."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from headgate.kernels.log.positions import Positions, walk
from headgate.model import ProtocolError
from headgate.wire.kafka import Record, encode_batch, read_batch_header
from headgate.wire.kafka.batch import HEADER_BYTES
from headgate.wire.kafka.records import _walk as read_slowly
from tests.property.commitlog.commitlog_strategies import record_lists


def numbers(elements: bytes, default: int, count: int) -> list[int]:
    """A binary array; every element has a length in front."""
    if not elements:
        return [default] * count
    pairs = np.frombuffer(elements, ">i4").reshape(count, 2)
    assert set(pairs[:, 0].tolist()) == {4}
    return [int(number) for number in pairs[:, 1]]


def times(positions: Positions) -> list[int]:
    if not positions.ts_far:
        return numbers(positions.ts_delta, 0, positions.count)
    table = np.frombuffer(positions.ts_far, np.dtype([("size", ">i4"), ("value", ">i8")]))
    assert set(table["size"].tolist()) == {8}
    return [int(number) for number in table["value"]]


def cut(section: bytes, start: int, size: int) -> bytes | None:
    return None if size < 0 else section[start : start + size]


@given(record_lists)
def test_positions_lead_to_the_records(records: list[Record]) -> None:
    section = encode_batch(records)[HEADER_BYTES:]
    positions = walk(section, len(records))
    assert positions is not None
    key_at = numbers(positions.key_at, 0, len(records))
    key_len = numbers(positions.key_len, -1, len(records))
    value_len = numbers(positions.value_len, -1, len(records))
    assert [cut(section, *place) for place in zip(key_at, key_len, strict=True)] == [record.key for record in records]
    assert value_len == [-1 if record.value is None else len(record.value) for record in records]
    assert times(positions) == [record.timestamp - records[0].timestamp for record in records]
    assert not positions.off_delta
    assert not positions.has_long_forms
    assert positions.has_null_keys == any(record.key is None for record in records)
    assert positions.has_odd_headers == any(not key.isascii() for record in records for key, _ in record.headers)


def is_readable(section: bytes, count: int) -> bool:
    header = read_batch_header(encode_batch([Record(index, 0) for index in range(count)]))
    try:
        list(read_slowly(header, section))
    except (ProtocolError, IndexError):
        return False
    except UnicodeDecodeError:  # text is looked at afterwards; what follows it may be damaged, too
        reject()
    return True


@settings(max_examples=100)
@given(record_lists, st.data())
def test_damage_is_seen_by_both(records: list[Record], data: st.DataObject) -> None:
    section = bytearray(encode_batch(records)[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(1, 3))):
        section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    section = section[: data.draw(st.integers(1, len(section)))]
    count = data.draw(st.integers(1, len(records) + 1))
    found = walk(bytes(section), count)
    if found is None or not found.off_delta:
        assert (found is not None) == is_readable(bytes(section), count)


@given(st.binary(min_size=1, max_size=200), st.integers(1, 50))
def test_garbage_is_not_records(section: bytes, count: int) -> None:
    assert (walk(section, count) is not None) <= is_readable(section, count)


@pytest.mark.skipif("NUMBA_BOUNDSCHECK" in os.environ, reason="this is the process with the checks")
def test_once_more_with_checked_indexes(pytestconfig: pytest.Config) -> None:
    """Compiled code does not check its indexes, so all of this runs once more where it does."""
    assert pytestconfig.cache is not None
    code = pytestconfig.cache.mkdir("commitlog-checked")
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(code)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__))]
    done = subprocess.run(
        command, env=environment, cwd=pytestconfig.rootpath, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "3 passed" in done.stdout
