"""A full disk and a missing right are told as such, whoever met them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from headgate.model import AuthError, CapacityError, HeadgateError, StateError
from headgate.pipeline.failures import from_spark
from headgate.runtime.disk import disk_error, disk_error_in


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, CapacityError),
        (errno.EDQUOT, CapacityError),
        (errno.EACCES, AuthError),
        (errno.EROFS, AuthError),
        (errno.ENOTDIR, StateError),
    ],
)
def test_errors_of_files(number: int, kind: type[HeadgateError]) -> None:
    error = disk_error(OSError(number, os.strerror(number), "/data/state.json"))
    assert isinstance(error, kind)
    assert (error.where, bool(error.remedy)) == ("/data/state.json", True)
    assert isinstance(from_spark(OSError(number, os.strerror(number), "/x")), kind)


def test_other_errors_are_not_ours() -> None:
    assert disk_error(ConnectionRefusedError(errno.ECONNREFUSED, "no")) is None
    assert disk_error_in("ValueError: odd") is None


@pytest.mark.parametrize(
    ("text", "kind", "where"),
    [
        ("x\nOSError: [Errno 28] No space left on device: '/d/a b'\n", CapacityError, "/d/a b"),
        ("java.io.IOException: No space left on device\n\tat sun.nio", CapacityError, ""),
        ("java.io.FileNotFoundException: /d/ckpt/0 (Permission denied)\n", AuthError, "/d/ckpt/0"),
        ("PermissionError: [Errno 13] Permission denied: '/d'", AuthError, "/d"),
    ],
)
def test_what_others_have_printed(text: str, kind: type[HeadgateError], where: str) -> None:
    error = from_spark(RuntimeError(f"[STREAM_FAILED] Query failed\n{text}"))
    assert isinstance(error, kind)
    assert error.where == where


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user, which only root can")
def test_a_directory_of_somebody_else_is_no_bug() -> None:
    with tempfile.TemporaryDirectory() as name:  # others cannot enter what pytest makes
        Path(name).chmod(0o755)
        refused_to_nobody(Path(name))


def refused_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "headgate.toml").write_text(
        '[project]\ndata_dir = "data"\n[sources.s]\ntype = "random"\n[destinations.d]\ntype = "memory"\n'
        '[pipelines.p]\nsource = "s"\ndestinations = ["d"]\ntopic = "t"\n'
    )
    (tmp_path / "data/pipelines/p").mkdir(parents=True)
    (tmp_path / "data/pipelines/p/state.json").write_text("{}")
    (tmp_path / "data/pipelines").chmod(0o700)
    program = (
        "import os, sys\n"
        "from headgate.cli.app import main\n"
        "import headgate.cli.state, headgate.cli.dlq, headgate.cli.reset\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "main()\n"
    )
    for command in (["state", "show", "p"], ["dlq", "list", "p"], ["reset", "p", "--yes"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *command, "--config", str(tmp_path / "headgate.toml")],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode in (4, 5), (command, done.returncode, done.stderr)
        assert "Permission denied" in done.stderr, done.stderr
