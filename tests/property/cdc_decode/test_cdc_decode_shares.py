"""Shares of a range: together they are all of it, each in its order, and what must stay in order is in one of them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.kernels.changes import Share, needs_one_task
from headgate.wire.pgoutput import (
    Begin,
    Delete,
    Insert,
    Message,
    OldKind,
    OldRow,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    Truncate,
    Update,
    encode_message,
)
from tests.property.cdc_decode.decode_strategies import CATALOG, ranges
from tests.property.cdc_decode.spooled import fast_batches, fast_rows, framed, spooled

Range = tuple[list[Relation], list[list[Message]]]

ITEM = Relation(
    7,
    "public",
    "item",
    ReplicaIdentity.DEFAULT,
    (RelationColumn(True, "id", 25, -1), RelationColumn(False, "note", 25, -1)),
)


@pytest.mark.parametrize("form", ["msgpack", "json", "debezium"])
@settings(max_examples=30)
@given(range_=ranges(), count=st.integers(2, 5), by_key=st.booleans(), batch_rows=st.sampled_from([1, 8192]))
def test_together_they_are_all_in_order(form: str, range_: Range, count: int, by_key: bool, batch_rows: int) -> None:
    relations, buffers = [encode_message(relation) for relation in range_[0]], [spooled(each) for each in range_[1]]

    def rows(share: Share) -> list[dict[str, Any]]:
        return fast_rows(
            fast_batches(buffers, relations, types=CATALOG, form=form, batch_rows=batch_rows, share=share)  # type: ignore[arg-type]
        )

    whole = rows(Share())
    shares = [rows(Share(number, count, by_key)) for number in range(count)]
    left = [list(each) for each in shares]
    for row in whole:  # ids may come twice in what is generated, so rows are taken from the front of a share
        owners = [each for each in left if each and each[0] == row]
        assert owners, f"{row} is in no share, or behind one that comes later"
        owners[0].pop(0)
    assert not any(left)


@given(
    keys=st.lists(st.binary(min_size=1, max_size=4).map(bytes.hex), min_size=1, max_size=30),
    count=st.integers(2, 4),
)
def test_a_key_is_in_one_share(keys: list[str], count: int) -> None:
    messages: list[Message] = [Begin(9, 1, 3)]
    for key in keys:
        value = key.encode()
        messages.append(Insert(7, (value, b"a")))
        messages.append(Update(7, None, (value, b"b")))
        messages.append(Delete(7, OldRow(OldKind.KEY, (value, None))))
    shares_of: dict[str, set[int]] = defaultdict(set)
    buffer, relation = spooled(messages), encode_message(ITEM)
    for number in range(count):
        share: Any = Share(number, count, by_key=True)
        for row in fast_rows(
            fast_batches([buffer], [relation], types=CATALOG, form="json", share=share, images=True), images=True
        ):
            shares_of[row["_key"]].add(number)
    assert set(map(len, shares_of.values())) == {1}


def test_keys_are_spread() -> None:
    messages: list[Message] = [Begin(9, 1, 3), *(Insert(7, (b"%d" % number, b"a")) for number in range(10_000))]
    buffer, relation = spooled(messages), encode_message(ITEM)
    for number in range(4):
        share: Any = Share(number, 4, by_key=True)
        rows = sum(batch.num_rows for batch in fast_batches([buffer], [relation], types=CATALOG, share=share))
        assert 2300 < rows < 2700


UPDATE = Update(7, None, (b"1", b"b"))
MOVE = Update(7, OldRow(OldKind.KEY, (b"1", None)), (b"2", b"b"))
FULL = Update(7, OldRow(OldKind.ROW, (b"1", b"a")), (b"1", b"b"))


@pytest.mark.parametrize(
    ("message", "by_table", "by_key"),
    [
        (Insert(7, (b"1", b"a")), False, False),
        (UPDATE, False, False),
        (FULL, False, False),
        (MOVE, False, True),
        (Truncate((7,), False, False), False, True),
    ],
)
def test_what_is_about_several_shares(message: Message, by_table: bool, by_key: bool) -> None:
    source = np.frombuffer(spooled([Begin(9, 1, 3), UPDATE, message, UPDATE]), np.uint8)
    assert needs_one_task(source, by_key=False) == by_table
    assert needs_one_task(source, by_key=True) == by_key


def test_a_description_comes_before_all_rows_of_its_table() -> None:
    frame = b"H" + b"whatever"
    source = np.frombuffer(framed([frame, encode_message(Begin(9, 1, 3))]), np.uint8)
    assert needs_one_task(source, by_key=False)
    assert needs_one_task(source, by_key=True)


@given(noise=st.binary(max_size=200))
def test_nonsense_is_left_to_the_walk(noise: bytes) -> None:
    assert needs_one_task(np.frombuffer(noise, np.uint8), by_key=True) in (True, False)
