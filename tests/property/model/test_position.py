"""The text of a position sorts as the position does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import Position, ProtocolError

numbers = (st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
positions = st.builds(Position, *numbers, st.just(0))
of_postgres = st.builds(Position, *numbers, st.integers(1, 2**32 - 1))


@given(positions | of_postgres)
def test_round_trip(position: Position) -> None:
    assert Position.parse(str(position)) == position


@given(positions, positions)
def test_text_order_is_position_order(a: Position, b: Position) -> None:
    assert (str(a) < str(b)) == (a < b)


@given(of_postgres, of_postgres)
def test_a_later_timeline_sorts_behind_everything_of_an_earlier_one(a: Position, b: Position) -> None:
    assert (str(a) < str(b)) == ((a.timeline, a.major, a.ordinal) < (b.timeline, b.major, b.ordinal))


@given(st.text(max_size=40))
def test_other_text_is_refused_with_our_error(text: str) -> None:
    try:
        Position.parse(text)
    except ProtocolError:
        return
    assert "-" in text


@pytest.mark.parametrize("text", ["", "-", "0-0", "000000000000000G-00000000", "0" * 16, f"{'0' * 16}-0"])
def test_malformed(text: str) -> None:
    with pytest.raises(ProtocolError):
        Position.parse(text)
