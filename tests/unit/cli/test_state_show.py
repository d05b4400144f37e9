"""`headgate state show`: how far a pipeline has come, in words of its source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli.app import app
from headgate.pipeline.state import State, StateFile
from headgate.sources.files.index import Point, Range

CONFIG = """
[project]
data_dir = "data"
[sources.poll]
type = "postgres-poll"
table = "jobs"
tracking_column = "changed_at"
[sources.files]
type = "files"
path = "in"
format = "text"
[sources.topics]
type = "kafka"
servers = "127.0.0.1:1"
topics = ["orders"]
[destinations.d]
type = "memory"
[pipelines.poll]
source = "poll"
destinations = ["d"]
topic = "t"
[pipelines.files]
source = "files"
destinations = ["d"]
topic = "t"
[pipelines.topics]
source = "topics"
destinations = ["d"]
topic = "t"
"""

_AT = "2026-01-02 03:04:05.123456+00"
_POLLED = {"row": 12, "after": json.dumps([_AT, "17"])}
_READ = Point(1, 99, (Range("/in/app.log", 1, 2, 0, 99, 0, 0, 0),)).to_offset()
_TOPICS = {"offsets": '{"orders": {"0": 23}}'}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "headgate.toml").write_text(CONFIG)
    for name, end in (("poll", _POLLED), ("files", _READ), ("topics", _TOPICS)):
        directory = tmp_path / "data/pipelines" / name
        (directory / "checkpoint/offsets").mkdir(parents=True)
        StateFile(directory / "state.json").write(State(name, "s", "q", 4, 12))
        (directory / "checkpoint/offsets/4").write_text(f"v1\n{{}}\n{json.dumps(end)}")
    (tmp_path / "data/pipelines/files/files").mkdir()
    (tmp_path / "data/pipelines/files/files/files.json").write_text('{"first_place": 0}')
    return tmp_path


@pytest.mark.parametrize(
    ("pipeline", "reached", "line"),
    [
        pytest.param("poll", {"changed_at": _AT, "key": ["17"]}, _AT, id="poll"),
        pytest.param("files", {"files": [{"file": "/in/app.log", "byte": 99}]}, "/in/app.log", id="files"),
        pytest.param("topics", {"orders/0": 23}, "reached.orders/0", id="kafka"),
    ],
)
def test_what_is_reached(project: Path, pipeline: str, reached: object, line: str) -> None:
    command = ["state", "show", pipeline, "--config", str(project / "headgate.toml")]
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert (told["reached"], told["state"]["batch_id"]) == (reached, 4)
    assert line in CliRunner().invoke(app, command).stdout
