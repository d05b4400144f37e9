"""The source in CONTRIBUTING.md is one: what stands there is built as our own kinds are, and as others' plugins are."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headgate.sources
from headgate.config import Config, parse
from headgate.config.base import Section
from headgate.config.options import Option
from headgate.model import ConfigError
from headgate.pipeline.assemble import assemble
from headgate.pipeline.registry import SOURCES
from headgate.sources.base import Source

DOCUMENT = Path(__file__).parents[3] / "CONTRIBUTING.md"
BLOCK = re.compile(r"^`sources/ticks/([\w.]+)`[^`].*?\n\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILES = dict(BLOCK.findall(DOCUMENT.read_text()))
PIPELINE = '[destinations.d]\ntype = "discard"\n[pipelines.p]\nsource = "clock"\ndestinations = ["d"]\ntopic = "t"\n'
PACKAGE = "headgate.sources.ticks"


@pytest.fixture
def ticks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Section]]:
    """The package as if it lay beside the others, with its line in the table; yields its section."""
    place = tmp_path / "sources"
    (place / "ticks").mkdir(parents=True)
    (place / "ticks" / "__init__.py").write_text('"""The `ticks` source."""\n')
    for name, text in FILES.items():
        (place / "ticks" / name).write_text(text)
    monkeypatch.setattr(headgate.sources, "__path__", [*headgate.sources.__path__, str(place)])
    monkeypatch.setitem(SOURCES, "ticks", PACKAGE)
    importlib.invalidate_caches()
    yield importlib.import_module(f"{PACKAGE}.section").TicksSourceSection
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]
    if hasattr(headgate.sources, "ticks"):
        del headgate.sources.ticks


def _source(config: Config) -> Source:
    [spec] = assemble(config, nats_url=None, postgres_url=None)
    return spec.source


def test_the_page_has_the_whole_package() -> None:
    assert set(FILES) == {"options.py", "section.py", "source.py", "build.py"}
    assert "pipeline/registry.py" in DOCUMENT.read_text()


def test_a_source_of_our_own_is_built_through_the_registry(ticks: type[Section], tmp_path: Path) -> None:
    config = parse(PIPELINE.replace("clock", "other") + '[sources.other]\ntype = "random"\n', where=tmp_path / "f.toml")
    section = ticks.model_validate({"type": "ticks", "poll_interval": "250ms"})
    pipelines = {"p": config.pipelines["p"].model_copy(update={"source": "clock"})}
    source = _source(config.model_copy(update={"sources": {"clock": section}, "pipelines": pipelines}))
    assert (source.name, source.format, source.origin()) == ("clock", "ticks", "headgate-clock")
    assert source.options() == {"rows": "10", "pollIntervalMs": "250"}
    options = importlib.import_module(f"{PACKAGE}.options").TicksOptions
    assert options.from_spark(source.options()) == options(poll_interval_ms=250)


def test_its_section_takes_defaults_from_its_options(ticks: type[Section]) -> None:
    section = ticks.model_validate({"type": "ticks"})
    assert (section.rows, section.poll_interval) == (10, 1.0)  # type: ignore[attr-defined]
    declared = [
        each.field for info in ticks.model_fields.values() for each in info.metadata if isinstance(each, Option)
    ]
    assert declared == ["rows", "poll_interval_ms"]


PLUGIN = """
from headgate.config.options import spark_options
from headgate.model import ConfigError
from headgate.sources.ticks.section import TicksSourceSection
from headgate.sources.ticks.source import TicksSource


class Ticks(TicksSource):
    @classmethod
    def create(cls, options, context):
        try:
            section = TicksSourceSection(type="ticks", **options)
        except ValueError as error:
            raise ConfigError(str(error), remedy="correct the options") from None
        return cls(context.name, spark_options(section), f"{context.project}-{context.name}")
"""


@pytest.fixture
def plugin(ticks: type[Section], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution as pip leaves it, whose entry point names the same source."""
    monkeypatch.delitem(SOURCES, "ticks")  # it must not be found as one of ours
    site = tmp_path / "site"
    info = site / "headgate_ticks-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: headgate-ticks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[headgate.sources.v1]\nticks = headgate_ticks:Ticks\n")
    (site / "headgate_ticks.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("headgate_ticks", None)


@pytest.mark.usefixtures("plugin")
def test_the_same_source_comes_through_the_door_for_others(tmp_path: Path) -> None:
    table = '[sources.clock]\ntype = "plugin"\nplugin = "ticks"\noptions = {{ rows = {rows} }}\n'
    source = _source(parse(table.format(rows=3) + PIPELINE, where=tmp_path / "headgate.toml"))
    assert (source.name, source.origin()) == ("clock", "headgate-clock")
    assert source.options() == {"rows": "3", "pollIntervalMs": "1000"}
    with pytest.raises(ConfigError, match=r"(?s)sources\.clock: .*greater than or equal to 1"):
        _source(parse(table.format(rows=0) + PIPELINE, where=tmp_path / "headgate.toml"))
