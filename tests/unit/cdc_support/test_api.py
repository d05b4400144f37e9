"""The names that other tests import."""

from __future__ import annotations

import tests.cdc


def test_every_public_name_is_there() -> None:
    assert all(hasattr(tests.cdc, name) for name in tests.cdc.__all__)
    assert len(set(tests.cdc.__all__)) == len(tests.cdc.__all__)
