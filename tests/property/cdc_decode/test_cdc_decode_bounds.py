"""Compiled code does not check its indexes, so the fuzz is run once more, in a process where it does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_fuzz_with_checked_indexes(pytestconfig: pytest.Config) -> None:
    """Machine code with checks is kept apart from the usual one, and from run to run: making it takes a while."""
    assert pytestconfig.cache is not None
    code = pytestconfig.cache.mkdir("cdc-decode-checked")
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(code)}
    files = [str(HERE / name) for name in ("checks_are_on.py", "test_cdc_decode_fuzz.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(
        command, env=environment, cwd=pytestconfig.rootpath, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "8 passed" in done.stdout
