"""A slot on its way to being lost is seen before it is."""

from __future__ import annotations

import pytest

from headgate.postgres import connect
from headgate.postgres.slot import SlotState, slot_state
from headgate.sources.postgres_cdc.slot_monitor import SlotMonitor, level
from tests.integration.cdc.conftest import Admin, every_version
from tests.integration.cdc.watching import Start, wait_until

pytestmark = pytest.mark.timeout(120)


def seen(retained: int, safe: int | None, wal_status: str = "reserved") -> SlotState:
    return SlotState("s", 0, None, wal_status, 0, retained, safe_wal_bytes=safe)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (seen(0, None), "ok"),
        (seen(600 << 20, None), "warning"),
        (seen(2 << 30, None), "critical"),
        (seen(2 << 30, 98 << 30), "ok"),  # of a hundred gigabytes that the server grants
        (seen(5 << 20, 5 << 20), "warning"),
        (seen(9 << 20, 1 << 20), "critical"),
        (seen(9 << 20, -1), "critical"),
        (seen(1, 1 << 30, "unreserved"), "critical"),
    ],
)
def test_level(state: SlotState, expected: str) -> None:
    assert level(state) == expected


@every_version
def test_the_servers_limit_is_seen(admin: Admin, reader: Start, url: str) -> None:
    process = reader()
    process.ensure()
    process.stop()
    admin.execute("alter system set max_slot_wal_keep_size = '48MB'")
    admin.execute("select pg_reload_conf()")
    try:
        for _ in range(2):
            admin.execute("insert into t select g, repeat('x', 500) from generate_series(1, 40000) g")
            admin.execute("delete from t")
        with connect(url) as connection:
            state = slot_state(connection, "s")
        assert state is not None
        assert state.safe_wal_bytes is not None
        assert level(state) in ("warning", "critical")
        monitor = SlotMonitor(url, "s")
        wait_until(lambda: monitor.look().get("slot_level") in ("warning", "critical"))
        assert monitor.look()["slot_safe_wal_bytes"] is not None
    finally:
        admin.execute("alter system reset max_slot_wal_keep_size")
        admin.execute("select pg_reload_conf()")


def test_a_server_that_refuses_to_tell_does_not_end_the_watch(
    admin: Admin, reader: Start, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the server answers: the look after the next is as good as the first, and an old one is not kept."""
    monkeypatch.setattr("headgate.sources.postgres_cdc.slot_monitor._INTERVAL_S", 0.1)
    reader().ensure()
    monitor = SlotMonitor(url, "s")
    wait_until(lambda: "slot_level" in monitor.look())
    admin.execute("revoke select on pg_replication_slots from public")
    try:
        wait_until(lambda: "slot_error" in monitor.look())
        assert "slot_level" not in monitor.look()
        assert monitor.look()["slot_error"]["kind"] == "auth"
    finally:
        admin.execute("grant select on pg_replication_slots to public")
    wait_until(lambda: "slot_level" in monitor.look())
