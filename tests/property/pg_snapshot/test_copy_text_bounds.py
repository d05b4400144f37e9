"""Compiled code does not check its indexes, so the property tests are run once more, in a process where it does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_text_with_checked_indexes(pytestconfig: pytest.Config) -> None:
    """Machine code with checks is kept apart from the usual one, and from run to run: making it takes a while."""
    assert pytestconfig.cache is not None
    code = pytestconfig.cache.mkdir("copy-text-checked")
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(code)}
    file = str(HERE / "test_copy_text_equals_reference.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
    done = subprocess.run(
        command, env=environment, cwd=pytestconfig.rootpath, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "6 passed" in done.stdout
