"""How Spark's JVM is started: small and at once.

Most of a start is Java loading, checking and compiling the same 20,000 classes as the time before. So there is an
archive of them (class data sharing), made once for each Java and Spark of a machine, and kept in the user's cache. Java
compares versions and does without one that does not fit; but one that was cut short or damaged, as by a power cut, ends
it, so its size and checksum stand beside it and are compared first. And the compiler stops at its first tier where rows
never enter the JVM: what the second would compile is the start itself. docs/performance.md has the figures.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import google_crc32c
import pyspark

from headgate.runtime.file_lock import FileLock
from headgate.runtime.files import replace_file

__all__ = ["ArchiveMaker", "archive_of", "is_whole", "java_options", "make_archive"]

logger = logging.getLogger(__name__)

_KEPT = 3  # archives, of 160 MB each: of other versions, or of other environments
_COMMAND = ("nice", "-n", "19", sys.executable, "-m", "headgate.pipeline.jvm")
_SMALL = "-XX:+UseSerialGC"
_QUICK = "-XX:TieredStopAtLevel=1"
# Java would begin with a 64th of the machine's memory, and touch all of it before it first looks what is garbage: 95 MB
# more for 0.2 s less of the CPU at the start.
_LEAN = "-Xms64m -Xmn24m"
# An archive that does not fit is no news for anybody. Java could compare checksums, but would then hold all of the
# archive in its memory, of which it needs half.
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
# Java would move the archive to a random address, for which it writes to nearly every page of it: they are its own then
# instead of the file's. It is mapped where it was made for, unless something else is there.
_IN_PLACE = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
_READ_BYTES = 1 << 20


def java_options(java_home: Path, *, has_sql: bool = False) -> str:
    """Options for the driver's JVM. `has_sql`: rows pass through it, so compiling them well pays."""
    options = [_SMALL] if has_sql else [_SMALL, _QUICK, _LEAN]
    archive = archive_of(java_home)
    if archive is not None and is_whole(archive):
        options.append(f"-XX:SharedArchiveFile={archive} {_SILENT} {_IN_PLACE}")
        with suppress(OSError):
            os.utime(archive)  # in use: not the one to be removed
    return " ".join(options)


def archive_of(java_home: Path) -> Path | None:
    """Where the archive for this Java and this Spark is, or would be; None if there is no place for one."""
    release = (java_home / "release").resolve()  # a home that was made for a runtime has a link to its own
    parts = [str(release), pyspark.__version__, str(Path(pyspark.__file__).parent)]
    parts.append(release.read_text(errors="replace") if release.exists() else "")
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    directory = _directory()
    return directory and directory / f"spark-{pyspark.__version__}-{name}.jsa"


def is_whole(archive: Path | None) -> bool:
    """Return whether an archive is there, and every byte as it was made."""
    try:
        return archive is not None and _sum_file(archive).read_text() == _sum(archive)
    except (OSError, UnicodeDecodeError):
        return False


def _sum_file(archive: Path) -> Path:
    return archive.with_suffix(".crc32c")


def _sum(archive: Path) -> str:
    """Size and checksum; 0.1 s for an archive that the system has in memory."""
    size = checksum = 0
    with archive.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            size, checksum = size + len(chunk), google_crc32c.extend(checksum, chunk)
    return f"{size} {checksum:08x}"


def _directory() -> Path | None:
    """A directory below the user's cache; None where the user has no home, as in some containers.

    Never one that others can write to: what is in an archive is run.
    """
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(given) if given else Path.home() / ".cache") / "headgate"
    except RuntimeError:
        return None


def make_archive(java_home: Path) -> Path | None:
    """Start Spark once as pipelines use it and keep what it loaded; None if somebody else does, or it cannot be."""
    archive = archive_of(java_home)
    if archive is None:
        return None
    lock = FileLock(archive.parent / "lock")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not lock.acquire():
            return None
        return _make(java_home, archive)
    except OSError as error:
        logger.debug("no archive of Spark's classes: %s", error)
        return None
    finally:
        lock.release()


def _make(java_home: Path, archive: Path) -> Path | None:
    scratch = archive.parent / "making"
    shutil.rmtree(scratch, ignore_errors=True)  # of one that was killed
    scratch.mkdir()
    try:
        draft = scratch / "archive.jsa"
        _train(java_home, scratch, draft)
        if not draft.exists():
            return None  # this Java has no base archive to build on
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(archive)
        replace_file(_sum_file(archive), _sum(archive).encode())
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _prune(archive.parent)
    return archive


def _train(java_home: Path, scratch: Path, draft: Path) -> None:
    """In a process of its own: its Java must end by itself, which is when it writes the archive."""
    command = [sys.executable, "-m", "headgate.pipeline.training", str(java_home), str(scratch), str(draft)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        logger.debug("no archive of Spark's classes: %s", done.stderr.strip()[-500:])


def _prune(directory: Path) -> None:
    archives = sorted(directory.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for archive in archives[_KEPT:]:
        archive.unlink(missing_ok=True)
        _sum_file(archive).unlink(missing_ok=True)


class ArchiveMaker:
    """Makes a missing archive beside a running service, at the lowest priority; ends with it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, java_home: Path) -> None:
        """Nothing to do if there is one."""
        if is_whole(archive_of(java_home)):
            return
        command = [*_COMMAND, str(java_home)]
        with suppress(OSError):
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a group, with Spark and its Java
            )

    def stop(self) -> None:
        """Give it up if it is still at work: the next start tries again. Idempotent."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


if __name__ == "__main__":
    make_archive(Path(sys.argv[1]))
