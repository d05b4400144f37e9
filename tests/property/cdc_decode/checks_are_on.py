"""Run by `test_cdc_decode_bounds` in its own process: the checks it relies on are really there."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.kernels.changes import RangeDecoder
from headgate.wire.pgoutput import Begin
from headgate.wire.pgtypes import TypeCatalog
from tests.property.cdc_decode.spooled import spooled


@pytest.mark.parametrize("room", [3, 11])
def test_indexes_are_checked(room: int) -> None:
    """By the word, of which the first constant has one, and by the byte, which come behind it."""
    decoder = RangeDecoder(origin="s", relations=[], types=TypeCatalog())
    decoder._transaction = np.empty(room, dtype=np.uint8)
    with pytest.raises(IndexError):
        list(decoder.decode([spooled([Begin(1, 1, 1)])]))
