"""Columns picked by compiled code are those that the reference sees."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.kernels.changes import RangeDecoder
from headgate.kernels.picked import PICKS_ABSENT, pick_column
from headgate.wire.envelope import Event, events
from headgate.wire.pgoutput import UNCHANGED, Message, Relation, encode_message
from tests.cdc.assembler import Assembler
from tests.property.cdc_decode.decode_strategies import CATALOG, ranges
from tests.property.cdc_decode.spooled import SYSTEM, spooled, transactions

Range = tuple[list[Relation], list[list[Message]]]


def reference_pick(event: Event, name: str) -> tuple[str | None, bool]:
    """The value, and whether it is absent."""
    names = [column.name for column in event.relation.columns] if event.relation else []
    if not event.data or name not in names:
        return None, False
    at = names.index(name)
    value = event.data[at]
    if value is UNCHANGED and event.old is not None:
        value = event.old[at]
    return (None, True) if value is UNCHANGED else (None if value is None else value.decode(), False)


@given(range_=ranges(), batch_rows=st.sampled_from([1, 3, 8192]), data=st.data())
def test_picks(range_: Range, batch_rows: int, data: st.DataObject) -> None:
    names = sorted({c.name for relation in range_[0] for c in relation.columns}) or ["none"]
    picks = data.draw(st.lists(st.sampled_from([*names, "nowhere"]), min_size=1, max_size=3, unique=True))
    relations, buffers = [encode_message(relation) for relation in range_[0]], [spooled(each) for each in range_[1]]
    decoder = RangeDecoder(
        origin=SYSTEM, relations=relations, types=CATALOG, batch_rows=batch_rows, picks=picks, images=True
    )
    rows = [row for batch in decoder.decode(buffers) for row in batch.to_pylist()]
    assembler = Assembler()
    assembler.relations.update({relation.relation_id: relation for relation in range_[0]})
    wanted = [e for buffer in buffers for done in transactions(buffer, assembler) for e in events(done)]
    assert len(rows) == len(wanted)
    for row, event in zip(rows, wanted, strict=True):
        expected = {name: reference_pick(event, name) for name in picks}
        assert {name: row[pick_column(name)] for name in picks} == {
            name: value for name, (value, _) in expected.items()
        }
        assert row[PICKS_ABSENT] == any(absent for _, absent in expected.values())
