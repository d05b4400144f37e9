"""Slots that others have made, and that cannot be read from."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from headgate.embedded import Endpoints
from headgate.model import StateError
from headgate.postgres import Connection, connect
from headgate.postgres.slot import slot_state


@pytest.fixture
def connection(endpoints: Endpoints) -> Iterator[Connection]:
    assert endpoints.postgres_url is not None
    with connect(endpoints.postgres_url) as opened:
        yield opened


@pytest.mark.parametrize("two_phase", [False, True])
def test_a_slot_of_two_phases_is_refused(connection: Connection, two_phase: bool) -> None:
    """Such a slot sends prepared transactions whether a reader asks for them or not."""
    name = f"t_{uuid4().hex[:12]}"
    connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput', false, %s)", [name, two_phase])
    try:
        if two_phase:
            with pytest.raises(StateError, match="two_phase") as caught:
                slot_state(connection, name)
            assert f"pg_drop_replication_slot('{name}')" in caught.value.remedy
        else:
            assert slot_state(connection, name) is not None
    finally:
        connection.execute("select pg_drop_replication_slot(%s)", [name])
