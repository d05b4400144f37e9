"""Processes: identity by pid and start time, the search by working directory, the ladder of signals."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headgate.embedded.process import ProcessIdentity, end, ended, processes_in

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[psutil.Popen]:
    """A process that ignores SIGTERM, ready when the fixture is."""
    process = psutil.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, cwd=tmp_path)
    process.stdout.readline()
    yield process
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
    process.wait()
    process.stdout.close()


def test_a_running_process_is_found() -> None:
    found = ProcessIdentity.of(os.getpid()).find()
    assert found is not None
    assert found.pid == os.getpid()


def test_a_reused_pid_is_a_stranger() -> None:
    ours = ProcessIdentity.of(os.getpid())
    assert ProcessIdentity(ours.pid, ours.started - 10).find() is None


def test_a_dead_process_is_not_found(sleeper: psutil.Popen) -> None:
    identity = ProcessIdentity.of(sleeper.pid)
    assert identity.find() is not None
    os.kill(sleeper.pid, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert identity.find() is None, "a zombie is dead"
    sleeper.wait()
    assert identity.find() is None


def test_search_by_working_directory_and_program(sleeper: psutil.Popen, tmp_path: Path) -> None:
    assert [process.pid for process in processes_in(tmp_path, [sleeper.name()])] == [sleeper.pid]
    assert processes_in(tmp_path, ["postgres"]) == []
    assert processes_in(tmp_path / "elsewhere", [sleeper.name()]) == []


def test_the_ladder_goes_on_until_one_signal_is_obeyed(sleeper: psutil.Popen, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "headgate.embedded"):
        end(sleeper, ((signal.SIGTERM, 0.1), (signal.SIGINT, 10.0), (signal.SIGKILL, 10.0)))
    assert sleeper.returncode == -signal.SIGINT
    assert [record.getMessage() for record in caplog.records] == [f"process {sleeper.pid} still runs 0 s after SIGTERM"]


def test_ending_a_dead_process_is_fine(sleeper: psutil.Popen) -> None:
    sleeper.kill()
    sleeper.wait()
    end(sleeper, ((signal.SIGTERM, 1.0),))


GRANDPARENT = """
import ctypes, os, signal, subprocess, sys
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
child = "import subprocess; print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL).pid)"
sys.stdout.write(subprocess.run([sys.executable, "-c", child], stdout=subprocess.PIPE, text=True).stdout)
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="adopts orphans with a Linux call")
def test_a_zombie_that_nobody_collects_has_ended() -> None:
    """As in a container whose first process does not wait for the orphans it inherits."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", GRANDPARENT], stdin=pipe, stdout=pipe, text=True) as adopter:
        assert adopter.stdout is not None
        orphan = psutil.Process(int(adopter.stdout.readline()))
        assert orphan.ppid() == adopter.pid
        assert not ended(orphan, 0.0)
        end(orphan, ((signal.SIGTERM, 10.0),))
        assert orphan.status() == psutil.STATUS_ZOMBIE
