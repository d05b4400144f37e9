"""Every column and every byte of the fast decoder is that of the reference."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import DataError, ProtocolError
from headgate.wire.envelope import TABLE_SUBJECT
from headgate.wire.pgoutput import Message, Relation, encode_message
from tests.property.cdc_decode.decode_strategies import CATALOG, ranges
from tests.property.cdc_decode.spooled import IMAGES, fast_batches, fast_rows, reference_rows, spooled

Range = tuple[list[Relation], list[list[Message]]]
FORMATS = ["msgpack", "json", "debezium"]


def without_images(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in IMAGES} for row in rows]


@pytest.mark.parametrize("form", FORMATS)
@given(range_=ranges(), batch_rows=st.sampled_from([1, 2, 3, 8192]), subject=st.sampled_from(["{op}", TABLE_SUBJECT]))
def test_all_columns(form: str, range_: Range, batch_rows: int, subject: str) -> None:
    relations, buffers = [encode_message(relation) for relation in range_[0]], [spooled(each) for each in range_[1]]
    arguments: dict[str, Any] = {"types": CATALOG, "form": form, "subject": subject}
    batches = fast_batches(buffers, relations, batch_rows=batch_rows, **arguments)
    wanted = reference_rows(buffers, relations, **arguments)
    assert fast_rows(batches) == without_images(wanted)
    assert all(batch.num_rows <= batch_rows for batch in batches)


@given(range_=ranges(), batch_bytes=st.sampled_from([1, 700, 5000]))
def test_images_and_small_buffers(range_: Range, batch_bytes: int) -> None:
    relations, buffers = [encode_message(relation) for relation in range_[0]], [spooled(each) for each in range_[1]]
    batches = fast_batches(buffers, relations, types=CATALOG, images=True, batch_bytes=batch_bytes)
    assert fast_rows(batches, images=True) == reference_rows(buffers, relations, types=CATALOG)


@given(range_=ranges())
def test_debezium(range_: Range) -> None:
    relations, buffers = [encode_message(relation) for relation in range_[0]], [spooled(each) for each in range_[1]]
    batches = fast_batches(buffers, relations, types=CATALOG, form="debezium", images=True)
    wanted = reference_rows(buffers, relations, types=CATALOG, form="debezium")
    assert fast_rows(batches, images=True) == wanted


@pytest.mark.parametrize("form", FORMATS)
@given(range_=ranges(odd=True), batch_rows=st.sampled_from([1, 8192]))
def test_odd_values_are_refused_as_the_reference_does(form: str, range_: Range, batch_rows: int) -> None:
    relations, buffers = [encode_message(relation) for relation in range_[0]], [spooled(each) for each in range_[1]]
    rows: list[dict[str, Any]] | None = None
    with contextlib.suppress(ProtocolError, DataError):
        rows = reference_rows(buffers, relations, types=CATALOG, form=form, images=False)
    if rows is None:
        with pytest.raises((ProtocolError, DataError)):
            fast_batches(buffers, relations, types=CATALOG, form=form, batch_rows=batch_rows)
    else:
        batches = fast_batches(buffers, relations, types=CATALOG, form=form, batch_rows=batch_rows)
        assert fast_rows(batches) == rows
