"""The package in docs/plugins.md is a plugin: what stands there is installed as it stands, and does what it says."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.config import load
from headgate.destinations.base import Lane
from headgate.model import ConfigError, record
from headgate.pipeline.assemble import assemble
from headgate.pipeline.spec import PipelineSpec

DOCUMENT = Path(__file__).parents[3] / "docs" / "plugins.md"
FILES = dict(re.findall(r"^`([\w.]+)`[^\n]*:\n\n```\w+\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE))
MODULES = ("headgate_counter", "pyspark_counter")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As pip would: modules, and entry points made of what pyproject.toml says."""
    site = tmp_path / "site"
    info = site / "headgate_counter-1.0.dist-info"
    info.mkdir(parents=True)
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    named = f"Name: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\n{named}")
    points = [
        "\n".join([f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())])
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(points))
    for module in MODULES:
        (site / f"{module}.py").write_text(FILES[f"{module}.py"])
    (tmp_path / "headgate.toml").write_text(FILES["headgate.toml"])
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    yield tmp_path
    for module in MODULES:
        sys.modules.pop(module, None)


def pipeline() -> PipelineSpec:
    (spec,) = assemble(load(None), nats_url=None, postgres_url=None)
    return spec


def test_the_document_has_the_whole_package() -> None:
    assert set(FILES) == {"pyproject.toml", "headgate.toml", *(f"{module}.py" for module in MODULES)}


def test_the_source_counts(installed: Path) -> None:
    source = pipeline().source
    assert (source.origin(), source.options(), str(source.mode())) == ("headgate-clock", {"rows": "10"}, "polling")
    data_source = importlib.import_module("pyspark_counter").DefaultSource(source.options())
    assert data_source.name() == source.format
    reader = data_source.streamReader(data_source.schema())
    (part,) = reader.partitions(reader.initialOffset(), reader.latestOffset(reader.initialOffset(), None))
    rows = list(reader.read(part))
    assert rows[:2] == [(0, "even", "0000000000000000"), (1, "odd", "0000000000000001")]
    assert rows == list(reader.read(part))
    assert len(rows) == 10


def test_the_destination_writes_lines(installed: Path) -> None:
    (destination,) = pipeline().destinations
    destination = pickle.loads(pickle.dumps(destination))
    destination.ensure()
    payload = json.dumps({"number": 1}).encode()
    columns = [pa.array(["odd"]), pa.array(["m-1"]), pa.array([payload], pa.binary())]
    with destination.open(Lane()) as sender:
        sender.send(pa.RecordBatch.from_arrays(columns, names=list(record.DELIVERY_COLUMNS)))
        assert sender.finish().rows == 1
    assert Path("lines/odd").read_bytes() == b"m-1 " + payload + b"\n"
    assert os.listdir("lines") == ["odd"]  # noqa: PTH208


def test_a_mistake_is_named_with_its_place(installed: Path) -> None:
    Path("headgate.toml").write_text(FILES["headgate.toml"].replace("rows = 10", 'rows = "ten"'))
    with pytest.raises(ConfigError, match=r"sources\.clock: rows is no number"):
        pipeline()
