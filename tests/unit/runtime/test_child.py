"""Child processes: options in, one answer out, and an end with the input."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.model import ConfigError, InternalError
from headgate.runtime.child import await_ready, end_async_child, end_child, start_async_child, start_child

_WAIT_S = 60.0
Start = Callable[[str], subprocess.Popen[bytes]]


@dataclass(frozen=True)
class Options:
    directory: Path
    count: int = 3


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a child whose work is this text."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started: list[subprocess.Popen[bytes]] = []

    def run(work: str) -> subprocess.Popen[bytes]:
        lines = "\n    ".join(["options = json.loads(line)", *work.splitlines()])
        head = "import asyncio, json, logging, os, sys, time\nfrom headgate.model import ConfigError"
        imported = "from headgate.runtime.child import ready, run_child, say, until_closed"
        text = f"{head}\n{imported}\ndef work(line):\n    {lines}\nrun_child(work)\n"
        (tmp_path / "the_child.py").write_text(text)
        started.append(start_child("the_child", Options(tmp_path)))
        return started[-1]

    yield run
    for child in started:
        end_child(child, 0)
        assert child.stdout is not None
        child.stdout.close()


def test_options_arrive_and_facts_come_back(start: Start, tmp_path: Path) -> None:
    child = start("say(ready=options)\nsys.stdin.read()")
    assert await_ready(child, "it") == {"directory": str(tmp_path), "count": 3}
    end_child(child, _WAIT_S)
    assert child.returncode == 0


def test_a_server_ends_when_its_input_closes(start: Start) -> None:
    child = start(
        "async def serve():\n"
        "    stop = asyncio.Event()\n"
        "    until_closed(stop)\n"
        "    ready(dict, port=1)\n"
        "    await stop.wait()\n"
        "asyncio.run(serve())"
    )
    assert await_ready(child, "it")["port"] == 1
    end_child(child, _WAIT_S)
    assert child.returncode == 0


def test_an_error_is_raised_as_it_was(start: Start) -> None:
    child = start("raise ConfigError('no such thing', where='here', remedy='make it')")
    with pytest.raises(ConfigError, match="no such thing") as caught:
        await_ready(child, "it")
    assert (caught.value.where, caught.value.remedy) == ("here", "make it")


def test_what_is_logged_before_is_logged_here(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    child = start("logging.getLogger('its').warning('100 % full')\nsay(ready={})\nsys.stdin.read()")
    assert await_ready(child, "it") == {}
    assert [(each.name, each.getMessage()) for each in caplog.records] == [("its", "100 % full")]


def test_one_that_dies_without_a_word_is_told(start: Start) -> None:
    with pytest.raises(InternalError, match="it ended at once"):
        await_ready(start("os._exit(3)"), "it")


def test_one_that_does_not_end_is_killed(start: Start) -> None:
    child = start("say(ready={})\ntime.sleep(600)")
    await_ready(child, "it")
    end_child(child, 0.1)
    assert child.returncode == -9


def test_ctrl_c_of_a_terminal_is_not_for_it(start: Start) -> None:
    child = start("say(ready={'group': os.getpgid(0), 'pid': os.getpid()})\nsys.stdin.read()")
    facts = await_ready(child, "it")
    assert facts["group"] == facts["pid"]


def test_output_may_be_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "the_child.py").write_text("import sys\nprint(sys.stdin.readline(), end='')\n")
    with (tmp_path / "log").open("wb") as log:
        child = start_child("the_child", Options(tmp_path), stdout=log, stderr=log)
    assert child.stdin is not None
    with closing(child.stdin):
        assert child.wait(_WAIT_S) == 0
    assert (tmp_path / "log").read_text() == f'{{"directory":"{tmp_path}","count":3}}\n'


@pytest.mark.parametrize(("work", "within_s", "code"), [("sys.stdin.read()", _WAIT_S, 0), ("time.sleep(600)", 0.1, -9)])
def test_one_that_an_event_loop_talks_with_starts_and_ends_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, within_s: float, code: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    answer = "print(sys.stdin.readline().strip(), os.getpgid(0) == os.getpid(), flush=True)"
    (tmp_path / "the_child.py").write_text(f"import os, sys, time\n{answer}\n{work}\n")

    async def talk() -> None:
        child = await start_async_child("the_child", Options(tmp_path))
        assert child.stdout is not None
        assert await child.stdout.readline() == f'{{"directory":"{tmp_path}","count":3}} True\n'.encode()
        await end_async_child(child, within_s)
        assert child.returncode == code

    asyncio.run(asyncio.wait_for(talk(), _WAIT_S))
