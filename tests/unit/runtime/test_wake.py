"""A bell between processes: it wakes, it never blocks, and it says when nobody can ring any more."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from headgate.runtime.wake import Bell, Listener, ring

_RING = """
import sys
from pathlib import Path
from headgate.runtime.wake import Bell
bell = Bell(Path(sys.argv[1]))
print("made", flush=True)
for line in sys.stdin:
    bell.ring()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bell"


def test_a_ring_of_another_process_wakes_at_once(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _RING, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        with Listener(path) as listener:
            process.stdin.write("ring\n")
            process.stdin.flush()
            began = time.monotonic()
            assert listener.wait(60)
            assert time.monotonic() - began < 30  # not the whole time
            process.stdin.close()
            process.wait(30)
            assert not listener.wait(60)  # nobody is left, which is told at once


def test_what_was_rung_before_is_heard_once(path: Path) -> None:
    bell = Bell(path)
    with Listener(path) as listener:
        for _ in range(3):
            bell.ring()
        assert listener.wait(30)
        began = time.monotonic()
        assert listener.wait(0.05)  # nothing came, and somebody is there
        assert time.monotonic() - began >= 0.04
    bell.close()


def test_ringing_never_blocks_while_nobody_listens(path: Path) -> None:
    bell = Bell(path)
    for _ in range(200_000):  # more than a pipe holds
        bell.ring()
    with Listener(path) as listener:
        assert listener.wait(30)
    bell.close()


def test_a_bell_that_is_there_already_is_used_again(path: Path) -> None:
    first = Bell(path)
    first.close()
    second = Bell(path)
    with Listener(path) as listener:
        second.ring()
        assert listener.wait(30)
    second.close()


def test_anybody_may_ring_a_bell_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "bell"
    with pytest.raises(FileNotFoundError):
        ring(path)
    bell = Bell(path)
    with Listener(path) as listener:
        ring(path)
        assert listener.wait(0)
        assert listener.wait(0), "time is up, and the bell's own end is there"
        bell.close()
        assert not listener.wait(0)
    ring(path)  # nobody has it open
