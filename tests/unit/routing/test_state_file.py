"""The state file under kill -9, and of another version."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.model import Retry, StateError
from headgate.pipeline.state import State, StateFile

MID_SAVE = """
import os, signal, sys
from pathlib import Path
from headgate.pipeline.state import State, StateFile
file = StateFile(Path(sys.argv[1]))
file.write(State("p", "s", "q", 1, 10))
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "rename":
    Path.replace = die
else:
    os.fsync = die
file.write(State("p", "s", "q", 2, 20))
"""

WRITING = """
import sys
from pathlib import Path
from headgate.pipeline.state import State, StateFile
file = StateFile(Path(sys.argv[1]))
for number in range(1_000_000):
    file.write(State("p", "s" * 10_000, "q", number, number * 10))
    if number == 3:
        print("ready", flush=True)
"""


@pytest.mark.parametrize("place", ["fsync", "rename"])
def test_killed_in_the_middle_of_a_save_the_previous_version_is_whole(tmp_path: Path, place: str) -> None:
    path = tmp_path / "state.json"
    done = subprocess.run([sys.executable, "-c", MID_SAVE, str(path), place], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert StateFile(path).read() == State("p", "s", "q", 1, 10)
    StateFile(path).write(State("p", "s", "q", 3, 30))
    assert StateFile(path).read() == State("p", "s", "q", 3, 30)


def test_killed_at_any_moment_one_version_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    process = subprocess.Popen([sys.executable, "-c", WRITING, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.wait(30)
    process.stdout.close()
    state = StateFile(path).read()
    assert state is not None
    assert (state.batch_id >= 3, state.rows) == (True, state.batch_id * 10)


@pytest.mark.parametrize("version", [0, 2, 99, "1", None])
def test_another_version_is_refused_with_both_named(tmp_path: Path, version: object) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"version": version, "pipeline": "p", "source": "s", "query_id": "q"}))
    with pytest.raises(StateError, match=f"version {version}, this headgate reads version 1") as caught:
        StateFile(path).read()
    assert caught.value.retry is Retry.MANUAL
    assert caught.value.where == str(path)
    assert json.loads(path.read_text())["version"] == version, "nothing is reset"
