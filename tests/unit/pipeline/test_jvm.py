"""Options of Spark's JVM, and the archive of its classes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import google_crc32c
import psutil
import pytest

from headgate.pipeline import jvm

WHOLE = f"7 {google_crc32c.value(b'classes'):08x}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.15"')
    return tmp_path / "java"


def place(home: Path) -> Path:
    archive = jvm.archive_of(home)
    assert archive is not None
    return archive


def test_without_an_archive_java_is_not_told_of_one(home: Path) -> None:
    assert jvm.java_options(home) == "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms64m -Xmn24m"
    assert jvm.java_options(home, has_sql=True) == "-XX:+UseSerialGC"


def test_an_archive_is_used_and_marked_as_used(home: Path) -> None:
    archive = place(home)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"classes")
    archive.with_suffix(".crc32c").write_text(WHOLE)
    os.utime(archive, (0, 0))
    assert f"-XX:SharedArchiveFile={archive} " in jvm.java_options(home)
    assert archive.stat().st_mtime > 0


@pytest.mark.parametrize(
    ("data", "told"),
    [(b"clas", WHOLE), (b"", WHOLE), (b"classez", WHOLE), (b"classes", None), (b"classes", "\0"), (b"classes", "7")],
)
def test_an_archive_that_was_cut_short_or_damaged_is_not_used(home: Path, data: bytes, told: str | None) -> None:
    """Java would end with it, at every start."""
    archive = place(home)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(data)
    if told is not None:
        archive.with_suffix(".crc32c").write_text(told)
    assert "SharedArchiveFile" not in jvm.java_options(home)


def test_without_a_home_spark_starts_without_an_archive(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", none)
    assert jvm.archive_of(home) is None
    assert jvm.make_archive(home) is None
    assert jvm.java_options(home) == "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms64m -Xmn24m"


def test_a_cache_that_cannot_be_written_makes_no_archive(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    assert jvm.make_archive(home) is None
    assert jvm.java_options(home)


def test_an_archive_is_of_one_java(home: Path) -> None:
    before = place(home)
    (home / "release").write_text('JAVA_VERSION="17.0.16"')
    assert place(home) != before


def test_a_home_made_for_a_runtime_shares_its_archive(home: Path, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "release").symlink_to(home / "release")
    assert jvm.archive_of(tmp_path / "made") == place(home)


def test_an_archive_that_cannot_be_made_leaves_nothing(home: Path) -> None:
    assert jvm.make_archive(home) is None  # there is no java in it
    assert [path.name for path in place(home).parent.iterdir()] == ["lock"]


def test_old_archives_are_removed(home: Path) -> None:
    directory = place(home).parent
    directory.mkdir(parents=True)
    for age in range(5):
        (directory / f"spark-4.3.0-{age}.jsa").touch()
        os.utime(directory / f"spark-4.3.0-{age}.jsa", (1000 - age, 1000 - age))
    jvm._prune(directory)
    assert sorted(path.name[-5] for path in directory.iterdir()) == ["0", "1", "2"]


def test_a_service_that_stops_takes_the_making_of_an_archive_with_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "pid"
    inner = f"import os, time; open({str(told)!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    monkeypatch.setattr(
        jvm, "_COMMAND", (sys.executable, "-c", f"import subprocess; subprocess.run({[sys.executable, '-c', inner]!r})")
    )
    maker = jvm.ArchiveMaker()
    maker.start(home)
    deadline = time.monotonic() + 60
    while not (told.exists() and told.read_text().endswith("\n")):
        assert time.monotonic() < deadline
    child = psutil.Process(int(told.read_text()))
    maker.stop()
    maker.stop()
    child.wait(60)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
