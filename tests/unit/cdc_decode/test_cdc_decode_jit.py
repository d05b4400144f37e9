"""Machine code on disk: used again as long as it fits the sources, and made anew when it does not."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest
from numba import config

from headgate.kernels import jit

MODULE = """
from numba import types
from headgate.kernels.jit import compile_kernel

def build(sources):
    def kernel(number):
        return number + sources
    return kernel

def forget(sources):
    return lambda number: number

def compiled():
    return compile_kernel(types.int64(types.int64), build)

def careless():
    return compile_kernel(types.int64(types.int64), forget)
"""


def load(path: Path) -> Any:
    """The module, as a new process would get it."""
    spec = importlib.util.spec_from_file_location("some_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "some_kernels.py"
    path.write_text(MODULE)
    return path


def is_from_disk(kernel: Any) -> bool:
    return bool(sum(kernel.stats.cache_hits.values()))


def test_kernels_are_kept_by_their_sources(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "SOURCES", 1)
    first, again = load(path).compiled(), load(path).compiled()
    monkeypatch.setattr(jit, "SOURCES", 2)
    changed = load(path).compiled()
    assert (first(5), again(5), changed(5)) == (6, 6, 7)
    assert [is_from_disk(each) for each in (first, again, changed)] == [False, True, False]


def test_kernels_that_would_grow_stale_are_refused(path: Path) -> None:
    with pytest.raises(AssertionError):
        load(path).careless()


def test_kernels_that_cannot_be_kept_are_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code without a file is to Numba as one whose file and user's cache are read-only."""
    names: dict[str, Any] = {}
    told: list[str] = []
    monkeypatch.setattr(jit.logger, "warning", told.append)
    exec(MODULE, names)
    assert names["compiled"]()(5) == 5 + jit.SOURCES
    assert "NUMBA_CACHE_DIR" in "".join(told)


def test_numbas_settings_are_left_as_they_were(path: Path) -> None:
    before = {name: value for name, value in vars(config).items() if name.isupper()}
    load(path).compiled()
    assert {name: vars(config)[name] for name in before} == before


def test_the_fingerprint_covers_the_package(tmp_path: Path) -> None:
    shutil.copytree(Path(jit.__file__).parent, tmp_path, dirs_exist_ok=True)
    assert jit.fingerprint(tmp_path) == jit.SOURCES
    with (tmp_path / "text.py").open("a") as file:
        file.write("#")
    assert jit.fingerprint(tmp_path) != jit.SOURCES
