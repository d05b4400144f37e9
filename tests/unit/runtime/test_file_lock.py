"""One holder at a time, whoever looks, forks or dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from headgate.runtime.file_lock import FileLock

HOLDER = (
    "import pathlib, sys; from headgate.runtime.file_lock import FileLock\n"
    "lock = FileLock(pathlib.Path(sys.argv[1])); print(lock.acquire(), flush=True); sys.stdin.read()"
)


def test_a_lock_has_one_holder_and_names_it(tmp_path: Path) -> None:
    held, other = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert other.owner() is None
    assert held.acquire()
    assert not other.acquire(wait_s=0)
    assert other.owner() == other.named() == os.getpid()
    held.release()
    held.release()
    assert other.acquire()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        lock = FileLock(tmp_path / "lock")
        assert lock.owner() == process.pid
        assert not lock.acquire(wait_s=0)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert lock.owner() is None
        assert lock.acquire()


def test_a_forked_process_does_not_keep_its_parents_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    assert lock.acquire()
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(theirs)
        os.read(ours, 1)  # until the parent has closed its end
        os._exit(0)
    os.close(ours)
    try:
        lock._forget()  # as the kernel does it when the parent dies: no unlocking
        assert FileLock(tmp_path / "lock").acquire(wait_s=30)
    finally:
        os.close(theirs)
        os.waitpid(child, 0)


def test_who_looks_keeps_nobody_from_the_lock(tmp_path: Path) -> None:
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            FileLock(tmp_path / "lock").owner()

    FileLock(tmp_path / "lock").path.touch()
    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(200):
            lock = FileLock(tmp_path / "lock")
            assert lock.acquire(wait_s=30)
            lock.release()
    finally:
        done.set()
        for looker in lookers:
            looker.join()
