"""Columns become the batches that Kafka's own rules ask for."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.commitlog.prepare import Rules, prepare
from headgate.kernels.log.encode import encode_columns
from headgate.wire.kafka import read_batch_header, read_records

texts = st.binary(max_size=300)
rows = st.lists(st.tuples(texts | st.none(), texts | st.none(), st.text(max_size=20)), min_size=1, max_size=50)
constants = st.lists(st.tuples(st.text(max_size=5), texts), max_size=2)


@given(rows, constants, st.integers(62, 2000), st.integers(0, 5), st.booleans())
def test_columns_are_read_back(
    given_rows: list[tuple[bytes | None, bytes | None, str]],
    further: list[tuple[str, bytes]],
    max_bytes: int,
    skipped: int,
    has_keys: bool,
) -> None:
    kept = given_rows[skipped:]
    values, keys, ids = (
        pa.array([row[n] for row in given_rows], kind).slice(skipped)
        for n, kind in ((0, pa.binary()), (1, pa.binary()), (2, pa.string()))
    )
    batches = list(
        encode_columns(
            values,
            keys if has_keys else None,
            ids,
            id_header="id",
            constant_headers=further,
            timestamp=1_700_000_000_000,
            max_bytes=max_bytes,
        )
    )
    for batch in batches:
        (found,) = prepare(batch, Rules(max_bytes=10**9, after_max_ms=10**15))  # also checks sum and lengths
        assert found.count == 1 or len(batch) <= max_bytes
        assert read_batch_header(batch).last_offset_delta == found.count - 1
    records = [record for batch in batches for record in read_records(batch)]
    assert [(each.value, each.key, each.headers) for each in records] == [
        (value, key if has_keys else None, (("id", id_.encode()), *further)) for value, key, id_ in kept
    ]
    assert {each.timestamp for each in records} <= {1_700_000_000_000}
