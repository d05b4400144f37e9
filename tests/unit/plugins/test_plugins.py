"""Sources and destinations from other packages: found, checked before they run, and used."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.config import Config, load
from headgate.destinations.base import Destination
from headgate.model import ConfigError, DependencyError, Kind, UsageError
from headgate.pipeline.assemble import assemble
from headgate.pipeline.plugins import IncompatiblePluginError, PluginContext, plugin_destination, plugin_source
from headgate.sources.base import OPAQUE, Source

Install = Callable[..., str]

GOOD = """
from contextlib import contextmanager
from headgate.destinations.base import Destination, Sender, SendResult
from headgate.model import UsageError
from headgate.sources.base import OPAQUE, Source


class Ticks(Source):
    api_version = 1
    format = "ticks"

    @classmethod
    def create(cls, options, context):
        made = cls()
        made.name, made._options, made.context = context.name, options, context
        return made

    def mode(self):
        return OPAQUE

    def options(self):
        return {"every": str(self._options["every"])}

    def commit(self, end):
        pass

    def origin(self):
        return f"{self.context.project}-{self.name}"


class Shelf(Destination):
    api_version = 1

    def __init__(self, name, path):
        self.name, self.path = name, path

    @classmethod
    def create(cls, options, context):
        if "path" not in options:
            raise UsageError("no path", remedy="set options.path")
        return cls(context.name, options["path"])

    def open(self, lane=None):
        raise NotImplementedError


class Old(Ticks):
    api_version = 0


class Odd(Ticks):
    @classmethod
    def create(cls, options, context):
        return 42


class Clumsy(Ticks):
    @classmethod
    def create(cls, options, context):
        return options["nothing"]


class Unfinished(Source):
    api_version = 1

    @classmethod
    def create(cls, options, context):
        return cls()


def not_a_class():
    pass
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A distribution as pip leaves it: a module, and metadata with entry points."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules: list[str] = []

    def make(code: str, entries: dict[str, dict[str, str]]) -> str:
        module = f"headgate_plugin_{len(modules)}"
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = []
        for group, points in entries.items():
            lines += [f"[{group}]", *(f"{name} = {module}:{what}" for name, what in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines))
        importlib.invalidate_caches()
        return module

    yield make
    for module in modules:
        sys.modules.pop(module, None)


@pytest.fixture
def context(tmp_path: Path) -> PluginContext:
    return PluginContext("mine", "shop", tmp_path)


MAKERS: list[tuple[str, Callable[..., Any]]] = [("sources", plugin_source), ("destinations", plugin_destination)]


@pytest.mark.parametrize(("room", "make"), MAKERS)
def test_a_plugin_for_another_contract_is_refused_before_a_line_of_it_runs(
    install: Install, context: PluginContext, room: str, make: Callable[..., Any]
) -> None:
    module = install("raise SystemExit('this must never run')", {f"headgate.{room}.v99": {"late": "Late"}})
    with pytest.raises(
        IncompatiblePluginError, match="written for version 99 of the contract, this headgate has 1"
    ) as e:
        make("late", {}, context)
    assert module not in sys.modules
    assert (e.value.kind, e.value.where) == (Kind.DEPENDENCY, f"{room}.mine")
    assert "install a version" in e.value.remedy
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)


@pytest.mark.parametrize(("room", "make"), MAKERS)
def test_the_class_of_a_plugin_must_state_the_same_contract(
    install: Install, context: PluginContext, room: str, make: Callable[..., Any]
) -> None:
    install(GOOD, {f"headgate.{room}.v1": {"old": "Old", "function": "not_a_class"}})
    with pytest.raises(IncompatiblePluginError, match="version 0"):
        make("old", {}, context)
    with pytest.raises(IncompatiblePluginError, match="version None"):
        make("function", {}, context)


def test_a_plugin_of_several_versions_is_used_in_ours(install: Install, context: PluginContext) -> None:
    install(GOOD, {"headgate.sources.v1": {"both": "Ticks"}, "headgate.sources.v99": {"both": "Nothing"}})
    assert plugin_source("both", {"every": 1}, context).format == "ticks"


def test_what_is_not_there_names_what_is(install: Install, context: PluginContext) -> None:
    install(GOOD, {"headgate.sources.v1": {"ticks": "Ticks"}, "headgate.destinations.v1": {"shelf": "Shelf"}})
    with pytest.raises(ConfigError, match="no installed package has a plugin 'tick' for sources") as caught:
        plugin_source("tick", {}, context)
    assert "ticks" in caught.value.remedy
    assert caught.value.where == "sources.mine"
    with pytest.raises(ConfigError, match="for sources"):
        plugin_source("shelf", {}, context)


@pytest.mark.parametrize(
    ("plugin", "code", "what", "match"),
    [
        ("broken", "import nothing_of_that_name", "X", "cannot be imported: ModuleNotFoundError"),
        ("broken", "1 / 0", "X", "cannot be imported: ZeroDivisionError"),
        ("broken", "def (", "X", "cannot be imported: SyntaxError"),
        ("missing", GOOD, "NoSuchClass", "cannot be imported: AttributeError"),
        ("odd", GOOD, "Odd", "it made a int, not a Source"),
        ("clumsy", GOOD, "Clumsy", "KeyError: 'nothing'"),
        ("unfinished", GOOD, "Unfinished", "abstract"),
    ],
)
def test_a_plugin_that_cannot_be_used(
    install: Install, context: PluginContext, plugin: str, code: str, what: str, match: str
) -> None:
    install(code, {"headgate.sources.v1": {plugin: what}})
    with pytest.raises(DependencyError, match=match) as caught:
        plugin_source(plugin, {"every": 1}, context)
    assert caught.value.where == "sources.mine"
    assert "author" in caught.value.remedy


def test_a_destination_is_no_source_and_a_plugins_own_errors_are_kept(install: Install, context: PluginContext) -> None:
    entries = {"headgate.sources.v1": {"shelf": "Shelf"}, "headgate.destinations.v1": {"shelf": "Shelf"}}
    install(GOOD, entries)
    with pytest.raises(DependencyError, match="not a Source"):
        plugin_source("shelf", {"path": "x"}, context)
    with pytest.raises(UsageError, match=r"destinations\.mine: no path") as caught:
        plugin_destination("shelf", {}, context)
    assert caught.value.remedy == "set options.path"


FILE = """
[project]
name = "shop"
data_dir = "{directory}/data"

[sources.clock]
type = "plugin"
plugin = "ticks"
options = {{ every = 5, password = "s3cret-of-source" }}

[destinations.shelf]
type = "plugin"
plugin = "shelf"
options = {{ path = "/shelf", password = "s3cret-of-shelf" }}

[pipelines.p]
source = "clock"
destinations = ["shelf"]

[pipelines.p.routing]
topic_column = "kind"
default_topic = "rest"
"""


def test_from_the_configuration_to_a_pipeline(install: Install, tmp_path: Path) -> None:
    install(GOOD, {"headgate.sources.v1": {"ticks": "Ticks"}, "headgate.destinations.v1": {"shelf": "Shelf"}})
    path = tmp_path / "headgate.toml"
    path.write_text(FILE.format(directory=tmp_path))
    config: Config = load(path)
    (spec,) = assemble(config, nats_url=None, postgres_url=None)
    source, (shelf,) = spec.source, spec.destinations
    assert isinstance(source, Source)
    assert isinstance(shelf, Destination)
    assert (source.name, source.options(), source.origin()) == ("clock", {"every": "5"}, "shop-clock")
    assert source.context.directory.is_dir()  # type: ignore[attr-defined]
    assert (shelf.name, shelf.path) == ("shelf", "/shelf")  # type: ignore[attr-defined]
    assert source.mode() is OPAQUE
    assert spec.routing is not None
    assert spec.routing.on_refusal == "drop", "by the mode that the plugin states"
    for shown in (repr(config), config.model_dump_json(), str(config)):
        assert "s3cret" not in shown
