"""Batches of all sorts."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from headgate.wire.kafka import Codec, Record

NOW_MS = 1_750_000_000_000

_blobs = st.one_of(
    st.none(), st.binary(max_size=80), st.sampled_from([b"", b"x" * 63, b"x" * 64, b"y" * 8191, b"z" * 8192])
)
_headers = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "ключ"]), st.one_of(st.none(), st.binary(max_size=9))), max_size=4
)
_times = st.one_of(st.integers(-1, 10), st.integers(-(2**33), 2**33))

codecs = st.sampled_from(list(Codec))
records = st.builds(
    Record,
    offset=st.just(0),
    timestamp=_times.map(lambda delta: NOW_MS + delta),
    key=_blobs,
    value=_blobs,
    headers=_headers.map(tuple),
)


def numbered(items: list[Record]) -> list[Record]:
    return [msgspec.structs.replace(record, offset=index) for index, record in enumerate(items)]


record_lists = st.lists(records, min_size=1, max_size=12).map(numbered)
