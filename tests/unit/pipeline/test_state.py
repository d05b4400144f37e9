"""The state file is whole or absent, and refuses what it does not understand."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headgate.model import CapacityError, StateError
from headgate.pipeline.state import State, StateFile
from headgate.runtime.files import replace_file

STATE = State(pipeline="p", source="random:x", query_id="q", batch_id=4, rows=10)


def test_round_trip(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "deep" / "state.json")
    assert file.read() is None
    file.write(STATE)
    assert file.read() == STATE


def test_covers() -> None:
    assert STATE.covers(4)
    assert not STATE.covers(5)
    assert not State("p", "s", "q").covers(0)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"version": 1}', '{"version": 1, "bad": 2}'])
def test_nonsense_is_an_error_not_a_reset(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(StateError, match="cannot be read") as caught:
        StateFile(path).read()
    assert "headgate reset" in caught.value.remedy


def test_another_version_names_both(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"version": 99}))
    with pytest.raises(StateError, match="version 99, this headgate reads version 1"):
        StateFile(path).read()


def test_a_crash_before_the_rename_leaves_the_old_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = StateFile(tmp_path / "state.json")
    file.write(STATE)

    def crash(self: Path, target: Path) -> Path:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(CapacityError, match="Input/output error"):
        file.write(State("p", "s", "q", 5))
    assert file.read() == STATE
    assert os.listdir(tmp_path) == ["state.json"]  # noqa: PTH208


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CapacityError, match="cannot be written"):
        StateFile(tmp_path / "file" / "state.json").write(STATE)


def test_replace_file_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    real = os.fsync

    def spy(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        real(fd)

    monkeypatch.setattr(os, "fsync", spy)
    replace_file(tmp_path / "x", b"1")
    assert len(synced) == 2
    assert synced[1] == tmp_path
