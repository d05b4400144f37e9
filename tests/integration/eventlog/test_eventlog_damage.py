"""Damage to a log: replay goes on behind it, whoever listens is told, and it can be checked and repaired."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli.eventlog import eventlog
from headgate.eventlog import Entry, LogOptions, LogReader, LogWriter
from headgate.eventlog.check import check_log, repair_log
from headgate.eventlog.fanout import FanOutOptions
from headgate.eventlog.inspection import Inspection
from headgate.model import OccupiedError, StateError
from headgate.runtime.ending import end
from tests.integration.eventlog.served_log import in_loop, live

SMALL = LogOptions(segment_events=10)


def written(path: Path, count: int = 50) -> None:
    with LogWriter(path, SMALL) as writer:
        writer.append_all([Entry(1, number % 3, b"%05d" % number * 20) for number in range(count)])


def harm(path: Path, name: str, offset: int = 300) -> None:
    data = bytearray((path / name).read_bytes())
    data[offset] ^= 0xFF
    (path / name).write_bytes(data)


def replayed(path: Path) -> tuple[list[int], list[tuple[int, int]]]:
    found: list[int] = []
    with LogReader(path) as reader, reader.cursor(0) as cursor:
        while records := cursor.read():
            found += [record.seq for record in records]
        return found, [(damage.after, damage.before) for damage in cursor.damage]


@in_loop
async def test_listeners_are_told_and_the_rest_is_replayed(tmp_path: Path) -> None:
    async with live(tmp_path, FanOutOptions(ring=1), log_options=SMALL) as served:
        await served.publish(30)
        harm(tmp_path, "evts-11")
        async with served.connect("?cursor=0") as client:
            said = [json.loads(await client.recv()) for _ in range(30)]
        numbers = [each["seq"] for each in said if "seq" in each]
        assert (len(set(numbers)), sorted(numbers)) == (29, numbers)
        [note] = [each for each in said if "info" in each]
        assert note["info"] == "DamagedLog"


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait for what tells nobody that it has happened."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@in_loop
async def test_damage_that_comes_later_is_found_and_what_is_mended_forgotten(tmp_path: Path) -> None:
    written(tmp_path)
    inspection = Inspection(tmp_path, share=1.0, round_s=0.01)
    running = asyncio.create_task(inspection.run())

    async def until(*places: tuple[int, int]) -> None:
        await eventually(lambda: [(each.after, each.before) for each in inspection.damage] == list(places))

    await eventually(lambda: inspection.rounds > 0)
    await until()
    sound = (tmp_path / "evts-11").read_bytes()
    harm(tmp_path, "evts-11")
    await until((12, 14))
    (tmp_path / "evts-31").unlink()
    await until((12, 14), (30, 41))
    (tmp_path / "evts-11").write_bytes(sound)
    await until((30, 41))
    (tmp_path / "head").rename(tmp_path / "away")
    await eventually(lambda: inspection.problem != "")
    await end(running)


def test_a_repair_saves_what_is_sound_and_says_what_is_lost(tmp_path: Path) -> None:
    written(tmp_path)
    assert check_log(tmp_path).is_sound
    harm(tmp_path, "evts-11")
    (tmp_path / "evts-31").unlink()
    before = replayed(tmp_path)
    assert before == ([n for n in range(1, 51) if n != 13 and not 30 < n <= 40], [(12, 14), (30, 41)])
    report = check_log(tmp_path)
    assert [(each.after, each.before) for each in report.damage] == [(12, 14), (30, 41)]
    assert (report.segments, report.records) == (4, 39)
    assert repair_log(tmp_path) == report
    for _ in range(2):
        assert replayed(tmp_path) == before  # the same, and no less told
        with LogWriter(tmp_path, SMALL) as writer:
            assert writer.scrub(lambda record: record.seq == 15) in (0, 1)
        before = ([n for n in before[0] if n != 15], before[1])
        repair_log(tmp_path)
    assert (tmp_path / "damaged-evts-11").exists()
    with LogWriter(tmp_path, SMALL) as writer:
        assert writer.append_all([Entry(1, 1, b"x")]) == [51]


def test_only_one_may_repair_and_only_a_log(tmp_path: Path) -> None:
    written(tmp_path / "log", 5)
    with LogWriter(tmp_path / "log"), pytest.raises(OccupiedError):
        repair_log(tmp_path / "log")
    with pytest.raises(StateError, match="no event log"):
        check_log(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_check_exits_with_1_and_names_the_place(tmp_path: Path) -> None:
    written(tmp_path)
    runner = CliRunner()
    assert runner.invoke(eventlog, ["check", "--path", str(tmp_path)]).exit_code == 0
    harm(tmp_path, "evts-21", 0)
    found = runner.invoke(eventlog, ["check", "--path", str(tmp_path), "--json"])
    assert found.exit_code == 1
    [damage] = json.loads(found.stdout)["damage"]
    assert (damage["offset"], damage["after"], damage["before"]) == (0, 20, 22)
    assert runner.invoke(eventlog, ["repair", "--path", str(tmp_path)]).exit_code == 0
    assert "between 20 and 22" in runner.invoke(eventlog, ["check", "--path", str(tmp_path)]).stdout


def test_whatever_is_done_to_the_files_a_repair_leaves_a_log_that_can_be_read(tmp_path: Path) -> None:
    chance = random.Random(7)
    for number in range(40):
        path = tmp_path / str(number)
        written(path, 35)
        for _ in range(chance.randint(1, 3)):
            file = chance.choice(sorted(path.glob("evts-*"))[:-1])
            data = bytearray(file.read_bytes())
            place, size = chance.randrange(len(data)), chance.choice([1, 8, 200])
            match chance.randrange(3):
                case 0:
                    data[place : place + size] = chance.randbytes(size)
                case 1:
                    del data[place : place + size]
                case _:
                    data[place:place] = bytes(size)
            file.write_bytes(data)
        found, damage = replayed(path)
        assert found == sorted(set(found))
        assert found[-5:] == [31, 32, 33, 34, 35]
        for lost in set(range(1, 36)) - set(found):
            assert any(after < lost < before for after, before in damage), (number, lost, damage)
        repair_log(path)
        again, still = replayed(path)
        assert again == found
        for lost in set(range(1, 36)) - set(found):
            assert any(after < lost < before for after, before in still), (number, lost, still)
