"""Kinds of sources and destinations: each is one package, and only those are imported that a file uses."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import headgate.destinations
import headgate.sources
from headgate.config.destinations import DestinationSection
from headgate.config.sources import SourceSection
from headgate.destinations.base import Destination
from headgate.destinations.context import DestinationContext
from headgate.pipeline.registry import DESTINATIONS, SOURCES
from headgate.sources.base import Source
from headgate.sources.context import SourceContext

HEAVY = {"pyarrow", "numpy", "pyspark", "pandas", "confluent_kafka", "numba"}
PARTS = {"headgate.sources.postgres_snapshot"}  # a data source that pipelines do not read from


@pytest.mark.parametrize(
    ("table", "union", "room"),
    [(SOURCES, SourceSection, headgate.sources), (DESTINATIONS, DestinationSection, headgate.destinations)],
    ids=["sources", "destinations"],
)
def test_every_package_is_a_kind_and_every_kind_a_package(table: dict[str, str], union: object, room: object) -> None:
    packages = {each.name for each in pkgutil.iter_modules(room.__path__, f"{room.__name__}.") if each.ispkg}  # type: ignore[attr-defined]
    assert set(table.values()) == packages - PARTS
    sections = {get_args(each.model_fields["type"].annotation)[0]: each for each in get_args(get_args(union)[0])}
    assert set(table) == set(sections) - {"plugin"}
    for kind, package in table.items():
        assert sections[kind].__module__ == f"{package}.section"


@pytest.mark.parametrize("package", [*SOURCES.values(), *DESTINATIONS.values()])
def test_a_kind_is_built_from_its_section_and_a_context(package: str) -> None:
    build = importlib.import_module(f"{package}.build").build
    assert list(inspect.signature(build).parameters) == ["section", "context"]
    hints = get_type_hints(build)
    assert hints["section"].__module__ == f"{package}.section"
    is_source = package.startswith("headgate.sources")
    assert hints["context"] is (SourceContext if is_source else DestinationContext)
    assert issubclass(hints["return"], Source if is_source else Destination)


def _imported_by(code: str, directory: Path) -> set[str]:
    """The modules that a fresh interpreter has after running `code`."""
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"],
        cwd=directory,
        env={key: value for key, value in os.environ.items() if not key.startswith("COV")},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_the_configuration_is_read_without_spark_arrow_or_any_client(tmp_path: Path) -> None:
    imported = _imported_by("from headgate.config import Config, load", tmp_path)
    assert "headgate.sources.kafka.section" in imported
    assert not imported & (HEAVY | {"psycopg", "uvicorn", "httpx", "coincurve", "msgspec", "asyncio"})


@pytest.mark.parametrize("package", [*SOURCES.values(), *DESTINATIONS.values()])
def test_a_section_can_be_imported_before_anything_else_and_is_light(package: str, tmp_path: Path) -> None:
    assert not _imported_by(f"import {package}.section", tmp_path) & HEAVY


FILE = """
[sources.orders]
type = "random"

[destinations.events]
type = "nats"
stream = "ORDERS"
subjects = ["orders.>"]

[pipelines.p]
source = "orders"
destinations = ["events"]
topic = "orders.new"
"""


def test_a_pipeline_imports_the_kinds_that_it_uses_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "headgate.toml").write_text(FILE)
    imported = _imported_by(
        "from headgate.config import load\n"
        "from headgate.pipeline.assemble import assemble\n"
        "[spec] = assemble(load(), nats_url=None, postgres_url=None)\n"
        "assert spec.source.name == 'orders' and spec.destinations[0].name == 'events'",
        tmp_path,
    )
    built = {module for module in imported if module.startswith("headgate.") and module.endswith(".build")}
    assert built == {"headgate.sources.random.build", "headgate.destinations.nats.build"}
    assert not imported & {"confluent_kafka", "coincurve", "uvicorn", "headgate.commitlog", "headgate.broker"}


def test_where_a_pipeline_lies_is_known_without_importing_one(tmp_path: Path) -> None:
    assert not _imported_by("from headgate.pipeline.places import pipeline_dir", tmp_path) & HEAVY
