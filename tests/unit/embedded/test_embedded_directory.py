"""The data directory: one owner, private files, clear errors."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.embedded import Stack
from headgate.embedded.directory import DataDirectory
from headgate.model import OccupiedError, StateError
from headgate.runtime.files import replace_file


def test_it_is_made_and_kept_out_of_git(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "a" / "b")
    directory.acquire()
    directory.release()
    assert (tmp_path / "a" / "b" / ".gitignore").read_text() == "*\n"
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o711


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    first, second = DataDirectory(tmp_path), DataDirectory(tmp_path)
    first.acquire()
    with pytest.raises(OccupiedError, match=f"in use by process {os.getpid()}") as caught:
        second.acquire()
    assert f"Stop process {os.getpid()}" in caught.value.remedy
    first.release()
    second.acquire()
    second.release()


FORKING_OWNER = """
import os, sys
from pathlib import Path
from headgate.embedded.directory import DataDirectory
directory = DataDirectory(Path(sys.argv[1]))
directory.acquire()
if os.fork():
    sys.stdin.read(1)
    os._exit(0)
print("forked", flush=True)
sys.stdin.read()
"""


def test_a_fork_neither_keeps_the_lock_nor_frees_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKING_OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        directory = DataDirectory(tmp_path)
        assert owner.stdout.readline() == b"forked\n"
        with pytest.raises(OccupiedError, match=str(owner.pid)):
            directory.acquire()
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        directory.acquire()
        directory.release()


def test_private_from_the_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(mode=0o644)
    replace_file(path, b"new", durable=False, private=True)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("file", "it is not a directory"),
        ("file/below", "Not a directory"),
        ("/proc/headgate", "No such file or directory"),
        ("/dev/null", "it is not a directory"),
    ],
)
def test_an_unusable_place_is_one_clear_error(tmp_path: Path, place: str, reason: str) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / place
    with pytest.raises(StateError, match=reason) as caught:
        Stack(path).start()
    assert str(path) in str(caught.value)
    assert "Choose a directory" in caught.value.remedy
    assert Stack.attach(path) is None
