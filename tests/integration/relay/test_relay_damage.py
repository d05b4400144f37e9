"""A relay whose log is damaged: it finds out by itself, and consumers that replay past it are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.eventlog import LogOptions
from headgate.wire.atproto import Info, Kind, read_event
from tests.integration.relay.relay_follow import eventually, run
from tests.integration.relay.relay_serving import Served, commits, frames, kinds, serving

SMALL = LogOptions(segment_events=10)


def harm(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)


async def inspected(served: Served, rounds: int = 1) -> None:
    await eventually(lambda: served.relay.parts.inspection.rounds >= rounds)


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damage_is_found_at_the_start_and_told_to_who_replays(tmp_path: Path, damage: str) -> None:
    async def test() -> None:
        async with serving(tmp_path, log=SMALL) as served:
            assert await served.feed(*commits(35)) == list(range(1, 36))
            await inspected(served)
            assert "headgate_relay_log_damaged_places 0.0" in (await served.client.get("/metrics")).text
        segment = tmp_path / "log" / "evts-11"
        if damage == "changed":
            harm(segment, 100)
        else:
            segment.unlink()
        lost = 1 if damage == "changed" else 10
        async with serving(tmp_path, log=SMALL) as served:
            await inspected(served)
            assert "headgate_relay_log_damaged_places 1.0" in (await served.client.get("/metrics")).text
            log = (await served.get("/admin/status"))["log"]
            assert log["damage"] == [f"events between 10 and {11 + lost} cannot be read"]
            async with served.subscribe("?cursor=0") as consumer:
                found = await frames(consumer, 35 - lost + 1)
            assert kinds(found).count(Kind.INFO) == 1
            info = read_event(next(each for each in found if each.kind is Kind.INFO))
            assert isinstance(info, Info)
            assert (info.name, info.message) == ("DamagedLog", log["damage"][0])
            numbers = [each.seq for each in found if each.kind is Kind.COMMIT]
            assert numbers == [n for n in range(1, 36) if not 10 < n < 11 + lost]
            assert await served.feed(*commits(1, "bob")) == [36]  # and it goes on

    run(test())
